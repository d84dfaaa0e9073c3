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
from .device import Stream
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

    def share_of(self, rank: int) -> Layout:
        """What of a block lies on the device of a rank: its part, or the only one."""
        number = 0 if len(self.parts) == 1 else rank
        part, (_, _, size) = list(self.parts.items())[number]
        return Layout(self.name, self.number, {part: size})

    def find(self, part: str) -> tuple[int, int, int]:
        try:
            return self.parts[part]
        except KeyError:
            names = ", ".join(self.parts)
            raise InvalidArgument(f"group `{self.name}` has no part `{part}`; it has: {names}") from None


_BASE = 4096  # where the window over the address space starts
_WINDOW_BYTES = (1 << 47) - _BASE


class _Window(Array):  # type: ignore[type-arg]  # Array[c_ubyte] is no class that ctypes could derive from
    """An array over the whole address space, of which views cut out blocks: making one array a block would cost more
    than the rest of an acquire."""

    _type_ = c_ubyte
    _length_ = _WINDOW_BYTES
    core: Core  # whose memory is looked at: it lives as long as the last view


class Core:
    """The C handle, as an argument of the library's functions. Every view of the session's memory keeps it, so that
    none outlives its mapping. So does every call, which may run beside Session.close() in another thread: ctypes holds
    an argument until the function returns. The number itself is never taken out."""

    def __init__(self, handle: int, device: str | None = None) -> None:
        self._as_parameter_ = handle
        self.device = device  # that the blocks lie on; None: they are host memory
        self.lingering: list[Held] = []  # ended, but somebody still looks at some of their blocks

    def __del__(self) -> None:
        handle, self._as_parameter_ = self._as_parameter_, 0  # the collector may finalize a Held after this
        try:
            lib.library.cenote_free(handle)
        except Exception:  # the interpreter is ending, and the module is gone: so is the process, soon
            return

    def check_reach(self) -> None:
        """Before the processor reads or writes blocks."""
        if self.device is not None:
            raise InvalidArgument(
                f"these blocks lie on {self.device}, where only the device reads and writes: "
                "copy by a stream of Session.device, or use get and put"
            )

    def window(self) -> _Window:
        """A fresh exporter: it lives until the last view made from it, or slice of one, is gone."""
        self.check_reach()
        made = _Window.from_address(_BASE)
        made.core = self
        return made

    def sweep(self) -> None:
        """Ends the pins of blocks that nobody looks at any more."""
        if self.lingering:
            for held in list(self.lingering):
                with contextlib.suppress(BufferError):
                    held.release()


class HeldBlock:
    """A pinned block; valid as long as its Held."""

    __slots__ = ("_held", "_index")

    def __init__(self, held: Held, index: int) -> None:
        self._held = held
        self._index = index

    def view(self, part: str | None = None) -> memoryview:
        """The bytes of one part (None: of the whole block), in place.

        Returns
        -------
        memoryview
            Read-only, format "B", shape (bytes,); valid until Held.release().

        Raises
        ------
        InvalidArgument
            The blocks lie on a device.
        """
        held = self._held
        if part is None:
            offset, size = 0, held._layout.block_bytes
        else:
            _, offset, size = held._layout.find(part)
        window = held._window
        if window is None:
            window = held._open_window()
        start = held._raw[self._index * lib.HELD_WORDS] + offset - _BASE
        view = window[start : start + size]
        held._views.append((self._index, view))
        return view

    def __len__(self) -> int:
        return self._held._layout.block_bytes


