"""Nodes and engines in PID namespaces of their own, as containers have them. Skipped where a machine does not allow to
make one."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cenote
import pytest
import wire
from conftest import StartAgent, StartNode, make_spec
from node import BINARY, HERE, Agent, Node, is_alive, preloading, processes_naming, run_cenote, until

APART = ("unshare", "-pf", "--mount-proc", "--kill-child")
SHIM = BINARY.parent / "tests" / "bin" / "libolder_kernel.so"
GROUPS = {"full": {"kv": 4096}}

Attach = Callable[..., Any]
pytestmark = pytest.mark.sanitizer


@pytest.fixture(scope="module", autouse=True)
def namespaces() -> None:
    if subprocess.run([*APART, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no PID namespace of its own for a test")
    if tuple(map(int, platform.release().split(".")[:2])) < (6, 9):
        pytest.skip("this kernel's pidfds have no serials")


class World:
    """A node, and engines, here or in namespaces of their own."""

    def __init__(self, arrangement: str, start_node: StartNode, start_agent: StartAgent) -> None:
        self.node_apart = arrangement in ("node apart", "both apart")
        self.engine_apart = arrangement in ("engine apart", "both apart")
        self.start_node = start_node
        self.start_agent = start_agent

    @contextlib.contextmanager
    def node(self, **options: Any) -> Iterator[Node]:
        node = self.start_node(prefix=APART if self.node_apart else (), **options)
        yield node
        if self.node_apart:  # unshare hands no signal on
            os.kill(process_in(node, "pid"), signal.SIGTERM)
            assert node.wait() == 0

    def engine(self, node: Node, label: str) -> Agent:
        """Attached, with 20 blocks, of which it has 10 pinned."""
        agent = self.start_agent(node, prefix=APART if self.engine_apart else ())
        agent.call("attach", instance=label)
        assert agent.call("put", label=label, count=20) == 20
        assert agent.call("pin", label=label, count=10) == 10
        return agent

    def kill_worker(self, node: Node) -> None:
        worker = process_in(node, "worker_pid")
        node.announced_deaths += 1
        os.kill(worker, signal.SIGKILL)
        until("the worker is dead", lambda: not is_alive(worker), pause=0.001)


@pytest.fixture(params=["node apart", "engine apart", "both apart"])
def world(request: pytest.FixtureRequest, start_node: StartNode, start_agent: StartAgent) -> World:
    return World(request.param, start_node, start_agent)


@pytest.fixture
def contained_node(start_node: StartNode, start_agent: StartAgent) -> World:
    return World("node apart", start_node, start_agent)


def process_in(node: Node, name: str) -> int:
    """The number, here, of the process that the node's status has by a number of its own namespace."""
    number = node.status()["node"][name]
    for pid in processes_naming(f"runtime_dir={node.folder}"):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        numbers = next(each for each in lines if each.startswith("NSpid:")).split()[1:]
        program = os.readlink(f"/proc/{pid}/exe")
        if int(numbers[-1]) == number and program == str(BINARY.resolve()):
            return pid
    raise AssertionError(f"no process of the node has the number {number}")


def session_numbers(node: Node) -> set[int]:
    return {each["id"] for each in node.sessions()}


def test_an_engine_attaches_wherever_the_node_lives(world: World) -> None:
    with world.node() as node:
        agent = world.engine(node, "a")
        assert agent.call("verify", label="a", count=20) == {"there": 20, "wrong": 0}
        (session,) = node.sessions()
        assert (session["pid"] == 0) == world.node_apart
        ran = run_cenote("status", "--socket", node.socket)
        assert ran.returncode == 0, ran.stderr
        agent.call("unpin")
        agent.call("close")
        assert node.sessions() == []


def test_a_killed_engine_s_session_ends_and_frees_what_it_held(world: World) -> None:
    with world.node() as node:
        other = world.engine(node, "b")
        agent = world.engine(node, "a")
        assert len(agent.call("reserve", label="r", count=5)) == 5
        granted = node.blocks()["granted"]
        agent.kill()
        until("the session ended", lambda: len(node.sessions()) == 1)
        assert node.blocks()["granted"] < granted
        assert sum(each["pins"] for each in node.sessions()) == 10
        assert other.call("verify_pinned") == 0
        late = world.start_agent(node)
        late.call("attach", instance="a")
        assert late.call("verify", label="a", count=20) == {"there": 20, "wrong": 0}
        assert late.call("remove", label="a", count=20) == 20


def test_a_new_worker_keeps_the_living_and_ends_the_dead(world: World) -> None:
    with world.node() as node:
        one, two = world.engine(node, "a"), world.engine(node, "b")
        gone = world.engine(node, "c")
        numbers = {each.call("stats")["session"] for each in (one, two)}
        worker = process_in(node, "worker_pid")
        os.kill(worker, signal.SIGSTOP)
        gone.kill()
        node.announced_deaths += 1
        os.kill(worker, signal.SIGKILL)
        until("only the living have sessions", lambda: session_numbers(node) == numbers)
        for label, each in (("a", one), ("b", two)):
            assert each.call("put", label=label, first=20, count=5) == 5
            assert each.call("verify_pinned") == 0
            assert each.call("verify", label=label, count=25) == {"there": 25, "wrong": 0}
            assert each.call("stats")["reattaches"] == 1
        assert session_numbers(node) == numbers


