"""`cenote replay --simulate` as a user runs it: no node."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import policies
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
    "left_out",
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
    names = ",".join([*policies.of_requests(), "belady"])
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
    below = both["lower"]["nvme"]
    assert (both["capacity"], below["ingest"], below["keep_copy"]) == (40, "evicted", False)
    for key in ("stream_hits", "prefix_hits", "prefix_tokens"):
        assert both[key] == one[key]


def test_each_tier_of_three_has_its_own_hits(trace: Path) -> None:
    (said,) = replay(trace, "--tiers", "dram=10,nvme=30,remote=1k", "--policies", "lru", "--ingest", "nvme=all")
    below = said["lower"]
    assert (below["nvme"]["ingest"], below["remote"]["ingest"]) == ("all", "all")
    by_tier = [said["upper_tokens"], *(each["prefix_tokens"] for each in below.values())]
    assert sum(by_tier) == said["prefix_tokens"] and all(by_tier)


def test_bad_lines_are_named_and_the_rest_goes_on(trace: Path) -> None:
    (before,) = replay(trace, "--capacity-sweep", "40", "--policies", "lru")
    text = trace.read_text().splitlines()
    trace.write_text("\n".join(["{broken", *text[:5], '{"timestamp": 1, "hash_ids": []}', *text[5:]]) + "\n")
    ended = run_cenote("replay", trace, "--simulate", "--json", "--capacity-sweep", "40", "--policies", "lru")
    assert ended.returncode == 0
    assert json.loads(ended.stdout) == before | {"left_out": 2}
    assert ended.stderr.splitlines() == [
        f"cenote: {trace}:1: this is no JSON",
        f"cenote: {trace}:7: `input_length` is missing",
    ]


def test_refusals_say_what_would_be_right(trace: Path) -> None:
    assert "known: fifo, lru" in refusal(trace, "--simulate", "--capacity-sweep", "1k", "--policies", "lru,newest")
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


def test_options_that_mean_nothing_together_are_refused(trace: Path) -> None:
    sweep = ("--simulate", "--capacity-sweep", "1k")
    assert "--policies simulates" in refusal(trace, "--policies", "lru")
    assert "--tails simulates" in refusal(trace, "--tails", "keep")
    assert "--policies" in refusal(trace, *sweep, "--policy", "lru")
    assert "--dram is for a real node" in refusal(trace, *sweep, "--dram", "1GiB")
    assert "add --tiers" in refusal(trace, *sweep, "--ingest", "hot")
    assert "--generate reads none" in refusal("--generate", "chat", *sweep, "--time-unit", "s")


def test_capacities_may_be_bytes(trace: Path) -> None:
    in_bytes, in_blocks = (
        replay(trace, "--capacity-sweep", capacity, "--policies", "lru", "--block-bytes", "1MiB")
        for capacity in ("10MiB,40MiB", "10,40")
    )
    assert in_bytes == in_blocks


def test_packed_traces_are_read_and_damaged_ones_named(trace: Path) -> None:
    sweep = ("--capacity-sweep", "40", "--policies", "lru")
    plain = replay(trace, *sweep)
    packed = trace.with_suffix(".gz")
    half = len(trace.read_bytes()) // 2
    packed.write_bytes(gzip.compress(trace.read_bytes()[:half]) + gzip.compress(trace.read_bytes()[half:]))
    assert replay(packed, *sweep) == plain
    members = packed.read_bytes()
    packed.write_bytes(members + bytes(100_000))  # as a tape or a disk fills its last block
    assert replay(packed, *sweep) == plain
    packed.write_bytes(members + bytes(10) + b"more")
    assert "is no whole gzip file" in run_cenote("replay", packed, "--simulate", *sweep).stderr
    packed.write_bytes(members[:-20])
    ended = run_cenote("replay", packed, "--simulate", *sweep)
    assert ended.returncode == 1
    assert f"{packed} is no whole gzip file" in ended.stderr
    if shutil.which("zstd") is None:
        pytest.skip("no zstd program here: gzip was tried")
    zstd = trace.with_suffix(".zst")
    subprocess.run(["zstd", "-q", str(trace), "-o", str(zstd)], check=True)
    assert replay(zstd, *sweep) == plain
    zstd.write_bytes(zstd.read_bytes()[:-20])
    assert "is no whole zstd file" in run_cenote("replay", zstd, "--simulate", *sweep).stderr


@pytest.mark.parametrize(
    ("form", "pack"), [("xz", lzma.compress), ("bzip2", bz2.compress), ("lz4", lambda text: b"\x04\x22\x4d\x18" + text)]
)
def test_a_packed_trace_of_another_form_is_refused_by_its_name(
    trace: Path, form: str, pack: Callable[[bytes], bytes]
) -> None:
    packed = trace.with_suffix(".packed")
    packed.write_bytes(pack(trace.read_bytes()))
    ended = run_cenote("replay", packed, "--simulate", "--capacity-sweep", "40", "--policies", "lru")
    assert ended.returncode == 1
    assert f"{packed} is packed as {form}; gzip and zstd are read" in ended.stderr


def test_more_than_a_tenth_left_out_is_an_error_unless_allowed(trace: Path) -> None:
    sweep = ("--simulate", "--capacity-sweep", "40", "--policies", "lru")
    trace.write_text(trace.read_text() + "{broken\n" * 20)
    ended = run_cenote("replay", trace, *sweep)
    assert ended.returncode == 1
    assert "20 of 98 lines" in ended.stderr
    assert "--allow-left-out" in ended.stderr
    ended = run_cenote("replay", trace, *sweep, "--allow-left-out")
    assert ended.returncode == 0
    assert "79: this is no JSON (19 more like it)" in ended.stderr
    assert "20 of the trace's 98 lines were left out" in ended.stdout


def test_simulated_times_may_be_divided_or_stand_still() -> None:
    sweep = ("--generate=chat:requests=600", "--simulate", "--json", "--capacity-sweep=500", "--policies=lru,tblru")

    def at(*speed: str) -> list[Any]:
        ended = run_cenote("replay", *sweep, *speed)
        assert ended.returncode == 0, ended.stderr
        return [json.loads(line) for line in ended.stdout.splitlines()]

    recorded, same, still = at(), at("--speed=1x"), at("--speed=max")
    assert recorded == same
    assert recorded[0] == still[0], "LRU knows no time"
    assert recorded[1] != still[1]
