"""The demonstrations that the README names, as they are."""

from __future__ import annotations

import os
import subprocess
import sys

from node import BINARY, PATIENCE, ROOT


def run_demo(name: str) -> str:
    """What it printed; fails the test with that when it fails."""
    ended = subprocess.run(
        [sys.executable, ROOT / "scripts" / name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120 * PATIENCE,
        env=os.environ | {"CENOTE_BINARY": str(BINARY), "PYTHONPATH": str(ROOT / "python")},
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_two_nodes_show_what_a_server_gives_them_and_what_its_death_takes() -> None:
    said = run_demo("demo_remote.py")
    assert "32 lie elsewhere" in said
    assert "found at B: 32 of 32 blocks" in said
