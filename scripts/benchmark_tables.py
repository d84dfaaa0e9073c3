"""The tables of docs/benchmarks.md, made of what the benches measured on each kind of machine.

    scripts/benchmark_tables.py --check             status 1 where the page's tables are not what the data give
    scripts/benchmark_tables.py --write             makes the tables anew
    scripts/benchmark_tables.py --record FILE       takes the lines of a run (`scripts/bench --json`) into the data

tests/data/benchmarks has a file for each kind of machine. Its first line describes the machine, each other line is a
figure as tests/bench/figures.py has it, with the date of its run. `value`, `limit` and `ratio` may be a pair, the least
and the most of several runs, or null where only the others are known.

In the page a table stands between `<!-- generated: … -->` and `<!-- end of generated -->`. It is one of
    kinds               a row for each kind of machine
    bounds              each figure with a bound, in a column for each kind
    figures NAME …      the other figures of these benches
    other figures       those of all benches that no table and no `<!-- not shown: NAME … -->` names
A bound is judged for each kind by itself.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "bench"))

from figures import Bound  # noqa: E402

DATA = ROOT / "tests" / "data" / "benchmarks"
PAGE = ROOT / "docs" / "benchmarks.md"
BLOCK = re.compile(r"(<!-- generated: ([^>]*?) -->\n).*?(<!-- end of generated -->)", re.DOTALL)
NOT_SHOWN = re.compile(r"<!-- not shown: ([^>]*?) -->")
USED = " (used)"  # of several ways the one that this kind of machine uses
LARGE_UNITS = (("GiB", 30), ("MiB", 20), ("KiB", 10))

Range: TypeAlias = "tuple[float, float] | None"


def range_of(number: Any) -> Range:
    """Of a number, a pair or null."""
    if number is None:
        return None
    if isinstance(number, list):
        least, most = number
        return float(least), float(most)
    return float(number), float(number)


@dataclass(frozen=True)
class Figure:
    bench: str
    case: str
    unit: str
    value: Range
    ratio: Range
    difference: Range  # the value less its limit
    bound: str
    date: str  # "" where it is not known
    is_judged: bool  # False where it was not measured on what the bound is about
    is_used: bool  # it is of the way that this kind of machine uses

    @classmethod
    def parse(cls, line: dict[str, Any]) -> Figure:
        value, limit, ratio = (range_of(line.get(name)) for name in ("value", "limit", "ratio"))
        difference: Range = None
        if value is not None and limit is not None and limit[0] == limit[1]:
            difference = value[0] - limit[0], value[1] - limit[0]
            if ratio is None and limit[0] > 0:
                ratio = value[0] / limit[0], value[1] / limit[0]
        bound = line.get("bound", "")
        Bound.parse(bound)
        is_judged = not ("note" in line and line.get("kept", True) is None)
        case, date = line["case"], line.get("date") or ""
        is_used = case.endswith(USED)
        case = case.removesuffix(USED)
        return cls(line["bench"], case, line["unit"], value, ratio, difference, bound, date, is_judged, is_used)

    def keeps(self, bound: str) -> bool | None:
        """Whether all runs of it do; None where the data do not decide."""
        parsed = Bound.parse(bound)
        if parsed is None or not self.is_judged:
            return None
        ends = self.difference if parsed.is_difference else self.value if parsed.unit else self.ratio
        return None if ends is None else all(parsed.holds(end, end, 0) for end in ends)


@dataclass
class Kind:
    """One kind of machine, and its figures in the order of the file."""

    machine: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.machine["kind"])

    @property
    def dates(self) -> list[str]:
        return sorted({each.date for each in self.figures if each.date})

    @classmethod
    def parse(cls, name: str, text: str) -> Kind:
        """Raises ValueError for what is no file of figures."""
        first, *others = (json.loads(line) for line in text.splitlines() if line)
        kind = cls(first["machine"], [Figure.parse(line) for line in others])
        if kind.name != name:
            raise ValueError(f"{name}.jsonl describes a machine of the kind {kind.name}")
        names = [(each.bench, each.case) for each in kind.figures]
        twice = {each for each in names if names.count(each) > 1}
        if twice:
            raise ValueError(f"{name}.jsonl has figures that stand there twice: {sorted(twice)}")
        return kind


def read_kinds(folder: Path) -> list[Kind]:
    """The one measured last comes first, those of unknown date at the end."""
    kinds = [Kind.parse(file.stem, file.read_text()) for file in sorted(folder.glob("*.jsonl"))]
    return sorted(kinds, key=lambda kind: kind.dates[-1] if kind.dates else "", reverse=True)


@dataclass
class Row:
    """One figure on all kinds of machines."""

    bench: str
    case: str
    unit: str
    by_kind: dict[str, Figure]

    @property
    def bound(self) -> str:
        """Of the figure that was measured last: bounds change with the benches."""
        return max(self.by_kind.values(), key=lambda each: each.date).bound


def rows_of(kinds: Sequence[Kind]) -> list[Row]:
    """A bench's rows stand together, in the order of the kind that has most of them."""
    rows: dict[tuple[str, str], Row] = {}
    benches: dict[str, list[Row]] = {}
    for kind in sorted(kinds, key=lambda each: len(each.figures), reverse=True):
        for each in kind.figures:
            row = rows.get((each.bench, each.case))
            if row is None:
                row = rows[each.bench, each.case] = Row(each.bench, each.case, each.unit, {})
                benches.setdefault(each.bench, []).append(row)
            if row.unit != each.unit:
                raise ValueError(f"{each.bench}, {each.case}: {row.unit} on one kind, {each.unit} on {kind.name}")
            row.by_kind[kind.name] = each
    return [row for of_bench in benches.values() for row in of_bench]


