"""Cenote's NVMe tier beside LMCache's and SGLang's disk backends: the same blocks, the same directory, in turn.

store       from blocks in the caller's memory until the peer's call or task ended; Cenote: from put() until the node
            has written all of them. "synced": and until every file was fsynced, which none of them does by itself.
load        from disk to host memory that the caller can read; each in a new process. Cenote: a node that was started
            again, from prefetch() until the client holds the blocks. SGLang reads through the page cache: its files are
            fsynced and dropped from it before (posix_fadvise), and LMCache's too. Read-ahead stays as it is.
limit       fio in the same directory, the same round: io_uring, O_DIRECT, queue depth 16, the same block size.

cenote      O_DIRECT, io_uring. Writes a checksum with every block, and checks it at every load. Its store includes the
            copy into shared memory; its write window is set to all of the data, so that none is dropped.
lmcache     `fs_native` with O_DIRECT, a file a block, all blocks in one task, N worker threads (4 is its default). No
            checksum: what the file holds is what the caller gets.
sglang      HiCacheFile, a file a block, through the page cache, one block after the other; its "store" ends before the
            disk has the bytes, compare "synced". No checksum; a short file is an error.

Peers run from scripts/peers, without a GPU. Contents are compared after every load, outside the time.
Memory of all three was touched before the clock starts, as in a program that has run for a while.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import support
from support import GiB, KiB, MiB, Node, Report, cenote, until

CALL = 32 * MiB  # bytes a put
Figures = dict[str, list[float]]  # seconds by direction


class Work:
    """What each system stores and loads."""

    def __init__(self, blocks: int, block: int) -> None:
        self.blocks, self.block, self.size = blocks, block, blocks * block
        self.spec = support.spec("peers", block)
        self.keys = support.keys("peers", 0, blocks)
        self.memory = bytearray(random.Random(1).randbytes(block) * blocks)
        self.rows = [memoryview(self.memory)[at : at + block] for at in range(0, self.size, block)]
        for number, row in enumerate(self.rows):
            row[:8] = row[-8:] = number.to_bytes(8, "little")


@contextmanager
def node_over(store: Path, work: Work) -> Iterator[Node]:
    room = work.size * 5 // 4 + 64 * MiB
    sets = [
        f"nvme.paths=[{store}]",
        f"nvme.capacity={room + GiB}",
        "nvme.ingest=all",
        f"nvme.write_window={work.size}",
        "limits.reserve_share=1",
    ]
    sets.append(f"prefetch.total_bytes={room}")  # a chain may be as long as DRAM
    with support.node(room, *sets) as node:
        until("it serves", lambda: node.status()["nvme"]["paths"][0]["state"] == "serving", limit=60)
        yield node


def touch_memory(node: Node, session: cenote.Session, work: Work) -> None:
    """Through blocks never committed: the peers' buffers too were touched before the clock starts."""
    scratch = support.keys("scratch", 0, work.blocks)
    slots = [slot for at in range(0, work.blocks, 64) for slot in session.reserve(scratch[at : at + 64])]

    def touched() -> bool:
        return sum(each.allocated for each in support.memfds(node.worker_pid)) >= work.size

    until("memory is touched", touched, limit=120)
    session.abandon(slots)


def written(node: Node, work: Work) -> bool:
    status = node.status()
    counters = status["nvme"]["counters"]
    assert counters["dropped"] == 0, counters
    return bool(counters["written"] == work.blocks and status["nvme"]["bytes_in_flight"] == 0)


