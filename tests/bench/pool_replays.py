"""What nodes whose memory is one pool hit, beside their simulation and beside one node with the memory of all of them.

    python pool_replays.py [--requests N] [--nodes N] [--capacities BLOCKS,…] [--policies a,b] [--routes a,b]

Each node has a part of the capacity, and one engine. The nodes count cached blocks alone, without water marks, as a
simulation does, and wait for what they read. Ends with 1 where a replay with requests in turn has less than 0.95 of its
simulation, or any replay has a wrong byte or an engine's error.
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

BLOCK_KIB = 4
BOUND = 0.95
SETS = (
    *("dram.grants_in_capacity=false", "dram.high_water=1", "dram.low_water=1"),
    *("prefetch.assumed_tokens_per_s=0", "prefetch.base=1m", "prefetch.threshold_tokens=0", "remote.lookup_timeout=2s"),
)


def replay(trace: Path, policy: str, route: str, blocks: int, arguments: Any) -> dict[str, Any]:
    command = [
        os.environ.get("CENOTE_BINARY", str(ROOT / "build/cenote")),
        *("replay", str(trace), "--json", f"--nodes={arguments.nodes}", f"--route={route}", f"--policy={policy}"),
        *("--engines=1", "--concurrency=1", f"--speed={arguments.speed}", "--prefetch-wait=10s", "--verify=all"),
        *(f"--block-bytes={BLOCK_KIB}KiB", f"--dram={blocks // arguments.nodes * BLOCK_KIB}KiB", "--nvme=0"),
        *(f"--set={each}" for each in (*SETS, *arguments.set)),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if not ended.stdout:
        raise SystemExit(ended.stderr)
    return dict(json.loads(ended.stdout))


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--requests", type=int, default=12_031)
    parser.add_argument("--trace", default="conversation", choices=["conversation", "synthetic"])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--capacities", default="6000,12000,24000,48000", help="blocks of all nodes together")
    parser.add_argument("--policies", default="lru,auto")
    parser.add_argument("--routes", default="round-robin,prefix")
    parser.add_argument("--speed", default="max")
    parser.add_argument("--set", action="append", default=[], help="key=value for the nodes")
    arguments = parser.parse_args()
    report = Report("pool_replays", arguments.json)
    failed = False
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as place:
        trace = Path(place) / "trace.jsonl"
        packed = ROOT / f"tests/data/traces/{arguments.trace}.txt"
        with trace.open("w") as file:
            unpack = [ROOT / "scripts/unpack_trace.py", packed, arguments.requests]
            subprocess.run([sys.executable, *map(str, unpack)], stdout=file, check=True)
        for policy in arguments.policies.split(","):
            for route in arguments.routes.split(","):
                for blocks in map(int, arguments.capacities.split(",")):
                    said = replay(trace, policy, route, blocks, arguments)
                    beside = said["simulated_nodes"]
                    name = f"{policy}, {route}, {blocks}"
                    bound = f">= {BOUND:g}" if route == "round-robin" else ""
                    real, remote = 100 * said["hit_ratio"], 100 * said["prefix_tokens_remote"] / said["tokens"]
                    report.add(f"{name}, simulated", real, "% of tokens", 100 * beside["hit_ratio"], bound)
                    report.add(f"{name}, one node", real, "% of tokens", 100 * beside["one_node_ratio"])
                    report.add(f"{name}, of it remote", remote, "% of tokens")
                    failed |= route == "round-robin" and beside["of_simulated"] < BOUND
                    if said["failures"]:
                        print(*said["failures"], sep="\n", file=sys.stderr)
                        failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
