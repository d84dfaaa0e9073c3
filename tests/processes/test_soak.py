"""Attaches by the thousand, instances that come and go, several users, slow HTTP clients: nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import wire
from conftest import StartAgent, StartNode, make_spec
from footprint import Footprint, left_since
from node import FULL, SANITIZED, MiB, Node, until

Attach = Callable[..., Any]
NOBODY = 65534
MINUTES = 10 if FULL else 1
A_MINUTE = (5 if SANITIZED else 16) * (60 if FULL else 30)  # visits
SECONDS = 60 if FULL else 0  # over which they are spread; 0: one follows the other
BLOCK = 4096


class SlowWatchers(threading.Thread):
    """HTTP clients that never finish their requests, so many at a time; new ones when the node cuts them off."""

    def __init__(self, node: Node, count: int = 40) -> None:
        super().__init__(daemon=True)
        host, _, port = str(node.status()["node"]["metrics"]).rpartition(":")
        self.where = (host, int(port))
        self.count = count
        self.opened = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        waiting: list[socket.socket] = []
        while not self.stopping.wait(0.2):
            while len(waiting) < self.count:
                with contextlib.suppress(OSError):
                    waiting.append(socket.create_connection(self.where, 1))
                self.opened += 1
                if self.opened % self.count == 0:
                    break
            for each in list(waiting):
                try:
                    each.send(b"G")
                except OSError:
                    waiting.remove(each)
                    each.close()
        for each in waiting:
            each.close()


def visit(node: Node, number: int) -> tuple[float, float]:
    """One client that comes, stores, reads and goes; seconds of its attach and of its put."""
    begin = time.perf_counter()
    session = cenote.attach(make_spec(f"soak{number % 37}"), socket=str(node.socket))
    attached = time.perf_counter()
    keys = blocks.keys_of(f"s{number}", 0, 4)
    stored = session.put(keys, blocks.contents_of(keys, BLOCK))
    done = time.perf_counter()
    assert stored == len(keys)
    with session.acquire(keys) as held:
        assert blocks.wrong_blocks(keys[: len(held)], [b.view() for b in held], BLOCK) == []
    session.close()
    return attached - begin, done - attached


def visits(node: Node, first: int, count: int, seconds: float) -> list[tuple[float, float]]:
    """So many visits, spread over `seconds`."""
    begin = time.monotonic()
    times = []
    for number in range(count):
        times.append(visit(node, first + number))
        ahead = begin + seconds * number / count - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
    return times


def medians(times: list[tuple[float, float]]) -> str:
    attach, put = (statistics.median(column) * 1e3 for column in zip(*times, strict=True))
    return f"attach {attach:.2f} ms, put {put:.2f} ms"


def test_a_node_is_after_many_visitors_what_it_was_before(
    public: Path, start_node: StartNode, start_agent: StartAgent
) -> None:
    node = start_node(
        "instances.idle=2s", f"auth.allow_uids=[{NOBODY}]", "metrics.listen=127.0.0.1:0", folder=public / "run"
    )
    visits(node, 0, 50, 0.1)
    until("idle instances are given up", lambda: not node.status()["instances"])
    before = Footprint.of(node)
    watchers = SlowWatchers(node)
    watchers.start()
    agent = start_agent(node)
    stranger = os.geteuid() == 0
    if stranger:
        agent.call("become", uid=NOBODY, gid=NOBODY)
    first: list[tuple[float, float]] = []
    last: list[tuple[float, float]] = []
    for minute in range(MINUTES):
        count = A_MINUTE // 5
        agent.send("come_and_go", instance=f"stranger{minute}", label=f"x{minute}", count=count, block=BLOCK)
        last = visits(node, 1000 + minute * A_MINUTE, A_MINUTE - count, SECONDS)
        assert agent.answer(limit=120) == count
        first = first or last[:100]
        wire.ask_node(node.socket, "status")
    watchers.stopping.set()
    watchers.join(20)
    agent.kill()
    print(f"first: {medians(first)}; last: {medians(last[-100:])}; {watchers.opened} slow HTTP clients")
    until("idle instances are given up", lambda: not node.status()["instances"])
    until("the sessions are gone", lambda: not node.status()["sessions"])
    assert left_since(node, before, private=(150 if SANITIZED else 24) * MiB) == []
