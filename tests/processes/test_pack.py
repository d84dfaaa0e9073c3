"""`scripts/pack`: a folder that runs where nothing but glibc is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from node import BINARY, ROOT, Node, free_port, node_environment, until
from test_examples import run

# The parts of glibc, which come from the machine.
RUNTIME = re.compile(r"(ld-linux\S*|lib(c|m|mvec|dl|pthread|rt|resolv|util))\.so\.\d+")
PACK = ROOT / "scripts" / "pack"
EMPTY_ROOT = 'for each in proc sys; do mount --rbind "/$each" "$0/$each" || exit; done; exec chroot "$0" "$@"'

CLIENT = """
import sys
import cenote

keys, blocks = [bytes([n]) * 32 for n in range(8)], [bytes([n]) * 4096 for n in range(8)]
spec = cenote.InstanceSpec(id="packed", model="m", dtype="bf16", layout="page_first", tokens_per_block=16,
                           groups={"full": {"parts": {"kv": 4096}}}, hash_scheme="sha256_cbor",
                           fingerprint=None, instance_group=None)
with cenote.attach(spec, socket=sys.argv[1]) as session:
    session.put(keys, blocks)
    with session.acquire(keys) as held:
        assert [bytes(block.view("kv")) for block in held] == blocks
print(cenote._library.library._name)
"""


def skip_without_parts(script: Path) -> None:
    """`script` packs a build: it is here, with all that it packs and what it needs for that."""
    if not script.exists() or not (BINARY.parent / "cenote-bench").exists():
        pytest.skip(f"nothing to pack: {script} or cenote-bench beside {BINARY} is missing")
    if shutil.which("patchelf") is None:
        pytest.skip("patchelf is not installed; scripts/setup does that")


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """The root of a system that has the packed folder, at /cenote, glibc, and what the kernel shows."""
    skip_without_parts(PACK)
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        made = Path(place) / "root"
        for name in ("proc", "sys", "tmp"):
            (made / name).mkdir(parents=True)
        run(PACK, made / "cenote", "--tests", environment={"CENOTE_BINARY": str(BINARY)})
        for library in system_libraries(made / "cenote" / "bin" / "cenote"):
            there = made / library.relative_to("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, there)
        yield made


def elf_files(folder: Path) -> list[Path]:
    regular = [each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()]
    return [each for each in regular if each.open("rb").read(4) == b"\x7fELF"]


def system_libraries(program: Path) -> list[Path]:
    """The files of glibc that the loader finds for a program."""
    paths = re.findall(r"(/\S+) \(0x", run("ldd", program))
    return [Path(each) for each in paths if RUNTIME.fullmatch(Path(each).name)]


def in_empty_root(root: Path, *command: str) -> list[str]:
    """A command line that runs `command` in `root`; skips the test where the machine does not let it."""
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    inside = ["unshare", "--mount", *rights, "sh", "-c", EMPTY_ROOT, str(root)]
    tried = subprocess.run([*inside, "/cenote/bin/cenote", "--version"], capture_output=True, text=True, check=False)
    if tried.returncode and "unshare" in tried.stderr:
        pytest.skip(f"no mounts of its own for a test: {tried.stderr}")
    return [*inside, *command]


def test_every_library_of_a_packed_file_is_in_the_folder_or_a_part_of_glibc(root: Path) -> None:
    folder = root / "cenote"
    files = elf_files(folder)
    programs = {"cenote", "cenote-services", "cenote-bench"}
    libraries = {"libcenote.so.1", "libcenote_indexer.so.1", "libucp.so.0"}
    assert programs | libraries <= {each.name for each in files}
    for each in files:
        dynamic = run("readelf", "-d", each)
        paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic)
        searched = [
            Path(way.replace("$ORIGIN", str(each.parent))).resolve() for path in paths for way in path.split(":")
        ]
        assert all(way.is_relative_to(folder) for way in searched), f"{each} searches {paths}"
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            found = RUNTIME.fullmatch(name) or any((way / name).exists() for way in searched)
            assert found, f"{each} needs {name}, which is not packed"


def test_a_packed_node_serves_a_packed_client_from_a_root_that_has_nothing_else(root: Path, folder: Path) -> None:
    assert run(*in_empty_root(root, "/cenote/bin/cenote", "--version")).strip() == run(BINARY, "--version").strip()
    assert "cores" in run(*in_empty_root(root, "/cenote/bin/cenote", "bench", "machine"))
    there = root / folder.relative_to("/")  # one path of the runtime directory, inside and outside
    there.parent.mkdir(parents=True)
    folder.symlink_to(there)
    listen = f"127.0.0.1:{free_port()}"
    sets = ("dram.capacity=16MiB", "metrics.listen=off", "cluster.name=a", f"cluster.listen={listen}")
    node = Node(folder, *sets, environment={"STATE_DIRECTORY": "/tmp"})
    node.command = in_empty_root(root, "/cenote/bin/cenote", *node.command[1:])
    try:
        node.start()
        environment = {**node_environment(), "PYTHONPATH": str(root / "cenote" / "python")}
        for name in ("CENOTE_LIBRARY", "LD_LIBRARY_PATH"):
            environment.pop(name, None)
        command = [sys.executable, "-c", CLIENT, str(node.socket)]
        client = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert client.returncode == 0, client.stderr
        assert client.stdout.strip() == str(root / "cenote/python/cenote/libcenote.so")
        asked = in_empty_root(root, "/cenote/bin/cenote", "status", "--socket", str(node.socket))
        assert "packed" in run(*asked)
        maps = Path(f"/proc/{node.worker_pid}/maps")
        until("UCX has loaded a module", lambda: "/cenote/lib/ucx/libuct_" in maps.read_text())
        node.finish()
    finally:
        node.kill_everything()


def test_the_quickstart_of_a_packed_folder_has_hits_in_a_root_that_has_nothing_else(root: Path) -> None:
    found = json.loads(run(*in_empty_root(root, "/cenote/bin/cenote", "quickstart", "--json")))
    assert found["hit_ratio"] > 0
    assert found["wrong_blocks"] == 0


def test_the_licence_of_each_packed_library_is_in_the_folder(root: Path) -> None:
    folder = root / "cenote" / "share"
    packages = [line.split()[0] for line in (folder / "packages.txt").read_text().splitlines()]
    assert {"libucx0", "libstdc++6", "libc6", "nlohmann-json3-dev"} <= set(packages)
    for package in packages:
        assert package == "libc6" or (folder / "licenses" / package / "copyright").stat().st_size > 0
    assert (folder / "licenses" / "cenote" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    if not PACK.exists():
        pytest.skip(f"there is no {PACK}")
    (tmp_path / "mine").write_text("mine")
    refused = subprocess.run([PACK, tmp_path], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"{tmp_path} is not empty" in refused.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
