"""An engine's end waits for no node, and its log has a line for a full one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cenote import NoSpace
from cenote._calls import Calls
from cenote._full_node import FullNode

PACKAGE = Path(__file__).resolve().parents[2] / "python"


def test_a_process_ends_though_a_call_to_its_node_never_does() -> None:
    script = """
        import atexit, threading
        from cenote._calls import Calls
        atexit.register(lambda: print("shut down", flush=True))
        begun = threading.Event()
        calls = Calls(1, "hung")
        calls.submit(lambda: (begun.set(), threading.Event().wait()))
        begun.wait()
        calls.submit(print, "never")
    """
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    ended = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "shut down\n", "")


def test_no_thread_of_the_package_is_waited_for_when_a_process_ends() -> None:
    sources = sorted((PACKAGE / "cenote").rglob("*.py"))
    assert len(sources) > 20
    for source in sources:
        assert "ThreadPoolExecutor" not in source.read_text(), source


def test_calls_answer_as_an_executors_do() -> None:
    calls = Calls(2, "some")
    assert [each.result(10) for each in [calls.submit(pow, i, 2) for i in range(100)]] == [i * i for i in range(100)]
    with pytest.raises(ZeroDivisionError):
        calls.submit(divmod, 1, 0).result(10)
    calls.close()
    assert calls.submit(pow, 2, 2).cancelled()


def test_a_full_node_has_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    full = FullNode(logging.getLogger("cenote"), lambda: now)
    with caplog.at_level(logging.WARNING, "cenote"):
        for _ in range(50):
            full.refused(4, NoSpace("every block is pinned"))
        assert [each.getMessage() for each in caplog.records] == [
            "the node has no room: 4 blocks are not stored, and computed again: every block is pinned"
        ]
        now += 60
        full.refused(1, NoSpace("every block is pinned"))
        assert len(caplog.records) == 2
        assert "197 blocks" in caplog.records[1].getMessage()
