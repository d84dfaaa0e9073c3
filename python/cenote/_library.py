"""libcenote through ctypes: where it is, its structs, its functions. CDLL releases the GIL in every call."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path

from . import errors

ABI_MAJOR = 1
ABI_MINOR = 11  # the oldest that has all we call
WHOLE_BLOCK = -1
WRITABLE, PRESENT, PENDING = 1, 2, 3
APPEND = (1 << 64) - 1


class Part(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("bytes", c_uint64))


class Group(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("parts", POINTER(Part)), ("part_count", c_size_t))


class Spec(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("tokens_per_block", c_uint32),
        ("id", c_char_p),
        ("model", c_char_p),
        ("dtype", c_char_p),
        ("layout", c_char_p),
        ("hash_scheme", c_char_p),
        ("fingerprint", c_char_p),
        ("instance_group", c_char_p),
        ("groups", POINTER(Group)),
        ("group_count", c_size_t),
    )


class Options(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("max_pins", c_uint32),
        ("deadline_ns", c_uint64),
        ("socket", c_char_p),
        ("token", c_char_p),
        ("client_name", c_char_p),
        ("device", c_char_p),
        ("part", c_uint32),
        ("reserved", c_uint32),
    )


class Keys(ctypes.Structure):
    _fields_ = (("data", c_char_p), ("count", c_size_t), ("width", c_size_t))

    def split(self) -> list[bytes]:
        """The keys, of those that the library has."""
        place = c_void_p.from_buffer(self, Keys.data.offset).value  # as `data` they would end at their first zero
        text = ctypes.string_at(place, self.count * self.width) if place and self.count else b""
        return [text[at : at + self.width] for at in range(0, len(text), self.width or 1)]


class Buffer(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("bytes", c_uint64))


class Buffers(ctypes.Structure):
    _fields_ = (("list", c_void_p), ("base", c_void_p), ("stride", c_uint64), ("bytes", c_uint64))


class Match(ctypes.Structure):
    _fields_ = (("resident", c_uint64), ("reachable", c_uint64))


class Strided(ctypes.Structure):
    _fields_ = (
        ("base", c_void_p),
        ("block_stride", c_uint64),
        ("run_bytes", c_uint64),
        ("runs", c_uint64),
        ("run_stride", c_uint64),
    )


class CopyOptions(ctypes.Structure):
    _fields_ = (("struct_size", c_uint32), ("threads", c_uint32), ("stream", c_void_p), ("block_offset", c_uint64))


HELD_WORDS = 3  # struct cenote_held as 64-bit words: data, bytes, slot
LENGTH_WORDS = 2  # struct cenote_length as 64-bit words: question, length


class Reserved(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("block", c_uint64),
        ("parts", c_uint64),
        ("grant_version", c_uint32),
        ("group", c_uint32),
        ("state", c_uint32),
        ("reserved", c_uint32),
    )


class PrefetchOptions(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("policy", c_uint32),
        ("given", c_uint32),
        ("threshold_tokens", c_uint32),
        ("base_ns", c_uint64),
        ("per_ki_token_ns", c_uint64),
        ("prefill_tokens_per_s", c_uint64),
        ("traceparent", c_char_p),
    )


class LoadSpan(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("traceparent", c_char_p),
        ("begin_ns", c_uint64),
        ("end_ns", c_uint64),
        ("blocks_asked", c_uint64),
        ("blocks_loaded", c_uint64),
        ("bytes", c_uint64),
    )


PREFETCH_BASE, PREFETCH_PER_KI_TOKEN, PREFETCH_PREFILL_RATE, PREFETCH_THRESHOLD = 1, 2, 4, 8

STATS_FIELDS = (
    "session",
    "keys_looked_up",
    "keys_found",
    "blocks_pinned",
    "blocks_copied_out",
    "bytes_copied_out",
    "blocks_stored",
    "bytes_copied_in",
    "pins_in_use",
    "pin_slots",
    "reservations",
    "slabs_mapped",
    "touches_dropped",
    "reattaches",
    "slabs_registered",
    "slabs_refused",
    "waiting_for_device",
    "bytes_registered",
    "registration_ns",
)


class Stats(ctypes.Structure):
    _fields_ = (("struct_size", c_uint32), ("reserved", c_uint32), *((name, c_uint64) for name in STATS_FIELDS))


_SIGNATURES: dict[str, tuple[object, ...]] = {
    "cenote_attach": (POINTER(Spec), POINTER(Options), POINTER(c_void_p)),
    "cenote_close": (c_void_p,),
    "cenote_match_prefix": (c_void_p, Keys, c_uint32, POINTER(Match)),
    "cenote_asks_tiers": (c_void_p, POINTER(c_uint32)),
    "cenote_locate": (c_void_p, Keys, c_uint32, c_uint64, POINTER(Match)),
    "cenote_match_window": (c_void_p, Keys, c_uint32, c_size_t, POINTER(Match)),
    "cenote_exists": (c_void_p, Keys, c_uint32, POINTER(c_uint8)),
    "cenote_acquire": (c_void_p, Keys, c_uint32, c_void_p, POINTER(c_size_t)),
    "cenote_release": (c_void_p, POINTER(c_uint32), c_size_t),
    "cenote_release_held": (c_void_p, c_void_p, c_size_t),
    "cenote_get_into": (c_void_p, Keys, c_uint32, c_int32, Buffers, POINTER(c_size_t)),
    "cenote_prefetch_start_with": (c_void_p, Keys, c_uint32, POINTER(PrefetchOptions), POINTER(c_void_p)),
    "cenote_prefetch_wait": (c_void_p, c_uint64, POINTER(c_uint32), POINTER(c_uint64)),
    "cenote_prefetch_length": (c_void_p, POINTER(c_uint64)),
    "cenote_prefetch_stop": (c_void_p,),
    "cenote_prefetch_cancel": (c_void_p,),
    "cenote_prefetch_keys": (c_void_p, POINTER(Keys)),
    "cenote_wants_spans": (c_void_p, POINTER(c_uint32)),
    "cenote_trace_load": (c_void_p, POINTER(LoadSpan)),
    "cenote_publish": (c_void_p, c_void_p, c_size_t, Keys, c_uint32, c_uint64, c_int, POINTER(c_uint64)),
    "cenote_follow": (c_void_p, c_void_p, c_size_t, c_char_p, c_uint32, c_uint64, POINTER(c_void_p)),
    "cenote_put": (c_void_p, Keys, c_uint32, c_int32, Buffers, POINTER(c_uint64)),
    "cenote_put_async": (c_void_p, Keys, c_uint32, c_int32, Buffers, POINTER(c_uint64)),
    "cenote_flush": (c_void_p, POINTER(c_uint64)),
    "cenote_reserve": (c_void_p, Keys, c_uint32, c_int32, POINTER(Reserved)),
    "cenote_commit": (c_void_p, POINTER(Reserved), c_size_t, POINTER(c_uint64)),
    "cenote_abandon": (c_void_p, POINTER(Reserved), c_size_t),
    "cenote_keep": (c_void_p, Keys, c_uint32, c_int, POINTER(c_uint64)),
    "cenote_remove": (c_void_p, Keys, c_uint32, POINTER(c_uint64)),
    "cenote_clear": (c_void_p,),
    "cenote_unconfirmed": (c_void_p, POINTER(c_uint64), POINTER(c_uint64)),
    "cenote_barrier": (c_void_p,),
    "cenote_device_open": (c_char_p, POINTER(c_void_p)),
    "cenote_stream_open": (c_void_p, POINTER(c_void_p)),
    "cenote_stream_wrap": (c_void_p, c_void_p, POINTER(c_void_p)),
    "cenote_event_record": (c_void_p, POINTER(c_void_p)),
    "cenote_event_done": (c_void_p, POINTER(c_uint32)),
    "cenote_event_wait": (c_void_p, c_uint64),
    "cenote_stream_wait": (c_void_p, c_void_p),
    "cenote_use_device": (c_void_p, c_void_p),
    "cenote_session_device": (c_void_p, POINTER(c_void_p)),
    "cenote_release_after": (c_void_p, POINTER(c_uint32), c_size_t, c_void_p),
    "cenote_commit_after": (c_void_p, POINTER(Reserved), c_size_t, c_void_p),
    "cenote_gather": (POINTER(Strided), c_size_t, c_void_p, c_void_p, c_size_t, POINTER(CopyOptions)),
    "cenote_scatter": (POINTER(Strided), c_size_t, c_void_p, c_void_p, c_size_t, POINTER(CopyOptions)),
    "cenote_copy": (c_void_p, c_void_p, c_void_p, c_size_t, POINTER(CopyOptions)),
    "cenote_group_join": (c_void_p, c_char_p, c_uint32, c_uint32, c_uint64, c_uint64, POINTER(c_void_p)),
    "cenote_agree": (c_void_p, c_uint64, c_uint64, POINTER(c_uint64)),
    "cenote_agree_start": (c_void_p, c_void_p, c_size_t),
    "cenote_agree_poll": (c_void_p, c_void_p, c_size_t, c_uint64, POINTER(c_size_t)),
    "cenote_group_leave": (c_void_p,),
    "cenote_stats_of": (c_void_p, POINTER(Stats)),
}

_FREEING = (
    "cenote_free",
    "cenote_prefetch_free",
    "cenote_device_free",
    "cenote_stream_free",
    "cenote_event_free",
    "cenote_group_free",
)


def places(name: str) -> list[Path]:
    """Where a library of the project is sought: in the package, with the packed program, in a checkout's build."""
    package = Path(__file__).resolve().parent
    return [package / name, package / "_program" / "lib" / f"{name}.1", package.parent.parent / "build" / name]


