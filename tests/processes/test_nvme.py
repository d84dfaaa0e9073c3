"""The NVMe tier: what leaves DRAM is there again, after every death, and damage is a miss."""

from __future__ import annotations

import ctypes
import random
import re
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import numpy as np
import pytest
from conftest import StartNode
from node import FULL, LIMIT, KiB, MiB, Node, run_cenote, until

Attach = Callable[..., Any]
BLOCK = 256 * KiB


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def start(start_node: StartNode, store: Path) -> StartNode:
    """A node of 32 MiB of DRAM over 256 MiB of disk, which brings up whatever is asked for."""

    def start(*sets: str, capacity: str = "32MiB", **more: Any) -> Node:
        tier = (f"nvme.paths=[{store}]", "nvme.capacity=256MiB")
        patient = ("prefetch.threshold_tokens=0", "prefetch.policy=wait_complete")
        return start_node(*tier, *patient, *sets, capacity=capacity, **more)

    return start


def filled(session: Any, label: str, count: int, block: int = BLOCK, pace: Node | None = None) -> list[bytes]:
    """`pace`: no faster than this node's disk, so that nothing is dropped."""
    keys = blocks.keys_of(label, 0, count)
    for first in range(0, count, 8):
        batch = keys[first : first + 8]
        session.put(batch, blocks.contents_of(batch, block))
        if pace is not None:
            settled(pace)
    return keys


def nvme(node: Node) -> dict[str, Any]:
    return dict(node.status()["nvme"])


def settled(node: Node) -> None:
    """Nothing is on its way down any more."""
    until(
        "all writes ended", lambda: node.status()["dram"]["writing_bytes"] == 0 and nvme(node)["bytes_in_flight"] == 0
    )


def serving(node: Node) -> None:
    until("the paths serve", lambda: all(path["state"] == "serving" for path in nvme(node)["paths"]))


def brought_up(session: Any, keys: list[bytes], block: int = BLOCK) -> int:
    """How many of the keys, taken as a chain from each of its holes on, come up; all of them with the right bytes."""
    found = 0
    at = 0
    while at < len(keys):
        ticket = session.prefetch(keys[at : at + 32], "wait_complete")
        length = ticket.wait(LIMIT)
        assert ticket.done
        with ticket.held() as held:
            assert blocks.wrong_blocks(keys[at : at + length], [each.view() for each in held], block) == []
        ticket.release()
        found += length
        at += length + (1 if length < 32 else 0)
    return found


# ---- down and up


@pytest.mark.sanitizer
def test_what_leaves_dram_is_reachable_and_comes_up_again(start: StartNode, attach: Attach) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 400, pace=node)
    assert node.counter("demotions_dropped") == 0
    assert session.match(keys).resident == 0
    assert session.match(keys).reachable == 400
    assert session.match(keys[300:], kind="window", window=50).reachable == 100
    assert session.get_into(keys, np.zeros((400, BLOCK), np.uint8)) == 0, "only what is resident is copied"
    assert brought_up(session, keys) == 400
    assert node.counter("promoted") >= 280
    assert node.counter("demotions_dropped") == 0, "a load waits for what is about to be written"
    status = nvme(node)
    assert status["counters"]["checksum_errors"] == status["counters"]["io_errors"] == 0
    assert status["used"] <= status["capacity"]


