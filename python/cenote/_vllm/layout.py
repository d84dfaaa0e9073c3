"""vLLM's KV tensors as pieces that the C++ copies understand, whatever their strides."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..copying import Piece, Strides
from ..errors import InvalidArgument
from ..tensors import pieces_at, place_of, strides_of


class Unservable(Exception):
    """Why this model cannot be served correctly; the engine then runs without Cenote."""


def check_page(name: str, tensor: Any, num_blocks: int, spec: Any) -> None:
    """Unservable: the tensor does not show all bytes that vLLM says a block of this layer has (scales of quantized
    values, say, that lie elsewhere)."""
    seen = tensor.numel() // num_blocks * tensor.element_size()
    if seen != spec.real_page_size_bytes:
        raise Unservable(f"{name}: a block has {spec.real_page_size_bytes} bytes, but its tensor shows {seen}")


_SPAN_BYTES = 256 << 10  # of a block: what a copy engine moves nearly as fast as one long copy


def spans_of(strides: Strides) -> list[range]:
    """Layers that are moved in one call each, so that what a block has of them is long; the first and the last span are
    shorter, since the engine waits for the one and goes on after the other."""
    spans: list[range] = []
    first, size = 0, 0
    for layer in range(strides.layers):
        size += strides.layer_bytes(layer)
        if size >= _SPAN_BYTES or layer + 1 == strides.layers:
            spans.append(range(first, layer + 1))
            first, size = layer + 1, 0
    middle = spans[1:-1]
    last = _halves(spans[-1]) if len(spans) > 1 else []
    return [*_halves(spans[0]), *middle, *last]


def _halves(span: range) -> list[range]:
    between = (span.start + span.stop) // 2
    return [each for each in (range(span.start, between), range(between, span.stop)) if each]


class GroupLayout:
    """The tensors of one KV group, in the order of its layers.

    `layers`: by name, the number of a layer's pieces in `strides`; of layers that share their KV, the same. `spans`:
    layers that are moved together.
    """

    def __init__(self, names: Sequence[str], caches: Mapping[str, Any], num_blocks: int, spec: Any) -> None:
        pieces: list[Piece] = []
        counts: list[int] = []  # pieces of each layer
        described = []
        seen: dict[int, int] = {}  # address -> layer
        self.layers: dict[str, int] = {}
        self.devices: set[str] = set()
        for name in names:
            tensor = caches.get(name)
            if tensor is None or not hasattr(tensor, "data_ptr"):
                raise Unservable(f"{name} has no KV tensor of its own, but {type(tensor).__name__}")
            self.layers[name] = seen.setdefault(tensor.data_ptr(), len(counts))
            if self.layers[name] < len(counts):
                continue  # a layer that shares the KV of another
            check_page(name, tensor, num_blocks, getattr(spec, "kv_cache_specs", {}).get(name, spec))
            try:
                place = place_of(tensor)
                between, dimensions = strides_of(place, num_blocks)
            except InvalidArgument as why:
                raise Unservable(f"{name}: {why}") from None
            self.devices.add(place.device)
            added = pieces_at(place, between, dimensions)
            pieces += added
            counts.append(len(added))
            described.append((name, str(tensor.dtype), tuple(tensor.shape[1:]), _order(tensor), len(dimensions)))
        self.strides = Strides(pieces, counts)
        self.spans = spans_of(self.strides)
        self.shape = hashlib.sha256(repr(described).encode()).hexdigest()

    @property
    def block_bytes(self) -> int:
        return self.strides.block_bytes


def _order(tensor: Any) -> tuple[int, ...]:
    """Which dimension is outermost in memory, and so on."""
    strides = tensor.stride()
    return tuple(sorted(range(1, len(strides)), key=lambda i: -strides[i]))
