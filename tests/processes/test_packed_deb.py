"""`scripts/deb`: packages that dpkg installs, upgrades and removes, and a node that runs as their unit makes it run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cenote
import pytest
from node import BINARY, FULL, ROOT, until
from test_examples import run
from test_pack import CLIENT

DEB = ROOT / "scripts" / "deb"

# A system of its own: this one's files below a layer of memory, where dpkg installs. $0 is a folder for its mounts.
SYSTEM = """
mount -t tmpfs none "$0" && mkdir "$0"/upper "$0"/work "$0"/root &&
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/root" || exit 3
for each in proc sys dev; do mount --rbind "/$each" "$0/root/$each" || exit 3; done
rm -rf "$0"/root/etc/cenote "$0"/root/var/lib/cenote; mkdir -p "$0/root/mnt" && echo ready && read -r line
"""

# As systemd runs the unit: all is read-only but the unit's directories, and the user is the unit's.
UNIT = """
for each in /run/cenote /var/lib/cenote /tmp; do mount --bind "$each" "$each" || exit; done
mount -o remount,bind,ro / && exec setpriv --reuid=cenote --regid=cenote --clear-groups --no-new-privs -- "$@"
"""

READER = """
import sys
import cenote

keys = [bytes([n]) * 32 for n in range(8)]
spec = cenote.InstanceSpec(id="packed", model="m", dtype="bf16", layout="page_first", tokens_per_block=16,
                           groups={"full": {"parts": {"kv": 4096}}}, hash_scheme="sha256_cbor",
                           fingerprint=None, instance_group=None)
with cenote.attach(spec, socket=sys.argv[1]) as session:
    ticket = session.prefetch(keys, "wait_complete", group="full", threshold_tokens=0)
    assert ticket.wait(timeout=30.0) == 8
    with session.acquire(keys) as held:
        assert [bytes(block.view("kv")) for block in held] == [bytes([n]) * 4096 for n in range(8)]
    ticket.release()
