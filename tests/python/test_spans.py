"""Layers that vLLM's adapter moves in one call."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from cenote.copying import Piece, Strides
from vllm_stand_ins import stand_ins

KiB = 1 << 10


@pytest.fixture
def layout(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with stand_ins(monkeypatch):
        yield importlib.import_module("cenote._vllm.layout")


def spans(layout: Any, *sizes: int) -> list[range]:
    pieces = [Piece(1 << 30, 1 << 30, size) for size in sizes]
    found: list[range] = layout.spans_of(Strides(pieces, [1] * len(sizes)))
    return found


def test_layers_go_together_until_a_block_s_share_of_them_is_long(layout: Any) -> None:
    found = spans(layout, *[64 * KiB] * 16)
    assert found == [range(2), range(2, 4), range(4, 8), range(8, 12), range(12, 14), range(14, 16)]


def test_long_layers_go_alone(layout: Any) -> None:
    assert spans(layout, *[1 << 20] * 3) == [range(1), range(1, 2), range(2, 3)]


def test_every_layer_is_in_one_span_whatever_their_sizes(layout: Any) -> None:
    for sizes in ([1], [1] * 2, [1] * 61, [300 * KiB, 1, 1, 300 * KiB, 7], [128 * KiB] * 5):
        found = spans(layout, *sizes)
        assert [layer for span in found for layer in span] == list(range(len(sizes)))
