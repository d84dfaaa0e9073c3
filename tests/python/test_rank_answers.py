"""SGLang's ranks on several nodes: what a rank answers is what all have. Neither SGLang nor a node is needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cenote import _membership
from cenote._sglang import ranks as module
from cenote._sglang.keys import Keys
from meeting import Meeting, until

CHAIN = Keys(bytes(32) + b"1" * 32)
OTHER = Keys(bytes(32) + b"2" * 32)


class Ranks:
    """Two of them, with a clock of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.meeting = Meeting()
        self.now = 100.0
        self.late = 0.0  # seconds, by which the second one is
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=self._clock))
        monkeypatch.setattr(_membership, "time", SimpleNamespace(monotonic=lambda: 100.0))
        monkeypatch.setattr(_membership, "_RETRY", 0.01)
        monkeypatch.setattr(_membership, "_LOOK", 0.01)

        def join(name: str, rank: int, size: int, timeout: float, wait: float) -> Any:
            return self.meeting.join(name, rank, size, 0.05)

        session: Any = SimpleNamespace(join_group=join)
        self.all = [module.Ranks(module.Place("g", rank, 2), lambda: session) for rank in range(2)]
        until("they have met", lambda: all(each._membership.is_in for each in self.all))

    def _clock(self) -> float:
        return self.now + (self.late if threading.current_thread().name == "rank 1" else 0.0)

    def ask(self, chains: list[Keys], lengths: list[int]) -> list[int]:
        """Each in a thread, as in processes."""
        found = [-1] * len(lengths)

        def one(rank: int) -> None:
            found[rank] = self.all[rank].agree(chains[rank], lengths[rank])

        threads = [threading.Thread(target=one, args=(rank,), name=f"rank {rank}") for rank in range(len(lengths))]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return found


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    made = Ranks(monkeypatch)
    yield made
    for each in made.all:
        each.close()


def test_ranks_answer_the_least_and_the_same_for_a_while(ranks: Ranks) -> None:
    assert ranks.ask([CHAIN, CHAIN], [2, 1]) == [1, 1]
    assert ranks.ask([OTHER, OTHER], [2, 2]) == [2, 2]
    assert ranks.ask([CHAIN, CHAIN], [2, 2]) == [1, 1], "it is the same question yet"
    assert ranks.ask([OTHER, OTHER], [2, 0]) == [2, 0], "never more than a rank has itself"
    ranks.now += 1.0
    assert ranks.ask([CHAIN, CHAIN], [2, 2]) == [2, 2]


@pytest.mark.parametrize("now", [100.0, 100.2, 100.4, 100.6, 100.9])
def test_ranks_that_ask_a_little_later_than_others_share_a_question(ranks: Ranks, now: float) -> None:
    ranks.now, ranks.late = now, 0.45
    assert ranks.ask([CHAIN, CHAIN], [2, 1]) == [1, 1]


def test_what_one_rank_does_not_ask_costs_that_question_alone(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 0.05)
    assert ranks.ask([CHAIN], [2]) == [0]  # the other one has left it out
    monkeypatch.setattr(module, "_TIMEOUT", 60.0)
    assert ranks.ask([OTHER, OTHER], [2, 2]) == [2, 2]
    assert ranks.all[0].agree(CHAIN, 2) == 0


def test_numbers_of_questions_grow_with_time_and_fit(ranks: Ranks) -> None:
    numbers = [module._number(chain, window) for window in (0, 1, 2**27) for chain in (CHAIN, OTHER)]
    assert max(numbers[:2]) < min(numbers[2:4]) and max(numbers[2:4]) < min(numbers[4:]) and max(numbers) < 2**64
    assert len(set(numbers)) == 6
    assert module._number(CHAIN, 3) != module._number(CHAIN.cut(1), 3), "another length is another question"


def test_without_the_others_there_is_nothing(ranks: Ranks) -> None:
    ranks.all[1].close()
    until("it has left", lambda: not ranks.all[1]._membership.is_in)
    until("the other one hears of it when it asks", lambda: ranks.all[0].agree(CHAIN, 2) == 0)
    until("and is in no group", lambda: not ranks.all[0]._membership.is_in)
    assert ranks.all[0].agree(CHAIN, 2) == 0
