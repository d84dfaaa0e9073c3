"""The end of a node, in order and otherwise, and what a running one takes over on SIGHUP."""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import pytest
from conftest import StartAgent, StartNode, make_spec
from node import LIMIT, UNREACHED, AgentError, KiB, MiB, Node, is_alive, run_cenote, until
from tier import both_tiers

Attach = Callable[..., Any]
BLOCK = 16 * KiB
UNTIL_DRAINED = "node.drain_timeout=10m"  # an end that needs it would end no test


# ---- start


def test_whoever_asks_as_soon_as_the_socket_is_there_is_answered(start_node: StartNode) -> None:
    node = start_node(launch_only=True)
    until("the socket is there", node.socket.exists, pause=0.001)
    assert node.status()["node"]["pid"] == node.pid


def test_a_node_needs_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    node = Node(tmp_path / "cenote")
    node.command = node.command[:2]
    node.start()
    try:
        assert node.status()["dram"]["capacity"] == 1024 * MiB
        with cenote.attach(make_spec("x")) as session:
            assert session.put([bytes(16)], [bytes(4096)]) == 1
    finally:
        assert node.stop() == 0
        node.kill_everything()
    assert not node.socket.exists()


def test_a_runtime_directory_that_cannot_be_made_or_written_is_named_by_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / "cenote.lock").mkdir()
    for place in ("file/run", "locked"):
        ended = run_cenote("node", "--set", f"node.runtime_dir={tmp_path / place}")
        assert ended.returncode != 0
        assert "node.runtime_dir: " in ended.stderr + ended.stdout


def test_a_service_manager_is_told_what_the_node_does(tmp_path: Path, start_node: StartNode) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LIMIT)
        said: list[str] = []

        def hears(what: str) -> None:
            while what not in said:
                said.extend(manager.recv(4096).decode().splitlines())

        node = start_node(environment={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        hears("READY=1")
        assert f"MAINPID={node.pid}" in said
        said.clear()
        node.send_signal(signal.SIGHUP)
        hears("RELOADING=1")
        hears("READY=1")
        said.clear()
        assert node.stop() == 0
        hears("STOPPING=1")


@pytest.mark.full
@pytest.mark.timeout(180)
def test_a_worker_that_can_never_start_is_given_up_with_its_reason(start_node: StartNode) -> None:
    node = start_node(launch_only=True, prefix=("prlimit", "--nofile=10:10"))
    assert node.wait(120) == 4
    died = node.logged("worker died")
    node.announced_deaths = len(died)
    node.allowed_errors = [".*"]
    assert len(died) == 10
    assert "died 10 times before it was ready" in node.log_text()
    assert "too many open files" in node.log_text().splitlines()[-2].lower() + node.log_text().splitlines()[-1].lower()


# ---- SIGTERM


@pytest.mark.sanitizer
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
def test_an_orderly_end_says_0_and_clients_are_told(node: Node, start_agent: StartAgent, number: int) -> None:
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK, deadline=UNREACHED)
    agent.call("put", label="a", count=100)
    agent.call("pin", label="a", count=100)
    node.send_signal(number)
    assert node.wait() == 0
    assert agent.call("verify_pinned") == 0, "what is mapped stays readable"
    with pytest.raises(AgentError) as why:
        agent.call("put", label="b")  # which need not wait for its deadline to hear it
    assert why.value.code in ("not_running", "closed")
    with pytest.raises(AgentError) as why:
        agent.call("attach", instance="i", block=BLOCK, name="again")
    assert why.value.code == "not_running"
    agent.call("unpin")


def test_puts_under_way_end_in_order_when_the_node_drains(node: Node, start_agent: StartAgent) -> None:
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    agent.send("timed", what="put", label="a", count=3000, batch=64)
    until("it is under way", lambda: node.counter("commits") > 100, pause=0.002)
    assert node.stop() == 0
    result = agent.answer()
    assert result["code"] in ("ok", "not_running", "closed"), result


def test_a_node_with_stuck_clients_drains_all_the_same(start_node: StartNode, start_agent: StartAgent) -> None:
    node = start_node(UNTIL_DRAINED)
    agents = [start_agent(node) for _ in range(3)]
    for agent in agents:
        agent.call("attach", instance="i", block=BLOCK)
        agent.call("put", label="a", count=10)
        agent.call("pin", label="a", count=10)
        agent.call("reserve", label=f"r{agent.pid}", count=10)
        agent.pause()
    assert node.stop() == 0


def test_a_second_signal_ends_it_without_a_drain_and_says_130(start_node: StartNode) -> None:
    node = start_node(UNTIL_DRAINED)
    with node.worker_stopped() as worker:  # it cannot drain
        node.send_signal(signal.SIGTERM)
        until("it is draining", lambda: node.logged("stopping"), pause=0.005)
        node.send_signal(signal.SIGTERM)
        assert node.wait() == 130
        until("the worker is dead", lambda: not is_alive(worker))
    assert not node.socket.exists()


@pytest.mark.full  # takes ten seconds, as a keeper gives at least; unit_keeper has it in less
def test_a_worker_that_does_not_drain_is_killed_in_the_end(start_node: StartNode) -> None:
    node = start_node("node.drain_timeout=1s")
    node.allowed_errors = ["killing the worker"]
    with node.worker_stopped():
        node.send_signal(signal.SIGTERM)
        assert node.wait() == 1


def test_sigterm_before_the_worker_is_ready_is_no_accident(start_node: StartNode) -> None:
    for delay in (0.0, 0.01, 0.03):
        node = start_node(launch_only=True)
        until("the keeper has begun", functools.partial(node.logged, "listening"), pause=0.001)
        time.sleep(delay)
        assert node.stop() == 0
        assert not node.socket.exists()


# ---- the keeper's death


@pytest.mark.sanitizer
@both_tiers
def test_a_keeper_that_is_killed_takes_its_worker_along_and_clients_are_told(
    start_node: StartNode, start_agent: StartAgent
) -> None:
    node = start_node()
    node.allowed_errors = ["no memory for a slab"]  # which the worker was making, and asked the keeper to hold
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK, deadline=UNREACHED)
    agent.call("put", label="a", count=100)
    agent.call("pin", label="a", count=100)
    worker = node.worker_pid
    node.send_signal(signal.SIGKILL)
    node.wait()
    until("the worker has ended", lambda: not is_alive(worker))
    assert agent.call("verify_pinned") == 0
    with pytest.raises(AgentError) as why:
        agent.call("put", label="b")
    assert why.value.code in ("not_running", "closed")
    # A new node is a new node: the old session does not creep into it.
    node.start()
    with pytest.raises(AgentError) as why:
        agent.call("put", label="b")
    assert why.value.code in ("not_running", "closed")
    agent.call("attach", instance="i", block=BLOCK, name="again")
    assert agent.call("match", label="a", count=100, name="again") == 0
    assert agent.call("verify_pinned") == 0


