"""`cenote optimize analyze`, and instances with caches of their own, against models and the contract's cases."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import lru_model
import pytest
import trace_figures_model as model
from lru_model import CASES, READERS, SIZE, TRACES, Request
from node import run_cenote

JOINED = ("mooncake", "bailian", "tair-schema")
HOSTILE = 'a"]; x [label="\\'


def answer_of(command: str, trace: Path, *arguments: str | Path) -> dict[str, Any]:
    ended = run_cenote("optimize", command, trace, "--json", "--block-tokens", str(SIZE), *arguments)
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def analyze(trace: Path, *arguments: str | Path) -> dict[str, Any]:
    return answer_of("analyze", trace, *arguments)


def times_of(trace: Path) -> list[int]:
    """In ms, of formats that have a request a line; of the nearest microsecond."""
    rows = lru_model.rows(trace)
    if "timestamp_us" in rows[0]:
        return [row["timestamp_us"] // 1000 for row in rows]
    return [round(row["timestamp"] * (1e6 if "chat_id" in row else 1e3)) // 1000 for row in rows]


def refused(command: str, trace: Path, *arguments: str | Path, code: int = 2) -> str:
    ended = run_cenote("optimize", command, trace, "--block-tokens", str(SIZE), *arguments)
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    return ended.stderr


def schema_trace(path: Path, rows: list[tuple[str, int, list[int]]]) -> Path:
    path.write_text(
        "".join(
            json.dumps({"instance_id": name, "timestamp_us": 1000 * time, "keys": keys}) + "\n"
            for name, time, keys in rows
        )
    )
    return path


@pytest.mark.parametrize("name", READERS)
def test_the_analyses_are_those_of_the_model(name: str) -> None:
    trace = TRACES / f"{name}.jsonl"
    requests = READERS[name](trace, SIZE)
    answer = analyze(trace)
    hits = model.endless_hits(requests)
    asked = [lead for request, lead in zip(requests, hits, strict=True) if request.asks]
    assert answer["requests"] == len(asked)
    assert answer["frequency"] == model.frequency(requests)
    assert answer["gini"] == pytest.approx(model.gini(answer["frequency"]))
    once = dict(answer["frequency"]).get(1, 0)
    assert answer["one_use_share"] == pytest.approx(once / sum(some for uses, some in answer["frequency"] if uses > 0))
    assert answer["helpless"] == {"requests": asked.count(0), "share": pytest.approx(asked.count(0) / len(asked))}
    if answer["tree"]:
        assert answer["tree"] == model.tree(requests)
    if all(request.asks and request.stores for request in requests):
        assert answer["reuse_distance"] == model.reuse_distances(requests)


@pytest.mark.parametrize("name", JOINED)
def test_times_of_reuse_and_life_and_windows_are_those_of_the_model(name: str) -> None:
    trace = TRACES / f"{name}.jsonl"
    requests, times = READERS[name](trace, SIZE), times_of(trace)
    answer = analyze(trace, "--over-time", "3s", "--bytes-per-token", "1000")
    assert answer["reuse_ms"] == model.reuse_times(requests, times)
    for each in answer["over_time"]:
        assert each.pop("distinct_bytes") == each["distinct"] * SIZE * 1000
    assert answer["over_time"] == model.windows(requests, times, 3000, SIZE)
    assert answer["ttl"][-1]["hit_tokens"] == SIZE * sum(model.endless_hits(requests))
    for each in answer["ttl"]:
        assert each["hit_tokens"] == model.ttl_tokens(requests, times, each["seconds"], SIZE)


@pytest.mark.parametrize("name", JOINED)
def test_other_block_sizes_hit_what_the_model_hits(name: str) -> None:
    trace = TRACES / f"{name}.jsonl"
    requests = READERS[name](trace, SIZE)
    sizes = analyze(trace, "--capacity", "100")["block_sizes"]
    assert [each["block_tokens"] for each in sizes] == [16, 32, 64, 128, 256, 512, 1024]
    for each in sizes:
        factor = each["block_tokens"] // SIZE
        assert each["capacity"] == 100 // factor
        assert (each["endless_hit_tokens"], each["hit_tokens"]) == model.size_tokens(requests, factor, SIZE, 100)


def test_what_does_not_hold_is_left_out_with_its_reason(tmp_path: Path) -> None:
    no_forest = schema_trace(tmp_path / "trace.jsonl", [("a", 1, [1, 2]), ("a", 2, [3, 2])])
    answer = analyze(no_forest)
    for name in ("tree", "hot", "block_sizes"):
        assert answer[name] is None
        assert "behind two different ones" in answer["omitted"][name]
    assert answer["reuse_distance"]["cold"] == 3
    assert answer["omitted"]["turns"] == "all requests are of one session, or the format has none"
    assert "no tree of prefixes" in refused("analyze", no_forest, "--tree", tmp_path / "tree.dot", code=1)
    assert not (tmp_path / "tree.dot").exists()
    apart = tmp_path / "apart.jsonl"
    apart.write_text(json.dumps({"instance_id": "a", "timestamp_us": 1, "keys": [1], "total_keys": [1, 2]}) + "\n")
    answer = analyze(apart)
    for name in ("reuse_distance", "reuse_ms", "block_sizes", "ttl"):
        assert answer[name] is None
        assert answer["omitted"][name].startswith("reads and writes are requests of their own")
    assert answer["frequency"] == [[0, 1], [1, 1]]
    ended = run_cenote("optimize", "analyze", apart)
    assert ended.returncode == 0
    assert "without ttl: reads and writes are requests of their own" in ended.stdout


def test_sessions_have_delays_and_share_blocks() -> None:
    trace = TRACES / "bailian.jsonl"
    answer = analyze(trace)
    rows, times = lru_model.rows(trace), times_of(trace)
    sessions: dict[int, int] = {}
    of_rows = []
    for row in rows:
        sessions[row["chat_id"]] = sessions.get(row["parent_chat_id"], row["chat_id"])
        of_rows.append(sessions[row["chat_id"]])
    users: dict[Any, set[int]] = {}
    references: dict[Any, int] = {}
    for request, session in zip(lru_model.of_bailian(trace, SIZE), of_rows, strict=True):
        for key in request.keys:
            users.setdefault(key, set()).add(session)
            references[key] = references.get(key, 0) + 1
    shared = [key for key, some in users.items() if len(some) > 1]
    assert answer["sharing"] == {
        "sessions": {
            "count": len(set(of_rows)),
            "shared_blocks": len(shared),
            "shared_references": sum(references[key] for key in shared),
        },
        "instances": None,
    }
    delays: dict[int, list[int]] = {}
    last: dict[int, tuple[int, int]] = {}
    for session, time in zip(of_rows, times, strict=True):
        turn, before = last.get(session, (0, 0))
        if turn > 0:
            delays.setdefault(turn + 1, []).append(time - before)
        last[session] = (turn + 1, time)
    assert [(each["turn"], each["requests"], each["longest_ms"]) for each in answer["turns"]] == [
        (turn, len(some), max(some)) for turn, some in sorted(delays.items())
    ]
    for each in answer["turns"]:
        some = sorted(delays[each["turn"]])
        assert (each["p50_ms"], each["p90_ms"]) == (some[(len(some) - 1) // 2], some[-(-len(some) * 9 // 10) - 1])


def test_hot_runs_and_the_tree_file_agree(tmp_path: Path) -> None:
    trace = TRACES / "tair-schema.jsonl"
    tree_file = tmp_path / "tree.json"
    answer = analyze(trace, "--tree", tree_file, "--top", "1000000")
    tree = json.loads(tree_file.read_text())
    runs = {each["run"]: each for each in tree["runs"]}
    assert len(runs) == tree["all_runs"] == len(answer["hot"])
    assert sum(each["blocks"] for each in runs.values()) == answer["tree"]["nodes"]
    assert sum(each["parent"] is None for each in runs.values()) == answer["tree"]["roots"]
    assert max(each["depth"] + each["blocks"] for each in runs.values()) == answer["tree"]["depth"]
    saved = [each["tokens_saved"] for each in answer["hot"]]
    assert saved == sorted(saved, reverse=True)
    assert sum(saved) == SIZE * sum(model.endless_hits(lru_model.of_tair_schema(trace, SIZE)))
    for each in answer["hot"]:
        assert {**each, "parent": runs[each["run"]]["parent"]} == runs[each["run"]]
        parent = runs.get(runs[each["run"]]["parent"])
        assert each["depth"] == (parent["depth"] + parent["blocks"] if parent else 0)
    few = analyze(trace, "--tree", tree_file, "--top", "3")
    assert few["hot"] == answer["hot"][:3]
    written = {each["run"]: each["parent"] for each in json.loads(tree_file.read_text())["runs"]}
    assert {each["run"] for each in few["hot"]} <= written.keys()
    assert {parent for parent in written.values() if parent is not None} <= written.keys()


def test_names_of_instances_are_escaped_in_both_trees(tmp_path: Path) -> None:
    names = [HOSTILE, "a\n\x1b[31m&lt;", "é", "\\"]
    trace = schema_trace(tmp_path / "trace.jsonl", [(name, i, [1, 2, 3 + i]) for i, name in enumerate(names * 2)])
    analyze(trace, "--tree", tmp_path / "tree.json", "--top", "100")
    runs = json.loads((tmp_path / "tree.json").read_text())["runs"]
    assert {each["instance"] for each in runs} == set(names)
    analyze(trace, "--tree", tmp_path / "tree.dot", "--top", "100")
    lines = (tmp_path / "tree.dot").read_text().splitlines()
    assert (lines[:2], lines[-1]) == (["digraph prefixes {", "  node [shape=box];"], "}")
    label = r'"(?:[^"\\]|\\.)*"'
    nodes = [line for line in lines[2:-1] if re.fullmatch(rf"  r\d+ \[label={label}\];", line)]
    edges = [line for line in lines[2:-1] if re.fullmatch(r"  r\d+ -> r\d+;", line)]
    assert len(nodes) + len(edges) == len(lines) - 3
    assert len(nodes) == len(runs)
    assert len(edges) == sum(each["parent"] is not None for each in runs)
    assert "\x1b" not in "".join(lines)
    ended = run_cenote("optimize", "analyze", trace, "--by-instance")
    assert ended.returncode == 0
    assert "\x1b" not in ended.stdout


def by_name(trace: Path) -> dict[str, list[Request]]:
    parts: dict[str, list[Request]] = {}
    requests = lru_model.of_tair_schema(trace, SIZE)
    for row, request in zip(lru_model.rows(trace), requests, strict=True):
        parts.setdefault(row["instance_id"], []).append(request)
    return parts


def test_each_instance_is_analyzed_alone() -> None:
    trace = TRACES / "tair-schema.jsonl"
    parts = by_name(trace)
    answer = analyze(trace, "--by-instance")
    assert [each["instance"] for each in answer["by_instance"]] == list(parts)
    for each in answer["by_instance"]:
        requests = parts[each["instance"]]
        assert each["requests"] == len(requests)
        assert each["tokens"] == sum(request.tokens for request in requests)
        assert each["reuse_distance"] == model.reuse_distances(requests)
        assert each["frequency"] == model.frequency(requests)
        assert each["tree"] == model.tree(requests)


def test_each_instance_has_a_curve_and_a_quota_of_its_own() -> None:
    trace = TRACES / "tair-schema.jsonl"
    parts = by_name(trace)
    capacities = [0, 1, 7, 20, 60, 200]
    answer = answer_of("curve", trace, "--by-instance", "--capacities", ",".join(map(str, capacities)))
    assert [each["instance"] for each in answer["by_instance"]] == list(parts)
    for each in answer["by_instance"]:
        points = [(point["hit_blocks"], point["hit_tokens"]) for point in each["curves"][0]["points"]]
        assert points == [lru_model.hits(parts[each["instance"]], some, "rev", SIZE) for some in capacities]
        assert [some["capacity"] for some in each["capacity_for"]] == [
            some for _, some in lru_model.capacities_for(parts[each["instance"]], SIZE)
        ]
    quotas = {name: 5 + 30 * i for i, name in enumerate(parts)}
    answer = answer_of("curve", trace, "--quota", ",".join(f"{name}={blocks}" for name, blocks in quotas.items()))
    wanted = {name: lru_model.hits(parts[name], blocks, "rev", SIZE) for name, blocks in quotas.items()}
    (point,) = answer["curves"][0]["points"]
    assert point["capacity"] == sum(quotas.values())
    assert (point["hit_blocks"], point["hit_tokens"]) == tuple(map(sum, zip(*wanted.values(), strict=True)))
    assert point["hit_ratio"] == pytest.approx(point["hit_tokens"] / answer["tokens"])
    for each in answer["by_instance"]:
        (own,) = each["curves"][0]["points"]
        assert own["capacity"] == quotas[each["instance"]]
        assert (own["hit_blocks"], own["hit_tokens"]) == wanted[each["instance"]]


def test_instances_may_share_a_quota(tmp_path: Path) -> None:
    trace = TRACES / "tair-schema.jsonl"
    parts = by_name(trace)
    names = [row["instance_id"] for row in lru_model.rows(trace)]
    each = {name: iter(requests) for name, requests in parts.items()}
    shared = [next(each[name]) for name in names if name != "rag"]
    answer = answer_of("curve", trace, "--quota", "rag=20,code+chat=90")
    entries = {entry["instance"]: entry["curves"][0]["points"][0] for entry in answer["by_instance"]}
    assert set(entries) == {"rag", "code+chat"}
    for name, requests, blocks in (("rag", parts["rag"], 20), ("code+chat", shared, 90)):
        found = (entries[name]["hit_blocks"], entries[name]["hit_tokens"])
        assert (entries[name]["capacity"], *found) == (blocks, *lru_model.hits(requests, blocks, "rev", SIZE))
    (point,) = answer["curves"][0]["points"]
    assert point["capacity"] == 110
    assert point["hit_blocks"] == sum(entry["hit_blocks"] for entry in entries.values())
    assert "`chat` has two quotas" in refused("curve", trace, "--quota", "chat=5,code+chat=5,rag=1")
    assert "no instance `cod`; did you mean `code`?" in refused("curve", trace, "--quota", "cod+chat=5,rag=1")
    plus = schema_trace(tmp_path / "plus.jsonl", [("a+b", 1, [1]), ("a", 2, [1]), ("b", 3, [1])])
    alone = answer_of("curve", plus, "--quota", "a+b=1,a=2,b=3")
    assert [entry["instance"] for entry in alone["by_instance"]] == ["a+b", "a", "b"]


def test_merged_instances_share_equal_keys(tmp_path: Path) -> None:
    rows = [(("a", "b", "c")[i % 3], i, [1, 2, 3 + i % 4]) for i in range(40)]
    trace = schema_trace(tmp_path / "trace.jsonl", rows)
    merged = [Request(tuple(keys), SIZE * len(keys)) for _, _, keys in rows]
    capacities = [0, 1, 3, 5, 10, 50]
    answer = answer_of("curve", trace, "--merge-instances", "--capacities", ",".join(map(str, capacities)))
    points = [(each["hit_blocks"], each["hit_tokens"]) for each in answer["curves"][0]["points"]]
    assert points == [lru_model.hits(merged, capacity, "rev", SIZE) for capacity in capacities]
    sharing = analyze(trace, "--merge-instances")["sharing"]["instances"]
    assert sharing == {"count": 3, "shared_blocks": 6, "shared_references": 3 * len(rows)}
    alone = analyze(trace)
    assert alone["sharing"]["instances"] is None
    assert "--merge-instances lets them" in alone["omitted"]["sharing.instances"]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("order", ["fwd", "rev"])
def test_a_warm_up_is_left_out_of_the_sums(name: str, order: str) -> None:
    trace = TRACES / f"{name}.jsonl"
    requests = model.joined(READERS[name](trace, SIZE))
    capacities = [1, 20, 60, 1000]
    whole = answer_of("curve", trace, "--order", order, "--capacities", ",".join(map(str, capacities)))
    answer = answer_of(
        "curve", trace, "--order", order, "--capacities", ",".join(map(str, capacities)), "--warm-up", "25%"
    )
    first = requests[: answer["warm_up"]]
    assert 0 < len(first) <= len(requests) // 4
    asked = [request for request in requests[len(first) :] if request.asks]
    assert (answer["requests"], answer["tokens"]) == (len(asked), sum(request.tokens for request in asked))
    for point, all_point in zip(answer["curves"][0]["points"], whole["curves"][0]["points"], strict=True):
        blocks, tokens = lru_model.hits(first, point["capacity"], order, SIZE)
        assert point["hit_blocks"] == all_point["hit_blocks"] - blocks
        assert point["hit_tokens"] == all_point["hit_tokens"] - tokens


def test_a_warm_up_of_all_is_that_of_each_instances_own_requests_among_them() -> None:
    trace = TRACES / "tair-schema.jsonl"
    names = [row["instance_id"] for row in lru_model.rows(trace)]
    parts = by_name(trace)
    quotas = ",".join(f"{name}=40" for name in parts)
    by_quota = answer_of("curve", trace, "--quota", quotas, "--warm-up", "30%")
    by_curve = answer_of("curve", trace, "--by-instance", "--capacities", "40", "--warm-up", "30%")
    assert by_quota["warm_up"] == by_curve["warm_up"] == len(names) * 3 // 10
    for answer in (by_quota, by_curve):
        assert sum(each["requests"] for each in answer["by_instance"]) == answer["requests"]
        assert sum(each["tokens"] for each in answer["by_instance"]) == answer["tokens"]
        for each in answer["by_instance"]:
            requests = parts[each["instance"]]
            first = requests[: names[: answer["warm_up"]].count(each["instance"])]
            (point,) = each["curves"][0]["points"]
            whole, warm = (lru_model.hits(some, 40, "rev", SIZE)[0] for some in (requests, first))
            assert (each["requests"], point["hit_blocks"]) == (len(requests) - len(first), whole - warm)


def test_more_instances_than_an_answer_shows_are_refused(tmp_path: Path) -> None:
    trace = schema_trace(tmp_path / "trace.jsonl", [(str(i), i, [1]) for i in range(10_001)])
    for command in ("analyze", "curve"):
        assert "10001 instances; up to 10000" in refused(command, trace, "--by-instance", code=1)
    assert answer_of("curve", trace)["instances"] == 10_001


def test_quotas_that_do_not_fit_the_trace_are_refused_with_the_nearest_name(tmp_path: Path) -> None:
    trace = schema_trace(tmp_path / "trace.jsonl", [("chat", 1, [1]), ("code", 2, [1])])
    assert "no instance `caht`; did you mean `chat`?" in refused("curve", trace, "--quota", "caht=5,code=5")
    assert "no instance `zzzzzzzz`; one of them is `chat`" in refused("curve", trace, "--quota", "zzzzzzzz=5")
    assert "instance `code` has none; each instance needs one" in refused("curve", trace, "--quota", "chat=5")
    assert "stands there twice" in refused("curve", trace, "--quota", "chat=5,chat=5")
    assert "INSTANCE=BLOCKS" in refused("curve", trace, "--quota", "chat")
    nameless = TRACES / "mooncake.jsonl"
    assert "format mooncake has no names of instances" in refused("curve", nameless, "--quota", "a=5")
    assert "goes without --capacities" in refused("curve", trace, "--quota", "chat=1,code=1", "--capacities", "5")
    assert "goes without --policies" in refused("curve", trace, "--quota", "chat=1,code=1", "--order", "fwd")
    assert "--merge-instances" in refused("curve", trace, "--by-instance", "--merge-instances")
    assert "belady looks ahead" in refused("curve", trace, "--warm-up", "10%", "--policies", "belady")
    assert answer_of("curve", trace, "--quota", "chat=0,code=1")["curves"][0]["points"][0]["capacity"] == 1


def test_what_engines_had_themselves_is_told_apart_and_kept_in_a_trace_file(tmp_path: Path) -> None:
    log, kept = tmp_path / "masks.jsonl", tmp_path / "kept.ctrace"
    masks: list[Any] = [None, 2, [True, True, False, True], 99, []]
    rows = [
        {"instance_id": "a", "timestamp_us": 1000 * i, "keys": [1, 2, 3, 4], "block_mask": mask}
        for i, mask in enumerate(masks)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run_cenote("trace", "convert", log, "--block-tokens", str(SIZE), "--out", kept).returncode == 0
    wanted = {
        "requests": 3,
        "blocks": 2 + 2 + 4,
        "tokens": SIZE * 8,
        "endless_more_blocks": 2 + 2 + 0 + 4,
        "endless_more_tokens": SIZE * 8,
    }
    for trace in (log, kept):
        assert analyze(trace)["engine_hits"] == wanted
        ended = run_cenote("optimize", "analyze", trace, "--block-tokens", str(SIZE))
        assert "ENGINES HAD 40.00 % of the tokens themselves, in 3 requests" in ended.stdout
    assert "engine_hits" in analyze(TRACES / "mooncake.jsonl")["omitted"]
    log.write_text(json.dumps(rows[0] | {"block_mask": "two"}) + "\n")
    assert "`block_mask` is neither a number nor a list" in refused("analyze", log, code=1)


def test_a_trace_file_keeps_the_names_of_instances_unless_it_is_anonymised(tmp_path: Path) -> None:
    log, kept, hidden = TRACES / "tair-schema.jsonl", tmp_path / "kept.ctrace", tmp_path / "hidden.ctrace"
    for command, target in (("convert", kept), ("anonymise", hidden)):
        ended = run_cenote("trace", command, log, "--block-tokens", str(SIZE), "--out", target)
        assert ended.returncode == 0, ended.stderr
    names = [each["instance"] for each in answer_of("curve", log, "--by-instance")["by_instance"]]
    assert sorted(names) == ["chat", "code", "rag"]
    quotas = ",".join(f"{name}=40" for name in names)
    by_log, by_file = (answer_of("curve", each, "--quota", quotas) for each in (log, kept))
    assert (by_file["curves"], by_file["by_instance"]) == (by_log["curves"], by_log["by_instance"])
    assert "has no names of instances" in refused("curve", hidden, "--quota", quotas)
    assert not any(name.encode() in hidden.read_bytes() for name in names)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--over-time", "60"),
        ("--over-time", "1us"),
        ("--tree", "tree.svg"),
        ("--top", "0"),
        ("--capacity", "x"),
        ("--bytes-per-token", "100"),
        ("--bytes-per-token", "0", "--over-time", "1s"),
    ],
)
def test_a_wrong_command_line_of_analyze_ends_with_2(arguments: tuple[str, ...]) -> None:
    assert refused("analyze", TRACES / "mooncake.jsonl", *arguments).startswith("cenote: ")


@pytest.mark.parametrize("name", JOINED)
def test_a_time_to_live_hits_what_the_analysis_says_of_it(name: str) -> None:
    trace = TRACES / f"{name}.jsonl"
    merged = () if name != "tair-schema" else ("--merge-instances",)
    rows = analyze(trace, *merged)["ttl"]
    assert rows
    for row in rows:
        endless = answer_of("curve", trace, "--ttl", f"{row['seconds']}s", "--capacities", "100000", *merged)
        (point,) = endless["curves"][0]["points"]
        assert (point["hit_blocks"], point["hit_tokens"]) == (row["hit_blocks"], row["hit_tokens"]), row
        fixed = answer_of(
            "curve", trace, "--ttl", f"{row['seconds']}s", "--ttl-from", "insertion", "--capacities", "100000", *merged
        )
        assert fixed["curves"][0]["points"][0]["hit_blocks"] <= row["hit_blocks"]


def test_a_time_to_live_goes_with_what_it_means_something_for(tmp_path: Path) -> None:
    trace = TRACES / "mooncake.jsonl"
    assert "belady knows no time to live" in refused("curve", trace, "--ttl", "1s", "--policies", "lru,belady")
    assert "--ttl gives" in refused("curve", trace, "--ttl-from", "insertion")
    assert "1ms or more" in refused("curve", trace, "--ttl", "10us")
    assert "--ttl" in refused("curve", trace, "--ttl", "soon")
    timeless = tmp_path / "timeless.jsonl"
    timeless.write_text('{"input_length": 64, "output_length": 1, "hash_ids": [1, 2, 3, 4]}\n' * 3)
    assert "no times" in refused("curve", timeless, "--ttl", "1s")


def test_what_times_say_is_omitted_of_a_trace_without_them(tmp_path: Path) -> None:
    timeless, page = tmp_path / "timeless.jsonl", tmp_path / "page.html"
    lines = [{"instance_id": "ab"[i % 2], "keys": [1, 2, i // 2 + 3], "timestamp_us": 7} for i in range(8)]
    timeless.write_text("".join(json.dumps(line) + "\n" for line in lines))
    answer = analyze(timeless, "--over-time", "1s", "--by-instance", "--report", page)
    for part in (answer, *answer["by_instance"]):
        for name in ("reuse_ms", "turns", "ttl", "over_time"):
            assert part[name] is None
            assert "`timestamp`" in part["omitted"][name]
        assert part["reuse_distance"]["below"]
    assert "Reuse distance" in page.read_text()
    ended = run_cenote("optimize", "analyze", timeless, "--over-time", "1s")
    assert "without ttl: `timestamp` is missing" in ended.stdout
    assert not any(heading in ended.stdout for heading in ("TIME BELOW", "OVER TIME", "TTL"))


@pytest.mark.parametrize("share", ["10", "95%", "-1%", "%"])
def test_a_warm_up_is_a_share_that_leaves_something(share: str) -> None:
    refused("curve", TRACES / "mooncake.jsonl", f"--warm-up={share}")


def test_the_tables_have_what_the_object_has() -> None:
    trace = TRACES / "bailian.jsonl"
    answer = analyze(trace)
    ended = run_cenote("optimize", "analyze", trace)
    assert ended.returncode == 0
    assert f"NO CAPACITY HELPS {answer['helpless']['requests']} requests" in ended.stdout
    assert f"PREFIX TREE: {answer['tree']['nodes']} blocks, {answer['tree']['roots']} roots" in ended.stdout
    lines = [line.split() for line in ended.stdout.splitlines()]
    for limit, some in answer["reuse_distance"]["below"]:
        assert [str(limit), str(some)] in [line[:2] for line in lines]
    for each in answer["ttl"]:
        assert [str(each["seconds"]), "s", f"{100 * each['hit_tokens'] / answer['tokens']:.2f}", "%"] in lines


@pytest.mark.skipif(not CASES.exists(), reason="the contract's cases are not beside the checkout")
@pytest.mark.parametrize("name", READERS)
def test_the_contracts_analyses_come_out(name: str) -> None:
    expected = json.loads((CASES / "expected.json").read_text())
    trace = CASES / f"small.{name}.jsonl"
    answer = analyze(trace, "--format", name)
    if name in ("mooncake", "bailian"):
        for member in ("reuse_distance", "reuse_ms", "frequency", "tree"):
            assert answer[member] == expected[member]
        return
    assert answer["tree"] == expected["tree_tenants"]
    wanted = expected["tenants_quota"]
    quotas = ",".join(f"{instance}={blocks}" for instance, blocks in wanted["quota"].items())
    (point,) = answer_of("curve", trace, "--format", name, "--quota", quotas)["curves"][0]["points"]
    assert (point["hit_blocks"], point["hit_tokens"]) == (wanted["hit_blocks"], wanted["hit_tokens"])
