"""A session that engines' adapters keep: attached when first needed, and again when its node comes back."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from .errors import CenoteError, Closed, DeadlineExceeded, Forked, NotRunning, SessionKilled
from .session import InstanceSpec, Session, attach

logger = logging.getLogger("cenote")

_LOST = (NotRunning, Closed, SessionKilled, Forked)  # no call on that session can succeed any more
_LONGEST_RETRY = 30.0  # seconds
_FIRST_REST = 60.0  # seconds after a session that the node ended; twice as long after each other one
_LONGEST_REST = 3600.0  # … and a session that lasted so long is the first one again


class _Words(NamedTuple):
    """What is logged of a session."""

    attached: str
    absent: str
    refused: str
    lost: str
    session_end: str


_OF_NODE = _Words(
    "attached to the node",
    "no node, running on without it",
    "the node refuses this engine, running on without it",
    "lost the node, running on without it",
    "the node ended this engine's session, running on without it",
)
_OF_DEVICE = (
    "attached to the node's blocks on {}",
    "no blocks on {}, running on with DRAM",
    "no blocks on {}, running on with DRAM",
    "lost the blocks on {}, running on with DRAM",
    "the node ended this engine's session on {}, running on with DRAM",
)


class Attachment:
    """Never raises for a node that is absent: the engine then runs on without its cache. Thread-safe."""

    def __init__(
        self,
        spec: InstanceSpec,
        *,
        socket: str | os.PathLike[str] | None = None,
        token: str | None = None,
        deadline: float = 5.0,
        max_pins: int = 8192,
        client_name: str | None = None,
        retry: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        prepare: Callable[[Session], None] = lambda session: None,
        device: str | None = None,
        part: int = 0,
        tells: bool = True,
    ) -> None:
        """`prepare` is called with each new session before anybody has it. `deadline`, `retry`: seconds, of every call
        and between two attempts to attach. Attempts that go wrong for another reason than an absent node (a refused
        token, a node that does not answer) come less and less often, and so do those after sessions that the node ended
        by name, of which the log has one line. `device`, `part`: as of attach().
        `tells`: whether it says in the log how it goes; else another one of the same does."""

        def attach_now() -> Session:
            session = attach(
                spec, socket, token, max_pins, deadline=deadline, client_name=client_name, device=device, part=part
            )
            prepare(session)
            return session

        self._attach = attach_now
        self._retry = retry
        self._clock = clock
        self._attaching = threading.Lock()
        self._session: Session | None = None
        self._process = os.getpid()
        self._next_attempt = 0.0
        self._pause = retry
        self._attached_at = 0.0
        self._ends = 0  # sessions that the node ended, one after the other
        self._said = ""  # the last thing that was logged: a state is told once
        self._tells = tells
        self._words = _OF_NODE if device is None else _Words(*(each.format(device) for each in _OF_DEVICE))
        self._closed = False

    def session(self) -> Session | None:
        """The session, or None while there is no node; then the first call after each pause tries to attach. Never
        waits for another thread's attempt."""
        if self._process != os.getpid():
            self._begin_anew()
        session = self._session
        if session is not None or self._closed or self._clock() < self._next_attempt:
            return session
        if not self._attaching.acquire(blocking=False):
            return None
        try:
            if self._session is None and not self._closed:
                self._try()
            return self._session
        finally:
            self._attaching.release()

    def failed(self, why: CenoteError, session: Session | None = None) -> None:
        """A call on `session` (None: the present one) failed with `why`. One that cannot serve any more is let go, and
        the next session() attaches anew. Pins and views of the old one stay valid for those who hold them."""
        if not isinstance(why, _LOST) or (session is not None and session is not self._session):
            return
        if self._session is not None and isinstance(why, SessionKilled):
            self._rest(why)
        elif self._session is not None:
            self._say(f"{self._words.lost}: {why}", logging.WARNING)
            self._next_attempt = self._clock() + self._retry
        self._session = None

    def close(self) -> None:
        """Ends the session, if any; no other comes."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except CenoteError as why:
                logger.info("closing the session: %s", str(why))

    def _try(self) -> None:
        try:
            self._session = self._attach()
        except CenoteError as why:
            absent = isinstance(why, NotRunning)
            self._pause = self._retry if absent else min(2 * self._pause, _LONGEST_RETRY)
            # A node that is starting or stopped takes the whole deadline: seldom enough not to slow the engine.
            level = logging.WARNING if absent or isinstance(why, DeadlineExceeded) else logging.ERROR
            if self._said.startswith(self._words.lost) and self._words is not _OF_NODE:
                level = logging.INFO  # the loss was told: this says why it lasts
            words = self._words.absent if level == logging.WARNING or absent else self._words.refused
            self._say(f"{words}: {why}", level)
        else:
            self._pause = self._retry
            self._attached_at = self._clock()
            if self._ends == 0:
                self._say(self._words.attached, logging.INFO)
        self._next_attempt = self._clock() + self._pause

    def _rest(self, reason: SessionKilled) -> None:
        """The node ended the session, as it will end the next one of the same engine."""
        now = self._clock()
        if now - self._attached_at >= _LONGEST_REST:
            self._ends = 0
        if self._ends == 0:
            self._say(f"{self._words.session_end}: {reason}", logging.ERROR)
        self._next_attempt = now + min(_FIRST_REST * 2.0 ** min(self._ends, 6), _LONGEST_REST)
        self._ends += 1

    def _say(self, what: str, level: int) -> None:
        if what != self._said:
            self._said = what
            logger.log(level if self._tells else logging.DEBUG, "%s", what)

    def _begin_anew(self) -> None:
        """In a forked child: the parent's session and lock are the parent's."""
        self._process = os.getpid()
        self._attaching = threading.Lock()
        self._session = None
        self._next_attempt = 0.0
