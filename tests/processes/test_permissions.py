"""Who may attach and who may administrate. Clients become somebody else, so these need root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cenote
import pytest
from conftest import StartAgent, StartNode, make_spec
from node import BINARY, Agent, AgentError, Node, node_environment, run_cenote, until

NOBODY = 65534
pytestmark = [pytest.mark.usefixtures("as_root"), pytest.mark.sanitizer]


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        os.chmod(place, 0o755)
        yield Path(place)


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
    until("its session is gone", lambda: not node.status()["sessions"], limit=3)


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
    until("it is reloaded", lambda: node.logged("configuration reloaded"), limit=5)
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


def test_a_process_in_a_pid_namespace_that_the_node_cannot_see_is_refused(public: Path, start_node: StartNode) -> None:
    node = start_node(folder=public / "run", launch_only=True, prefix=("unshare", "--pid", "--fork", "--kill-child"))
    until("the socket is there", node.socket.exists, limit=10)
    with pytest.raises(cenote.PermissionDenied, match=r"PID namespace.*--pid=host.*hostPID"):
        cenote.attach(make_spec("i"), socket=str(node.socket))
    ran = run_cenote("status", "--socket", node.socket)
    assert ran.returncode == 1
    assert "PID namespace" in ran.stderr
    node.send_signal(signal.SIGKILL)  # unshare: its child goes with it
    node.wait()


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
    assert ran.returncode == 1
    assert f"uid {NOBODY}" in ran.stderr
