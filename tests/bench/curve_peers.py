"""LRU at twenty capacities of the conversation trace: `cenote optimize curve`, its process and the file included,
beside libCacheSim's loop in C (PyPI, libcachesim), whose trace is mapped and whose process has begun.

Both count the same hits, block by block and from head to tail; where they do not, this ends with an error. Run it with
a Python that has libcachesim.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import libcachesim
from figures import Report
from shipped_traces import ROOT, full_blocks, unpacked

POINTS = 20
ROUNDS = 5
HASH_POWER = 18  # a table of 2^18 places for 170,899 blocks; the default's 2^24 take longer to make than to use


def seconds_of(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def hits_of(binary: str, trace: Path, capacities: list[int]) -> list[int]:
    """Hits of all blocks, leading ones or not, which is what a cache of single objects counts."""
    command = [binary, "replay", str(trace), "--simulate", "--order", "fwd", "--policies", "lru", "--json"]
    sweep = ["--capacity-sweep", ",".join(map(str, capacities))]
    lines = subprocess.run([*command, *sweep], check=True, capture_output=True, text=True).stdout.splitlines()
    return [int(json.loads(line)["stream_hits"]) for line in lines]


class Peer:
    def __init__(self, path: Path, blocks: list[int]) -> None:
        path.write_bytes(b"".join(struct.pack("<IQIq", i, block, 1, -2) for i, block in enumerate(blocks)))
        self.count = len(blocks)
        self.reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE)

    def hits(self, capacity: int) -> int:
        self.reader.reset()
        missed, _ = libcachesim.LRU(capacity, hashpower=HASH_POWER).process_trace(self.reader)
        return round((1 - missed) * self.count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="a line each, as figures.py describes it")
    arguments = parser.parse_args()
    report = Report("curve_peers", arguments.json)
    binary = os.environ.get("CENOTE_BINARY", str(ROOT / "build/cenote"))
    with tempfile.TemporaryDirectory() as folder:
        text = unpacked("conversation")
        trace, compact = Path(folder) / "t.jsonl", Path(folder) / "t.ctrace"
        trace.write_text(text)
        subprocess.run([binary, "trace", "convert", trace, "--out", compact], check=True, stdout=subprocess.DEVNULL)
        blocks = [block for request in full_blocks(text) for block in request]
        capacities = [len(set(blocks)) * i // POINTS for i in range(1, POINTS + 1)]
        peer = Peer(Path(folder) / "t.bin", blocks)
        theirs = [peer.hits(capacity) for capacity in capacities]
        if theirs != (ours := hits_of(binary, trace, capacities)):
            raise SystemExit(f"hits differ: {ours} and libCacheSim's {theirs}")
        options = ["--capacities", ",".join(map(str, capacities)), "--json"]
        times: dict[str, list[float]] = {"JSON": [], ".ctrace": []}
        loops: list[float] = []
        for _ in range(ROUNDS):
            for name, file in (("JSON", trace), (".ctrace", compact)):
                times[name].append(seconds_of([binary, "optimize", "curve", str(file), *options]))
            begin = time.perf_counter()
            for capacity in capacities:
                peer.hits(capacity)
            loops.append(time.perf_counter() - begin)
        limit = 1000 * statistics.median(loops)
        for name, taken in times.items():
            case = f"LRU at {POINTS} capacities from {name}, beside libCacheSim"
            report.add(case, 1000 * statistics.median(taken), "ms", limit, "<= 1")


if __name__ == "__main__":
    main()
