"""Copies between an engine's tensors and blocks: any strides, several threads in C++, one pass, without the GIL."""

from __future__ import annotations

import ctypes
import itertools
from array import array
from collections.abc import Sequence
from ctypes import byref
from typing import NamedTuple

from . import _library as lib
from .blocks import Block, Held
from .device import Stream
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

    layers : sequence of int, optional
        How many of the pieces each layer has, in their order. None: one layer.

    Attributes
    ----------
    block_bytes : int
        Sum of `run_bytes * runs`: what the cache's block (or part) must have.
    layers : int
    """

    def __init__(self, pieces: Sequence[Piece], layers: Sequence[int] | None = None) -> None:
        if not pieces:
            raise InvalidArgument("there are no pieces")
        counts = [len(pieces)] if layers is None else layers
        if sum(counts) != len(pieces) or min(counts) < 1:
            raise InvalidArgument(f"layers of {list(counts)} pieces, but {len(pieces)} pieces")
        self._raw = (lib.Strided * len(pieces))(*(lib.Strided(*piece) for piece in pieces))
        self._first = [0, *itertools.accumulate(counts)]  # piece of each layer
        sizes = [0, *itertools.accumulate(piece.run_bytes * piece.runs for piece in pieces)]
        self._offsets = [sizes[first] for first in self._first]
        self.block_bytes = sizes[-1]
        self.layers = len(counts)

    def layer_bytes(self, layer: int) -> int:
        """Of a block."""
        return self._offsets[layer + 1] - self._offsets[layer]

    def gather(
        self,
        indices: Sequence[int],
        blocks: Sequence[Block],
        part: str | None = None,
        threads: int = 0,
        *,
        stream: Stream | None = None,
        layer: int | range | None = None,
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
        stream : Stream, optional
            Of the device on which the tensors are: it copies, and this returns at once. Then commit_after().
        layer : int or range, optional
            Only this one, or these, which follow each other. None: all of the block.
        """
        for block in blocks:
            if block.part_bytes(part) != self.block_bytes:
                raise InvalidArgument(f"the pieces have {self.block_bytes} bytes, the block {block.part_bytes(part)}")
            if stream is None:
                block._core.check_reach()
        addresses = array("Q", [block.address(part) for block in blocks])
        self._copy(lib.library.cenote_gather, indices, addresses, threads, stream, layer)

    def scatter(
        self,
        indices: Sequence[int],
        held: Held,
        part: str | None = None,
        first: int = 0,
        threads: int = 0,
        *,
        stream: Stream | None = None,
        layer: int | range | None = None,
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
        stream : Stream, optional
            Of the device on which the tensors are: it copies, and this returns at once. Then Held.release_after().
        layer : int or range, optional
            Only this one, or these, which follow each other. None: all of the block.
        """
        if held.part_bytes(part) != self.block_bytes:
            raise InvalidArgument(f"the pieces have {self.block_bytes} bytes, the blocks {held.part_bytes(part)}")
        if stream is None:
            held._core.check_reach()
        addresses = held.addresses(part)[first : first + len(indices)]
        self._copy(lib.library.cenote_scatter, indices, addresses, threads, stream, layer)

    def _copy(
        self,
        function: ctypes._NamedFuncPointer,
        indices: Sequence[int],
        blocks: array[int],
        threads: int,
        stream: Stream | None,
        layer: int | range | None,
    ) -> None:
        numbers = _words(indices)
        if len(numbers) != len(blocks):
            raise InvalidArgument(f"{len(numbers)} blocks of the engine, but {len(blocks)} of the cache")
        layers = range(self.layers) if layer is None else range(layer, layer + 1) if isinstance(layer, int) else layer
        if layers.step != 1 or not 0 <= layers.start < layers.stop <= self.layers:
            raise InvalidArgument(f"layer {layer} of {self.layers}")
        first, end = self._first[layers.start], self._first[layers.stop]
        offset = self._offsets[layers.start]
        pieces = ctypes.cast(ctypes.byref(self._raw, first * ctypes.sizeof(lib.Strided)), ctypes.POINTER(lib.Strided))
        options = _options(threads, stream, offset)
        lib.check(function(pieces, end - first, _address(numbers), _address(blocks), len(numbers), options))


def copy(
    targets: Sequence[int],
    sources: Sequence[int],
    sizes: Sequence[int],
    threads: int = 0,
    *,
    stream: Stream | None = None,
) -> None:
    """Copies ranges of memory that do not overlap, in several threads.

    Parameters
    ----------
    targets, sources : sequence of n int
        Addresses.
    sizes : sequence of n int
        Bytes.
    threads : int
        At most; 0: as many as cores, four at most.
    stream : Stream, optional
        Its device copies, and this returns at once; targets and sources must stay until an event after it.
    """
    to, start, size = _words(targets), _words(sources), _words(sizes)
    if not len(to) == len(start) == len(size):
        raise InvalidArgument(f"{len(to)} targets, {len(start)} sources, {len(size)} sizes")
    options = _options(threads, stream)
    lib.check(lib.library.cenote_copy(_address(to), _address(start), _address(size), len(to), options))


def _words(numbers: Sequence[int]) -> array[int]:
    return numbers if isinstance(numbers, array) and numbers.typecode == "Q" else array("Q", numbers)


def _address(words: array[int]) -> int | None:
    return words.buffer_info()[0] or None


def _options(threads: int, stream: Stream | None, block_offset: int = 0) -> object:
    raw = None if stream is None else stream._raw
    return byref(lib.CopyOptions(ctypes.sizeof(lib.CopyOptions), threads, raw, block_offset))
