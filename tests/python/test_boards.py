"""scripts/boards.py: boards of Grafana that are up to date, and refusals of what no metric is."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "boards.py"
TABLE = """\
| metric | kind | unit | labels | in status | what it is |
| --- | --- | --- | --- | --- | --- |
| `cenote_level` | gauge | bytes | `path` | `level` | How much. |
| `cenote_events_total` | counter | events | `instance`, `call` | `events` | How often. |
| `cenote_times_seconds` | histogram | seconds |  | `times` | How long. |

| in status | kind | unit | what it is |
| --- | --- | --- | --- |
| `cenote_hidden` | gauge |  | No metric. |
"""


@pytest.fixture(scope="module")
def boards() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("boards", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(SCRIPT.parent))


@pytest.fixture(scope="module")
def model(boards: ModuleType) -> ModuleType:
    return sys.modules["board_model"]


def all_panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of collapsed rows, too, without the rows."""
    panels = [panel for top in board["panels"] for panel in (top, *top.get("panels", ()))]
    return [panel for panel in panels if panel["type"] != "row"]


def test_boards_are_what_tables_and_panels_give(boards: ModuleType) -> None:
    for board in boards.BOARDS:
        assert board.path.read_text() == boards.text_of(board, boards.read_metrics(board.page)), board.path
    assert sorted(board.path for board in boards.BOARDS) == sorted(boards.BOARDS[0].path.parent.glob("*.json"))


def test_no_board_names_what_is_in_no_table(boards: ModuleType) -> None:
    found = [each for board in boards.BOARDS for each in boards.board_faults(board, boards.read_metrics(board.page))]
    assert found == []


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ('sum by (path) (cenote_level{path="a"})', ""),
        ('rate(cenote_events_total{exported_instance="a",instance="b",job="c",call=~"d"}[5m])', ""),
        ("sum by (exported_instance) (increase(cenote_events_total[$__range]))", ""),
        ("histogram_quantile(0.5, sum by (le) (rate(cenote_times_seconds_bucket{@}[~])))", ""),
        ("rate(cenote_times_seconds_sum[~]) / rate(cenote_times_seconds_count[~])", ""),
        ("max_over_time(cenote_level{@}[1h])", ""),
        ("cenote_gone", "there is no series cenote_gone"),
        ("cenote_hidden", "there is no series cenote_hidden"),
        ("cenote_level_bucket", "there is no series cenote_level_bucket"),
        ("rate(cenote_times_seconds[~])", "there is no series cenote_times_seconds"),
        ('cenote_level{call="a"}', "cenote_level has no label call"),
        ('cenote_level{exported_path="a"}', "cenote_level has no label exported_path"),
        ("sum by (call) (cenote_level)", "no metric here has the label call"),
        ('sum by (le) (rate(cenote_events_total{call="le"}[~]))', "no metric here has the label le"),
        ("cenote_events_total", "cenote_events_total is of a counter: rate() or increase() lacks"),
        ("max_over_time(cenote_events_total[1h])", "cenote_events_total is of a counter: rate() or increase() lacks"),
        ("rate(cenote_level[1h])", "cenote_level is of a gauge: it falls, too"),
    ],
)
def test_an_expression_may_use_metrics_as_their_kind_and_labels_allow(
    model: ModuleType, expression: str, fault: str
) -> None:
    assert list(model.faults(expression, model.parse_metrics(TABLE))) == ([fault] if fault else [])


def test_each_panel_has_a_sentence_a_unit_and_a_word_for_no_data(boards: ModuleType) -> None:
    for path in (board.path for board in boards.BOARDS):
        panels = all_panels(json.loads(path.read_text()))
        assert len({panel["id"] for panel in panels}) == len(panels)
        for panel in panels:
            defaults = panel["fieldConfig"]["defaults"]
            assert panel["description"].endswith("."), panel["title"]
            assert defaults["noValue"].endswith("."), panel["title"]
            assert defaults["unit"], panel["title"]
            assert all(query["legendFormat"] for query in panel["targets"]), panel["title"]


def test_no_panel_lies_over_another_or_beyond_the_board(boards: ModuleType) -> None:
    for path in (board.path for board in boards.BOARDS):
        taken: set[tuple[int, int]] = set()
        for panel in all_panels(json.loads(path.read_text())):
            place = panel["gridPos"]
            cells = {
                (place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])
            }
            assert not cells & taken, panel["title"]
            assert place["x"] + place["w"] <= boards.WIDTH, panel["title"]
            taken |= cells


def test_prometheus_can_parse_each_expression(boards: ModuleType, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if not promtool:
        pytest.skip("no promtool: Debian's package prometheus has it")
    expressions = [
        query["expr"].replace("$__rate_interval", "5m").replace("$__range", "6h")
        for board in boards.BOARDS
        for panel in all_panels(json.loads(board.path.read_text()))
        for query in panel["targets"]
    ]
    rules = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(expressions)]
    page = tmp_path / "panels.rules"
    page.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        [promtool, "check", "rules", str(page)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_names_a_board_that_is_out_of_date_and_write_mends_it(tmp_path: Path) -> None:
    for folder in ("scripts", "docs", "packaging/grafana"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    board = tmp_path / "packaging" / "grafana" / "cenote.json"
    board.write_text(board.read_text().replace("Hit rate", "Rate"))

    def run(option: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(tmp_path / "scripts" / "boards.py"), option]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    refused = run("--check")
    assert refused.returncode == 1
    assert refused.stderr == "boards: packaging/grafana/cenote.json is out of date; run scripts/boards.py --write\n"
    assert run("--write").returncode == run("--check").returncode == 0
    assert board.read_text() == (ROOT / "packaging" / "grafana" / "cenote.json").read_text()
