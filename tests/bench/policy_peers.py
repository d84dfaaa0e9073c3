"""Hit ratio at equal bytes of DRAM and NVMe, beside the eviction that LMCache and Mooncake document; in simulation.

Theirs is LRU with water marks: when DRAM is filled to a share, a share of it leaves at once (LMCache server 0.5.6: 0.8
and 0.2; Mooncake Store 0.3.13: 0.95 and 0.05). Both get every benefit of the doubt: eviction comes in time (LMCache
looks once a second and drops what is stored to a full pool meanwhile), nothing is leased, blocks of a request are
touched from its tail to its head, everything that is stored is on disk too, and the disk is LRU. Full blocks only. Ours
is what a node does by default: `auto` over LRU, written when evicted, the copy kept. The limit is the peer's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from figures import Report
from shipped_traces import ROOT, TOKENS, full_blocks, unpacked

SIZES = ((1_000, 0), (4_000, 0), (16_000, 0), (1_000, 4_000), (1_000, 10_000), (4_000, 16_000))


@dataclass
class Request:
    ids: list[int]
    tokens: int


class Lru:
    """Blocks by last use; above `high` of the capacity, `ratio` of what is held leaves."""

    def __init__(self, capacity: int, high: float = 1.0, ratio: float = 0.0) -> None:
        self.capacity = capacity
        self.limit = int(capacity * high)
        self.ratio = ratio
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def use(self, block: int) -> None:
        self.blocks[block] = None
        self.blocks.move_to_end(block)
        if len(self.blocks) <= self.limit:
            return
        for _ in range(max(1, int(len(self.blocks) * self.ratio))):
            self.blocks.popitem(last=False)


def hit_tokens(requests: list[Request], dram: Lru, disk: Lru | None) -> int:
    total = 0
    for request in requests:
        hits = 0
        for block in request.ids:
            if block not in dram.blocks and (disk is None or block not in disk.blocks):
                break
            hits += 1
        total += min(TOKENS * hits, request.tokens)
        for block in reversed(request.ids):
            dram.use(block)
            if disk is not None and disk.capacity > 0:
                disk.use(block)
    return total


def ours(binary: str, trace: Path, dram: int, nvme: int) -> int:
    where = ["--tiers", f"dram={dram},nvme={nvme}", "--ingest", "evicted"] if nvme else ["--capacity-sweep", str(dram)]
    command = [binary, "replay", str(trace), "--simulate", *where, "--policies", "auto", "--order", "rev", "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0])
    return int(said["prefix_tokens"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="a line each, as figures.py describes it")
    arguments = parser.parse_args()
    report = Report("policy_peers", arguments.json)
    binary = os.environ.get("CENOTE_BINARY", str(ROOT / "build/cenote"))
    for name in ("conversation", "synthetic"):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            text = unpacked(name)
            file.write(text)
            file.flush()
            lines = [json.loads(line) for line in text.splitlines()]
            requests = [Request(ids, line["input_length"]) for ids, line in zip(full_blocks(text), lines, strict=True)]
            tokens = sum(request.tokens for request in requests)
            for dram, nvme in SIZES:
                disk = nvme or None
                hits = ours(binary, Path(file.name), dram, nvme)
                for peer, lru in (("LMCache", Lru(dram, 0.8, 0.2)), ("Mooncake", Lru(dram, 0.95, 0.05))):
                    theirs = hit_tokens(requests, lru, Lru(nvme) if disk else None)
                    case = f"{name}, {dram} blocks of DRAM, {nvme} of NVMe, beside {peer}"
                    report.add(case, 100 * hits / tokens, "% of tokens", 100 * theirs / tokens)


if __name__ == "__main__":
    main()
