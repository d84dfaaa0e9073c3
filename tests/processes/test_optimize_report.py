"""`cenote optimize … --report` as a user runs it: one page that needs nothing else and has the numbers of --json."""

from __future__ import annotations

import html
import html.parser
import json
import re
from pathlib import Path
from typing import Any

import pytest
from lru_model import SIZE, TRACES
from node import run_cenote
from test_replay_report import check_drawn, embedded

VOID = {"meta"}
MOONCAKE = TRACES / "mooncake.jsonl"
SCHEMA = TRACES / "tair-schema.jsonl"
CURVE = ("--block-tokens", str(SIZE), "--policies", "lru,arc,belady", "--capacities", "0,20,40,80,160")


class Reader(html.parser.HTMLParser):
    """Cells of all tables and figures' titles; each element must end where it should."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.headings = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        self.headings += tag == "th"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"div", "script", "table"}
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in {"td", "th"}:
            self.cells.append(data)


def check_page(page: Path) -> Reader:
    text = page.read_text()
    reader = Reader(text)
    assert reader.open == []
    assert reader.headings > 1
    assert not [name for name, _ in reader.attributes if name in {"src", "href"} or name.startswith("on")]
    assert "http" not in text
    assert text.count("<script") == text.count('<script type="application/json"') == 1
    return reader


def reported(command: str, trace: Path, page: Path, *arguments: str) -> Any:
    ended = run_cenote("optimize", command, trace, *arguments, "--json", "--report", page)
    assert ended.returncode == 0, ended.stderr
    assert [each.name for each in page.parent.iterdir() if each.name.endswith(".new")] == []
    answer = json.loads(ended.stdout)
    assert embedded(page) == answer
    return answer


def share(ratio: float) -> str:
    return f"{100 * ratio:.2f} %"


def test_the_page_of_curve_has_the_numbers_of_its_object(tmp_path: Path) -> None:
    page = tmp_path / "curve.html"
    answer = reported("curve", MOONCAKE, page, *CURVE)
    reader = check_page(page)
    for each in answer["curves"]:
        for point in each["points"]:
            row = [
                str(point["capacity"]),
                share(point["hit_ratio"]),
                str(point["hit_tokens"]),
                str(point["hit_blocks"]),
            ]
            assert any(reader.cells[i : i + 4] == row for i in range(len(reader.cells))), row
    for each in answer["capacity_for"]:
        assert f"{each['capacity']} blocks" in reader.cells
    [usual] = [each["capacity"] for each in answer["capacity_for"] if each["share"] == 0.9]
    assert f"<b>{usual} blocks give 90 % of what an endless cache hits" in page.read_text()
    assert "offline bound (Belady)" in reader.cells


def test_the_page_of_curve_is_drawn(tmp_path: Path) -> None:
    page = tmp_path / "curve.html"
    reported("curve", SCHEMA, page, *CURVE, "--by-instance")
    check_drawn(page, tmp_path, "Hit ratio by capacity", "Hit ratio by capacity of an instance's own cache")


def test_a_capacity_that_is_too_small_is_called_so(tmp_path: Path) -> None:
    page = tmp_path / "curve.html"
    reported("curve", MOONCAKE, page, "--block-tokens", str(SIZE), "--capacities", "3")
    assert re.search(r'<p class="bad"><b>[^<]*3 blocks, is too small for that', page.read_text())


def test_quotas_have_a_page(tmp_path: Path) -> None:
    page = tmp_path / "quota.html"
    answer = reported("curve", SCHEMA, page, "--block-tokens", str(SIZE), "--quota", "chat=60,code=150,rag=20")
    check_page(page)
    [point] = answer["curves"][0]["points"]
    assert f"<b>The quotas, 230 blocks together, hit {share(point['hit_ratio'])} of the tokens.</b>" in page.read_text()


def test_names_of_a_trace_are_escaped(tmp_path: Path) -> None:
    trace = tmp_path / "<script>alert(1)<script>.jsonl"
    trace.write_text(SCHEMA.read_text().replace('"rag"', '"<script>&"'))
    page = tmp_path / "<script>.html"
    reported("curve", trace, page, *CURVE, "--by-instance")
    reader = check_page(page)
    assert "<script>&" in reader.cells
    assert "&lt;script&gt;alert(1)" in page.read_text()


@pytest.mark.parametrize("name", ["missing/report.html", "", "trace.jsonl"])
def test_a_page_that_cannot_be_written_is_refused_before_the_trace_is_read(name: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("no trace\n")
    ended = run_cenote("optimize", "curve", trace, "--report", tmp_path / name)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--report" in ended.stderr
    assert trace.read_text() == "no trace\n"


def test_a_failed_command_leaves_the_old_page(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("no trace\n")
    page = tmp_path / "page.html"
    for old in (None, "old"):
        if old is not None:
            page.write_text(old)
        assert run_cenote("optimize", "curve", trace, "--report", page).returncode == 1
        assert (page.read_text() if page.exists() else None) == old
    assert sorted(each.name for each in tmp_path.iterdir()) == ["page.html", "trace.jsonl"]


SERVED = ("--block-tokens", str(SIZE), "--model", "llama-3-8b", "--gpu", "h100", "--gpus", "1")
MONEY = ("--slo", "ttft_p90=50ms", "--price", "replica=2/h,dram=0.004/GiB/h")
DRAM = ("--tier", "dram:0.5ms:20GB/s")


def test_the_page_of_cost_has_the_numbers_of_its_object(tmp_path: Path) -> None:
    page = tmp_path / "cost.html"
    answer = reported("cost", MOONCAKE, page, *SERVED, *DRAM, *MONEY, "--capacities", "20,40,80")
    reader = check_page(page)
    for point in answer["points"]:
        start = reader.cells.index(str(point["capacity"]))
        row = reader.cells[start : start + 11]
        assert row[2:5] == [str(point["hit_tokens"]), str(point["loaded_tokens"]), f"{point['gpu_s']:.3f} s"]
        assert row[5:8] == [f"{1000 * point[f'ttft_p{each}']:.2f} ms" for each in (50, 90, 99)]
        assert row[8] == str(point["replicas"])
        assert row[10] == f"{point['cost_hour']:.4f}"
    check_drawn(
        page,
        tmp_path,
        "Hits of the tiers, one on top of the other, by capacity",
        "Time to first token by capacity",
        "Replicas by capacity",
        "Money an hour by capacity",
        "Seconds of GPU by capacity",
    )


def test_the_page_of_plan_has_the_sentence_the_fragment_and_what_was_tried(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    arguments = (*SERVED, *DRAM, *MONEY, "--capacities", "20,40,80", "--objective", "cost,ttft")
    answer = reported("plan", MOONCAKE, page, *arguments)
    reader = check_page(page)
    text = page.read_text()
    assert html.escape(answer["config"]) in text
    for candidate in answer["pareto"]:
        assert f"{candidate['cost_hour']:.4f}" in reader.cells
    spoken = run_cenote("optimize", "plan", MOONCAKE, *arguments).stdout.splitlines()[0]
    assert f"<b>{html.escape(spoken)}</b>" in text
    check_drawn(page, tmp_path, "Money an hour by capacity of all tiers", "Pareto front")


def test_a_plan_that_nothing_keeps_has_a_page_that_warns(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    level = ("--slo", "ttft_p90=1us", "--price", "replica=2/h,dram=0.004/GiB/h")
    ended = run_cenote("optimize", "plan", MOONCAKE, *SERVED, *DRAM, *level, "--json", "--report", page)
    assert ended.returncode == 1
    assert '<p class="bad"><b>nothing keeps ttft_p90=1us' in page.read_text()
    assert embedded(page) == json.loads(ended.stdout)


def test_the_page_of_analyze_has_the_numbers_of_its_object(tmp_path: Path) -> None:
    page = tmp_path / "analyze.html"
    answer = reported("analyze", MOONCAKE, page, "--block-tokens", str(SIZE), "--over-time", "2s", "--top", "5")
    reader = check_page(page)
    for run in answer["hot"]:
        row = [str(run[name]) for name in ("run", "depth", "blocks", "uses", "tokens_saved")]
        assert any(reader.cells[i : i + 5] == row for i in range(len(reader.cells))), row
    references = answer["reuse_distance"]["cold"] + sum(count for _, count in answer["reuse_distance"]["below"])
    total = 0
    for limit, count in answer["reuse_distance"]["below"]:
        total += count
        start = reader.cells.index(f"{limit} blocks")
        assert reader.cells[start + 1] == share(total / references)
    check_drawn(
        page,
        tmp_path,
        "Hits over time",
        "Capacity over time that keeps every block",
        "Reuse distance: other blocks since a block's last use",
        "Time since a block's last use",
        "Uses of a block",
    )


def test_the_page_of_cost_has_tiers_on_top_of_each_other(tmp_path: Path) -> None:
    page = tmp_path / "cost.html"
    tiers = ("--tier", "dram:0.5ms:20GB/s:20", "--tier", "nvme:2ms:3GB/s")
    answer = reported("cost", MOONCAKE, page, *SERVED, *tiers, "--capacities", "20,40")
    cells = check_page(page).cells
    for point in answer["points"]:
        hits = point["tier_tokens"]
        assert share((hits["dram"] + hits["nvme"]) / answer["tokens"]) in cells
    check_drawn(
        page,
        tmp_path,
        "Hits of the tiers, one on top of the other, by capacity",
        "Time to first token by capacity",
        "Replicas by capacity",
        "Seconds of GPU by capacity",
    )


def test_the_page_of_cost_has_quotas(tmp_path: Path) -> None:
    answer = reported("cost", SCHEMA, tmp_path / "cost.html", *SERVED, *DRAM, "--quota", "chat=60,code=150,rag=20")
    cells = check_page(tmp_path / "cost.html").cells
    for each in answer["by_instance"]:
        start = cells.index(each["instance"])
        assert cells[start + 1 : start + 3] == [str(each["capacity"]), str(each["hit_tokens"])]


def test_the_pages_of_an_engine_have_its_times(tmp_path: Path) -> None:
    page = tmp_path / "model.html"
    answer = reported("model", Path("llama-3-8b"), page, "--gpu", "h100", "--gpus", "1", *DRAM)
    assert str(answer["bytes_per_token"]) in check_page(page).cells
    check_drawn(page, tmp_path, "Time to compute and to load tokens")

    measured = tmp_path / "measured.csv"
    measured.write_text("input,cached,ttft\n500,0,68ms\n1000,0,131ms\n4000,0,544ms\n8000,4000,608ms\n")
    page = tmp_path / "calibrate.html"
    reported("calibrate", measured, page, "--model", "llama-3-8b")
    cells = check_page(page).cells
    start = next(i for i in range(len(cells)) if cells[i : i + 3] == ["4000", "0", "544.00 ms"])
    assert cells[start + 4].endswith(" %")
    check_drawn(page, tmp_path, "Measured and computed times to first token")


def test_a_model_without_a_rate_has_a_page(tmp_path: Path) -> None:
    page = tmp_path / "model.html"
    ended = run_cenote("optimize", "model", "--bytes-per-token", "9", "--json", "--report", page)
    assert ended.returncode == 0, ended.stderr
    assert embedded(page) == json.loads(ended.stdout)
    check_page(page)


def test_the_page_of_rank_has_all_services(tmp_path: Path) -> None:
    page = tmp_path / "rank.html"
    answer = reported(
        "rank", MOONCAKE, page, str(SCHEMA), "--model", "llama-3-8b", "--gpu", "h100", "--gpus", "1", *DRAM
    )
    cells = check_page(page).cells
    for each in answer["services"]:
        assert f"{each['gain']:.3f} s/h" in cells
    check_drawn(page, tmp_path, "GPU seconds an hour that memory saves")


def test_a_page_over_what_a_command_reads_is_refused(tmp_path: Path) -> None:
    measured = tmp_path / "measured.csv"
    measured.write_text("input,cached,ttft\n")
    for words in (("calibrate", measured), ("compare", measured, measured), ("rank", measured, *DRAM, *SERVED)):
        ended = run_cenote("optimize", *words, "--report", measured)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "--report" in ended.stderr
    assert measured.read_text() == "input,cached,ttft\n"


def saved(path: Path, *arguments: str | Path) -> Path:
    ended = run_cenote("optimize", *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    path.write_text(ended.stdout)
    return path


def test_runs_are_compared_point_by_point(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    block = ("--block-tokens", str(SIZE))
    one = saved(tmp_path / "run.json", "curve", MOONCAKE, *block, "--capacities", "20,40")
    other = saved(tmp_path / "other/run.json", "curve", MOONCAKE, *block, "--capacities", "40", "--policies", "lru,arc")
    page = tmp_path / "page.html"
    ended = run_cenote("optimize", "compare", one, other, "--report", page)
    assert ended.returncode == 0, ended.stderr
    lines = [re.split(r"  +", line.strip()) for line in ended.stdout.splitlines() if "hits with" in line]
    answers = [json.loads(path.read_text()) for path in (one, other)]
    ratios = {
        (i, curve["policy"], point["capacity"]): share(point["hit_ratio"])
        for i, answer in enumerate(answers)
        for curve in answer["curves"]
        for point in curve["points"]
    }
    assert lines == [
        ["arc hits with 40 blocks", "-", ratios[1, "arc", 40]],
        ["lru hits with 20 blocks", ratios[0, "lru", 20], "-"],
        ["lru hits with 40 blocks", ratios[0, "lru", 40], ratios[1, "lru", 40]],
    ]
    check_page(page)
    assert list(embedded(page).values()) == answers
    check_drawn(page, tmp_path, "Hit ratio by capacity")


@pytest.mark.parametrize(("command", "options"), [("cost", ("20,40", "40,80")), ("plan", ("40", "80"))])
def test_costs_and_plans_are_compared(command: str, options: tuple[str, str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    files = [
        saved(tmp_path / f"{i}.json", command, MOONCAKE, *SERVED, *MONEY, *DRAM, "--capacities", blocks)
        for i, blocks in enumerate(options)
    ]
    ended = run_cenote("optimize", "compare", *files, "--report", page)
    assert ended.returncode == 0, ended.stderr
    assert "ttft_p90" in ended.stdout
    for path in files:
        assert f"{json.loads(path.read_text())['without']['hit_tokens']}" in ended.stdout
    check_page(page)


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    cost = saved(tmp_path / "cost.json", "cost", MOONCAKE, *SERVED, *DRAM)
    curve = saved(tmp_path / "curve.json", "curve", MOONCAKE)
    mixed = run_cenote("optimize", "compare", cost, curve)
    assert (mixed.returncode, mixed.stdout) == (1, "")
    assert "is an answer of cost, and" in mixed.stderr
    none = tmp_path / "none.json"
    none.write_text("[]")
    assert run_cenote("optimize", "compare", cost, none).returncode == 1
    assert run_cenote("optimize", "compare", cost).returncode == 2