def may_lock_memory() -> bool:
    capabilities = re.search(r"^CapEff:\s*(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    ipc_lock = capabilities is not None and int(capabilities[1], 16) >> 14 & 1 == 1
    return ipc_lock or resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY


def test_the_ring_knows_the_slabs_there_are_and_none_that_went(start: StartNode, attach: Attach) -> None:
    node = start()
    expected = nvme(node)["paths"][0]["engine"] == "io_uring" and may_lock_memory()

    def registered() -> bool:
        dram, (path,) = node.status()["dram"], nvme(node)["paths"]
        return bool(path["registered_bytes"] == (dram["assigned"] if expected else 0))

    filled(attach(node, "i", block=BLOCK), "a", 200, pace=node)
    until("the slabs are registered", registered)
    other = attach(node, "other", block=64 * KiB)  # its slabs come from the first instance's
    keys = filled(other, "b", 300, block=64 * KiB, pace=node)
    assert node.counter("slabs_moved") > 0
    until("those that came are, and those that went are not", registered)
    assert brought_up(other, keys, 64 * KiB) == 300
    node.restart_worker()
    serving(node)
    until("the next worker registers what it found", registered)


def test_a_block_that_its_writer_changed_after_the_put_is_not_served_again(start: StartNode, attach: Attach) -> None:
    """The client takes the checksum while it copies: what became of the bytes since does not pass."""
    node = start("nvme.ingest=evicted")
    session = attach(node, "i", block=BLOCK)
    victim, sound = filled(session, "v", 2)
    with session.acquire([victim]) as held:
        ctypes.memset(np.frombuffer(held[0].view(), np.uint8).ctypes.data, 0x5A, 64)
    filled(session, "a", 400, pace=node)
    assert session.match([victim]).resident == 0
    assert brought_up(session, [victim, sound]) == 1
    assert session.match([sound]).resident == 1
    assert nvme(node)["counters"]["checksum_errors"] == 1
    assert session.match([victim]).reachable == 0, "that copy is forgotten"


def test_a_prefetch_says_how_far_it_came(start: StartNode, attach: Attach) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 200, pace=node)
    nowhere = blocks.keys_of("nowhere", 0, 5)
    ticket = session.prefetch([*keys[:10], *nowhere, *keys[10:20]])
    assert ticket.wait(LIMIT) == 10
    assert (ticket.done, ticket.length) == (True, 10)
    with ticket.held() as held:
        assert len(held) == 10
        assert session.stats()["pins_in_use"] == 10
    ticket.release()
    assert session.stats()["pins_in_use"] == 0
    assert session.prefetch(nowhere).wait(LIMIT) == 0
    assert session.prefetch([]).wait(LIMIT) == 0
    array = np.frombuffer(b"".join(keys[20:60]), np.uint8).reshape(40, 32)
    assert session.prefetch(array).wait(LIMIT) == 40
    assert session.prefetch(keys[20:60]).wait(LIMIT) == 40, "they are here already"


def test_a_prefetch_without_the_tier_ends_at_once(node: Node, attach: Attach) -> None:
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 10)
    ticket = session.prefetch([*keys, *blocks.keys_of("b", 0, 10)])
    assert ticket.wait(LIMIT) == 10
    ticket.release()


def test_two_sessions_want_the_same_chain(start: StartNode, attach: Attach) -> None:
    node = start()
    sessions = [attach(node, "i", block=BLOCK) for _ in range(2)]
    keys = filled(sessions[0], "a", 300, pace=node)
    tickets = [each.prefetch(keys[:64]) for each in sessions]
    assert [each.wait(LIMIT) for each in tickets] == [64, 64]
    assert node.counter("promoted") == 64, "a block comes up once"
    for each in tickets:
        each.release()


@pytest.mark.parametrize("ingest", ["all", "hot"])
def test_ingest_decides_what_is_written(start: StartNode, attach: Attach, ingest: str) -> None:
    node = start(f"nvme.ingest={ingest}", "nvme.hot_accesses=2", "nvme.write_ahead=0")
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 40)
    target = np.zeros((10, BLOCK), np.uint8)
    for _ in range(2):
        session.get_into(keys[:10], target)
        session.barrier()
    wanted = 40 if ingest == "all" else 10
    until("they are written", lambda: nvme(node)["counters"]["written"] == wanted)
    assert session.match(keys).resident == 40


def test_second_sight_writes_what_comes_twice(start: StartNode, attach: Attach) -> None:
    node = start("nvme.admission=second_sight")
    session = attach(node, "i", block=BLOCK)
    filled(session, "a", 200, pace=node)
    once = nvme(node)["counters"]
    assert once["written"] == 0
    assert once["unadmitted"] > 0
    filled(session, "a", 200, pace=node)
    assert nvme(node)["counters"]["written"] > 0


