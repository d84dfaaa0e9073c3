"""The image that scripts/image makes, run as a container runtime runs it: a root that is read-only, a PID namespace and
a /proc of its own, 16 MiB of /dev/shm, any user, no home, a limit of memory, the seccomp profile. No runtime is needed;
root is."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import StartAgent, StartNode
from node import BINARY, FULL, HERE, LIMIT, ROOT, MiB, Node, node_environment, run_cenote, until
from test_pack import CLIENT, skip_without_parts, system_libraries

USER = 54321  # has no entry in /etc/passwd anywhere
IMAGE = ROOT / "scripts" / "image"
CONTAINERFILE = ROOT / "packaging" / "Containerfile"
PROFILE = ROOT / "packaging" / "seccomp" / "cenote.json"
WITH_PROFILE = (sys.executable, str(HERE / "clients" / "with_profile.py"), str(PROFILE))
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child")

# Arguments: the root, the volumes of /run/cenote, /var/lib/cenote and /disk, a file of a cgroup or "", and a command,
# which comes from outside and changes to the root itself.
CONTAINER = """
set -e
root="$1" run="$2" state="$3" disk="$4" group="$5"
shift 5
[ -z "$group" ] || echo $$ > "$group"
mount --make-rprivate /
mount --bind "$root" "$root"
mount --bind "$run" "$root/run/cenote"
mount --bind "$state" "$root/var/lib/cenote"
mount --bind "$disk" "$root/disk"
mount -t proc -o hidepid=2 proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755,size=64k tmpfs "$root/dev"
mknod -m 666 "$root/dev/null" c 1 3
mkdir "$root/dev/shm"
mount -t tmpfs -o size=16m tmpfs "$root/dev/shm"
mount -o remount,bind,ro "$root"
exec "$@"
"""

Attach = Callable[..., Any]


def setting(name: str) -> str:
    """The arguments of an instruction in the Containerfile's last stage."""
    (found,) = re.findall(rf"^{name} ((?:.*\\\n)*.*)", CONTAINERFILE.read_text().rpartition("\nFROM ")[2], re.MULTILINE)
    return found.replace("\\\n", " ")


