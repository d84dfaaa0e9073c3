"""What the Python benches share: a node of their own, keys, medians, and lines like those of `cenote bench`."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / "processes"), str(ROOT / "python")]

import cenote  # noqa: E402
from figures import Report  # noqa: E402, F401
from node import Node, until  # noqa: E402, F401

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30
CLIENT = "cenote bench"


def arguments(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="a line each, as figures.py describes it")
    return parser


def settle(limit: float = 60) -> None:
    """Waits until this process does nothing in the background any more: a session populates new slabs on a thread."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        before = time.process_time()
        time.sleep(0.2)
        if time.process_time() - before < 0.2 * 0.02:
            return


@contextlib.contextmanager
def node(capacity: int, *sets: str) -> Iterator[Node]:
    """A node in a directory that goes away with it."""
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as place:
        made = Node(Path(place) / "run", f"dram.capacity={capacity}", *sets)
        try:
            made.start()
            yield made
        finally:
            if made.running:
                made.stop()
            made.kill_everything()


def spec(name: str, block_bytes: int) -> cenote.InstanceSpec:
    return cenote.InstanceSpec(
        id=f"bench-{name}-{block_bytes}",
        model="bench",
        dtype="bytes",
        layout="flat",
        tokens_per_block=16,
        groups={"default": {"parts": {"kv": block_bytes}}},
        hash_scheme="bench",
        fingerprint=None,
        instance_group=None,
    )


def keys(series: str, first: int, count: int) -> list[bytes]:
    """Keys [first, first + count) of a series, 32 bytes each."""
    return [hashlib.blake2b(f"{series}/{i}".encode(), digest_size=32).digest() for i in range(first, first + count)]


def median_time(rounds: int, *steps: Callable[[], object]) -> list[float]:
    """Runs the steps in turn, `rounds` times; the median of each, seconds. One round more warms up."""
    times: list[list[float]] = [[] for _ in steps]
    for number in range(rounds + 1):
        for step, kept in zip(steps, times, strict=True):
            start = time.perf_counter()
            step()
            taken = time.perf_counter() - start
            if number:
                kept.append(taken)
    return [statistics.median(kept) for kept in times]


def commit_unwritten(session: cenote.Session, names: Sequence[bytes], batch: int = 500) -> None:
    """Makes keys present without writing their blocks."""
    for first in range(0, len(names), batch):
        session.commit(session.reserve(names[first : first + batch]))


def fio(file: Path, size: int, direction: str, block: int = 2 * MiB) -> float:
    """What the disk itself does, GiB/s: `direction` is read or write, sequential, io_uring, queue depth 16."""
    command = ["fio", "--name=disk", f"--filename={file}", "--ioengine=io_uring", "--direct=1", f"--rw={direction}"]
    command += [f"--bs={block}", "--iodepth=16", "--registerfiles=1", "--fixedbufs=1", f"--size={size}"]
    ran = subprocess.run([*command, "--output-format=json"], capture_output=True, text=True, check=True)
    return float(json.loads(ran.stdout)["jobs"][0][direction]["bw_bytes"]) / GiB


def processor_seconds(pid: int) -> float:
    """User and system time of all threads of a process, to the nanosecond."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


class Memfd:
    """One shared-memory segment that a process holds open."""

    def __init__(self, entry: Path) -> None:
        self.path = entry
        self.name = os.readlink(entry).removeprefix("/memfd:").removesuffix(" (deleted)")
        status = entry.stat()
        self.inode = status.st_ino
        self.allocated = status.st_blocks * 512


def memfds(pid: int) -> list[Memfd]:
    """The segments of a process, each once."""
    found: dict[int, Memfd] = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(entry).startswith("/memfd:"):
                each = Memfd(entry)
                found[each.inode] = each
    return list(found.values())


def punch(segments: Sequence[Memfd]) -> None:
    """Gives the memory of segments back, all but the last page; they read as zeros. Only for blocks nobody wrote."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
    for each in segments:
        fd = os.open(each.path, os.O_RDWR)
        try:
            size = os.fstat(fd).st_size - 4096
            if libc.fallocate(fd, 3, 0, size) != 0:  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
                raise OSError(ctypes.get_errno(), "fallocate")
        finally:
            os.close(fd)
