"""Blocks on their way up from the node's lower tiers."""

from __future__ import annotations

import time
from collections.abc import Callable
from ctypes import byref, c_uint32, c_uint64, c_void_p, sizeof
from typing import Any, Literal

from . import _library as lib
from .blocks import Core, Held
from .errors import InvalidArgument

Policy = Literal["best_effort", "wait_complete", "timeout"]

POLICIES: dict[str | None, int] = {None: 0, "best_effort": 1, "wait_complete": 2, "timeout": 3}
_FOREVER = 1 << 60
_LONGEST = 0xFFFF_FFFE / 1000


def _time(value: float | None, name: str) -> int:
    """Nanoseconds."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST:
        raise InvalidArgument(f"{name} is {value!r} s; it must be 0 to {_LONGEST:g}")
    return int(value * 1e9)


def as_traceparent(text: str | None) -> bytes | None:
    """For the library, to which anything but a trace context is none."""
    return None if text is None else text.encode("ascii", "replace")


def raw_options(
    policy: str | None,
    base: float | None,
    per_ki_token: float | None,
    prefill_tokens_per_s: float | None,
    threshold_tokens: int | None,
    traceparent: str | None = None,
) -> lib.PrefetchOptions:
    """Checked; what is None is left to the node."""
    if policy not in POLICIES:
        raise InvalidArgument(
            f"policy is {policy!r}; it is one of {', '.join(repr(each) for each in POLICIES if each)}"
        )
    rate = prefill_tokens_per_s
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1 << 63):
        raise InvalidArgument(f"prefill_tokens_per_s is {rate!r}; it must be 0 or more")
    threshold = threshold_tokens
    if threshold is not None and (isinstance(threshold, bool) or not 0 <= threshold < 1 << 32):
        raise InvalidArgument(f"threshold_tokens is {threshold!r}; it must be 0 to {(1 << 32) - 1}")
    given = 0
    for flag, value in (
        (lib.PREFETCH_BASE, base),
        (lib.PREFETCH_PER_KI_TOKEN, per_ki_token),
        (lib.PREFETCH_PREFILL_RATE, rate),
        (lib.PREFETCH_THRESHOLD, threshold),
    ):
        given |= 0 if value is None else flag
    return lib.PrefetchOptions(
        struct_size=sizeof(lib.PrefetchOptions),
        policy=POLICIES[policy],
        given=given,
        threshold_tokens=threshold or 0,
        base_ns=_time(base, "base"),
        per_ki_token_ns=_time(per_ki_token, "per_ki_token"),
        prefill_tokens_per_s=int(rate or 0),
        traceparent=as_traceparent(traceparent),
    )


class Prefetch:
    """What Session.prefetch() started. When it is done, the resident prefix is pinned until release().

    `count` and `acquire` are called with the prefetch: if they held it themselves, it would keep the session's memory
    and socket until the collector finds the cycle.
    """

    def __init__(
        self, core: Core, handle: c_void_p, count: Callable[[Any], int], acquire: Callable[[Any], Held]
    ) -> None:
        self._core = core
        self._ticket: c_void_p | None = handle  # None: done, and the node need not keep the blocks any more
        self._count = count
        self._acquire = acquire
        self._held: Held | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Waits until nothing more comes.

        Parameters
        ----------
        timeout : float, optional
            Seconds, at most; None: until it is done, a minute at most.

        Returns
        -------
        int
            `length`.

        Raises
        ------
        PinLimit
            The session has not enough free pins for what came.
        LimitExceeded
            The session has 256 prefetches that are not over.
        """
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
        return len(self._held) if self._held is not None else self._count(self)

    def held(self) -> Held:
        """The pinned blocks, for a `with`. Before it is done: what is resident at this moment."""
        if self._held is None:
            self._held = self._acquire(self)
        return self._held

    def stop(self) -> None:
        """The engine is ready to compute: a best_effort prefetch ends with what is there, others go on."""
        if self._ticket is not None:
            lib.check(lib.library.cenote_prefetch_stop(self._ticket))

    def cancel(self) -> None:
        """Ends it now. Nothing is pinned by it; what is under way still comes."""
        if self._ticket is not None:
            lib.check(lib.library.cenote_prefetch_cancel(self._ticket))
            self._forget()

    def release(self) -> None:
        """Ends the pins, and the prefetch: one that is not done is cancelled."""
        self._forget()
        if self._held is not None:
            self._held.release()

    def _look(self, nanoseconds: int) -> None:
        if self._ticket is None:
            return
        done, length = c_uint32(), c_uint64()
        lib.check(lib.library.cenote_prefetch_wait(self._ticket, nanoseconds, byref(done), byref(length)))
        if done.value:
            try:
                if self._held is None:
                    self._held = self._acquire(self)
            finally:
                self._forget()  # only now: until then the node keeps the blocks

    def _forget(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            lib.library.cenote_prefetch_free(ticket)

    def __del__(self) -> None:
        try:
            self._forget()
        except Exception:  # also when the interpreter is ending: then no module's name can be used here
            return


class Follow(Prefetch):
    """What Session.follow() started: a Prefetch whose chain another engine makes meanwhile."""

    def __init__(self, core: Core, handle: c_void_p, acquire: Callable[[list[bytes]], Held]) -> None:
        super().__init__(core, handle, Follow._come, lambda follow: acquire(follow.keys))
        self._keys: list[bytes] = []

    @property
    def keys(self) -> list[bytes]:
        """Keys of the blocks that came, in the request's order: `length` of them, and perhaps some that left again."""
        if self._ticket is not None:
            known = lib.Keys()
            lib.check(lib.library.cenote_prefetch_keys(self._ticket, byref(known)))
            if known.count > len(self._keys):
                self._keys = known.split()
        return self._keys

    def _come(self) -> int:
        """Blocks that are here."""
        if self._ticket is None:
            return 0
        length = c_uint64()
        lib.check(lib.library.cenote_prefetch_length(self._ticket, byref(length)))
        return length.value
