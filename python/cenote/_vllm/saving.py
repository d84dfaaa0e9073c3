"""Stores on their way to the node: the room that they got there, and what of the engine's blocks is copied."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterable

from ..blocks import Block
from ..session import InstanceSpec, Session
from .messages import Store
from .streams import Streams


@dataclasses.dataclass
class Blanks:
    """Blank blocks of one session. `streams`: of the device that fills them; None: the processor does. `on_device`:
    where they lie, too."""

    session: Session
    streams: Streams | None
    on_device: bool = False
    slots: list[Block] = dataclasses.field(default_factory=list)
    blocks: list[int] = dataclasses.field(default_factory=list)  # the engine's, one a slot
    copied: bool = False
    broken: bool = False  # not all of it was copied


@dataclasses.dataclass
class Reserved:
    """A store, with the blank blocks that it may fill."""

    store: Store
    spec: InstanceSpec
    blanks: list[Blanks] = dataclasses.field(default_factory=list)
    failed: bool = False  # not all of it will be stored
    is_acknowledged: bool = False


class Reservation:
    """The stores of one step. Layers are copied by the engine's thread while the step is computed, if there is room by
    then; what is left by the storing thread, once the step is computed."""

    def __init__(self, stores: list[Reserved]) -> None:
        self.all = stores
        self.start = time.monotonic()
        self.saved: set[int] = set()  # layers that are copied, or on their way
        self.ordered: set[Streams] = set()  # in which copies come after what the engine has written
        self.is_computed = False  # the engine has begun all of the step
        self.is_begun = False  # to be copied
        self.is_stopped = False  # nothing more of it may be copied
        self._ready = threading.Event()
        self._released = threading.Event()

    def ready(self) -> None:
        self._ready.set()

    @property
    def is_ready(self) -> bool:
        """Whether it has what room there is."""
        return self._ready.is_set()

    def release(self) -> None:
        self._released.set()

    @property
    def is_released(self) -> bool:
        """Whether nothing reads the engine's blocks for it any more."""
        return self._released.is_set()

    def wait(self, end: float) -> bool:
        """Waits until it is released, or until the monotonic time `end`."""
        return self._released.wait(max(0.0, end - time.monotonic()))

    @property
    def streams(self) -> list[Streams]:
        """That fill its blocks; once it is ready."""
        every = (blanks.streams for reserved in self.all for blanks in reserved.blanks if blanks.slots)
        return each_once(each for each in every if each is not None)


@dataclasses.dataclass(frozen=True)
class Save:
    """The rest of a reservation, whose step is computed."""

    reservation: Reservation


def each_once(streams: Iterable[Streams]) -> list[Streams]:
    return list(dict.fromkeys(streams))
