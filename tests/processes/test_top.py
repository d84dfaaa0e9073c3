"""`cenote top`: one frame for scripts, and the live view on a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
from conftest import StartNode
from node import BINARY, LIMIT, Node, node_environment, run_cenote


class Terminal:
    """`cenote top` on a pseudo-terminal."""

    def __init__(self, socket: Path, columns: int = 100, rows: int = 40) -> None:
        self.master, slave = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [str(BINARY), "top", "--interval", "0.1", "--socket", str(socket)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=node_environment(),
            start_new_session=True,
        )
        self.slave = slave
        self.seen = b""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, text: str) -> None:
        """Until the view shows `text` anew."""
        self.seen = b""
        end = time.monotonic() + LIMIT
        while text.encode() not in self.seen:
            left = end - time.monotonic()
            assert left > 0 and select.select([self.master], [], [], left)[0], f"no {text!r} in {self.seen!r}"
            self.seen += os.read(self.master, 1 << 16)

    def press(self, key: bytes) -> int:
        """Its exit code after `key`, and what it drew at last in `seen`."""
        os.write(self.master, key)
        self.read_until("\x1b[?1049l")
        return self.process.wait(LIMIT)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


def test_once_prints_a_frame_without_escapes(shared_node: Node, attach: Callable[..., Any]) -> None:
    session = attach(shared_node, "top-once")
    keys = blocks.keys_of("top", 0, 8)
    session.put(keys, blocks.contents_of(keys, 4096))
    ended = run_cenote("top", "--once", "--socket", shared_node.socket)
    assert ended.returncode == 0, ended.stderr
    assert "\x1b" not in ended.stdout
    (tier,) = [line for line in ended.stdout.splitlines() if line.startswith("  dram ")]
    assert "of 256.0 MiB" in tier
    assert "water 94-97 %" in tier
    (line,) = [line for line in ended.stdout.splitlines() if "top-once" in line]
    assert str(os.getpid()) in line


def test_without_a_terminal_it_says_what_to_do(shared_node: Node) -> None:
    ended = run_cenote("top", "--socket", shared_node.socket)
    assert ended.returncode == 2
    assert "--once" in ended.stderr


def test_the_view_follows_a_node_and_gives_the_terminal_back(start_node: StartNode) -> None:
    node = start_node()
    view = Terminal(node.socket)
    try:
        view.read_until("/s ")  # two looks make a rate
        view.resize(30, 4)
        os.kill(view.process.pid, 28)  # SIGWINCH: the kernel sends it to the terminal's own group only
        view.read_until("\x1b[J")
        node.stop()
        view.read_until("no answer from the no")
        node.start()
        view.resize(100, 40)
        view.read_until("TIERS")
        assert view.press(b"q") == 0
        assert termios.tcgetattr(view.slave) == view.before
    finally:
        view.close()
