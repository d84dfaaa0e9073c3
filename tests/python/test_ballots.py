"""Nodes that agree how much of a prefix a request of vLLM may take. Neither vLLM nor a node is needed."""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from cenote import _membership
from cenote.errors import NotRunning
from cenote.session import Match
from meeting import PATIENCE, InGroup, Meeting, until
from vllm_stand_ins import stand_ins

KEYS = [b"block%03d" % i for i in range(40)]
BLOCK = 16  # tokens


class FakeNode:
    """A session. `blocks`: group -> the numbers of those that are there; `pinned`: how often each is pinned."""

    asks_tiers = False

    def __init__(self, meeting: Meeting, full: Sequence[int], window: Sequence[int] = ()) -> None:
        self._meeting = meeting
        self.blocks = {"full": set(full), "window": set(window)}
        self.pinned: dict[tuple[str, int], int] = {}
        self.is_gone = False

    def join_group(self, name: str, rank: int, size: int, timeout: float, wait: float) -> InGroup:
        return self._meeting.join(name, rank, size, 0.05)

    def match(self, keys: Sequence[bytes], group: str = "full") -> Match:
        count = self._reach(keys, group)
        return Match(count, count)

    def acquire(self, keys: Sequence[bytes], group: str = "full") -> Any:
        if self.is_gone:
            raise NotRunning("gone")
        node, mine = self, [(group, KEYS.index(key)) for key in keys[: self._reach(keys, group)]]
        for each in mine:
            node.pinned[each] = node.pinned.get(each, 0) + 1

        class Held(list[Any]):
            def release(self) -> None:
                while mine:
                    each = mine.pop()
                    node.pinned[each] -= 1
                    if not node.pinned[each]:
                        del node.pinned[each]

        return Held(mine)

    def _reach(self, keys: Sequence[bytes], group: str) -> int:
        return next((i for i, key in enumerate(keys) if KEYS.index(key) not in self.blocks[group]), len(keys))

    def pins(self, group: str = "full") -> list[int]:
        return sorted(block for of, block in self.pinned if of == group)


