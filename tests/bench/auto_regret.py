"""How far `auto` stays behind the best of its candidates, in points of prefix-token hits; in simulation.

A line for each workload, a column for each capacity. Each candidate counts with the better of both orders. `--set
tuning` are the workloads that the numbers in `auto_options` were chosen on; `held` is for the table in docs/policies.md
only: nothing was ever tuned on its seeds and parameters. Do not look at it to choose numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "processes")]
import policies  # noqa: E402

CANDIDATES = tuple(policies.candidates())
CAPACITIES = (250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
REAL = ("conversation", "synthetic", "conversation@max", "synthetic@max")
HELD = (
    "loop:seed=1001,documents=80,document_tokens=6000",
    "loop:seed=1002,documents=220,document_tokens=12000,rate=4",
    "loop:seed=1003,documents=900,document_tokens=3000,rate=0.7",
    "loop:seed=1004,documents=350,document_tokens=7000,asked=0.7",
    "phases:seed=1101",
    "phases:seed=1121,requests=10000",
    "phases:seed=1141,phase=300",
    "phases:seed=1161,phase=800,requests=9000",
    "scans:seed=1201,scan_rate=25,scan_tokens=7000,batch=50,pause=150",
    "scans:seed=1202,scan_rate=8,scan_tokens=20000,batch=30,pause=60",
    "scans:seed=1203,scan_rate=60,scan_tokens=3000,batch=15,pause=100,systems=30",
    "scans:seed=1204,rate=1,scan_rate=12,scan_tokens=5000,batch=100,pause=250,turns=8",
    "rag:seed=1301,zipf=0.85,corpus=1200",
    "rag:seed=1302,zipf=1.0,corpus=10000,passages=1,passage_tokens=3000",
    "rag:seed=1303,zipf=0.6,corpus=400,passages=2,systems=12",
    "rag:seed=1304,zipf=1.2,corpus=3000,passages=4,passage_tokens=800,rate=6",
    "chat:seed=1401,systems=50,system_tokens=3500,turns=4,think=35",
    "chat:seed=1402,rate=0.8,turns=7,think=75",
    "agents:seed=1501,agents=70,steps=12,repeat=0.7,think=10",
    "agents:seed=1502,agents=30,systems=12,system_tokens=8000,input_tokens=2500",
    "chat:seed=1601,turns=6,think=25@max",
    "agents:seed=1602,agents=90,repeat=0.5@max",
    "rag:seed=1603,zipf=0.95,corpus=2500@max",
    "loop:seed=1604,documents=260,document_tokens=9000@max",
)
TUNING = (
    "chat",
    "agents",
    "scans",
    "chat@max",
    "agents@max",
    "agents:seed=9,steps=8,input_tokens=1500,step_tokens=300",
    "agents:seed=7,agents=100,think=15,repeat=0.7",
    "chat:seed=11,systems=30,system_tokens=4000,think=30,turns=3",
    "chat:seed=22,systems=100,system_tokens=5000,think=90,turns=2",
    "chat:seed=44,turns=10,think=20",
    "scans:seed=60,scan_rate=20,scan_tokens=6000,batch=60,pause=120",
    "scans:seed=61,scan_rate=40,scan_tokens=12000,batch=20,pause=200",
    "scans:seed=62,scan_rate=10,scan_tokens=3000,batch=200,pause=60,systems=20",
    "loop:seed=1,documents=60",
    "loop:seed=2,documents=150",
    "loop:seed=3,documents=300",
    "loop:seed=4,documents=600,rate=5",
    "loop:seed=5,documents=260,asked=0.8",
    "loop:seed=6,documents=500,document_tokens=4000",
    "rag:seed=1",
    "rag:seed=2,zipf=0.7,corpus=500,passages=1",
    "rag:seed=3,zipf=1.1,corpus=5000",
    "rag:seed=4,zipf=0.8,corpus=300,passages=3,passage_tokens=600",
    "phases:seed=1",
    "phases:seed=5,requests=12000",
    "phases:seed=9,phase=250",
    "phases:seed=13,phase=1000",
    "chat:seed=201,rate=1",
    "chat:seed=202,systems=40,system_tokens=5000,turns=4",
    "agents:seed=203,agents=60,systems=20,system_tokens=6000,steps=10",
    "scans:seed=204,scan_rate=15,scan_tokens=9000,batch=40,pause=90",
    "loop:seed=205,documents=400,document_tokens=2500",
    "loop:seed=206,documents=200,document_tokens=16000,rate=1",
    "loop:seed=207,documents=100,asked=0.6",
    "rag:seed=208,zipf=1.3,corpus=20000,passages=1",
    "rag:seed=209,zipf=0.5,corpus=800",
    "phases:seed=210",
    "phases:seed=220,requests=9000",
    "chat:seed=211@max",
    "rag:seed=212@max",
)


@dataclass(frozen=True)
class Line:
    workload: str
    behind_best: list[float]  # by capacity
    behind_lru: float  # at worst


def hits(binary: Path, workload: str, traces: Path | None, order: str) -> dict[tuple[str, int], float]:
    """Prefix-token hits, %, by policy and capacity."""
    name, _, speed = workload.partition("@")
    source = [str(traces / f"{name}_trace.jsonl")] if traces and workload in REAL else ["--generate", name]
    command = [str(binary), "replay", *source, "--simulate", "--json", "--order", order]
    command += ["--policies", ",".join((*CANDIDATES, "auto")), "--capacity-sweep", "250:32k:2x"]
    done = subprocess.run(command + (["--speed", speed] if speed else []), capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(line["policy"], line["capacity"]): 100 * line["prefix_tokens"] / line["tokens"] for line in lines}


def measure(binary: Path, workload: str, traces: Path | None) -> Line:
    reverse, forward = (hits(binary, workload, traces, order) for order in ("rev", "fwd"))
    capacities = sorted({capacity for _, capacity in reverse})
    behind = []
    for capacity in capacities:
        best = max(max(reverse[each, capacity], forward[each, capacity]) for each in CANDIDATES)
        behind.append(best - reverse["auto", capacity])
    lru = max(reverse["lru", capacity] - reverse["auto", capacity] for capacity in capacities)
    return Line(workload, behind, lru)


def main() -> int:
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--set", choices=("tuning", "held"), default="held")
    parse.add_argument("--traces", type=Path, help="a folder with conversation_trace.jsonl and synthetic_trace.jsonl")
    parse.add_argument("--binary", type=Path, default=Path(os.environ.get("CENOTE_BINARY", ROOT / "build/cenote")))
    options = parse.parse_args()
    workloads = (REAL if options.traces else ()) + (HELD if options.set == "held" else TUNING)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        lines = list(pool.map(lambda each: measure(options.binary, each, options.traces), workloads))
    print("| workload |" + "".join(f" {capacity:,} |" for capacity in CAPACITIES) + " least over LRU |")
    print("| --- |" + " --- |" * (len(CAPACITIES) + 1))
    for line in lines:
        print(
            f"| `{line.workload}` | "
            + " | ".join(f"{each:.2f}" for each in (*line.behind_best, -line.behind_lru))
            + " |"
        )
    cells = [each for line in lines for each in line.behind_best]
    over = {bound: sum(each > bound for each in cells) for bound in (0.5, 1.0)}
    print(
        f"\n{len(cells)} cells: mean {sum(cells) / len(cells):.3f}, worst {max(cells):.2f}, above 0.5 {over[0.5]}, ",
        end="",
    )
    print(f"above 1.0 {over[1.0]}; below LRU by {max(line.behind_lru for line in lines):.2f} at worst")
    return 0


if __name__ == "__main__":
    sys.exit(main())
