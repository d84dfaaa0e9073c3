"""What copies between SGLang's host pools and blocks: the processor, or the streams of a device."""

from __future__ import annotations

import logging
import os
from array import array

import numpy as np

from .. import copying
from ..device import Device, DeviceLost, Stream
from ..errors import CenoteError
from ..session import Session
from .pages import Words

logger = logging.getLogger("cenote")


class Copier:
    """SGLang moves KV between a GPU and its host pools by itself; what is copied here is host memory on both sides.
    When its device fails, the processor goes on. Thread-safe."""

    def __init__(self, device: str | None, threads: int) -> None:
        self._name = device
        self._threads = threads
        self._process = 0
        self._streams: dict[str, Stream] = {}
        self._open()

    def _open(self) -> None:
        self._process = os.getpid()
        if self._name is not None:
            self._device = Device(self._name)
            self._streams = {way: self._device.stream() for way in ("load", "store")}

    def attach(self, session: Session) -> None:
        """Before the session is used: in a forked child it is another one, and so is the device."""
        if self._process != os.getpid():
            self._open()
        if self._name is not None:
            session.use_device(self._device)

    def copy(self, way: str, targets: Words, sources: Words, sizes: Words) -> None:
        """Returns when the bytes are there. `way`: "load" or "store". However it ends, no device works on the memory
        any more, unless it failed. DeviceLost: it did, and nobody knows which bytes are there."""
        each = np.broadcast_to(sizes, targets.shape)
        stream = self._streams.get(way)
        if stream is not None:
            refusal = self._copy_by(stream, targets, sources, each)
            if refusal is None:
                return
            logger.error("the device took no copy, and the processor copies from now on: %s", str(refusal))
        copying.copy(_words(targets), _words(sources), _words(each), self._threads)

    def _copy_by(self, stream: Stream, targets: Words, sources: Words, sizes: Words) -> CenoteError | None:
        """Why the device did not do it, though it still works; some of the runs may be copied then."""
        try:
            refusal = _copy_by(stream, targets, sources, sizes, self._threads)
        except DeviceLost as why:
            self._streams.clear()
            logger.error("the device failed, and the processor copies from now on: %s", str(why.__cause__ or why))
            raise
        if refusal is not None:
            self._streams.clear()
        return refusal


class NearCopier:
    """The same for blocks that lie on a device, which only the device reads and writes. Thread-safe."""

    def __init__(self, device: Device, threads: int) -> None:
        self._threads = threads
        self._streams = {way: device.stream() for way in ("load", "store")}

    def copy(self, way: str, targets: Words, sources: Words, sizes: Words) -> None:
        """As Copier.copy(). Any other CenoteError: the device took not all of it, and works on nothing any more."""
        each = np.broadcast_to(sizes, targets.shape)
        refusal = _copy_by(self._streams[way], targets, sources, each, self._threads)
        if refusal is not None:
            raise refusal


def _copy_by(stream: Stream, targets: Words, sources: Words, sizes: Words, threads: int) -> CenoteError | None:
    """Why the device did not do it, though it still works; some of the runs may be copied then. DeviceLost."""
    refusal: CenoteError | None = None
    try:
        try:
            copying.copy(_words(targets), _words(sources), _words(sizes), threads, stream=stream)
        except CenoteError as why:
            refusal = why
        finally:  # whatever comes: runs that began before a refusal still read and write
            stream.record().settle()
    except CenoteError as why:
        first = refusal or why
        raise DeviceLost(f"the device failed: {first}") from first
    return refusal


def _words(table: Words) -> array[int]:
    words = array("Q")
    words.frombytes(np.ascontiguousarray(table).tobytes())
    return words
