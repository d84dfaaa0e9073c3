"""Instructions of lookups, puts and commits, counted by valgrind: a regression that no busy machine hides."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("CENOTE_BINARY", ROOT / "build" / "cenote")).parent
PROGRAM = BUILD / "tests" / "bin" / "counted_work"
FIGURES = ROOT / "tests" / "data" / "counts.toml"
KNOWN = tomllib.loads(FIGURES.read_text())

pytestmark = [
    pytest.mark.skipif(bool(os.environ.get("CENOTE_SANITIZER")), reason="a sanitizer's instructions are not ours"),
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed (Debian package: valgrind)"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the figures are of x86-64"),
]


def instructions(operation: str, scratch: Path) -> float:
    """Of one operation, counted within the program's counted_section()."""
    tool = ["valgrind", "--tool=callgrind", "--toggle-collect=counted_section", f"--callgrind-out-file={scratch}"]
    done = subprocess.run([*tool, str(PROGRAM), operation], check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    collected = re.search(r"Collected : (\d+)", done.stderr)
    operations = re.search(r"operations (\d+)", done.stdout)
    assert collected and operations, done.stderr
    return int(collected[1]) / int(operations[1])


def write(operation: str, figure: float) -> None:
    text = re.sub(rf"(?m)^{operation} = .*$", f"{operation} = {figure:.0f}", FIGURES.read_text())
    FIGURES.write_text(text)


@pytest.mark.parametrize("operation", sorted(KNOWN["instructions"]))
def test_an_operation_takes_no_more_instructions_than_it_did(operation: str, tmp_path: Path) -> None:
    figure = instructions(operation, tmp_path / "callgrind.out")
    if os.environ.get("CENOTE_TEST_WRITE_COUNTS"):
        write(operation, figure)
        return
    known = KNOWN["instructions"][operation]
    print(f"{operation}: {figure:.0f} instructions, {known} known")
    assert figure <= known * (1 + KNOWN["tolerance"]), f"{operation}: {figure:.0f} instructions, {known} known"