def places_by(variable: str, defaults: list[Path]) -> list[Path]:
    """The path in an environment variable, which is the only place then, or the defaults."""
    given = os.environ.get(variable)
    return [Path(given)] if given else defaults


def _places() -> list[Path]:
    """Where libcenote is sought, in order."""
    return places_by("CENOTE_LIBRARY", places("libcenote.so"))


@dataclass(frozen=True)
class LibraryCalls:
    """A C ABI: the library's name, the variable that names its file, its functions. Those of `signatures` return a
    code, those of `freeing` take a handle and return nothing."""

    name: str
    variable: str
    prefix: str
    abi: tuple[int, int]  # major, the least minor
    signatures: Mapping[str, tuple[object, ...]]
    freeing: tuple[str, ...]


def load(calls: LibraryCalls, candidates: list[Path]) -> ctypes.CDLL:
    """The first library that is there, of the right version."""
    found = next((place for place in candidates if place.exists()), None)
    if found is None:
        sought = ", ".join(str(place) for place in candidates)
        raise ImportError(
            f"{calls.name} was not found; sought: {sought}. "
            f"Build it with scripts/build, or set {calls.variable} to the library's path."
        )
    try:
        library = ctypes.CDLL(str(found))
        version: int = library[f"{calls.prefix}_abi_version"]()
    except (OSError, AttributeError) as why:
        raise ImportError(f"{found} cannot be loaded as {calls.name.removesuffix('.so')}: {why}") from why
    major, minor = calls.abi
    if version >> 16 != major or version & 0xFFFF < minor:
        has = f"{version >> 16}.{version & 0xFFFF}"
        raise ImportError(f"{found} has the C ABI {has}; this package needs {major}.{minor} or a later minor")
    # As attributes, which keep what is set; an item is another object each time.
    for name, arguments in calls.signatures.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = c_int
    for name in calls.freeing:
        function = getattr(library, name)
        function.argtypes = (c_void_p,)
        function.restype = None
    getattr(library, f"{calls.prefix}_last_error").restype = c_char_p
    return library


def _load() -> ctypes.CDLL:
    calls = LibraryCalls("libcenote.so", "CENOTE_LIBRARY", "cenote", (ABI_MAJOR, ABI_MINOR), _SIGNATURES, _FREEING)
    library = load(calls, _places())
    library.cenote_stream_native.argtypes = (c_void_p,)
    library.cenote_stream_native.restype = c_void_p
    return library


library = _load()


def check(code: int, stored: int | None = None) -> None:
    """Raises what a failed call of the library means."""
    if code:
        message: bytes = library.cenote_last_error()
        raise errors.from_number(code, message.decode("utf-8", "replace"), stored)
