"""Who pays: hard quotas of instance groups, and capacity that moves between instances."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import numpy as np
import pytest
from conftest import StartAgent, StartNode, pin_all
from node import UNREACHED, KiB, MiB, Node, until
from tier import both_tiers, seen

Attach = Callable[..., Any]


def fill(session: Any, label: str, count: int, size: int, batch: int = 32) -> None:
    blocks.put(session, blocks.keys_of(label, 0, count), size, batch)


@both_tiers
@pytest.mark.sanitizer
def test_a_quota_is_hard_and_evicts_only_its_own_group(start_node: StartNode, attach: Attach) -> None:
    node = start_node("groups.small.quota=8MiB")
    neighbour = attach(node, "neighbour", block=64 * KiB)
    fill(neighbour, "n", 200, 64 * KiB)
    one = attach(node, "one", block=64 * KiB, instance_group="small")
    two = attach(node, "two", block=16 * KiB, instance_group="small")
    for turn in range(20):
        keys = blocks.keys_of("a", turn * 32, 32)
        one.put(keys, blocks.contents_of(keys, 64 * KiB))
        assert node.group_used("small") <= 8 * MiB
        keys = blocks.keys_of("b", turn * 32, 32)
        two.put(keys, blocks.contents_of(keys, 16 * KiB))
        assert node.group_used("small") <= 8 * MiB
    assert neighbour.match(blocks.keys_of("n", 0, 200)).resident == 200
    last = blocks.keys_of("b", 19 * 32, 32)
    target = np.zeros((32, 16 * KiB), np.uint8)
    assert two.get_into(last, target) == 32
    assert blocks.wrong_blocks(last, list(target), 16 * KiB) == []


@both_tiers
@pytest.mark.sanitizer
def test_an_instance_that_names_no_group_is_its_own(start_node: StartNode, attach: Attach) -> None:
    node = start_node("groups.solo.quota=4MiB")
    session = attach(node, "solo", block=64 * KiB)
    fill(session, "a", 200, 64 * KiB)
    assert 0 < node.group_used("solo") <= 4 * MiB
    assert node.instance("solo")["group"] == "solo"


@both_tiers
@pytest.mark.sanitizer
def test_a_quota_full_of_pins_says_no_space_at_once_and_others_go_on(start_node: StartNode, attach: Attach) -> None:
    node = start_node("groups.g.quota=4MiB")
    session = attach(node, "i", block=64 * KiB, instance_group="g", deadline=UNREACHED)
    other = attach(node, "other", block=64 * KiB)
    held = pin_all(session, blocks.keys_of("a", 0, 200), 64 * KiB)
    assert len(held) == 64
    with pytest.raises(cenote.NoSpace):
        session.put(blocks.keys_of("b", 0, 4), blocks.contents_of(blocks.keys_of("b", 0, 4), 64 * KiB))
    assert node.group_used("g") <= 4 * MiB
    fill(other, "o", 100, 64 * KiB)
    assert other.match(blocks.keys_of("o", 0, 100)).resident == 100
    for each in held:
        each.release()
    assert session.put(blocks.keys_of("b", 0, 4), blocks.contents_of(blocks.keys_of("b", 0, 4), 64 * KiB)) == 4


@both_tiers
@pytest.mark.sanitizer
def test_a_block_larger_than_the_quota_is_refused_at_once(start_node: StartNode, attach: Attach) -> None:
    node = start_node("groups.g.quota=64KiB")
    session = attach(node, "i", block=128 * KiB, instance_group="g", deadline=UNREACHED)
    with pytest.raises(cenote.NoSpace) as why:
        session.put([bytes(16)], [bytes(128 * KiB)])
    assert why.value.stored == 0


@both_tiers
@pytest.mark.sanitizer
def test_quotas_change_while_the_node_runs(tmp_path: Path, start_node: StartNode, attach: Attach) -> None:
    file = tmp_path / "cenote.toml"

    def quota(size: str | None) -> None:
        file.write_text(f'[groups.g]\nquota = "{size or 0}"\n')

    def reload() -> None:
        before = len(node.logged("configuration reloaded"))
        node.send_signal(signal.SIGHUP)
        until("it is reloaded", lambda: len(node.logged("configuration reloaded")) > before)

    quota("32MiB")
    node = start_node(config=file)
    session = attach(node, "i", block=64 * KiB, instance_group="g")
    fill(session, "a", 600, 64 * KiB)
    assert 28 * MiB < node.group_used("g") <= 32 * MiB
    quota("8MiB")
    reload()
    until("the group shrinks without a put", lambda: node.group_used("g") <= 8 * MiB)
    assert session.match(blocks.keys_of("a", 560, 40)).resident == 40, "the newest stay"
    fill(session, "b", 200, 64 * KiB)
    assert node.group_used("g") <= 8 * MiB
    quota("16MiB")
    reload()
    fill(session, "c", 400, 64 * KiB)
    assert 12 * MiB < node.group_used("g") <= 16 * MiB
    quota(None)
    reload()
    fill(session, "d", 1200, 64 * KiB)
    assert node.group_used("g") > 48 * MiB


@both_tiers
@pytest.mark.sanitizer
def test_a_second_instance_takes_most_of_a_full_tier_while_the_first_reads(
    start_node: StartNode, start_agent: StartAgent, attach: Attach
) -> None:
    node = start_node(capacity="128MiB")
    first = start_agent(node)
    first.call("attach", instance="first", block=64 * KiB)
    first.call("put", label="a", count=2000)
    used = node.tier()["used"]
    assert used > 0.9 * 128 * MiB
    reader = start_agent(node)
    reader.call("attach", instance="first", block=64 * KiB)
    # The newest hundred are read all the time and stay; all the rest may go.
    hot = blocks.keys_of("a", 1900, 100)
    session = attach(node, "first", block=64 * KiB)
    second = attach(node, "second", block=48 * KiB)
    reader.call("start_reader", label="a", first=1900, count=100)  # what is read all the time would stay, rightly
    begin = time.monotonic()
    count = 0
    while node.instance("second")["blocks"] * 48 * KiB < 0.8 * 128 * MiB:
        with session.acquire(hot) as held:
            assert blocks.wrong_blocks(hot[: len(held)], seen(session, held), 64 * KiB) == []
            keys = blocks.keys_of("b", count, 128)
            assert second.put(keys, blocks.contents_of(keys, 48 * KiB)) == 128
        count += 128
        assert count < 3 * 128 * MiB // (48 * KiB), node.status()
    print(f"80 % moved in {time.monotonic() - begin:.2f} s, {count} puts")
    (report,) = reader.call("stop_readers")
    assert report["wrong"] == []
    assert report["errors"] == []
    assert report["rounds"] > 0
    if node.device is None:  # the status counts DRAM's alone
        assert node.counter("slabs_moved") > 0
    status = node.tier()
    assert status["assigned"] <= status["capacity"]
    newest = blocks.keys_of("b", count - 1000, 1000)
    with second.acquire(newest) as held:
        assert len(held) == 1000
        assert blocks.wrong_blocks(newest, seen(second, held), 48 * KiB) == []
    # And back again.
    first.call("put", label="c", count=1500)
    assert first.call("verify", label="c", first=1000, count=500) == {"there": 500, "wrong": 0}


@both_tiers
def test_capacity_moves_while_workers_are_killed(
    start_node: StartNode, start_agent: StartAgent, attach: Attach
) -> None:
    node = start_node("dram.populate=false", capacity="64MiB")
    sizes = {"x": 16 * KiB, "y": 64 * KiB, "z": 36 * KiB}
    agents = {}
    for name, size in sizes.items():
        agents[name] = start_agent(node)
        agents[name].call("attach", instance=name, block=size)
    for turn in range(9 if node.device is None else 3):
        name = "xyz"[turn % 3]
        count = 48 * MiB // sizes[name]
        agents[name].send("put", label=f"t{turn}", count=count, batch=32)
        time.sleep(0.05)
        node.restart_worker()
        agents[name].answer(90)
        seen = agents[name].call("verify", label=f"t{turn}", first=count // 2, count=count // 2)
        assert seen["wrong"] == 0
        # A restart knows the order of last uses to a tenth of a second: a few younger blocks, or a slab of them (a
        # sixth of this half), may have gone first.
        assert seen["there"] >= count // 2 * 0.7
        status = node.tier()
        assert status["assigned"] <= status["capacity"]
        assert status["used"] <= status["capacity"]


@both_tiers
def test_200_instances_of_64_kib_blocks_share_a_node_of_1_gib(start_node: StartNode, attach: Attach) -> None:
    node = start_node(
        "dram.populate=false", "limits.sessions_per_uid=200", "limits.instances_per_uid=200", capacity="1GiB"
    )
    sessions = []
    begin = time.monotonic()
    for number in range(200):
        session = attach(node, f"i{number}", block=64 * KiB)
        sessions.append(session)
        keys = blocks.keys_of(f"k{number}", 0, 16)
        assert session.put(keys, blocks.contents_of(keys, 64 * KiB)) == 16
    print(f"200 instances in {time.monotonic() - begin:.2f} s")
    assert len(node.instances()) == 200
    target = np.zeros((16, 64 * KiB), np.uint8)
    for number, session in enumerate(sessions):
        keys = blocks.keys_of(f"k{number}", 0, 16)
        assert session.get_into(keys, target) == 16, number
        assert blocks.wrong_blocks(keys, list(target), 64 * KiB) == []
    # Each can use more than a two-hundredth when the others are idle.
    fill(sessions[7], "more", 4000, 64 * KiB, batch=64)
    assert sessions[7].match(blocks.keys_of("more", 0, 4000)).resident == 4000
    node.restart_worker()
    assert sessions[7].match(blocks.keys_of("more", 0, 4000)).resident == 4000
    assert sessions[199].put([bytes(16)], [bytes(64 * KiB)]) == 1


@both_tiers
@pytest.mark.sanitizer
def test_used_and_free_add_up_whatever_happens(node: Node, attach: Attach) -> None:
    sessions = [attach(node, f"i{n}", block=(n + 1) * 8 * KiB, instance_group=f"g{n % 2}") for n in range(4)]
    for turn in range(6):
        for number, session in enumerate(sessions):
            fill(session, f"{turn}-{number}", 150, (number + 1) * 8 * KiB)
            session.remove(blocks.keys_of(f"{turn}-{number}", 0, 20))

        def groups_used() -> int:
            return sum(node.group_used(each["name"]) for each in node.status()["groups"])

        # Not of one moment: what is written down may leave meanwhile.
        until("the groups have all that is used", lambda: node.tier()["used"] == groups_used())
        tier = node.tier()
        assert tier["used"] <= tier["assigned"] <= tier["capacity"]
        if node.device is None:
            assert tier["used"] + tier["free"] == tier["capacity"]
        until(
            "instances have all blocks",
            lambda: node.blocks()["present"] == sum(each["blocks"] for each in node.instances()),
        )
        for number in range(4):
            found = node.instance(f"i{number}")
            assert found["index_entries"] == found["blocks"]


# ---- what one tenant can take from the others


@both_tiers
@pytest.mark.sanitizer
def test_groups_that_nobody_configured_share_one_account(start_node: StartNode, attach: Attach) -> None:
    node = start_node()
    victim = attach(node, "victim", block=64 * KiB, instance_group="v")
    fill(victim, "v", 300, 64 * KiB)
    for number in range(12):
        session = attach(node, f"a{number}", block=64 * KiB, instance_group=f"invented{number}")
        fill(session, f"a{number}", 100, 64 * KiB)
        with contextlib.suppress(cenote.LimitExceeded):
            session.keep(blocks.keys_of(f"a{number}", 0, 100))
    status = node.status()
    (group,) = status["groups"]
    assert group["name"] == "default"
    if node.device is None:  # the status tells what is kept in DRAM alone
        assert 0 < group["kept"] <= 64 * MiB // 10
    assert {each["account"] for each in status["instances"]} == {"default"}
    assert "invented3" in {each["group"] for each in status["instances"]}
    keys = blocks.keys_of("w", 0, 300)

    def all_stored() -> bool:  # a put is refused while its place is on its way down
        fill(victim, "w", 300, 64 * KiB)
        return victim.match(keys).resident == 300

    until("the victim has all of its blocks", all_stored)


@both_tiers
def test_one_user_of_the_shared_account_has_bounds_within_it(start_node: StartNode, attach: Attach) -> None:
    node = start_node("limits.user_quota=8MiB", "limits.user_keep_share=0.25", "groups.named.priority=normal")
    session = attach(node, "i", block=64 * KiB)
    fill(session, "a", 200, 64 * KiB)
    with pytest.raises(cenote.LimitExceeded, match=r"limits\.user_keep_share"):
        session.keep(blocks.keys_of("a", 100, 100))
    node.restart_worker()
    (user,) = node.status()["users"]
    assert user["uid"] == os.getuid()
    assert user["account"] == "default"
    assert user["quota"] == 8 * MiB
    assert 7 * MiB < node.group_used("default") <= 8 * MiB
    if node.device is None:  # the status tells what users have in DRAM alone
        assert 7 * MiB < user["used"] <= 8 * MiB
        assert 0 < user["kept"] <= 64 * MiB // 40
    named = attach(node, "n", block=64 * KiB, instance_group="named")
    fill(named, "n", 300, 64 * KiB)
    assert node.group_used("named") > 16 * MiB


@both_tiers
def test_the_default_quota_counts_for_whoever_nobody_configured(start_node: StartNode, attach: Attach) -> None:
    node = start_node("limits.group_quota=8MiB", "groups.paying.priority=normal")
    for number in range(3):
        fill(attach(node, f"a{number}", block=64 * KiB, instance_group=f"g{number}"), "a", 200, 64 * KiB)
    assert node.group_used("default") <= 8 * MiB
    paying = attach(node, "p", block=64 * KiB, instance_group="paying")
    fill(paying, "p", 400, 64 * KiB)
    assert node.group_used("paying") > 20 * MiB


@both_tiers
@pytest.mark.sanitizer
def test_reservations_have_a_share(start_node: StartNode, attach: Attach) -> None:
    node = start_node("session.reserve_timeout=1s")
    victim = attach(node, "victim", block=64 * KiB)
    fill(victim, "v", 300, 64 * KiB)
    greedy = attach(node, "greedy", block=64 * KiB)
    got = 0
    with pytest.raises(cenote.NoSpace):
        for number in range(200):
            greedy.reserve(blocks.keys_of("g", number * 8, 8))
            got += 8
    assert got * 64 * KiB <= 64 * MiB // 4
    assert victim.match(blocks.keys_of("v", 0, 300)).resident == 300
    until("they are set aside", lambda: node.instance("greedy")["pending"] == 0)
    fill(victim, "w", 50, 64 * KiB)
    assert victim.match(blocks.keys_of("w", 0, 50)).resident == 50
    with pytest.raises(cenote.NoSpace):  # what it may still write counts on
        greedy.reserve(blocks.keys_of("h", 0, 16))


@pytest.mark.parametrize("tier", [None, "sim:0"], indirect=True)
def test_a_quota_full_of_blocks_on_their_way_down_is_waited_for(
    start_node: StartNode, attach: Attach, tmp_path: Path, tier: str | None
) -> None:
    below = (f"nvme.paths=[{tmp_path}/store]", "nvme.capacity=256MiB", "nvme.ingest=all") if tier is None else ()
    node = start_node("groups.g.quota=2MiB", *below)
    session = attach(node, "i", block=64 * KiB, instance_group="g")
    for turn in range(100):
        keys = blocks.keys_of("a", 32 * turn, 32)  # as many as the quota allows: those before are being written
        assert session.put(keys, blocks.contents_of(keys, 64 * KiB)) == 32
