"""`cenote bench manager` beside another program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from node import SANITIZED, run_cenote

PREFIX = "prefix of 1,000 keys with addresses, one spec"
JSON = f"{PREFIX}, JSON, beside json_util"
# It writes two lines of each row, of which the rest of the last one stands without an end of the line.
PROGRAM = """#!/usr/bin/env python3
import json
for us in ([2000, 3000], [4000]):
    print(json.dumps({"row": "%s", "us": us}), flush=True)
print(json.dumps({"row": "%s", "us": [7000.5]}), end="")
"""

pytestmark = pytest.mark.skipif(SANITIZED, reason="benches are no part of a build with sanitizers")


def bench(folder: Path, program: str, *options: str) -> tuple[int, str, dict[str, dict[str, Any]]]:
    """Exit status, errors, and the figures by name without the size of the index."""
    rival = folder / "rival"
    rival.write_text(program)
    rival.chmod(0o755)
    small = ("--blocks", "100000", "--rounds", "20", "--path", str(folder), "--json")
    done = run_cenote("bench", "manager", *small, "--beside", str(rival), *options, limit=120)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, done.stderr, {each["case"].removeprefix("100000 keys: "): each for each in lines}


def test_the_times_of_a_program_stand_beside_the_rows_of_its_names(tmp_path: Path) -> None:
    status, errors, figures = bench(tmp_path, PROGRAM % (PREFIX, JSON))
    assert status == 0, errors
    assert figures[PREFIX]["limit"] == pytest.approx(3000)
    assert figures[PREFIX]["value"] > 0
    further = figures[f"{JSON}, beside the program"]
    assert (further["limit"], further["value"]) == (pytest.approx(7000.5), figures[JSON]["value"])
    assert figures[JSON]["limit"] != further["limit"]
    assert figures["number of hits of 1,000 keys"]["limit"] is None
    assert {"evictions beside a reader", "a bare batch of RocksDB of as many bytes as that session's"} <= set(figures)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("#!/bin/sh\necho no row\n", "prints no"),
        ('#!/bin/sh\necho \'{"row": "a", "us": ["1"]}\'\n', "prints no"),
        ("#!/bin/sh\nexit 3\n", "exit status 3"),
    ],
)
def test_a_program_that_prints_no_rows_is_an_error(tmp_path: Path, program: str, reason: str) -> None:
    status, errors, _ = bench(tmp_path, program)
    assert status == 1
    assert reason in errors
