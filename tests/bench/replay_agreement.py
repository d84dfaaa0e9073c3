"""Whether a node hits what the simulation of its configuration hits, policy by policy; points of prefix tokens.

    python replay_agreement.py [--requests N] [--policies a,b] [--speed 100x] [--nvme-path DIRECTORY]

One engine replays the first requests of the conversation trace, with DRAM alone and over an NVMe tier. The node keeps
no water marks, counts cached blocks alone and waits for what it reads, as a simulation does. At a speed that its disk
keeps up with nothing is dropped on the way down; what is dropped is told.
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

POLICIES = "fifo,lru,lfu,clock,sieve,s3fifo,arc,2q,mq,tblru,auto"
BLOCK_KIB = 16
DRAM_BLOCKS = 2_000
NVME = "256MiB"
BOUND = 0.5  # points
EXACT = ("dram.grants_in_capacity=false", "dram.high_water=1", "dram.low_water=1")
PATIENT = ("nvme.low_water=1", "prefetch.assumed_tokens_per_s=0", "prefetch.base=1m", "prefetch.threshold_tokens=0")


def replay(trace: Path, policy: str, nvme: str, arguments: Any) -> dict[str, Any]:
    sets = [f"--set={each}" for each in (*EXACT, *(PATIENT if nvme != "0" else ()))]
    place = [f"--nvme-path={arguments.nvme_path}"] if nvme != "0" and arguments.nvme_path else []
    wait = ["--prefetch-wait=1m"] if nvme != "0" else []
    command = [
        os.environ.get("CENOTE_BINARY", str(ROOT / "build/cenote")),
        *("replay", str(trace), "--json", "--engines=1", "--concurrency=1", f"--speed={arguments.speed}"),
        *(f"--policy={policy}", f"--block-bytes={BLOCK_KIB}KiB", f"--dram={DRAM_BLOCKS * BLOCK_KIB}KiB"),
        *(f"--nvme={nvme}", *wait, *place, *sets),
    ]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(ended.stdout))


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--speed", default="max")
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
            for nvme in ("0", NVME):
                said = replay(trace, policy, nvme, arguments)
                real, simulated = 100 * said["hit_ratio"], 100 * said["simulated"]["hit_ratio"]
                case = f"{policy}, {'DRAM' if nvme == '0' else 'DRAM over NVMe'}"
                dropped = said["node"]["demotions_dropped"]
                apart |= abs(real - simulated) > BOUND
                report.add(f"{case}, node", real, "% of tokens", simulated)
                report.add(f"{case}, apart", abs(real - simulated), "points", promised=f"at most {BOUND}")
                if nvme != "0":
                    report.add(f"{case}, not written down", dropped, "blocks")
    sys.exit(1 if apart else 0)


if __name__ == "__main__":
    main()