# ---------------------------------------------------------------------------------------------- cells


def number_text(number: float) -> str:
    """Three digits that mean something."""
    size = abs(number)
    if size >= 100:
        return f"{number:,.0f}"
    if size >= 10:
        return f"{number:.1f}"
    return f"{number:.2f}" if size >= 1 else f"{number:.3g}"


def range_text(ends: Range) -> str:
    if ends is None:
        return ""
    least, most = (number_text(end) for end in ends)
    return least if least == most else f"{least}–{most}"


def cell(figure: Figure | None, bound: str) -> str:
    """The figure, its ratio in brackets, and whether this kind uses that way and keeps the bound."""
    if figure is None:
        return ""
    ratio = range_text(figure.ratio)
    verdict = {None: "", True: "kept", False: "**missed**"}[figure.keeps(bound)]
    words = (range_text(figure.value), f"({ratio})" if ratio else "", "used" if figure.is_used else "", verdict)
    return " ".join(word for word in words if word)


def unit_text(unit: str) -> str:
    return re.sub(r"\bus\b", "µs", unit)


def bound_text(bound: str) -> str:
    return unit_text(bound.replace("<=", "≤").replace(">=", "≥"))


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def figure_table(rows: Sequence[Row], kinds: Sequence[Kind]) -> str:
    """With the columns of kinds that have one of these figures, and of bounds where there are any."""
    has_bounds = any(row.bound for row in rows)
    names = [kind.name for kind in kinds if any(kind.name in row.by_kind for row in rows)]
    if not rows:
        return "No figures yet.\n"
    made = []
    for row in rows:
        bound = [bound_text(row.bound)] if has_bounds else []
        cells = [cell(row.by_kind.get(name), row.bound) for name in names]
        made.append([f"`{row.bench}`", row.case, unit_text(row.unit), *bound, *cells])
    return table(["bench", "figure", "unit", *(["bound"] if has_bounds else []), *names], made)


def size_text(size: int) -> str:
    for name, shift in LARGE_UNITS:
        if size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {name}"
    return f"{size} B"