def image_environment() -> dict[str, str]:
    """PATH is the base's."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", **dict(each.split("=", 1) for each in setting("ENV").split())}


# ---- without a root of its own


def test_under_the_seccomp_profile_a_node_uses_io_uring_and_is_upgraded(
    start_node: StartNode, start_agent: StartAgent, tmp_path: Path
) -> None:
    if (tried := subprocess.run([*WITH_PROFILE, "/bin/true"], check=False, capture_output=True)).returncode != 0:
        pytest.skip(f"no seccomp filter can be loaded here: {tried.stderr.decode()[-200:]}")
    disk = (f"nvme.paths=[{tmp_path}/store]", "nvme.capacity=256MiB")
    node = start_node(*disk, "cluster.name=a", "cluster.listen=127.0.0.1:0", prefix=WITH_PROFILE)
    filtered = re.search(r"^Seccomp:\t2$", Path(f"/proc/{node.worker_pid}/status").read_text(), re.MULTILINE)
    assert filtered, "the worker runs without the profile"
    agent = start_agent(node)
    agent.call("attach", instance="i")
    assert agent.call("put", label="a", count=20) == 20
    epoch = node.epoch
    assert run_cenote("node", "upgrade", "--socket", node.socket).returncode == 0
    until("the next worker is there", lambda: node.epoch > epoch)
    assert agent.call("verify", label="a", count=20) == {"there": 20, "wrong": 0}
    (path,) = until("the path serves", lambda: [p for p in node.status()["nvme"]["paths"] if p["state"] == "serving"])
    allowed = Path("/proc/sys/kernel/io_uring_disabled")
    if not allowed.exists() or allowed.read_text().strip() == "0":
        assert path["engine"] == "io_uring"
        assert not node.logged("io_uring cannot be used")


def test_the_seccomp_profile_allows_no_call_twice_and_nothing_that_makes_namespaces_or_looks_into_others() -> None:
    profile = json.loads(PROFILE.read_text())
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", 38)
    unconditional = [name for each in profile["syscalls"] if "args" not in each for name in each["names"]]
    assert len(unconditional) == len(set(unconditional))
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register", "pidfd_open"} <= set(unconditional)
    refused = {"clone", "clone3", "unshare", "setns", "mount", "ptrace", "process_vm_readv", "process_vm_writev"}
    refused |= {
        "pidfd_getfd",
        "bpf",
        "keyctl",
        "add_key",
        "perf_event_open",
        "userfaultfd",
        "open_by_handle_at",
        "socket",
    }
    assert not refused & set(unconditional)


def test_the_containerfile_runs_the_script_that_is_tested_here_and_a_user_that_is_not_root() -> None:
    text = CONTAINERFILE.read_text()
    assert "RUN scripts/image /image\n" in text
    assert "COPY --from=build /image/ /\n" in text
    assert int(setting("USER").split(":")[0]) != 0
    assert json.loads(setting("ENTRYPOINT")) == ["cenote"]
    assert "tini" not in text and "HEALTHCHECK" in text
    assert image_environment()["CENOTE_SOCKET"] == image_environment()["CENOTE_NODE__RUNTIME_DIR"] + "/cenote.sock"


# ---- with the image's root


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """The image's root over the least of a base: glibc."""
    if not FULL:
        pytest.skip("the image is made with CENOTE_TEST_FULL=1 only: it takes ten seconds")
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount and to become somebody else")
    if (tried := subprocess.run([*APART, "true"], check=False, capture_output=True)).returncode != 0:
        pytest.skip(f"no namespaces of its own for a test: {tried.stderr.decode()}")
    skip_without_parts(IMAGE)
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        os.chmod(place, 0o755)
        root = Path(place) / "root"
        subprocess.run([IMAGE, root], check=True, env={**os.environ, "CENOTE_BINARY": str(BINARY)})
        for name in ("proc", "sys", "dev", "tmp", "disk"):
            (root / name).mkdir()
        for library in system_libraries(root / "opt" / "cenote" / "bin" / "cenote"):
            there = root / library.relative_to("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, there)
        yield root


class Container:
    """A node as the first process of a container."""

    def __init__(self, image: Path, place: Path) -> None:
        self.image = image
        self.node = Node(place / "run")
        self.volumes = [place / name for name in ("run", "state", "disk")]
        for each in self.volumes:
            each.mkdir()
            os.chown(each, USER, USER)

    def launch(self, *sets: str, group: str = "", prefix: tuple[str, ...] = ()) -> Container:
        ungated = "prefetch.assumed_tokens_per_s=0"  # disks of test machines may be slower than an engine
        settings = ["dram.capacity=64MiB", "log.format=json", ungated, *sets]
        environment = [f"{name}={value}" for name, value in image_environment().items()]
        self.node.command = [
            *(*APART, "sh", "-c", CONTAINER, "sh", str(self.image), *map(str, self.volumes), group, *prefix),
            *("setpriv", "--no-new-privs", "env", "-i", *environment),
            *("/usr/sbin/chroot", f"--userspec={USER}:{USER}", str(self.image), "cenote", "node"),
            *(word for each in settings for word in ("--set", each)),
        ]
        self.node.launch()
        return self

    def start(self, *sets: str, **options: Any) -> Container:
        self.launch(*sets, **options)
        until("the node answers", self.node._answers)
        return self

    @property
    def first_process(self) -> int:
        """Its number outside."""
        (child,) = Path(f"/proc/{self.node.pid}/task/{self.node.pid}/children").read_text().split()
        return int(child)

    def run(self, *command: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """As the runtime does for a health check."""
        within = ("nsenter", "--target", str(self.first_process), "--mount", "--pid", "--root")
        return subprocess.run(
            [*within, "--setuid", str(USER), "--setgid", str(USER), *command],
            capture_output=True,
            text=True,
            check=False,
            env=image_environment() | (environment or {}),
            timeout=LIMIT,
        )

    def stop(self) -> int:
        """SIGTERM to the first process, as a runtime sends it; the status of its end."""
        os.kill(self.first_process, 15)
        return self.node.wait()


@pytest.fixture
def container(image: Path, public: Path) -> Iterator[Container]:
    made = Container(image, public)
    yield made
    made.node.kill_everything()
    print(made.node.log_text()[-8000:])


def test_a_node_in_a_container_serves_an_engine_outside_and_ends_in_order(
    container: Container, start_agent: StartAgent
) -> None:
    container.start("nvme.paths=[/disk]", "nvme.capacity=256MiB")
    status = Path(f"/proc/{container.first_process}/status").read_text()
    assert re.search(rf"^Uid:\t{USER}\t", status, re.MULTILINE)
    assert re.search(r"^NSpid:\t\d+\t1$", status, re.MULTILINE), "the keeper is not the first process"
    assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
    node = container.node
    agent = start_agent(node)
    agent.call("attach", instance="i")
    assert agent.call("put", label="a", count=50) == 50
    assert agent.call("verify", label="a", count=50) == {"there": 50, "wrong": 0}
    # A folder that is mounted read-only, as an engine's pod has it, is enough to attach.
    read_only = ("unshare", "--mount", "sh", "-c", 'mount --bind -o ro "$0" "$0" && exec "$@"', str(node.folder))
    other = start_agent(node, prefix=read_only)
    other.call("attach", instance="i")
    assert other.call("verify", label="a", count=50) == {"there": 50, "wrong": 0}
    asked = container.run(*json.loads(setting("HEALTHCHECK").partition("CMD ")[2]))
    assert asked.returncode == 0, asked.stderr
    assert "serving" in asked.stdout
    agent.call("close")
    other.call("close")
    assert container.stop() == 0
    assert not node.socket.exists()
    (said,) = node.logged("blocks were written down before the end")
    assert said["written"] == 50
    node.finish()
    # The blocks that the stop wrote down are there again, for a pod that comes in its place.
    container.start("nvme.paths=[/disk]", "nvme.capacity=256MiB")
    agent = start_agent(node)
    agent.call("attach", instance="i")
    agent.call("prefetch", label="a", count=50)
    until("all blocks are back", lambda: agent.call("match", label="a", count=50) == 50)
    assert agent.call("verify", label="a", count=50) == {"there": 50, "wrong": 0}
    assert container.stop() == 0
    node.finish()


def test_the_quickstart_of_an_image_has_hits(container: Container) -> None:
    container.start()
    asked = container.run("cenote", "quickstart", "--json", environment={"TMPDIR": "/disk"})  # the root is read-only
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["hit_ratio"] > 0
    assert container.stop() == 0


def test_a_container_whose_runtime_forbids_io_uring_says_so_and_uses_threads(
    container: Container, start_agent: StartAgent
) -> None:
    forbid = (sys.executable, str(HERE / "clients" / "without_io_uring.py"), "1", "/usr/bin/env")
    container.start("nvme.paths=[/disk]", "nvme.capacity=256MiB", prefix=forbid)
    (said,) = until("it says so", lambda: container.node.logged("io_uring cannot be used"))
    assert said["level"] == "warn" and "Operation not permitted" in said["reason"]
    assert container.node.status()["nvme"]["paths"][0]["engine"] == "threads"
    assert container.stop() == 0


def test_an_engine_s_container_gets_the_client_by_a_copy_of_two_folders(container: Container, tmp_path: Path) -> None:
    """As packaging/kubernetes/examples/vllm.yaml has it."""
    container.start()
    for name in ("python", "lib"):
        shutil.copytree(container.image / "opt/cenote" / name, tmp_path / name, symlinks=True)
    environment = {**node_environment(), "PYTHONPATH": str(tmp_path / "python")}
    for name in ("CENOTE_LIBRARY", "LD_LIBRARY_PATH"):
        environment.pop(name, None)
    command = [sys.executable, "-c", CLIENT, str(container.node.socket)]
    client = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert client.returncode == 0, client.stderr
    assert client.stdout.strip() == str(tmp_path / "python/cenote/libcenote.so")
    assert container.stop() == 0


@contextlib.contextmanager
def memory_group(limit: int) -> Iterator[str]:
    """The file by which a process joins a new cgroup with that limit; skips where none can be made."""
    two = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    made = Path("/sys/fs/cgroup" if two else "/sys/fs/cgroup/memory") / f"cenote-test-{os.getpid()}"
    try:
        made.mkdir()
        (made / ("memory.max" if two else "memory.limit_in_bytes")).write_text(str(limit))
    except OSError as why:
        with contextlib.suppress(OSError):
            made.rmdir()
        pytest.skip(f"no cgroup with a limit can be made here: {why}")
    try:
        yield str(made / "cgroup.procs")
    finally:
        until("the cgroup is empty", lambda: not (made / "cgroup.procs").read_text())
        made.rmdir()


def test_a_container_s_limit_of_memory_bounds_the_capacity(container: Container, start_agent: StartAgent) -> None:
    with memory_group(256 * MiB) as group:
        container.launch("dram.capacity=512MiB", group=group)
        assert container.node.wait() != 0
        assert "is more than the cgroup's memory limit of 256.0 MiB" in container.node.log_text()
        container.start("dram.capacity=128MiB", group=group)
        container.node.until_populated()
        agent = start_agent(container.node)
        agent.call("attach", instance="i")
        assert agent.call("put", label="a", count=50) == 50
        assert container.stop() == 0


def test_the_client_s_library_loads_with_the_glibc_of_ubuntu_22_04(image: Path) -> None:
    """Images of engines are built on it; the node needs a newer one (docs/how-to/packaging.md)."""
    listed = subprocess.run(
        ["objdump", "-T", image / "opt/cenote/lib/libcenote.so.1"], capture_output=True, text=True, check=True
    ).stdout
    needed = {tuple(map(int, each.split("."))) for each in re.findall(r"GLIBC_([0-9.]+)", listed)}
    assert (2, 17) < max(needed) <= (2, 35)
