"""The example in docs/optimize.md: its commands print what the page shows, and the plan is found again by hand."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from pathlib import Path

import lru_model
import pytest
from node import ROOT, run_cenote
from pages import OMITTED, blocks_of, commands_of, expression

PAGE = (ROOT / "docs/optimize.md").read_text()
TRACE = ROOT / "tests/data/optimizer/mooncake.jsonl"
SIZE = 16
LAYERS, HEADS, KV_HEADS, HEAD_DIM, NUMBER = 32, 32, 8, 128, 2  # of llama-3-8b, in bf16
TOKEN_BYTES = 2 * LAYERS * KV_HEADS * HEAD_DIM * NUMBER


def steps() -> list[tuple[list[str], list[str]]]:
    """Each command of the example without its program's name, and the lines shown below it."""
    blocks = [each for each in blocks_of(PAGE) if each.language == "console"]
    return [(shlex.split(each.text)[1:], each.output) for block in blocks for each in commands_of(block)]


def step(command: str) -> tuple[dict[str, str], list[str]]:
    """Options of a command of the example, and the lines shown below it."""
    [(words, lines)] = [each for each in steps() if each[0][1] == command]
    options = {name: value for name, value in itertools.pairwise(words) if name.startswith("--")}
    return options, lines


def seconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+) ?(ms|s)", text).groups()  # type: ignore[union-attr]
    return float(number) / (1000 if unit == "ms" else 1)


class Engine:
    """The engine of the plan, by the formulas of the page."""

    def __init__(self) -> None:
        options, _ = step("plan")
        self.rate, self.pivot = float(options["--prefill"]), float(options["--attention-pivot"])
        self.constant = seconds(options["--constant"])
        self.speed = float(options["--speed"].removesuffix("x"))
        self.limit = seconds(options["--slo"].removeprefix("ttft_p90="))
        _, latency, bandwidth = options["--tier"].split(":")
        self.latency, self.bandwidth = seconds(latency), float(bandwidth.removesuffix("GB/s")) * 1e9
        prices = dict(each.split("=") for each in options["--price"].split(","))
        self.replica_price = float(prices["replica"].removesuffix("/h"))
        self.dram_price = float(prices["dram"].removesuffix("/GiB/h"))
        self.requests = lru_model.of_mooncake(TRACE, SIZE)
        self.arrivals = [row["timestamp"] / 1000 / self.speed for row in lru_model.rows(TRACE)]

    def prefill(self, cached: int, tokens: int) -> float:
        return self.constant + ((tokens - cached) + (tokens**2 - cached**2) / (2 * self.pivot)) / self.rate

    def load(self, tokens: int) -> float:
        return self.latency + tokens * TOKEN_BYTES / self.bandwidth if tokens else 0.0

    def services(self, capacity: int) -> list[float]:
        """Of each request; a load that would lose is not made."""
        leads = [lead * SIZE for lead in lru_model.leads(self.requests, capacity, "rev")]
        tokens = [request.tokens for request in self.requests]
        return [
            min(self.load(lead) + self.prefill(lead, n), self.prefill(0, n))
            for lead, n in zip(leads, tokens, strict=True)
        ]

    def times(self, services: list[float], replicas: int) -> list[float]:
        """To the first token, sorted: each request goes to the replica that is free first."""
        free = [0.0] * replicas
        waited = []
        for arrival, service in zip(self.arrivals, services, strict=True):
            place = free.index(min(free))
            free[place] = max(free[place], arrival) + service
            waited.append(free[place] - arrival)
        return sorted(waited)

    def fewest(self, services: list[float]) -> int:
        return next(n for n in itertools.count(1) if percentile(self.times(services, n), 90) <= self.limit)

    def money(self, capacity: int, replicas: int) -> float:
        return self.replica_price * replicas + self.dram_price * capacity * SIZE * TOKEN_BYTES / 2**30


