"""What a cached block costs beside its slab: index, versions, records and the worker's heap.

Blocks of 4 KiB that nobody writes, so that only the bookkeeping takes memory. Segments count by the pages they have,
the heap by the worker's private anonymous pages; page tables, which the kernel keeps, are shown apart.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import support
from support import KiB, MiB, Report

BLOCK = 4 * KiB
KINDS = ("index", "versions", "records", "heap")


def heap_bytes(pid: int) -> int:
    """Private pages of mappings that no file is behind."""
    total, anonymous = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+) *(.*)", line)
        if head:
            anonymous = head[1] == "0" and not head[2].startswith("/")
        elif anonymous and line.startswith(("Private_Dirty:", "Private_Clean:")):
            total += int(line.split()[1]) * KiB
    return total


def page_tables(pid: int) -> int:
    found = re.search(r"VmPTE:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * KiB if found else 0


def snapshot(node: support.Node) -> Counter[str]:
    """Bytes by kind."""
    sizes: Counter[str] = Counter()
    for each in support.memfds(node.pid):
        kind = next((kind for kind in (*KINDS, "slab", "session") if kind in each.name), each.name)
        sizes[kind] += each.allocated
    sizes["heap"] = heap_bytes(node.worker_pid)
    sizes["page tables"] = page_tables(node.worker_pid)
    return sizes


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--blocks", type=int, default=1_000_000)
    options = parser.parse_args()
    report = Report("memory_per_block", options.json)
    import cenote

    with support.node(options.blocks * BLOCK // 8 * 9 + 64 * MiB, "dram.populate=false") as node:
        with cenote.attach(support.spec("memory", BLOCK), socket=str(node.socket)) as session:
            step = 100_000
            support.commit_unwritten(session, support.keys("memory", 0, 500))
            before = snapshot(node)
            for first in range(500, options.blocks, step):
                count = min(step, options.blocks - first)
                support.commit_unwritten(session, support.keys("memory", first, count))
                support.punch([each for each in support.memfds(node.pid) if "slab" in each.name])
            assert node.blocks()["present"] == options.blocks, "the tier was too small"
            after = snapshot(node)
        added = options.blocks - 500
        for kind in (*KINDS, "page tables"):
            report.add(kind, (after[kind] - before[kind]) / added, "bytes/block")
        total = sum(after[kind] - before[kind] for kind in KINDS)
        report.add(
            f"all but page tables, {options.blocks} blocks", total / added, "bytes/block", None, "<= 230 bytes/block"
        )


if __name__ == "__main__":
    main()
