"""A place in a group that agrees, looked after in a thread: it joins, hears, and joins again when all was lost."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence

from .errors import CenoteError
from .groups import Group
from .session import Session

logger = logging.getLogger("cenote")

_POLL = 0.002  # seconds between two looks for answers while there are questions
_LOOK = 0.25  # seconds between two looks whether the session is still the same
_MEET = 2.0  # seconds of one attempt to join: others may come later
_RETRY = 0.25  # seconds after an attempt to join that failed


class Membership:
    """Joins when it is made, and again whenever the group was lost: then the open questions are answered with 0, and
    there is no cache until all have met again. Thread-safe."""

    def __init__(
        self, session: Callable[[], Session | None], name: str, rank: int, size: int, *, timeout: float
    ) -> None:
        """`session()`: the present one; a group lives as long as the one that it was joined with. `rank` of `size`.
        `timeout`: seconds, of a question."""
        self.name = name
        self._session = session
        self._rank = rank
        self._size = size
        self._timeout = timeout
        self._change = threading.Condition()  # over what follows
        self._proposals: list[tuple[int, int]] = []
        self._open: set[int] = set()
        self._answers: dict[int, int] = {}
        self._met_at: float | None = None
        self._is_joining = False
        self._ended = False
        self._is_stale = False
        self._said = ""  # the last thing that was logged: a state is told once
        self.losses = 0
        self._thread = threading.Thread(target=self._run, name="cenote-group", daemon=True)
        self._thread.start()

    @property
    def is_in(self) -> bool:
        """Whether questions make sense now."""
        return self._met_at is not None

    @property
    def met_at(self) -> float | None:
        """When the group was formed, by this process's monotonic clock: at all ranks within milliseconds. None: they
        have not met, or lost each other."""
        return self._met_at

    def propose(self, question: int, length: int) -> None:
        """Each question once. One that comes during an attempt to join waits for its end: the other ranks may ask as
        soon as all are in, before this one has returned from joining."""
        with self._change:
            if self._met_at is None and not self._is_joining:
                self._answers[question] = 0
                return
            self._open.add(question)
            self._proposals.append((question, length))
            self._change.notify_all()

    def answer(self, question: int) -> int | None:
        """What the group agreed on, at most what was proposed; 0 also where there is no group any more. None: not known
        yet. An answer is given once."""
        return self.answers([question], 0.0).get(question)

    def answers(self, questions: Sequence[int], patience: float) -> dict[int, int]:
        """Waits `patience` seconds at most, until one has an answer that is not 0, or each has one."""
        with self._change:

            def is_enough() -> bool:
                said = [self._answers.get(each) for each in questions]
                return self._ended or any(said) or None not in said

            if patience > 0:
                self._change.wait_for(is_enough, patience)
            return {each: self._answers.pop(each) for each in questions if each in self._answers}

    def forget(self, question: int) -> None:
        """Nobody wants to know any more."""
        with self._change:
            self._open.discard(question)
            self._answers.pop(question, None)

    def renew(self) -> None:
        """Another rank is known to have lost the group. Who asks nothing does not hear of that by itself."""
        self._is_stale = self._met_at is not None

    def close(self) -> None:
        with self._change:
            self._ended = True
            self._change.notify_all()

    # ---- in the thread

    def _run(self) -> None:
        while not self._ended:
            session = self._session()
            self._is_joining = session is not None
            group = self._join(session) if session is not None else None
            if group is None:
                with self._change:
                    self._end_questions()
                    self._change.wait_for(lambda: self._ended, _RETRY)
                continue
            assert session is not None
            self._serve(session, group)
            with contextlib.suppress(CenoteError):
                group.leave()

    def _join(self, session: Session) -> Group | None:
        """None: the others are not there, or this node is not in a cluster with them."""
        try:
            group = session.join_group(self.name, self._rank, self._size, self._timeout, wait=_MEET)
        except CenoteError as why:
            if str(why) != self._said and not self._ended:
                self._said = str(why)
                logger.warning("the nodes of this engine have not met; it runs without them: %s", self._said)
            return None
        self._said = ""
        logger.info("the %d nodes of this engine have met; %s is number %d", self._size, self.name, self._rank)
        return group

    def _serve(self, session: Session, group: Group) -> None:
        """Until it is lost or nobody needs it any more."""
        why = "the session ended"
        with self._change:
            self._is_stale, self._met_at, self._is_joining = False, time.monotonic(), False
        try:
            while not self._ended and self._session() is session and not self._is_stale:
                self._turn(group)
            why = "another rank has lost it" if self._is_stale else why
        except CenoteError as lost:
            why = str(lost) or type(lost).__name__
        with self._change:
            self._end_questions()
        if not self._ended:
            self.losses += 1
            logger.warning(
                "the nodes of this engine lost each other; nothing is taken from them until they meet: %s", why
            )

    def _end_questions(self) -> None:
        """Under `_change`: there is no group that could answer them."""
        self._met_at, self._is_joining = None, False
        self._proposals.clear()
        self._answers.update(dict.fromkeys(self._open, 0))
        self._open.clear()
        self._change.notify_all()

    def _turn(self, group: Group) -> None:
        """GroupLost."""
        with self._change:
            if not self._proposals and not self._open:
                self._change.wait_for(lambda: self._proposals or self._ended, _LOOK)
            proposals, self._proposals = self._proposals, []
        if proposals:
            group.agree_start(*zip(*proposals, strict=True))
        found = group.agree_poll(_POLL if self._open else 0.0)
        if found:
            with self._change:
                # Answers to what nobody wants to know any more are not kept.
                self._answers.update({question: found[question] for question in self._open.intersection(found)})
                self._open.difference_update(found)
                self._change.notify_all()