class Held(Sequence[HeldBlock]):
    """The resident prefix, pinned until the end of `with` (or release())."""

    def __init__(self, core: Core, layout: Layout, raw: array[int], count: int, owner: object) -> None:
        self._core = core
        self._owner = owner  # a session that is let go ends its pins
        self._layout = layout
        self._raw = raw  # struct cenote_held as words
        self._count = count
        self._busy: dict[int, int] = {}  # block -> slot: pins that could not end yet
        self._views: list[tuple[int, memoryview]] = []
        self._window: memoryview | None = None
        self._exporter: weakref.ref[_Window] | None = None

    def _open_window(self) -> memoryview:
        """What the views of these blocks are cut from."""
        if self._count == 0:
            raise ValueError("the block is not held any more")
        memory = self._core.window()
        self._exporter = weakref.ref(memory)
        self._window = memoryview(memory).cast("B").toreadonly()
        return self._window

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
        return HeldBlock(self, index)

    def part_bytes(self, part: str | None = None) -> int:
        """Bytes of that part of a block; None: of the whole block."""
        return self._layout.block_bytes if part is None else self._layout.find(part)[2]

    def addresses(self, part: str | None = None) -> array[int]:
        """Where the blocks (or that part of each) begin, for cenote.copying.

        Returns
        -------
        array of n unsigned 64-bit int
            Addresses of read-only memory, valid until release(); of a session on a device: for its streams.
        """
        offset = 0 if part is None else self._layout.find(part)[1]
        begins = self._raw[: self._count * lib.HELD_WORDS : lib.HELD_WORDS]
        return array("Q", [begin + offset for begin in begins]) if offset else begins

    def __iter__(self) -> Iterator[HeldBlock]:
        for index in range(self._count):
            yield HeldBlock(self, index)

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
        """Ends the views and the pins.

        Raises
        ------
        BufferError
            Somebody still uses a view (a NumPy array, a slice); the blocks that were viewed stay pinned until it is
            gone.
        """
        busy = self._end_views()
        slots = self._slots_besides(busy)
        if slots is None:
            lib.check(lib.library.cenote_release_held(self._core, self._raw.buffer_info()[0], self._count))
        elif slots:
            lib.check(lib.library.cenote_release(self._core, (c_uint32 * len(slots))(*slots), len(slots)))
        self._count = 0
        linger = self in self._core.lingering
        if busy and not linger:
            self._core.lingering.append(self)
        if not busy and linger:
            self._core.lingering.remove(self)
        if busy:
            raise BufferError(
                "a view of a held block is still in use, through a slice or an array made from it; "
                f"the {len(busy)} blocks that were viewed stay pinned until it is gone"
            )

    def release_after(self, stream: Stream) -> None:
        """Ends the views now, and the pins when all that the stream was given before has ended; returns at once.

        Raises
        ------
        BufferError
            As of release(); the blocks stay pinned until that is called, which must not be before the stream's work
            has ended.
        """
        if self._end_views():
            raise BufferError("a view of a held block is still in use, through a slice or an array made from it")
        slots = [self._raw[index * lib.HELD_WORDS + 2] & 0xFFFFFFFF for index in range(self._count)]
        raw = (c_uint32 * len(slots))(*slots)
        lib.check(lib.library.cenote_release_after(self._core, raw, len(slots), stream._raw))
        self._count = 0

    def _end_views(self) -> set[int]:
        """Releases the views. If an array or a slice made from one lives on: the numbers of all blocks that were
        viewed, since it cannot be told which of them it shows."""
        for _, view in self._views:
            try:  # noqa: SIM105 - suppress() costs more than the release
                view.release()
            except BufferError:
                pass
        if self._window is not None:
            self._window.release()
            self._window = None
        if self._exporter is not None and self._exporter() is not None:
            return {index for index, _ in self._views}
        self._exporter = None
        self._views.clear()
        return set()

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
        try:
            if self._count:
                self.release()
        except Exception:  # also when the interpreter is ending: then no module's name can be used here
            return


class Block:
    """A reserved block: fill view(), then Session.commit()."""

    __slots__ = ("_core", "_layout", "_raw", "_views")

    def __init__(self, core: Core, layout: Layout, raw: lib.Reserved) -> None:
        self._core = core
        self._layout = layout
        self._raw = raw
        self._views: list[memoryview] = []

    def view(self, part: str | None = None) -> memoryview:
        """The bytes of a part that this block was reserved for, in place.

        Parameters
        ----------
        part : str, optional
            None: the whole block, or the one part that was reserved.

        Returns
        -------
        memoryview
            Writable, format "B", shape (bytes,); not to be written to after the commit.

        Raises
        ------
        InvalidArgument
            The block lies on a device, or that part was not reserved.
        """
        if part is None:
            offset, size = self._own_range()
        else:
            number, offset, size = self._layout.find(part)
            if not self._raw.parts >> number & 1:
                raise InvalidArgument(f"part `{part}` of this block was not reserved by this call")
        start = self._raw.data + offset - _BASE
        view = memoryview(self._core.window()).cast("B")[start : start + size]
        self._views.append(view)
        return view

    def part_bytes(self, part: str | None = None) -> int:
        """Bytes of view(part)."""
        return self._own_range()[1] if part is None else self._layout.find(part)[2]

    def address(self, part: str | None = None) -> int:
        """Where view(part) begins, for cenote.copying; not to be written to after the commit. Of a session on a device:
        for its streams."""
        if part is None:
            return int(self._raw.data) + self._own_range()[0]
        number, offset, _ = self._layout.find(part)
        if not self._raw.parts >> number & 1:
            raise InvalidArgument(f"part `{part}` of this block was not reserved by this call")
        return int(self._raw.data) + offset

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
