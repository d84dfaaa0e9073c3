"""`cenote optimize curve --sample` against the whole trace, and traces that memory has no room for."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from node import ROOT, node_environment, run_cenote

TRACES = ROOT / "tests/data/optimizer"
RECORDED = ROOT / "tests/data/traces"
SMALL = ("mooncake", "bailian", "tair-schema")


def curve(trace: Path, *arguments: str) -> dict[str, Any]:
    ended = run_cenote("optimize", "curve", trace, "--json", *arguments)
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def points(answer: dict[str, Any], curve_number: int = 0) -> dict[int, dict[str, Any]]:
    return {each["capacity"]: each for each in answer["curves"][curve_number]["points"]}


def rows(path: Path) -> Iterator[str]:
    """The lines of a packed trace as Mooncake publishes them."""
    for line in path.read_text().splitlines():
        fields = line.split(" ")
        if line.startswith("#") or len(fields) < 2:
            continue
        ids: list[int] = []
        for run in fields[2].split(",") if len(fields) > 2 and fields[2] else []:
            first, _, last = run.partition("-")
            ids += range(int(first), int(last or first) + 1)
        yield json.dumps({"timestamp": int(fields[0]), "input_length": int(fields[1]), "hash_ids": ids})


@pytest.fixture(scope="module", params=["conversation", "synthetic"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("recorded") / f"{request.param}.jsonl"
    path.write_text("\n".join(rows(RECORDED / f"{request.param}.txt")))
    return path


@pytest.mark.parametrize("name", SMALL)
def test_a_sample_of_all_blocks_has_the_hits_of_the_whole_trace(name: str) -> None:
    trace = TRACES / f"{name}.jsonl"
    whole, sample = curve(trace), curve(trace, "--sample")
    same = ("format", "lines", "left_out", "requests", "instances", "tokens", "blocks", "distinct", "block_tokens")
    assert {each: sample[each] for each in same} == {each: whole[each] for each in same}
    facts = sample["sample"]
    assert (facts["rate"], facts["distinct_error"]) == (1, 0)
    asked = [str(capacity) for capacity in range(0, 400, 3)]
    exact = points(curve(trace, "--capacities", ",".join(asked)))
    found = points(curve(trace, "--sample", "--capacities", ",".join(asked)))
    assert set(found) == {capacity for capacity in exact if capacity >= facts["least_capacity"] or capacity == 0}
    for capacity, point in found.items():
        if capacity > 256:  # distances are rounded there
            assert abs(point["hit_ratio"] - exact[capacity]["hit_ratio"]) <= 3 * point["error"]
        else:
            assert {**point, "error": 0} == {**exact[capacity], "error": 0}


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_recorded_trace_is_within_three_standard_errors(recorded: Path, seed: int) -> None:
    for blocks in ("2048", "8192"):
        sample = curve(
            recorded, "--sample", "--sample-blocks", blocks, "--sample-seed", str(seed), "--capacities", "1k:300k:1.3x"
        )
        found = points(sample)
        assert sample["sample"]["seed"] == seed
        assert len(found) > 4
        exact = points(curve(recorded, "--capacities", ",".join(map(str, found))))
        apart = [abs(found[each]["hit_ratio"] - exact[each]["hit_ratio"]) / found[each]["error"] for each in found]
        assert max(apart) <= 3
        assert all(each["error"] < 0.03 for each in found.values())


def test_other_policies_are_within_three_standard_errors_and_exact_up_to_the_blocks_of_their_caches(
    recorded: Path,
) -> None:
    asked = ("--policies", "tblru,lru,arc,mq,lfu", "--capacities", "0,2k,8k,12k,40k")
    sample, whole = curve(recorded, "--sample", "--sample-blocks", "128k", *asked), curve(recorded, *asked)
    assert [each["policy"] for each in sample["curves"]] == ["tblru", "lru", "arc", "mq", "lfu"]
    assert sample["sample"]["cache_blocks"] == 8_192
    for number, each in enumerate(sample["curves"]):
        found, exact = points(sample, number), points(whole, number)
        assert set(found) == set(exact)
        for capacity, point in found.items():
            apart = abs(point["hit_ratio"] - exact[capacity]["hit_ratio"])
            assert apart <= 3 * point["error"], (each["policy"], capacity)
            assert (point["error"] == 0) == (capacity <= 8_192) or each["policy"] == "lru"


def test_times_of_a_log_that_count_from_1970_are_those_of_the_whole_trace(tmp_path: Path) -> None:
    """TBLRU goes by times: in milliseconds taken for seconds no session would go on."""
    log = tmp_path / "absolute.jsonl"
    with log.open("w") as out:
        for line in (TRACES / "mooncake.jsonl").read_text().splitlines():
            request = json.loads(line)
            out.write(json.dumps({**request, "timestamp": 1_760_000_000 + request["timestamp"] / 1000}) + "\n")
    asked = ("--policies", "tblru", "--capacities", "20,40,80")
    assert [point["hit_blocks"] for point in points(curve(log, "--sample", *asked)).values()] == [
        point["hit_blocks"] for point in points(curve(log, *asked)).values()
    ]


def test_a_capacity_far_above_all_blocks_has_the_hits_of_an_endless_cache(recorded: Path) -> None:
    asked = ("--sample", "--sample-blocks", "128k", "--policies", "lru,arc,tblru", "--capacities", "1M,1000M,2000M")
    for seed in range(1, 4):
        sample = curve(recorded, *asked, "--sample-seed", str(seed))
        endless = points(sample, 0)[1_000_000]["hit_ratio"]
        for number in (1, 2):
            for point in points(sample, number).values():
                assert point["error"] > 0 and abs(point["hit_ratio"] - endless) <= 3 * point["error"]


def test_times_from_a_later_start_are_those_of_the_whole_trace(tmp_path: Path) -> None:
    """Policies count tenths of seconds, which a clock that begins elsewhere cuts elsewhere."""
    log = tmp_path / "later.jsonl"
    with log.open("w") as out:
        for line in (TRACES / "mooncake.jsonl").read_text().splitlines():
            request = json.loads(line)
            out.write(json.dumps({**request, "timestamp": request["timestamp"] + 57}) + "\n")
    converted = tmp_path / "later.ctrace"
    assert run_cenote("trace", "convert", log, "--out", converted).returncode == 0
    asked = ("--policies", "tblru", "--capacities", "20,40,60,80,100,120")
    for trace in (log, converted):
        assert [each["hit_blocks"] for each in points(curve(trace, "--sample", *asked)).values()] == [
            each["hit_blocks"] for each in points(curve(trace, *asked)).values()
        ]


def test_a_unit_that_the_first_time_does_not_show_is_a_warning(tmp_path: Path) -> None:
    log = tmp_path / "first.jsonl"
    lines = [json.loads(line) for line in (TRACES / "mooncake.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines):
        line["timestamp"] = 0 if number == 0 else 1_760_000_000 + number
    log.write_text("\n".join(map(json.dumps, lines)))
    ended = run_cenote("optimize", "curve", log, "--sample")
    assert ended.returncode == 0, ended.stderr
    assert "first.jsonl:2: `timestamp` looks like seconds since 1970, and is taken as milliseconds" in ended.stderr


def test_without_capacities_other_policies_have_those_of_lru(recorded: Path) -> None:
    sample = curve(recorded, "--sample", "--sample-blocks", "128k", "--policies", "lru,arc")
    assert list(points(sample, 0)) == list(points(sample, 1))
    alone = curve(recorded, "--sample", "--sample-blocks", "128k", "--policies", "arc")
    assert alone["curves"] == sample["curves"][1:]
    assert alone["capacity_for"] == sample["capacity_for"]


def test_other_policies_read_a_file_twice_and_refuse_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ended = run_cenote("optimize", "curve", pipe, "--sample", "--policies", "lru,arc")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "policies other than lru read the trace once more" in ended.stderr


def test_the_capacity_for_a_share_is_near_that_of_the_whole_trace(recorded: Path) -> None:
    whole = {each["share"]: each["capacity"] for each in curve(recorded)["capacity_for"]}
    sample = curve(recorded, "--sample", "--sample-blocks", "16k")["capacity_for"]
    assert sample
    for each in sample:
        share = points(curve(recorded, "--capacities", str(each["capacity"])))[each["capacity"]]["hit_ratio"]
        wanted = points(curve(recorded, "--capacities", str(whole[each["share"]])))[whole[each["share"]]]["hit_ratio"]
        assert abs(share - wanted) <= 3 * each["error"]


def test_a_ctrace_and_a_packed_log_are_sampled_as_the_log_is(recorded: Path, tmp_path: Path) -> None:
    converted = tmp_path / "t.ctrace"
    ended = run_cenote("trace", "convert", recorded, "--out", converted)
    assert ended.returncode == 0, ended.stderr
    asked = ("--sample", "--sample-blocks", "1M", "--capacities", "2k:64k:2x")
    of_file, of_log = curve(converted, *asked), curve(recorded, *asked)
    assert points(of_file) == points(of_log)
    assert of_file["capacity_for"] == of_log["capacity_for"]


def test_the_table_and_the_page_have_the_errors(tmp_path: Path) -> None:
    trace = TRACES / "mooncake.jsonl"
    page = tmp_path / "page.html"
    ended = run_cenote("optimize", "curve", trace, "--sample", "--report", page)
    assert ended.returncode == 0, ended.stderr
    assert "STANDARD ERROR" in ended.stdout
    assert "0.00 points" in ended.stdout
    assert "± 0.00 points" in page.read_text()


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_request_that_holds_nearly_all_blocks_has_points_with_each_seed(tmp_path: Path, seed: int) -> None:
    trace, blocks = tmp_path / "prefixes.jsonl", 20_000
    with trace.open("w") as out:
        for i in range(1, 11):
            ids = list(range(1, blocks * i // 10 + 1))
            out.write(json.dumps({"timestamp": i, "input_length": 512 * len(ids), "hash_ids": ids}) + "\n")
    found = curve(trace, "--sample", "--sample-blocks", "1024", "--sample-seed", str(seed))
    assert max(points(found)) >= blocks


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sample", "--policies", "lru,fifo"),
        ("--sample", "--policies", "2q"),
        ("--sample", "--policies", "auto"),
        ("--sample", "--policies", "belady"),
        ("--sample", "--order", "fwd"),
        ("--sample", "--quota", "rag=60,chat=60,code=40"),
        ("--sample", "--by-instance"),
        ("--sample", "--ttl", "10s"),
        ("--sample", "--warm-up", "10%"),
        ("--sample", "--water-levels", "97%:94%"),
        ("--sample", "--sample-blocks", "1000"),
        ("--sample", "--sample-blocks", "17M"),
        ("--sample", "--sample-seed", "-1"),
        ("--sample", "--capacities", "1,2"),
        ("--sample-blocks", "8192"),
        ("--sample-seed", "3"),
    ],
)
def test_what_means_nothing_with_a_sample_or_without_one_is_refused(arguments: tuple[str, ...]) -> None:
    ended = run_cenote("optimize", "curve", TRACES / "tair-schema.jsonl", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("cenote: ")


def test_reads_that_store_nothing_are_refused_with_their_line() -> None:
    ended = run_cenote("optimize", "curve", TRACES / "tair-log.jsonl", "--sample")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "tair-log.jsonl:1: reads and writes are requests of their own" in ended.stderr


def test_a_packed_ctrace_is_named_as_one(tmp_path: Path) -> None:
    converted, packed = tmp_path / "t.ctrace", tmp_path / "t.ctrace.gz"
    ended = run_cenote("trace", "convert", TRACES / "mooncake.jsonl", "--out", converted)
    assert ended.returncode == 0, ended.stderr
    packed.write_bytes(gzip.compress(converted.read_bytes()))
    for sample in ((), ("--sample",)):
        ended = run_cenote("optimize", "curve", packed, *sample)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "t.ctrace.gz is a .ctrace file that is packed, or comes through a pipe" in ended.stderr


def test_a_folder_of_temporary_files_that_is_not_there_leaves_the_usual_one(tmp_path: Path) -> None:
    converted = tmp_path / "t.ctrace"
    trace = tmp_path / "long.jsonl"
    with trace.open("w") as out:  # more references than stay in memory
        for i in range(1, 50):
            ids = list(range(1, 100_001))
            out.write(json.dumps({"timestamp": i, "input_length": 512 * len(ids), "hash_ids": ids}) + "\n")
    ended = run_cenote("trace", "convert", trace, "--out", converted)
    assert ended.returncode == 0, ended.stderr
    ended = run_cenote(
        "optimize", "curve", converted, "--sample", env={**node_environment(), "TMPDIR": str(tmp_path / "none")}
    )
    assert ended.returncode == 0, ended.stderr


def test_a_log_larger_than_memory_is_refused_by_its_size_and_the_sample_is_offered(tmp_path: Path) -> None:
    log = tmp_path / "huge.jsonl"
    log.write_text((TRACES / "mooncake.jsonl").read_text() * 3)
    os.truncate(log, 4 << 40)
    ended = run_cenote("optimize", "curve", log)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "by its first lines its requests take about" in ended.stderr
    assert "--sample estimates the curve in memory of a fixed size" in ended.stderr
