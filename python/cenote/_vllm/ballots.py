"""How long a prefix all nodes of an engine have: each proposes what it has, and all get the least."""

from __future__ import annotations

import time

from .._membership import Membership
from ..errors import CenoteError
from ..session import Session
from .finder import Finder, Offer, Search
from .messages import Ask

ROUNDS = 8  # of one ballot; its number is the first of so many questions
TIMEOUT = 5.0  # seconds, of a question; one that is not complete after 0.4 of them is answered with 0
_LEAST, _MOST = 0.1, 2.0  # seconds that a request waits for an answer
HOLD = 30.0  # seconds that blocks which were agreed on stay pinned for their load


def patience_of(tokens: int, tokens_per_s: float | None) -> float:
    """Seconds that a request waits for a ballot: not longer than computing `tokens` would take."""
    return min(max(_LEAST, tokens / tokens_per_s), _MOST) if tokens_per_s else _MOST


class Ballot:
    """One node's side of it. First it looks what it has, then it proposes that. Where a prefix cannot end anywhere (for
    windows), what was agreed on is proposed again, until every node can end there."""

    def __init__(self, ask: Ask) -> None:
        now = time.monotonic()
        self.ask = ask
        self.offer = Offer(ask.first, ask.keys)
        self.search = Search(traceparent=ask.traceparent)
        self.result: int | None = None  # blocks
        self.surplus = 0  # blocks that this node had, and another one not
        self._look_until = now + ask.patience / 2
        self.until = now + ask.patience
        self._round = 0
        self._bound = len(ask.keys)
        self._is_proposed = False

    def step(self, session: Session | None, finder: Finder, membership: Membership) -> bool:
        """Whether it is over: then `result` blocks of `offer` may be taken, and are pinned. Never waits. CenoteError:
        something went wrong with the session; it is over, and its result is 0."""
        if self.result is not None:
            return True
        try:
            if session is not None:
                if not self._is_proposed:
                    if self._looks_on(session, finder):
                        return False
                    self._propose(membership, self.offer.count)
                return self._hear(session, finder, membership)
        except CenoteError:
            self._give_up(finder, membership)
            raise
        self._give_up(finder, membership)
        return True

    def close(self, finder: Finder, membership: Membership) -> None:
        """Nobody wants to know any more; `offer` keeps its pins."""
        self._end(finder, membership, self.result or 0)

    def _give_up(self, finder: Finder, membership: Membership) -> None:
        if not self._is_proposed:
            self._propose(membership, 0)  # the others need not wait for this node
        self._end(finder, membership, 0)

    def _looks_on(self, session: Session, finder: Finder) -> bool:
        self.offer.release()
        self.offer = Offer(self.ask.first, self.ask.keys)
        if not finder.find(session, self.search, self.offer, self.ask.tokens_per_s):
            return False
        if time.monotonic() < self._look_until:
            self.offer.release()
            return True
        finder.end(self.search)
        self.offer.release()
        self.offer = Offer(self.ask.first, self.ask.keys)
        finder.pin(session, self.offer)
        return False

    def _propose(self, membership: Membership, count: int) -> None:
        self._is_proposed = True
        membership.propose(self._question, count)

    @property
    def _question(self) -> int:
        return self.ask.number * ROUNDS + self._round

    def _hear(self, session: Session, finder: Finder, membership: Membership) -> bool:
        agreed = membership.answer(self._question)
        if agreed is None:
            if time.monotonic() < self.until + TIMEOUT:
                return False
            agreed = 0
        agreed = min(agreed, self.offer.count)
        if agreed < self.offer.count:
            self.surplus += self.offer.count - agreed
            self.offer = finder.cut(session, self.offer, agreed)
        if 0 < agreed < self._bound and any(group.window for group in finder.groups):
            self._round, self._bound = self._round + 1, agreed
            if self._round < ROUNDS:
                self._propose(membership, self.offer.count)
                return False
            agreed = 0
        self._end(finder, membership, min(agreed, self.offer.count))
        return True

    def _end(self, finder: Finder, membership: Membership, result: int) -> None:
        finder.end(self.search)
        membership.forget(self._question)
        if self.result is None and result == 0:
            self.offer.release()
        self.result = result
