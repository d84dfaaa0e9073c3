"""`cenote replay --simulate` as a user runs it: no node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from node import run_cenote

KEYS = [
    "policy",
    "order",
    "capacity",
    "stream_hits",
    "prefix_hits",
    "prefix_tokens",
    "blocks",
    "tokens",
    "inserts",
    "evictions",
]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two sessions that take turns, and grow by a block each time."""
    lines = []
    for turn in range(1, 40):
        for session in (0, 1000):
            ids = [session + block for block in range(turn)]
            lines.append({"timestamp": turn * 60_000, "input_length": 512 * turn, "output_length": 9, "hash_ids": ids})
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def replay(trace: Path, *arguments: str) -> list[dict[str, Any]]:
    ended = run_cenote("replay", trace, "--simulate", "--json", *arguments)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def refusal(*arguments: str | Path) -> str:
    ended = run_cenote("replay", *arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    return ended.stderr


def test_json_has_a_line_for_each_policy_and_capacity(trace: Path) -> None:
    names = "fifo,lru,lfu,clock,sieve,s3fifo,arc,2q,mq,tblru,belady"
    lines = replay(trace, "--capacity-sweep", "10:1k:10x", "--policies", names)
    assert [(line["policy"], line["capacity"]) for line in lines] == [
        (name, capacity) for name in names.split(",") for capacity in (10, 100, 1000)
    ]
    total = 2 * sum(range(1, 40))
    for line in lines:
        assert list(line) == KEYS
        assert (line["order"], line["blocks"], line["tokens"]) == ("fwd", total, 512 * total)
        assert line["prefix_tokens"] == 512 * line["prefix_hits"]
        assert line["inserts"] - line["evictions"] <= line["capacity"]
        if line["capacity"] == 1000:
            assert line["stream_hits"] == total - 2 * 39


def test_order_rev_spares_parents(trace: Path) -> None:
    forward, reverse = (
        replay(trace, "--capacity-sweep", "40", "--policies", "lru", "--order", o) for o in ("fwd", "rev")
    )
    assert reverse[0]["order"] == "rev"
    assert reverse[0]["prefix_hits"] > forward[0]["prefix_hits"]


def test_the_table_has_a_row_a_policy(trace: Path) -> None:
    ended = run_cenote("replay", trace, "--simulate", "--capacity-sweep", "10,20", "--policies", "lru,arc")
    assert ended.returncode == 0
    rows = [line.split() for line in ended.stdout.splitlines()]
    assert ["POLICY", "10", "20"] in rows
    assert [row[0] for row in rows if len(row) == 3 and row[0] != "POLICY"] == ["lru", "arc", "lru", "arc"]


def test_an_exclusive_lru_over_lru_is_one_lru(trace: Path) -> None:
    (both,) = replay(trace, "--tiers", "dram=10,nvme=30", "--policies", "lru", "--keep-copy", "false")
    (one,) = replay(trace, "--capacity-sweep", "40", "--policies", "lru")
    assert both["tiers"] == {"dram": 10, "nvme": 30}
    assert (both["capacity"], both["ingest"], both["keep_copy"]) == (40, "evicted", False)
    for key in ("stream_hits", "prefix_hits", "prefix_tokens"):
        assert both[key] == one[key]


def test_bad_lines_are_named_and_the_rest_goes_on(trace: Path) -> None:
    (before,) = replay(trace, "--capacity-sweep", "40", "--policies", "lru")
    text = trace.read_text().splitlines()
    trace.write_text("\n".join(["{broken", *text[:5], '{"timestamp": 1, "hash_ids": []}', *text[5:]]) + "\n")
    ended = run_cenote("replay", trace, "--simulate", "--json", "--capacity-sweep", "40", "--policies", "lru")
    assert ended.returncode == 0
    assert json.loads(ended.stdout) == before
    assert ended.stderr.splitlines() == [
        f"cenote: {trace}:1: this is no JSON",
        f"cenote: {trace}:7: `input_length` is missing",
    ]


def test_refusals_say_what_would_be_right(trace: Path) -> None:
    assert "known: fifo, lru" in refusal(trace, "--simulate", "--capacity-sweep", "1k", "--policies", "lru,random")
    assert "fwd only" in refusal(
        trace, "--simulate", "--capacity-sweep", "1k", "--policies", "belady", "--order", "rev"
    )
    assert "--simulate" in refusal(trace, "--capacity-sweep", "1k")
    assert "--capacity-sweep or --tiers" in refusal(trace, "--simulate")
    assert "64k is 64,000" in refusal(trace, "--simulate", "--capacity-sweep", "1G")
    assert "keep-copy false needs" in refusal(
        trace, "--simulate", "--tiers", "a=1,b=2", "--keep-copy", "false", "--ingest", "hot"
    )
    ended = run_cenote("replay", trace.parent / "missing.jsonl", "--simulate", "--capacity-sweep", "1k")
    assert ended.returncode == 1
    assert "missing.jsonl" in ended.stderr