def test_a_new_node_starts_in_the_place_of_a_killed_one(start_node: StartNode, attach: Attach) -> None:
    node = start_node()

    def await_worker(starts: int) -> None:
        """The worker of a killed keeper may answer for a moment, and a new one before its keeper has heard of it."""
        until("the worker is ready", lambda: len(node.logged("worker is ready")) == starts)

    for starts in range(1, 4):
        await_worker(starts)
        node.send_signal(signal.SIGKILL)
        node.wait()
        node.start()
    await_worker(4)
    assert attach(node, "i").put([bytes(16)], [bytes(4096)]) == 1


# ---- SIGHUP


def configured(tmp_path: Path, **tables: str) -> Path:
    file = tmp_path / "cenote.toml"
    file.write_text("\n".join(f"[{name.replace('__', '.')}]\n{body}\n" for name, body in tables.items()))
    return file


def reload(node: Node) -> None:
    before = len(node.logged("configuration reloaded"))
    node.send_signal(signal.SIGHUP)
    until("it is reloaded", lambda: len(node.logged("configuration reloaded")) > before)


@pytest.mark.sanitizer
def test_sighup_reloads_water_marks(tmp_path: Path, start_node: StartNode, attach: Attach) -> None:
    file = configured(tmp_path, dram='policy = "lru"\nhigh_water = 0.97\nlow_water = 0.94')
    node = start_node(config=file)
    session = attach(node, "i", block=64 * KiB)
    for first in range(0, 2000, 100):
        keys = blocks.keys_of("a", first, 100)
        session.put(keys, blocks.contents_of(keys, 64 * KiB))
    used = node.status()["dram"]["used"]
    assert used > 0.85 * 64 * MiB
    configured(tmp_path, dram='policy = "lru"\nhigh_water = 0.5\nlow_water = 0.4')
    reload(node)
    until("eviction went down to the new mark", lambda: node.status()["dram"]["used"] <= 0.42 * 64 * MiB)
    assert session.match(blocks.keys_of("a", 1900, 100)).resident == 100, "the newest are still there"


def quota_of_g(node: Node) -> int:
    return int(next(g["quota"] for g in node.status()["groups"] if g["name"] == "g"))


@pytest.mark.sanitizer
def test_sighup_reloads_the_log_level_of_keeper_and_worker(tmp_path: Path, start_node: StartNode) -> None:
    file = configured(tmp_path, log='level = "info"', groups__g='quota = "1MiB"')
    node = start_node(config=file)
    kept = cenote.attach(make_spec("kept", instance_group="g"), socket=str(node.socket))

    def reload_with_quota(bytes_: int) -> None:  # of which the status says when it counts, at any level
        configured(tmp_path, log='level = "error"', groups__g=f"quota = {bytes_}")
        node.send_signal(signal.SIGHUP)
        until("the worker took it over", lambda: quota_of_g(node) == bytes_)

    reload_with_quota(2 * MiB)
    lines = len(list(node.log_lines()))
    cenote.attach(make_spec("x"), socket=str(node.socket)).close()
    reload_with_quota(3 * MiB)
    assert len(list(node.log_lines())) == lines
    kept.close()
    configured(tmp_path, log='level = "debug"')
    node.send_signal(signal.SIGHUP)
    until("debug lines", lambda: any(each.get("level") == "info" for each in list(node.log_lines())[lines:]))


