"""A production trace over nodes whose memory is one pool: one of them is killed half-way and comes back.

Each node has engines of its own; requests come to the nodes in turn. Every byte that an engine reads is compared with
what must stand there. The replay says what was hit, by tier and by node, and ends with 1 if a byte was wrong or an
engine saw an error, but for those whose node was the one that was killed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import unpack_trace

TRACE = Path(__file__).resolve().parent.parent / "tests/data/traces/conversation.txt"
KILLED = 2


def command_for(trace: Path, nodes: int, dram: str) -> list[str]:
    """The replay as a user would type it."""
    how = ["--nodes", str(nodes), "--kill", f"{KILLED}@50%", "--engines", "2", "--nvme", "0"]
    return [os.environ["CENOTE_BINARY"], "replay", str(trace), *how, "--block-bytes", "16KiB", "--dram", dram]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=3, choices=range(2, 9), help="nodes")
    parser.add_argument("--requests", type=int, default=6000, help="of the trace, the first so many (%(default)s)")
    parser.add_argument("--dram", default="128MiB", help="of each node (%(default)s)")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cenote-pool.") as folder:
        trace = Path(folder) / "conversation.jsonl"
        with trace.open("w") as lines:
            for each in unpack_trace.requests(TRACE, wanted.requests):
                lines.write(json.dumps(each) + "\n")
        command = command_for(trace, wanted.count, wanted.dram)
        print(f"-- {wanted.requests} requests of a production trace over {wanted.count} nodes; node {KILLED} is killed")
        print("  ", " ".join(command), flush=True)
        ended = subprocess.run(command, check=False)
    if ended.returncode == 0:
        print("0 wrong bytes, 0 engine errors")
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
