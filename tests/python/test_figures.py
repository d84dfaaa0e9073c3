"""Bounds of figures, and the line that a script of tests/bench prints."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "tests" / "bench" / "figures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["figures"] = module  # its dataclass looks there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("bound", "value", "ratio", "verdict"),
    [
        ("<= 2", 100, 2.0, True),
        ("<= 2", 100, 2.1, False),
        (">= 0.95", 100, 0.95, True),
        (">= 0.95", 100, None, None),
        ("<= 256 bytes/block", 256, None, True),
        ("<= 256 bytes/block", 257, 0.1, False),
        ("<= 0 bytes", 0, None, True),
        ("<= limit + 200 us", 299, None, True),
        ("<= limit + 200 us", 301, 0.1, False),
    ],
)
def test_a_bound_with_a_unit_is_of_the_value_and_one_without_of_the_ratio(
    figures: ModuleType, bound: str, value: float, ratio: float | None, verdict: bool | None
) -> None:
    assert figures.Bound.parse(bound).holds(value, ratio, 100) is verdict


@pytest.mark.parametrize("text", ["at most 2", "< 1 %", "<= two", "<= limit + 2", ">= limit + 2 us", ">= 0.8of memcpy"])
def test_words_are_no_bound(figures: ModuleType, text: str) -> None:
    with pytest.raises(ValueError, match="no bound"):
        figures.Bound.parse(text)


def test_a_line_has_what_cenote_bench_prints(figures: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    report = figures.Report("get", as_json=True)
    report.add("one", 9.0, "us", 10.0, "<= 0.5")
    report.add("bytes", 0.0, "bytes", bound="<= 0 bytes", note="all of them")
    ratio, value = map(json.loads, capsys.readouterr().out.splitlines())
    assert list(ratio) == ["bench", "case", "value", "unit", "limit", "ratio", "bound", "kept"]
    assert (ratio["ratio"], ratio["kept"]) == (0.9, False)
    assert (value["ratio"], value["kept"], value["note"]) == (None, True, "all of them")


def test_a_bound_in_another_unit_than_the_figure_is_refused(figures: ModuleType) -> None:
    with pytest.raises(ValueError, match="bounds s"):
        figures.Report("get", as_json=True).add("one", 9.0, "us", bound="<= 1 s")


def test_people_read_whether_a_bound_is_kept(figures: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    report = figures.Report("get", as_json=False)
    report.add("one", 9.0, "us", 10.0, "<= 0.5")
    assert capsys.readouterr().out.splitlines()[1].endswith("NO")