def test_without_keep_copy_a_block_is_in_one_tier(start: StartNode, attach: Attach) -> None:
    node = start("nvme.keep_copy=false")
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 200, pace=node)
    before = nvme(node)["blocks"]
    ticket = session.prefetch(keys[:8])
    assert ticket.wait(LIMIT) == 8
    assert node.counter("promoted") == 8
    assert nvme(node)["counters"]["read"] == 8
    assert nvme(node)["blocks"] <= before
    ticket.release()


# ---- forgetting


@pytest.mark.sanitizer
@pytest.mark.parametrize("how", ["remove", "clear", "command"])
def test_what_was_forgotten_stays_so_after_a_kill(start: StartNode, attach: Attach, how: str) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 200)
    if how == "remove":
        session.remove(keys)
    elif how == "clear":
        session.clear()
    else:
        assert run_cenote("clear", "--all", "--socket", node.socket).returncode == 0
    assert session.match(keys) == cenote.Match(0, 0)
    node.restart_worker()
    serving(node)
    assert session.match(keys) == cenote.Match(0, 0)
    assert session.prefetch(keys).wait(LIMIT) == 0
    other = filled(session, "b", 200, pace=node)
    assert brought_up(session, other) == 200


# ---- starts


@pytest.mark.sanitizer
def test_a_node_that_starts_again_finds_its_blocks(start: StartNode, attach: Attach, folder: Path) -> None:
    node = start("nvme.ingest=all")
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 300, pace=node)
    session.close()
    assert node.stop() == 0
    node = start("nvme.ingest=all", folder=folder)
    session = attach(node, "i", block=BLOCK)
    assert session.match(keys).resident == 0
    there = nvme(node)["counters"]["loaded"]
    assert there == 300
    assert brought_up(session, keys) == there
    other = attach(node, "j", block=BLOCK)
    assert other.match(keys).reachable == 0, "another instance has other blocks"


def test_another_node_s_path_is_refused_by_name(start: StartNode, start_node: StartNode, store: Path) -> None:
    node = start()
    second = start_node(f"nvme.paths=[{store}]", "nvme.capacity=256MiB", launch_only=True)
    assert second.wait() == 2
    text = second.log_text()
    assert str(node.worker_pid) in text, text
    assert str(node.socket) in text, text
    second.announced_deaths = 1
    second.allowed_errors = [".*"]
    second.late_refusal = "is in use by the node"


def test_a_disk_that_is_too_small_is_refused_with_numbers(start_node: StartNode, store: Path) -> None:
    node = start_node(f"nvme.paths=[{store}]", "nvme.capacity=900TiB", launch_only=True)
    assert node.wait() == 2
    assert re.search(r"nvme.capacity: .*\d+ bytes needed, \d+ available", node.log_text()), node.log_text()


def test_a_path_whose_disk_is_not_mounted_is_refused_where_a_mount_is_required(
    start_node: StartNode, store: Path
) -> None:
    if store.parent.stat().st_dev != Path("/").stat().st_dev:
        pytest.skip("temporary files have a file system of their own here")
    sets = ("nvme.capacity=64MiB", "nvme.require_mount=true")
    node = start_node(f"nvme.paths=[{store}]", *sets, launch_only=True)
    assert node.wait() == 2
    assert f"{store} lies on the root file system, and nvme.require_mount wants another one" in node.log_text()
    assert not store.exists()


def test_files_are_the_node_s_alone_and_never_grow_beyond_the_capacity(
    start: StartNode, attach: Attach, store: Path
) -> None:
    node = start("nvme.capacity=64MiB", "nvme.ingest=all")
    session = attach(node, "i", block=16 * KiB)
    for turn in range(4):
        filled(session, f"a{turn}", 4000, 16 * KiB)
        files = [path for path in store.rglob("*") if path.is_file()]

        def are_private(names: list[Path] = files) -> bool:
            return all(path.stat().st_mode & 0o777 == 0o600 for path in names if path.exists())

        until("all are the node's alone, those that are just being made, too", are_private)
        assert sum(path.stat().st_blocks * 512 for path in files if path.exists()) <= 64 * MiB
    settled(node)
    assert nvme(node)["counters"]["evicted"] > 0


# ---- deaths


