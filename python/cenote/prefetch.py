"""Blocks on their way up from the node's lower tiers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from ctypes import byref, c_uint32, c_uint64, c_void_p

from . import _library as lib
from .blocks import Core, Held

_FOREVER = 1 << 60


class Prefetch:
    """What Session.prefetch() started. When it is done, the resident prefix is pinned until release()."""

    def __init__(self, core: Core, handle: c_void_p, count: Callable[[], int], acquire: Callable[[], Held]) -> None:
        self._core = core
        self._ticket: c_void_p | None = handle
        self._count = count
        self._acquire = acquire
        self._held: Held | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Waits up to `timeout` seconds (None: until it is done, a minute at most) and returns `length`. PinLimit: the
        session has not enough free pins for what came."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._look(_FOREVER if deadline is None else max(0, int((deadline - time.monotonic()) * 1e9)))
        return self.length

    @property
    def done(self) -> bool:
        """Whether nothing more comes."""
        self._look(0)
        return self._ticket is None

    @property
    def length(self) -> int:
        """Blocks of the prefix that are resident: pinned ones when it is done, else those of this moment."""
        return len(self._held) if self._held is not None else self._count()

    def held(self) -> Held:
        """The pinned blocks, for a `with`. Before it is done: what is resident at this moment."""
        if self._held is None:
            self._held = self._acquire()
        return self._held

    def release(self) -> None:
        """Ends the pins, and the wish. What is on its way still comes."""
        self._forget()
        if self._held is not None:
            self._held.release()

    def _look(self, nanoseconds: int) -> None:
        if self._ticket is None:
            return
        done, length = c_uint32(), c_uint64()
        lib.check(lib.library.cenote_prefetch_wait(self._ticket, nanoseconds, byref(done), byref(length)))
        if done.value:
            self._forget()
            if self._held is None:
                self._held = self._acquire()

    def _forget(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None and self._core.handle:
            lib.library.cenote_prefetch_free(ticket)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # also when the interpreter is ending
            self._forget()
