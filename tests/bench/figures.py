"""A figure of a bench as a line of JSON: the same from `cenote bench` and from the scripts here.

    {"bench", "case", "value", "unit", "limit", "ratio", "bound", "kept"}

The limit, in the same unit, comes from the same run; the ratio is value / limit. A bound is text: ">= 0.95" bounds the
ratio, "<= 256 bytes/block" the value, "<= limit + 200 us" the value less the limit.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """The promise for a ratio, of a value where it has a unit, or of a value less its limit."""

    is_upper: bool
    number: float
    unit: str = ""
    is_difference: bool = False

    @classmethod
    def parse(cls, text: str) -> Bound | None:
        """None of an empty text. Raises ValueError for what is no bound."""
        if not text:
            return None
        beyond = re.fullmatch(r"<= limit \+ ([0-9]+(?:\.[0-9]+)?) (\S.*)", text)
        if beyond:
            return cls(True, float(beyond[1]), beyond[2], is_difference=True)
        found = re.fullmatch(r"(<=|>=) ([0-9]+(?:\.[0-9]+)?)(?: (\S.*))?", text)
        if not found:
            raise ValueError(
                f"{text!r} is no bound: write '<= 2' of a ratio, '<= 256 bytes' of a value, '<= limit + 200 us'"
            )
        return cls(found[1] == "<=", float(found[2]), found[3] or "")

    def holds(self, value: float | None, ratio: float | None, limit: float | None = None) -> bool | None:
        """None where the figure that it bounds is missing."""
        number = value if self.unit else ratio
        if self.is_difference:
            number = value - limit if value is not None and limit is not None else None
        if number is None:
            return None
        return number <= self.number if self.is_upper else number >= self.number


class Report:
    """Prints figures as they come, as lines of JSON or for people."""

    def __init__(self, bench: str, as_json: bool) -> None:
        self.bench = bench
        self.as_json = as_json
        if not as_json:
            print(f"{'CASE':<48}{'FIGURE':>12} {'UNIT':<16}{'LIMIT':>12}{'RATIO':>8}  {'BOUND':<16}KEPT")

    def add(
        self, case: str, value: float, unit: str, limit: float | None = None, bound: str = "", note: str = ""
    ) -> None:
        """Raises ValueError where `bound` is none, or names another unit."""
        ratio = value / limit if limit else None
        parsed = Bound.parse(bound)
        if parsed is not None and parsed.unit not in ("", unit):
            raise ValueError(f"{case}: {bound!r} bounds {parsed.unit}, but the figure is in {unit}")
        kept = parsed.holds(value, ratio, limit) if parsed is not None else None
        if self.as_json:
            line = {"bench": self.bench, "case": case, "value": value, "unit": unit, "limit": limit, "ratio": ratio}
            print(json.dumps(line | {"bound": bound, "kept": kept} | ({"note": note} if note else {})), flush=True)
            return
        limit_text = f"{limit:.4g}" if limit is not None else ""
        ratio_text = f"{ratio:.2f}" if ratio is not None else ""
        kept_text = {None: "", True: "yes", False: "NO"}[kept]
        row = f"{case:<48}{value:>12.4g} {unit:<16}{limit_text:>12}{ratio_text:>8}  {bound:<16}{kept_text:<4}{note}"
        print(row.rstrip(), flush=True)