def percentile(ordered: list[float], percent: int) -> float:
    return ordered[math.ceil(percent * len(ordered) / 100) - 1]


def milliseconds(time: float) -> str:
    return f"{time * 1000:.2f} ms"


def test_each_command_of_the_example_prints_what_the_page_shows(tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    [table] = [each.text for each in blocks_of(PAGE) if each.name == "measured.csv"]
    (tmp_path / "measured.csv").write_text(table)
    for words, lines in steps():
        ended = run_cenote(*words, cwd=tmp_path)
        output = ended.stderr + ended.stdout
        assert ended.returncode == 0, output
        assert re.fullmatch(expression(lines), output), f"cenote {shlex.join(words)} prints\n{output}"


def test_the_example_has_each_step_and_shows_something_of_each() -> None:
    wanted = ["info", "convert", "anonymise", "curve", "analyze", "calibrate", "model", "cost", "plan", "rank"]
    assert [words[1] for words, _ in steps()] == wanted
    assert all(any(re.search(r"\d", line) for line in lines) for _, lines in steps())


def test_the_first_prefills_and_the_load_are_those_of_the_formulas() -> None:
    engine = Engine()
    first = engine.requests[0].tokens
    _, lines = step("model")
    for cached in (0, 112):
        assert f"{cached:8}  {first:5}  {milliseconds(engine.prefill(cached, first))}" in lines
    assert f"{milliseconds(engine.prefill(0, first))}, the first line of `model`" in PAGE
    assert f"(20 · 10⁹) s = {milliseconds(engine.load(112))} and" in PAGE
    assert f"KV cache     {TOKEN_BYTES} bytes a token" in "\n".join(lines)


def test_the_rows_of_cost_are_found_again_by_hand() -> None:
    engine = Engine()
    _, lines = step("cost")
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines if re.match(r" +(no tiers|\d+) ", line)]
    assert len(rows) == 4
    for name, _, gpu, p50, p90, p99, replicas, _, money in rows:
        capacity = 0 if name == "no tiers" else int(name)
        services = engine.services(capacity)
        needed = engine.fewest(services)
        ordered = engine.times(services, needed)
        assert f"{sum(services):.3f} s" == gpu
        assert [milliseconds(percentile(ordered, each)) for each in (50, 90, 99)] == [p50, p90, p99]
        assert [str(needed), f"{engine.money(capacity, needed):.4f}"] == [replicas, money]


def test_the_plan_is_the_cheapest_of_all_capacities() -> None:
    engine = Engine()
    _, lines = step("plan")
    distinct = len({key for request in engine.requests for key in request.keys})
    fewest = {capacity: engine.fewest(engine.services(capacity)) for capacity in range(distinct + 1)}
    best = min(fewest, key=lambda capacity: (engine.money(capacity, fewest[capacity]), capacity))
    saved, half = fewest[0] - fewest[best], fewest[0] - fewest[best // 2]
    mebibytes = best * SIZE * TOKEN_BYTES / 2**20
    assert lines[0] == (
        f"{mebibytes:.1f} MiB of DRAM saves {saved} of {fewest[0]} replicas "
        f"({saved * engine.replica_price:.2f} an hour) within ttft_p90=500ms; "
        f"half of the DRAM would save {half}."
    )
    assert f'capacity = "{mebibytes:.0f}MiB"' in lines
    [row] = [line for line in lines if line.startswith("  the plan ")]
    services = engine.services(best)
    p90 = percentile(engine.times(services, fewest[best]), 90)
    assert f"ttft_p90 {milliseconds(p90)}, {sum(services):.3f} s of GPU" in row


@pytest.mark.parametrize("line", ["a", "c"])
def test_a_line_that_the_output_has_not_is_found(line: str) -> None:
    lines = ["a", OMITTED, "d"]
    assert re.fullmatch(expression(lines), "a\nb\nc\nd\n")
    assert not re.fullmatch(expression([line, "d"]), "a\nb\nc\nd\n")
