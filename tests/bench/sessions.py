"""How rates hold as sessions come: 1 to 64 processes, each with a session of its own, all at the same time.

Each process fills its page tables first, on a thread of the library's own: 64,000 pages for each of 64 processes are
seconds of work for two processors, and were most of what this bench measured when it did not wait. The limit is the
rate of as many sessions as the machine has processors. Beyond that they only share them.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import statistics
import time
from multiprocessing.synchronize import Barrier
from typing import Any

import support
from support import GiB, KiB, Report

BLOCK = 64 * KiB
BLOCKS = 4000
CHAIN = 1000
COPIED = 16
COUNTS = (1, 2, 4, 8, 16, 32, 64)


def client(socket: str, number: int, seconds: float, rounds: int, barrier: Barrier, out: Any) -> None:
    import cenote

    names = support.keys("sessions", 0, BLOCKS)
    buffer = bytearray(COPIED * BLOCK)
    with cenote.attach(support.spec("sessions", BLOCK), socket=socket) as session:
        chains = [names[at : at + CHAIN] for at in range(0, BLOCKS, CHAIN)]

        def exists(step: int) -> int:
            found = session.exists(chains[(number + step) % len(chains)])
            assert all(found)
            return CHAIN

        def get(step: int) -> int:
            at = (number * 131 + step) * COPIED % BLOCKS
            assert session.get_into(names[at : at + COPIED], buffer) == COPIED
            return COPIED * BLOCK

        for at in range(0, BLOCKS, COPIED):  # each slab is mapped at its first use
            session.get_into(names[at : at + COPIED], buffer)
        support.settle()
        spans: dict[str, list[tuple[float, float, int]]] = {"exists": [], "get": []}
        for _ in range(rounds):
            for name, work in (("exists", exists), ("get", get)):
                work(0)
                barrier.wait()
                start = time.perf_counter()
                done = step = 0
                while time.perf_counter() - start < seconds:
                    done += work(step)
                    step += 1
                spans[name].append((start, time.perf_counter(), done))
                barrier.wait()
    out.put(spans)


def measure(socket: str, count: int, seconds: float, rounds: int) -> tuple[float, float]:
    """Keys a second and bytes a second of all sessions together."""
    context = mp.get_context("spawn")
    barrier, out = context.Barrier(count), context.Queue()
    clients = [
        context.Process(target=client, args=(socket, number, seconds, rounds, barrier, out)) for number in range(count)
    ]
    for each in clients:
        each.start()
    spans = [out.get(timeout=300) for _ in clients]
    for each in clients:
        each.join()

    def rate(name: str, turn: int) -> float:
        """From the first start to the last end: with more sessions than processors some start late."""
        starts, ends, done = zip(*(each[name][turn] for each in spans), strict=True)
        return sum(done) / (max(ends) - min(starts))

    exists, get = (statistics.median(rate(name, turn) for turn in range(rounds)) for name in ("exists", "get"))
    return exists, get


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--counts", default=",".join(map(str, COUNTS)), help="of sessions, comma between")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    counts = [int(count) for count in options.counts.split(",")]
    report = Report("sessions", options.json)
    import cenote

    with support.node(BLOCKS * BLOCK // 4 * 5) as node:
        with cenote.attach(support.spec("sessions", BLOCK), socket=str(node.socket)) as session:
            names = support.keys("sessions", 0, BLOCKS)
            block = os.urandom(BLOCK)
            for at in range(0, BLOCKS, 64):
                some = names[at : at + 64]
                session.put(some, [block] * len(some))
        results = {count: measure(str(node.socket), count, options.seconds, options.rounds) for count in counts}
        processors = len(os.sched_getaffinity(0))
        full = max((count for count in counts if count <= processors), default=1)
        for count, (keys, _) in results.items():
            report.add(f"exists, {count} sessions", keys / 1e6, "M keys/s", results[full][0] / 1e6)
        for count, (_, copied) in results.items():
            bound = ">= 0.6" if count > full else ""
            report.add(f"get of 64 KiB blocks, {count} sessions", copied / GiB, "GiB/s", results[full][1] / GiB, bound)


if __name__ == "__main__":
    main()
