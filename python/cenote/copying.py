"""Copies between an engine's tensors and blocks: any strides, several threads in C++, one pass, without the GIL."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from ctypes import byref
from typing import NamedTuple

from . import _library as lib
from .blocks import Block, Held
from .errors import InvalidArgument


class Piece(NamedTuple):
    """What every block of an engine has in one tensor: `runs` runs of `run_bytes` bytes from `base + i * block_stride`
    on, `run_stride` bytes apart. A tensor with more dimensions is several of these."""

    base: int
    block_stride: int
    run_bytes: int
    runs: int = 1
    run_stride: int = 0


class Strides:
    """Where an engine keeps its blocks. In the cache's block (or part) the pieces lie back to back in this order.
    Immutable; the tensors must outlive it. Threads may share it."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        if not pieces:
            raise InvalidArgument("there are no pieces")
        self._raw = (lib.Strided * len(pieces))(*(lib.Strided(*piece) for piece in pieces))
        self.block_bytes = sum(piece.run_bytes * piece.runs for piece in pieces)

    def gather(
        self, indices: Sequence[int], blocks: Sequence[Block], part: str | None = None, threads: int = 0
    ) -> None:
        """The engine's blocks `indices` into reserved blocks. `threads`: at most; 0: as many as cores, four at most."""
        for block in blocks:
            if block.part_bytes(part) != self.block_bytes:
                raise InvalidArgument(f"the pieces have {self.block_bytes} bytes, the block {block.part_bytes(part)}")
        self._copy(lib.library.cenote_gather, indices, array("Q", [block.address(part) for block in blocks]), threads)

    def scatter(
        self, indices: Sequence[int], held: Held, part: str | None = None, first: int = 0, threads: int = 0
    ) -> None:
        """Pinned blocks, from the one numbered `first` on, into the engine's blocks `indices`."""
        if held.part_bytes(part) != self.block_bytes:
            raise InvalidArgument(f"the pieces have {self.block_bytes} bytes, the blocks {held.part_bytes(part)}")
        addresses = held.addresses(part)[first : first + len(indices)]
        self._copy(lib.library.cenote_scatter, indices, addresses, threads)

    def _copy(
        self, function: ctypes._NamedFuncPointer, indices: Sequence[int], blocks: array[int], threads: int
    ) -> None:
        numbers = _words(indices)
        if len(numbers) != len(blocks):
            raise InvalidArgument(f"{len(numbers)} blocks of the engine, but {len(blocks)} of the cache")
        lib.check(
            function(self._raw, len(self._raw), _address(numbers), _address(blocks), len(numbers), _options(threads))
        )


def copy(targets: Sequence[int], sources: Sequence[int], sizes: Sequence[int], threads: int = 0) -> None:
    """Copies `sizes[i]` bytes from address `sources[i]` to address `targets[i]`; none may overlap another."""
    to, start, size = _words(targets), _words(sources), _words(sizes)
    if not len(to) == len(start) == len(size):
        raise InvalidArgument(f"{len(to)} targets, {len(start)} sources, {len(size)} sizes")
    lib.check(lib.library.cenote_copy(_address(to), _address(start), _address(size), len(to), _options(threads)))


def _words(numbers: Sequence[int]) -> array[int]:
    return numbers if isinstance(numbers, array) and numbers.typecode == "Q" else array("Q", numbers)


def _address(words: array[int]) -> int | None:
    return words.buffer_info()[0] or None


def _options(threads: int) -> object:
    return byref(lib.CopyOptions(ctypes.sizeof(lib.CopyOptions), threads, None))
