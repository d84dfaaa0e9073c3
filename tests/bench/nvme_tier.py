"""The NVMe tier end to end: promotion beside fio on the same file, DRAM hits while the disk is busy, warm starts.

promotion   blocks that are only on disk, from prefetch() until the client holds them, in a node whose DRAM is full.
            Limit: fio's sequential read of the same data file, io_uring, queue depth 16, in turn. Then by a node that
            was just started, which must come by its memory meanwhile.
hits        acquire and release of 64 resident blocks by one process (p90 of batches), beside a process that only spins,
            and while another session's puts saturate the disk with demotions.
start       from exec until all paths serve; 1 M blocks of 4 KiB. Limit: the start of a node over an empty store, and a
            plain loop that reads and checks every byte of the catalog.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import statistics
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import support
from support import GiB, KiB, MiB, Node, Report, cenote, until

BLOCK = 2 * MiB
BATCH = 16
MADV_POPULATE_WRITE = 23
START_BOUND = "<= 4"


@contextlib.contextmanager
def node_over(store: Path, capacity: int, disk: int, *sets: str) -> Iterator[Node]:
    budget = f"prefetch.total_bytes={capacity}"  # a chain may be as long as DRAM
    all_of_it = "prefetch.assumed_tokens_per_s=0"  # there is no engine that could compute
    with support.node(capacity, f"nvme.paths=[{store}]", f"nvme.capacity={disk}", budget, all_of_it, *sets) as made:
        yield made


def write_down(node: Node, session: cenote.Session, names: list[bytes], block: int, batch: int) -> None:
    """At the disk's pace, so that nothing is dropped."""
    source = bytes(range(256)) * (block // 256)
    for first in range(0, len(names), batch):
        some = names[first : first + batch]
        session.put(some, [source] * len(some))
        until("written", lambda: node.status()["dram"]["writing_bytes"] == 0, limit=60)


def first_touch(size: int) -> float:
    """GiB/s at which new shared memory comes into being: what a node must do too before it can read into it."""
    file = os.memfd_create("first_touch")
    try:
        os.ftruncate(file, size)
        with mmap.mmap(file, size) as memory:
            begin = time.perf_counter()
            memory.madvise(MADV_POPULATE_WRITE)
            return size / GiB / (time.perf_counter() - begin)
    finally:
        os.close(file)


def prefetched(session: cenote.Session, names: list[bytes]) -> float:
    """GiB/s."""
    begin = time.perf_counter()
    ticket = session.prefetch(names, "wait_complete")
    length = ticket.wait(120)
    took = time.perf_counter() - begin
    assert length == len(names), length
    ticket.release()
    return len(names) * BLOCK / GiB / took


def promotion(place: Path, blocks: int, rounds: int, report: Report) -> None:
    """Two chains of which DRAM holds one: each comes up in turn, into memory that the other leaves."""
    store = place / "promotion"
    size = blocks * BLOCK
    dram, disk = size * 5 // 4, size * 5 // 2 + GiB
    spec = support.spec("promotion", BLOCK)
    chains = [support.keys(name, 0, blocks) for name in ("even", "odd")]
    figures, limits, fresh, touched = [], [], [], []
    with (
        node_over(store, dram, disk, "nvme.ingest=all") as node,
        cenote.attach(spec, socket=str(node.socket), max_pins=blocks) as session,
    ):
        for names in chains:
            write_down(node, session, names, BLOCK, BATCH)
        for turn in range(rounds):
            limits.append(support.fio(store / "data", size, "read"))
            figures.append(prefetched(session, chains[turn % 2]))
    report.add(
        f"promotion, {blocks} blocks of 2 MiB",
        statistics.median(figures),
        "GiB/s",
        statistics.median(limits),
        ">= 0.9",
    )
    for _ in range(max(rounds // 2, 1)):
        touched.append(first_touch(size))
        with node_over(store, dram, disk) as node:
            until("it serves", lambda: node.status()["nvme"]["paths"][0]["state"] == "serving", limit=30)
            with cenote.attach(spec, socket=str(node.socket), max_pins=blocks) as session:
                fresh.append(prefetched(session, chains[0]))
    report.add(
        "the same by a fresh node; limit: first touch",
        statistics.median(fresh),
        "GiB/s",
        statistics.median(touched),
    )


def spin(stop: multiprocessing.synchronize.Event) -> None:
    while not stop.is_set():
        for _ in range(10_000):
            pass


def push(socket: str, stop: multiprocessing.synchronize.Event) -> None:
    """Puts new blocks as fast as it can; what leaves DRAM goes to the disk."""
    source = bytes(BLOCK)
    with cenote.attach(support.spec("push", BLOCK), socket=socket) as session:
        number = 0
        while not stop.is_set():
            session.put(support.keys("push", number, BATCH), [source] * BATCH)
            number += BATCH


def p90_of_hits(session: cenote.Session, names: list[bytes], seconds: float) -> float:
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        with session.acquire(names) as held:
            found = len(held)
        if found == len(names):
            times.append(time.perf_counter() - begin)
        else:  # a turn without hits: nobody had used them for as long as DRAM takes to be written once
            session.put(names, [bytes(64 * KiB)] * len(names))
    return statistics.quantiles(times, n=10)[8] * 1e6


def hits(place: Path, rounds: int, report: Report) -> None:
    context = multiprocessing.get_context("spawn")
    spec = support.spec("hits", 64 * KiB)
    names = support.keys("hits", 0, 64)
    figures, limits = [], []
    written = 0.0
    with node_over(place / "hits", GiB, 8 * GiB) as node, cenote.attach(spec, socket=str(node.socket)) as session:
        session.put(names, [bytes(64 * KiB)] * len(names))
        for _ in range(rounds):
            for work, kept in ((spin, limits), (push, figures)):
                stop = context.Event()
                beside = context.Process(target=work, args=(stop,) if work is spin else (str(node.socket), stop))
                beside.start()
                time.sleep(0.5)
                before = node.status()["nvme"]["counters"]["written_bytes"]
                kept.append(p90_of_hits(session, names, 2.0))
                written += node.status()["nvme"]["counters"]["written_bytes"] - before
                stop.set()
                beside.join()
    report.add(
        "p90 of 64 hits while the disk is written",
        statistics.median(figures),
        "us",
        statistics.median(limits),
        "<= 1.1",
    )
    report.add("written meanwhile", written / GiB / (2.0 * rounds), "GiB/s")


def warm_start(place: Path, blocks: int, rounds: int, report: Report) -> None:
    store = place / "start"
    block = 4 * KiB
    disk = max(blocks * 384 * 32, 64 * MiB) + GiB
    spec = support.spec("start", block)
    with node_over(store, blocks * block * 5 // 4 + 64 * MiB, disk, "nvme.ingest=all") as node:
        with cenote.attach(spec, socket=str(node.socket)) as session:
            write_down(node, session, support.keys("start", 0, blocks), block, 8192)
        assert node.status()["nvme"]["blocks"] == blocks, node.status()["nvme"]
    times, limits = [], []
    for number in range(rounds):
        limits.append(read_catalog(store) + start_seconds(place / f"empty{number}", disk, 0))
        times.append(start_seconds(store, disk, blocks))
    report.add(f"warm start, {blocks} blocks", statistics.median(times), "s", statistics.median(limits), START_BOUND)


def start_seconds(store: Path, disk: int, blocks: int) -> float:
    """From the node's start until it serves a store that has `blocks`."""
    begin = time.perf_counter()
    with node_over(store, 64 * MiB, disk) as node:
        until("it serves", lambda: node.status()["nvme"]["paths"][0]["state"] == "serving", limit=60)
        took = time.perf_counter() - begin
        assert node.status()["nvme"]["blocks"] == blocks
    return took


def read_catalog(store: Path) -> float:
    """Seconds that reading and checking every byte of the catalog takes in a plain loop."""
    begin = time.perf_counter()
    sum(zlib.crc32(each.read_bytes()) for each in store.rglob("*") if each.is_file() and each.name != "data")
    return time.perf_counter() - begin


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--path", default=".", help="a directory on the disk to measure")
    parser.add_argument("--blocks", type=int, default=1000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", choices=["promotion", "hits", "start"])
    options = parser.parse_args()
    report = Report("nvme_tier", options.json)
    with tempfile.TemporaryDirectory(prefix="cenote-nvme-", dir=options.path) as folder:
        place = Path(folder).resolve()
        if options.only in (None, "promotion"):
            promotion(place, options.blocks, options.rounds, report)
        if options.only in (None, "hits"):
            hits(place, options.rounds, report)
        if options.only in (None, "start"):
            warm_start(place, options.entries, 3, report)


if __name__ == "__main__":
    main()
