"""How far a request's prefix reaches in the tiers of a node, with what each of its KV groups needs of it."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .._calls import Calls
from ..session import Session
from .model import Group

_THREADS = 4  # that wait for answers; a session may have 64 questions open, and a long chain takes eight
_SHORTEST = 0.002  # seconds: what is gone before any tier could answer is not asked
_PATIENCE = 0.05  # seconds, where nothing says how fast the engine computes
_LONGEST = 2.0  # seconds
_SHARE = 0.05  # of the time that computing what is asked for would take

Reach = Callable[[Group, Sequence[bytes]], int]  # how many of the first blocks there are


@dataclasses.dataclass(frozen=True)
class Prefix:
    """`keys`: of a request's blocks from its block `first` on."""

    groups: Sequence[Group]
    block_size: int  # tokens
    first: int
    keys: Sequence[bytes]

    def first_of(self, group: Group, count: int) -> int:
        """The first of the keys whose block this group needs, if the first `count` are taken."""
        return max(0, group.first_needed((self.first + count) * self.block_size, self.block_size) - self.first)

    def longest(self, reach: Reach) -> int:
        """The longest prefix, in blocks, of which `reach` has what every group needs."""
        return self.with_windows(min(reach(each, self.keys) for each in self.groups if not each.window), reach)

    def with_windows(self, longest: int, reach: Reach) -> int:
        """The longest prefix of at most `longest` blocks of which `reach` has what every window group needs."""
        count, longer = longest, longest + 1
        while 0 < count < longer:
            longer = count
            for group in self.groups:
                if group.window:
                    first = self.first_of(group, longer)
                    there = reach(group, self.keys[first:longer])
                    if first + there < longer:  # every prefix that ends behind the missing block needs it, too
                        count = min(count, first + there)
        return count


class Tiers(NamedTuple):
    """Where a request's blocks were when they were asked for: those before `dram` in DRAM, before `local` there or on
    NVMe, and all others in tiers that have to be asked."""

    dram: int
    local: int

    def split(self, first: int, count: int) -> tuple[int, int, int]:
        """Of `count` blocks from `first` on, how many came from DRAM, from NVMe, and from elsewhere."""
        dram = min(max(0, self.dram - first), count)
        local = min(max(dram, self.local - first), count)
        return dram, local - dram, count - local


class Question:
    """How far a prefix reaches with those tiers asked that have to be: open for a while, and nobody waits in it."""

    def __init__(self, session: Session, first: int, until: float, answer: concurrent.futures.Future[int]) -> None:
        self.session = session
        self._first = first
        self._until = until
        self._answer = answer

    def is_open(self) -> bool:
        return not self._answer.done() and time.monotonic() < self._until

    def end(self) -> int:
        """The request's block behind the last that is there; 0: there was no answer in time. CenoteError: see
        Session.locate()."""
        return self._first + self._answer.result() if self._answer.done() and not self._answer.cancelled() else 0

    def drop(self) -> None:
        """Nobody wants to know any more."""
        self._answer.cancel()


class Asker:
    """Asks in threads: the scheduler's never waits for a node."""

    def __init__(self) -> None:
        self._threads: Calls | None = None

    def ask(self, session: Session, prefix: Prefix, missing: int, tokens_per_s: float | None) -> Question | None:
        """`missing`: tokens to be computed if nothing more is found, `tokens_per_s`: how fast (None, 0: unknown). None:
        computing them is over before there would be an answer."""
        worth = _SHARE * missing / tokens_per_s if tokens_per_s else _PATIENCE
        if worth < _SHORTEST:
            return None
        if self._threads is None:
            self._threads = Calls(_THREADS, "cenote-ask")
        until = time.monotonic() + min(worth, _LONGEST)
        return Question(session, prefix.first, until, self._threads.submit(_locate, session, prefix, until))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()


def _locate(session: Session, prefix: Prefix, until: float) -> int:
    def reach(group: Group, keys: Sequence[bytes]) -> int:
        left = until - time.monotonic()  # when it is used up, what the node says without asking counts
        return session.locate(keys, group=group.name, timeout=left if left >= _SHORTEST else 0).reachable

    return prefix.longest(reach)
