"""vLLM's KV tensors as pieces that the C++ copies understand, whatever their strides."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ..copying import Piece, Strides


class Unservable(Exception):
    """Why this model cannot be served correctly; the engine then runs without Cenote."""


def strides_of(tensor: Any, num_blocks: int) -> tuple[int, list[tuple[int, int]]]:
    """The bytes between two blocks, and what a block has: (count, bytes apart) of each dimension, outermost first in
    memory, down to single bytes. Unservable: the first dimension does not count blocks."""
    size, apart = list(tensor.shape), list(tensor.stride())
    each = tensor.element_size()
    if not size or size[0] < num_blocks or size[0] % num_blocks:
        raise Unservable(f"a KV tensor of shape {tuple(size)} does not begin with the {num_blocks} blocks")
    split = size[0] // num_blocks  # the attention kernel's blocks may be smaller than the cache manager's
    dimensions = [(split, apart[0] * each)]
    dimensions += [(count, stride * each) for count, stride in zip(size[1:], apart[1:], strict=True)]
    dimensions.sort(key=lambda dimension: -dimension[1])  # in memory's order: runs are as long as they can be
    merged: list[tuple[int, int]] = []
    for count, stride in [*dimensions, (each, 1)]:
        if count == 1:
            continue
        inside = merged.pop()[0] if merged and merged[-1][1] == count * stride else 1
        merged.append((inside * count, stride))
    return split * apart[0] * each, merged


def pieces_of(tensor: Any, num_blocks: int) -> list[Piece]:
    """One tensor's share of a block."""
    between, dimensions = strides_of(tensor, num_blocks)
    run_bytes = 1
    if dimensions and dimensions[-1][1] == 1:
        run_bytes = dimensions.pop()[0]
    runs, run_stride = dimensions.pop() if dimensions else (1, 0)
    starts = itertools.product(*(range(0, count * stride, stride) for count, stride in dimensions))
    return [Piece(tensor.data_ptr() + sum(start), between, run_bytes, runs, run_stride) for start in starts]


def check_page(name: str, tensor: Any, num_blocks: int, spec: Any) -> None:
    """Unservable: the tensor does not show all bytes that vLLM says a block of this layer has (scales of quantized
    values, say, that lie elsewhere)."""
    seen = tensor.numel() // num_blocks * tensor.element_size()
    if seen != spec.real_page_size_bytes:
        raise Unservable(f"{name}: a block has {spec.real_page_size_bytes} bytes, but its tensor shows {seen}")


class GroupLayout:
    """The tensors of one KV group, in the order of its layers."""

    def __init__(self, names: Sequence[str], caches: Mapping[str, Any], num_blocks: int, spec: Any) -> None:
        pieces: list[Piece] = []
        described = []
        seen = set()
        for name in names:
            tensor = caches.get(name)
            if tensor is None or not hasattr(tensor, "data_ptr"):
                raise Unservable(f"{name} has no KV tensor of its own, but {type(tensor).__name__}")
            if tensor.device.type != "cpu":
                raise Unservable(f"the KV cache is on {tensor.device}; only CPU is served so far")
            if tensor.data_ptr() in seen:
                continue  # a layer that shares the KV of another
            seen.add(tensor.data_ptr())
            check_page(name, tensor, num_blocks, getattr(spec, "kv_cache_specs", {}).get(name, spec))
            pieces += pieces_of(tensor, num_blocks)
            _, dimensions = strides_of(tensor, num_blocks)
            described.append((name, str(tensor.dtype), tuple(tensor.shape[1:]), _order(tensor), len(dimensions)))
        self.strides = Strides(pieces)
        self.shape = hashlib.sha256(repr(described).encode()).hexdigest()

    @property
    def block_bytes(self) -> int:
        return self.strides.block_bytes


def _order(tensor: Any) -> tuple[int, ...]:
    """Which dimension is outermost in memory, and so on."""
    strides = tensor.stride()
    return tuple(sorted(range(1, len(strides)), key=lambda i: -strides[i]))
