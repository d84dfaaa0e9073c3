"""Keys and block contents of the tests. Contents derive from keys, so that every wrong byte is seen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_steps: dict[int, npt.NDArray[np.uint64]] = {}


def key_of(label: str, number: int, width: int = 32) -> bytes:
    """Key `number` of the run called `label`."""
    return hashlib.shake_128(f"{label}:{number}".encode()).digest(width)


def keys_of(label: str, first: int, count: int, width: int = 32) -> list[bytes]:
    """Keys first … first + count - 1 of a run."""
    return [key_of(label, first + i, width) for i in range(count)]


def content_of(key: bytes, size: int, salt: int = 0) -> Bytes:
    """The `size` bytes that belong under `key`: splitmix64 of its hash. Another salt gives other bytes."""
    words = (size + 7) // 8
    if words not in _steps:
        _steps[words] = np.arange(1, words + 1, dtype=np.uint64) * _GOLDEN
    seed = int.from_bytes(hashlib.sha256(bytes(key) + salt.to_bytes(8, "little")).digest()[:8], "little")
    with np.errstate(over="ignore"):
        x = _steps[words] + np.uint64(seed)
        x ^= x >> np.uint64(30)
        x *= _MIX_1
        x ^= x >> np.uint64(27)
        x *= _MIX_2
        x ^= x >> np.uint64(31)
    return x.view(np.uint8)[:size]


def contents_of(keys: Iterable[bytes], size: int, salt: int = 0) -> list[Bytes]:
    """One buffer a key, as put wants them."""
    return [content_of(key, size, salt) for key in keys]


def put(session: Any, keys: Sequence[bytes], size: int, batch: int = 8) -> None:
    """Stores blocks, `batch` a call. A cache may take fewer."""
    for first in range(0, len(keys), batch):
        some = keys[first : first + batch]
        session.put(some, contents_of(some, size))


def is_content_of(key: bytes, data: object, size: int, salt: int = 0) -> bool:
    """True when `data` (anything with the buffer protocol) is whole and right."""
    have = np.frombuffer(data, dtype=np.uint8)  # type: ignore[call-overload]
    return have.size == size and bool(np.array_equal(have, content_of(key, size, salt)))


def wrong_blocks(keys: Sequence[bytes], buffers: Sequence[object], size: int, salt: int = 0) -> list[int]:
    """Positions whose bytes are not those of their key."""
    return [i for i, key in enumerate(keys) if not is_content_of(key, buffers[i], size, salt)]
