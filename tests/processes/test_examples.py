"""The examples, built against an installed Cenote outside this checkout and run against a real node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import StartNode
from node import BINARY, LIMIT, ROOT, Node

BUILD = BINARY.parent
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    """What it printed; fails the test with that when the command fails."""
    ended = subprocess.run(
        [str(each) for each in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=4 * LIMIT,
        env=os.environ | (environment or {}),
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Cenote is installed, as `cmake --install` does it."""
    if not (BUILD / "cmake_install.cmake").exists():
        pytest.skip(f"{BUILD} is no build folder of CMake: there is nothing to install from")
    place = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", BUILD, "--prefix", place)
    return place


@pytest.fixture(scope="module")
def built(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples, configured with nothing but the prefix."""
    place = tmp_path_factory.mktemp("examples")
    flags = " ".join(WARNINGS)
    run(
        *("cmake", "-S", ROOT / "examples", "-B", place, f"-DCMAKE_PREFIX_PATH={prefix}"),
        *(f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_CXX_FLAGS={flags}"),
    )
    run("cmake", "--build", place)
    return place


@pytest.fixture
def running(start_node: StartNode) -> Node:
    return start_node("dram.slab_size=1MiB", capacity="16MiB")


@pytest.mark.parametrize("program", ["example_c", "example_cpp"])
def test_an_example_runs_against_an_installed_library_that_cmake_found(
    built: Path, running: Node, program: str
) -> None:
    for _ in range(2):  # also when the blocks are there already
        assert "all as it should be" in run(built / program, environment={"CENOTE_SOCKET": str(running.socket)})


def test_the_indexer_runs_in_a_program_that_has_neither_node_nor_server(built: Path) -> None:
    assert "all as it should be" in run(built / "example_indexer")


def test_an_example_says_what_is_wrong_when_there_is_no_node(built: Path, tmp_path: Path) -> None:
    nowhere = {"CENOTE_SOCKET": str(tmp_path / "cenote.sock")}
    for program in ("example_c", "example_cpp"):
        ended = subprocess.run([built / program], env=os.environ | nowhere, capture_output=True, text=True, check=False)
        assert ended.returncode == 1
        assert "not_running" in ended.stderr


def test_pkg_config_says_how_to_compile_and_link(prefix: Path, running: Node, tmp_path: Path) -> None:
    (described,) = prefix.rglob("cenote.pc")
    where = {"PKG_CONFIG_PATH": str(described.parent)}
    program, source = tmp_path / "example", ROOT / "examples" / "c" / "put_and_get.c"
    flags = run("pkg-config", "--cflags", "--libs", "cenote", environment=where).split()
    library = Path(run("pkg-config", "--variable=libdir", "cenote", environment=where).strip())
    assert (library / "libcenote.so").exists()
    run("cc", "-std=c99", *WARNINGS, source, "-o", program, *flags, f"-Wl,-rpath,{library}")
    assert "all as it should be" in run(program, environment={"CENOTE_SOCKET": str(running.socket)})


def test_pkg_config_knows_the_indexer_and_its_python_example_finds_the_library(prefix: Path, tmp_path: Path) -> None:
    (described,) = prefix.rglob("cenote_indexer.pc")
    where = {"PKG_CONFIG_PATH": str(described.parent)}
    program, source = tmp_path / "example", ROOT / "examples" / "c" / "score_pods.c"
    flags = run("pkg-config", "--cflags", "--libs", "cenote_indexer", environment=where).split()
    library = run("pkg-config", "--variable=libdir", "cenote_indexer", environment=where).strip()
    run("cc", "-std=c99", *WARNINGS, source, "-o", program, *flags, f"-Wl,-rpath,{library}")
    assert "all as it should be" in run(program)
    (package,) = prefix.rglob("cenote/__init__.py")
    environment = {"PYTHONPATH": str(package.parent.parent), "CENOTE_LIBRARY": "", "CENOTE_INDEXER_LIBRARY": ""}
    said = run(sys.executable, ROOT / "examples" / "python" / "score_pods.py", environment=environment)
    assert "all as it should be" in said


def test_the_python_example_runs_with_the_installed_package(prefix: Path, running: Node) -> None:
    (package,) = prefix.rglob("cenote/__init__.py")
    environment = {"CENOTE_SOCKET": str(running.socket), "PYTHONPATH": str(package.parent.parent), "CENOTE_LIBRARY": ""}
    said = run(sys.executable, ROOT / "examples" / "python" / "put_and_get.py", environment=environment)
    assert "all as it should be" in said
