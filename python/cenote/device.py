"""Devices: GPUs, or threads that behave like one. What copies in their streams, and tells when it is done."""

from __future__ import annotations

import ctypes
import logging
from ctypes import byref, c_uint32, c_void_p
from typing import TYPE_CHECKING

from . import _library as lib
from .errors import CenoteError, DeadlineExceeded, InvalidArgument

if TYPE_CHECKING:
    from .blocks import Core

logger = logging.getLogger("cenote")

_LONGEST = float(1 << 60) / 1e9
_SLOW = 30.0  # seconds, between two warnings


class DeviceLost(CenoteError):
    """The device failed. What it was to write is unknown, and may still change."""


class Device:
    """A device of this process; what still needs it keeps it. A forked child opens its own.

    Parameters
    ----------
    name : str
        "cuda:GPU-<uuid>" as nvidia-smi says it, "cuda:<number>", or "sim:<number>" for threads that behave like a GPU.

    Raises
    ------
    Unsupported
        There is no driver, it is too old, or there is no such GPU.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._raw = c_void_p()
        lib.check(lib.library.cenote_device_open(name.encode(), byref(self._raw)))

    @classmethod
    def _of_session(cls, name: str, core: Core) -> Device:
        """The one that a session's blocks lie on."""
        made = cls.__new__(cls)
        made.name = name
        made._raw = c_void_p()
        lib.check(lib.library.cenote_session_device(core, byref(made._raw)))
        return made

    def stream(self) -> Stream:
        """A new stream."""
        made = c_void_p()
        lib.check(lib.library.cenote_stream_open(self._raw, byref(made)))
        return Stream(made)

    def wrap(self, native: int) -> Stream:
        """An engine's own stream, which must outlive what is returned.

        Parameters
        ----------
        native : int
            Its handle, as in `torch.cuda.Stream.cuda_stream`; 0: the default stream.
        """
        made = c_void_p()
        lib.check(lib.library.cenote_stream_wrap(self._raw, native, byref(made)))
        return Stream(made)

    def __del__(self) -> None:
        _free("cenote_device_free", self)


class Stream:
    """Work in order: what it is given begins when all that it was given before has ended. From Device.stream()."""

    def __init__(self, raw: c_void_p) -> None:
        self._raw = raw

    @property
    def native(self) -> int:
        """What Device.wrap() takes."""
        return int(lib.library.cenote_stream_native(self._raw) or 0)

    def record(self) -> Event:
        """The point after all that the stream was given."""
        made = c_void_p()
        lib.check(lib.library.cenote_event_record(self._raw, byref(made)))
        return Event(made)

    def wait(self, event: Event) -> None:
        """What the stream is given from now on begins after the event. Returns at once."""
        lib.check(lib.library.cenote_stream_wait(self._raw, event._raw))

    def __del__(self) -> None:
        _free("cenote_stream_free", self)


class Event:
    """A point in a stream. From Stream.record()."""

    def __init__(self, raw: c_void_p) -> None:
        self._raw = raw

    @property
    def is_done(self) -> bool:
        """Whether all before it has ended, so that its bytes may be looked at. CenoteError: the device failed, and
        nobody knows what was written."""
        done = c_uint32()
        lib.check(lib.library.cenote_event_done(self._raw, byref(done)))
        return bool(done.value)

    def wait(self, timeout: float) -> None:
        """Waits at most `timeout` seconds.

        Raises
        ------
        DeadlineExceeded
        CenoteError
            The device failed, and nobody knows what was written.
        """
        if not 0 <= timeout <= _LONGEST:
            raise InvalidArgument(f"timeout is {timeout!r} s; it must be 0 to {_LONGEST:g}")
        lib.check(lib.library.cenote_event_wait(self._raw, int(timeout * 1e9)))

    def settle(self) -> None:
        """Waits as long as the device works: before memory is used for something else that it may still write, or read.
        An interruption comes when it is done. CenoteError: the device failed."""
        interruption: BaseException | None = None
        while True:
            try:
                self.wait(_SLOW)
            except DeadlineExceeded:
                logger.warning("a device hangs, or is slow; what it may still write cannot be given up")
            except (KeyboardInterrupt, SystemExit) as why:
                interruption = why
            else:
                break
        if interruption is not None:
            raise interruption

    def __del__(self) -> None:
        _free("cenote_event_free", self)


def _free(function: str, owner: Device | Stream | Event) -> None:
    try:
        raw, owner._raw = owner._raw, c_void_p()
        getattr(lib.library, function)(raw)
    except (AttributeError, TypeError, ctypes.ArgumentError):  # never opened, or the interpreter is ending
        return
