"""`cenote optimize model`, `cost` and `calibrate` as a user runs them, against lists and the cases of the contract."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import lru_model
import pytest
from lru_model import CASES, SIZE, TRACES
from node import ROOT, run_cenote

TOKEN_BYTES, PIVOT, RATE = 131072, 40000, 8000 * (1 + 4096 / 80000)
ENGINE = ("--prefill", "8000@4096", "--attention-pivot", "40000", "--bytes-per-token", "131072")
DRAM = ("--tier", "dram:0.5ms:20GB/s")
NVME = ("--tier", "nvme:2ms:3GB/s")
with_cases = pytest.mark.skipif(not CASES.exists(), reason="the contract's cases are not beside the checkout")


def answer_of(command: str, *arguments: str | Path) -> dict[str, Any]:
    ended = run_cenote("optimize", command, *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def cost(trace: Path, *arguments: str | Path) -> dict[str, Any]:
    return answer_of("cost", trace, "--block-tokens", str(SIZE), *ENGINE, *arguments)


@pytest.fixture
def timeless(tmp_path: Path) -> Path:
    trace = tmp_path / "timeless.jsonl"
    lines = [{"input_length": 64, "output_length": 1, "hash_ids": [1, 2, 3, i // 2 + 4]} for i in range(12)]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return trace


def prefill(cached: int, tokens: int) -> float:
    return ((tokens - cached) + (tokens**2 - cached**2) / (2 * PIVOT)) / RATE


def load(tokens: int) -> float:
    return 0.0005 + tokens * TOKEN_BYTES / 20e9 if tokens else 0.0


def served(trace: Path, capacity: int, *, overlap: bool, speed: float) -> list[tuple[float, float]]:
    """Arrival and service of each request."""
    requests = lru_model.of_mooncake(trace, SIZE)
    made = []
    for row, request, lead in zip(
        lru_model.rows(trace), requests, lru_model.leads(requests, capacity, "rev"), strict=True
    ):
        parts = (load(lead * SIZE), prefill(lead * SIZE, request.tokens))
        service = min(max(parts) if overlap else sum(parts), prefill(0, request.tokens))
        made.append((row["timestamp"] / 1000 / speed, service))
    return made


def times(requests: list[tuple[float, float]], replicas: int) -> list[float]:
    free = [0.0] * replicas
    waited = []
    for arrival, service in requests:
        place = free.index(min(free))
        free[place] = max(free[place], arrival) + service
        waited.append(free[place] - arrival)
    return sorted(waited)


def rank(ordered: list[float], percent: float) -> float:
    return ordered[math.ceil(percent * len(ordered) / 100) - 1]


def check_point(point: dict[str, Any], requests: list[tuple[float, float]], replicas: int) -> None:
    ordered = times(requests, replicas)
    assert point["gpu_s"] == pytest.approx(sum(service for _, service in requests))
    for percent in (50, 90, 99):
        assert point[f"ttft_p{percent}"] == pytest.approx(rank(ordered, percent))
    assert point["replicas"] == replicas


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("replicas", [1, 3])
def test_each_point_is_that_of_the_model(replicas: int, overlap: bool) -> None:
    trace = TRACES / "mooncake.jsonl"
    more = ("--overlap",) if overlap else ()
    answer = cost(trace, *DRAM, "--capacities", "0,20,60,200", "--replicas", str(replicas), "--speed", "8x", *more)
    assert [point["capacity"] for point in answer["points"]] == [0, 20, 60, 200]
    for point in answer["points"]:
        check_point(point, served(trace, point["capacity"], overlap=overlap, speed=8), replicas)
    assert {**answer["without"], "capacity": 0} == answer["points"][0]
    assert answer["rate"] == pytest.approx(RATE)


def test_a_service_level_gives_the_fewest_replicas_and_a_price_the_money() -> None:
    trace = TRACES / "mooncake.jsonl"
    arguments = ("--capacities", "20,200", "--speed", "100x", "--price", "replica=2/h,dram=8/GiB/h")
    for limit in (0.3, 0.6, 2.0):
        answer = cost(trace, *DRAM, "--slo", f"ttft_p90={limit}s", *arguments)
        for point in answer["points"]:
            requests = served(trace, point["capacity"], overlap=False, speed=100)
            fewest = next(n for n in range(1, 1000) if rank(times(requests, n), 90) <= limit)
            check_point(point, requests, fewest)
            gib = point["capacity"] * SIZE * TOKEN_BYTES / 2**30
            assert point["cost_hour"] == pytest.approx(fewest * 2 + gib * 8)
    [point] = cost(trace, *DRAM, "--slo", "ttft_p90=1us", "--capacities", "20")["points"]
    assert (point["replicas"], point["utilisation"]) == (None, None)
    assert point["ttft_p50"] > 0


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_warm_up_fills_the_tier_and_counts_nowhere(replicas: int) -> None:
    trace = TRACES / "mooncake.jsonl"
    answer = cost(trace, *DRAM, "--capacities", "60", "--replicas", str(replicas), "--speed", "8x", "--warm-up", "25%")
    assert answer["warm_up"] == 10
    assert answer["tokens"] == sum(request.tokens for request in lru_model.of_mooncake(trace, SIZE)[10:])
    check_point(answer["points"][0], served(trace, 60, overlap=False, speed=8)[10:], replicas)
    check_point(answer["without"], served(trace, 0, overlap=False, speed=8)[10:], replicas)


@pytest.mark.parametrize("start", [(), ("--ttl-from", "insertion")])
def test_blocks_with_a_time_to_live_hit_what_a_curve_has(start: tuple[str, ...]) -> None:
    trace = TRACES / "mooncake.jsonl"
    ttl = ("--ttl", "3s", *start)
    curve = answer_of("curve", trace, "--block-tokens", str(SIZE), "--capacities", "60,200", *ttl)
    answer = cost(trace, *DRAM, "--no-gate", "--capacities", "60,200", *ttl)
    hits = [point["hit_tokens"] for point in curve["curves"][0]["points"]]
    assert [point["hit_tokens"] for point in answer["points"]] == hits
    assert (answer["ttl_ms"], answer["ttl_from"]) == (3000, start[1] if start else "use")


def test_instances_with_quotas_share_the_replicas_alone() -> None:
    trace = TRACES / "tair-schema.jsonl"
    quotas = ("--quota", "rag=60,chat+code=100")
    answer = answer_of("cost", trace, *ENGINE, *DRAM, *quotas, "--replicas", "2", "--warm-up", "20%")
    curve = answer_of("curve", trace, *quotas, "--warm-up", "20%")
    [point] = answer["points"]
    assert point["capacity"] == 160
    assert point["hit_tokens"] == curve["curves"][0]["points"][0]["hit_tokens"] > 0
    own = {each["instance"]: each["curves"][0]["points"][0] for each in curve["by_instance"]}
    assert {each["instance"]: each["hit_tokens"] for each in answer["by_instance"]} == {
        name: each["hit_tokens"] for name, each in own.items()
    }
    assert sum(each["gpu_s"] for each in answer["by_instance"]) == pytest.approx(point["gpu_s"])
    text = run_cenote("optimize", "cost", trace, *ENGINE, *DRAM, *quotas).stdout
    assert "chat+code" in text


@pytest.mark.parametrize(
    ("command", "options", "reason"),
    [
        ("cost", ("--quota", "chat=5"), "instance `rag` has none"),
        ("cost", ("--quota", "rag=1,chat=1,code=1", "--capacities", "5"), "goes without --capacities"),
        ("cost", ("--quota", "rag=1,chat=1,code=1", "--merge-instances"), "--merge-instances"),
        ("cost", ("--tier", "nvme:2ms:3GB/s:9", "--ttl", "1s"), "a time to live is that of one tier"),
        ("cost", ("--ttl-from", "use"), "--ttl-from"),
        ("cost", ("--warm-up", "91%"), "--warm-up"),
        ("plan", ("--objective", "hits", *NVME, "--ttl", "1s"), "a time to live is that of one tier"),
        ("plan", ("--objective", "hits", "--ttl", "1s", "--verify"), "--verify"),
        ("plan", ("--objective", "hits", "--warm-up", "10%", "--verify"), "--verify"),
        ("plan", ("--objective", "hits", "--quota", "chat=5"), "--quota"),
    ],
)
def test_rules_that_mean_nothing_together_are_refused(command: str, options: tuple[str, ...], reason: str) -> None:
    ended = run_cenote("optimize", command, TRACES / "tair-schema.jsonl", *ENGINE, *DRAM, *options)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert reason in ended.stderr


def test_without_the_gate_loads_that_lose_are_made() -> None:
    trace = TRACES / "mooncake.jsonl"
    slow = ("--tier", "dram:1s:20GB/s", "--capacities", "200")
    [shut] = cost(trace, *slow)["points"]
    assert (shut["loaded_tokens"], shut["gpu_s"]) == (0, pytest.approx(cost(trace, *slow)["without"]["gpu_s"]))
    [open_gate] = cost(trace, *slow, "--no-gate")["points"]
    assert open_gate["loaded_tokens"] == open_gate["hit_tokens"] > 0
    assert open_gate["gpu_s"] > shut["gpu_s"]


def test_tiers_lie_one_over_the_other() -> None:
    trace = TRACES / "mooncake.jsonl"
    stack = ("--tier", "dram:0.5ms:20GB/s:30", *NVME)
    two = cost(trace, *stack, "--capacities", "0,1000")
    [one] = cost(trace, "--tier", "dram:0.5ms:20GB/s:30")["points"]
    [most] = cost(trace, *DRAM, "--capacities", "1000")["points"]
    assert two["swept"] == "nvme"
    assert {**two["points"][0], "capacity": 30, "tier_tokens": one["tier_tokens"]} == one
    hits = [list(point["tier_tokens"].items()) for point in two["points"]]
    assert hits[0] == [("dram", one["hit_tokens"]), ("nvme", 0)]
    assert sum(tokens for _, tokens in hits[1]) == two["points"][1]["hit_tokens"]
    assert two["without"]["tier_tokens"] == {"dram": 0, "nvme": 0}
    assert two["points"][1]["hit_tokens"] == most["hit_tokens"] > one["hit_tokens"]
    assert two["points"][1]["gpu_s"] > most["gpu_s"]


def test_a_tier_with_water_levels_hits_what_a_curve_with_them_does_and_hands_down_what_goes() -> None:
    trace = TRACES / "mooncake.jsonl"
    levels = ("--water-levels", "dram=60%:50%")
    half = cost(trace, *DRAM, "--capacities", "40,200", *levels)["points"]
    ended = run_cenote(
        "optimize",
        "curve",
        trace,
        "--json",
        "--block-tokens",
        str(SIZE),
        "--capacities",
        "40,200",
        *levels[:1],
        "60%:50%",
    )
    curve = json.loads(ended.stdout)["curves"][0]["points"]
    assert [each["hit_tokens"] for each in half] == [each["hit_tokens"] for each in curve]
    whole = cost(trace, *DRAM, "--capacities", "200")["points"]
    assert half[1]["hit_tokens"] < whole[0]["hit_tokens"]
    below = cost(trace, "--tier", "dram:0.5ms:20GB/s:200", *NVME, "--capacities", "1000", *levels)["points"]
    assert below[0]["hit_tokens"] >= whole[0]["hit_tokens"]


def test_a_capacity_may_be_bytes() -> None:
    trace = TRACES / "mooncake.jsonl"
    [point] = cost(trace, *DRAM, "--capacities", "64MiB")["points"]
    assert point["capacity"] == 64 * 2**20 // (SIZE * TOKEN_BYTES) == 32


@pytest.mark.parametrize("name", ["bailian", "tair-log", "tair-schema"])
def test_each_format_has_a_cost(name: str) -> None:
    answer = cost(TRACES / f"{name}.jsonl", "--format", name, *DRAM)
    assert answer["points"][-1]["gpu_s"] < answer["without"]["gpu_s"]


def test_the_table_has_what_the_object_has() -> None:
    trace = TRACES / "mooncake.jsonl"
    arguments = (trace, "--block-tokens", "16", *ENGINE, *DRAM, "--capacities", "20,200")
    ended = run_cenote("optimize", "cost", *arguments)
    assert ended.returncode == 0, ended.stderr
    for point in answer_of("cost", *arguments)["points"]:
        assert f"{point['gpu_s']:.3f} s" in ended.stdout
        assert f"{100 * point['utilisation']:.2f} %" in ended.stdout


def test_the_sizing_table_of_the_presets_comes_out() -> None:
    for name, token_bytes, gib, binary, decimal in (
        ("deepseek-v3", 70272, 4.19, 0.21, 0.22),
        ("qwen3-coder-480b", 253952, 15.14, 0.76, 0.81),
    ):
        answer = answer_of("model", "--model", name, "--gpu", "h800", "--gpus", "8", *DRAM, "--times", "0:64000")
        assert answer["bytes_per_token"] == token_bytes
        assert round(64000 * token_bytes / 2**30, 2) == gib
        assert round(64000 * token_bytes / (20 * 2**30), 2) == binary
        assert round(64000 * token_bytes / 20e9, 2) == decimal
        [[cached, tokens, seconds]] = answer["prefill_s"]
        assert (cached, tokens) == (0, 64000)
        rate = 8 * 989e12 * 0.5 / (2 * answer["active_parameters"])
        assert answer["rate"] == pytest.approx(rate)
        assert seconds == pytest.approx((64000 + 64000**2 / (2 * answer["pivot"])) / rate)
        length = answer["break_even_tokens"]["dram"]
        model = {n: (n + n**2 / (2 * answer["pivot"])) / rate for n in (length - 1, length)}
        assert 0.0005 + length * token_bytes / 20e9 < model[length]
        assert 0.0005 + (length - 1) * token_bytes / 20e9 >= model[length - 1]


def test_a_step_of_decoding_reads_weights_and_contexts_once() -> None:
    engine = ("--model", "llama-3-8b", "--gpu", "h100", "--gpus", "2")
    answer = answer_of("model", *engine, "--decode", "1:0,32:8000")
    weights, token = 2 * answer["active_parameters"], answer["bytes_per_token"]
    wanted = [[1, 0, weights / (2 * 3.35e12)], [32, 8000, (weights + 32 * 8000 * token) / (2 * 3.35e12)]]
    assert [pytest.approx(each) for each in wanted] == answer["decode_s"]
    halved = answer_of("model", *engine, "--decode", "1:0", "--weight-dtype", "fp8")["decode_s"]
    assert halved == [[1, 0, pytest.approx(wanted[0][2] / 2)]]
    ended = run_cenote("optimize", "model", *engine, "--decode", "32:8000")
    assert re.search(rf"32 +8000 .* {32 / wanted[1][2]:.0f}\n", ended.stdout)
    given = ("--bytes-per-token", "1KiB", "--active-parameters", "1e9", "--gpu", "h100")
    assert answer_of("model", *given, "--decode", "4:0")["decode_s"] == [[4, 0, pytest.approx(2e9 / 3.35e12)]]


def test_a_model_may_be_a_file_and_what_is_wrong_with_it_is_named(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 768}))
    assert answer_of("model", config)["bytes_per_token"] == 2 * 12 * 768 * 2
    assert answer_of("model", "--model", config, "--kv-dtype", "fp8")["bytes_per_token"] == 2 * 12 * 768
    ended = run_cenote("optimize", "model", config)
    assert ended.returncode == 0
    assert "36864 bytes a token" in ended.stdout
    config.write_text('{"num_hidden_layers": 12}')
    ended = run_cenote("optimize", "model", config, "--json")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "num_attention_heads is missing" in ended.stderr


def test_calibrating_gives_the_engine_that_was_measured(tmp_path: Path) -> None:
    measured = tmp_path / "measured.csv"
    rows = [(n, n * part // 4) for n in (200, 1000, 8000, 32000) for part in (0, 1, 3)]
    lines = [f"{0.02 + prefill(p, n)},x,{n}, {p}" for n, p in rows]
    measured.write_text("\r\n".join(["ttft,note,input,cached", *lines, "1,x,10,20", ""]))
    answer = answer_of("calibrate", measured, "--model", "llama-3-8b", "--gpu", "h100")
    assert (answer["rows"], answer["left_out"]) == (12, 1)
    assert answer["rate"] == pytest.approx(RATE, rel=1e-6)
    assert answer["pivot"] == pytest.approx(PIVOT, rel=1e-6)
    assert answer["constant"] == pytest.approx(0.02, rel=1e-6)
    assert answer["error_p90"] < 1e-9
    assert answer["mfu"] == pytest.approx(RATE * 2 * 8.03e9 / 989e12, rel=0.01)
    measured.write_text("\n".join(["input,cached,ttft", "1000,0,100ms", "2000,0,200ms"]))
    ended = run_cenote("optimize", "calibrate", measured)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "2 useful rows are too few" in ended.stderr


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("model", (), "a model is missing"),
        ("model", ("--model", "deepseek-v3", *DRAM), "a rate of prefill is missing"),
        ("model", ("--model", "deepseek-v3", "--prefill", "1@1", "--gpu", "h20"), "two rates"),
        ("model", ("--model", "deepseek-v3", "--gpus", "8"), "--gpu"),
        ("model", ("--model", "llama-3-8b", "--bytes-per-token", "9", "--kv-dtype", "fp8"), "leave one of them out"),
        ("model", ("--model", "llama-3-8b", "--bytes-per-token", "9", "--tensor-parallel", "2"), "leave one out"),
        ("model", ("--bytes-per-token", "9", "--active-parameters", "1e9", "--prefill", "1@1"), "the rate of --gpu"),
        (
            "model",
            ("--model", "llama-3-8b", "--active-parameters", "1e9", "--attention-pivot", "off", "--prefill", "1@1"),
            "--attention-pivot gives",
        ),
        ("model", ("--model", "none"), "deepseek-v3"),
        ("model", ("--model", "llama-3-8b", "--decode", "1:1"), "--decode: give --gpu"),
        ("model", ("--model", "llama-3-8b", "--gpu", "h100", "--decode", "0:1"), "SEQUENCES:CONTEXT"),
        ("model", ("--model", "llama-3-8b", "--weight-dtype", "fp8"), "goes with it"),
        ("model", ("--bytes-per-token", "1", "--gpu", "h100", "--decode", "1:1"), "--active-parameters"),
        ("model", ("--model", "deepseek-v3", "--prefill", "nan@1"), "RATE@LENGTH"),
        ("model", ("--model", "deepseek-v3", "--prefill", "1e-300@1"), "RATE@LENGTH"),
        ("model", ("--model", "qwen3-8b", "--tensor-parallel", "3"), "8 KV heads"),
        ("model", ("--bytes-per-token", "1", "--prefill", "1@1", "--times", "2:1"), "CACHED:INPUT"),
        ("model", ("--bytes-per-token", "1", "--prefill", "1@1", "--tier", "dram:1:1GB/s"), "no unit"),
        ("model", ("--bytes-per-token", "1", "--prefill", "1@1", "--tier", "dram:1s:0GB/s"), "above 0"),
        ("cost", (*ENGINE, *DRAM, *DRAM), "of this name already"),
        ("cost", (*ENGINE, *DRAM, *NVME), "--capacities are those of one tier"),
        ("cost", (*ENGINE, "--tier", "dram:1ms:1GB/s:5", "--capacities", "3"), "without one of its own"),
        ("cost", (*ENGINE, *DRAM, "--replicas", "2", "--slo", "ttft_p90=1s"), "leave one of them out"),
        ("cost", (*ENGINE, *DRAM, "--slo", "p90=1s"), "ttft_p90=2s"),
        ("cost", (*ENGINE, *DRAM, "--price", "nvme=1/GiB/h"), "nvme is no --tier"),
        ("cost", (*ENGINE, *DRAM, "--speed", "2"), "is no speed"),
        ("cost", (*ENGINE, *DRAM, "--water-levels", "97%:94%"), "names no tier"),
        ("cost", (*ENGINE, *DRAM, "--water-levels", "nvme=97%:94%"), "there is no --tier called `nvme`"),
        ("cost", (*ENGINE, *DRAM, "--water-levels", "dram=97%:94%,dram=1%:1%"), "stands there twice"),
        ("cost", (*ENGINE, *DRAM, "--water-levels", "dram=94%:97%"), "HIGH:LOW"),
        (
            "cost",
            (*ENGINE, *DRAM, "--tier", "nvme:2ms:3GB/s:0", "--water-levels", "nvme=97%:94%"),
            "`nvme` has a capacity of 0",
        ),
        ("cost", (*ENGINE, *DRAM, "--capacities", "9", "--water-levels", "dram=97%:0%"), "above 0 %"),
        ("cost", (*ENGINE, "--tier", "dram:1ms:1GB/s::none"), "unknown eviction policy"),
        ("cost", DRAM, "a rate of prefill is missing"),
        ("cost", (*ENGINE[:4], *DRAM), "the bytes of a token are missing"),
    ],
)
def test_a_wrong_command_line_ends_with_2(command: str, arguments: tuple[str, ...], message: str) -> None:
    trace = (TRACES / "mooncake.jsonl",) if command == "cost" else ()
    ended = run_cenote("optimize", command, *trace, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


def test_waits_of_a_trace_without_times_are_refused_unless_all_come_at_once(timeless: Path) -> None:
    tier = ("--block-tokens", "16", *ENGINE, *DRAM)
    for arguments in ((), ("--slo", "ttft_p90=1s"), ("--speed", "10x")):
        ended = run_cenote("optimize", "cost", timeless, *tier, *arguments)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "`timestamp` is missing" in ended.stderr
        assert "--speed max" in ended.stderr
    assert answer_of("cost", timeless, *tier, "--speed", "max")["points"]


def test_a_policy_that_goes_by_times_is_refused_without_them(timeless: Path) -> None:
    of_tier = (*ENGINE, "--tier", "dram:0.5ms:20GB/s::tblru", "--speed", "max")
    listed = (*ENGINE, *DRAM, "--policies", "lru,tblru", "--speed", "max", "--objective", "hits")
    sampled = ("--sample", "--policies", "lru,tblru")
    for command, arguments in (
        ("curve", sampled[1:]),
        ("curve", sampled),
        ("cost", of_tier),
        ("plan", of_tier + listed[-2:]),
        ("plan", listed),
    ):
        ended = run_cenote("optimize", command, timeless, "--block-tokens", "16", *arguments)
        assert (ended.returncode, ended.stdout) == (1, ""), (command, arguments, ended.stderr)
        assert "tblru goes by the times between requests, and `timestamp` is missing" in ended.stderr


@with_cases
def test_the_contracts_models_come_out(tmp_path: Path) -> None:
    expected = json.loads((CASES / "expected.json").read_text())["models"]
    for name, config in json.loads((CASES / "models.json").read_text()).items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(config))
        assert answer_of("model", path)["bytes_per_token"] == expected[name]


@with_cases
def test_the_contracts_times_come_out() -> None:
    expected = json.loads((CASES / "expected.json").read_text())["cost"]
    cases = ",".join(f"{cached}:{tokens}" for cached, tokens, _ in expected["prefill_s"])
    answer = answer_of("model", *ENGINE, *DRAM, *NVME, "--times", cases)
    assert answer["rate"] == pytest.approx(expected["rate"])
    for got, wanted in zip(answer["prefill_s"], expected["prefill_s"], strict=True):
        assert got == pytest.approx(wanted)
    assert answer["break_even_tokens"] == expected["break_even_tokens"]


@with_cases
@pytest.mark.parametrize("name", ["mooncake", "bailian"])
def test_the_contracts_runs_and_replicas_come_out(name: str) -> None:
    expected = json.loads((CASES / "expected.json").read_text())
    trace = CASES / f"small.{name}.jsonl"
    for run in expected["runs"]:
        more = ("--overlap",) if run.pop("overlap") else ()
        speed = f"{expected['runs_speed']}x"
        arguments = ("--format", name, *DRAM, "--capacities", str(run["capacity"]), "--speed", speed, *more)
        [point] = cost(trace, *arguments)["points"]
        assert {member: point[member] for member in run} == pytest.approx(run)
    wanted = expected["replicas"]
    plan = {each["capacity"]: each["cost_hour"] for each in expected["plan"]["candidates"]}
    arguments = ("--speed", f"{wanted['speed']}x", "--slo", f"ttft_p90={wanted['slo_ttft_p90_s']}s")
    for each in wanted["by_capacity"]:
        price = ("--price", "replica=2/h,dram=8/GiB/h", "--capacities", str(each["capacity"]))
        [point] = cost(trace, "--format", name, *DRAM, *price, *arguments)["points"]
        assert point["replicas"] == each["replicas"]
        assert point["cost_hour"] == pytest.approx(plan[each["capacity"]])


def test_the_tables_of_the_documents_are_those_of_the_presets() -> None:
    document = (ROOT / "docs/optimize.md").read_text()
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in document.splitlines() if line[:3] == "| `"]
    models = [row for row in rows if row[-1].endswith(" billion")]
    gpus = [row for row in rows if row[-1] == "0.5"]
    told = run_cenote("optimize", "model", "--help").stdout.replace("\n", " ")
    assert len(models) == 9
    assert len(gpus) == 8
    for name, token_bytes, billions in models:
        answer = answer_of("model", name)
        assert f"{answer['bytes_per_token']:,}" == token_bytes
        assert f"{answer['active_parameters'] / 1e9:.1f} billion" == billions
        assert name in told
    for name, peak, *_, mfu in gpus:
        answer = answer_of("model", "--bytes-per-token", "1", "--active-parameters", "1e12", "--gpu", name)
        assert answer["rate"] == pytest.approx(float(peak.replace(",", "")) * float(mfu) / 2)
        assert name in told
