"""Finds how much of a request's prefix a node has, brings up what lies lower, and pins it. Nobody waits in it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

from .._near import Near, Taken, acquire, reachable, resident
from ..errors import CenoteError, DeadlineExceeded, NodeRestarting
from ..prefetch import Prefetch
from ..session import Session
from .model import Group
from .reach import Asker, Prefix, Question, Tiers

_QUIET = 5.0  # seconds without prefetches after the node did not answer one
_WINDOWS_SHARE = 0.1  # of the time to compute a prefix that is there: for which its windows are waited for alone


class Offer:
    """Blocks found for a request, pinned. `first`: the position of the first in the request."""

    __slots__ = ("ballot", "count", "first", "held", "keys", "starts", "tiers")

    def __init__(self, first: int, keys: Sequence[bytes]) -> None:
        self.first = first
        self.keys = keys
        self.count = 0  # blocks offered
        self.tiers: Tiers | None = None  # where they were; None: all in DRAM
        self.held: list[Taken] = []
        self.starts: list[int] = []  # by group: a window group is pinned from here on
        self.ballot: int | None = None  # on which other nodes hold them, too

    def release(self) -> None:
        for held in self.held:
            with contextlib.suppress(CenoteError):  # their session is gone
                held.release()
        self.held.clear()


@dataclasses.dataclass
class Search:
    """How far it has come for one request."""

    question: Question | None = None  # about tiers that have to be asked
    asked: bool = False  # a second question would find nothing else
    prefetches: list[Prefetch] = dataclasses.field(default_factory=list)  # one for each group
    wanted: int = 0  # blocks of those groups that need all
    windows_until: float | None = None  # when windows are waited for no longer
    tiers: Tiers | None = None  # where its blocks were when they began
    prefetched: bool = False  # a second prefetch would bring nothing else
    traceparent: str | None = None  # of the request


class Finder:
    """Of one thread. `failed(why, session)` is told what went wrong on the way."""

    def __init__(
        self, groups: Sequence[Group], block_size: int, failed: Callable[[CenoteError, Session | None], None]
    ) -> None:
        self.groups = groups
        self.near: Near[Any] | None = None  # blocks on the engine's device
        self._block_size = block_size
        self._failed = failed
        self._asker = Asker()
        self._quiet_until = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether the node did not answer lately: the scheduler asks it for nothing then."""
        return time.monotonic() < self._quiet_until

    def note(self, failure: CenoteError) -> None:
        """A failure of a call that the scheduler waited for begins a quiet time, if the node did not answer it."""
        if isinstance(failure, DeadlineExceeded | NodeRestarting):
            self._quiet_until = time.monotonic() + _QUIET

    def find(self, session: Session, search: Search, offer: Offer, tokens_per_s: float | None) -> bool:
        """Pins what is there; true: wait, more is on its way. `tokens_per_s`: how fast the engine computes; None:
        unknown. CenoteError: the offer is not to be used."""
        if search.question is not None and search.question.is_open():
            return True
        if search.prefetches:
            if self._is_coming(search, tokens_per_s):
                return True
            search.prefetched = True
        self.pin(session, offer)
        if search.prefetches:
            offer.tiers = search.tiers
            self._end_prefetch(search)
        elif not search.prefetched and offer.count < len(offer.keys):
            return self._bring(session, search, offer, tokens_per_s)
        return False

    def pin(self, session: Session, offer: Offer) -> None:
        """What is there now."""
        if len(self.groups) == 1:
            held = acquire(self.near, session, offer.keys, self.groups[0].name)
            offer.held, offer.starts, offer.count = [held], [0], len(held)
            return
        prefix = self._prefix(offer)
        count = prefix.longest(lambda group, keys: resident(self.near, session, keys, group.name))
        if count == 0:
            return
        for group in self.groups:
            start = prefix.first_of(group, count)
            held = acquire(self.near, session, offer.keys[start:count], group.name)
            offer.held.append(held)
            offer.starts.append(start)
            if len(held) < count - start:  # evicted in between
                return
        offer.count = count

    def cut(self, session: Session, offer: Offer, count: int) -> Offer:
        """The same of its first `count` blocks, or of fewer where a window does not end there; the pins of the others
        end."""
        made = Offer(offer.first, offer.keys[:count])
        made.tiers = offer.tiers
        try:
            if count:
                self.pin(session, made)
        except CenoteError:
            made.release()
            raise
        finally:
            offer.release()
        return made

    def end(self, search: Search) -> None:
        """Nobody wants to know any more."""
        question, search.question = search.question, None
        if question is not None:
            question.drop()
        self._end_prefetch(search)

    def close(self) -> None:
        self._asker.close()

    def _is_coming(self, search: Search, tokens_per_s: float | None) -> bool:
        """Whether it is worth waiting for what the prefetches still bring."""
        done = [each.done for each in search.prefetches]  # asked all: that pins what came
        whole = [i for i, group in enumerate(self.groups) if not group.window]
        if all(done) or not all(done[i] for i in whole):
            return not all(done)
        # Windows are not compared with computing, for nothing can be used without them; nor is what ended too early.
        length = min(search.prefetches[i].length for i in whole)
        if search.windows_until is None and tokens_per_s:
            search.windows_until = time.monotonic() + _WINDOWS_SHARE * length * self._block_size / tokens_per_s
        late = search.windows_until is not None and time.monotonic() >= search.windows_until
        return length >= search.wanted and not late

    def _prefix(self, offer: Offer) -> Prefix:
        return Prefix(self.groups, self._block_size, offer.first, offer.keys)

    def _bring(self, session: Session, search: Search, offer: Offer, tokens_per_s: float | None) -> bool:
        """Whether lower tiers may have more of it: they are asked, or the node began to bring it up."""
        if self.is_quiet:
            return False
        prefix = self._prefix(offer)
        count = local = prefix.longest(lambda group, keys: reachable(self.near, session, keys, group.name))
        if local < len(offer.keys) and session.asks_tiers:
            if not any(group.window for group in self.groups):
                count = len(offer.keys)  # the node asks, and the prefetch ends where no tier has more
            elif not search.asked:
                search.asked = True
                missing = (len(offer.keys) - offer.count) * self._block_size
                search.question = self._asker.ask(session, prefix, missing, tokens_per_s)
                if search.question is not None:
                    return True
            else:
                count = max(local, min(self._answer(search) - offer.first, len(offer.keys)))
        if count <= offer.count:
            return False
        search.tiers = Tiers(offer.first + offer.count, offer.first + local)
        # A chain that begins with blocks that only the device has would end there.
        here = offer.count if self.near is not None and len(self.groups) == 1 else 0
        self._start_prefetch(session, search, prefix, here, count, tokens_per_s)
        return True

    def _answer(self, search: Search) -> int:
        """The request's block up to which all tiers together have it; 0: that is not known."""
        question, search.question = search.question, None
        if question is None:
            return 0
        try:
            return question.end()
        except CenoteError as why:
            self._failed(why, question.session)  # which may be an earlier one by now
            return 0
        finally:
            question.drop()

    def _start_prefetch(
        self, session: Session, search: Search, prefix: Prefix, here: int, count: int, tokens_per_s: float | None
    ) -> None:
        search.wanted, search.windows_until = count, None
        try:
            for group in self.groups:
                keys = prefix.keys[max(prefix.first_of(group, count), here) : count]
                # A window is short, but nothing of the prefix can be used without it.
                rate, threshold = (0, 0) if group.window else (tokens_per_s, None)
                made = session.prefetch(
                    keys,
                    prefill_tokens_per_s=rate,
                    threshold_tokens=threshold,
                    group=group.name,
                    traceparent=search.traceparent,
                )
                search.prefetches.append(made)
        except CenoteError as why:
            self._end_prefetch(search)
            self.note(why)
            raise

    def _end_prefetch(self, search: Search) -> None:
        prefetches, search.prefetches = search.prefetches, []
        for each in prefetches:
            try:
                each.release()
            except CenoteError as why:
                self._failed(why, None)