@pytest.mark.sanitizer
def test_workers_killed_in_the_middle_of_transfers_never_bring_a_wrong_byte(start: StartNode, attach: Attach) -> None:
    kills = 50 if FULL else 6
    node = start("nvme.ingest=all")
    session = attach(node, "i", block=BLOCK)
    dice = random.Random(11)
    keys = blocks.keys_of("a", 0, 300)
    for turn in range(kills):
        some = sorted(dice.sample(range(300), 60))
        batch = [keys[i] for i in some]
        ticket = session.prefetch(batch)
        session.put_async(batch[:30], blocks.contents_of(batch[:30], BLOCK))
        time.sleep(dice.random() * 0.03)  # where it dies is left to chance
        node.restart_worker()
        ticket.wait(LIMIT)
        ticket.release()
        session.flush()
        serving(node)
        filled(session, f"b{turn}", 100)
        brought_up(session, batch)
    settled(node)
    assert brought_up(session, keys) > 100
    assert nvme(node)["counters"]["io_errors"] == 0
    state = node.instance("i")
    assert (state["zombie"], state["pending"]) == (0, 0)
    assert node.blocks()["loading"] == 0


def test_reads_of_a_killed_worker_hit_no_block_of_the_next(start: StartNode, attach: Attach) -> None:
    """64 reads of 2 MiB are under way when it dies, and whoever comes first fills the memory again."""
    kills = 50 if FULL else 5
    block = 2 * MiB
    node = start("nvme.capacity=1GiB", "nvme.ingest=all", capacity="160MiB")
    session = attach(node, "i", block=block)
    keys = filled(session, "a", 140, block, pace=node)
    assert session.match(keys).reachable == 140
    for turn in range(kills):
        first = 70 * (turn % 2)
        push = filled(session, f"push{turn}", 80, block)  # nothing of `keys` is in DRAM
        assert session.match(keys[first : first + 64]).resident == 0
        ticket = session.prefetch(keys[first : first + 64])
        node.worker_dies(signal.SIGKILL)
        new = blocks.keys_of(f"new{turn}", 0, 70)
        contents = blocks.contents_of(new, block)
        for at in range(0, 70, 7):
            session.put(new[at : at + 7], contents[at : at + 7])
        serving(node)
        there = [key for key, present in zip(new, session.exists(new), strict=True) if present]
        assert there
        for key in there:
            with session.acquire([key]) as held:
                if len(held):
                    assert blocks.is_content_of(key, held[0].view(), block), "an old read hit a new block"
        ticket.release()
        session.remove([*push, *new])
        assert session.prefetch(keys[:4]).wait(LIMIT) == 4
    assert node.blocks()["loading"] == 0


@pytest.mark.sanitizer
def test_a_keeper_killed_in_the_middle_of_writes_leaves_a_sound_store(
    start: StartNode, attach: Attach, folder: Path
) -> None:
    kills = 50 if FULL else 3
    keys = blocks.keys_of("a", 0, 200)
    for _turn in range(kills):
        node = start("nvme.ingest=all", folder=folder)
        session = attach(node, "i", block=BLOCK)
        brought_up(session, keys)
        filled(session, "a", 200)
        node.announced_deaths = 0
        node.send_signal(signal.SIGKILL)
        node.wait()
        session.close()
    node = start(folder=folder)
    session = attach(node, "i", block=BLOCK)
    assert brought_up(session, keys) > 50


# ---- damage


def flip(path: Path, dice: random.Random, share: float, first: int = 0) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        for _ in range(max(1, int(size * share))):
            at = dice.randrange(first, size)
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1 << dice.randrange(8)]))