def dates_text(dates: Sequence[str]) -> str:
    if not dates:
        return "not recorded"
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"


def kind_table(kinds: Sequence[Kind]) -> str:
    rows = []
    for kind in kinds:
        about = kind.machine
        numbers = [f"{name} {about[name]}" for name in ("family", "model", "stepping") if name in about]
        caches = ", ".join(f"{level} {size_text(size)}" for level, size in about.get("caches", {}).items())
        pages = [
            f"{name} {about[key]}"
            for name, key in (("", "huge_pages"), ("shared", "shared_huge_pages"))
            if about.get(key)
        ]
        rows.append(
            [
                kind.name,
                ", ".join([about["processor"], *numbers]),
                str(about["cores"]),
                str(about.get("vector_bits", "")),
                caches,
                range_text(range_of(about.get("memcpy_gib_s"))),
                about.get("kernel", ""),
                ", ".join(each.strip() for each in pages),
                dates_text(kind.dates),
            ]
        )
    heading = [
        "kind",
        "processor",
        "cores",
        "vectors, bits",
        "caches",
        "memcpy, GiB/s",
        "Linux",
        "huge pages",
        "measured",
    ]
    return table(heading, rows)


# ---------------------------------------------------------------------------------------------- the page


def content(name: str, placed: set[str], kinds: Sequence[Kind], rows: Sequence[Row]) -> str:
    """Of the block `name`; `placed` are all benches that have a table of their own. Raises ValueError."""
    plain = [row for row in rows if not row.bound]
    if name == "kinds":
        return kind_table(kinds)
    if name == "bounds":
        return figure_table([row for row in rows if row.bound], kinds)
    if name == "other figures":
        return figure_table([row for row in plain if row.bench not in placed], kinds)
    word, *benches = name.split()
    if word != "figures" or not benches:
        raise ValueError(f"there is no table {name!r}")
    return figure_table([row for row in plain if row.bench in benches], kinds)


def with_tables(page: str, kinds: Sequence[Kind]) -> str:
    rows = rows_of(kinds)
    placed = {bench for found in NOT_SHOWN.findall(page) for bench in found.split()}
    for _, name, _ in BLOCK.findall(page):
        if name.startswith("figures "):
            placed.update(name.split()[1:])
    return BLOCK.sub(lambda found: found[1] + content(found[2], placed, kinds, rows) + found[3], page)


# ---------------------------------------------------------------------------------------------- a run's lines


def merge(file: str, run: str, date: str) -> tuple[str, str]:
    """The kind of machine of a run, and the text of its file: a bench of the run replaces all that `file` has of it."""
    lines = [json.loads(line) for line in run.splitlines() if line.startswith("{")]
    machine = next((line for line in lines if "machine" in line), None)
    if machine is None:
        raise ValueError("the run does not begin with a machine: scripts/bench --json prints it")
    figures = [line | {"date": date} for line in lines if "bench" in line]
    replaced = {line["bench"] for line in figures}
    before = [line for line in map(json.loads, file.splitlines()[1:]) if line["bench"] not in replaced]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in (machine, *before, *figures))
    return str(machine["machine"]["kind"]), text


def record(run: str, folder: Path, date: str) -> Path:
    kind, _ = merge("", run, date)
    file = folder / f"{kind}.jsonl"
    _, text = merge(file.read_text() if file.exists() else "", run, date)
    Kind.parse(kind, text)
    file.write_text(text)
    return file


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--record", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.record:
        file = record(options.record.read_text(), DATA, datetime.date.today().isoformat())
        print(f"written: {file.relative_to(ROOT)}", file=sys.stderr)
    page = PAGE.read_text()
    made = with_tables(page, read_kinds(DATA))
    if options.write:
        PAGE.write_text(made)
    elif options.check and made != page:
        print(f"{PAGE.relative_to(ROOT)}: its tables are not what tests/data/benchmarks gives: ", end="")
        print("scripts/benchmark_tables.py --write makes them anew")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
