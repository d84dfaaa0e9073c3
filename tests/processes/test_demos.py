"""The demonstrations that the README names, as they are."""

from __future__ import annotations

import sys

from node import BINARY, ROOT
from test_examples import run


def test_two_nodes_show_what_a_server_gives_them_and_what_its_death_takes() -> None:
    environment = {"CENOTE_BINARY": str(BINARY), "PYTHONPATH": str(ROOT / "python")}
    said = run(sys.executable, ROOT / "scripts" / "demo_remote.py", environment=environment)
    assert "32 lie elsewhere" in said
    assert "found at B: 32 of 32 blocks" in said


def test_a_cluster_shows_how_it_heals() -> None:
    said = run(sys.executable, ROOT / "scripts" / "demo_cluster.py", environment={"CENOTE_BINARY": str(BINARY)})
    assert "3 nodes see each other" in said
    assert said.count("all see each other") == 4