class Engine:
    """The scheduler's side on the first of some nodes, and a voter on each of the others; steps between them."""

    def __init__(self, nodes: list[FakeNode], windows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        load = importlib.import_module
        agreement, finder, model = (load(f"cenote._vllm.{each}") for each in ("agreement", "finder", "model"))
        messages, places, stats = (load(f"cenote._vllm.{each}") for each in ("messages", "places", "stats"))
        voter, settings = load("cenote._vllm.voter"), load("cenote._vllm.settings")
        groups = [model.Group("full", 0), *([model.Group("window", 3 * BLOCK)] if windows else [])]

        class Stats:
            def add(self, **counted: float) -> None:
                for name, value in counted.items():
                    self.__dict__[name] = self.__dict__.get(name, 0) + value

        def connect(spec: Any, told: Any, *, node: int, **_: Any) -> Any:
            return SimpleNamespace(session=lambda: nodes[node], failed=lambda *_: None, close=lambda: None)

        monkeypatch.setattr(voter, "Connection", connect)
        self.stats: Any = Stats()
        self.together = messages.Together("g", places.Places(len(nodes), 1), tuple(nodes))
        mine = finder.Finder(groups, BLOCK, lambda *_: None)
        self.agreement = agreement.Agreement(self.together, lambda: nodes[0], mine)
        self.voters = [voter.Voter(i, groups, BLOCK, settings.Settings()) for i in range(1, len(nodes))]
        del stats
        self.step()
        until("all have met", lambda: self.agreement.is_possible)

    def step(self) -> None:
        asks, ended = self.agreement.taken()
        for each in self.voters:
            each.tell(self.together, asks, ended, self.agreement.is_possible)

    def ask(self, blocks: int, patience: float = PATIENCE) -> Any:
        ballot = self.agreement.begin(0, KEYS[:blocks], blocks * BLOCK, None)
        ballot.until = time.monotonic() + patience
        return ballot

    def answer(self, ballot: Any) -> int:
        def is_over() -> bool:
            self.step()
            return bool(self.agreement.is_over(ballot, self.stats))

        until("the nodes agree", is_over)
        return int(ballot.result)

    def close(self) -> None:
        self.agreement.close()
        for each in self.voters:
            each.close()


Make = Callable[..., Engine]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """make(*nodes, windows=False): an engine whose ranks sit on these."""
    monkeypatch.setattr(_membership, "_RETRY", 0.01)
    monkeypatch.setattr(_membership, "_LOOK", 0.01)
    made: list[Engine] = []

    def engine(*nodes: FakeNode, windows: bool = False) -> Engine:
        made.append(Engine(list(nodes), windows, monkeypatch))
        return made[-1]

    with stand_ins(monkeypatch):
        yield engine
        for each in made:
            each.close()


def test_a_node_that_is_asked_before_it_knows_that_all_have_met_answers_as_the_others(make: Make) -> None:
    knows, asked = threading.Event(), threading.Event()

    class LateNode(FakeNode):
        def join_group(self, name: str, rank: int, size: int, timeout: float, wait: float) -> InGroup:
            mine = super().join_group(name, rank, size, timeout, wait)
            assert knows.wait(PATIENCE)
            return mine

        def match(self, keys: Sequence[bytes], group: str = "full") -> Match:
            asked.set()
            return super().match(keys, group)

    meeting = Meeting()
    engine = make(FakeNode(meeting, range(9)), LateNode(meeting, range(7)))
    ballot = engine.ask(20)
    engine.step()
    assert asked.wait(PATIENCE)
    until("it has proposed", lambda: engine.voters[0]._membership._open)
    knows.set()
    assert engine.answer(ballot) == 7


def test_all_nodes_pin_what_all_of_them_have_and_nothing_more(make: Make) -> None:
    meeting = Meeting()
    nodes = [FakeNode(meeting, range(10)), FakeNode(meeting, range(7)), FakeNode(meeting, [*range(5), *range(6, 20)])]
    engine = make(*nodes)
    ballot = engine.ask(20)
    assert engine.answer(ballot) == 5
    for node in nodes:
        until("its surplus pins have ended", lambda node=node: node.pins() == list(range(5)))
    assert (engine.stats.agreements, engine.stats.blocks_not_everywhere) == (1, 5)
    engine.agreement.drop(ballot)
    assert nodes[0].pins() == []
    engine.step()
    for node in nodes[1:]:
        until("its pins have ended", lambda node=node: node.pins() == [])


def test_a_prefix_ends_where_the_windows_of_all_nodes_end(make: Make) -> None:
    meeting = Meeting()
    # The first could end at 20, 12 and 8, the other at 18, 15, 11 and 8 blocks: behind a window of three.
    here = FakeNode(meeting, range(20), window=[5, 6, 7, 9, 10, 11, 17, 18, 19])
    there = FakeNode(meeting, range(18), window=[5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17])
    engine = make(here, there, windows=True)
    ballot = engine.ask(30)
    assert engine.answer(ballot) == 8
    assert (here.pins(), here.pins("window")) == (list(range(8)), [5, 6, 7])
    until("the other one's, too", lambda: (there.pins(), there.pins("window")) == (list(range(8)), [5, 6, 7]))
    engine.agreement.drop(ballot)


def test_when_the_group_is_lost_open_questions_end_with_nothing_and_the_next_ones_come_in_another(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="cenote")
    meeting = Meeting()
    nodes = [FakeNode(meeting, range(10)), FakeNode(meeting, range(10))]
    engine = make(*nodes)
    meeting.silent.add(1)
    ballot = engine.ask(10)
    assert not engine.agreement.is_over(ballot, engine.stats)  # asked, and no answer comes
    meeting.lose()
    assert engine.answer(ballot) == 0
    assert nodes[0].pins() == []
    until("they have met again", lambda: len(meeting.formed) == 2 and engine.agreement.is_possible)
    meeting.silent.clear()
    assert engine.answer(engine.ask(10)) == 10
    said = [each for each in caplog.messages if "lost each other" in each]
    assert len(said) == 2, "each side says it once"


def test_a_node_that_hears_of_no_loss_is_told_by_the_scheduler(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting()
    engine = make(FakeNode(meeting, range(10)), FakeNode(meeting, range(10)))
    monkeypatch.setattr(importlib.import_module("cenote._vllm.voter"), "_STALE", 0.2)
    (first,) = [each for each in meeting.formed[0] if each.rank == 0]
    first.lost = True  # as when the worker of its node was replaced
    until("it is known there", lambda: not engine.agreement.is_possible)
    until("they have met again", lambda: engine.step() or engine.agreement.is_possible)
    assert engine.answer(engine.ask(10)) == 10


def test_a_question_that_another_node_does_not_hear_ends_when_nobody_waits_any_more(make: Make) -> None:
    meeting = Meeting()
    nodes = [FakeNode(meeting, range(10)), FakeNode(meeting, range(10))]
    engine = make(*nodes)
    meeting.silent.add(1)
    ballot = engine.ask(10, patience=0.05)
    assert engine.answer(ballot) == 0
    assert nodes[0].pins() == []


def test_a_node_whose_session_fails_has_nothing(make: Make) -> None:
    meeting = Meeting()
    nodes = [FakeNode(meeting, range(10)), FakeNode(meeting, range(10))]
    engine = make(*nodes)
    nodes[1].is_gone = True
    assert engine.answer(engine.ask(10)) == 0


def test_ranks_share_nodes_as_they_are_placed_and_the_first_of_a_node_writes_what_it_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with stand_ins(monkeypatch):
        load = importlib.import_module
        module, Settings = load("cenote._vllm.places"), load("cenote._vllm.settings").Settings
        Unservable, machines = load("cenote._vllm.layout").Unservable, ["a", "a", "b", "b"]

        def places(told: Any = None, nnodes: int = 1, on: Sequence[str] = ("a", "a", "a", "a"), copies: int = 1) -> Any:
            parallel = SimpleNamespace(tensor_parallel_size=4, nnodes_within_dp=nnodes, local_world_size=4 // nnodes)
            return module.places_of(parallel, copies, Settings(**(told or {})), dict(enumerate(on)))

        assert places().share_of(0).is_whole
        for two in (
            places(nnodes=2),
            places(on=machines),
            places({"ranks_per_node": 2}),
            places({"sockets": ("/a", "/b")}),
        ):
            assert [two.share_of(node).names for node in range(two.nodes)] == [["tp0", "tp1"], ["tp2", "tp3"]]
            assert [two.node_of(rank) for rank in range(4)] == [0, 0, 1, 1]
            assert [two.is_first(rank) for rank in range(4)] == [True, False, True, False]
        # of ranks that hold the same, the first of each node writes; so nodes hold the same and may exchange it
        mla = places(nnodes=2, copies=4)
        assert [mla.share_of(node).is_whole for node in range(2)] == [True, True]
        assert [mla.writes(rank) for rank in range(4)] == [True, False, True, False]
        pairs = places(nnodes=2, copies=2)
        assert [pairs.share_of(node).names for node in range(2)] == [["tp0"], ["tp1"]]
        for wrong in (
            lambda: places(on=["a", "b", "b", "b"]),
            lambda: places({"ranks_per_node": 3}),
            lambda: places({"sockets": ("/a", "/b"), "ranks_per_node": 4}),
            lambda: places({"sockets": ("/a", "/b", "/c")}),
        ):
            with pytest.raises(Unservable):
                wrong()
