"""What another build of the node pays for the same replay, in turn with this one: requests a second and CPU a byte.

    python replay_builds.py --other PATH/cenote [--requests N] [--rounds N] [--nvme-path DIRECTORY]

young      the replay starts the node, whose processor time counts from its start on: its memory is made meanwhile
populated  a node whose memory was made before the first request; `dram.populate = true`

Bytes count once each: read, put, written to NVMe and read back. Figures are medians of rounds.
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
from support import ROOT, Report, until

SHAPE = ("--speed=max", "--block-bytes=256KiB")
DRAM, NVME = "2GiB", "6GiB"


def run(binary: str, *arguments: str) -> dict[str, Any]:
    command = [binary, "replay", *arguments, *SHAPE, "--json"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return dict(json.loads(ended.stdout))


def young(binary: str, trace: str, place: str) -> dict[str, Any]:
    return run(binary, trace, f"--dram={DRAM}", f"--nvme={NVME}", f"--nvme-path={place}")


def memory_is_made(binary: str, socket: str) -> bool:
    """Builds that do not say so make theirs as it is used."""
    command = [binary, "status", "--json", "--socket", socket]
    asked = subprocess.run(command, check=False, capture_output=True, text=True)
    if asked.returncode != 0:
        return False
    populating = json.loads(asked.stdout)["dram"].get("populate")
    return populating is None or bool(populating["state"] == "done")


def populated(binary: str, trace: str, place: str) -> dict[str, Any]:
    settings = {
        **{"node.runtime_dir": f"{place}/run", "dram.capacity": DRAM, "dram.populate": "true"},
        **{"nvme.capacity": NVME, "nvme.paths": f'["{place}/nvme"]', "log.level": "error"},
    }
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    socket = f"{place}/run/cenote.sock"
    with subprocess.Popen([binary, "node", *sets], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as node:
        try:
            until("the node's memory is made", lambda: memory_is_made(binary, socket), limit=120)
            return run(binary, trace, f"--socket={socket}")
        finally:
            node.terminate()


def per_second(said: dict[str, Any]) -> float:
    """GB that the node moved a second of its CPU."""
    cpu = said["cpu"]
    return float(cpu["node_of_memcpy"] * cpu["memcpy_bytes_per_cpu_s"] / 1e9)


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--other", required=True, help="the other build's `cenote`")
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nvme-path", default=None)
    arguments = parser.parse_args()
    builds = {"other": arguments.other, "this": os.environ.get("CENOTE_BINARY", str(ROOT / "build/cenote"))}
    report = Report("replay_builds", arguments.json)
    with tempfile.TemporaryDirectory(prefix="cenote-bench-", dir=arguments.nvme_path) as place:
        trace = Path(place) / "trace.jsonl"
        unpack = [ROOT / "scripts/unpack_trace.py", ROOT / "tests/data/traces/conversation.txt", arguments.requests]
        with trace.open("w") as file:
            subprocess.run([sys.executable, *map(str, unpack)], stdout=file, check=True)
        for case in (young, populated):
            rate: dict[str, list[float]] = {name: [] for name in builds}
            moved: dict[str, list[float]] = {name: [] for name in builds}
            library: dict[str, list[float]] = {name: [] for name in builds}
            for _ in range(arguments.rounds):
                for name, binary in builds.items():
                    with tempfile.TemporaryDirectory(dir=place) as own:
                        said = case(binary, str(trace), own)
                    rate[name].append(arguments.requests / said["seconds"])
                    moved[name].append(per_second(said))
                    library[name].append(said["cpu"]["library_s"])
            add(report, case.__name__, "requests", "a second", rate, ">= 1.3")
            cost = {name: [1 / each for each in of] for name, of in moved.items()}
            add(report, case.__name__, "the node's CPU", "s a GB", cost, "<= 0.5")
            add(report, case.__name__, "the library's CPU", "s", library, "<= 1")


def add(report: Report, case: str, what: str, unit: str, of: dict[str, list[float]], bound: str) -> None:
    report.add(f"{case}: {what}", statistics.median(of["this"]), unit, statistics.median(of["other"]), bound)


if __name__ == "__main__":
    main()
