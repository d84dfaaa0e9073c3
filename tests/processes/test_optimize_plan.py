"""`cenote optimize plan` and `rank` as a user runs them, against a model of lists and the cases of the contract."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import lru_model
import pytest
from lru_model import CASES, SIZE, TRACES
from node import run_cenote

TRACE = TRACES / "mooncake.jsonl"
TOKEN_BYTES, PIVOT, RATE = 131072, 40000, 8000 * (1 + 4096 / 80000)
ENGINE = ("--prefill", "8000@4096", "--attention-pivot", "40000", "--bytes-per-token", "131072")
DRAM = ("--tier", "dram:0.5ms:20GB/s")
NVME = ("--tier", "nvme:2ms:3GB/s")
SLO = ("--slo", "ttft_p90=500ms", "--speed", "100x")
PRICE = ("--price", "replica=2/h,dram=8/GiB/h")
CHEAP = ("--price", "replica=2/h,dram=2/GiB/h")
PRICES = ("--price", "replica=2/h,dram=8/GiB/h,nvme=0/GiB/h")
POINTS = [0, 10, 20, 40, 60, 100, 200, 400]
with_cases = pytest.mark.skipif(not CASES.exists(), reason="the contract's cases are not beside the checkout")


def run_plan(trace: Path, *arguments: str | Path) -> Any:
    return run_cenote("optimize", "plan", trace, "--block-tokens", str(SIZE), *ENGINE, *arguments)


def plan(trace: Path, *arguments: str | Path) -> dict[str, Any]:
    ended = run_plan(trace, *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def capacities(*points: int) -> tuple[str, str]:
    return ("--capacities", ",".join(map(str, points)))


def fewest(capacity: int, limit: float, speed: float) -> int:
    """Replicas by trying one after the other."""
    requests = lru_model.of_mooncake(TRACE, SIZE)
    made = []
    leads = lru_model.leads(requests, capacity, "rev")
    for row, request, lead in zip(lru_model.rows(TRACE), requests, leads, strict=True):
        tokens = lead * SIZE

        def prefill(cached: int, n: int = request.tokens) -> float:
            return ((n - cached) + (n**2 - cached**2) / (2 * PIVOT)) / RATE

        load = 0.0005 + tokens * TOKEN_BYTES / 20e9 if tokens else 0.0
        made.append((row["timestamp"] / 1000 / speed, min(load + prefill(tokens), prefill(0))))
    for replicas in itertools.count(1):
        free = [0.0] * replicas
        waited = []
        for arrival, service in made:
            place = free.index(min(free))
            free[place] = max(free[place], arrival) + service
            waited.append(free[place] - arrival)
        if sorted(waited)[math.ceil(0.9 * len(waited)) - 1] <= limit:
            return replicas
    raise AssertionError


def tables_in(fragment: str) -> dict[str, dict[str, Any]]:
    """Tables of text and truth, whose values are written as in JSON."""
    tables: dict[str, dict[str, Any]] = {}
    for line in fragment.splitlines():
        if line.startswith("["):
            values = tables.setdefault(line.strip("[]"), {})
        elif not line.startswith("#"):
            name, _, value = line.partition(" = ")
            values[name] = json.loads(value)
    return tables


def named(candidate: dict[str, Any]) -> dict[str, Any]:
    return {name: candidate[name] for name in ("capacity", "replicas", "cost_hour")}


def test_the_plan_is_the_cheapest_of_all_candidates() -> None:
    answer = plan(TRACE, *DRAM, *SLO, *PRICE, *capacities(*POINTS))
    expected = []
    for capacity in POINTS:
        replicas = fewest(capacity, 0.5, 100)
        money = 2 * replicas + 8 * capacity * SIZE * TOKEN_BYTES / 2**30
        expected.append({"capacity": capacity, "replicas": replicas, "cost_hour": pytest.approx(money)})
    assert [named(each) for each in answer["candidates"]] == expected
    assert answer["best"]["cost_hour"] == min(each["cost_hour"] for each in answer["candidates"])
    assert named(answer["without"]) == expected[0]
    assert answer["fallen"] == 0


def test_what_falls_by_its_bound_is_no_better() -> None:
    many = plan(TRACE, *DRAM, *SLO, *PRICE, "--capacities", "1:400:1")
    assert many["fallen"] > 100
    assert len(many["candidates"]) + many["fallen"] == 401
    few = plan(TRACE, *DRAM, *SLO, *PRICE)
    assert few["best"]["cost_hour"] >= many["best"]["cost_hour"]
    near = plan(TRACE, *DRAM, *SLO, *PRICE, *capacities(*POINTS))
    refined = plan(TRACE, *DRAM, *SLO, *PRICE, *capacities(*POINTS), "--refine")
    assert many["best"]["cost_hour"] <= refined["best"]["cost_hour"] <= near["best"]["cost_hour"]


@pytest.mark.parametrize(
    "tiers",
    [
        (DRAM, capacities(200)),
        ((*DRAM, *NVME), ("--capacities", "dram=60", "--capacities", "nvme=400")),
        ((*DRAM, *NVME), ("--capacities", "dram=100,200", "--capacities", "nvme=0,400", "--keep-copies", "false")),
        (("--tier", "dram:0.5ms:20GB/s::arc"), capacities(200)),
    ],
)
def test_a_node_takes_the_fragment_as_its_configuration(tiers: tuple[tuple[str, ...], ...], tmp_path: Path) -> None:
    cheap = ("--price", "replica=1000/h,dram=0.001/GiB/h" + (",nvme=0/GiB/h" if NVME[1] in tiers[0] else ""))
    arguments = (*tiers[0], *tiers[1], *SLO, *cheap)
    answer = plan(TRACE, *arguments)
    fragment = tmp_path / "cenote.toml"
    fragment.write_text(answer["config"])
    read = tables_in(answer["config"])
    blocks = answer["best"]["capacity"]
    dram = blocks if isinstance(blocks, int) else blocks["dram"]
    assert dram > 0
    assert read["dram"] == {"capacity": f"{dram * SIZE * TOKEN_BYTES >> 20}MiB", "policy": answer["best"]["policy"]}
    if isinstance(blocks, dict) and blocks["nvme"]:
        lower = answer["best"]["lower"]["nvme"]
        assert {name: read["nvme"][name] for name in lower} == lower
    ended = run_cenote("config", "check", "--config", fragment)
    assert ended.returncode == 0, ended.stderr
    text = run_plan(TRACE, *arguments).stdout
    assert answer["config"] in text
    for part in ("save", "within ttft_p90=500ms", "20 % less of it", "second half", "20 % more load", "Tried"):
        assert part in text


def cost(trace: Path, *arguments: str) -> list[dict[str, Any]]:
    ended = run_cenote("optimize", "cost", trace, "--block-tokens", str(SIZE), *ENGINE, *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    points: list[dict[str, Any]] = json.loads(ended.stdout)["points"]
    return points


@pytest.mark.parametrize("levels", ["80%:50%", "60%:60%:7"])
def test_a_plan_with_water_levels_is_the_cheapest_of_what_cost_says_with_them(levels: str) -> None:
    levelled = (*DRAM, "--water-levels", f"dram={levels}", *SLO, *CHEAP)
    points = cost(TRACE, *levelled, "--capacities", "1:400:1")
    # No capacity is left out by a bound that holds for filled tiers alone.
    answer = plan(TRACE, *levelled, "--capacities", "1:400:1")
    assert answer["fallen"] > 100
    best = min(points, key=lambda each: (each["cost_hour"], each["capacity"]))
    names = ("capacity", "hit_tokens", "gpu_s", "ttft_p90", "replicas", "cost_hour")
    assert {name: answer["best"][name] for name in names} == {name: best[name] for name in names}
    filled = plan(TRACE, *DRAM, *SLO, *CHEAP, "--capacities", "1:400:1")
    assert filled["best"]["cost_hour"] < best["cost_hour"]


def test_what_lies_between_the_capacities_has_the_levels_too() -> None:
    levelled = (*DRAM, "--water-levels", "dram=80%:50%", *SLO, *CHEAP)
    answer = plan(TRACE, *levelled)
    [same] = cost(TRACE, *levelled, *capacities(answer["best"]["capacity"]))
    assert answer["best"]["hit_tokens"] == same["hit_tokens"]
    smaller, larger = answer["why"]["neighbours"]
    points = cost(TRACE, *levelled, *capacities(smaller["capacity"], larger["capacity"]))
    assert [each["hit_tokens"] for each in (smaller, larger)] == [each["hit_tokens"] for each in points]


def test_the_fragment_has_the_marks_of_what_was_simulated(tmp_path: Path) -> None:
    over = ("--tier", "dram:0.5ms:20GB/s:60", *NVME, "--objective", "hits", "--capacities", "200")
    marks = ("--water-levels", "nvme=90.5%:80%:100,dram=60%:10%")
    answer = plan(TRACE, *over, *marks)
    read = tables_in(answer["config"])
    assert (read["dram"]["high_water"], read["dram"]["low_water"]) == (0.6, 0.1)
    assert (read["nvme"]["high_water"], read["nvme"]["low_water"]) == (0.905, 0.8)
    assert answer["config"].count("batches of 100 blocks") == 1
    assert answer["config"] in run_plan(TRACE, *over, *marks).stdout
    fragment = tmp_path / "cenote.toml"
    fragment.write_text(answer["config"])
    ended = run_cenote("config", "check", "--config", fragment)
    assert ended.returncode == 0, ended.stderr
    alone = plan(TRACE, *over, "--water-levels", "nvme=90%:80%")["config"]
    assert "high_water" not in tables_in(alone)["dram"]
    assert "batches" not in alone
    assert answer["best"]["hit_tokens"] < plan(TRACE, *over)["best"]["hit_tokens"]


def test_levels_of_a_tier_without_marks_stand_in_a_comment() -> None:
    gpu, remote = ("--tier", "gpu:0s:1TB/s:40"), ("--tier", "remote:5ms:1GB/s")
    tiers = (*gpu, "--tier", "dram:0.5ms:20GB/s:60", *remote, "--objective", "hits")
    answer = plan(TRACE, *tiers, *capacities(400), "--water-levels", "gpu=90%:5%,remote=80%:75%:10")
    read = tables_in(answer["config"])
    assert set(read["dram"]) == {"capacity", "policy"}
    assert set(read["remote"]) == {"ingest", "keep_copy"}
    comments = [line for line in answer["config"].splitlines() if line.startswith("#")]
    assert ["90%:5%" in line for line in comments] == [True, False]
    assert ["80%:75%:10" in line for line in comments] == [False, True]


def test_without_a_tier_those_of_a_usual_host_are_planned_and_shown() -> None:
    """DRAM alone, and NVMe where it has a price."""
    for tiers, prices in ((DRAM, PRICE), ((*DRAM, *NVME), PRICES)):
        spoken = run_plan(TRACE, *SLO, *prices)
        assert spoken.returncode == 0, spoken.stderr
        assert f"those of a usual host: {' '.join(tiers)}" in spoken.stderr
        assert spoken.stdout == run_plan(TRACE, *tiers, *SLO, *prices).stdout


def test_what_a_plan_saves_is_what_it_lacks_of_the_setup_without_a_cache() -> None:
    answer = plan(TRACE, *DRAM, *SLO, *PRICE)
    best, without, saved = (answer[name] for name in ("best", "without", "saved"))
    spared = without["replicas"] - best["replicas"]
    memory = best["cost_hour"] - 2 * best["replicas"]
    assert spared > 0 and memory > 0
    assert saved == {
        "gpu_s": pytest.approx(without["gpu_s"] - best["gpu_s"]),
        "gpu_share": pytest.approx(1 - best["gpu_s"] / without["gpu_s"]),
        "replicas": spared,
        "cost_hour": pytest.approx(without["cost_hour"] - best["cost_hour"]),
        "memory_hour": pytest.approx(memory),
        "payback": pytest.approx(2 * spared / memory),
    }
    assert f"spares {2 * spared:.2f}: " in run_plan(TRACE, *DRAM, *SLO, *PRICE).stdout


def test_where_memory_is_dear_no_cache_is_the_plan(tmp_path: Path) -> None:
    dear = ("--price", "replica=2/h,dram=100000/GiB/h")
    answer = plan(TRACE, *DRAM, *SLO, *dear)
    assert answer["best"]["capacity"] == 0
    assert tables_in(answer["config"]) == {}
    fragment = tmp_path / "cenote.toml"
    fragment.write_text(answer["config"])
    assert run_cenote("config", "check", "--config", fragment).returncode == 0
    assert run_plan(TRACE, *DRAM, *SLO, *dear).stdout.startswith("No cache is best: ")


def test_a_promise_that_nothing_keeps_ends_with_1_and_what_comes_nearest() -> None:
    arguments = (*DRAM, "--slo", "ttft_p99=1ms", *PRICE, *capacities(20, 200))
    ended = run_plan(TRACE, *arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "nothing keeps ttft_p99=1ms" in ended.stderr
    assert "come nearest" in ended.stderr
    ended = run_plan(TRACE, *arguments, "--json")
    answer = json.loads(ended.stdout)
    assert (ended.returncode, answer["best"], answer["config"]) == (1, None, None)
    assert answer["nearest"]["ttft_p99"] == min(each["ttft_p99"] for each in answer["candidates"])


@pytest.mark.parametrize(
    ("objectives", "signs"), [(("cost", "ttft"), (1, 1)), (("hits", "cost"), (-1, 1)), (("cost", "writes"), (1, 1))]
)
def test_a_front_has_what_nothing_beats(objectives: tuple[str, str], signs: tuple[int, int]) -> None:
    names = {"cost": "cost_hour", "ttft": "ttft_p90", "hits": "hit_tokens", "writes": "nvme_written_bytes"}
    tiers = (*DRAM, *NVME, "--capacities", "dram=0,40,200", "--capacities", "nvme=0,400")
    answer = plan(TRACE, *tiers, *SLO, *PRICES, "--objective", ",".join(objectives))

    def value(candidate: dict[str, Any]) -> tuple[float, float]:
        one, other = (sign * candidate[names[each]] for each, sign in zip(objectives, signs, strict=True))
        return one, other

    front = [value(each) for each in answer["pareto"]]
    everything = [value(each) for each in answer["candidates"]]
    assert sorted(front) == sorted(
        each for each in everything if not any(o != each and o[0] <= each[0] and o[1] <= each[1] for o in everything)
    )
    assert value(answer["best"]) == min(everything)


def test_the_table_begins_with_the_best() -> None:
    arguments = (*DRAM, *NVME, *SLO, *PRICES)
    answer = plan(TRACE, *arguments, *capacities(*POINTS))
    table = run_plan(TRACE, *arguments, *capacities(*POINTS)).stdout.split("\nTried, ")[1].splitlines()
    best = answer["best"]["capacity"]
    assert table[2].split()[:2] == [str(best["dram"]), str(best["nvme"])]
    prices = [float(row.split()[-1]) for row in table[2:] if "lru" in row]
    assert len(prices) == 24
    assert prices == sorted(prices)


def test_a_disk_lasts_until_its_endurance_is_written() -> None:
    over = (*DRAM, *NVME, "--objective", "hits", "--capacities", "dram=20", "--capacities", "nvme=0,100")
    lines = [json.loads(line) for line in TRACE.read_text().splitlines()]
    span = (max(line["timestamp"] for line in lines) - min(line["timestamp"] for line in lines)) / 1000
    for speed in (1, 2):
        found = plan(TRACE, *over, "--endurance", "1TB", "--speed", f"{speed}x")
        for each in found["candidates"]:
            written = each["nvme_written_bytes"]
            years = 1e12 * span / speed / written / (365.25 * 86400) if written else None
            assert each["nvme_life_years"] == (pytest.approx(years) if years else None)
    assert "a day go into NVMe" in run_plan(TRACE, *over, "--endurance", "1TB").stdout
    assert "a day go into NVMe" not in run_plan(TRACE, *over).stdout


def test_hits_within_a_budget() -> None:
    tiers = (*DRAM, "--policies", "lru,fifo", *capacities(*POINTS), "--objective", "hits")
    best = plan(TRACE, *tiers, "--budget", f"{100 * SIZE * TOKEN_BYTES}B")
    assert best["best"]["capacity"] <= 100
    assert best["best"]["hit_tokens"] == max(each["hit_tokens"] for each in best["candidates"])
    assert plan(TRACE, *tiers)["best"]["hit_tokens"] > best["best"]["hit_tokens"]


def other_trace(path: Path, repeats: int) -> Path:
    """Prompts that each come `repeats` times in a row."""
    rows = []
    for i in range(120):
        first = 8 * (i // repeats)
        ids = list(range(first, first + 8))
        rows.append({"timestamp": 1000 * i, "input_length": 8 * SIZE, "output_length": 1, "hash_ids": ids})
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_the_service_that_gains_most_by_a_gib_comes_first(tmp_path: Path) -> None:
    services = [other_trace(tmp_path / f"{n}.jsonl", n) for n in (1, 2, 6)]
    budget = 8 * SIZE * TOKEN_BYTES * 3 // 2
    arguments = (*services, "--block-tokens", str(SIZE), *ENGINE, *DRAM, "--budget", f"{budget}B")
    ended = run_cenote("optimize", "rank", *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert [Path(each).stem for each in answer["order"]] == ["6", "2", "1"]
    never, some, much = answer["services"]
    assert never["gain_per_gib"] == 0
    assert much["gain_per_gib"] > some["gain_per_gib"] > 0
    # The first takes what it can use, the second the rest.
    assert much["bytes"] + some["bytes"] == budget
    assert answer["gain"] == pytest.approx(much["gain"] + some["gain"])
    for service in answer["services"]:
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(service["hull"])]
        assert slopes == sorted(slopes, reverse=True)
    assert run_cenote("optimize", "rank", *arguments).stdout.startswith(f"{services[2]} first: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*SLO, "--price", "replica=98/h,nvme=1/GiB/h"), "tier `dram` has none"),
        (("--tier", "dram:1ms:1GB/s:5", *SLO, *PRICE), "no capacity is left to look for"),
        ((*DRAM, *PRICE), "--objective cost needs --slo"),
        ((*DRAM, *SLO), "--price"),
        ((*DRAM, "--slo", "p90=1s", *PRICE), "--slo: `p90=1s`"),
        ((*DRAM, "--slo", "ttft_p90=1", *PRICE), "--slo: `ttft_p90=1`"),
        ((*DRAM, *SLO, "--price", "replica=two/h"), "--price: `replica=two/h`"),
        ((*DRAM, *SLO, "--price", "nvme=1/GiB/h"), "nvme is no --tier"),
        ((*DRAM, *SLO, *PRICE, "--replicas", "2"), "leave one of them out"),
        ((*DRAM, *SLO, *PRICE, "--objective", "cost,cost"), "each once"),
        ((*DRAM, *SLO, *PRICE, "--objective", "writes"), "add --tier nvme"),
        ((*DRAM, "--objective", "hits", "--endurance", "7PB"), "add --tier nvme"),
        ((*DRAM, *NVME, "--objective", "hits", "--endurance", "0"), "as in 7PB"),
        ((*DRAM, *NVME, "--objective", "hits", "--endurance", "7PB", "--speed", "max"), "leave --speed max out"),
        ((*DRAM, *SLO, "--objective", "ttft"), "--replicas in place of --slo"),
        ((*DRAM, *SLO, *PRICE, "--policies", "none"), "unknown eviction policy"),
        ((*DRAM, *SLO, *PRICE, "--ingests", "all"), "below the first one"),
        ((*DRAM, *NVME, *SLO, *PRICES, "--ingests", "never"), "evicted"),
        ((*DRAM, *SLO, *PRICE, "--capacities", "nvme=5"), "nvme is no --tier"),
        ((*DRAM, *SLO, *PRICE, "--capacities", "1", "--capacities", "2"), "two lists"),
        ((*DRAM, *SLO, *PRICE, "--capacities", "x"), "--capacities"),
        ((*DRAM, *NVME, *SLO, *PRICES, "--capacities", "1:900:1"), "take fewer capacities"),
        ((*DRAM, *SLO, *PRICE, "--budget", "much"), "--budget"),
        ((*DRAM, *NVME, *SLO, *PRICE), "--price: tier `nvme` has none"),
        ((*DRAM, "--objective", "hits", "--refine"), "--refine"),
        ((*DRAM, *SLO, *PRICE, "--water-levels", "97%:94%"), "names no tier"),
        ((*DRAM, *SLO, *PRICE, "--water-levels", "nvme=97%:94%"), "there is no --tier called `nvme`"),
        ((*DRAM, *SLO, *PRICE, "--water-levels", "dram=94%:97%"), "HIGH:LOW"),
        ((*DRAM, *SLO, *PRICE, "--water-levels", "dram=50%:9%"), "dram.low_water of a node is 10 % at least"),
        (
            (*DRAM, "--tier", "nvme:2ms:3GB/s:0", *SLO, *PRICES, "--water-levels", "nvme=97%:94%"),
            "`nvme` has a capacity of 0",
        ),
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments: tuple[str, ...], message: str) -> None:
    ended = run_plan(TRACE, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr


def test_a_rank_needs_one_tier_and_times(tmp_path: Path) -> None:
    ended = run_cenote("optimize", "rank", TRACE, *ENGINE, *DRAM, *NVME)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "give one --tier" in ended.stderr
    trace = tmp_path / "at_once.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}\n' * 3)
    ended = run_cenote("optimize", "rank", trace, *ENGINE, *DRAM)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "come at once" in ended.stderr
    again = TRACE.parent / "." / ".." / TRACE.parent.name / TRACE.name
    ended = run_cenote("optimize", "rank", TRACE, again, *ENGINE, *DRAM)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "is there twice" in ended.stderr


@with_cases
@pytest.mark.parametrize("name", ["mooncake", "bailian"])
def test_the_contracts_plan_comes_out(name: str) -> None:
    expected = json.loads((CASES / "expected.json").read_text())
    replicas, wanted = expected["replicas"], expected["plan"]
    price, points = wanted["price"], [each["capacity"] for each in wanted["candidates"]]
    answer = plan(
        CASES / f"small.{name}.jsonl",
        *("--format", name, *DRAM, *capacities(*points), "--speed", f"{replicas['speed']}x"),
        *("--slo", f"ttft_p90={replicas['slo_ttft_p90_s']}s"),
        *("--price", f"replica={price['replica_hour']}/h,dram={price['dram_gib_hour']}/GiB/h"),
    )
    assert [named(each) for each in answer["candidates"]] == [pytest.approx(each) for each in wanted["candidates"]]
    assert named(answer["best"]) == pytest.approx(wanted["best"])


def test_rank_divides_by_the_money_that_is_saved() -> None:
    other = TRACES / "tair-schema.jsonl"

    def rank(*arguments: str) -> dict[str, Any]:
        ended = run_cenote("optimize", "rank", TRACE, other, *ENGINE, *DRAM, *arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        answer: dict[str, Any] = json.loads(ended.stdout)
        return answer

    seconds = rank()
    replica, dram = 2.0, 0.05
    answer = rank("--price", f"replica={replica}/h,dram={dram}/GiB/h")
    for each in answer["services"]:
        best = max(gain / 3600 * replica - size / 2**30 * dram for size, gain in [*each["points"], [0, 0]])
        assert each["saved_hour"] == pytest.approx(best)
        assert each["memory_hour"] == pytest.approx(each["bytes"] / 2**30 * dram)
    assert answer["saved_hour"] == pytest.approx(sum(each["saved_hour"] for each in answer["services"]))
    assert answer["gain"] <= seconds["gain"]
    free = rank("--price", f"replica={replica}/h,dram=0/GiB/h")
    assert [each["bytes"] for each in free["services"]] == [each["bytes"] for each in seconds["services"]]
    dear = rank("--price", "replica=2/h,dram=9999/GiB/h")
    assert [each["bytes"] for each in dear["services"]] == [0, 0]
    text = run_cenote("optimize", "rank", TRACE, other, *ENGINE, *DRAM, "--price", "replica=2/h,dram=9999/GiB/h").stdout
    assert text == "No memory saves more money than it costs for any of them.\n"
    half = run_cenote("optimize", "rank", TRACE, *ENGINE, *DRAM, "--price", "replica=2/h")
    assert half.returncode == 2
    assert "--price" in half.stderr