"""


def made_packages(folder: Path) -> list[Path]:
    run(DEB, folder, environment={"CENOTE_BINARY": str(BINARY)})
    return sorted(folder.glob("*.deb"))


@pytest.fixture(scope="module")
def packages() -> Iterator[list[Path]]:
    """The node's package and the one for programs."""
    if not FULL:
        pytest.skip("only with scripts/test --full: packing takes half a minute")
    if not DEB.exists() or not (BINARY.parent / "cenote-bench").exists():
        pytest.skip(f"nothing to pack: {DEB} or cenote-bench beside {BINARY} is missing")
    for program in ("dpkg-deb", "dh"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (debhelper)")
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        yield made_packages(Path(place))


class System:
    """A system that tests may install into."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", SYSTEM, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        self.is_there = self._holder.stdout.readline() == "ready\n"
        self.place = Path(f"/proc/{self._holder.pid}/root{self.root}")  # from outside

    def command(self, *command: str | Path) -> list[str]:
        return [
            "nsenter", f"--target={self._holder.pid}", "--mount", "chroot", str(self.root),
            "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", *map(str, command),
        ]  # fmt: skip

    def run(self, *command: str | Path) -> str:
        return run(*self.command(*command))

    def copy(self, source: Path) -> Path:
        """The path there."""
        target = Path("/mnt") / source.name
        if source.is_dir():
            shutil.copytree(source, self.place / target.relative_to("/"), dirs_exist_ok=True)
        else:
            shutil.copy(source, self.place / target.relative_to("/"))
        return target

    def close(self) -> None:
        self._holder.communicate("\n")


@pytest.fixture(scope="module")
def system(packages: list[Path]) -> Iterator[System]:
    """A system with the packages."""
    if os.geteuid() != 0:
        pytest.skip("dpkg installs as root alone")
    if shutil.which("systemd-sysusers") is None or shutil.which("systemctl") is None:
        pytest.skip("systemd is not installed, which the package needs for its user")
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        made = System(Path(place))
        try:
            if not made.is_there:
                pytest.skip("no mounts of its own for a test, or no overlay file system")
            made.run("dpkg", "--install", *map(made.copy, packages))
            made.copy(ROOT / "python")
            yield made
        finally:
            made.close()


class InstalledNode:
    """The node as the installed unit starts it."""

    socket = "/run/cenote/cenote.sock"

    def __init__(self, system: System, options: str = "") -> None:
        self.system = system
        unit = (system.place / "lib/systemd/system/cenote.service").read_text()
        (words,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        (mode,) = re.findall(r"^StateDirectoryMode=(.*)$", unit, re.MULTILINE)
        for name, bits in (("/run/cenote", "0755"), ("/var/lib/cenote", mode)):
            system.run("install", "-d", "-o", "cenote", "-g", "cenote", "-m", bits, name)
        self._command = ["STATE_DIRECTORY=/var/lib/cenote", *words.replace("$OPTIONS", options).split()]

    def __enter__(self) -> InstalledNode:
        command = self.system.command("unshare", "--mount", "sh", "-c", UNIT, "sh", "env", *self._command)
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        until("the node answers", self._answers)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        log = self._process.communicate(timeout=60)[0]
        assert self._process.returncode == 0, log

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(self._process.communicate()[0])
        with contextlib.suppress(AssertionError):
            return bool(self.status())
        return False

    def status(self) -> dict[str, dict[str, object]]:
        found = json.loads(self.system.run("cenote", "status", "--json", "--socket", self.socket))
        assert isinstance(found, dict)
        return found

    def client(self, program: str) -> None:
        library = "CENOTE_LIBRARY=/usr/lib/libcenote.so.1"
        self.system.run("env", library, "PYTHONPATH=/mnt/python", "/usr/bin/python3", "-c", program, self.socket)


@contextlib.contextmanager
def booted(system: System) -> Iterator[Path]:
    """As packages find a system that systemd runs: each unit is active. Orders have no effect; the file has them."""
    program, sign = system.place / "usr/bin/systemctl", system.place / "run/systemd/system"
    original = program.read_bytes()
    sign.mkdir(parents=True)
    (system.place / "usr/sbin/policy-rc.d").unlink(missing_ok=True)  # by which a container forbids all orders
    program.write_text('#!/bin/sh\necho "$*" >>/mnt/orders\n')
    yield system.place / "mnt/orders"
    program.write_bytes(original)
    sign.rmdir()


def test_the_packages_hold_what_their_names_say(packages: list[Path]) -> None:
    version = cenote.__version__
    node, development = (run("dpkg-deb", "--contents", each) for each in reversed(packages))
    architecture = run("dpkg", "--print-architecture").strip()
    assert {each.name for each in packages} == {
        f"{name}_{version}_{architecture}.deb" for name in ("cenote", "cenote-dev")
    }
    for file in (
        "usr/bin/cenote", "usr/bin/cenote-services", "usr/bin/cenote-bench", "usr/lib/libcenote.so.1",
        "usr/lib/libcenote_indexer.so.1", "lib/systemd/system/cenote.service", "usr/lib/sysusers.d/cenote.conf",
        "etc/cenote/cenote.toml", "usr/share/man/man8/cenote-node.8.gz", "usr/share/doc/cenote/copyright",
        "usr/share/doc/cenote/licenses/libxxhash-dev", "usr/share/bash-completion/completions/cenote",
    ):  # fmt: skip
        assert f" ./{file}" in node, file
    for file in ("usr/include/cenote.h", "usr/lib/libcenote.so", "usr/lib/pkgconfig/cenote.pc"):
        assert f" ./{file}" in development, file
    assert run("dpkg-deb", "--info", next(each for each in packages if "-dev" not in each.name), "conffiles") == (
        "/etc/cenote/cenote.toml\n"
    )


def test_the_same_build_makes_the_same_bytes(packages: list[Path], tmp_path: Path) -> None:
    assert [each.read_bytes() for each in made_packages(tmp_path)] == [each.read_bytes() for each in packages]


def test_lintian_finds_nothing_but_what_the_overrides_name(packages: list[Path]) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("lintian is not installed")
    assert run("lintian", "--allow-root", "--fail-on=error,warning", *packages) == ""


def test_a_node_of_the_unit_serves_and_finds_its_blocks_again(system: System) -> None:
    options = "--set nvme.paths=[/var/lib/cenote/nvme] --set nvme.capacity=128MiB --set prefetch.assumed_tokens_per_s=0"
    with InstalledNode(system, options) as node:
        assert "/etc/cenote/cenote.toml" in system.run("cenote", "config", "show").splitlines()[0]
        node.client(CLIENT)
        node.client(READER)
    with InstalledNode(system, options) as node:
        node.client(READER)


def test_the_quickstart_of_an_installed_system_has_hits(system: System) -> None:
    assert json.loads(system.run("cenote", "quickstart", "--json"))["hit_ratio"] > 0


def test_the_doctor_of_an_installed_system_compares_a_stop_with_the_limit_of_the_unit(system: System) -> None:
    disk = "--set nvme.paths=['/var/lib/cenote/nvme'] --set nvme.capacity=64MiB"

    def finding(*options: str) -> str:
        command = f"cenote doctor {' '.join(options)} | grep 'stop limit'"
        return " ".join(system.run("sh", "-c", command).split())

    assert finding(disk) == "ok stop limit 45s by cenote.service; a stop in order may take 27s"
    assert finding(disk, "--set node.flush_timeout=39s").startswith("warn stop limit 45s by cenote.service;")
    drop_in = system.place / "etc/systemd/system/cenote.service.d/stop.conf"
    drop_in.parent.mkdir(parents=True)
    drop_in.write_text("[Service]\nTimeoutStopSec=1min 30s\n")
    assert finding(disk, "--set node.flush_timeout=39s").startswith("ok stop limit 90s by cenote.service;")
    drop_in.unlink()
    drop_in.parent.rmdir()


def test_the_unit_leaves_a_node_nothing_to_write_but_its_directories(system: System) -> None:
    refused = subprocess.run(
        [*system.command("unshare", "--mount", "sh", "-c", UNIT, "sh"), "touch", "/etc/cenote/more"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Read-only file system" in refused.stderr


def test_an_upgrade_of_the_package_keeps_the_nodes_memory(system: System, packages: list[Path]) -> None:
    with InstalledNode(system) as node:
        node.client(CLIENT)
        before = node.status()["node"]
        with booted(system) as orders:
            assert "upgraded: version" in system.run("dpkg", "--install", *(f"/mnt/{each.name}" for each in packages))
            assert not re.search(r"\b(re)?start cenote\.service|\bstop\b", orders.read_text())
        after = node.status()["node"]
        assert (after["pid"], after["worker_pid"]) != (before["pid"], before["worker_pid"])
        node.client(READER)


def test_a_purge_takes_what_the_package_made_and_leaves_the_user(system: System) -> None:
    kept = system.place / "var/lib/cenote/kept"
    system.run("install", "-d", "-o", "cenote", "-m", "0700", "/var/lib/cenote")
    kept.touch()
    with booted(system) as orders:
        system.run("dpkg", "--remove", "cenote-dev", "cenote")
        assert re.search(r"\bstop cenote\.service", orders.read_text())
    assert kept.exists()
    assert (system.place / "etc/cenote/cenote.toml").exists()
    system.run("dpkg", "--purge", "cenote")
    assert not kept.parent.exists()
    assert not (system.place / "etc/cenote").exists()
    assert "cenote" in system.run("getent", "passwd", "cenote")