@pytest.mark.parametrize("what", ["data", "metadata", "truncated", "no metadata", "no data"])
def test_a_damaged_store_loses_blocks_and_serves_none_wrong(
    start: StartNode, attach: Attach, folder: Path, store: Path, what: str
) -> None:
    node = start("nvme.ingest=all")
    node.allowed_errors = ["set aside"]
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 200, pace=node)
    session.close()
    node.stop()
    dice = random.Random(3)
    if what == "data":
        flip(store / "data", dice, 2e-6, MiB)
    elif what == "metadata":
        for file in (store / "metadata").glob("*"):
            if file.suffix in (".sst", ".log"):
                flip(file, dice, 0.001)
    elif what == "truncated":
        with (store / "data").open("r+b") as file:
            file.truncate(20 * MiB)
    elif what == "no metadata":
        shutil.rmtree(store / "metadata")
    else:
        (store / "data").unlink()
    node = start("nvme.ingest=all", folder=folder)
    node.allowed_errors = ["set aside"]
    session = attach(node, "i", block=BLOCK)
    found = brought_up(session, keys)
    counters = nvme(node)["counters"]
    print(f"{what}: {found} of 200 blocks came up, {counters}")
    if what in ("data", "truncated"):
        assert 0 < found < 200
        assert counters["checksum_errors"] + counters["refused_at_load"] > 0
    if what in ("no metadata", "no data"):
        assert found == 0
    other = filled(session, "b", 100, pace=node)
    assert brought_up(session, other) == 100


def test_a_store_of_another_version_is_refused_and_left_alone(
    start: StartNode, start_node: StartNode, attach: Attach, store: Path
) -> None:
    node = start()
    filled(attach(node, "i", block=BLOCK), "a", 100)
    node.stop()
    with (store / "data").open("r+b") as file:
        before = bytearray(file.read(MiB))
        before[8:12] = (99).to_bytes(4, "little")
        file.seek(0)
        file.write(before)
    node = start_node(f"nvme.paths=[{store}]", "nvme.capacity=256MiB", launch_only=True)
    assert node.wait() == 2
    assert "has format version 99" in node.log_text(), node.log_text()
    with (store / "data").open("rb") as file:
        assert file.read(MiB) == before


def test_files_that_vanish_while_the_node_runs_harm_nobody(start: StartNode, attach: Attach, store: Path) -> None:
    node = start()
    node.allowed_errors = ["metadata not written"]
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 200, pace=node)
    shutil.rmtree(store)
    assert brought_up(session, keys) == 200, "open files live on"
    filled(session, "b", 200)
    assert session.match(keys[:1]).reachable == 1


# ---- the end in order


LOST = "blocks are lost with this node's memory"


@pytest.mark.sanitizer
@pytest.mark.parametrize("admission", ["always", "second_sight"])
def test_what_dram_alone_had_is_found_behind_an_orderly_stop(start: StartNode, attach: Attach, admission: str) -> None:
    node = start(f"nvme.admission={admission}")
    keys = filled(attach(node, "i", block=BLOCK), "a", 60)
    assert nvme(node)["blocks"] == 0
    assert node.stop() == 0
    (line,) = node.logged("blocks were written down before the end")
    assert line["written"] == 60
    assert node.logged(LOST) == []
    node.start()
    session = attach(node, "i", block=BLOCK)
    found = session.match(keys)
    assert (found.resident, found.reachable) == (0, 60)
    assert brought_up(session, keys) == 60
    assert node.stop() == 0
    assert node.logged("blocks were written down before the end", since_start=True) == [], "the disk has all of them"


def test_a_node_that_may_not_write_at_its_end_counts_what_is_lost(start: StartNode, attach: Attach) -> None:
    node = start("node.flush_timeout=0s")
    keys = filled(attach(node, "i", block=BLOCK), "a", 50)
    assert node.stop() == 0
    (line,) = node.logged(LOST)
    assert (line["blocks"], line["bytes"], line["written"]) == (50, 50 * BLOCK, 0)
    node.start()
    assert attach(node, "i", block=BLOCK).match(keys).reachable == 0


def test_what_was_removed_before_an_orderly_stop_stays_removed(start: StartNode, attach: Attach) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 60)
    session.remove(keys[40:])
    assert node.stop() == 0
    node.start()
    session = attach(node, "i", block=BLOCK)
    assert session.match(keys).reachable == 40
    assert session.match(keys[40:]).reachable == 0
    assert brought_up(session, keys) == 40


def test_an_upgrade_writes_nothing_down(start: StartNode, attach: Attach) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 50)
    epoch = node.status()["node"]["epoch"]
    node.send_signal(signal.SIGUSR2)
    until("it is upgraded", lambda: node.status()["node"]["epoch"] > epoch)
    assert nvme(node)["counters"]["written"] == 0
    assert session.match(keys).resident == 50
