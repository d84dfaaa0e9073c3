"""`scripts/wheel`: one file for pip that has client, adapters and programs, and needs nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import cenote
import pytest
from node import BINARY, ROOT, Node, free_port, until
from test_examples import run
from test_pack import CLIENT, RUNTIME, elf_files, skip_without_parts

WHEEL = ROOT / "scripts" / "wheel"
MOST_BYTES = 60_000_000
# Without what leads tests to a checkout's build.
BARE = ["env", *(f"--unset={name}" for name in os.environ if name.startswith(("CENOTE_", "LD_", "PYTHON")))]


def made_wheel(folder: Path) -> Path:
    run(WHEEL, folder, environment={"CENOTE_BINARY": str(BINARY)})
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel() -> Iterator[Path]:
    skip_without_parts(WHEEL)
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        yield made_wheel(Path(place))


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Iterator[Path]:
    """A virtual environment with the wheel and nothing else."""
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        run(sys.executable, "-m", "venv", "--without-pip", place)
        run(
            *BARE,
            sys.executable,
            "-m",
            "pip",
            "--python",
            place,
            "install",
            "--quiet",
            "--no-index",
            "--no-deps",
            wheel,
        )
        yield Path(place)


def test_no_library_needs_a_newer_glibc_than_the_tag_says(wheel: Path, environment: Path) -> None:
    (tag,) = re.findall(r"manylinux_2_(\d+)_", wheel.name)
    for each in elf_files(environment):
        needed = re.findall(r"GLIBC_2\.(\d+)", run("readelf", "--version-info", "--wide", each))
        assert all(int(minor) <= int(tag) for minor in needed), each


@pytest.mark.full
def test_auditwheel_finds_the_same_tag(wheel: Path) -> None:
    shown = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
    (tag,) = re.findall(r'constrains the platform tag to "(\w+)"', shown)
    assert wheel.name == f"cenote-{cenote.__version__}-py3-none-{tag}.whl"


def test_it_is_small_and_has_a_licence_for_each_library(wheel: Path) -> None:
    assert wheel.stat().st_size <= MOST_BYTES
    names = zipfile.ZipFile(wheel).namelist()
    programs = [f"cenote/_program/bin/{name}" for name in ("cenote", "cenote-services", "cenote-bench")]
    assert set(programs) <= set(names)
    licences = [name for name in names if name.startswith("cenote/_program/share/licenses/")]
    assert {"libucx0", "libcaf-core0.17", "cenote"} <= {Path(name).parent.name for name in licences}
    files = [Path(name).name for name in names]
    libraries = [name for name in files if ".so" in name]
    assert len(libraries) == len(set(libraries)), "a library lies there twice"


def test_each_library_is_of_a_listed_package_whose_licence_is_there(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    program = "cenote/_program/"
    listed = dict(line.split() for line in archive.read(f"{program}share/libraries.txt").decode().splitlines())
    bundled = {name.removeprefix(program) for name in archive.namelist() if name.startswith(f"{program}lib/")}
    assert {name for name in bundled if "/libcenote" not in name} == set(listed)
    for package in set(listed.values()):
        assert archive.getinfo(f"{program}share/licenses/{package}/copyright").file_size > 200


def test_its_node_serves_its_client_and_loads_nothing_of_the_machine(environment: Path, folder: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    node = Node(folder, "dram.capacity=16MiB", "metrics.listen=off", "cluster.name=a", f"cluster.listen={listen}")
    node.command = [*BARE, str(environment / "bin" / "cenote"), *node.command[1:]]
    try:
        node.start()
        library = run(*BARE, environment / "bin" / "python", "-c", CLIENT, node.socket)
        assert Path(library.strip()).is_relative_to(environment)
        assert "packed" in run(*BARE, environment / "bin" / "cenote", "status", "--socket", node.socket)
        maps = Path(f"/proc/{node.worker_pid}/maps")
        until("UCX has loaded a module", lambda: "/_program/lib/ucx/libuct_" in maps.read_text())
        mapped = {Path(line.split()[5]) for line in maps.read_text().splitlines() if ".so" in line}
        strangers = [
            each for each in mapped if not each.is_relative_to(environment) and not RUNTIME.fullmatch(each.name)
        ]
        assert strangers == []
        node.finish()
    finally:
        node.kill_everything()


def test_its_programs_run_and_python_finds_them(environment: Path) -> None:
    program = environment / "bin" / "cenote"
    assert run(*BARE, program, "--version").strip() == cenote.__version__
    assert "cores" in run(*BARE, program, "bench", "machine")
    assert "manager" in run(*BARE, program, "manager", "--help")
    assert json.loads(run(*BARE, program, "quickstart", "--json"))["hit_ratio"] > 0
    code = "from cenote import optimize; print(optimize.model('llama-3-8b', gpu='h100')['bytes_per_token'])"
    assert run(*BARE, environment / "bin" / "python", "-c", code).strip() == "131072"


def test_a_package_without_programs_says_how_to_get_them(tmp_path: Path) -> None:
    shutil.copy(ROOT / "python" / "cenote_program.py", tmp_path)
    (tmp_path / "cenote").mkdir()
    (tmp_path / "cenote" / "__init__.py").touch()
    code = "import cenote_program; cenote_program.main()"
    ended = subprocess.run(
        [*BARE, sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "scripts/wheel" in ended.stderr


@pytest.mark.full
def test_the_same_commit_makes_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    assert made_wheel(tmp_path).read_bytes() == wheel.read_bytes()
