"""Who may attach and who may administrate. Clients become somebody else, so these need root."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import wire
from conftest import StartAgent, StartNode
from node import BINARY, Agent, AgentError, Node, node_environment, run_cenote, until

NOBODY = 65534
pytestmark = [pytest.mark.usefixtures("as_root"), pytest.mark.sanitizer]


def refusal(agent: Agent) -> AgentError:
    with pytest.raises(AgentError) as why:
        agent.call("attach", instance="i")
    return why.value


def test_another_user_is_refused_with_the_key_that_would_let_it_in(
    public: Path, start_node: StartNode, start_agent: StartAgent
) -> None:
    node = start_node(folder=public / "run")
    agent = start_agent(node)
    assert agent.call("become", uid=NOBODY, gid=NOBODY) == NOBODY
    why = refusal(agent)
    assert why.code == "permission_denied"
    assert f"uid {NOBODY}" in why.message
    assert "auth.allow_uids" in why.message
    assert node.status()["sessions"] == []
    assert node.status()["instances"] == []


@pytest.mark.parametrize(
    "settings", [f"auth.allow_uids=[{NOBODY}]", f"auth.allow_gids=[{NOBODY}]", "auth.allow_uids=[1,65534]"]
)
def test_another_user_attaches_when_a_list_has_it(
    public: Path, start_node: StartNode, start_agent: StartAgent, settings: str
) -> None:
    node = start_node(settings, folder=public / "run")
    agent = start_agent(node)
    agent.call("become", uid=NOBODY, gid=NOBODY)
    agent.call("attach", instance="i")
    assert agent.call("put", label="a", count=10) == 10
    assert agent.call("verify", label="a", count=10) == {"there": 10, "wrong": 0}
    found = node.session_of(agent.pid)
    assert found is not None
    assert found["uid"] == NOBODY
    node.restart_worker()
    assert agent.call("put", label="b", count=10) == 10
    agent.kill()
    until("its session is gone", lambda: not node.status()["sessions"])


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    """Connections that are made inside are that user's."""
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


GROUPS = {"full": {"kv": 4096}}


def test_nothing_of_a_stranger_s_request_is_looked_at(public: Path, start_node: StartNode) -> None:
    node = start_node(folder=public / "run")
    for request in (b"x", b"\0" * 100, wire.FRAME.pack(wire.MAGIC, 1, 2, wire.ATTACH, 0, 9999, 7, 0) + b"x" * 50_000):
        with as_user(NOBODY):
            link = wire.Link(node.socket)
        link.socket.send(request)
        answer = link.receive()
        assert answer.failure().code == 9
        assert f"uid {NOBODY} may not attach" in answer.failure().message
        assert answer.request == (7 if len(request) > 1000 else 0)
        with pytest.raises(ConnectionError):
            link.receive()
        link.close()
    assert node.status()["server"]["turned_away"] == 3


def test_one_user_s_connections_are_bounded_and_others_come_in(public: Path, start_node: StartNode) -> None:
    node = start_node(f"auth.allow_uids=[{NOBODY}]", "limits.connections_per_uid=5", folder=public / "run")

    def ask() -> wire.Link:
        with as_user(NOBODY):
            link = wire.Link(node.socket)
        link.admin("status")
        return link

    links = [ask() for _ in range(5)]
    with pytest.raises(wire.Refused, match=r"limits\.connections_per_uid") as why:
        ask()
    assert why.value.code == 12
    wire.RawSession.attach(node.socket, "i", GROUPS).close()
    links.pop().close()

    def again() -> bool:
        try:
            links.append(ask())
        except wire.Refused:
            return False
        return True

    until("there is room again", again)
    for link in links:
        link.close()


def test_one_user_s_sessions_are_bounded_and_others_attach(public: Path, start_node: StartNode) -> None:
    node = start_node(f"auth.allow_uids=[{NOBODY}]", "limits.sessions_per_uid=2", folder=public / "run")
    with as_user(NOBODY):
        raws = [wire.RawSession.attach(node.socket, "i", GROUPS) for _ in range(2)]
        with pytest.raises(wire.Refused, match=r"uid 65534 has 2 sessions, limits\.sessions_per_uid"):
            wire.RawSession.attach(node.socket, "i", GROUPS)
    raws.append(wire.RawSession.attach(node.socket, "i", GROUPS))
    raws.pop(0).close()
    with as_user(NOBODY):
        raws.append(wire.RawSession.attach(node.socket, "i", GROUPS))
    for each in raws:
        each.close()


def take_all(node: Node, uid: int) -> tuple[list[wire.RawSession], wire.Refused]:
    """Attaches as that user until the node refuses."""
    raws = []
    with as_user(uid), pytest.raises(wire.Refused) as why:
        for _ in range(100):
            raws.append(wire.RawSession.attach(node.socket, "i", GROUPS))
    return raws, why.value


