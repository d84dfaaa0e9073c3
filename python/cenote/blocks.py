"""Blocks in place: pinned ones for reading, reserved ones for writing."""

from __future__ import annotations

import contextlib
import enum
import weakref
from array import array
from collections.abc import Iterator, Sequence
from ctypes import Array, c_ubyte, c_uint32
from types import TracebackType
from typing import overload

from . import _library as lib
from .errors import InvalidArgument


class BlockState(enum.Enum):
    """What reserve() says of a key in place of a Block."""

    PRESENT = lib.PRESENT
    PENDING = lib.PENDING


PRESENT = BlockState.PRESENT  # complete already: do not write
PENDING = BlockState.PENDING  # another writer has that part: do not write


class Layout:
    """One group's parts: name -> (number, offset, bytes)."""

    __slots__ = ("block_bytes", "name", "number", "parts")

    def __init__(self, name: str, number: int, parts: dict[str, int]) -> None:
        self.name = name
        self.number = number
        self.parts: dict[str, tuple[int, int, int]] = {}
        offset = 0
        for index, (part, size) in enumerate(parts.items()):
            self.parts[part] = (index, offset, size)
            offset += size
        self.block_bytes = offset

    def find(self, part: str) -> tuple[int, int, int]:
        try:
            return self.parts[part]
        except KeyError:
            names = ", ".join(self.parts)
            raise InvalidArgument(f"group `{self.name}` has no part `{part}`; it has: {names}") from None


