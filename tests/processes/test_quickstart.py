"""`cenote quickstart`: a node, two engines and what came of it, and nothing that stays."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from node import node_environment, run_cenote


def test_it_shows_hits_of_a_real_node_and_leaves_nothing_behind() -> None:
    with tempfile.TemporaryDirectory(prefix="cq-") as home:  # short: a socket's path is bounded
        ended = run_cenote("quickstart", "--json", env=node_environment() | {"TMPDIR": home, "XDG_RUNTIME_DIR": home})
        assert ended.returncode == 0, ended.stderr
        assert list(Path(home).iterdir()) == []
    found = json.loads(ended.stdout)
    assert (found["requests"], found["engines"], found["wrong_blocks"]) == (300, 2, 0)
    assert 0.5 < found["hit_ratio"] < 1
    assert found["hit_tokens"] == round(found["hit_ratio"] * found["tokens"])
    assert found["verified_bytes"] == found["bytes_read"] > 0


def test_its_text_says_what_was_gained_and_what_to_do_next() -> None:
    ended = run_cenote("quickstart")
    assert ended.returncode == 0, ended.stderr
    for each in ("A node with", "all were right", "would have computed", "cenote node", "vllm serve", "cenote doctor"):
        assert each in ended.stdout
    assert all(len(line) <= 120 for line in ended.stdout.splitlines())
    assert ended.stderr == ""