def test_two_users_cannot_take_all_sessions(public: Path, start_node: StartNode) -> None:
    node = start_node("auth.allow_uids=[65534,65533,65532]", "node.max_sessions=16", folder=public / "run")
    first, why = take_all(node, NOBODY)
    assert why.code == 12
    assert "uid 65534 has 8 of the 16 sessions that there may be, and must leave as many to others" in str(why)
    assert "node.max_sessions" in str(why)
    second, _ = take_all(node, 65533)
    third, _ = take_all(node, 65532)
    assert [len(first), len(second), len(third)] == [8, 4, 2]
    raws = [*first, *second, *third]
    raws += [
        wire.RawSession.attach(node.socket, "i", GROUPS) for _ in range(2)
    ]  # who may administrate takes what is left
    with pytest.raises(wire.Refused, match=r"16 sessions are attached, node\.max_sessions"):
        wire.RawSession.attach(node.socket, "i", GROUPS)
    for each in raws:
        each.close()


def test_two_users_cannot_take_all_connections(public: Path, start_node: StartNode) -> None:
    node = start_node(
        f"auth.allow_uids=[{NOBODY},65533,65532]", folder=public / "run", prefix=("prlimit", "--nofile=160:160")
    )
    links: list[wire.Link] = []

    def connect(uid: int) -> tuple[int, wire.Refused]:
        before = len(links)
        with as_user(uid), pytest.raises(wire.Refused) as why:
            for _ in range(200):
                link = wire.Link(node.socket)
                link.admin("status")
                links.append(link)
        link.close()
        return len(links) - before, why.value

    many, why = connect(NOBODY)
    assert many == 40
    assert why.code == 12
    assert "uid 65534 has 40 of the 80 connections that there may be, and must leave as many to others" in str(why)
    assert "raise RLIMIT_NOFILE" in str(why)
    assert connect(65533)[0] == 20
    assert connect(65532)[0] == 10
    assert node.status()["server"]["turned_away"] == 3
    for link in links:
        link.close()


def test_the_instances_that_a_user_made_are_bounded_over_restarts(public: Path, start_node: StartNode) -> None:
    node = start_node(
        f"auth.allow_uids=[{NOBODY}]", "limits.instances_per_uid=2", "limits.instances=3", folder=public / "run"
    )

    kept = []  # idle ones would make way

    def attach(name: str) -> None:
        kept.append(wire.RawSession.attach(node.socket, name, GROUPS))

    with as_user(NOBODY):
        attach("a")
        attach("b")
    node.restart_worker()
    with as_user(NOBODY):
        with pytest.raises(wire.Refused, match=r"uid 65534 made 2 instances, limits\.instances_per_uid"):
            attach("c")
        attach("a")
    attach("c")
    with pytest.raises(wire.Refused, match=r"3 instances, limits\.instances allows no more"):
        attach("d")
    with as_user(NOBODY):
        attach("c")
    for each in kept:
        each.close(detach=False)


def test_a_group_s_list_says_who_may_name_it(public: Path, start_node: StartNode) -> None:
    node = start_node(f"auth.allow_uids=[{NOBODY}]", "groups.paying.uids=[0, 4711]", folder=public / "run")
    with as_user(NOBODY), pytest.raises(wire.Refused, match=r'uid 65534 .*`paying`; groups\."paying"\.uids'):
        wire.RawSession.attach(node.socket, "i", GROUPS, instance_group="paying")
    with as_user(NOBODY), pytest.raises(wire.Refused, match="uids"):
        wire.RawSession.attach(node.socket, "paying", GROUPS)  # an instance that names no group is its own
    wire.RawSession.attach(node.socket, "i", GROUPS, instance_group="paying").close()
    with as_user(NOBODY):
        wire.RawSession.attach(node.socket, "j", GROUPS, instance_group="free").close()


def test_a_user_that_is_in_neither_list_is_refused(
    public: Path, start_node: StartNode, start_agent: StartAgent
) -> None:
    node = start_node("auth.allow_uids=[1]", "auth.allow_gids=[2]", folder=public / "run")
    agent = start_agent(node)
    agent.call("become", uid=NOBODY, gid=NOBODY)
    assert refusal(agent).code == "permission_denied"
    own = start_agent(node)
    own.call("attach", instance="i")  # the daemon's own user always may


def test_a_directory_that_keeps_the_user_out_is_told_apart_from_a_missing_node(
    public: Path, start_node: StartNode, start_agent: StartAgent
) -> None:
    node = start_node(f"auth.allow_uids=[{NOBODY}]", folder=public / "run")
    (public / "run").chmod(0o700)
    agent = start_agent(node)
    agent.call("become", uid=NOBODY, gid=NOBODY)
    why = refusal(agent)
    assert why.code == "permission_denied"
    assert "directory" in why.message