@pytest.mark.sanitizer
def test_sighup_with_a_broken_file_changes_nothing_and_says_so(
    tmp_path: Path, start_node: StartNode, attach: Attach
) -> None:
    file = configured(tmp_path, dram="high_water = 0.97")
    node = start_node(config=file)
    node.allowed_errors = ["configuration", "reloaded"]
    session = attach(node, "i")
    file.write_text("[dram]\nhihg_water = 0.5\n")
    node.send_signal(signal.SIGHUP)
    until("it said so", lambda: [e for e in node.logged("not reloaded") if "high_water" in e["reason"]])
    assert session.put([bytes(16)], [bytes(4096)]) == 1
    assert node.running


def test_a_key_that_needs_a_restart_is_named_on_sighup(tmp_path: Path, start_node: StartNode) -> None:
    file = configured(tmp_path, dram="high_water = 0.97\npopulate = false")
    node = start_node(config=file)
    configured(tmp_path, dram="high_water = 0.96\npopulate = true")
    reload(node)
    assert [line["key"] for line in node.logged("needs a restart")] == ["dram.populate"]


@pytest.mark.sanitizer
def test_a_reload_survives_a_restart_of_the_worker(tmp_path: Path, start_node: StartNode, attach: Attach) -> None:
    file = configured(tmp_path, groups__g='quota = "16MiB"')
    node = start_node(config=file)
    session = attach(node, "i", block=64 * KiB, instance_group="g")
    configured(tmp_path, groups__g='quota = "8MiB"')
    reload(node)
    node.restart_worker()
    for first in range(0, 400, 50):
        keys = blocks.keys_of("a", first, 50)
        session.put(keys, blocks.contents_of(keys, 64 * KiB))
        assert node.group_used("g") <= 8 * MiB
    assert quota_of_g(node) == 8 * MiB


def test_a_file_that_was_edited_or_broken_meanwhile_changes_nothing_when_a_worker_dies(
    tmp_path: Path, start_node: StartNode, attach: Attach
) -> None:
    file = configured(tmp_path, groups__g='quota = "16MiB"\ntoken = "secret \\"7"', dram="populate = false")
    node = start_node(config=file)
    node.allowed_errors = ["configuration"]
    attach(node, "i", instance_group="g", token='secret "7')
    configured(tmp_path, groups__g='quota = "8MiB"')
    node.restart_worker()
    assert quota_of_g(node) == 16 * MiB
    with pytest.raises(cenote.CenoteError, match="token"):
        attach(node, "i", instance_group="g")
    file.write_text("this is no TOML")
    node.restart_worker()
    assert quota_of_g(node) == 16 * MiB
    node.send_signal(signal.SIGHUP)
    until("it is refused", lambda: node.logged("not reloaded"))
    node.restart_worker()
    assert quota_of_g(node) == 16 * MiB
    configured(tmp_path, groups__g='quota = "4MiB"')
    reload(node)
    file.write_text("this is no TOML")
    node.restart_worker()
    assert quota_of_g(node) == 4 * MiB
    configured(tmp_path, groups__g='quota = "8MiB"')
    epoch = node.status()["node"]["epoch"]
    node.send_signal(signal.SIGUSR2)
    until("it is upgraded", lambda: node.status()["node"]["epoch"] > epoch)
    assert quota_of_g(node) == 4 * MiB


def test_a_log_that_nobody_reads_any_more_is_no_reason_to_die(tmp_path: Path) -> None:
    made = Node(tmp_path / "run", "dram.capacity=32MiB", "log.level=debug")
    reader, writer = os.pipe()
    made.process = subprocess.Popen(
        made.command, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, env=made.environment
    )
    os.close(writer)
    try:
        until("it listens", made.socket.exists)
        worker = made.worker_pid
        os.close(reader)
        for number in range(5):
            with cenote.attach(make_spec(f"i{number}"), socket=str(made.socket)) as session:
                assert session.put([bytes(16)], [bytes(4096)]) == 1
        assert made.worker_pid == worker
        os.kill(worker, signal.SIGKILL)
        assert made.worker_pid != worker
        assert made.stop() == 0
    finally:
        made.kill_everything()


# ---- at rest


def test_an_idle_node_costs_next_to_nothing(node: Node, attach: Attach) -> None:
    session = attach(node, "i")
    session.put([bytes(16)], [bytes(4096)])
    pids = (node.pid, node.worker_pid)

    def ticks() -> int:
        total = 0
        for pid in pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total

    node.until_populated()
    before, begin = ticks(), time.monotonic()
    time.sleep(2.0)
    share = (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)
    print(f"idle: {share:.3%} of a core")
    assert share < 0.02
