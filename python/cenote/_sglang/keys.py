"""Page keys as SGLang hands them over (hex digests in Python strings), packed for the C library."""

from __future__ import annotations

import hashlib
from binascii import unhexlify
from collections.abc import Sequence

WIDTH = 32  # bytes of a key
_DIGITS = 2 * WIDTH


class Keys:
    """Keys back to back, 32 bytes each. Immutable."""

    __slots__ = ("count", "packed")

    def __init__(self, packed: bytes) -> None:
        self.packed = packed
        self.count = len(packed) // WIDTH

    @classmethod
    def of(cls, names: Sequence[str]) -> Keys:
        """Digests are taken as they are, the case of their digits does not matter; other names are hashed."""
        count = len(names)
        joined = "".join(names)
        # One conversion of all is five times as fast as one a key. That the longest has 64 digits and all together 64
        # each means that each has.
        if count and len(joined) == _DIGITS * count and max(map(len, names)) == _DIGITS:
            try:
                return cls(unhexlify(joined))
            except ValueError:
                pass
        return cls(b"".join(map(_digest, names)))

    def __len__(self) -> int:
        return self.count

    def cut(self, first: int, end: int | None = None) -> Keys:
        """The keys from `first` to `end`, without that one."""
        return Keys(self.packed[first * WIDTH : None if end is None else end * WIDTH])

    def pick(self, indices: Sequence[int]) -> Keys:
        packed = self.packed
        return Keys(b"".join([packed[i * WIDTH : (i + 1) * WIDTH] for i in indices]))

    def array(self) -> memoryview:
        """Shape (count, 32), for the calls of a session; there must be a key."""
        return memoryview(self.packed).cast("B", (self.count, WIDTH))

    def each(self) -> list[bytes]:
        packed = self.packed
        return [packed[start : start + WIDTH] for start in range(0, len(packed), WIDTH)]

    def find(self, key: bytes) -> int:
        """The number of `key` among these, or -1."""
        at = self.packed.find(key)
        while at % WIDTH and at >= 0:
            at = self.packed.find(key, at + 1)
        return at // WIDTH if at >= 0 else -1


def _digest(name: str) -> bytes:
    if len(name) == _DIGITS:
        try:
            return unhexlify(name)
        except ValueError:
            pass
    return hashlib.sha256(b"name\0" + name.encode("utf-8", "surrogatepass")).digest()
