"""What copies between SGLang's host pools and blocks: the processor, or the streams of a device."""

from __future__ import annotations

import logging
from array import array

import numpy as np

from .. import copying
from ..device import Device, Event
from ..errors import CenoteError, DeadlineExceeded
from ..session import Session
from .pages import Words

logger = logging.getLogger("cenote")

_PATIENCE = 30.0  # seconds, between two warnings


class DeviceLost(CenoteError):
    """The device failed. What it was to write is unknown, and may still change."""


class Copier:
    """SGLang moves KV between a GPU and its host pools by itself; what is copied here is host memory on both sides.
    When its device fails, the processor goes on. Thread-safe."""

    def __init__(self, device: str | None, threads: int) -> None:
        self._threads = threads
        self._device = None if device is None else Device(device)
        self._streams = {} if self._device is None else {way: self._device.stream() for way in ("load", "store")}

    def attach(self, session: Session) -> None:
        if self._device is not None:
            session.use_device(self._device)

    def copy(self, way: str, targets: Words, sources: Words, sizes: Words) -> None:
        """Returns when the bytes are there. `way`: "load" or "store". DeviceLost: nobody knows which are."""
        each = np.broadcast_to(sizes, targets.shape)
        stream = self._streams.get(way)
        try:
            copying.copy(_words(targets), _words(sources), _words(each), self._threads, stream=stream)
            if stream is not None:
                _wait(stream.record())
        except CenoteError as why:
            if stream is None:
                raise
            self._streams.clear()
            logger.error("the device failed, and the processor copies from now on: %s", str(why))
            raise DeviceLost(f"the device failed: {why}") from why


def _wait(event: Event) -> None:
    """As long as the device works: it writes into memory that SGLang uses for something else afterwards."""
    while True:
        try:
            return event.wait(_PATIENCE)
        except DeadlineExceeded:
            logger.warning("the device hangs, or is slow; what it may still write cannot be given up")


def _words(table: Words) -> array[int]:
    words = array("Q")
    words.frombytes(np.ascontiguousarray(table).tobytes())
    return words
