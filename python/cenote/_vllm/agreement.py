"""The scheduler's side of an engine whose ranks sit on several nodes: a request is offered what all of them have."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from .._membership import Membership
from ..session import Session
from .ballots import HOLD, TIMEOUT, Ballot, patience_of
from .finder import Finder
from .messages import Ask, Together
from .stats import CenoteStats


class Agreement:
    """Of the scheduler's thread."""

    def __init__(
        self, together: Together, session: Callable[[], Session | None], finder: Finder, first: int = 0
    ) -> None:
        """`session()`: the present one on rank 0's node. `first`: ballots have numbers from here on."""
        self.together = together
        self._session = session
        self._finder = finder
        self._membership = Membership(session, together.group, 0, together.places.nodes, timeout=TIMEOUT)
        self._asks: list[Ask] = []
        self._ended: list[int] = []
        self._is_told = False  # the other nodes know the group
        self._next = first

    @property
    def is_possible(self) -> bool:
        """Whether the nodes have met."""
        return self._membership.is_in

    def begin(
        self,
        first: int,
        keys: Sequence[bytes],
        tokens: int,
        tokens_per_s: float | None,
        traceparent: str | None = None,
    ) -> Ballot:
        """`tokens`: that these keys stand for. The other nodes are told with the next step."""
        self._next += 1
        ask = Ask(self._next, first, list(keys), tokens_per_s, patience_of(tokens, tokens_per_s), traceparent)
        self._asks.append(ask)
        return Ballot(ask)

    def is_over(self, ballot: Ballot, stats: CenoteStats) -> bool:
        """Whether `ballot.result` is known: at the latest when nobody waits any more. CenoteError: of Ballot.step()."""
        if ballot.result is not None:
            return True
        if time.monotonic() >= ballot.until:
            self._close(ballot)
        elif not ballot.step(self._session(), self._finder, self._membership):
            return False
        ballot.until = time.monotonic() + HOLD / 2  # the other nodes hold their blocks for longer
        stats.add(agreements=1, blocks_not_everywhere=ballot.surplus)
        return True

    def is_stale(self, ballot: Ballot, first: int, keys: Sequence[bytes]) -> bool:
        """Whether it is not about this, or too old to be relied on."""
        ask = ballot.ask
        if ask.first != first or len(ask.keys) != len(keys) or ask.keys[-1] != keys[-1]:  # they are chained
            return True
        return ballot.result is not None and time.monotonic() >= ballot.until

    def drop(self, ballot: Ballot) -> None:
        """Nobody needs its blocks."""
        self._close(ballot)
        ballot.offer.release()
        self.over(ballot.ask.number)

    def over(self, number: int) -> None:
        """The blocks of this ballot were loaded, or are not needed any more."""
        self._ended.append(number)

    def taken(self) -> tuple[list[Ask], list[int]]:
        """What the other nodes are to be told."""
        taken = self._asks, self._ended
        self._asks, self._ended, self._is_told = [], [], True
        return taken

    @property
    def has_news(self) -> bool:
        """Whether a step is needed, if only to tell the other nodes."""
        return bool(self._asks or self._ended or not self._is_told)

    def close(self) -> None:
        self._membership.close()

    def _close(self, ballot: Ballot) -> None:
        ballot.close(self._finder, self._membership)
