"""Pages of metrics in Prometheus' text format, as tests read them."""

from __future__ import annotations

import re
from dataclasses import dataclass

SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(?:^|,)([a-z_]+)="')


@dataclass(frozen=True)
class Family:
    """A metric with all its samples. `labels` as documents write them: "`a`, `b`"."""

    name: str
    kind: str
    labels: str
    summary: str


def families_of(page: str) -> list[Family]:
    """In the order of the page."""
    found: dict[str, list[str]] = {}
    for line in page.splitlines():
        if line.startswith("# HELP "):
            name, summary = line.split(" ", 3)[2:]
            found[name] = ["", "", summary]
        elif line.startswith("# TYPE "):
            found[line.split()[2]][0] = line.split()[3]
        elif sample := SAMPLE.match(line):
            name = max((each for each in found if sample[1].startswith(each)), key=len)
            labels = [each for each in LABEL.findall(sample[2] or "") if each != "le"]
            found[name][1] = ", ".join(f"`{each}`" for each in labels)
    return [Family(name, *rest) for name, rest in found.items()]
