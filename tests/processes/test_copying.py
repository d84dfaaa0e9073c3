"""cenote.copying on a real node: an engine's tensors into blocks, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import blocks
import cenote
import numpy as np
import pytest
from cenote.copying import Piece, Strides, copy
from node import Node

Attach = Callable[..., Any]
LAYERS, BLOCKS, HEADS, ROW = 4, 32, 3, 512  # a tensor a layer, of (block, head, row)


def tensors(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, (BLOCKS, HEADS, ROW), dtype=np.uint8) for _ in range(LAYERS)]


def strides_of(layers: list[Any]) -> Strides:
    return Strides([Piece(each.ctypes.data, HEADS * ROW, ROW, HEADS, ROW) for each in layers])


@pytest.mark.sanitizer
def test_what_was_gathered_from_one_engine_is_scattered_into_another(node: Node, attach: Attach) -> None:
    source, target = tensors(1), tensors(2)
    size = LAYERS * HEADS * ROW
    session = attach(node, "i", groups={"g": {"parts": {"tp0": size, "tp1": size}}})
    keys = blocks.keys_of("a", 0, 5)
    places = [30, 2, 17, 0, 8]
    for part in ("tp0", "tp1"):
        slots = session.reserve(keys, part)
        strides_of(source).gather(places, slots, part, threads=2)
        session.commit(slots)
    before = [each.copy() for each in target]
    to = [1, 3, 5, 7]
    with session.acquire(keys) as held:
        strides_of(target).scatter(to, held, "tp1", first=1)
    for layer in range(LAYERS):
        expected = before[layer]
        expected[to] = source[layer][places[1:]]
        assert np.array_equal(target[layer], expected)


def test_layers_move_one_by_one_or_several_at_a_time(node: Node, attach: Attach) -> None:
    source, target = tensors(1), tensors(2)
    pieces = [Piece(each.ctypes.data, HEADS * ROW, ROW, HEADS, ROW) for each in source]
    strides = Strides(pieces, [1] * LAYERS)
    assert [strides.layer_bytes(layer) for layer in range(LAYERS)] == [HEADS * ROW] * LAYERS
    session = attach(node, "i", block=strides.block_bytes)
    keys = blocks.keys_of("a", 0, 2)
    slots = session.reserve(keys)
    strides.gather([4, 9], slots, layer=0)
    strides.gather([4, 9], slots, layer=range(1, LAYERS))
    session.commit(slots)
    before = [each.copy() for each in target]
    into = Strides([Piece(each.ctypes.data, HEADS * ROW, ROW, HEADS, ROW) for each in target], [1] * LAYERS)
    with session.acquire(keys) as held:
        into.scatter([1, 3], held, layer=range(1, 3))
        for wrong in (range(2, LAYERS + 1), range(0, LAYERS, 2), range(2, 2), LAYERS):
            with pytest.raises(cenote.InvalidArgument, match="of 4"):
                into.scatter([1, 3], held, layer=wrong)
    for layer in (1, 2):
        before[layer][[1, 3]] = source[layer][[4, 9]]
    assert all(np.array_equal(now, then) for now, then in zip(target, before, strict=True))


def test_sizes_and_counts_that_do_not_fit_are_refused_before_a_byte_moves(node: Node, attach: Attach) -> None:
    layers = tensors(1)
    strides = strides_of(layers)
    session = attach(node, "i", block=strides.block_bytes + 1)
    keys = blocks.keys_of("a", 0, 2)
    slots = session.reserve(keys)
    with pytest.raises(cenote.InvalidArgument, match=f"the pieces have {strides.block_bytes} bytes, the block"):
        strides.gather([0, 1], slots)
    session.abandon(slots)
    session.put(keys, blocks.contents_of(keys, strides.block_bytes + 1))
    with session.acquire(keys) as held:
        with pytest.raises(cenote.InvalidArgument, match="the blocks"):
            strides.scatter([0, 1], held)
        fitting = Strides([Piece(layers[0].ctypes.data, 1, strides.block_bytes + 1)])
        with pytest.raises(cenote.InvalidArgument, match="3 blocks of the engine, but 2 of the cache"):
            fitting.scatter([0, 0, 0], held)
    with pytest.raises(cenote.InvalidArgument, match="1 targets, 2 sources, 1 sizes"):
        copy([1], [1, 2], [1])
    with pytest.raises(cenote.InvalidArgument, match="no pieces"):
        Strides([])


def test_addresses_are_those_of_the_views(node: Node, attach: Attach) -> None:
    session = attach(node, "i", groups={"g": {"parts": {"a": 4096, "b": 8192}}})
    keys = blocks.keys_of("a", 0, 3)
    slots = session.reserve(keys)
    for slot in slots:
        assert slot.address() == np.frombuffer(slot.view(), dtype=np.uint8).ctypes.data
        assert slot.address("b") == slot.address() + 4096
    session.commit(slots)
    with session.acquire(keys) as held:
        starts = [np.frombuffer(block.view("b"), dtype=np.uint8).ctypes.data for block in held]
        assert list(held.addresses("b")) == starts
        assert [address + 4096 for address in held.addresses()] == starts
        assert held.part_bytes() == 12288 and held.part_bytes("b") == 8192
