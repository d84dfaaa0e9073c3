"""Fixtures of the tests that run real engines. The tests need no engine themselves: its processes do."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "processes"), str(ROOT / "python")]

from node import Node, finish_all  # noqa: E402
from redis import Redis  # noqa: E402
from selection import pytest_collection_modifyitems  # noqa: E402
from vllm_engine import Engine  # noqa: E402

__all__ = ["pytest_collection_modifyitems"]  # a hook: pytest finds it by its name here

StartNode = Callable[..., Node]
StartEngine = Callable[..., Engine]


def engine_python(engine: str) -> str:
    """The python of an engine's environment, made by scripts/engine-venv; skips where it cannot be installed."""
    made = subprocess.run(
        [str(ROOT / "scripts" / "engine-venv"), engine, "--path"], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"{engine} cannot be installed here: {(made.stderr.strip() or made.stdout).splitlines()[-1]}")
    return made.stdout.split()[-1]


@pytest.fixture(scope="session")
def vllm_python() -> str:
    return engine_python("vllm")


def _make_model(python: str, kind: str, folder: Path, **more: Any) -> Path:
    call = f"import pathlib, tiny_models; tiny_models.make_{kind}(pathlib.Path({str(folder)!r}), **{more!r})"
    subprocess.run([python, "-c", call], cwd=HERE, check=True, capture_output=True, env={**os.environ})
    return folder


@pytest.fixture(scope="session")
def llama(vllm_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _make_model(vllm_python, "llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def retrained(vllm_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with other weights."""
    return _make_model(vllm_python, "llama", tmp_path_factory.mktemp("retrained"), seed=1)


@pytest.fixture(scope="session")
def sliding(vllm_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _make_model(vllm_python, "sliding", tmp_path_factory.mktemp("sliding"))


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """start_node(*sets, capacity=…): a node that is stopped and looked over when the test is done."""
    nodes: list[Node] = []

    def start(*sets: str, capacity: str = "64MiB", launch_only: bool = False, **more: Any) -> Node:
        ungated = "prefetch.assumed_tokens_per_s=0"  # these engines compute slowly, and disks of test machines are slow
        nodes.append(Node(tmp_path / f"run{len(nodes)}", f"dram.capacity={capacity}", ungated, *sets, **more))
        return nodes[-1].launch() if launch_only else nodes[-1].start()

    yield start
    finish_all(nodes)


@pytest.fixture
def redis() -> Iterator[Redis]:
    """A Redis server for the remote tier of the test's nodes."""
    server = Redis()
    yield server
    server.close()


@pytest.fixture
def node(start_node: StartNode) -> Node:
    """A node of 64 MiB that lets tests alter what it holds."""
    return start_node("debug.enabled=true")


@pytest.fixture
def start_engine(vllm_python: str, tmp_path: Path) -> Iterator[StartEngine]:
    """start_engine(model, **arguments of vllm.LLM): an engine in a process of its own, ended with the test."""
    engines: list[Engine] = []
    numbers = itertools.count()

    def start(model: Path, **arguments: Any) -> Engine:
        engines.append(Engine(vllm_python, model, tmp_path / f"engine{next(numbers)}.log", **arguments))
        return engines[-1]

    yield start
    for each in engines:
        each.begin_to_stop()
    for each in engines:
        each.stop()
