"""scripts/benchmark_tables.py: tables from figures, and data from a run's lines."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = "head\n<!-- generated: {} -->\nold\n<!-- end of generated -->\ntail\n"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_tables", ROOT / "scripts" / "benchmark_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["benchmark_tables"] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def line(case: str, value: Any = 9.0, **fields: Any) -> dict[str, Any]:
    return {"bench": "get", "case": case, "value": value, "unit": "us", "limit": 10.0, "bound": "", **fields}


def text_of(kind: str, *figures: dict[str, Any]) -> str:
    machine = {"machine": {"kind": kind, "processor": "A Processor", "cores": 2, "caches": {"L3": 32 << 20}}}
    return "".join(json.dumps(each) + "\n" for each in (machine, *figures))


def page_of(tables: ModuleType, block: str, *files: tuple[str, str]) -> str:
    kinds = [tables.Kind.parse(name, text) for name, text in files]
    return str(tables.with_tables(PAGE.format(block), kinds))


def test_a_bound_is_kept_or_missed_for_each_kind_by_itself(tables: ModuleType) -> None:
    fast = text_of("fast", line("one", 19.0, bound="<= 2"))
    slow = text_of("slow", line("one", 21.0, bound="<= 2"))
    page = page_of(tables, "bounds", ("fast", fast), ("slow", slow))
    assert "| bench | figure | unit | bound | fast | slow |" in page
    assert "| `get` | one | µs | ≤ 2 | 19.0 (1.90) kept | 21.0 (2.10) **missed** |" in page


def test_a_range_keeps_a_bound_only_at_both_ends(tables: ModuleType) -> None:
    figures = text_of(
        "one", line("a", [18, 19], bound="<= 2"), line("b", None, limit=None, ratio=[1.9, 2.1], bound="<= 2")
    )
    page = page_of(tables, "bounds", ("one", figures))
    assert "18.0–19.0 (1.80–1.90) kept" in page
    assert "| (1.90–2.10) **missed** |" in page


def test_a_bound_beyond_the_limit_is_of_the_difference(tables: ModuleType) -> None:
    figures = text_of(
        "one",
        line("a", 309.0, limit=110.0, bound="<= limit + 200 us"),
        line("b", [309.0, 311.0], limit=110.0, bound="<= limit + 200 us"),
    )
    page = page_of(tables, "bounds", ("one", figures))
    assert "| a | µs | ≤ limit + 200 µs | 309 (2.81) kept |" in page
    assert "| 309–311 (2.81–2.83) **missed** |" in page


def test_nothing_is_said_of_a_bound_whose_limit_was_not_measured(tables: ModuleType) -> None:
    page = page_of(tables, "bounds", ("one", text_of("one", line("a", limit=None, bound="<= 2"))))
    assert "| ≤ 2 | 9.00 |" in page


def test_a_figure_that_was_not_measured_on_what_the_bound_is_about_is_not_judged(tables: ModuleType) -> None:
    figure = line("a", 900.0, bound="<= 2", kept=None, note="not measured on a GPU")
    assert "| 900 (90.0) |" in page_of(tables, "bounds", ("one", text_of("one", figure)))


def test_the_bound_is_that_of_the_figure_measured_last(tables: ModuleType) -> None:
    old = text_of("old", line("a", bound="<= 0.5", date="2026-01-01"))
    new = text_of("new", line("a", bound="<= 1", date="2026-02-01"))
    page = page_of(tables, "bounds", ("old", old), ("new", new))
    assert "≤ 1 |" in page and "0.5" not in page


def test_ways_stand_in_one_row_whichever_a_kind_uses(tables: ModuleType) -> None:
    new, old = text_of("new", line("wide (used)"), line("narrow")), text_of("old", line("wide"), line("narrow (used)"))
    page = page_of(tables, "figures get", ("new", new), ("old", old))
    assert "| wide | µs | 9.00 (0.9) used | 9.00 (0.9) |" in page
    assert "| narrow | µs | 9.00 (0.9) | 9.00 (0.9) used |" in page


def test_figures_with_and_without_a_bound_stand_in_different_tables(tables: ModuleType) -> None:
    text = text_of("one", line("bounded", bound="<= 2"), line("free"), line("other", bench="put"))
    assert "free" not in page_of(tables, "bounds", ("one", text))
    assert "bounded" not in page_of(tables, "figures get", ("one", text))
    assert "other" not in page_of(tables, "figures get", ("one", text))


def test_benches_that_a_table_or_a_note_names_are_not_among_the_others(tables: ModuleType) -> None:
    page = (PAGE + PAGE + "<!-- not shown: peer -->").format("figures get", "other figures")
    text = text_of("one", line("a"), line("b", bench="put"), line("c", bench="peer"))
    made = tables.with_tables(page, [tables.Kind.parse("one", text)])
    assert made.count("| `get` |") == made.count("| `put` |") == 1
    assert "| `peer` |" not in made


def test_tables_made_twice_are_the_same(tables: ModuleType) -> None:
    kinds = [tables.Kind.parse("one", text_of("one", line("a")))]
    once = tables.with_tables(PAGE.format("other figures"), kinds)
    assert once.startswith("head\n") and once.endswith("tail\n") and "old" not in once
    assert tables.with_tables(once, kinds) == once


def test_the_kinds_have_a_row_each(tables: ModuleType) -> None:
    assert "| one | A Processor | 2 |  | L3 32 MiB |" in page_of(tables, "kinds", ("one", text_of("one")))


@pytest.mark.parametrize(
    ("file", "figures"),
    [
        ("two", []),
        ("one", [line("a"), line("a")]),
        ("one", [line("a", bound="at most 2")]),
    ],
)
def test_a_file_of_another_kind_a_figure_twice_and_a_bound_in_words_are_refused(
    tables: ModuleType, file: str, figures: list[dict[str, Any]]
) -> None:
    with pytest.raises(ValueError, match=r"one|bound"):
        tables.Kind.parse(file, text_of("one", *figures))


def test_one_figure_in_two_units_is_refused(tables: ModuleType) -> None:
    files = (("one", text_of("one", line("a"))), ("two", text_of("two", line("a", unit="ms"))))
    with pytest.raises(ValueError, match="ms on two"):
        page_of(tables, "bounds", *files)


def test_a_run_replaces_what_is_known_of_its_benches_and_nothing_else(tables: ModuleType, tmp_path: Path) -> None:
    known = text_of("one", line("gone", date="2026-01-01"), line("stays", bench="put", date="2026-01-01"))
    (tmp_path / "one.jsonl").write_text(known)
    run = "== get\n" + text_of("one", line("new"))
    assert tables.record(run, tmp_path, "2026-02-01") == tmp_path / "one.jsonl"
    _, *figures = map(json.loads, (tmp_path / "one.jsonl").read_text().splitlines())
    assert [(each["case"], each["date"]) for each in figures] == [("stays", "2026-01-01"), ("new", "2026-02-01")]


def test_a_run_without_a_machine_is_refused(tables: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="machine"):
        tables.record(json.dumps(line("a")), tmp_path, "2026-02-01")
    assert list(tmp_path.iterdir()) == []


def test_the_page_has_the_tables_that_the_data_give(tables: ModuleType) -> None:
    page = tables.PAGE.read_text()
    assert tables.BLOCK.search(page)
    assert tables.with_tables(page, tables.read_kinds(tables.DATA)) == page
