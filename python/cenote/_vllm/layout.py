"""vLLM's KV tensors as pieces that the C++ copies understand, whatever their strides."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..copying import Piece, Strides
from ..errors import InvalidArgument
from ..tensors import pieces_of, place_of, strides_of


class Unservable(Exception):
    """Why this model cannot be served correctly; the engine then runs without Cenote."""


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