ANOTHER_PROCESS = """
import sys, wire
with wire.Link(sys.argv[1]) as link:
    try:
        link.ask(wire.REATTACH, wire.encode_reattach(int(sys.argv[2]), int(sys.argv[3])))
    except wire.Refused as why:
        print(why.message)
    else:
        print("it has the session")
"""


def reattached_by_another(node: Node, raw: wire.RawSession, *prefix: str) -> str:
    command = [*prefix, sys.executable, "-c", ANOTHER_PROCESS, str(node.socket), str(raw.number), str(raw.secret)]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_the_secret_alone_gives_no_process_another_s_session(contained_node: World) -> None:
    with contained_node.node() as node:
        raw = wire.RawSession.attach(node.socket, "i", GROUPS)
        for prefix in ((), APART):
            assert "does not know this session" in reattached_by_another(node, raw, *prefix)
        contained_node.kill_worker(node)
        until("the session is back", lambda: session_numbers(node) == {raw.number})
        for prefix in ((), APART):
            assert "does not know this session" in reattached_by_another(node, raw, *prefix)
        with wire.Link(node.socket) as link:
            link.ask(wire.REATTACH, wire.encode_reattach(raw.number, raw.secret))
            link.ask(wire.DETACH)
        raw.close(detach=False)


def test_the_number_of_a_call_alone_ends_no_other_process_s_session(contained_node: World) -> None:
    with contained_node.node() as node:
        raw = wire.RawSession.attach(node.socket, "i", GROUPS, call=77)
        script = (
            "import sys, wire\n"
            "raw = wire.RawSession.attach(sys.argv[1], 'i', {'full': {'kv': 4096}}, call=77)\n"
            "raw.close()\n"
        )
        command = [sys.executable, "-c", script, str(node.socket)]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": str(HERE)}, check=True)
        assert session_numbers(node) == {raw.number}
        again = wire.RawSession.attach(node.socket, "i", GROUPS, call=77)
        assert session_numbers(node) == {again.number}, "its own process asked again"
        again.close()
        raw.close(detach=False)


def test_the_operator_s_end_of_a_session_out_of_sight_waits_for_its_process(contained_node: World) -> None:
    with contained_node.node() as node:
        agent = contained_node.engine(node, "a")
        (number,) = session_numbers(node)
        ran = run_cenote("session", "kill", str(number), "--socket", node.socket)
        assert ran.returncode == 1
        assert "of another PID namespace" in ran.stderr
        agent.kill()
        until("the session ended", lambda: node.sessions() == [])


@pytest.fixture
def older(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"environment": preloading(SHIM) | {"CENOTE_TEST_KERNEL": request.param}}


@pytest.mark.parametrize("older", ["6.4"], indirect=True)
def test_a_kernel_without_pidfds_of_peers_lets_only_seen_processes_attach(
    contained_node: World, older: dict[str, Any]
) -> None:
    with contained_node.node(**older) as node:
        with pytest.raises(cenote.PermissionDenied, match=r"PID namespace.*Linux 6\.5.*--pid=host.*hostPID"):
            cenote.attach(make_spec("i"), socket=str(node.socket))
        ran = run_cenote("status", "--socket", node.socket)
        assert ran.returncode == 0, ran.stderr
        assert node.sessions() == []


@pytest.mark.parametrize("older", ["6.4", "6.8"], indirect=True)
def test_an_older_kernel_knows_seen_processes_by_their_numbers(
    start_node: StartNode, start_agent: StartAgent, older: dict[str, Any]
) -> None:
    here = World("engine apart", start_node, start_agent)
    with here.node(**older) as node:
        agent = here.engine(node, "a")
        here.kill_worker(node)
        assert agent.call("put", label="a", first=20, count=5) == 5
        assert agent.call("stats")["reattaches"] == 1
        raw = wire.RawSession.attach(node.socket, "i", GROUPS)
        assert "does not know this session" in reattached_by_another(node, raw)
        raw.close()


@pytest.mark.parametrize("older", ["6.8"], indirect=True)
def test_where_pidfds_have_no_serials_secret_and_user_name_a_process_out_of_sight(
    contained_node: World, older: dict[str, Any]
) -> None:
    with contained_node.node(**older) as node:
        one, two = contained_node.engine(node, "a"), contained_node.engine(node, "b")
        contained_node.kill_worker(node)
        for label, each in (("a", one), ("b", two)):
            assert each.call("put", label=label, first=20, count=5) == 5
            assert each.call("stats")["reattaches"] == 1
        one.kill()
        until("the session ended", lambda: len(node.sessions()) == 1)
        raw = wire.RawSession.attach(node.socket, "i", GROUPS)
        with wire.Link(node.socket) as link, pytest.raises(wire.Refused, match="does not know this session"):
            link.ask(wire.REATTACH, wire.encode_reattach(raw.number, raw.secret ^ 1))
        raw.close()
