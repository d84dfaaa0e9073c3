"""Two tensor-parallel ranks, each a process with SGLang's own tree and controller, joined by its collectives; on one
node, and each on a node of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sglang_support import HERE, PATIENCE, Node, until

from cluster import Cluster, kill_node

pytest_plugins = ["sglang_support"]


def start_rank(rank: int, folder: Path, node: Node, *more: str) -> subprocess.Popen[str]:
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(HERE / "sglang_rank.py"), str(rank), str(folder), str(node.socket), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=surroundings,
    )


def said_by(ranks: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """What they found, and under "log" what they logged."""
    try:
        said = [each.communicate(timeout=200 * PATIENCE) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    for each, (_, errors) in zip(ranks, said, strict=True):
        assert each.returncode == 0, errors[-3000:]
    return [{**json.loads(output.splitlines()[-1]), "log": errors} for output, errors in said]


@pytest.fixture(scope="module")
def found(sglang_node: Node, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the two ranks found, of a model with ordinary and of one with latent attention."""
    folder = tmp_path_factory.mktemp("ranks")
    return said_by([start_rank(rank, folder, sglang_node) for rank in range(2)])


@pytest.mark.timeout(300)
def test_ranks_keep_their_pages_apart_and_agree_on_the_shorter_prefix(found: list[dict[str, Any]]) -> None:
    ranks = [each["mha"] for each in found]
    page = ranks[0]["page"]
    assert ranks[1]["removed"] == 2
    for rank in ranks:
        assert rank["whole"] == rank["right"] == 12 * page
        assert rank["part"] == rank["right part"] == 7 * page
        assert sum(rank["stored"]) == 12


@pytest.mark.timeout(300)
def test_ranks_of_a_latent_attention_model_share_what_one_wrote(found: list[dict[str, Any]]) -> None:
    ranks = [each["mla"] for each in found]
    page = ranks[0]["page"]
    for rank in ranks:
        assert rank["whole"] == rank["right"] == 12 * page
        assert rank["part"] == rank["right part"] == 12 * page
    assert [sum(rank["stored"]) for rank in ranks] == [12, 0]


@pytest.mark.timeout(300)
def test_ranks_on_two_nodes_take_what_both_have_and_go_on_when_one_is_lost(
    start_sglang_node: Callable[..., Node], tmp_path: Path
) -> None:
    def start(*sets: str, capacity: str, **more: Any) -> Node:
        return start_sglang_node(f"dram.capacity={capacity}", *sets, **more)

    cluster = Cluster(start)
    nodes = cluster.form(2)
    ranks = [start_rank(rank, tmp_path, node, f"127.0.0.1:{cluster.ports[7]}") for rank, node in enumerate(nodes)]
    try:

        def all_say(what: str) -> bool:
            assert all(each.poll() is None for each in ranks), ranks[0].stderr.read() + ranks[1].stderr.read()  # type: ignore[union-attr]
            return all((tmp_path / f"{what}{rank}").exists() for rank in range(2))

        until("the ranks are ready", lambda: all_say("ready"), limit=120)
        kill_node(nodes[1])
        (tmp_path / "killed").touch()
        until("both know that one is lost", lambda: all_say("lost"))
        nodes[1].kill_everything()
        nodes[1].start()
        first, second = said_by(ranks)
    finally:
        for each in ranks:
            each.kill()
    for mine, others in zip(first["rounds"], second["rounds"], strict=True):
        assert mine["there"] == 12
        assert mine["found"] == mine["right"] == others["found"] == others["right"] == others["there"]
        assert mine["held"] == 0, "no pins are left of what the other one does not have"
    assert sum(each["there"] < 12 for each in second["rounds"]) >= 2
    for each in (first, second):
        assert set(each["while lost"]) == {0}
        assert each["losses"] == 1
        assert each["log"].count("lost each other") == 1
        assert each["after"] == {"there": 12, "found": 12, "right": 12, "held": 0}
