"""Needs of a node on its machine: `config check`, `doctor` and the start of a node decide alike."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import StartNode
from node import BINARY, LIMIT, Node, free_port, node_environment, run_cenote

STRANGER = 4242  # a uid without a name and without a home
SECRET = "0123456789abcdef0123456789abcdef\n"


@dataclass
class Place:
    """A directory for what a configuration names."""

    path: Path

    def file(self, name: str, text: str = "x", mode: int = 0o600) -> Path:
        made = self.path / name
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text)
        made.chmod(mode)
        return made

    def folder(self, name: str, mode: int = 0o700, owner: int | None = None) -> Path:
        made = self.path / name
        made.mkdir()
        made.chmod(mode)
        if owner is not None:
            os.chown(made, owner, owner)
        return made

    def link(self, name: str, target: str) -> Path:
        made = self.path / name
        made.parent.mkdir(parents=True, exist_ok=True)
        made.symlink_to(target)
        return made

    def entries(self) -> set[Path]:
        return set(self.path.rglob("*"))


def nvme(path: Path | str, *sets: str) -> tuple[str, ...]:
    return (f"nvme.paths=['{path}']", "nvme.capacity=64MiB", *sets)


def crowded(place: Place) -> tuple[str, ...]:
    """Half as much again as the disk has, on two paths."""
    space = os.statvfs(place.path)
    mebibytes = space.f_bavail * space.f_frsize * 3 // 2 >> 20
    return (f"nvme.paths=['{place.path}/a','{place.path}/b']", f"nvme.capacity={mebibytes}MiB")


def member(*sets: str) -> tuple[str, ...]:
    return ("cluster.name=a", f"cluster.listen=127.0.0.1:{free_port()}", *sets)


def remote(backends: str, *sets: str) -> tuple[str, ...]:
    return (f"remote.backends=[{backends}]", *sets)


@dataclass
class Wrong:
    """A configuration that can never work on this machine."""

    name: str
    key: str  # with which the sentence about it begins
    part: str  # of that sentence
    sets: Callable[[Place], tuple[str, ...]]
    needs_root: bool = False
    environment: Callable[[Place], dict[str, str]] = field(default=lambda _: {})


def broken_ucx(place: Place) -> dict[str, str]:
    place.file("libraries/libucp.so.0", "no library")
    return {"LD_LIBRARY_PATH": str(place.path / "libraries")}


WRONG = [
    Wrong("too much DRAM", "dram.capacity", "more than this machine's memory", lambda _: ("dram.capacity=900TiB",)),
    Wrong("no such NUMA node", "dram.numa_node", "no such node", lambda _: ("dram.numa_node=99",)),
    Wrong(
        "a foreign runtime directory",
        "node.runtime_dir",
        f"belongs to uid {STRANGER}",
        lambda place: (f"node.runtime_dir={place.folder('foreign', owner=STRANGER)}",),
        needs_root=True,
    ),
    Wrong(
        "a file for it",
        "node.runtime_dir",
        "is not a directory",
        lambda place: (f"node.runtime_dir={place.file('f')}",),
    ),
    Wrong("it cannot be made", "node.runtime_dir", "mkdir", lambda _: ("node.runtime_dir=/proc/cenote",)),
    Wrong("a file for the socket", "node.socket", "is not a socket", lambda place: (f"node.socket={place.file('f')}",)),
    Wrong("no place for it", "node.socket", "is not a directory", lambda place: (f"node.socket={place.file('f')}/s",)),
    Wrong("a file for a path", "nvme.paths", "is not a directory", lambda place: nvme(place.file("f"))),
    Wrong("a path below a file", "nvme.paths", "Not a directory", lambda place: nvme(f"{place.file('f')}/store")),
    Wrong("a path that cannot be made", "nvme.paths", "mkdir", lambda _: nvme("/proc/cenote")),
    Wrong(
        "a foreign path",
        "nvme.paths",
        f"belongs to uid {STRANGER}",
        lambda place: nvme(place.folder("foreign", owner=STRANGER)),
        needs_root=True,
    ),
    Wrong("everybody's path", "nvme.paths", "by everybody", lambda place: nvme(place.folder("open", mode=0o777))),
    Wrong(
        "a device that is missing",
        "nvme.paths",
        "which is not there",
        lambda place: nvme(place.link("s/data", "/no").parent),
    ),
    Wrong(
        "somebody's data",
        "nvme.paths",
        "something else than blocks",
        lambda place: nvme(place.file("s/data", "mine").parent),
    ),
    Wrong(
        "a terminal", "nvme.paths", "neither a file nor", lambda place: nvme(place.link("s/data", "/dev/tty").parent)
    ),
    Wrong(
        "a disk too small",
        "nvme.capacity",
        "available",
        lambda place: (*nvme(place.path / "s"), "nvme.capacity=900TiB"),
    ),
    Wrong("two paths on a disk that has room for one", "nvme.capacity", "together", crowded),
    Wrong("no authority", "remote.backends", "cannot be used", lambda _: remote("'rediss://host?ca=/no.pem'")),
    Wrong("a folder as authority", "remote.backends", "no plain file", lambda _: remote("'rediss://host?ca=/etc'")),
    Wrong("a sentinel", "remote.backends", "entinel", lambda _: remote("'redis-sentinel://host/main'")),
    Wrong("no address", "remote.backends", "not the address", lambda _: remote("'junk'")),
    Wrong("a place twice", "remote.backends", "twice", lambda _: remote("'redis://a','redis://a'")),
    Wrong("in other words", "remote.backends", "before it", lambda _: remote("'redis://a','redis://a:6379/0'")),
    Wrong("peers of a node that is alone", "remote.backends", "cluster.name", lambda _: remote("'peers'")),
    Wrong(
        "a password for all to read",
        "remote.auth_file",
        "others can read",
        lambda place: remote("'redis://a'", f"remote.auth_file={place.file('password', mode=0o644)}"),
    ),
    Wrong(
        "no place for state",
        "remote.state_dir",
        "is not a directory",
        lambda place: remote("'redis://a'", f"remote.state_dir={place.file('state')}"),
    ),
    Wrong(
        "an address of another machine",
        "cluster.listen",
        "192.0.2.1",
        lambda place: member(
            "cluster.listen=192.0.2.1:7000",
            f"cluster.secret_file={place.file('secret', SECRET)}",
            "cluster.trusted_network=true",
        ),
    ),
    Wrong(
        "no secret", "cluster.secret_file", "No such file", lambda place: member(f"cluster.secret_file={place.path}/no")
    ),
    Wrong(
        "a short secret",
        "cluster.secret_file",
        "16 to",
        lambda place: member(f"cluster.secret_file={place.file('s', 'abc')}"),
    ),
    Wrong(
        "everybody's secret",
        "cluster.secret_file",
        "others can read",
        lambda place: member(f"cluster.secret_file={place.file('s', SECRET, mode=0o644)}"),
    ),
    Wrong(
        "a transport that UCX does not know",
        "cluster.ucx",
        "ucp_",
        lambda place: member(
            "cluster.ucx=['UCX_TLS=nothing']",
            f"cluster.secret_file={place.file('s', SECRET)}",
            "cluster.trusted_network=true",
        ),
    ),
    Wrong("no UCX", "cluster.name", "UCX cannot be loaded", lambda _: member(), environment=broken_ucx),
]


def words_of(*sets: str) -> list[str]:
    return [word for each in sets for word in ("--set", each)]


def steady(text: str) -> str:
    """Without the free bytes of a disk, on which other programs write meanwhile."""
    return re.sub(r"\d{7,}", "N", text)


def sentences_in(stderr: str, key: str) -> list[str]:
    """Without the program's name."""
    lines = steady(stderr).splitlines()
    return [line.removeprefix("cenote: ") for line in lines if line.startswith(f"cenote: {key}")]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda each: each.name.replace(" ", "-"))
