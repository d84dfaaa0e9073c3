"""Time from kill -9 of the worker until a new client finds the same blocks again, with a full tier.

Blocks of 4 KiB. From --blocks-in-memory on they are left unwritten and their slabs empty, to fit into less memory: a
restart looks at records and index only, not at the blocks. The limit, in turn with it, is one process that starts, maps
the very records, and reads and checks each in a plain loop (`cenote bench records`).
"""

from __future__ import annotations

import statistics
import subprocess
import time

import support
from node import BINARY
from support import KiB, MiB, Report

BLOCK = 4 * KiB
SAMPLE = 1000
BOUND = "<= 7"
BOUNDED = 1_000_000  # blocks, from there on: fewer are read while a process starts


def fill(node: support.Node, session: support.cenote.Session, blocks: int, written: bool) -> None:
    step = 50_000
    source = bytes(BLOCK)
    for first in range(0, blocks, step):
        names = support.keys("restart", first, min(step, blocks - first))
        if written:
            for at in range(0, len(names), 500):
                some = names[at : at + 500]
                session.put(some, [source] * len(some))
        else:
            support.commit_unwritten(session, names)
            support.punch([each for each in support.memfds(node.pid) if "slab" in each.name])


def plain_loop(node: support.Node, blocks: int) -> float:
    """Seconds from the start of a process until it has read and checked all records of the node, and ended."""
    (records,) = (each.path for each in support.memfds(node.pid) if "records" in each.name)
    command = [str(BINARY), "bench", "records", f"--memory={records}", f"--count={blocks}", "--json"]
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def measure(blocks: int, rounds: int, written: bool, report: Report) -> None:
    import cenote

    sets = [] if written else ["dram.populate=false"]
    with support.node(blocks * BLOCK // 8 * 9 + 64 * MiB, *sets) as node:
        spec = support.spec("restart", BLOCK)
        with cenote.attach(spec, socket=str(node.socket)) as session:
            fill(node, session, blocks, written)
        sample = support.keys("restart", blocks - SAMPLE, SAMPLE)
        times, limits = [], []
        for _ in range(rounds):
            limits.append(plain_loop(node, blocks))
            assert node.blocks()["present"] == blocks, "the tier was too small"
            start = time.perf_counter()
            node.worker_dies()
            with cenote.attach(spec, socket=str(node.socket)) as session:
                found = session.match(sample).resident
                session.barrier()  # the worker works, too
                times.append(time.perf_counter() - start)
                assert found == SAMPLE, found
        what = "" if written else ", unwritten"
        limit = statistics.median(limits)
        bound = BOUND if blocks >= BOUNDED else ""
        report.add(f"{blocks} blocks{what}", statistics.median(times), "s", limit, bound)
        report.add(f"{blocks} blocks{what}, slowest of {rounds}", max(times), "s", limit, bound)


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--blocks", type=int, nargs="*", default=[10_000, 100_000, 1_000_000, 4_000_000])
    parser.add_argument("--blocks-in-memory", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    report = Report("restart_time", options.json)
    for blocks in options.blocks:
        measure(blocks, options.rounds, blocks <= options.blocks_in_memory, report)


if __name__ == "__main__":
    main()