def cenote_store(store: Path, work: Work) -> Iterator[tuple[str, float]]:
    batch = max(1, CALL // work.block)
    with node_over(store, work) as node, cenote.attach(work.spec, socket=str(node.socket)) as session:
        touch_memory(node, session, work)
        begin = time.perf_counter()
        for at in range(0, work.blocks, batch):
            session.put(work.keys[at : at + batch], work.rows[at : at + batch])
        until("all is written", lambda: written(node, work), limit=600, pause=0.002)
        yield "store", time.perf_counter() - begin
        fd = os.open(store / "data", os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        yield "store, synced", time.perf_counter() - begin


def cenote_load(store: Path, work: Work) -> Iterator[tuple[str, float]]:
    with (
        node_over(store, work) as node,
        cenote.attach(work.spec, socket=str(node.socket), max_pins=work.blocks) as session,
    ):
        assert session.match(work.keys).resident == 0
        touch_memory(node, session, work)
        begin = time.perf_counter()
        ticket = session.prefetch(work.keys, "wait_complete")
        assert ticket.wait(600) == work.blocks
        with ticket.held() as held:
            yield "load", time.perf_counter() - begin
            assert all(block.view() == row for block, row in zip(held, work.rows, strict=True)), "other bytes"
        ticket.release()


def run_cenote(store: Path, work: Work) -> Iterator[tuple[str, float]]:
    yield from cenote_store(store, work)
    yield from cenote_load(store, work)


def run_peer(peers: Path, name: str, workers: int, store: Path, work: Work) -> Iterator[tuple[str, float]]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(peers / "stand-ins")}
    for direction in ("store", "load"):
        command = [peers / "bin/python", support.HERE / "nvme_peer.py", name, direction, store]
        command += [work.blocks, work.block, workers]
        words = [str(word) for word in command]
        ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        took = json.loads(ran.stdout.splitlines()[-1])
        yield direction, took["seconds"]
        if direction == "store":
            yield "store, synced", took["synced"]


def one_round(place: Path, work: Work, systems: list[str], peers: Path, figures: dict[str, Figures]) -> None:
    for direction in ("write", "read"):
        figures["fio"][direction].append(work.size / GiB / support.fio(place / "fio", work.size, direction, work.block))
    (place / "fio").unlink()
    for system in systems:
        store = place / system.replace(" ", "-")
        name, _, workers = system.partition(" ")
        run = run_cenote(store, work) if name == "cenote" else run_peer(peers, name, int(workers or 0), store, work)
        for direction, seconds in run:
            figures[system][direction].append(seconds)
        shutil.rmtree(store)


def tell(report: Report, work: Work, figures: dict[str, Figures]) -> None:
    """Rates beside fio's, then how many times as fast Cenote is."""
    rate = {
        (system, direction): work.size / GiB / statistics.median(seconds)
        for system, by_direction in figures.items()
        for direction, seconds in by_direction.items()
    }
    size = f"{work.block // KiB} KiB"
    for (system, direction), value in rate.items():
        title = f"{system}{' threads' if ' ' in system else ''} {direction}, {size}"
        limit = None if system == "fio" else rate["fio", "read" if direction == "load" else "write"]
        report.add(title, value, "GiB/s", limit)
        if system not in ("fio", "cenote"):
            report.add(f"  cenote / {title}", rate["cenote", direction] / value, "times")


def peers_folder() -> Path:
    ran = subprocess.run([support.ROOT / "scripts/peers"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(ran.stdout.strip())


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--path", default=".", help="a directory on the disk to measure")
    parser.add_argument("--blocks", type=int, default=512)
    parser.add_argument("--block", type=int, default=2 * MiB, help="bytes a block, a multiple of 4096")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 16], help="LMCache's threads; a row each")
    parser.add_argument("--peers", type=Path, help="what scripts/peers made; default: ask it")
    options = parser.parse_args()
    peers = options.peers or peers_folder()
    systems = ["cenote", *(f"lmcache {workers}" for workers in options.workers), "sglang"]
    work = Work(options.blocks, options.block)
    figures: dict[str, Figures] = {name: defaultdict(list) for name in ["fio", *systems]}
    report = Report("nvme_peers", options.json)
    with tempfile.TemporaryDirectory(prefix="cenote-peers-", dir=options.path) as folder:
        for number in range(options.rounds):
            turn = number % len(systems)  # nobody always follows the same neighbour
            one_round(Path(folder).resolve(), work, systems[turn:] + systems[:turn], peers, figures)
    tell(report, work, figures)


if __name__ == "__main__":
    main()
