"""What goes next, on a real node: policies that change, kept prompts, priorities, time to live."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import pytest
from conftest import StartNode
from node import KiB, MiB, Node, until

Attach = Callable[..., Any]
BLOCK = 64 * KiB


def put(session: Any, label: str, count: int) -> list[bytes]:
    keys = blocks.keys_of(label, 0, count)
    blocks.put(session, keys, BLOCK, batch=32)
    return keys


def resident(session: Any, keys: list[bytes]) -> int:
    return int(session.match(keys).resident)


def reload(node: Node) -> None:
    before = len(node.logged("configuration reloaded"))
    node.send_signal(signal.SIGHUP)
    until("it is reloaded", lambda: len(node.logged("configuration reloaded")) > before)


@pytest.mark.sanitizer
def test_a_policy_changes_while_the_node_runs_and_keeps_what_is_cached(
    tmp_path: Path, start_node: StartNode, attach: Attach
) -> None:
    file = tmp_path / "cenote.toml"
    file.write_text('[dram]\npolicy = "lru"\n')
    node = start_node(config=file)
    session = attach(node, "i", block=BLOCK)
    keys = put(session, "a", 100)
    for policy in ("s3fifo", "tblru", "arc", "lru"):
        file.write_text(f'[dram]\npolicy = "{policy}"\n')
        reload(node)
        until("the policy is in force", lambda policy=policy: node.status()["dram"]["policy"] == policy)
        assert resident(session, keys) == 100, policy
    put(session, "b", 2_000)
    assert resident(session, keys) == 0


def test_under_auto_the_latest_prompts_stay_whole_though_each_came_once_and_in_several_puts(
    start_node: StartNode, attach: Attach
) -> None:
    node = start_node("dram.policy=auto")
    session = attach(node, "i", block=BLOCK)
    prompts = []
    for number in range(20):
        session.match(blocks.keys_of(f"prompt {number}", 0, 128))
        prompts.append(put(session, f"prompt {number}", 128))
    assert [resident(session, each) for each in prompts[-4:]] == [128] * 4
    assert resident(session, prompts[0]) == 0


def test_an_unknown_policy_is_refused_with_the_known_ones(start_node: StartNode) -> None:
    with pytest.raises(AssertionError, match="one of fifo, lru, lfu"):
        start_node("dram.policy=belady")


@pytest.mark.sanitizer
def test_a_kept_prompt_outlives_load_a_worker_and_its_session(start_node: StartNode, attach: Attach) -> None:
    node = start_node()
    session = attach(node, "i", block=BLOCK)
    prompt = put(session, "prompt", 20)
    assert session.keep(prompt) == 20
    put(session, "a", 2_000)
    assert resident(session, prompt) == 20
    node.restart_worker()
    session.close()
    other = attach(node, "i", block=BLOCK)
    put(other, "b", 2_000)
    assert resident(other, prompt) == 20
    assert other.let_go(prompt) == 20
    put(other, "c", 2_000)
    assert resident(other, prompt) == 0


@pytest.mark.sanitizer
def test_kept_blocks_have_a_quota_and_the_refusal_says_which(start_node: StartNode, attach: Attach) -> None:
    node = start_node("groups.i.keep_quota=1MiB")
    session = attach(node, "i", block=BLOCK)
    keys = put(session, "a", 40)
    with pytest.raises(cenote.LimitExceeded, match="keep_quota"):
        session.keep(keys)
    put(session, "b", 2_000)
    assert resident(session, keys) == 16, "as many as the quota has room for"


def test_the_configuration_keeps_a_prompt_by_its_keys(tmp_path: Path, start_node: StartNode, attach: Attach) -> None:
    prompt = blocks.keys_of("prompt", 0, 4)
    file = tmp_path / "cenote.toml"
    policy = '[dram]\npolicy = "lru"\n'
    file.write_text(policy + f"[groups.i]\nkeep = {[key.hex() for key in prompt]}\n")
    node = start_node(config=file)
    session = attach(node, "i", block=BLOCK)
    assert put(session, "prompt", 4) == prompt
    put(session, "a", 2_000)
    assert resident(session, prompt) == 4
    file.write_text(policy)
    reload(node)
    put(session, "b", 2_000)
    assert resident(session, prompt) == 0


def test_a_key_that_is_no_hex_is_refused_by_name(start_node: StartNode) -> None:
    with pytest.raises(AssertionError, match=r"groups.i.keep.*no key in hex"):
        start_node('groups.i.keep=["nonsense"]')


@pytest.mark.sanitizer
def test_a_high_class_keeps_its_blocks_while_a_low_one_floods_the_node(start_node: StartNode, attach: Attach) -> None:
    node = start_node("groups.first.priority=high", "groups.rest.priority=low")
    first = attach(node, "a", block=BLOCK, instance_group="first")
    rest = attach(node, "b", block=BLOCK, instance_group="rest")
    keys = put(first, "a", 100)
    put(rest, "b", 3_000)
    assert resident(first, keys) == 100


@pytest.mark.sanitizer
def test_blocks_expire_in_dram_and_on_nvme(tmp_path: Path, start_node: StartNode, attach: Attach) -> None:
    node = start_node(
        f'nvme.paths=["{tmp_path / "store"}"]',
        "nvme.capacity=256MiB",
        "nvme.ingest=all",
        "groups.short.ttl=1s",
    )
    short = attach(node, "short", block=BLOCK)
    lasting = attach(node, "lasting", block=BLOCK)
    until("the path serves", lambda: node.status()["nvme"]["paths"][0]["state"] == "serving")
    gone = put(short, "a", 50)
    kept = put(lasting, "b", 50)
    until("all is forgotten in DRAM", lambda: resident(short, gone) == 0)
    until("… and on NVMe", lambda: short.match(gone).reachable == 0)
    assert resident(lasting, kept) == 50


def test_an_engine_that_repeats_itself_never_loses_a_parent_before_its_child(
    start_node: StartNode, attach: Attach
) -> None:
    node = start_node("dram.capacity=16MiB", "dram.high_water=1", "dram.low_water=1")
    session = attach(node, "i", block=BLOCK)
    chain = blocks.keys_of("chain", 0, 60)
    session.put(chain, blocks.contents_of(chain, BLOCK))
    for first in range(0, 300, 10):
        put(session, f"other {first}", 10)
        here = session.exists(chain)
        assert list(here) == sorted(here, reverse=True), "a child is here without its parent"


def test_grants_outside_the_capacity_leave_it_to_what_is_cached(start_node: StartNode, attach: Attach) -> None:
    node = start_node("dram.capacity=16MiB", "dram.high_water=1", "dram.low_water=1", "dram.grants_in_capacity=false")
    session = attach(node, "i", block=BLOCK)
    put(session, "a", 1_000)
    until("the last commit is counted", lambda: node.blocks()["present"] == 16 * MiB // BLOCK)
