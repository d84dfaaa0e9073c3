"""`cenote optimize curve` as a user runs it, against a model of lists and against the cases of the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lru_model
import pytest
from lru_model import CASES, READERS, SIZE, TRACES, Request
from node import run_cenote

TENANTS = ("tair-log", "tair-schema")


def curve(trace: Path, *arguments: str | Path, size: int = SIZE) -> dict[str, Any]:
    ended = run_cenote("optimize", "curve", trace, "--json", "--block-tokens", str(size), *arguments)
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def points(answer: dict[str, Any], place: int = 0) -> list[tuple[int, int, int]]:
    return [(each["capacity"], each["hit_blocks"], each["hit_tokens"]) for each in answer["curves"][place]["points"]]


def check_curve(trace: Path, requests: list[Request], order: str, *arguments: str) -> dict[str, Any]:
    distinct = len({key for request in requests for key in request.keys})
    capacities = [*range(0, distinct + 2, 5), distinct, 10 * distinct]
    answer = curve(trace, "--order", order, "--capacities", ",".join(map(str, capacities)), *arguments)
    assert points(answer) == [(each, *lru_model.hits(requests, each, order, SIZE)) for each in capacities]
    asking = [request for request in requests if request.asks]
    assert {name: answer[name] for name in ("requests", "tokens", "blocks", "distinct", "block_tokens")} == {
        "requests": len(asking),
        "tokens": sum(request.tokens for request in asking),
        "blocks": sum(len(request.keys) for request in asking),
        "distinct": distinct,
        "block_tokens": SIZE,
    }
    for each in answer["curves"][0]["points"]:
        assert each["hit_ratio"] == pytest.approx(each["hit_tokens"] / answer["tokens"])
    return answer


@pytest.mark.parametrize("order", ["fwd", "rev"])
@pytest.mark.parametrize("name", READERS)
def test_the_curve_is_that_of_the_model_at_each_capacity(name: str, order: str) -> None:
    trace = TRACES / f"{name}.jsonl"
    answer = check_curve(trace, READERS[name](trace, SIZE), order, "--format", name)
    assert (answer["left_out"], answer["curves"][0]["order"]) == (0, order)


@pytest.mark.parametrize("name", READERS)
def test_the_format_is_told_by_the_content(name: str) -> None:
    trace = TRACES / f"{name}.jsonl"
    told = curve(trace)
    assert told["format"] == name
    assert told == curve(trace, "--format", name)


@pytest.mark.parametrize("name", READERS)
def test_the_capacity_for_a_share_is_the_smallest_one_that_has_it(name: str) -> None:
    trace = TRACES / f"{name}.jsonl"
    wanted = lru_model.capacities_for(READERS[name](trace, SIZE), SIZE)
    assert [(each["share"], each["capacity"]) for each in curve(trace)["capacity_for"]] == list(wanted)


def test_writes_that_fail_or_never_end_count_as_the_log_says(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []

    def event(time_ms: int, kind: str, source: str, **members: Any) -> None:
        rows.append({"type": kind, "source": source, "trigger_time_us": time_ms * 1000, **members})

    for turn in range(1, 30):
        source, start = ("a", "b", "c")[turn % 3], 1000 * turn
        keys = [*range(turn % 5 * 100, turn % 5 * 100 + 3 + turn % 4)]
        event(start, "GetCacheLocation", source, keys=keys)
        event(start + 1, "StartWriteCache", source, keys=keys, write_session_id=str(turn))
        if turn % 4 == 0:  # it comes behind another one's question
            event(start + 2, "GetCacheLocation", "a", keys=keys)
        stored = [True, turn % 2 == 0, *[True] * (len(keys) - 2)] if turn % 3 else len(keys) - turn % 2
        if turn % 7:
            event(start + 3, "FinishWriteCache", source, write_session_id=str(turn), success_block=stored)
    trace = tmp_path / "log.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for order in ("fwd", "rev"):
        check_curve(trace, lru_model.of_tair_log(trace, SIZE), order)


def test_a_dialogue_that_stores_more_than_it_asks_for_is_a_read_and_a_write(tmp_path: Path) -> None:
    requests = []
    rows = []
    for turn in range(1, 20):
        asked, stored = [*range(turn)], [*range(turn + 1)]
        row = {"instance_id": "i", "timestamp_us": turn, "keys": asked, "total_keys": stored, "input_len": SIZE * turn}
        rows.append(row)
        requests.append(Request(tuple(asked), SIZE * turn, stores=False))
        requests.append(Request(tuple(stored), SIZE * (turn + 1), asks=False))
    trace = tmp_path / "schema.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    check_curve(trace, requests, "rev")


def test_policies_stand_beside_each_other_and_belady_bounds_them() -> None:
    answer = curve(TRACES / "mooncake.jsonl", "--policies", "lru,arc,lru,belady", "--capacities", "0,20:320:2x")
    assert [(each["policy"], each["order"]) for each in answer["curves"]] == [
        ("lru", "rev"),
        ("arc", "rev"),
        ("belady", "fwd"),
    ]
    assert [capacity for capacity, _, _ in points(answer)] == [0, 20, 40, 80, 160, 320]
    for lru, arc, bound in zip(*(points(answer, place) for place in range(3)), strict=True):
        assert max(lru[1], arc[1]) <= bound[1]
    assert points(answer, 1)[0] == (0, 0, 0)


def test_the_table_has_what_the_object_has() -> None:
    trace = TRACES / "tair-schema.jsonl"
    answer = curve(trace)
    ended = run_cenote("optimize", "curve", trace)
    assert ended.returncode == 0
    assert (
        f"{answer['requests']} requests of {answer['instances']} instances, {answer['tokens']} tokens" in ended.stdout
    )
    lines = [line.split() for line in ended.stdout.splitlines()]
    for each in answer["curves"][0]["points"]:
        assert [str(each["capacity"]), f"{100 * each['hit_ratio']:.2f}", "%"] in lines
    for each in answer["capacity_for"]:
        assert [f"{100 * each['share']:.2f}", "%", str(each["capacity"])] in lines


def test_bad_lines_are_left_out_and_counted_and_too_many_are_an_error(tmp_path: Path) -> None:
    good = (TRACES / "bailian.jsonl").read_text().splitlines()
    bad = json.dumps({**json.loads(good[3]), "hash_ids": 0}).replace(": 0}", ": [1, " + "9" * 400 + "]}")
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join([*good[:3], bad, *good[3:]]) + "\n")
    ended = run_cenote("optimize", "curve", trace, "--json")
    assert ended.returncode == 0
    assert f"{trace}:4: a number here is none, or too large" in ended.stderr
    answer = json.loads(ended.stdout)
    whole = curve(TRACES / "bailian.jsonl")
    assert (answer.pop("lines"), answer.pop("left_out")) == (whole.pop("lines") + 1, whole.pop("left_out") + 1)
    assert answer == whole
    trace.write_text("\n".join([*good, *[bad] * 10]) + "\n")
    ended = run_cenote("optimize", "curve", trace)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "10 of 50 lines make no sense" in ended.stderr
    assert curve(trace, "--allow-left-out")["left_out"] == 10


def test_a_block_size_that_does_not_fit_the_lines_is_said() -> None:
    trace = TRACES / "mooncake.jsonl"
    ended = run_cenote("optimize", "curve", trace, "--json")
    assert ended.returncode == 0
    assert "ids and tokens fit blocks of 16 tokens, which are taken" in ended.stderr
    assert json.loads(ended.stdout) == curve(trace)
    ended = run_cenote("optimize", "curve", trace, "--block-tokens", "512")
    assert ended.returncode == 1
    assert "with a block for each 512 tokens there are 1; --block-tokens gives another number" in ended.stderr
    ended = run_cenote("optimize", "curve", trace, "--block-tokens", "4")
    assert ended.returncode == 0
    assert "with a block for each 4 tokens there are" in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--policies", "lru,none"),
        ("--capacities", "1k:x:2x"),
        ("--capacities", "-1"),
        ("--block-tokens", "0"),
        ("--format", "csv"),
        ("--order", "up"),
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments: tuple[str, str]) -> None:
    ended = run_cenote("optimize", "curve", TRACES / "mooncake.jsonl", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("cenote: ")


def test_a_trace_that_cannot_be_read_ends_with_1(tmp_path: Path) -> None:
    ended = run_cenote("optimize", "curve", tmp_path / "none.jsonl")
    assert (ended.returncode, ended.stdout) == (1, "")


@pytest.mark.skipif(not CASES.exists(), reason="the contract's cases are not beside the checkout")
@pytest.mark.parametrize(
    ("name", "case"),
    [(name, f"lru_{order}") for name in ("mooncake", "bailian") for order in ("fwd", "rev")]
    + [(name, "tenants_shared_rev") for name in TENANTS],
)
def test_the_contracts_cases_come_out(name: str, case: str) -> None:
    expected = json.loads((CASES / "expected.json").read_text())
    wanted = [(each["capacity"], each["hit_blocks"], each["hit_tokens"]) for each in expected[case]]
    capacities = ",".join(str(capacity) for capacity, _, _ in wanted)
    answer = curve(CASES / f"small.{name}.jsonl", "--format", name, "--order", case[-3:], "--capacities", capacities)
    assert points(answer) == wanted
    if name not in TENANTS:
        for member in ("requests", "tokens", "blocks", "distinct", "block_tokens", "capacity_for"):
            assert answer[member] == expected[member]


@pytest.mark.parametrize("levels", ["97%:94%", "80%:40%", "50%:50%:7"])
@pytest.mark.parametrize("name", ["mooncake", "bailian"])
def test_water_levels_are_those_of_the_model(name: str, levels: str) -> None:
    trace = TRACES / f"{name}.jsonl"
    marks = lru_model.Levels(*map(int, levels.replace("%", "").split(":")))
    capacities = [1, 5, 20, 60, 100, 200, 1000]
    answer = curve(trace, "--water-levels", levels, "--capacities", ",".join(map(str, capacities)))
    found = [each["hit_blocks"] for each in answer["curves"][0]["points"]]
    requests = READERS[name](trace, SIZE)
    model = [lru_model.levelled_hits(requests, each, marks) for each in capacities]
    assert found == model
    assert answer["water_levels"] == {"high": marks.high / 100, "low": marks.low / 100, "batch": marks.batch}


def test_water_levels_of_a_quota_are_those_of_its_own_cache() -> None:
    trace = TRACES / "tair-schema.jsonl"
    halved = curve(trace, "--quota", "rag=60,chat=60,code=40", "--water-levels", "50%:50%")
    whole = curve(trace, "--quota", "rag=60,chat=60,code=40")
    for part, full in zip(halved["by_instance"], whole["by_instance"], strict=True):
        assert part["curves"][0]["points"][0]["capacity"] == full["curves"][0]["points"][0]["capacity"]
        assert part["curves"][0]["points"][0]["hit_blocks"] <= full["curves"][0]["points"][0]["hit_blocks"]
    assert points(halved)[0][1] < points(whole)[0][1]


def test_wrong_capacities_are_told_what_is_right_here() -> None:
    trace = TRACES / "mooncake.jsonl"
    ended = run_cenote("optimize", "curve", trace, "--capacities", "x")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--capacities: `x` is no number of blocks; right are 0 to 2147483648, with k or M" in ended.stderr
    ended = run_cenote("optimize", "curve", trace, "--capacities", "2GiB")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "the bytes of a block are not known here" in ended.stderr
    assert "or bytes" not in ended.stderr


@pytest.mark.parametrize(
    "levels", ["97", "97%", "94%:97%", "100%:90%", "97%:0%", "97%:94%:0", "97%:94%:1:1", "-1%:-2%", "nan%:1%", "97%:"]
)
def test_water_levels_that_are_none_are_refused(levels: str) -> None:
    ended = run_cenote("optimize", "curve", TRACES / "mooncake.jsonl", "--water-levels", levels)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--water-levels" in ended.stderr


def test_belady_has_no_water_levels() -> None:
    ended = run_cenote(
        "optimize", "curve", TRACES / "mooncake.jsonl", "--policies", "lru,belady", "--water-levels", "97%:94%"
    )
    assert (ended.returncode, ended.stdout) == (2, "")
