"""Whether the comparison with recomputing depends on luck: one replay, ten times. Points of the tokens hit.

    python gate_replays.py [--times N] [--trace FILE] [--limit N] [--speed 40x] [--nvme-path DIRECTORY]

Each run has a node of its own over an empty NVMe tier. DRAM holds a small part of what is asked for, and the engine's
rate is such that a disk which is taken for slower than it is loads nothing. The spread is that of the token hit rates.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import support
from support import ROOT, Report

BOUND = 1.0  # points
SHIPPED = ROOT / "tests/data/traces/conversation.txt"
SETTINGS = (
    "--dram=256MiB",
    "--nvme=4096MiB",
    "--policy=lru",
    "--block-bytes=256KiB",
    "--set=prefetch.prefill_tokens_per_s=100000",
)


def replay(trace: Path, arguments: Any) -> dict[str, Any]:
    place = [f"--nvme-path={arguments.nvme_path}"] if arguments.nvme_path else []
    command = [
        os.environ.get("CENOTE_BINARY", str(ROOT / "build/cenote")),
        *("replay", str(trace), "--json", f"--limit={arguments.limit}", f"--speed={arguments.speed}"),
        *(*SETTINGS, *place),
    ]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(ended.stdout))


def unpacked(into: Path, count: int) -> Path:
    with into.open("w") as file:
        command = [sys.executable, str(ROOT / "scripts/unpack_trace.py"), str(SHIPPED), str(count)]
        subprocess.run(command, stdout=file, check=True)
    return into


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--trace", type=Path, help="instead of the one in tests/data")
    parser.add_argument("--limit", type=int, default=1_200)
    parser.add_argument("--speed", default="40x")
    parser.add_argument("--nvme-path", default="", help="a directory on the disk to measure")
    arguments = parser.parse_args()
    report = Report("gate_replays", arguments.json)
    rates: list[float] = []
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as place:
        trace = arguments.trace or unpacked(Path(place) / "trace.jsonl", arguments.limit)
        for turn in range(1, arguments.times + 1):
            said = replay(trace, arguments)
            rates.append(100 * said["hit_ratio"])
            report.add(f"run {turn}", rates[-1], "% of tokens")
    spread = max(rates) - min(rates)
    report.add("median", statistics.median(rates), "% of tokens")
    report.add("spread", spread, "points", bound=f"<= {BOUND:g} points")
    sys.exit(1 if spread > BOUND else 0)


if __name__ == "__main__":
    main()
