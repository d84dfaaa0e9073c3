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
    """What every block of an engine has in one tensor. A tensor with more dimensions is several of these.

    Attributes
    ----------
    base : int
        Address of block 0.
    block_stride : int
        Bytes from a block to the next: block i begins at `base + i * block_stride`.
    run_bytes : int
        Bytes of one run.
    runs : int
        Runs of a block in this tensor.
    run_stride : int
        Bytes from a run to the next; of no account where there is one.
    """

    base: int
    block_stride: int
    run_bytes: int
    runs: int = 1
    run_stride: int = 0


class Strides:
    """Where an engine keeps its blocks. Immutable; the tensors must outlive it. Threads may share it.

    Parameters
    ----------
    pieces : sequence of Piece
        In the cache's block (or part) they lie back to back in this order.

    Attributes
    ----------
    block_bytes : int
        Sum of `run_bytes * runs`: what the cache's block (or part) must have.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        if not pieces:
            raise InvalidArgument("there are no pieces")
        self._raw = (lib.Strided * len(pieces))(*(lib.Strided(*piece) for piece in pieces))
        self.block_bytes = sum(piece.run_bytes * piece.runs for piece in pieces)

    def gather(
        self, indices: Sequence[int], blocks: Sequence[Block], part: str | None = None, threads: int = 0
    ) -> None:
        """Copies blocks of the engine into reserved blocks.

        Parameters
        ----------
        indices : sequence of n int
            Numbers of the engine's blocks.
        blocks : sequence of n Block
            Where they go, in this order; committed by the caller.
        part : str, optional
            None: the whole block, or the one part that was reserved.
        threads : int
            At most; 0: as many as cores, four at most.
        """
        for block in blocks:
            if block.part_bytes(part) != self.block_bytes:
                raise InvalidArgument(f"the pieces have {self.block_bytes} bytes, the block {block.part_bytes(part)}")
        self._copy(lib.library.cenote_gather, indices, array("Q", [block.address(part) for block in blocks]), threads)

    def scatter(
        self, indices: Sequence[int], held: Held, part: str | None = None, first: int = 0, threads: int = 0
    ) -> None:
        """Copies pinned blocks into blocks of the engine.

        Parameters
        ----------
        indices : sequence of n int
            Numbers of the engine's blocks.
        held : Held
            The blocks `first` to `first + n - 1` of it are copied.
        part : str, optional
            None: the whole block.
        first : int
        threads : int
            At most; 0: as many as cores, four at most.
        """
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
    """Copies ranges of memory that do not overlap, in several threads.

    Parameters
    ----------
    targets, sources : sequence of n int
        Addresses.
    sizes : sequence of n int
        Bytes.
    threads : int
        At most; 0: as many as cores, four at most.
    """
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
