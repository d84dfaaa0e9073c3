"""Fetching blocks that another node has: Cenote's pool beside Mooncake Store over TCP, in turn, in one run.

    python pool_peers.py [--blocks N] [--block BYTES] [--rounds N] [--json]

cenote      two nodes; from prefetch() at one until its client holds what only the other one has. The question where the
            blocks are, the check of every block and its publication in shared memory are within the time.
mooncake    its master, a process with a segment that has the blocks, and a client without a segment that gets them with
            one batch_get_into() into registered memory of its own, over TCP. It checks nothing.

Both over loopback, as many new blocks in each round; bytes are compared after the time. All memory was touched before:
the first round does not count. Installs Mooncake outside the tree (scripts/engine-venv mooncake).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

GiB, MiB = 1 << 30, 1 << 20
PATIENCE = 60.0
LEASE = 3000  # ms: a get that takes longer fails, and what was got cannot be removed before


# ---- in Mooncake's environment


def store(master: str, segment: int, buffer: int) -> Any:
    from mooncake.store import MooncakeDistributedStore

    made = MooncakeDistributedStore()
    end = time.monotonic() + PATIENCE
    while made.setup("127.0.0.1", "P2PHANDSHAKE", segment, buffer, "tcp", "", master) != 0:
        if time.monotonic() > end:
            raise SystemExit("pool_peers: Mooncake's store did not start")
        time.sleep(0.1)
    return made


def content(block: int) -> bytes:
    """Not zeros, and the same in both processes."""
    return bytes(range(251)) * (block // 251) + bytes(block % 251)


def hold(master: str, block: int, count: int) -> None:
    """Has as many blocks as a line on stdin says, of the series that it names, and forgets those before."""
    made = store(master, 3 * block * count + 64 * MiB, 64 * MiB)
    value = content(block)
    print("ready", flush=True)
    for line in sys.stdin:
        series = line.strip()
        for i in range(count):
            if (refused := made.put(f"{series}/{i}", value)) != 0:
                raise SystemExit(f"pool_peers: Mooncake did not store a block: {refused}")
        print("ready", flush=True)
    os._exit(0)


def get(master: str, block: int, count: int) -> None:
    """For each line on stdin the seconds in which the blocks of that series came."""
    made = store(master, 0, 64 * MiB)
    memory = mmap.mmap(-1, block * count)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if made.register_buffer(base, len(memory)) != 0:
        raise SystemExit("pool_peers: Mooncake did not register the memory")
    value = content(block)
    print("ready", flush=True)
    for line in sys.stdin:
        names = [f"{line.strip()}/{i}" for i in range(count)]
        places = [base + i * block for i in range(count)]
        memory.seek(0)
        memory.write(bytes(len(memory)))
        begin = time.perf_counter()
        got = made.batch_get_into(names, places, [block] * count)
        took = time.perf_counter() - begin
        if any(each != block for each in got):
            raise SystemExit(f"pool_peers: Mooncake did not get all blocks: {sorted(set(got))}")
        if any(memory[i * block : (i + 1) * block] != value for i in range(count)):
            raise SystemExit("pool_peers: Mooncake got other bytes")
        removed = 0
        while removed < count:
            time.sleep(0.05)
            removed += max(0, made.remove_all())
        print(json.dumps({"seconds": took}), flush=True)
    os._exit(0)


# ---- in the bench


class Mooncake:
    """Its master, the process that has the blocks, and the one that gets them."""

    def __init__(self, stack: contextlib.ExitStack, block: int, count: int) -> None:
        from node import free_ports

        make = [str(Path(__file__).resolve().parents[2] / "scripts/engine-venv"), "mooncake", "--path"]
        ran = subprocess.run(make, stdout=subprocess.PIPE, text=True, check=True)
        self.python = Path(ran.stdout.splitlines()[-1])
        self.stack = stack
        port, metrics = free_ports(2)
        master = [str(self.python.parent / "mooncake_master"), f"--rpc_port={port}", f"--metrics_port={metrics}"]
        master += [f"--default_kv_lease_ttl={LEASE}"]
        quiet = subprocess.DEVNULL
        self._end(stack, subprocess.Popen(master, stdin=quiet, stdout=quiet, stderr=quiet, text=True))
        words = (f"127.0.0.1:{port}", str(block), str(count))
        self.holder, self.getter = (
            self._start([str(self.python), __file__, what, *words]) for what in ("--hold", "--get")
        )
        for each in (self.holder, self.getter):
            self._line(each)
        self.number = 0

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        variables = os.environ | {"GLOG_minloglevel": "2"}
        return self._end(self.stack, subprocess.Popen(command, stdin=pipe, stdout=pipe, env=variables, text=True))

    @staticmethod
    def _end(stack: contextlib.ExitStack, started: subprocess.Popen[str]) -> subprocess.Popen[str]:
        """Kills it when the bench ends."""
        stack.callback(started.wait)
        stack.callback(started.kill)
        return started

    @staticmethod
    def _line(of: subprocess.Popen[str]) -> str:
        """The next one of ours: Mooncake logs to stdout, too."""
        assert of.stdout is not None
        for line in of.stdout:
            if line.startswith(("{", "ready")):
                return line.strip()
        raise SystemExit("pool_peers: a process of Mooncake's ended")

    def _ask(self, whom: subprocess.Popen[str]) -> str:
        assert whom.stdin is not None
        whom.stdin.write(f"{self.number}\n")
        whom.stdin.flush()
        return self._line(whom)

    def __call__(self) -> float:
        self.number += 1
        self._ask(self.holder)
        return float(json.loads(self._ask(self.getter))["seconds"])


def measure(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each in each round."""
    import pool

    took: dict[str, list[float]] = {"cenote": [], "mooncake": []}
    with contextlib.ExitStack() as stack:
        ours = pool.Fetches(stack, arguments.block, arguments.blocks)
        theirs = Mooncake(stack, arguments.block, arguments.blocks)
        for number in range(-1, arguments.rounds):
            here, there = ours()[0], theirs()
            if number >= 0:
                took["cenote"].append(here)
                took["mooncake"].append(there)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="a line each: bench, case, value, unit, limit, ratio")
    parser.add_argument("--blocks", type=int, default=300)
    parser.add_argument("--block", type=int, default=2 * MiB, help="bytes")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--hold", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--get", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.hold:
        return hold(arguments.hold[0], int(arguments.hold[1]), int(arguments.hold[2]))
    if arguments.get:
        return get(arguments.get[0], int(arguments.get[1]), int(arguments.get[2]))
    import support

    took = measure(arguments)
    report = support.Report("pool_peers", arguments.json)
    case = f"{arguments.blocks} x {arguments.block / MiB:g} MiB"
    whole = arguments.blocks * arguments.block / GiB
    rate = {name: whole / statistics.median(seconds) for name, seconds in took.items()}
    report.add(f"cenote, {case}", rate["cenote"], "GiB/s", rate["mooncake"])
    for name, seconds in took.items():
        report.add(f"  {name}, slowest round", whole / max(seconds), "GiB/s")
        report.add(f"  {name}, fastest round", whole / min(seconds), "GiB/s")
    ratios = [there / here for here, there in zip(took["cenote"], took["mooncake"], strict=True)]
    report.add("cenote / mooncake, median of the rounds", statistics.median(ratios), "times")


if __name__ == "__main__":
    main()
