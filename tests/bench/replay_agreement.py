"""Whether a node hits what the simulation of its configuration hits, policy by policy; points of prefix tokens.

    python replay_agreement.py [--requests N] [--policies a,b] [--speed 60x] [--nvme-path DIRECTORY]

One engine replays the first requests of the conversation trace in three configurations. The node counts cached blocks
alone and waits for what it reads, as a simulation does.

dram      DRAM alone, without water marks, back to back
written   over an NVMe tier that gets every block as it is stored, without water marks
evicted   over one that gets what DRAM evicts (the default), with the usual water marks: blocks that wait for their turn
          to go are in no policy's order

The latter two at a speed that the disk keeps up with; what was dropped all the same is told.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import support
from support import ROOT, Report

import policies  # isort: skip  # support put its folder on the path

POLICIES = ",".join(policies.of_requests())
BLOCK_KIB = 4
DRAM_BLOCKS = 2_000
BOUND = 0.5  # points
WITHOUT_MARKS = ("dram.high_water=1", "dram.low_water=1")
PATIENT = ("prefetch.assumed_tokens_per_s=0", "prefetch.base=1m", "prefetch.threshold_tokens=0")
CASES = {
    "dram": ("0", "max", WITHOUT_MARKS),
    "written": ("64MiB", "", (*WITHOUT_MARKS, *PATIENT, "nvme.ingest=all")),
    "evicted": ("64MiB", "", PATIENT),
}


def replay(trace: Path, policy: str, case: str, arguments: Any) -> dict[str, Any]:
    nvme, speed, sets = CASES[case]
    below = ["--prefetch-wait=1m"] if nvme != "0" else []
    if nvme != "0" and arguments.nvme_path:
        below.append(f"--nvme-path={arguments.nvme_path}")
    command = [
        os.environ.get("CENOTE_BINARY", str(ROOT / "build/cenote")),
        *("replay", str(trace), "--json", "--engines=1", "--concurrency=1", f"--speed={speed or arguments.speed}"),
        *(f"--policy={policy}", f"--block-bytes={BLOCK_KIB}KiB", f"--dram={DRAM_BLOCKS * BLOCK_KIB}KiB"),
        *(f"--nvme={nvme}", *below, *(f"--set={each}" for each in ("dram.grants_in_capacity=false", *sets))),
    ]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return dict(json.loads(ended.stdout))


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--speed", default="60x", help="of the cases with an NVMe tier")
    parser.add_argument("--nvme-path", default="")
    arguments = parser.parse_args()
    report = Report("replay_agreement", arguments.json)
    apart = False
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as place:
        trace = Path(place) / "trace.jsonl"
        unpack = [ROOT / "scripts/unpack_trace.py", ROOT / "tests/data/traces/conversation.txt", arguments.requests]
        with trace.open("w") as file:
            subprocess.run([sys.executable, *map(str, unpack)], stdout=file, check=True)
        for policy in arguments.policies.split(","):
            for case in CASES:
                said = replay(trace, policy, case, arguments)
                real, simulated = 100 * said["hit_ratio"], 100 * said["simulated"]["hit_ratio"]
                apart |= abs(real - simulated) > BOUND
                dropped = f"{said['node']['demotions_dropped']} blocks dropped" if case != "dram" else ""
                report.add(f"{policy}, {case}", real, "% of tokens", simulated)
                bound = f"<= {BOUND:g} points"
                report.add(f"{policy}, {case}, apart", abs(real - simulated), "points", bound=bound, note=dropped)
    sys.exit(1 if apart else 0)


if __name__ == "__main__":
    main()
