"""Boards of Grafana as data, and the check of their expressions against the tables of metrics in docs.

An expression is PromQL with abbreviations: `@` in a selector stands for the targets that the board's variables select,
`@kv` for those and the selected instances of engines, `[~]` for the range that Grafana derives from the interval of
scrapes. A metric or label that is not in the tables is a fault, as is a counter without rate() or increase().
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "packaging" / "grafana"

TARGETS = frozenset({"job", "instance"})  # labels that Prometheus gives each target
ENDS = ("_bucket", "_sum", "_count")
OPERAND = re.compile(r'\b(cenote_\w+)\s*(\{(?:[^{}"]|"(?:\\.|[^"\\])*")*\})?\s*(\[[^\]]*\])?')
MATCHER = re.compile(r'([A-Za-z_]\w*)\s*(?:=~|!~|!=|=)\s*"(?:\\.|[^"\\])*"')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
TEXT = re.compile(r'"(?:\\.|[^"\\])*"')
RATES = ("rate(", "increase(")


@dataclass(frozen=True)
class Metric:
    """A row of a table of metrics."""

    name: str
    kind: str
    labels: frozenset[str]
    summary: str

    @property
    def stored_labels(self) -> frozenset[str]:
        """Labels as Prometheus stores them: a target's label wins, and the metric's own gets a prefix."""
        return frozenset(f"exported_{each}" if each in TARGETS else each for each in self.labels) | TARGETS


Metrics = Mapping[str, Metric]


def parse_metrics(page: str) -> dict[str, Metric]:
    """The rows of all tables of a page that have the columns `metric`, `kind`, `labels` and `what it is`."""
    found: dict[str, Metric] = {}
    columns: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if line.startswith("|") else []
        if not cells or "metric" in cells:
            columns = cells
        elif "metric" in columns and len(cells) == len(columns) and cells[0].startswith("`"):
            row = dict(zip(columns, cells, strict=True))
            name = row["metric"].strip("`")
            labels = frozenset(re.findall(r"`(\w+)`", row["labels"]))
            found[name] = Metric(name, row["kind"], labels, row["what it is"])
    return found


def read_metrics(page: str) -> dict[str, Metric]:
    return parse_metrics((ROOT / "docs" / page).read_text())


def metric_behind(series: str, metrics: Metrics) -> Metric | None:
    """The metric that a series belongs to: a histogram has no series of its own name, and no other has parts."""
    for end in ENDS:
        family = metrics.get(series.removesuffix(end))
        if series.endswith(end) and family is not None and family.kind == "histogram":
            return family
    found = metrics.get(series)
    return None if found is not None and found.kind == "histogram" else found


def faults(expression: str, metrics: Metrics) -> Iterator[str]:
    """Names in an expression that are not there, and series used in a way that their kind does not allow."""
    allowed: set[str] = set(TARGETS)
    for operand in OPERAND.finditer(expression):
        series, selector, span = operand.groups()
        metric = metric_behind(series, metrics)
        if metric is None:
            yield f"there is no series {series}"
            continue
        labels = metric.stored_labels | ({"le"} if series.endswith("_bucket") else set())
        allowed |= labels
        for label in MATCHER.findall(selector or ""):
            if label not in labels:
                yield f"{series} has no label {label}"
        is_rate = span is not None and expression[: operand.start()].endswith(RATES)
        if (metric.kind != "gauge") != is_rate:
            yield f"{series} is of a {metric.kind}: " + ("it falls, too" if is_rate else "rate() or increase() lacks")
    for names in GROUPING.findall(TEXT.sub("", expression)):
        for label in filter(None, (each.strip() for each in names.split(","))):
            if label not in allowed:
                yield f"no metric here has the label {label}"


@dataclass(frozen=True)
class Query:
    expression: str
    legend: str

    def series(self) -> list[str]:
        return [operand[1] for operand in OPERAND.finditer(self.expression)]


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    queries: Sequence[Query]
    description: str = ""  # else the summary of the first metric
    empty: str = "No selected target has anything to show here."
    kind: str = "timeseries"
    is_stacked: bool = False
    maximum: float | None = None  # the end of the axis

    @property
    def is_small(self) -> bool:
        return self.kind == "stat"


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]
    is_collapsed: bool = False


@dataclass(frozen=True)
class Variable:
    name: str
    label: str
    query: str


@dataclass(frozen=True)
class Board:
    """A file of packaging/grafana."""

    name: str
    title: str
    description: str
    page: str  # of docs, with its metrics
    variables: Sequence[Variable]
    rows: Sequence[Row]

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.json"

    def panels(self) -> list[Panel]:
        return [panel for row in self.rows for panel in row.panels]


def spelled_out(expression: str) -> str:
    targets = 'job=~"$job",instance=~"$node"'
    long = expression.replace("@kv", f'{targets},exported_instance=~"$kv"').replace("@", targets)
    return long.replace("[~]", "[$__rate_interval]")


def board_faults(board: Board, metrics: Metrics) -> list[str]:
    """Names in a board that are not there."""
    found = []
    for panel in board.panels():
        for query in panel.queries:
            found += [f"{board.name}: {panel.title}: {each}" for each in faults(query.expression, metrics)]
    for variable in board.variables:
        series = OPERAND.search(variable.query)
        metric = series and metric_behind(series[1], metrics)
        if not metric or variable.query.rsplit(", ", 1)[1].rstrip(")") not in metric.stored_labels:
            found.append(f"{board.name}: variable {variable.name}: {variable.query}")
    return found
