"""The end of instances: those that nobody uses are given up, and what they left on NVMe is found again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import pytest
import wire
from conftest import StartNode
from node import KiB, MiB, Node, run_cenote, until
from test_nvme import brought_up, filled, settled, start, store
from tier import both_tiers

__all__ = ["start", "store"]  # fixtures

Attach = Callable[..., Any]
BLOCK = 256 * KiB


def names(node: Node) -> set[str]:
    return {each["id"] for each in node.instances()}


def given_up(node: Node, name: str) -> None:
    until(f"{name} is given up", lambda: name not in names(node))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def address_space(pid: int) -> int:
    """Bytes."""
    (line,) = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmSize")]
    return int(line.split()[1]) * KiB


def come_and_go(node: Node, names_of: list[str]) -> None:
    """A client attaches to each of the instances, stores nothing, and leaves."""
    with wire.Link(node.socket, 20) as link:
        for name in names_of:
            spec = wire.encode_spec(name, {"g": {"kv": 4096}})
            answer = link.ask(wire.ATTACH, wire.encode_attach(spec))
            for fd in answer.fds:
                os.close(fd)
            link.ask(wire.DETACH)


def test_a_node_of_few_descriptors_sees_any_number_of_instances(start_node: StartNode) -> None:
    node = start_node("instances.idle=1s", prefix=("prlimit", "--nofile=512:512")).until_populated()
    worker = node.worker_pid
    before = [(descriptors(pid), address_space(pid)) for pid in (node.pid, worker)]
    for turn in range(8):
        come_and_go(node, [f"i{turn}-{n}" for n in range(75)])
    until("all are given up", lambda: node.status()["instances"] == [])
    assert node.counter("instances_given_up") == 600
    assert node.worker_pid == worker
    for pid, (fds, size) in zip((node.pid, worker), before, strict=True):
        until("the descriptors are back", lambda pid=pid, most=fds + 4: descriptors(pid) <= most)
        assert address_space(pid) < size + 200 * MiB
    session = wire.RawSession.attach(node.socket, "newcomer", {"g": {"kv": 4096}})
    session.close()


def test_five_hundred_instances_take_address_space_for_what_they_hold(start_node: StartNode, attach: Attach) -> None:
    node = start_node("limits.instances_per_uid=1024")
    attach(node, "first", block=4 * KiB)
    before, mine = address_space(node.worker_pid), address_space(os.getpid())
    for n in range(100):
        attach(node, f"i{n}", block=4 * KiB)
    come_and_go(node, [f"e{n}" for n in range(400)])
    each = (address_space(node.worker_pid) - before) / len(names(node))
    of_session = (address_space(os.getpid()) - mine) / 100
    print(
        f"{len(names(node))} instances: {each / KiB:.0f} KiB each in the worker, a session's {of_session / KiB:.0f} KiB"
    )
    assert len(names(node)) > 300
    assert each < 4 * MiB
    assert of_session < 4 * MiB


GROUPS = {"g": {"kv": 4096}}


def held_making(start_node: StartNode, *sets: str) -> Node:
    """A node with the instance `there` whose maker of instances stands still at the next one, until it is replaced."""
    held = ("debug.enabled=true", "debug.kill_at=['instance.created:2:hang']", "node.hang_timeout=0s")
    node = start_node(*held, *sets)
    come_and_go(node, ["there"])
    return node


def ask_for(node: Node, name: str, call: int = 0) -> wire.Link:
    """A link of which the node makes the instance; its answer is not waited for."""
    link = wire.Link(node.socket, 60)
    link.send(wire.ATTACH, wire.encode_attach(wire.encode_spec(name, GROUPS), call=call))
    return link


def test_others_are_served_while_an_instance_is_made(start_node: StartNode) -> None:
    node = held_making(start_node)
    with ask_for(node, "new") as waiting, ask_for(node, "newer") as behind:
        with wire.RawSession.attach(node.socket, "there", GROUPS).link as link:
            link.ask(wire.DETACH)
        assert names(node) == {"there"}
        for each in (waiting, behind):
            answer = each.receive()
            assert answer.type == wire.FAILURE
            assert "is not ready after 5 s" in answer.failure().message
        assert node.status()["sessions"] == []
        come_and_go(node, ["there"])
    node.restart_worker()
    come_and_go(node, ["new", "newer"])


def test_a_client_that_leaves_while_its_instance_is_made_leaves_no_session(start_node: StartNode) -> None:
    node = held_making(start_node)
    ask_for(node, "new").close()
    until("it is given up", lambda: node.logged("an attach was given up"))
    again = ask_for(node, "new", call=7)
    with ask_for(node, "new", call=7) as last:  # the same call: the attempt before it is answered at once
        answer = again.receive()
        assert answer.type == wire.FAILURE and "asked again" in answer.failure().message
        again.close()
        node.restart_worker()
        with pytest.raises(ConnectionError):
            last.receive()
    assert node.status()["sessions"] == []


def test_who_waits_for_an_instance_when_the_node_ends_is_told(start_node: StartNode) -> None:
    node = held_making(start_node, "node.drain_timeout=1s")
    node.allowed_errors = ["the drain took too long"]  # of the thread that stands still
    with ask_for(node, "new") as waiting:
        assert names(node) == {"there"}
        node.send_signal(signal.SIGTERM)
        answer = waiting.receive()
        assert answer.type == wire.FAILURE and "shutting down" in answer.failure().message
    node.wait()


def test_an_idle_instance_goes_and_its_blocks_on_nvme_are_found_again(start: StartNode, attach: Attach) -> None:
    node = start("instances.idle=2s")
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 60, pace=node)
    assert "idle_s" not in node.instance("i")
    session.close()
    status = node.instance("i")
    assert 0 <= status["given_up_in_s"] <= 2
    given_up(node, "i")
    assert node.status()["dram"]["used"] == node.status()["dram"]["assigned"] == 0
    assert node.counter("demotions_dropped") == 0
    again = attach(node, "i", block=BLOCK)
    assert again.match(keys).resident == 0
    assert again.match(keys).reachable == 60
    assert brought_up(again, keys) == 60


def test_what_was_given_up_is_found_after_a_restart_too(start: StartNode, attach: Attach) -> None:
    node = start("instances.idle=1s")
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 40, pace=node)
    session.close()
    given_up(node, "i")
    node.restart_worker()  # it may die before the keeper has forgotten the instance
    until("the next worker gives it up, too", lambda: node.status()["instances"] == [])
    again = attach(node, "i", block=BLOCK)
    until("the hints are there", lambda: again.match(keys).reachable == 40)
    assert brought_up(again, keys) == 40


def test_an_instance_that_went_from_dram_can_be_cleared(start: StartNode, attach: Attach) -> None:
    node = start("instances.idle=1s")
    for name in ("one", "two"):
        session = attach(node, name, block=BLOCK)
        filled(session, name, 20, pace=node)
        session.close()
        given_up(node, name)
    held = node.status()["nvme"]["blocks"]
    assert held == 40
    assert run_cenote("clear", "--instance", "nobody", "--socket", node.socket).returncode != 0
    assert run_cenote("clear", "--instance", "one", "--socket", node.socket).returncode == 0
    assert node.status()["nvme"]["blocks"] == 20
    assert attach(node, "one", block=BLOCK).match(blocks.keys_of("one", 0, 20)).reachable == 0
    assert attach(node, "two", block=BLOCK).match(blocks.keys_of("two", 0, 20)).reachable == 20
    settled(node)
    assert run_cenote("clear", "--all", "--socket", node.socket).returncode == 0
    assert node.status()["nvme"]["blocks"] == 0


def test_clear_all_reaches_what_nobody_attached_to_since_the_start(start: StartNode, attach: Attach) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    filled(session, "a", 20, pace=node)
    session.clear()
    keys = filled(session, "b", 200, pace=node)
    session.close()
    node.stop()
    node.start()
    until("the path serves", lambda: node.status()["nvme"]["paths"][0]["state"] == "serving")
    assert node.status()["nvme"]["blocks"] > 0
    assert run_cenote("clear", "--all", "--socket", node.socket).returncode == 0
    assert node.status()["nvme"]["blocks"] == 0
    assert attach(node, "i", block=BLOCK).match(keys).reachable == 0


def test_an_instance_that_leaves_nothing_on_nvme_is_not_remembered_there(
    start: StartNode, attach: Attach, store: Path
) -> None:
    node = start("instances.idle=1s")
    come_and_go(node, [f"i{n}" for n in range(20)])
    session = attach(node, "kept", block=BLOCK)
    filled(session, "a", 4, pace=node)
    session.close()
    until("all are given up", lambda: node.status()["instances"] == [])
    node.stop()
    found = json.loads(run_cenote("nvme", "inspect", store, "--json").stdout)
    assert [each["id"] for each in found["instances"]] == ["kept"]


@both_tiers
def test_the_time_is_reloaded_and_goes_on_over_a_worker(start_node: StartNode, attach: Attach, tmp_path: Path) -> None:
    file = tmp_path / "cenote.toml"
    file.write_text("[instances]\nidle = '1h'\n")
    node = start_node(config=file)
    session = attach(node, "i")
    session.put([bytes(16)], [bytes(4096)])
    session.close()
    until("it has been idle", lambda: node.instance("i")["idle_s"] >= 1)
    node.restart_worker()
    assert node.instance("i")["idle_s"] >= 1
    file.write_text("[instances]\nidle = '1s'\n")
    node.send_signal(signal.SIGHUP)
    given_up(node, "i")


@both_tiers
def test_who_attaches_again_and_again_is_always_served(start_node: StartNode, attach: Attach) -> None:
    node = start_node("instances.idle=200ms")  # which is less than what an empty one has
    turns = 40 if node.device is None else 10
    for turn in range(turns):
        session = attach(node, "i")
        assert session.put([bytes([turn]) * 16], [bytes([turn]) * 4096]) == 1
        assert session.match([bytes([turn]) * 16]).resident == 1
        session.close()
        if turn % 3 == 0:
            given_up(node, "i")
    if node.device is None:  # whoever attached to a device keeps the instance in DRAM for a while longer
        assert node.counter("instances_given_up") >= 13


@both_tiers
@pytest.mark.parametrize("blocks_of", [0, 30])
def test_a_worker_that_dies_while_it_gives_up_leaves_nothing(
    start_node: StartNode, attach: Attach, blocks_of: int
) -> None:
    node = start_node("instances.idle=300ms")
    for turn in range(6):
        session = attach(node, f"i{turn}")
        filled(session, f"{turn}", blocks_of, 4096)
        session.close()
        node.restart_worker()
    until("all are given up", lambda: node.status()["instances"] == [])
    # A device's slabs go after its instance, once its driver has let go of them.
    until("nothing is used", lambda: node.tier()["used"] == node.status()["dram"]["used"] == 0)
    session = attach(node, "i0")
    assert session.put([bytes(16)], [bytes(4096)]) == 1
