"""What the demonstrations of several nodes share: a node, and waiting."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds for anything that must come


def until(what: str, condition: Callable[[], bool], pause: float = 0.02) -> float:
    """Seconds until it was so."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > PATIENCE:
            raise SystemExit(f"after {PATIENCE:g} s still not so: {what}")
        time.sleep(pause)
    return time.monotonic() - begun


class DemoNode:
    """A node of a demonstration, in a folder of its own; $CENOTE_BINARY is the program."""

    def __init__(self, name: str, folder: Path, settings: Sequence[str]) -> None:
        self.name = name
        self.socket = folder / "cenote.sock"
        self._log = folder / "node.log"
        ours = [f"node.runtime_dir={folder}", f"node.socket={self.socket}", "metrics.listen=off"]
        words = (word for each in (*ours, *settings) for word in ("--set", each))
        self._command = [os.environ["CENOTE_BINARY"], "node", "--config", "", *words]
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=subprocess.STDOUT)

    def ask(self, *words: str) -> str:
        """What a subcommand says of this node; empty while the node does not answer."""
        command = [os.environ["CENOTE_BINARY"], *words, "--socket", str(self.socket)]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        if self._process.poll() is not None:
            raise SystemExit(f"node {self.name} ended; its log:\n{self._log.read_text()}")
        return told.stdout if told.returncode == 0 else ""

    def status(self) -> dict[str, Any]:
        """Empty while the node does not answer."""
        said = self.ask("status", "--json")
        return dict(json.loads(said)) if said else {}

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(PATIENCE)
