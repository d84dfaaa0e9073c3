"""The tier of device memory above DRAM, with real processes. Faults are those of the simulated device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import numpy as np
import pytest
from conftest import StartAgent, StartNode
from node import LIMIT, Node, run_cenote, until
from tier import DEVICE

Attach = Callable[..., Any]
BLOCK = 64 << 10
SIM = "sim:0"


def gpu(*sets: str, devices: str = f'["{DEVICE}"]', capacity: str = "16MiB") -> tuple[str, ...]:
    return (f"gpu.devices={devices}", f"gpu.capacity={capacity}", *sets)


def part_of_status(node: Node, device: str = DEVICE) -> dict[str, Any]:
    found = [each for each in node.status()["gpu"]["devices"] if each["device"] == device]
    assert len(found) == 1
    return dict(found[0])


def until_ready(node: Node, device: str = DEVICE) -> Node:
    until("the device's tier is ready", lambda: part_of_status(node, device)["state"] == "ready")
    return node


def read(session: Any, keys: list[bytes], size: int = BLOCK) -> int:
    """How many blocks of the prefix it has; every byte is looked at."""
    targets = [np.empty(size, np.uint8) for _ in keys]
    found = int(session.get_into(keys, targets))
    assert blocks.wrong_blocks(keys[:found], targets[:found], size) == []
    return found


def put(session: Any, keys: list[bytes], size: int = BLOCK) -> None:
    assert session.put(keys, blocks.contents_of(keys, size)) == len(keys)


def bring_up(session: Any, keys: list[bytes]) -> int:
    coming = session.prefetch(keys, "wait_complete")
    found = int(coming.wait(LIMIT))
    coming.release()
    return found


def until_in_dram(session: Any, keys: list[bytes]) -> None:
    until("all is in DRAM", lambda: all(session.exists(keys)))


@pytest.mark.on_device
@pytest.mark.sanitizer
def test_blocks_of_a_device_are_served_there_and_are_written_to_dram(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu())
    device, host = attach(node, "i", block=BLOCK, device=DEVICE), attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 32)
    put(device, keys)
    assert read(device, keys) == 32
    until_in_dram(host, keys)
    assert read(host, keys) == 32
    part = part_of_status(node)
    assert part["state"] == "ready" and part["blocks"] == 32 and part["commits"] == 32


@pytest.mark.on_device
def test_many_batches_of_a_read_are_right_however_fast_the_device_is(start_node: StartNode, attach: Attach) -> None:
    size = 1 << 20
    node = start_node(*gpu(capacity="128MiB"), capacity="256MiB")
    device = attach(node, "i", block=size, device=DEVICE)
    keys = blocks.keys_of("a", 0, 64)  # sixteen times what goes through one stage
    put(device, keys, size)
    for _ in range(10):
        assert read(device, keys, size) == 64


@pytest.mark.on_device
@pytest.mark.sanitizer
def test_blocks_of_dram_come_up_to_a_device(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu())
    device, host = attach(node, "i", block=BLOCK, device=DEVICE), attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 32)
    put(host, keys)
    assert device.match(keys).resident == 0
    assert device.locate(keys, timeout=LIMIT).reachable == 32
    assert bring_up(device, keys) == 32
    assert read(device, keys) == 32
    assert part_of_status(node)["promoted"] == 32


@pytest.mark.on_device
def test_blocks_come_up_from_the_disk_through_dram(start_node: StartNode, attach: Attach, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    node = start_node(*gpu(), f'nvme.paths=["{store}"]', "nvme.capacity=256MiB", "nvme.ingest=all", capacity="8MiB")
    device, host = attach(node, "i", block=BLOCK, device=DEVICE), attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 200)  # more than DRAM holds
    for first in range(0, 200, 20):
        put(host, keys[first : first + 20])
        until("it is on the disk", lambda: node.status()["dram"]["writing_bytes"] == 0)
    assert not all(host.exists(keys[:20]))
    assert bring_up(device, keys[:20]) == 20
    assert read(device, keys[:20]) == 20


@pytest.mark.on_device
def test_what_does_not_fit_leaves_the_device_and_comes_back(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu(capacity="4MiB"))
    device = attach(node, "i", block=BLOCK, device=DEVICE)
    host = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 128)
    for first in range(0, 128, 16):
        put(device, keys[first : first + 16])
        until_in_dram(host, keys[first : first + 16])
    part = part_of_status(node)
    assert part["evicted"] > 0 and part["assigned"] <= 4 << 20 and part["demotions_dropped"] == 0
    assert bring_up(device, keys[:16]) == 16
    assert read(device, keys[:16]) == 16


@pytest.mark.on_device
@pytest.mark.parametrize("ingest", ["evicted", "hot", "none"])
def test_what_dram_is_written_is_as_configured(start_node: StartNode, attach: Attach, ingest: str) -> None:
    node = start_node(*gpu(f"gpu.ingest={ingest}", "gpu.policy=lru", capacity="4MiB"))
    device, host = attach(node, "i", block=BLOCK, device=DEVICE), attach(node, "i", block=BLOCK)
    first = blocks.keys_of("a", 0, 8)
    put(device, first)
    assert not any(host.exists(first))
    if ingest == "hot":
        for _ in range(3):
            assert read(device, first) == 8
        device.barrier()
        until_in_dram(host, first)
    if ingest == "evicted":
        for number in range(1, 12):
            put(device, blocks.keys_of("a", 8 * number, 8))
            until("it settles", lambda: part_of_status(node)["writing_bytes"] == 0)
        until_in_dram(host, first)
    if ingest == "none":
        for number in range(1, 12):
            put(device, blocks.keys_of("a", 8 * number, 8))
        assert part_of_status(node)["evicted"] > 0
        assert not any(host.exists(first))


@pytest.mark.sanitizer
def test_two_ranks_have_a_part_each_and_dram_has_the_block_when_both_are_there(
    start_node: StartNode, attach: Attach
) -> None:
    node = start_node(*gpu(devices='["sim:0","sim:1"]'))
    groups = {"default": {"parts": {"tp0": BLOCK, "tp1": BLOCK}}}
    ranks = [attach(node, "i", groups=groups, device=f"sim:{rank}", part=rank) for rank in range(2)]
    host = attach(node, "i", groups=groups)
    keys = blocks.keys_of("a", 0, 8)
    whole = blocks.contents_of(keys, 2 * BLOCK)
    assert ranks[0].put(keys, [each[:BLOCK] for each in whole]) == 8
    until("it was sent", lambda: part_of_status(node, SIM)["writing_bytes"] == 0)
    assert not any(host.exists(keys))
    assert ranks[1].put(keys, [each[BLOCK:] for each in whole]) == 8
    until_in_dram(host, keys)
    assert read(host, keys, 2 * BLOCK) == 8
    for rank, session in enumerate(ranks):
        targets = [np.empty(BLOCK, np.uint8) for _ in keys]
        assert session.get_into(keys, targets) == 8
        assert all(
            np.array_equal(have, want[rank * BLOCK : (rank + 1) * BLOCK])
            for have, want in zip(targets, whole, strict=True)
        )
    ranks[0].clear()
    assert not any(host.exists(keys)) and not any(ranks[1].exists(keys))


def test_a_part_from_before_a_removal_is_never_joined_with_later_ones(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu(devices='["sim:0","sim:1"]'))
    groups = {"default": {"parts": {"tp0": BLOCK, "tp1": BLOCK}}}
    ranks = [attach(node, "i", groups=groups, device=f"sim:{rank}", part=rank) for rank in range(2)]
    host = attach(node, "i", groups=groups)
    keys = blocks.keys_of("a", 0, 8)
    old, new = blocks.contents_of(keys, 2 * BLOCK, salt=1), blocks.contents_of(keys, 2 * BLOCK)
    assert ranks[0].put(keys, [each[:BLOCK] for each in old]) == 8
    until("its parts are in DRAM", lambda: part_of_status(node, SIM)["counters"]["written"] == 8)
    host.remove(keys)
    assert not any(ranks[0].exists(keys))
    assert ranks[1].put(keys, [each[BLOCK:] for each in new]) == 8
    until("the others are, too", lambda: part_of_status(node, "sim:1")["counters"]["written"] == 8)
    assert not any(host.exists(keys))
    assert ranks[0].put(keys, [each[:BLOCK] for each in new]) == 8
    until_in_dram(host, keys)
    assert read(host, keys, 2 * BLOCK) == 8


@pytest.mark.on_device
@pytest.mark.sanitizer
@pytest.mark.parametrize("where", ["device", "host"])
@pytest.mark.parametrize("how", ["remove", "clear"])
def test_what_is_removed_on_one_side_is_gone_on_the_other(
    start_node: StartNode, attach: Attach, where: str, how: str
) -> None:
    node = start_node(*gpu())
    device, host = attach(node, "i", block=BLOCK, device=DEVICE), attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 16)
    put(device, keys)
    until_in_dram(host, keys)
    one = device if where == "device" else host
    if how == "clear":
        one.clear()
    else:
        assert one.remove(keys) == 16
    assert not any(device.exists(keys)) and not any(host.exists(keys))
    assert bring_up(device, keys) == 0


@pytest.mark.on_device
def test_a_removal_right_behind_a_put_leaves_nothing(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu())
    device, host = attach(node, "i", block=BLOCK, device=DEVICE), attach(node, "i", block=BLOCK)
    for round_ in range(30):
        keys = blocks.keys_of("a", 8 * round_, 8)
        put(device, keys)
        assert (device if round_ % 2 else host).remove(keys) <= 8
        if round_ % 2 == 0:  # what DRAM did not have yet is not its to remove
            device.remove(keys)
        assert not any(device.exists(keys)), round_
        until("all has ended", lambda: part_of_status(node)["writing_bytes"] == 0)
        assert not any(host.exists(keys)), round_


@pytest.mark.on_device
def test_an_operator_clears_both(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu())
    device, host = attach(node, "i", block=BLOCK, device=DEVICE), attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 16)
    put(device, keys)
    until_in_dram(host, keys)
    done = run_cenote("clear", "--instance", "i", "--socket", node.socket)
    assert done.returncode == 0, done.stderr
    assert not any(device.exists(keys)) and not any(host.exists(keys))
    unknown = run_cenote("clear", "--instance", "nobody", "--socket", node.socket)
    assert unknown.returncode != 0 and "no instance" in unknown.stderr


@pytest.mark.on_device
@pytest.mark.sanitizer
def test_blocks_of_a_device_outlive_workers(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu("gpu.ingest=none"))
    device = attach(node, "i", block=BLOCK, device=DEVICE)
    keys = blocks.keys_of("a", 0, 64)
    put(device, keys)
    for _ in range(3):
        node.restart_worker()
        assert read(device, keys) == 64
        until_ready(node)
        put(device, [blocks.key_of(f"after {node.epoch}", 0)])
        assert read(device, keys) == 64
        again = attach(node, "i", block=BLOCK, device=DEVICE)
        assert read(again, keys) == 64


@pytest.mark.on_device
def test_a_worker_dies_with_writes_and_loads_under_way(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu(capacity="32MiB"))
    device, host = attach(node, "i", block=BLOCK, device=DEVICE), attach(node, "i", block=BLOCK)
    for round_ in range(6):
        keys = blocks.keys_of(f"r{round_}", 0, 40)
        put(host, keys)
        coming = device.prefetch(keys, "wait_complete")
        put(device, blocks.keys_of(f"w{round_}", 0, 40))
        node.restart_worker()
        coming.cancel()
        until_ready(node)
        for earlier in range(round_ + 1):
            for label in ("r", "w"):
                some = blocks.keys_of(f"{label}{earlier}", 0, 40)
                read(device, some)
                read(host, some)


@pytest.mark.on_device
def test_a_client_that_dies_leaves_the_device_usable(
    start_node: StartNode, attach: Attach, start_agent: StartAgent
) -> None:
    node = start_node(*gpu("gpu.quarantine=1s", "gpu.ingest=none", capacity="8MiB"))
    node.device = DEVICE
    session = attach(node, "i", block=BLOCK)
    agent = start_agent(node)  # not a fork: a driver does not bear one
    agent.call("attach", instance="i", block=BLOCK)
    agent.call("put", label="a", count=16)
    agent.call("pin", label="a", count=16)
    agent.call("reserve", label="b", count=8)
    agent.kill()
    until("its session is over", lambda: node.session_of(agent.process.pid) is None)
    for number in range(20):
        put(session, blocks.keys_of("c", 8 * number, 8))
    assert part_of_status(node)["evicted"] > 0


def test_a_failed_device_is_away_and_its_engines_use_dram(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu(devices='["sim:0,fail=3"]'))
    node.allowed_errors.append("a device failed")
    device, host = attach(node, "i", block=BLOCK, device=SIM), attach(node, "i", block=BLOCK)
    for number in range(6):  # its third copy down fails
        keys = blocks.keys_of("a", number, 1)
        try:
            put(device, keys)
        except cenote.CenoteError:
            break

        def ended(sent: list[bytes] = keys) -> bool:
            return part_of_status(node, SIM)["state"] == "away" or any(host.exists(sent))

        until("it was sent", ended)
    until("the tier is away", lambda: part_of_status(node, SIM)["state"] == "away")
    with pytest.raises(cenote.CenoteError, match="device"):
        put(device, blocks.keys_of("b", 0, 1))
    with pytest.raises(cenote.Closed, match="away"):
        attach(node, "i", block=BLOCK, device=SIM)
    keys = blocks.keys_of("c", 0, 16)
    put(host, keys)
    assert read(host, keys) == 16
    assert host.remove(keys) == 16


def test_a_lost_completion_is_noticed(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu(devices='["sim:0,lose=1"]'))
    node.allowed_errors.append("a device failed")
    device, host = attach(node, "i", block=BLOCK, device=SIM), attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 8)
    put(device, keys[:1])
    until("the tier is away", lambda: part_of_status(node, SIM)["state"] == "away")
    put(host, keys)  # also the one whose copy never ends, in other memory
    assert read(host, keys) == 8


def test_a_driver_that_does_not_return_stops_nobody_else(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu(devices='["sim:0,hang=1"]'))
    node.allowed_errors.append("a device failed")
    worker = node.worker_pid
    device, host = attach(node, "i", block=BLOCK, device=SIM), attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 16)
    put(device, keys[:8])
    until("the copy is begun", lambda: part_of_status(node, SIM)["under_way"] > 0)
    put(host, keys[8:])
    assert read(host, keys[8:]) == 8
    assert read(device, keys[:8]) == 8
    until("the tier is away", lambda: part_of_status(node, SIM)["state"] == "away")
    put(host, keys[:8])  # whose copies never end, in other memory
    assert read(host, keys) == 16
    assert host.remove(keys) == 16
    assert node.worker_pid == worker


@pytest.mark.on_device
def test_what_dram_lost_is_written_again_before_it_leaves_the_device(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu(capacity="4MiB"), capacity="8MiB")
    device, host = attach(node, "i", block=BLOCK, device=DEVICE), attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 16)
    put(device, keys)
    until_in_dram(host, keys)
    for first in range(0, 160, 16):  # more than DRAM holds
        put(host, blocks.keys_of("b", first, 16))
    assert not any(host.exists(keys))
    for first in range(0, 64, 8):
        put(device, blocks.keys_of("c", first, 8))
        until("it settles", lambda: part_of_status(node)["writing_bytes"] == 0)
    assert device.match(keys).resident == 0
    assert all(host.exists(keys))
    assert part_of_status(node)["demotions_dropped"] == 0


def test_a_capacity_above_the_devices_memory_costs_puts_and_no_more(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu(devices='["sim:0,mib=6"]', capacity="64MiB"))
    node.allowed_errors.append("no memory for a slab")
    device = attach(node, "i", block=BLOCK, device=SIM)
    stored = 0
    for number in range(40):
        try:
            put(device, blocks.keys_of("a", 8 * number, 8))
            stored += 8
        except cenote.CenoteError as why:
            assert why.code == "no_space"
    assert stored >= 64
    assert part_of_status(node, SIM)["assigned"] <= 6 << 20
    read(device, blocks.keys_of("a", 0, 8))


def test_a_device_that_there_is_not_leaves_the_node_serving(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu(devices='["GPU-1"]'))
    node.allowed_errors.append("a device's tier is not opened")
    until("it is away", lambda: part_of_status(node, "cuda:GPU-1")["state"] == "away")
    assert "driver" in part_of_status(node, "cuda:GPU-1")["why"]
    host = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 4)
    put(host, keys)
    assert host.remove(keys) == 4


def test_what_cannot_be_is_refused_by_name(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu())
    with pytest.raises(cenote.Unsupported, match="no blocks on sim:7; it has on sim:0"):
        attach(node, "i", block=BLOCK, device="sim:7")
    with pytest.raises(cenote.InvalidArgument, match="there is no part 3"):
        attach(node, "i", groups={"default": {"parts": {"a": BLOCK, "b": BLOCK}}}, device=SIM, part=3)
    with pytest.raises(cenote.InvalidArgument, match="is no device"):
        attach(node, "i", block=BLOCK, device="gpu7")
    attach(node, "i", block=BLOCK)
    with pytest.raises(cenote.SpecMismatch):
        attach(node, "i", block=2 * BLOCK, device=SIM)
    plain = start_node()
    with pytest.raises(cenote.Unsupported, match=r"gpu\.devices"):
        attach(plain, "i", block=BLOCK, device=SIM)


@pytest.mark.on_device
def test_two_nodes_have_pools_of_their_own_on_one_device(start_node: StartNode, attach: Attach) -> None:
    nodes = [start_node(*gpu()), start_node(*gpu())]
    keys = blocks.keys_of("a", 0, 8)
    sessions = [attach(each, "i", block=BLOCK, device=DEVICE) for each in nodes]
    put(sessions[0], keys)
    assert sessions[1].match(keys).resident == 0
    put(sessions[1], keys)
    sessions[1].remove(keys)
    assert read(sessions[0], keys) == 8


@pytest.mark.on_device
def test_instances_do_not_see_each_other(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*gpu())
    one, two = attach(node, "one", block=BLOCK, device=DEVICE), attach(node, "two", block=BLOCK, device=DEVICE)
    keys = blocks.keys_of("a", 0, 8)
    put(one, keys)
    assert not any(two.exists(keys)) and bring_up(two, keys) == 0
    two.clear()
    assert read(one, keys) == 8