def test_what_can_never_work_is_refused_alike_by_the_check_the_doctor_and_the_start(
    wrong: Wrong, tmp_path: Path
) -> None:
    if wrong.needs_root and os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    place = Place(tmp_path / "place")
    place.path.mkdir()
    defaults = (f"node.runtime_dir={tmp_path / 'run'}", "dram.capacity=16MiB")
    sets = words_of(*defaults, *wrong.sets(place))
    environment = node_environment() | {"STATE_DIRECTORY": str(tmp_path / "state")} | wrong.environment(place)
    before = place.entries()
    checked = run_cenote("config", "check", *sets, env=environment)
    assert checked.returncode == 2, checked
    (sentence,) = sentences_in(checked.stderr, wrong.key)
    assert wrong.part in sentence
    assert "valid" not in checked.stdout
    examined = run_cenote("doctor", *sets, env=environment)
    assert examined.returncode == 1, examined
    assert "FAIL" in examined.stdout
    assert f"-> {sentence}\n" in steady(examined.stdout)
    started = run_cenote("node", *sets, env=environment)
    assert started.returncode == 2, started
    assert sentences_in(started.stderr, wrong.key) == [sentence]
    assert "worker started" not in started.stdout + started.stderr
    assert place.entries() == before
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "state").exists()


