"""Workflows of .github: valid by their schema, and what they run is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def check(*files: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "check-jsonschema"
    return subprocess.run(
        [program, "--builtin-schema", "vendor.github-workflows", *files], capture_output=True, text=True, check=False
    )


def test_all_are_valid_by_the_schema() -> None:
    if not WORKFLOWS:
        pytest.skip("no workflows beside these tests")
    checked = check(*WORKFLOWS)
    assert checked.returncode == 0, checked.stdout


def test_the_check_finds_a_key_that_does_not_exist(tmp_path: Path) -> None:
    if not WORKFLOWS:
        pytest.skip("no workflows beside these tests")
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "runs-in:"))
    assert check(wrong).returncode != 0


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda each: each.name)
def test_what_one_runs_is_there(workflow: Path) -> None:
    commands = re.findall(r"(?<![\w/])((?:scripts/|\.ci/)[\w-]+)", workflow.read_text())
    assert commands
    assert [each for each in commands if not (ROOT / each).exists()] == []
