"""Processor time of a node that has blocks and sessions but nothing to do: keeper and worker together.

The limit is a core that is busy all the time.
"""

from __future__ import annotations

import os
import time

import support
from support import KiB, MiB, Report

BLOCK = 64 * KiB


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--sessions", type=int, default=4)
    options = parser.parse_args()
    report = Report("idle_cpu", options.json)
    import cenote

    with support.node(256 * MiB) as node:
        sessions = [
            cenote.attach(support.spec("idle", BLOCK), socket=str(node.socket)) for _ in range(options.sessions)
        ]
        sessions[0].put(support.keys("idle", 0, 1000), [os.urandom(BLOCK)] * 1000)
        time.sleep(2)
        pids = {"keeper": node.pid, "worker": node.worker_pid}
        before = {name: support.processor_seconds(pid) for name, pid in pids.items()}
        start = time.perf_counter()
        time.sleep(options.seconds)
        wall = time.perf_counter() - start
        total = 0.0
        for name, pid in pids.items():
            share = 100 * (support.processor_seconds(pid) - before[name]) / wall
            total += share
            report.add(name, share, "% of a core")
        report.add(f"both, {options.sessions} idle sessions", total, "% of a core", 100, "<= 0.01")
        for each in sessions:
            each.close()


if __name__ == "__main__":
    main()
