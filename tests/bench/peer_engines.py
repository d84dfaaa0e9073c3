"""Blocks between two processes: Cenote's network beside Mooncake's transfer engine over TCP, in turn, in one run.

peer_engines.py [--rounds N] [--json]

Installs Mooncake outside the tree (scripts/engine-venv mooncake). Each asks for 64 MiB of blocks at once, four times a
round, of memory that the other process has ready. Cenote's figure is that of `cenote bench peer`: bytes lie where they
were wanted when it is taken, without checksum. Mooncake reads them with batch_transfer_sync_read, blocks of 64 MiB in
one call, with its defaults and with MC_TCP_ENABLE_CONNECTION_POOL=1. Medians; processor time is that of both processes.
Loopback.
The limit is Mooncake's.
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

from figures import Report

ROOT = Path(__file__).resolve().parents[2]
SIZES = tuple(kib << 10 for kib in (64, 512, 2048, 8192))
ARENA = 64 << 20
REPEATS = 4
MIB, GIB = 1 << 20, 1 << 30


def interpreter() -> Path:
    """Of an environment with Mooncake in it."""
    make = [str(ROOT / "scripts" / "engine-venv"), "mooncake", "--path"]
    return Path(subprocess.run(make, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1])


# ---- in Mooncake's environment


def engine_with_arena(fill: int) -> tuple[Any, mmap.mmap, int]:
    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
        raise SystemExit("peer_engines: Mooncake's engine did not start")
    arena = mmap.mmap(-1, ARENA)
    arena.write(bytes([fill]) * ARENA)
    address = ctypes.addressof(ctypes.c_char.from_buffer(arena))
    if engine.register_memory(address, ARENA) != 0:
        raise SystemExit("peer_engines: Mooncake did not register the memory")
    return engine, arena, address


def serve() -> None:
    engine, _, address = engine_with_arena(7)
    print(json.dumps({"target": f"127.0.0.1:{engine.get_rpc_port()}", "address": address}), flush=True)
    sys.stdin.read()
    os._exit(0)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_blocks(target: str, remote: int, server: int) -> None:
    """A line of figures for each line on stdin."""
    engine, arena, local = engine_with_arena(0)
    print("ready", flush=True)
    for _ in sys.stdin:
        said = {}
        for size in SIZES:
            offsets = range(0, ARENA, size)
            call = [local + at for at in offsets], [remote + at for at in offsets], [size for _ in offsets]
            arena.seek(0)
            arena.write(bytes(ARENA))
            cpu = cpu_seconds(server) + time.process_time()
            begin = time.perf_counter()
            for _ in range(REPEATS):
                if engine.batch_transfer_sync_read(target, *call) != 0:
                    raise SystemExit("peer_engines: a read by Mooncake failed")
            seconds = time.perf_counter() - begin
            cpu = cpu_seconds(server) + time.process_time() - cpu
            if arena[:] != bytes([7]) * ARENA:
                raise SystemExit("peer_engines: Mooncake read wrong bytes")
            gib = REPEATS * ARENA / GIB
            said[size] = {"gib_s": gib / seconds, "cpu_s_gib": cpu / gib}
        print(json.dumps(said), flush=True)
    os._exit(0)


# ---- in the bench


class Mooncake:
    """Its two processes."""

    def __init__(self, python: Path, **variables: str) -> None:
        self._python = python
        self._environment = os.environ | variables
        self._server = self._start("--serve")
        where = json.loads(self._line(self._server))
        self._reader = self._start("--read", where["target"], str(where["address"]), str(self._server.pid))
        while self._line(self._reader) != "ready":
            pass

    def _start(self, *words: str) -> subprocess.Popen[str]:
        command = [str(self._python), __file__, *words]
        pipe = subprocess.PIPE
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, env=self._environment, text=True)

    @staticmethod
    def _line(of: subprocess.Popen[str]) -> str:
        """The next one of ours: the engine logs to stdout, too."""
        assert of.stdout is not None
        for line in of.stdout:
            if line.startswith(("{", "ready")):
                return line.strip()
        raise SystemExit("peer_engines: a process of Mooncake's ended")

    def measure(self) -> dict[int, dict[str, float]]:
        assert self._reader.stdin is not None
        self._reader.stdin.write("go\n")
        self._reader.stdin.flush()
        return {int(size): figures for size, figures in json.loads(self._line(self._reader)).items()}

    def close(self) -> None:
        for each in (self._reader, self._server):
            each.kill()
            each.wait()


def size_text(size: int) -> str:
    return f"{size >> 10}.0 KiB" if size < MIB else f"{size >> 20}.0 MiB"


def measure_cenote(binary: str) -> dict[int, dict[str, float]]:
    command = [binary, "bench", "peer", "--json", "--rounds", "3"]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # 1: a bound is not kept
    figures = {each["case"]: each for each in map(json.loads, said.stdout.splitlines())}
    return {
        size: {
            "gib_s": figures[f"blocks of {size_text(size)}"]["value"],
            "cpu_s_gib": figures[f"processor time, {size_text(size)}"]["value"],
        }
        for size in SIZES
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("--read", nargs=3, help=argparse.SUPPRESS)
    wanted = arguments.parse_args()
    if wanted.serve:
        return serve()
    if wanted.read:
        return read_blocks(wanted.read[0], int(wanted.read[1]), int(wanted.read[2]))
    binary = os.environ.get("CENOTE_BINARY", str(ROOT / "build" / "cenote"))
    with contextlib.ExitStack() as open_ones:
        python = interpreter()
        engines = {"mooncake": Mooncake(python), "pooled": Mooncake(python, MC_TCP_ENABLE_CONNECTION_POOL="1")}
        measured: dict[str, list[dict[int, dict[str, float]]]] = {name: [] for name in (*engines, "cenote")}
        for each in engines.values():
            open_ones.callback(each.close)
            each.measure()  # connections are made
        for _ in range(wanted.rounds):
            measured["cenote"].append(measure_cenote(binary))
            for name, each in engines.items():
                measured[name].append(each.measure())
    show(measured, wanted.json)


def show(measured: dict[str, list[dict[int, dict[str, float]]]], as_json: bool) -> None:
    report = Report("peer_engines", as_json)
    for size in SIZES:
        medians = {
            name: {what: statistics.median(each[size][what] for each in rounds) for what in ("gib_s", "cpu_s_gib")}
            for name, rounds in measured.items()
        }
        ours = medians.pop("cenote")
        for name, theirs in medians.items():
            case = f"blocks of {size_text(size)}, beside {name}"
            report.add(case, ours["gib_s"], "GiB/s", theirs["gib_s"])
            report.add(f"processor time, {case}", ours["cpu_s_gib"], "s/GiB", theirs["cpu_s_gib"])


if __name__ == "__main__":
    main()
