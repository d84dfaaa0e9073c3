"""The names of eviction policies, from the table of docs/policies.md, which is written from the registry."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/policies.md"
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|.*\| (?P<use>[^|]*) \| (?P<candidate>[^|]*)\|$", re.MULTILINE)


def of_requests() -> list[str]:
    """What `dram.policy` takes."""
    return [row["name"] for row in ROW.finditer(PAGE.read_text()) if row["use"] in ("every tier", "DRAM")]


def candidates() -> list[str]:
    """What `auto` chooses among."""
    return [row["name"] for row in ROW.finditer(PAGE.read_text()) if row["candidate"].strip() == "yes"]
