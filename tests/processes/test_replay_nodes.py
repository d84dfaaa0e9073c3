"""`cenote replay --nodes` against real nodes of one cluster: what they give each other, and one that is killed."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from node import BINARY, ROOT, processes_naming, run_cenote, until
from test_examples import run
from test_replay_real import environment, run_json

SMALL = ("--engines", "1", "--block-bytes", "16KiB", "--dram", "16MiB", "--policy", "lru")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations that take turns, so that each turn comes to another node."""
    lines = []
    for turn in range(20):
        for talk in range(8):
            ids = [1, 2, *(1000 * (talk + 1) + block for block in range(3 + 2 * turn))]
            lines.append({"timestamp": turn, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids})
    path = tmp_path_factory.mktemp("nodes") / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def home() -> Iterator[Path]:
    """Where the replay's nodes make their directories; nothing may be left there."""
    with tempfile.TemporaryDirectory(prefix="cn-") as place:
        yield Path(place)
        assert list(Path(place).iterdir()) == []
        until("no process of the replay is left", lambda: not processes_naming(f"runtime_dir={place}/"))


def over_nodes(trace: Path, home: Path, *arguments: str | Path, **more: Any) -> dict[str, Any]:
    return run_json(trace, "--nodes", "3", *SMALL, *arguments, env=environment(home), **more)


def check_healthy(said: dict[str, Any]) -> None:
    assert said["failures"] == []
    assert said["requests"] == said["planned"] == 160
    assert said["wrong_blocks"] == said["failed_requests"] == 0
    assert said["verified_bytes"] > 0


def test_nodes_hit_what_others_have_stored_and_the_report_has_a_row_for_each(trace: Path, home: Path) -> None:
    page = home / "report.html"
    said = over_nodes(trace, home, "--report", page)
    check_healthy(said)
    assert [each["node"] for each in said["nodes"]] == ["node1", "node2", "node3"]
    assert {each["planned"] for each in said["nodes"]} == {53, 54}
    assert said["prefix_tokens_remote"] > 0
    assert sum(each["fetched"] for each in said["nodes"]) == sum(each["lent"] for each in said["nodes"]) > 0
    assert all(each["hosted"] > 0 for each in said["nodes"])
    assert said["simulated_nodes"]["copies"] == 0.05
    assert said["simulated"] is None
    assert said["simulated_nodes"]["alone_ratio"] < said["hit_ratio"]
    text = page.read_text()
    assert "<h2>Nodes</h2>" in text and "node3" in text
    page.unlink()


def test_by_prefix_a_conversation_stays_at_its_node(trace: Path, home: Path) -> None:
    said = over_nodes(trace, home, "--route", "prefix", "--set", "cluster.copies=1")
    check_healthy(said)
    assert said["simulated_nodes"]["copies"] is None
    assert said["prefix_tokens_dram"] > said["prefix_tokens_remote"]


def test_a_node_that_is_killed_half_way_comes_back_and_no_other_engine_sees_an_error(trace: Path, home: Path) -> None:
    said = over_nodes(trace, home, "--kill", "2@50%")
    check_healthy(said)
    assert [each["killed_at_s"] is not None for each in said["nodes"]] == [False, True, False]
    killed = said["nodes"][1]
    assert killed["back_after_s"] > 0
    assert killed["requests"] == killed["planned"]
    assert said["node_was_down"] == killed["node_was_down"]
    assert killed["node_was_down"] >= 1


def test_wrong_bytes_are_found_whichever_node_they_come_from(tmp_path: Path, home: Path) -> None:
    # The first node's engine makes all blocks, and spoils them; the others' find them a second later.
    lines = [{"timestamp": at, "input_length": 512 * 40, "hash_ids": list(range(40))} for at in (0, 1000, 1000)]
    trace = tmp_path / "spoilt.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    corrupting = environment(home, CENOTE_REPLAY_TEST_CORRUPT="1")
    said = run_json(trace, "--nodes", "3", *SMALL, "--speed", "1x", "--concurrency", "1", env=corrupting, code=1)
    assert [each["wrong_blocks"] > 0 for each in said["nodes"]] == [False, True, True]
    assert any("wrong bytes" in each for each in said["failures"])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--kill", "1@50%"], "--nodes"),
        (["--nodes", "3", "--kill", "4@50%"], "1@50%"),
        (["--nodes", "3", "--kill", "1"], "1@50%"),
        (["--nodes", "3,4"], "--simulate"),
        (["--nodes", "3", "--socket", "/nowhere"], "--socket"),
        (["--nodes", "16", "--engines", "5"], "--engines"),
        (["--route", "prefix"], "--nodes"),
        (["--nodes", "3", "--copies", "0"], "--simulate"),
        (["--simulate", "--nodes", "3"], "--capacity-sweep"),
        (["--simulate", "--nodes", "none", "--capacity-sweep", "9"], "1000"),
        (["--simulate", "--nodes", "3", "--capacity-sweep", "9", "--copies", "2"], "0 to 1"),
        (["--simulate", "--nodes", "3", "--capacity-sweep", "9", "--kill", "1@50%"], "real node"),
    ],
)
def test_what_makes_no_sense_is_refused(trace: Path, arguments: list[str], word: str) -> None:
    ended = run_cenote("replay", trace, *arguments)
    assert ended.returncode == 2
    assert word in ended.stderr


def test_simulated_pools_are_told_beside_one_node_of_all_their_memory(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "pools.html"
    how = ("--nodes", "3,4", "--capacity-sweep", "60", "--policies", "lru", "--copies", "0,1", "--order", "rev")
    ended = run_cenote("replay", trace, "--simulate", "--json", *how, "--report", page)
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(each["nodes"], each["copies"]) for each in lines] == [(3, 0), (3, None), (4, 0), (4, None)]
    for each in lines:
        assert each["local_tokens"] + each["remote_tokens"] == each["prefix_tokens"]
        assert each["of_one_node"] == pytest.approx(each["hit_ratio"] / each["one_node_hit_ratio"])
    assert lines[0]["hit_ratio"] > lines[1]["hit_ratio"]
    assert "<h2>Pools</h2>" in page.read_text()


def test_the_demonstration_replays_a_production_trace_over_nodes() -> None:
    small = ("2", "--requests", "150", "--dram", "16MiB")
    demo = ROOT / "scripts" / "demo_pool.py"
    said = run(sys.executable, demo, *small, environment={"CENOTE_BINARY": str(BINARY)})
    assert "0 wrong bytes, 0 engine errors" in said
    assert "killed at" in said
