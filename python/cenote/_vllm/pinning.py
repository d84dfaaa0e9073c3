"""Pins of a step's loads: the loading thread gets them, since it may have to wait for a node; the engine's does not."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._near import Taken
from ..session import InstanceSpec
from .connection import Connection

if TYPE_CHECKING:
    from .messages import Load


class Pinning:
    """Made by the engine's thread, which takes what the loading thread gives if that is in time. What comes later
    nobody gets: its pins end."""

    def __init__(self, spec: InstanceSpec, loads: Sequence[Load]) -> None:
        self.spec = spec
        self.loads = loads
        self.connection: Connection | None = None  # that the pins are of; none: there is no session
        self.held: list[Taken | None] = []  # of each load; None: nothing
        self._lock = threading.Lock()
        self._came = threading.Event()
        self._is_given_up = False

    @property
    def is_under_way(self) -> bool:
        return not self._came.is_set()

    def give(self, connection: Connection | None, held: list[Taken | None]) -> None:
        with self._lock:
            if not self._is_given_up:
                self.connection, self.held = connection, held
                held = []
            self._came.set()
        for each in held:
            if each is not None:
                each.release()

    def take(self, patience: float) -> bool:
        """Waits at most `patience` seconds. False: given up."""
        self._came.wait(patience)
        with self._lock:
            self._is_given_up = not self._came.is_set()
        return not self._is_given_up