class Core:
    """The C handle. Everything that shows memory of the session keeps it, so that no view outlives its mapping."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._types: dict[int, type[Array[c_ubyte]]] = {}
        self.lingering: list[Held] = []  # ended, but somebody still looks at some of their blocks

    def __del__(self) -> None:
        lib.library.cenote_free(self.handle)

    def bytes_type(self, size: int) -> type[Array[c_ubyte]]:
        """An array type whose instances keep the mapping alive, whoever slices them."""
        try:
            return self._types[size]
        except KeyError:
            made: type[Array[c_ubyte]] = type("Bytes", (Array,), {"_type_": c_ubyte, "_length_": size, "_core": self})
            self._types[size] = made
            return made

    def sweep(self) -> None:
        """Ends the pins of blocks that nobody looks at any more."""
        if self.lingering:
            for held in list(self.lingering):
                with contextlib.suppress(BufferError):
                    held.release()


_View = tuple[int, "weakref.ref[Array[c_ubyte]]", memoryview]


class HeldBlock:
    """A pinned block; valid as long as its Held."""

    __slots__ = ("_address", "_held", "_index")

    def __init__(self, held: Held, index: int, address: int) -> None:
        self._held = held
        self._index = index
        self._address = address

    def view(self, part: str | None = None) -> memoryview:
        """The bytes of one part, or of the whole block: format "B", read-only, no copy."""
        held = self._held
        if part is None:
            offset, size = 0, held._layout.block_bytes
        else:
            _, offset, size = held._layout.find(part)
        if held._count == 0:
            raise ValueError("the block is not held any more")
        memory = held._core.bytes_type(size).from_address(self._address + offset)
        view = memoryview(memory).cast("B").toreadonly()
        held._views.append((self._index, weakref.ref(memory), view))
        return view

    def __len__(self) -> int:
        return self._held._layout.block_bytes


class Held(Sequence[HeldBlock]):
    """The resident prefix, pinned until the end of `with` (or release())."""

    def __init__(self, core: Core, layout: Layout, raw: array[int], count: int) -> None:
        self._core = core
        self._layout = layout
        self._raw = raw  # struct cenote_held as words
        self._count = count
        self._busy: dict[int, int] = {}  # block -> slot: pins that could not end yet
        self._views: list[_View] = []

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> HeldBlock: ...
    @overload
    def __getitem__(self, index: slice) -> list[HeldBlock]: ...
    def __getitem__(self, index: int | slice) -> HeldBlock | list[HeldBlock]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if index < 0:
            index += self._count
        if not 0 <= index < self._count:
            raise IndexError(f"block {index} of {self._count} held ones")
        return HeldBlock(self, index, self._raw[index * lib.HELD_WORDS])

    def __iter__(self) -> Iterator[HeldBlock]:
        for index in range(self._count):
            yield HeldBlock(self, index, self._raw[index * lib.HELD_WORDS])

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.release()
        else:
            with contextlib.suppress(BufferError):  # the exception under way says more
                self.release()

    def release(self) -> None:
        """Ends the views and the pins. BufferError: somebody still uses a view (a NumPy array, a slice); these blocks
        stay pinned until it is gone."""
        busy = self._end_views()
        slots = self._slots_besides(busy)
        if slots is None:
            lib.check(lib.library.cenote_release_held(self._core.handle, self._raw.buffer_info()[0], self._count))
        elif slots:
            lib.check(lib.library.cenote_release(self._core.handle, (c_uint32 * len(slots))(*slots), len(slots)))
        self._count = 0
        linger = self in self._core.lingering
        if busy and not linger:
            self._core.lingering.append(self)
        if not busy and linger:
            self._core.lingering.remove(self)
        if busy:
            raise BufferError(
                f"{len(busy)} of the held blocks are still in use through a view, a slice or an array made from one; "
                "they stay pinned until it is gone"
            )

    def _end_views(self) -> set[int]:
        """Releases the views; the numbers of the blocks that somebody still looks at."""
        busy: set[int] = set()
        left: list[_View] = []
        for entry in self._views:
            index, memory, view = entry
            with contextlib.suppress(BufferError):
                view.release()
            if memory() is not None:  # an export, or a slice of the view
                busy.add(index)
                left.append(entry)
        self._views = left
        return busy

    def _slots_besides(self, busy: set[int]) -> list[int] | None:
        """The pins to end now, all but those of `busy`; None: every one of a Held that was not released before."""
        if self._count and not busy:
            return None
        if self._count:
            places = {index: self._raw[index * lib.HELD_WORDS + 2] & 0xFFFFFFFF for index in range(self._count)}
        else:
            places = self._busy
        self._busy = {index: slot for index, slot in places.items() if index in busy}
        return [slot for index, slot in places.items() if index not in busy]

    def __del__(self) -> None:
        if self._count:
            with contextlib.suppress(Exception):
                self.release()


class Block:
    """A reserved block: fill view(), then Session.commit()."""

    __slots__ = ("_core", "_layout", "_raw", "_views")

    def __init__(self, core: Core, layout: Layout, raw: lib.Reserved) -> None:
        self._core = core
        self._layout = layout
        self._raw = raw
        self._views: list[memoryview] = []

    def view(self, part: str | None = None) -> memoryview:
        """The bytes of a part that is ours (None: of the whole block, or of the one part that was reserved): format
        "B", writable, no copy."""
        if part is None:
            offset, size = self._own_range()
        else:
            number, offset, size = self._layout.find(part)
            if not self._raw.parts >> number & 1:
                raise InvalidArgument(f"part `{part}` of this block was not reserved by this call")
        memory = self._core.bytes_type(size).from_address(self._raw.data + offset)
        view = memoryview(memory).cast("B")
        self._views.append(view)
        return view

    def _own_range(self) -> tuple[int, int]:
        own = [place for place in self._layout.parts.values() if self._raw.parts >> place[0] & 1]
        if len(own) == len(self._layout.parts):
            return 0, self._layout.block_bytes
        if len(own) == 1:
            return own[0][1], own[0][2]
        raise InvalidArgument("name the part of the view")

    def end_views(self) -> None:
        """Nobody should write any more; arrays made from a view cannot be stopped."""
        for view in self._views:
            with contextlib.suppress(BufferError):
                view.release()
        self._views.clear()