def test_administration_is_refused_to_other_users(public: Path, start_node: StartNode, start_agent: StartAgent) -> None:
    node = start_node(f"auth.allow_uids=[{NOBODY}]", folder=public / "run")
    program = public / "cenote"
    shutil.copy(BINARY, program)
    program.chmod(0o755)
    agent = start_agent(node)
    number = agent.call("attach", instance="i")
    agent.call("put", label="a", count=10)
    worker = node.worker_pid
    for command in (["clear", "--all"], ["session", "kill", str(number)], ["node", "upgrade"], ["log-level", "debug"]):
        ran = as_nobody(program, [*command, "--socket", str(node.socket)])
        assert ran.returncode == 1, (command, ran)
        assert "auth.admin_gid" in ran.stderr, command
    assert as_nobody(program, ["status", "--socket", str(node.socket)]).returncode == 0, "who may attach may look"
    assert agent.call("match", label="a", count=10) == 10
    assert node.worker_pid == worker


def as_nobody(program: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), *arguments],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        env=node_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_admin_group_may_administrate_and_status_is_not_for_strangers(
    public: Path, start_node: StartNode, start_agent: StartAgent
) -> None:
    program = public / "cenote"
    shutil.copy(BINARY, program)
    program.chmod(0o755)
    strict = start_node(folder=public / "strict")
    ran = as_nobody(program, ["status", "--socket", str(strict.socket)])
    assert ran.returncode == 1
    assert "may not" in ran.stderr
    node = start_node(f"auth.admin_gid={NOBODY}", folder=public / "run")
    agent = start_agent(node)
    agent.call("attach", instance="i")
    agent.call("put", label="a", count=10)
    assert as_nobody(program, ["status", "--socket", str(node.socket)]).returncode == 0
    ran = as_nobody(program, ["clear", "--all", "--socket", str(node.socket)])
    assert ran.returncode == 0, ran.stderr
    assert agent.call("match", label="a", count=10) == 0
    own = start_agent(node)
    own.call("become", uid=NOBODY, gid=NOBODY)
    assert refusal(own).code == "permission_denied", "who may administrate may not attach for that"


def test_the_lists_are_reloaded(public: Path, start_node: StartNode, start_agent: StartAgent) -> None:
    file = public / "cenote.toml"
    file.write_text("")
    node = start_node(folder=public / "run", config=file)
    agent = start_agent(node)
    agent.call("become", uid=NOBODY, gid=NOBODY)
    assert refusal(agent).code == "permission_denied"
    file.write_text(f"[auth]\nallow_uids = [{NOBODY}]\n")
    node.send_signal(signal.SIGHUP)
    until("it is reloaded", lambda: node.logged("configuration reloaded"))
    agent.call("attach", instance="i")
    assert agent.call("put", label="a", count=10) == 10


def test_another_user_cannot_reopen_what_it_was_given(
    public: Path, start_node: StartNode, start_agent: StartAgent
) -> None:
    node = start_node(f"auth.allow_uids=[{NOBODY}]", folder=public / "run")
    agent = start_agent(node)
    agent.call("become", uid=NOBODY, gid=NOBODY)
    said = agent.call("reopen", instance="i")
    assert set(said) == {"memory", "index", "versions", "slab"}
    assert all(each == {"read": "PermissionError", "write": "PermissionError"} for each in said.values()), said


def test_a_node_runs_as_a_user_of_its_own(public: Path, start_agent: StartAgent) -> None:
    program = public / "cenote"
    shutil.copy(BINARY, program)
    program.chmod(0o755)
    place = public / "home"
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    node = Node(place / "run", "dram.capacity=32MiB", f"auth.allow_uids=[{NOBODY},0]")
    node.command = [
        "setpriv",
        f"--reuid={NOBODY}",
        f"--regid={NOBODY}",
        "--clear-groups",
        str(program),
        *node.command[1:],
    ]
    node.log = public / "log"
    try:
        node.start()
        agent = start_agent(node)
        agent.call("attach", instance="i")  # root attaches to it
        assert agent.call("put", label="a", count=50) == 50
        node.restart_worker()
        assert agent.call("verify", label="a", count=50) == {"there": 50, "wrong": 0}
        assert run_cenote("clear", "--all", "--socket", node.socket).returncode == 0, "root may administrate"
        node.finish()
    finally:
        node.kill_everything()
    # A directory of another user is not taken.
    ran = run_cenote("node", "--set", f"node.runtime_dir={place}")
    assert ran.returncode == 2
    assert f"uid {NOBODY}" in ran.stderr
