"""The cost of the comparison with recomputing over a disk that is fast enough: one replay without and with it in turn,
three times, and three times beside two busy loops. Points of the tokens hit.

    python gate_replays.py [--times N] [--busy N] [--trace FILE] [--limit N] [--speed 60x] [--nvme-path DIRECTORY]

Each run has a node of its own over an empty NVMe tier. DRAM holds a small part of what is asked for, and the engine's
rate is such that a disk which is taken for slower than it is loads nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import support
from support import ROOT, Report

BOUND = 1.5  # points below a replay that compares nothing
SHIPPED = ROOT / "tests/data/traces/conversation.txt"
SETTINGS = (
    "--dram=256MiB",
    "--nvme=4096MiB",
    "--policy=lru",
    "--block-bytes=256KiB",
)
GATED = "--set=prefetch.prefill_tokens_per_s=100000"
UNGATED = "--set=prefetch.assumed_tokens_per_s=0"


def replay(trace: Path, arguments: Any, way: str) -> dict[str, Any]:
    place = [f"--nvme-path={arguments.nvme_path}"] if arguments.nvme_path else []
    command = [
        os.environ.get("CENOTE_BINARY", str(ROOT / "build/cenote")),
        *("replay", str(trace), "--json", f"--limit={arguments.limit}", f"--speed={arguments.speed}"),
        *(*SETTINGS, way, *place),
    ]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(ended.stdout))


def unpacked(into: Path, count: int) -> Path:
    with into.open("w") as file:
        command = [sys.executable, str(ROOT / "scripts/unpack_trace.py"), str(SHIPPED), str(count)]
        subprocess.run(command, stdout=file, check=True)
    return into


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Processes that do nothing but use a core each."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in loops:
            each.kill()
            each.wait()


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--busy", type=int, default=2, help="busy loops beside the second half of the replays")
    parser.add_argument("--trace", type=Path, help="instead of the one in tests/data")
    parser.add_argument("--limit", type=int, default=1_200)
    parser.add_argument("--speed", default="60x")
    parser.add_argument("--nvme-path", default="", help="a directory on the disk to measure")
    arguments = parser.parse_args()
    report = Report("gate_replays", arguments.json)
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as place:
        trace = arguments.trace or unpacked(Path(place) / "trace.jsonl", arguments.limit)
        for loops in (0, arguments.busy) if arguments.busy else (0,):
            beside = f"beside {loops} busy loops" if loops else "alone"
            with busy_loops(loops):
                for turn in range(1, arguments.times + 1):
                    without, compared = (replay(trace, arguments, way) for way in (UNGATED, GATED))
                    lost = 100 * (without["hit_ratio"] - compared["hit_ratio"])
                    worst = max(worst, lost)
                    report.add(f"run {turn} {beside}, not compared", 100 * without["hit_ratio"], "% of tokens")
                    report.add(f"run {turn} {beside}, compared", 100 * compared["hit_ratio"], "% of tokens")
                    report.add(f"run {turn} {beside}, lost", lost, "points", bound=f"<= {BOUND:g} points")
    sys.exit(1 if worst > BOUND else 0)


if __name__ == "__main__":
    main()
