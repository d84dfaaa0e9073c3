"""Every call of the Python API against a real node, as a user would make it."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import numpy as np
import pytest
from conftest import make_spec
from node import MiB, Node, until
from tier import both_tiers

Attach = Callable[..., Any]
pytestmark = pytest.mark.sanitizer
SIZE = 8192


@pytest.fixture
def session(shared_node: Node, attach: Attach) -> Any:
    return attach(shared_node, block=SIZE)


def some(label: str, count: int) -> tuple[list[bytes], list[blocks.Bytes]]:
    keys = blocks.keys_of(label, 0, count)
    return keys, blocks.contents_of(keys, SIZE)


# ---- put and get


def test_what_was_put_is_read_back_by_another_session(shared_node: Node, attach: Attach) -> None:
    writer, reader = attach(shared_node, "two-readers", block=SIZE), attach(shared_node, "two-readers", block=SIZE)
    keys, data = some("a", 100)
    assert writer.put(keys, data) == 100
    targets = np.zeros((100, SIZE), np.uint8)
    assert reader.get_into(keys, targets) == 100
    assert blocks.wrong_blocks(keys, list(targets), SIZE) == []


def test_put_counts_only_what_is_new(session: Any) -> None:
    keys, data = some("a", 10)
    assert session.put(keys[:4], data[:4]) == 4
    assert session.put(keys, data) == 6
    assert session.put(keys, data) == 0
    assert session.stats()["blocks_stored"] == 10


def test_an_empty_batch_is_no_error(session: Any) -> None:
    assert session.put([], []) == 0
    assert session.match([]).resident == 0
    assert session.exists([]) == []
    assert session.get_into([], []) == 0
    assert session.remove([]) == 0
    assert session.reserve([]) == []
    assert session.commit([]) == 0
    with session.acquire([]) as held:
        assert len(held) == 0


@both_tiers
def test_blocks_of_two_instances_never_mix(node: Node, attach: Attach) -> None:
    one, other = attach(node, block=SIZE), attach(node, block=SIZE)
    keys, data = some("a", 5)
    one.put(keys, data)
    assert other.match(keys).resident == 0
    other.put(keys, blocks.contents_of(keys, SIZE, salt=1))
    targets = np.zeros((5, SIZE), np.uint8)
    assert one.get_into(keys, targets) == 5
    assert blocks.wrong_blocks(keys, list(targets), SIZE) == []
    one.clear()
    assert other.get_into(keys, targets) == 5
    assert blocks.wrong_blocks(keys, list(targets), SIZE, salt=1) == []


def test_two_sessions_in_one_process_are_independent(shared_node: Node, attach: Attach) -> None:
    one, other = attach(shared_node, "both", block=SIZE), attach(shared_node, "both", block=SIZE)
    assert one.stats()["session"] != other.stats()["session"]
    keys, data = some("a", 3)
    one.put(keys, data)
    with other.acquire(keys) as held:
        one.close()
        assert blocks.wrong_blocks(keys, [b.view() for b in held], SIZE) == []
    with pytest.raises(cenote.Closed):
        one.match(keys)
    assert other.match(keys).resident == 3


def test_threads_share_a_session(session: Any) -> None:
    problems: list[str] = []

    def work(number: int) -> None:
        keys, data = some(f"thread{number}", 40)
        for first in range(0, 40, 8):
            session.put(keys[first : first + 8], data[first : first + 8])
            with session.acquire(keys) as held:
                if len(held) < first + 8:
                    problems.append(f"thread {number}: {len(held)} of {first + 8}")
                if blocks.wrong_blocks(keys[: len(held)], [b.view() for b in held], SIZE):
                    problems.append(f"thread {number}: wrong bytes")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert problems == []


def test_batches_of_many_thousand_keys_are_one_call(shared_node: Node, attach: Attach) -> None:
    session = attach(shared_node, block=512, max_pins=20_000)
    count = 20_000
    keys = np.frombuffer(np.random.default_rng(1).bytes(16 * count), np.uint8).reshape(count, 16)
    data = np.random.default_rng(2).integers(0, 256, (count, 512), np.uint8)
    assert session.put(keys, data) == count
    assert session.match(keys).resident == count
    assert all(session.exists(keys))
    got = np.zeros((count, 512), np.uint8)
    assert session.get_into(keys, got) == count
    assert np.array_equal(got, data)
    with session.acquire(keys) as held:
        assert len(held) == count
        assert all(bytes(held[i].view()) == data[i].tobytes() for i in range(0, count, 997))
    slots = session.reserve(keys[:2000])
    assert slots == [cenote.PRESENT] * 2000
    assert session.remove(keys) == count
    slots = session.reserve(keys[:2000])
    for slot, content in zip(slots, data, strict=False):
        slot.view()[:] = content.data
    assert session.commit(slots) == 2000
    session.put_async(keys, data)
    assert session.flush() == count - 2000
    session.clear()


def test_closing_a_session_ends_the_calls_of_other_threads(shared_node: Node, attach: Attach) -> None:
    session = attach(shared_node, block=SIZE)
    said: list[str] = []

    def work(number: int) -> None:
        try:
            for turn in range(10_000):
                keys, data = some(f"{number}-{turn}", 16)
                session.put(keys, data)
                with session.acquire(keys) as held:
                    said.extend("wrong bytes" for _ in blocks.wrong_blocks(keys, [b.view() for b in held], SIZE))
        except cenote.CenoteError as why:
            said.append(why.code)
        except (ValueError, IndexError):
            said.append("closed")  # between the two calls

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for each in threads:
        each.start()
    until("they are at work", lambda: session.stats()["blocks_stored"] > 500)
    session.close()
    for each in threads:
        each.join(20)
    assert not any(each.is_alive() for each in threads)
    assert said == ["closed"] * 4


# ---- match, exists


def test_match_prefix_ends_at_the_first_hole(session: Any) -> None:
    keys, data = some("a", 20)
    session.put(keys, data)
    session.remove([keys[7]])
    found = session.match(keys, kind="prefix")
    assert found.resident == 7
    assert found.reachable >= 7
    assert session.match(keys[8:]).resident == 12
    assert session.match(blocks.keys_of("other", 0, 4)).resident == 0


def test_match_window_is_the_end_of_the_last_run_that_is_long_enough(session: Any) -> None:
    keys, data = some("a", 20)
    present = [2, 3, 4, 5, 9, 10, 11, 15, 16]
    session.put([keys[i] for i in present], [data[i] for i in present])
    assert session.match(keys, kind="window", window=4).resident == 6
    assert session.match(keys, kind="window", window=3).resident == 12
    assert session.match(keys, kind="window", window=2).resident == 17
    assert session.match(keys, kind="window", window=1).resident == 17
    assert session.match(keys, kind="window", window=5).resident == 0


def test_match_each_and_exists_name_every_key(session: Any) -> None:
    keys, data = some("a", 9)
    session.put(keys[::3], data[::3])
    expected = [i % 3 == 0 for i in range(9)]
    assert session.match(keys, kind="each") == expected
    assert session.exists(keys) == expected


@pytest.mark.parametrize(("kind", "window"), [("suffix", None), ("window", None), ("window", 0), ("window", -1)])
def test_a_kind_of_match_that_does_not_exist_is_refused(session: Any, kind: str, window: int | None) -> None:
    with pytest.raises(cenote.InvalidArgument):
        session.match(blocks.keys_of("a", 0, 2), kind=kind, window=window)


# ---- keys


@pytest.mark.parametrize("width", [8, 9, 16, 31, 32, 47, 48, 49, 63, 64])
def test_keys_have_8_to_64_bytes(session: Any, width: int) -> None:
    keys = blocks.keys_of("wide", 0, 6, width)
    assert session.put(keys, blocks.contents_of(keys, SIZE)) == 6
    assert session.match(keys).resident == 6
    targets = np.zeros((6, SIZE), np.uint8)
    assert session.get_into(keys, targets) == 6
    assert blocks.wrong_blocks(keys, list(targets), SIZE) == []


def test_keys_that_differ_only_in_their_last_byte_are_different(session: Any) -> None:
    stem = blocks.key_of("stem", 0, 63)
    keys = [stem + bytes([last]) for last in range(16)]
    session.put(keys[:8], blocks.contents_of(keys[:8], SIZE))
    assert session.exists(keys) == [True] * 8 + [False] * 8


def test_a_key_and_its_longer_neighbour_are_different(session: Any) -> None:
    short = blocks.key_of("short", 0, 16)
    session.put([short], blocks.contents_of([short], SIZE))
    assert session.exists([short + bytes(1)]) == [False]
    assert session.exists([short[:15]]) == [False]
    assert session.exists([short]) == [True]


def test_keys_may_be_one_array(session: Any) -> None:
    keys, data = some("a", 12)
    matrix = np.frombuffer(b"".join(keys), np.uint8).reshape(12, 32)
    assert session.put(matrix, np.stack(data)) == 12
    assert session.match(keys).resident == 12
    assert session.match(matrix[3:]).resident == 9
    assert session.match(np.asfortranarray(matrix)).resident == 12
    assert session.exists(matrix[::2]) == [True] * 6
    with session.acquire(matrix) as held:
        assert blocks.wrong_blocks(keys, [b.view("kv") for b in held], SIZE) == []
    assert session.remove(matrix[:5]) == 5


@pytest.mark.parametrize("shape", [(32,), (2, 4, 4), ()])
def test_an_array_of_keys_of_another_shape_is_refused(session: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises((cenote.InvalidArgument, TypeError)):
        session.match(np.zeros(shape, np.uint8))


def test_one_byte_string_in_place_of_keys_is_refused(session: Any) -> None:
    with pytest.raises(TypeError):
        session.match(b"0123456789abcdef")


def test_duplicate_keys_in_one_batch_are_stored_once(session: Any) -> None:
    keys, data = some("a", 4)
    doubled = [keys[0], keys[1], keys[0], keys[2], keys[1], keys[3], keys[3]]
    buffers = [data[0], data[1], data[0], data[2], data[1], data[3], data[3]]
    assert session.put(doubled, buffers) == 4
    assert session.match(doubled).resident == 7
    with session.acquire(doubled) as held:
        assert len(held) == 7
        assert blocks.wrong_blocks(doubled, [b.view() for b in held], SIZE) == []
    slots = session.reserve([blocks.key_of("b", 0)] * 3)
    assert isinstance(slots[0], cenote.Block)
    assert slots[1:] == [cenote.PENDING, cenote.PENDING]
    slots[0].view()[:] = blocks.content_of(blocks.key_of("b", 0), SIZE).data
    assert session.commit(slots) == 1
    assert session.remove([keys[0], keys[0]]) == 1


# ---- buffers


@pytest.mark.parametrize(
    "make",
    [
        bytes,
        bytearray,
        lambda b: memoryview(bytes(b)),
        lambda b: array.array("B", bytes(b)),
        lambda b: array.array("Q", bytes(b)),
        lambda b: np.frombuffer(bytes(b), np.float32),
        lambda b: np.frombuffer(bytes(b), np.uint8).reshape(2, 2, -1),
        lambda b: (ctypes.c_char * SIZE).from_buffer_copy(bytes(b)),
    ],
    ids=["bytes", "bytearray", "memoryview", "array-B", "array-Q", "float32", "three-dimensional", "ctypes"],
)
def test_a_source_is_anything_with_a_buffer(session: Any, make: Callable[[Any], Any]) -> None:
    keys, data = some("a", 3)
    assert session.put(keys, [make(each) for each in data]) == 3
    targets = [bytearray(SIZE) for _ in keys]
    assert session.get_into(keys, targets) == 3
    assert blocks.wrong_blocks(keys, targets, SIZE) == []


def test_a_mapped_file_is_source_and_target(session: Any, tmp_path: Path) -> None:
    keys, data = some("a", 4)
    place = tmp_path / "blocks"
    place.write_bytes(b"".join(map(bytes, data)) + bytes(4 * SIZE))
    with place.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        view = memoryview(mapped)
        sources = [view[i * SIZE : (i + 1) * SIZE] for i in range(4)]
        targets = [view[(4 + i) * SIZE : (5 + i) * SIZE] for i in range(4)]
        assert session.put(keys, sources) == 4
        assert session.get_into(keys, targets) == 4
        assert mapped[: 4 * SIZE] == mapped[4 * SIZE :]
        for each in (*sources, *targets, view):
            each.release()


@pytest.mark.parametrize("kind", ["bytes", "memoryview", "array"])
def test_a_read_only_buffer_is_no_target(session: Any, kind: str) -> None:
    keys, data = some("a", 1)
    session.put(keys, data)
    frozen = np.zeros(SIZE, np.uint8)
    frozen.flags.writeable = False
    target = {"bytes": bytes(SIZE), "memoryview": memoryview(bytes(SIZE)), "array": frozen}[kind]
    with pytest.raises(TypeError, match="read-only"):
        session.get_into(keys, [target])
    assert bytes(target) == bytes(SIZE)


@pytest.mark.parametrize("size", [0, 1, SIZE - 1, SIZE + 1, 2 * SIZE])
def test_a_buffer_of_another_size_is_refused_with_both_sizes(session: Any, size: int) -> None:
    keys, data = some("a", 2)
    with pytest.raises(cenote.InvalidArgument, match=rf"{size} bytes.*{SIZE}"):
        session.put(keys, [data[0], bytes(size)])
    assert session.exists(keys) == [False, False], "nothing of a refused batch is stored"
    session.put(keys, data)
    with pytest.raises(cenote.InvalidArgument, match=rf"{size} bytes.*{SIZE}"):
        session.get_into(keys, [bytearray(SIZE), bytearray(size)])


def test_too_few_buffers_are_refused(session: Any) -> None:
    keys, data = some("a", 3)
    with pytest.raises(cenote.InvalidArgument, match="2 buffers for 3 keys"):
        session.put(keys, data[:2])
    with pytest.raises(cenote.InvalidArgument):
        session.put(keys, np.stack(data[:2]))


def test_a_strided_buffer_is_refused(session: Any) -> None:
    keys, _ = some("a", 1)
    with pytest.raises(cenote.InvalidArgument, match="contiguous"):
        session.put(keys, [np.zeros(2 * SIZE, np.uint8)[::2]])


def test_get_into_stops_at_the_first_miss_and_leaves_the_rest_alone(session: Any) -> None:
    keys, data = some("a", 6)
    session.put(keys, data)
    session.remove([keys[4]])
    targets = np.full((6, SIZE), 0xEE, np.uint8)
    assert session.get_into(keys, targets) == 4
    assert blocks.wrong_blocks(keys[:4], list(targets[:4]), SIZE) == []
    assert (targets[4:] == 0xEE).all()


# ---- views


def test_a_view_is_read_only_bytes_of_the_block_itself(session: Any) -> None:
    keys, data = some("a", 3)
    session.put(keys, data)
    with session.acquire(keys) as held:
        assert len(held) == 3
        view = held[1].view("kv")
        assert (view.format, view.readonly, view.nbytes, view.ndim) == ("B", True, SIZE, 1)
        with pytest.raises(TypeError):
            view[0] = 1
        with pytest.raises(TypeError):
            view[:4] = b"1234"
        with pytest.raises(ValueError):
            np.frombuffer(view, np.uint8)[0] = 1
        assert blocks.is_content_of(keys[1], view, SIZE)
        assert [bytes(b.view("kv")[:8]) for b in held] == [bytes(d[:8]) for d in data]
        assert held[-1].view() == data[-1].data
        with pytest.raises(IndexError):
            held[3]


def test_a_view_ends_with_the_pin(session: Any) -> None:
    keys, data = some("a", 2)
    session.put(keys, data)
    with session.acquire(keys) as held:
        view = held[0].view()
    with pytest.raises(ValueError):
        bytes(view)
    with pytest.raises((ValueError, IndexError)):
        held[0].view()
    assert session.stats()["pins_in_use"] == 0


def test_an_array_made_from_a_view_keeps_its_block_pinned(session: Any) -> None:
    keys, data = some("a", 4)
    session.put(keys, data)
    held = session.acquire(keys)
    kept = np.frombuffer(held[2].view(), np.uint8)
    with pytest.raises(BufferError):
        held.release()
    assert session.stats()["pins_in_use"] == 1
    assert session.remove(keys) == 4
    fresh, other = some("b", 400)
    session.put(fresh, other)
    assert np.array_equal(kept, data[2])
    del kept
    gc.collect()
    held.release()
    assert session.stats()["pins_in_use"] == 0


def test_what_is_held_survives_removal_and_is_gone_for_others(shared_node: Node, attach: Attach) -> None:
    one, other = attach(shared_node, "held", block=SIZE), attach(shared_node, "held", block=SIZE)
    keys, data = some("a", 8)
    one.put(keys, data)
    with one.acquire(keys) as held:
        assert other.remove(keys) == 8
        assert one.exists(keys) == [False] * 8
        assert shared_node.instance("held")["zombie"] == 8
        filler, bytes_of = some("filler", 64)
        other.put(filler, bytes_of)
        assert blocks.wrong_blocks(keys, [b.view() for b in held], SIZE) == []
    until("no zombie is left", lambda: shared_node.instance("held")["zombie"] == 0)


def test_a_held_that_nobody_released_is_released_by_the_garbage_collector(session: Any) -> None:
    keys, data = some("a", 3)
    session.put(keys, data)
    held = session.acquire(keys)
    assert session.stats()["pins_in_use"] == 3
    del held
    gc.collect()
    assert session.stats()["pins_in_use"] == 0


def test_more_pins_than_the_share_are_refused_and_nothing_is_held(shared_node: Node, attach: Attach) -> None:
    session = attach(shared_node, block=SIZE, max_pins=16)
    keys, data = some("a", 20)
    session.put(keys, data)
    with pytest.raises(cenote.PinLimit):
        session.acquire(keys)
    assert session.stats()["pins_in_use"] == 0
    with session.acquire(keys[:10]), session.acquire(keys[:6]):
        assert session.stats()["pins_in_use"] == 16
        with pytest.raises(cenote.PinLimit):
            session.acquire(keys[:1])
        assert session.match(keys).resident == 20, "looking needs no pin"
    with session.acquire(keys[:16]) as held:
        assert len(held) == 16


# ---- put_async


def test_put_async_is_visible_after_flush(shared_node: Node, attach: Attach) -> None:
    session, other = attach(shared_node, "async", block=SIZE), attach(shared_node, "async", block=SIZE)
    keys, data = some("a", 300)
    buffer = np.empty((20, SIZE), np.uint8)
    for first in range(0, 300, 20):
        buffer[:] = data[first : first + 20]
        session.put_async(keys[first : first + 20], buffer)
        buffer[:] = 0xFF  # it may be reused at once
    assert session.flush() == 300
    assert other.match(keys).resident == 300
    targets = np.zeros((300, SIZE), np.uint8)
    assert other.get_into(keys, targets) == 300
    assert blocks.wrong_blocks(keys, list(targets), SIZE) == []
    assert session.flush() == 0


# ---- reserve and commit


def test_a_reserved_block_is_filled_in_place_and_visible_after_commit(shared_node: Node, attach: Attach) -> None:
    session, other = attach(shared_node, "zero-copy", block=SIZE), attach(shared_node, "zero-copy", block=SIZE)
    keys, data = some("a", 5)
    slots = session.reserve(keys)
    assert all(isinstance(slot, cenote.Block) for slot in slots)
    assert other.exists(keys) == [False] * 5
    assert other.reserve(keys) == [cenote.PENDING] * 5
    for slot, content in zip(slots, data, strict=True):
        view = slot.view("kv")
        assert (view.format, view.readonly, view.nbytes) == ("B", False, SIZE)
        view[:] = content.data
    assert session.commit(slots) == 5
    assert session.stats()["reservations"] == 0
    assert other.reserve(keys) == [cenote.PRESENT] * 5
    targets = np.zeros((5, SIZE), np.uint8)
    assert other.get_into(keys, targets) == 5
    assert blocks.wrong_blocks(keys, list(targets), SIZE) == []


def test_reserve_tells_present_pending_and_new_keys_apart(shared_node: Node, attach: Attach) -> None:
    one, other = attach(shared_node, "mixed", block=SIZE), attach(shared_node, "mixed", block=SIZE)
    keys, data = some("a", 3)
    one.put(keys[:1], data[:1])
    theirs = other.reserve(keys[1:2])
    slots = one.reserve(keys)
    assert slots[0] is cenote.PRESENT
    assert slots[1] is cenote.PENDING
    slots[2].view()[:] = data[2].data
    assert one.commit(slots) == 1
    other.abandon(theirs)
    assert one.exists(keys) == [True, False, True]


def test_an_abandoned_reservation_frees_the_key(shared_node: Node, attach: Attach) -> None:
    one, other = attach(shared_node, "given-up", block=SIZE), attach(shared_node, "given-up", block=SIZE)
    keys, data = some("a", 2)
    slots = one.reserve(keys)
    one.abandon(slots)
    assert shared_node.instance("given-up")["pending"] == 0
    mine = other.reserve(keys)
    for slot, content in zip(mine, data, strict=True):
        slot.view()[:] = content.data
    assert other.commit(mine) == 2
    with pytest.raises(cenote.NotReserved):
        one.commit(slots)


def test_a_second_commit_is_refused(session: Any) -> None:
    keys, data = some("a", 1)
    slots = session.reserve(keys)
    slots[0].view()[:] = data[0].data
    assert session.commit(slots) == 1
    session.remove(keys)
    session.put(keys, data)  # perhaps into the same block
    with pytest.raises(cenote.NotReserved):
        session.commit(slots)
    assert session.match(keys).resident == 1


def test_a_commit_of_a_foreign_block_is_refused(shared_node: Node, attach: Attach) -> None:
    owner, thief = attach(shared_node, "foreign", block=SIZE), attach(shared_node, "foreign", block=SIZE)
    keys, data = some("a", 2)
    slots = owner.reserve(keys)
    with pytest.raises(cenote.NotReserved):
        thief.commit(slots)
    assert thief.exists(keys) == [False, False]
    for slot, content in zip(slots, data, strict=True):
        slot.view()[:] = content.data
    assert owner.commit(slots) == 2
    stranger = attach(shared_node, "another", block=SIZE)
    with pytest.raises(cenote.NotReserved):
        stranger.commit(owner.reserve(blocks.keys_of("b", 0, 1)))


def test_a_put_of_a_key_that_somebody_reserved_wins(shared_node: Node, attach: Attach) -> None:
    slow, fast = attach(shared_node, "race", block=SIZE), attach(shared_node, "race", block=SIZE)
    keys, data = some("a", 1)
    slots = slow.reserve(keys)
    slots[0].view()[:] = bytes(SIZE)
    assert fast.put(keys, data) == 1
    with pytest.raises((cenote.Revoked, cenote.NotReserved)):
        slow.commit(slots)
    targets = np.zeros((1, SIZE), np.uint8)
    assert slow.get_into(keys, targets) == 1
    assert blocks.wrong_blocks(keys, list(targets), SIZE) == []


# ---- groups and parts

PARTS = {"k": 4096, "v": 8192, "tail": 100}


def test_a_block_is_complete_when_all_its_parts_are(shared_node: Node, attach: Attach) -> None:
    groups = {"full": {"parts": PARTS}}
    ranks = [attach(shared_node, "ranks", groups=groups) for _ in range(3)]
    keys = blocks.keys_of("a", 0, 4)
    whole = blocks.contents_of(keys, sum(PARTS.values()))
    offset = 0
    for rank, (name, size) in zip(ranks, PARTS.items(), strict=True):
        assert ranks[0].exists(keys) == [False] * 4
        assert rank.put(keys, [w[offset : offset + size] for w in whole], part=name) == 4
        offset += size
    assert ranks[0].exists(keys) == [True] * 4
    got = np.zeros((4, offset), np.uint8)
    assert ranks[1].get_into(keys, got) == 4
    assert blocks.wrong_blocks(keys, list(got), offset) == []
    with ranks[2].acquire(keys) as held:
        assert bytes(held[3].view("v")) == bytes(whole[3][4096 : 4096 + 8192])
        assert bytes(held[3].view("tail")) == bytes(whole[3][-100:])
    middle = np.zeros((4, 8192), np.uint8)
    assert ranks[2].get_into(keys, middle, part="v") == 4
    assert all(np.array_equal(m, w[4096:12288]) for m, w in zip(middle, whole, strict=True))


def test_ranks_reserve_their_parts_of_the_same_block(shared_node: Node, attach: Attach) -> None:
    groups = {"full": {"parts": {"r0": 4096, "r1": 4096}}}
    first, second = (attach(shared_node, "tp", groups=groups) for _ in range(2))
    keys = blocks.keys_of("a", 0, 2)
    whole = blocks.contents_of(keys, 8192)
    mine, theirs = first.reserve(keys, part="r0"), second.reserve(keys, part="r1")
    assert first.reserve(keys, part="r1") == [cenote.PENDING, cenote.PENDING]
    for slots, name, piece in ((mine, "r0", slice(0, 4096)), (theirs, "r1", slice(4096, 8192))):
        for slot, content in zip(slots, whole, strict=True):
            slot.view(name)[:] = content[piece].data
    with pytest.raises(cenote.InvalidArgument):
        mine[0].view("r1")
    assert first.commit(mine) == 0
    assert second.exists(keys) == [False, False]
    assert second.commit(theirs) == 2
    with first.acquire(keys) as held:
        assert blocks.wrong_blocks(keys, [b.view() for b in held], 8192) == []


def test_groups_are_cached_independently(shared_node: Node, attach: Attach) -> None:
    groups = {"full": {"parts": {"kv": 8192}}, "window": {"parts": {"kv": 4096}}, "state": {"parts": {"s": 12288}}}
    session = attach(shared_node, "hybrid", groups=groups)
    sizes = {"full": 8192, "window": 4096, "state": 12288}
    keys = blocks.keys_of("a", 0, 6)
    for salt, (name, size) in enumerate(sizes.items()):
        assert session.put(keys[: 6 - salt], blocks.contents_of(keys[: 6 - salt], size, salt), group=name) == 6 - salt
    assert [session.match(keys, group=g).resident for g in sizes] == [6, 5, 4]
    session.remove(keys[:2], group="window")
    assert session.match(keys, kind="window", window=2, group="window").resident == 5
    assert session.match(keys, group="full").resident == 6
    for salt, (name, size) in enumerate(sizes.items()):
        with session.acquire(keys[2:4], group=name) as held:
            assert blocks.wrong_blocks(keys[2:4], [b.view() for b in held], size, salt) == []
    with pytest.raises(cenote.InvalidArgument, match="say which"):
        session.match(keys)
    with pytest.raises(cenote.InvalidArgument, match="nothere"):
        session.match(keys, group="nothere")
    with pytest.raises(cenote.InvalidArgument, match="nopart"):
        session.put(keys, [bytes(8192)] * 6, part="nopart", group="full")
    session.clear()
    assert [session.match(keys, group=g).resident for g in sizes] == [0, 0, 0]


def test_parts_alone_make_one_group_called_default(shared_node: Node) -> None:
    spec = cenote.InstanceSpec(
        id="plain",
        model="m",
        dtype="bf16",
        layout="page_first",
        tokens_per_block=16,
        hash_scheme="h",
        parts={"kv": 4096},
    )
    with cenote.attach(spec, socket=str(shared_node.socket)) as session:
        keys = blocks.keys_of("a", 0, 2)
        assert session.put(keys, blocks.contents_of(keys, 4096), group="default") == 2
        assert session.match(keys).resident == 2


def test_a_block_size_that_is_no_multiple_of_a_page_works(shared_node: Node, attach: Attach) -> None:
    for size in (1, 100, 4095, 4097, 10_000):
        session = attach(shared_node, block=size)
        keys = blocks.keys_of("odd", 0, 5)
        assert session.put(keys, blocks.contents_of(keys, size)) == 5
        with session.acquire(keys) as held:
            assert blocks.wrong_blocks(keys, [b.view() for b in held], size) == []


# ---- forgetting, counters, the end


def test_remove_forgets_keys_and_counts_those_that_were_there(session: Any) -> None:
    keys, data = some("a", 10)
    session.put(keys, data)
    assert session.remove(keys[5:] + blocks.keys_of("never", 0, 3)) == 5
    assert session.exists(keys) == [True] * 5 + [False] * 5
    assert session.put(keys, data) == 5


def test_clear_is_done_when_it_returns(shared_node: Node, attach: Attach) -> None:
    one, other = attach(shared_node, "cleared", block=SIZE), attach(shared_node, "cleared", block=SIZE)
    keys, data = some("a", 500)
    one.put(keys, data)
    pending = other.reserve(blocks.keys_of("b", 0, 3))
    one.clear()
    assert not any(other.exists(keys))
    assert shared_node.instance("cleared")["blocks"] == 0
    with pytest.raises((cenote.Revoked, cenote.NotReserved)):
        other.commit(pending)
    assert one.put(keys, data) == 500


def test_stats_count_what_this_session_did(session: Any) -> None:
    keys, data = some("a", 10)
    session.put(keys[:8], data[:8])
    session.match(keys)
    session.get_into(keys[:5], np.zeros((5, SIZE), np.uint8))
    with session.acquire(keys[:3]):
        now = session.stats()
    assert now["blocks_stored"] == 8
    assert now["bytes_copied_in"] >= 8 * SIZE
    assert now["blocks_copied_out"] == 5
    assert now["bytes_copied_out"] == 5 * SIZE
    assert now["blocks_pinned"] == 3
    assert now["pins_in_use"] == 3
    assert now["pin_slots"] == 8192
    assert now["reattaches"] == 0


def test_a_closed_session_refuses_every_call(shared_node: Node, attach: Attach) -> None:
    session = attach(shared_node, "closing", block=SIZE)
    keys, data = some("a", 2)
    session.put(keys, data)
    held = session.acquire(keys)
    number = session.stats()["session"]
    session.close()
    session.close()
    for call in (
        lambda: session.match(keys),
        lambda: session.put(keys, data),
        lambda: session.acquire(keys),
        lambda: session.reserve(keys),
        session.flush,
        session.clear,
        session.stats,
    ):
        with pytest.raises(cenote.Closed):
            call()
    held.release()
    until("the node forgets it", lambda: number not in [s["id"] for s in shared_node.status()["sessions"]])
    with attach(shared_node, "closing", block=SIZE) as again:
        assert again.match(keys).resident == 2


def test_a_closed_session_gives_back_its_reservations(shared_node: Node, attach: Attach) -> None:
    session = attach(shared_node, "leaving", block=SIZE)
    session.reserve(blocks.keys_of("a", 0, 7))
    assert shared_node.instance("leaving")["pending"] == 7
    session.close()

    def held() -> int:
        # An empty instance without sessions may go at once: the others of this file are many.
        found = [each for each in shared_node.status()["instances"] if each["id"] == "leaving"]
        return sum(int(each["pending"]) + int(each["quarantined"]) for each in found)

    until("nothing is held", lambda: held() == 0)


def test_a_full_tier_evicts_the_blocks_that_were_used_longest_ago(shared_node: Node, attach: Attach) -> None:
    # 256 MiB in all; these are 320 MiB.
    session = attach(shared_node, "evicting", block=MiB)
    keys = blocks.keys_of("a", 0, 320)
    for first in range(0, 320, 32):
        batch = keys[first : first + 32]
        assert session.put(batch, blocks.contents_of(batch, MiB)) == 32
    present = session.exists(keys)
    assert not any(present[:32])
    assert all(present[-64:])
    assert shared_node.counter("evicted") > 0
    target = np.zeros((64, MiB), np.uint8)
    assert session.get_into(keys[-64:], target) == 64
    assert blocks.wrong_blocks(keys[-64:], list(target), MiB) == []
    session.clear()


def test_cenote_socket_names_the_node(shared_node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    from conftest import make_spec

    monkeypatch.setenv("CENOTE_SOCKET", str(shared_node.socket))
    with cenote.attach(make_spec("by-environment")) as s:
        assert s.match(blocks.keys_of("a", 0, 1)).resident == 0
    monkeypatch.delenv("CENOTE_SOCKET")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(shared_node.folder.parent))
    shared_node.folder.with_name("cenote").symlink_to(shared_node.folder)
    with cenote.attach(make_spec("by-environment")) as s:
        assert s.match(blocks.keys_of("a", 0, 1)).resident == 0


def test_a_session_that_is_let_go_is_gone_at_once_without_the_collector(node: Node, attach: Attach) -> None:
    attach(node, "other").close()  # whatever the first session of a process sets up
    keys = blocks.keys_of("a", 0, 20)
    gc.collect()
    gc.disable()
    try:
        before = set(os.listdir("/proc/self/fd"))
        session = cenote.attach(make_spec("i"), socket=str(node.socket))
        session.put(keys, blocks.contents_of(keys, 4096))
        held = session.acquire(keys)
        view = held[0].view()
        assert len(os.listdir("/proc/self/fd")) > len(before)
        del session
        assert blocks.is_content_of(keys[0], view, 4096)  # mapped as long as somebody holds it
        held.release()
        del held, view
        assert set(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()
