"""Blocks from where they are nearest to an engine on a device: from the device's own blocks, and the others from DRAM.

A session on a device may fail by itself: then DRAM has to do, and nobody waits for the device's blocks meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ._buffers import KeyBatch
from .blocks import Held
from .device import Device, DeviceLost
from .errors import CenoteError, Closed, DeadlineExceeded, NodeRestarting, NoSpace, PinLimit
from .session import Session

logger = logging.getLogger("cenote")

DEADLINE = 2.0  # seconds, of calls on a session on a device: the same work may then be done with DRAM
_QUIET = 5.0  # seconds for which a session that did not answer in time, or whose device took no copy, is not used

WITHOUT_DEVICE = "`gpu_pool` without `device`, and the engine's KV is on no GPU: running on with DRAM"

T = TypeVar("T")


def name_of(place: Any) -> str:
    """The name for all processes of one of torch's GPUs: "cuda:1", say, or a torch.device."""
    import torch

    properties: Any = torch.cuda.get_device_properties(place)
    return f"cuda:GPU-{properties.uuid}"


class Source(Protocol):
    """What keeps a session attached."""

    def session(self) -> Session | None: ...

    def failed(self, why: CenoteError, session: Session | None = None) -> None: ...

    def close(self) -> None: ...


Prepare = Callable[[Session], None]


class Near(Generic[T]):
    """The session on the engine's device, beside that in DRAM, with what works on its blocks. Thread-safe."""

    def __init__(self, source: Callable[[Prepare], Source], work_on: Callable[[Device], T]) -> None:
        """`source`: calls what it is given with each new session, before anybody has it. `work_on`: makes what works on
        blocks of a device, streams say."""
        self._work_on = work_on
        self._works: weakref.WeakKeyDictionary[Session, T] = weakref.WeakKeyDictionary()
        self._quiet_until = 0.0
        self._refusals = 0
        self._is_over = False  # nobody knows what the device of this process has written, or still will
        self._source = source(self._prepare)

    def _prepare(self, session: Session) -> None:
        device = session.device
        assert device is not None
        self._works[session] = self._work_on(device)

    def session(self) -> Session | None:
        """None while there is none that can be used."""
        if self._is_over or time.monotonic() < self._quiet_until:
            return None
        return self._source.session()

    def works_on(self, session: Session) -> T | None:
        """What was made for the blocks of `session`; None: they are host memory."""
        return self._works.get(session)

    def failed(self, why: CenoteError, session: Session | None = None) -> None:
        """A call on `session` failed, or the device did: DeviceLost."""
        if isinstance(why, PinLimit | NoSpace):
            return  # of these blocks alone
        if isinstance(why, DeviceLost):
            if not self._is_over:
                logger.error("the device's blocks are not used any more, DRAM has to do: %s", str(why))
            self._is_over = True
            return
        if isinstance(why, DeadlineExceeded | NodeRestarting):
            self._leave_alone(str(why))
        self._source.failed(why, session)

    def refused(self, why: Exception) -> bool:
        """The device did not take a copy, or not all of one. Whether it works on: then it is asked again after a while.
        The caller waits for what it took."""
        if isinstance(why, DeviceLost | Closed):
            self.failed(DeviceLost(str(why)))
            return False
        self._refusals += 1
        self._leave_alone(f"refused copy {self._refusals}: {why}")
        return True

    def _leave_alone(self, why: str) -> None:
        if time.monotonic() >= self._quiet_until:
            logger.warning("the device's blocks are left alone for %g s, DRAM has to do: %s", _QUIET, why)
        self._quiet_until = time.monotonic() + _QUIET

    def look(self) -> None:
        """Notices a session that is over: lookups and reads need no answer from the node."""
        session = self.session()
        if session is not None:
            try:
                session.barrier()
            except CenoteError as why:
                self.failed(why, session)

    def close(self) -> None:
        self._source.close()


class Run(NamedTuple):
    """Pinned blocks of one session. `first`: which of the keys the first is for."""

    first: int
    held: Held
    session: Session
    is_near: bool = False

    def release(self) -> None:
        try:
            self.held.release()
        except CenoteError:
            if not self.is_near:  # else the session is over, and its pins with it
                raise


class Taken:
    """A prefix that is pinned, some of it on a device and some in DRAM; in a `with`, or until release()."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def __len__(self) -> int:
        return sum(len(run.held) for run in self.runs)

    def release(self) -> None:
        """CenoteError: as of Held.release(); all that can end has ended then."""
        runs, self.runs = self.runs, []
        with contextlib.ExitStack() as ending:
            for run in runs:
                ending.callback(run.release)

    def __enter__(self) -> Taken:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.release()
        else:
            with contextlib.suppress(CenoteError, BufferError):  # the exception under way says more
                self.release()


def acquire(near: Near[T] | None, host: Session, keys: KeyBatch, group: str | None = None) -> Taken:
    """Pins the prefix that the device and DRAM have together, on the device what is there. CenoteError: as of
    Session.acquire() on `host`; nothing is pinned then."""
    here = near.session() if near is not None else None
    taken = Taken()
    if near is None or here is None:
        taken.runs.append(Run(0, host.acquire(keys, group=group), host))
        return taken
    there = _exists(near, here, keys, group)
    try:
        first = 0
        while first < len(there):
            end = next((i for i in range(first, len(there)) if there[i] != there[first]), len(there))
            held = (
                _pin(near, here, keys[first:end], group) if there[first] else host.acquire(keys[first:end], group=group)
            )
            if held is not None and len(held):
                taken.runs.append(Run(first, held, here if there[first] else host, there[first]))
            count = len(held) if held is not None else 0
            if first + count < end:
                if not there[first]:
                    break
                there[first + count : end] = [False] * (end - first - count)  # it left the device: DRAM may have it
            first += count
    except BaseException:
        with contextlib.suppress(CenoteError):
            taken.release()
        raise
    return taken


def _pin(near: Near[T], here: Session, keys: KeyBatch, group: str | None) -> Held | None:
    try:
        return here.acquire(keys, group=group)
    except CenoteError as why:
        near.failed(why, here)
        return None


def _exists(near: Near[T], here: Session, keys: KeyBatch, group: str | None) -> list[bool]:
    try:
        return here.exists(keys, group=group)
    except CenoteError as why:
        near.failed(why, here)
        return [False] * len(keys)


def exists(near: Near[T] | None, host: Session, keys: KeyBatch, group: str | None = None) -> list[bool]:
    """For each of n keys, whether its block is on the device or in DRAM."""
    found = host.exists(keys, group=group)
    here = near.session() if near is not None else None
    if near is None or here is None or all(found):
        return found
    return [one or other for one, other in zip(found, _exists(near, here, keys, group), strict=True)]


def resident(near: Near[T] | None, host: Session, keys: KeyBatch, group: str | None = None) -> int:
    """How many of the first blocks are on the device or in DRAM."""
    count = host.match(keys, group=group).resident
    if near is None or near.session() is None or count == len(keys):
        return count
    found = exists(near, host, keys, group)
    return next((i for i, there in enumerate(found) if not there), len(found))


def reachable(near: Near[T] | None, host: Session, keys: KeyBatch, group: str | None = None) -> int:
    """As resident(), with what lower tiers have behind that."""
    if near is None or near.session() is None:
        return host.match(keys, group=group).reachable
    count = resident(near, host, keys, group)
    return count + (host.match(keys[count:], group=group).reachable if count < len(keys) else 0)
