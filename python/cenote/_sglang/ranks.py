"""Ranks on several nodes: a lookup's answer is what the nodes of all of them have.

SGLang reduces the answers of its ranks to the least by itself, and so it does with what they fetched: lengths differ
nowhere behind that. What this adds is that a rank keeps and brings up no more than the others have.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from .._identity import digest
from .._membership import Membership
from ..session import Session
from .engine import arguments_of, value_of
from .keys import WIDTH, Keys

_TIMEOUT = 1.0  # seconds, of a question; one that not all ranks asked within 0.4 of them is answered with 0
_TICK = 0.5  # seconds, by which questions are numbered: more than ranks may be late
_MOST = 1024  # answers that are kept
_CHAIN_BITS = 36  # of a question's number; the others count ticks, for four years


class Place(NamedTuple):
    """`rank` of `size` that hold parts of the same tokens' pages, in the group `name`."""

    name: str
    rank: int
    size: int


def place_of(config: Any) -> Place | None:
    """From SGLang's server arguments and its HiCacheStorageConfig; None: all ranks are on this machine, and what SGLang
    itself agrees on is enough."""
    arguments = arguments_of()
    if arguments is None or int(value_of(arguments, "nnodes") or 1) < 2:
        return None
    size = config.tp_size * config.attn_cp_size
    if size < 2:
        return None
    # The address of this launch's first node is no other launch's at the same time.
    launch = [str(value_of(arguments, "dist_init_addr")), config.pp_rank, getattr(config, "dp_rank", 0)]
    return Place(f"sglang-{digest(launch)[:32]}", config.attn_cp_rank * config.tp_size + config.tp_rank, size)


class Ranks:
    """This rank's side. Thread-safe.

    All ranks number a question alike without a word: by its keys, and by the time since the group was formed. Ranks do
    not look up equally often (an operation that SGLang ended meanwhile is skipped by some), so counting would not do.
    """

    def __init__(self, place: Place, session: Callable[[], Session | None]) -> None:
        self._membership = Membership(session, place.name, place.rank, place.size, timeout=_TIMEOUT)
        self._lock = threading.Lock()
        self._answers: dict[tuple[float, int], int] = {}  # by when all met and question, in the order of their coming

    def agree(self, keys: Keys, length: int) -> int:
        """At most `length`: pages that all ranks have of this chain. 0 also where a rank did not ask, or the group is
        not there. Waits for the others for a moment."""
        with self._lock:  # two at a time about one chain would be one question asked twice
            met_at = self._membership.met_at
            if met_at is None:
                return 0
            now = int((time.monotonic() - met_at) / _TICK)
            # Two, each of which is asked for two ticks: a rank that asks up to a tick later than another shares one.
            asked = {(met_at, number): number for number in (_number(keys, now), _number(keys, now + 1))}
            known = {each: self._answers[each] for each in asked if each in self._answers}
            fresh = {number: each for each, number in asked.items() if each not in known}
            for number, answer in self._ask(list(fresh), length).items():
                known[fresh[number]] = self._answers[fresh[number]] = answer
            while len(self._answers) > _MOST:
                del self._answers[next(iter(self._answers))]
            return min(max(known.values(), default=0), length)

    def _ask(self, questions: list[int], length: int) -> dict[int, int]:
        for each in questions:
            self._membership.propose(each, length)
        answers = self._membership.answers(questions, 2 * _TIMEOUT)
        for each in questions:
            self._membership.forget(each)
        return answers if any(answers.values()) else dict.fromkeys(questions, 0)

    def close(self) -> None:
        self._membership.close()


def _number(keys: Keys, tick: int) -> int:
    """Numbers of questions grow with time. The last key stands for all before it."""
    chain = hashlib.sha256(keys.packed[-WIDTH:] + len(keys).to_bytes(8, "little")).digest()
    return tick << _CHAIN_BITS | int.from_bytes(chain[:8], "little") >> 64 - _CHAIN_BITS
