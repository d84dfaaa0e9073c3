"""`cenote optimize plan --verify`: a plan beside a replay of its trace through a node, and what is refused."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lru_model import TRACES
from node import node_environment, run_cenote

ENGINE = ("--prefill", "8000@4096", "--attention-pivot", "off", "--bytes-per-token", "131072")
DRAM, NVME = ("--tier", "dram:0.5ms:20GB/s"), ("--tier", "nvme:2ms:3GB/s")
HITS = ("--objective", "hits")
BLOCK_TOKENS = 512


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Conversations that share a system prompt and take turns; the oldest come back at last."""
    lines: list[dict[str, Any]] = []
    for turn in range(12):
        for talk in range(30):
            ids = [1, 2, *(1000 * (talk + 1) + block for block in range(4 + turn))]
            lines.append({"timestamp": 1000 * len(lines), "input_length": BLOCK_TOKENS * len(ids), "hash_ids": ids})
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line | {"output_length": 1}) + "\n" for line in lines))
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Conversations that come back sooner or later: no capacity is a cliff."""
    random = Random(5)
    talks: dict[int, list[int]] = {}
    lines: list[dict[str, Any]] = []
    block = 100
    for turn in range(1500):
        talk = min(int(random.expovariate(1 / 60)), 299)
        ids = talks.get(talk, [1, 2])
        if len(ids) > 24:
            ids = [1, 2]
        more = 1 + random.randrange(4)
        talks[talk] = ids = [*ids, *range(block, block + more)]
        block += more
        lines.append({"timestamp": 1000 * turn, "input_length": BLOCK_TOKENS * len(ids), "hash_ids": ids})
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(json.dumps(line | {"output_length": 1}) + "\n" for line in lines))
    return path


def run_plan(trace: Path, *arguments: str, **options: Any) -> Any:
    return run_cenote("optimize", "plan", trace, *ENGINE, *arguments, **options)


def verified(trace: Path, *arguments: str) -> dict[str, Any]:
    ended = run_plan(trace, *HITS, *arguments, "--verify", "--json")
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    found: dict[str, Any] = answer["verify"]
    assert found["hit_ratio_planned"] == pytest.approx(answer["best"]["hit_tokens"] / answer["tokens"])
    apart = 100 * abs(found["hit_ratio_planned"] - found["hit_ratio_replayed"])
    assert found["points_apart"] == pytest.approx(apart)
    assert found["points_apart"] <= found["bound"]
    assert found["kept"] is True
    assert found["hit_ratio_lowest"] <= found["hit_ratio_replayed"] <= found["hit_ratio_highest"]
    return found


def test_a_plan_of_lru_hits_in_a_node_what_it_says(trace: Path) -> None:
    found = verified(trace, *DRAM, "--capacities", "300")
    assert (found["runs"], found["bound"]) == (3, 0.5)
    assert 0 < found["hit_ratio_replayed"] < 0.8
    assert found["hit_ratio_dram"] == found["hit_ratio_replayed"]
    assert found["ttft_replayed"]["p50"] > 0


def test_a_plan_of_another_policy_has_the_wider_bound(mixed: Path) -> None:
    found = verified(mixed, *DRAM, "--capacities", "800", "--policies", "s3fifo", "--verify-runs", "1")
    assert (found["runs"], found["bound"]) == (1, 1.5)
    assert found["hit_ratio_lowest"] == found["hit_ratio_highest"] > 0


# The node evicts 256 blocks at a time: the levels lie no further apart, or requests would come between two steps.
@pytest.mark.parametrize("levels", ["97%:94%", "99%:70%", "50%:50%"])
def test_a_plan_with_water_levels_hits_in_a_node_with_these_marks_what_it_says(mixed: Path, levels: str) -> None:
    sizes = ("--capacities", "800", "--verify-runs", "1")
    found = verified(mixed, *DRAM, *sizes, "--water-levels", f"dram={levels}")
    assert found["bound"] == 0.5
    filled = verified(mixed, *DRAM, *sizes)
    assert found["hit_ratio_replayed"] < filled["hit_ratio_replayed"] - 0.01


def test_a_tier_with_levels_that_holds_the_whole_trace_evicts_nothing(trace: Path) -> None:
    found = verified(trace, *DRAM, "--capacities", "2000", "--verify-runs", "1", "--water-levels", "dram=50%:20%")
    endless = verified(trace, *DRAM, "--capacities", "2000", "--verify-runs", "1")
    assert found["hit_ratio_replayed"] == endless["hit_ratio_replayed"]


def test_a_plan_over_nvme_with_levels_of_both_is_replayed_with_both(mixed: Path) -> None:
    over = ("--tier", "dram:0.5ms:20GB/s:500", *NVME, "--capacities", "1000", "--verify-runs", "1")
    found = verified(mixed, *over, "--ingests", "all", "--water-levels", "dram=60%:50%,nvme=95%:80%")
    filled = verified(mixed, *over, "--ingests", "all")
    assert found["hit_ratio_dram"] < filled["hit_ratio_dram"] - 0.01
    assert found["hit_ratio_replayed"] < filled["hit_ratio_replayed"] - 0.01


def test_a_plan_whose_levels_a_node_has_no_marks_for_is_printed_and_not_replayed(mixed: Path) -> None:
    over = ("--tier", "dram:0.5ms:20GB/s:100", *NVME, "--capacities", "1000", "--water-levels", "dram=12%:10%")
    ended = run_plan(mixed, *HITS, *over, "--verify", "--json")
    assert (ended.returncode, json.loads(ended.stdout)["verify"]) == (1, None)
    assert "its low water mark would be" in ended.stderr


@pytest.mark.parametrize("ingest", ["evicted", "all"])
def test_a_plan_over_nvme_hits_in_both_tiers(mixed: Path, ingest: str) -> None:
    over = ("--tier", "dram:0.5ms:20GB/s:500", *NVME, "--capacities", "1000", "--ingests", ingest)
    found = verified(mixed, *over, "--verify-runs", "2")
    assert (found["runs"], found["bound"]) == (2, 1.5)
    assert 0 < found["hit_ratio_dram"] < found["hit_ratio_replayed"]


def test_the_text_has_the_rows_below_the_plan(trace: Path) -> None:
    ended = run_plan(trace, *HITS, *DRAM, "--capacities", "300", "--verify", "--verify-runs", "1")
    assert ended.returncode == 0, ended.stderr
    plan, _, rows = ended.stdout.partition("AGAINST A REPLAY")
    assert "[dram]" in plan
    assert "hits, of the tokens" in rows
    assert "ttft_p90 without waiting" in rows
    assert "360 requests, 1 time through a node" in ended.stderr


def test_a_replay_that_hits_less_ends_with_1_and_the_plan(trace: Path) -> None:
    # DRAM of less than a request: a plan takes its blocks one by one, a node takes them together.
    ended = run_plan(trace, *HITS, *DRAM, "--capacities", "8", "--verify", "--verify-runs", "1", "--json")
    answer = json.loads(ended.stdout)
    assert (ended.returncode, answer["verify"]["kept"]) == (1, False), ended.stderr
    assert answer["best"]["capacity"] == 8
    assert "over the bound of 0.5" in ended.stderr


def test_where_no_cache_is_best_nothing_is_replayed(trace: Path) -> None:
    dear = ("--price", "replica=1/h,dram=100000/GiB/h", "--slo", "ttft_p90=100s", "--capacities", "300")
    ended = run_plan(trace, *DRAM, *dear, "--verify", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["verify"] is None
    assert "nothing to replay" in ended.stderr


def test_a_plan_without_dram_is_printed_and_not_replayed(trace: Path) -> None:
    over = (*DRAM, *NVME, "--capacities", "dram=0", "--capacities", "nvme=300")
    ended = run_plan(trace, *HITS, *over, "--verify", "--json")
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["verify"] is None
    assert "without DRAM" in ended.stderr


def test_a_replay_leaves_no_directory_behind(trace: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="cr-") as home:  # short: a socket's path is bounded
        environment = node_environment() | {"TMPDIR": home}
        arguments = (*HITS, *DRAM, "--capacities", "300", "--verify", "--verify-runs", "1")
        assert run_plan(trace, *arguments, env=environment).returncode == 0
        assert list(Path(home).iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*DRAM, "--verify-runs", "2"), "--verify-runs is for --verify"),
        ((*DRAM, "--verify", "--verify-runs", "10"), "--verify-runs"),
        (("--tier", "gpu:0s:1TB/s:100", *DRAM, "--verify"), "the engine's own cache"),
        ((*DRAM, "--tier", "remote:2ms:3GB/s", "--verify"), "`remote` is none that it has there"),
        ((*NVME, "--verify"), "`nvme` is none that it has there"),
        ((*DRAM, "--policies", "lru,tblru+partial", "--verify"), "DRAM of a node has no policy `tblru+partial`"),
        ((*DRAM, "--tier", "nvme:2ms:3GB/s::tblru", "--verify"), "NVMe of a node has no policy `tblru`"),
        ((*DRAM, "--water-levels", "dram=97%:94%:100", "--verify"), "leave the batch out of --water-levels"),
    ],
)
def test_what_no_node_has_is_refused(trace: Path, arguments: tuple[str, ...], message: str) -> None:
    ended = run_plan(trace, *HITS, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


def test_a_trace_of_reads_apart_from_writes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "apart.jsonl"
    event = {"type": "GetCacheLocation", "source": "a", "query_type": "prefix_match"}
    path.write_text("\n".join(json.dumps(event | {"trigger_time_us": time, "keys": [1, time]}) for time in (2, 3, 4)))
    ended = run_plan(path, *HITS, *DRAM, "--verify")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--verify is for traces whose requests store what they ask for" in ended.stderr


def test_the_small_log_is_verified_in_the_blocks_that_it_has() -> None:
    found = verified(TRACES / "mooncake.jsonl", *DRAM, "--capacities", "200", "--verify-runs", "1")
    assert found["block_bytes"] == 8192