@pytest.mark.usefixtures("as_root")
def test_remote_state_of_a_user_without_a_home_is_refused_by_name(public: Path) -> None:
    program = public / "cenote"
    shutil.copy(BINARY, program)
    program.chmod(0o755)
    run = Place(public).folder("run", owner=STRANGER)
    unset = ("HOME", "XDG_STATE_HOME", "STATE_DIRECTORY")
    environment = {name: value for name, value in node_environment().items() if name not in unset}
    sets = words_of(f"node.runtime_dir={run}", "dram.capacity=16MiB", *remote("'redis://a'"))
    for command in (["config", "check"], ["node"]):
        refused = subprocess.run(
            [str(program), *command, *sets],
            user=STRANGER, group=STRANGER, extra_groups=[], cwd="/", env=environment,
            capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        assert refused.returncode == 2, refused
        (sentence,) = sentences_in(refused.stderr, "remote.state_dir: ")
        assert f"uid {STRANGER} has no home directory" in sentence


@pytest.mark.parametrize("limit", ["fsize", "as"])
def test_a_limit_of_processes_is_found_by_the_check_too(limit: str, tmp_path: Path) -> None:
    sets = words_of(f"node.runtime_dir={tmp_path / 'run'}")
    limited = ["prlimit", f"--{limit}={1 << 30}", str(BINARY)]
    ends = [
        subprocess.run([*limited, *command, *sets], env=node_environment(), capture_output=True, text=True, check=False)
        for command in (["config", "check"], ["node"])
    ]
    sentences = [sentences_in(each.stderr, "the limit of ") for each in ends]
    assert sentences[0] == sentences[1]
    assert len(sentences[0]) == 1
    assert [each.returncode for each in ends] == [1, 1]


def full_configuration(tmp_path: Path) -> tuple[str, ...]:
    """A node with all that is looked at."""
    state = tmp_path / "remote"
    return (
        *nvme(tmp_path / "disk" / "store"),
        *member(f"cluster.secret_file={Place(tmp_path).file('secret', SECRET)}"),
        *remote("'redis://127.0.0.1:1','peers'", f"remote.state_dir={state}"),
        f"metrics.listen=127.0.0.1:{free_port()}",
        f"publish.endpoint=tcp://127.0.0.1:{free_port()}",
        "gpu.devices=['sim:0']",
        "gpu.capacity=16MiB",
    )


GOOD: dict[str, Callable[[Path], tuple[str, ...]]] = {
    "nothing": lambda _: (),
    "a disk": lambda place: nvme(place / "disk"),
    "a path with a line end": lambda place: (f'nvme.paths=["{place}/a\\nb"]', "nvme.capacity=64MiB"),
    "its own secret": lambda _: member(),
    "any port": lambda _: member("cluster.listen=localhost:0"),
    "a server that is away": lambda place: remote("'redis://no.such.host.invalid'", f"remote.state_dir={place}/a/b"),
    "everything": full_configuration,
}


def checks_of(sets: list[str], environment: dict[str, str]) -> list[subprocess.CompletedProcess[str]]:
    return [run_cenote(*command, *sets, env=environment) for command in (["config", "check"], ["doctor"])]


def checks_for(node: Node) -> list[subprocess.CompletedProcess[str]]:
    """Of what the node runs with."""
    return checks_of(node.command[node.command.index("--set") :], node.environment)


@pytest.mark.parametrize("name", GOOD)
def test_what_the_check_and_the_doctor_call_good_starts(
    name: str, start_node: StartNode, folder: Path, tmp_path: Path
) -> None:
    sets = GOOD[name](tmp_path)
    environment = node_environment() | {"STATE_DIRECTORY": str(tmp_path / "state")}
    before = Place(tmp_path).entries()
    for checked in checks_of(words_of(f"node.runtime_dir={folder}", "dram.capacity=16MiB", *sets), environment):
        assert checked.returncode == 0, checked
    assert Place(tmp_path).entries() == before
    start_node(*sets, capacity="16MiB")


def test_what_a_node_has_in_use_is_a_warning_to_the_checks_of_its_configuration_and_no_hindrance_to_an_upgrade(
    start_node: StartNode, tmp_path: Path
) -> None:
    sets = full_configuration(tmp_path)
    node = start_node(*sets, capacity="16MiB")
    checked, examined = checks_for(node)
    assert (checked.returncode, examined.returncode) == (0, 0), (checked, examined)
    for key in ("node.socket", "nvme.paths", "cluster.listen", "metrics.listen"):
        assert f"cenote: warning: {key}: " in checked.stderr
    second = subprocess.run(node.command, env=node.environment, capture_output=True, text=True, check=False)
    assert second.returncode == 3, second
    assert "a node already runs in" in second.stderr
    epoch = node.epoch
    upgraded = run_cenote("node", "upgrade", "--socket", node.socket)
    assert upgraded.returncode == 0, upgraded
    assert node.epoch > epoch


def test_a_configuration_that_became_wrong_keeps_a_node_from_an_upgrade(start_node: StartNode, tmp_path: Path) -> None:
    secret = Place(tmp_path).file("secret", SECRET)
    node = start_node(*member(f"cluster.secret_file={secret}"), capacity="16MiB")
    secret.chmod(0o644)
    worker = node.worker_pid
    refused = run_cenote("node", "upgrade", "--socket", node.socket)
    assert refused.returncode != 0
    assert "does not run with this node's configuration" in refused.stderr
    assert node.worker_pid == worker
    node.allowed_errors = ["no upgrade"]


@pytest.fixture
def busy_port() -> Iterator[int]:
    """A port of 127.0.0.1 that another program has."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made.getsockname()[1]


def test_a_port_of_metrics_that_is_taken_is_tried_again(start_node: StartNode, tmp_path: Path, busy_port: int) -> None:
    node = start_node(f"metrics.listen=127.0.0.1:{busy_port}", capacity="16MiB")
    checked, examined = checks_for(node)
    assert (checked.returncode, examined.returncode) == (0, 0)
    assert "cenote: warning: metrics.listen: " in checked.stderr
    assert f"127.0.0.1:{busy_port}" in node.status()["node"]["metrics_problem"]


def test_a_limit_that_is_too_short_for_a_stop_is_a_warning_of_the_check_the_doctor_and_the_start(
    start_node: StartNode,
) -> None:
    node = start_node("node.stop_limit=6s", capacity="16MiB")
    assert "a stop in order may be cut short" in node.log_text()
    checked, examined = checks_for(node)
    assert (checked.returncode, examined.returncode) == (0, 0)
    sentence = "6s by node.stop_limit; a stop in order may take 7s"
    assert f"cenote: warning: node.stop_limit: {sentence}: " in checked.stderr
    assert re.search(rf"^warn +stop limit +{sentence}$", examined.stdout, re.MULTILINE)


def test_a_limit_that_nothing_states_is_not_known_and_no_warning(start_node: StartNode) -> None:
    if ".service" in Path("/proc/self/cgroup").read_text():
        pytest.skip("these tests belong to a unit of systemd, which states one")
    node = start_node(capacity="16MiB")
    assert "cut short" not in node.log_text()
    checked, examined = checks_for(node)
    assert "stop" not in checked.stderr
    assert re.search(r"^\? +stop limit +not known; a stop in order may take 7s$", examined.stdout, re.MULTILINE)
