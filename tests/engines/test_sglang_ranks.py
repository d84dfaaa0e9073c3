"""Two tensor-parallel ranks, each a process with SGLang's own tree and controller, joined by its collectives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from sglang_support import HERE, PATIENCE, Node

pytest_plugins = ["sglang_support"]


@pytest.fixture(scope="module")
def found(sglang_node: Node, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the two ranks found, of a model with ordinary and of one with latent attention."""
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-W", "ignore", str(HERE / "sglang_rank.py")]
    folder = tmp_path_factory.mktemp("ranks")
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(folder), str(sglang_node.socket)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=surroundings,
        )
        for rank in range(2)
    ]
    try:
        said = [each.communicate(timeout=200 * PATIENCE) for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    for each, (_, errors) in zip(ranks, said, strict=True):
        assert each.returncode == 0, errors[-3000:]
    return [json.loads(output.splitlines()[-1]) for output, _ in said]


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
