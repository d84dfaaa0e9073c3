"""The side of a node without rank 0: its first rank looks what it has, proposes it, and pins what is agreed on."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence

from .._membership import Membership
from ..errors import CenoteError
from ..session import Session
from .ballots import HOLD, TIMEOUT, Ballot
from .connection import Connection
from .finder import Finder
from .messages import Ask, Together
from .model import Group
from .settings import Settings

logger = logging.getLogger("cenote")

_MAX_PINS = 1 << 16
_DEADLINE = 0.5  # seconds, of calls that need the node
_NAP = 0.001  # seconds between two looks at ballots that are not over
_STALE = 5.0  # seconds, within which a step comes to the workers, as a rule
_LOOK = 1.0  # seconds between two looks at blocks that nobody fetched


class Voter:
    """The engine's thread tells it what to do, and never waits for it: it works in a thread of its own."""

    def __init__(self, node: int, groups: Sequence[Group], block_size: int, settings: Settings) -> None:
        self._node = node
        self._settings = settings
        self._finder = Finder(groups, block_size, self._failed)
        self._together: Together | None = None
        self._connection: Connection | None = None
        self._membership: Membership | None = None
        self._ballots: dict[int, Ballot] = {}
        self._jobs: queue.SimpleQueue[Together | Ask | int | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="cenote-voter", daemon=True)
        self._thread.start()

    def tell(self, together: Together, asks: Sequence[Ask], ended: Sequence[int], have_met: bool) -> None:
        """What came with a step. `have_met`: so says the scheduler's side, when the step began."""
        membership = self._membership
        met_at = membership.met_at if membership is not None else None
        if membership is not None and met_at is not None and not have_met and time.monotonic() - met_at > _STALE:
            membership.renew()  # the other side asks nothing before they meet again, so nobody else would say so
        if together != self._together:
            self._together = together
            self._jobs.put(together)
        for ask in asks:
            self._jobs.put(ask)
        for number in ended:
            self._jobs.put(number)

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join(2 * _DEADLINE)

    # ---- in its thread

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=self._pause())
                if job is None:
                    return self._leave()
                self._begin(job)
            except queue.Empty:
                pass
            except Exception:
                logger.exception("finding what this node has")
            self._step_all()

    def _pause(self) -> float | None:
        if any(ballot.result is None for ballot in self._ballots.values()):
            return _NAP
        return _LOOK if self._ballots else None

    def _begin(self, job: Together | Ask | int) -> None:
        if isinstance(job, Together):
            self._leave()
            connection = self._connection = Connection(
                job.specs[self._node],
                self._settings,
                max_pins=_MAX_PINS,
                deadline=_DEADLINE,
                name=f"vllm-voter-{self._node}",
                node=self._node,
            )
            nodes = job.places.nodes
            self._membership = Membership(connection.session, job.group, self._node, nodes, timeout=TIMEOUT)
        elif isinstance(job, Ask):
            self._ballots[job.number] = Ballot(job)
        else:
            self._drop(job)

    def _step_all(self) -> None:
        connection, membership = self._connection, self._membership
        if connection is None or membership is None:
            return
        for number, ballot in list(self._ballots.items()):
            if ballot.result is not None:
                if time.monotonic() >= ballot.until:
                    self._drop(number)
                continue
            try:
                is_over = ballot.step(connection.session(), self._finder, membership)
            except CenoteError as why:
                self._failed(why, None)
                is_over = True
            if is_over:
                ballot.until = time.monotonic() + HOLD

    def _drop(self, number: int) -> None:
        ballot = self._ballots.pop(number, None)
        if ballot is not None and self._membership is not None:
            ballot.close(self._finder, self._membership)
            ballot.offer.release()

    def _leave(self) -> None:
        for number in list(self._ballots):
            self._drop(number)
        if self._membership is not None:
            self._membership.close()
        if self._connection is not None:
            self._connection.close()
        self._membership = self._connection = None

    def _failed(self, why: CenoteError, session: Session | None) -> None:
        logger.warning("asking the node: %s", str(why))
        if self._connection is not None:
            self._connection.failed(why, session)
