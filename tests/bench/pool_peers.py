"""Fetching blocks that another node has: Cenote's pool beside Mooncake Store and LMCache's server, in turn, in one run.

    python pool_peers.py [--blocks N] [--block BYTES] [--rounds N] [--peers FOLDER] [--json]

cenote      two nodes; from prefetch() at one until its client holds what only the other one has. The question where the
            blocks are, the check of every block and its publication in shared memory are within the time.
mooncake    its master, a process with a segment that has the blocks, and a client without a segment that gets them with
            one batch_get_into() into registered memory of its own, over TCP. It checks nothing.
lmcache     its remote server (`python -m lmcache.v1.server`) that a process has stored the blocks at, and another one
            that gets them with one batched_get_blocking() of its RemoteBackend, `lm://`, into its own pool; it has one
            connection. "x 4": four of those at once with a quarter each, as four workers of an engine have. Chunks are
            of a block, serde naive (its default: bytes as they are), blocking_timeout_secs is raised. No checksum.

All over loopback, as many new blocks in each round, each system first in some; bytes are compared after the time. All
memory was touched before: the first round does not count. Installs Mooncake and LMCache outside the tree
(scripts/engine-venv mooncake, scripts/peers).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

GiB, MiB = 1 << 30, 1 << 20
PATIENCE = 60.0
CONNECTIONS = 4  # of LMCache's second row
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


class Process:
    """One of a peer's, that answers lines; it is killed when the bench ends."""

    def __init__(self, stack: contextlib.ExitStack, command: list[Any], **variables: str) -> None:
        pipe = subprocess.PIPE
        self.words = [str(word) for word in command]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
        self.started = subprocess.Popen(self.words, stdin=pipe, stdout=pipe, env=environment, text=True)
        stack.callback(self.started.wait)
        stack.callback(self.started.kill)

    def line(self) -> str:
        """The next one of ours: Mooncake logs to stdout, too."""
        assert self.started.stdout is not None
        for line in self.started.stdout:
            if line.startswith(("{", "ready")):
                return line.strip()
        raise SystemExit(f"pool_peers: a peer's process ended: {' '.join(self.words)}")

    def ask(self, series: int) -> str:
        assert self.started.stdin is not None
        self.started.stdin.write(f"{series}\n")
        self.started.stdin.flush()
        return self.line()


class Pair:
    """The process that has the blocks of a series, or has them stored, and the one that gets them."""

    def __init__(self, holder: Process, getter: Process) -> None:
        self.holder, self.getter = holder, getter

    def __call__(self, series: int) -> float:
        self.holder.ask(series)
        return float(json.loads(self.getter.ask(series))["seconds"])


def background(stack: contextlib.ExitStack, command: list[Any], port: int, **variables: str) -> None:
    """A server of a peer's; it listens when this returns, and is killed when the bench ends."""
    from node import until

    words = [str(word) for word in command]
    quiet = subprocess.DEVNULL
    started = subprocess.Popen(words, stdin=quiet, stdout=quiet, stderr=quiet, env=os.environ | variables)
    stack.callback(started.wait)
    stack.callback(started.kill)

    def listens() -> bool:
        if started.poll() is not None:
            raise SystemExit(f"pool_peers: a peer's server ended: {' '.join(words)}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    until("the peer's server listens", listens, limit=PATIENCE)


def mooncake(stack: contextlib.ExitStack, block: int, count: int) -> Pair:
    from node import free_ports

    make = [str(Path(__file__).resolve().parents[2] / "scripts/engine-venv"), "mooncake", "--path"]
    ran = subprocess.run(make, stdout=subprocess.PIPE, text=True, check=True)
    python = Path(ran.stdout.splitlines()[-1])
    port, metrics = free_ports(2)
    master = [python.parent / "mooncake_master", f"--rpc_port={port}", f"--metrics_port={metrics}"]
    background(stack, [*master, f"--default_kv_lease_ttl={LEASE}"], port)
    words = (f"127.0.0.1:{port}", block, count)
    holder, getter = (
        Process(stack, [python, __file__, what, *words], GLOG_minloglevel="2") for what in ("--hold", "--get")
    )
    for each in (holder, getter):
        each.line()
    return Pair(holder, getter)


def lmcache(stack: contextlib.ExitStack, folder: Path | None, block: int, count: int) -> dict[str, Pair]:
    """By connections; of one server and one process that stores."""
    import support
    from node import free_ports

    if folder is None:
        ran = subprocess.run([support.ROOT / "scripts/peers"], stdout=subprocess.PIPE, text=True, check=True)
        folder = Path(ran.stdout.strip())
    python = folder / "bin/python"
    (port,) = free_ports(1)
    variables = {"LD_LIBRARY_PATH": str(folder / "stand-ins"), "LMCACHE_LOG_LEVEL": "ERROR"}
    variables["LMCACHE_TRACK_USAGE"] = "false"
    background(stack, [python, "-m", "lmcache.v1.server", "127.0.0.1", port], port, **variables)

    def process(what: str, connections: int) -> Process:
        words = [support.HERE / "pool_peer.py", what, f"lm://127.0.0.1:{port}", block, count, connections]
        made = Process(stack, [python, *words], **variables)
        made.line()
        return made

    holder = process("hold", 1)
    return {
        "lmcache": Pair(holder, process("get", 1)),
        f"lmcache x {CONNECTIONS}": Pair(holder, process("get", CONNECTIONS)),
    }


def measure(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds of each in each round."""
    import pool

    with contextlib.ExitStack() as stack:
        ours = pool.Fetches(stack, arguments.block, arguments.blocks)
        systems: dict[str, Callable[[int], float]] = {
            "cenote": lambda _series: ours()[0],
            "mooncake": mooncake(stack, arguments.block, arguments.blocks),
            **lmcache(stack, arguments.peers, arguments.block, arguments.blocks),
        }
        took: dict[str, list[float]] = {name: [] for name in systems}
        series = 0
        for number in range(-1, arguments.rounds):
            turn = number % len(systems)  # nobody always follows the same neighbour
            for name in [*systems][turn:] + [*systems][:turn]:
                series += 1
                seconds = systems[name](series)
                if number >= 0:
                    took[name].append(seconds)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="a line each, as figures.py describes it")
    parser.add_argument("--blocks", type=int, default=300)
    parser.add_argument("--block", type=int, default=2 * MiB, help="bytes")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--peers", type=Path, help="what scripts/peers made; default: ask it")
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
    for name, seconds in took.items():
        report.add(f"{name}, {case}", rate[name], "GiB/s")
        report.add(f"  {name}, slowest round", whole / max(seconds), "GiB/s")
        report.add(f"  {name}, fastest round", whole / min(seconds), "GiB/s")
    for peer in [*took][1:]:
        ratios = [there / here for here, there in zip(took["cenote"], took[peer], strict=True)]
        report.add(f"cenote / {peer}, median of the rounds", statistics.median(ratios), "times")


if __name__ == "__main__":
    main()
