"""The points behind which a worker may die: every store to shared memory and every word to the keeper.

scripts/store_points.py --check          every such store names its point, and no name stands at two places
scripts/store_points.py --list [KIND]    the names, one a line, in order of name; KIND: store or process, see kind_of()

A point is a literal in the sources: `shared_store(word, value, order, "publish.record"_point)`.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Where the worker's code lies that stores to shared memory.
COVERED = (
    "memory",
    "tiers/blocks",
    "tiers/nvme/pending_removals.cpp",
    "actors",
    "worker",
    "transport/local/keeper_link.cpp",
)

# The first words of points outside the store: see kind_of().
PROCESS = ("session", "keeper", "worker", "header", "instance", "records", "removals")

POINT = re.compile(r'"([^"\n]+)"_point')
NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z0-9_.]+")

# What stores without a point: atomics, raw copies, holes, and the plain fields of a block's record.
STORE = re.compile(
    r"(?:\.|->)(?:store|exchange|fetch_\w+|compare_exchange_\w+)\("
    r"|\bstd::(?:ranges::)?(?:copy|copy_n|fill|fill_n)\("
    r"|\b(?:memcpy|memmove|memset|fallocate|pwrite)\("
    r"|\b(?:record\w*|records_?\[\w+\]|record_of\([^()]*\))(?:\.|->)(?:flags|key_size|key) *(?:[|&^]?=)(?!=)"
)

# Calls that take a point, which tests may leave out.
CALL = re.compile(r"(?:\.|->)(?:set_state|set_version|punch|set(?=\(block_state))\(")


@dataclass(frozen=True)
class Allowed:
    """Lines of `file` that contain `text` store without a point, since …"""

    file: str
    text: str
    reason: str


ALLOWED = (
    Allowed("actors/cluster_host.cpp", "network_.store(", "a pointer of this process"),
    Allowed("worker/worker.cpp", "rights.store(", "a pointer of this process"),
    Allowed("worker/worker.cpp", "kept_here.store(", "a pointer of this process"),
    Allowed("worker/worker.cpp", "metrics_.store(", "a pointer of this process"),
    Allowed("actors/live_curves.cpp", "", "counters of this process"),
    Allowed("actors/peer.cpp", "", "counters of this process"),
    Allowed("worker/device_host.cpp", "is_begun_.store(", "a flag of this process"),
    Allowed("tiers/blocks/recovery.cpp", "std::atomic_ref(indexed", "a mark of this process"),
    Allowed("memory/group_terms.hpp", "std::memcpy(", "entries that are in no ring yet, or not any more"),
    Allowed("memory/store_point.hpp", "", "the helper itself"),
    Allowed("memory/fence.hpp", "word.fetch_add(1", "stands for a fence under the thread sanitizer"),
    Allowed("memory/crash_guard.cpp", "", "counts deaths: one between two of its stores counts twice or not at all"),
    Allowed("memory/block_record.hpp", "memcpy(full.bytes.data()", "reads a record"),
    Allowed("memory/shared_file.cpp", "::fallocate(fd_.get()", "shared_file::punch, which passes its caller's point"),
    Allowed("memory/window.cpp", "base_.store(", "a mapping of this process"),
    Allowed("memory/window.cpp", "mapped_.store(", "a mapping of this process"),
    Allowed("memory/lookup.cpp", "", "the client's pins"),
    Allowed("memory/lookup_counts.hpp", "", "the client's counts"),
    Allowed("memory/session_memory.cpp", "header.submit_tail.store(", "the client's end of the ring"),
    Allowed("memory/session_memory.cpp", "place++->store(word", "the client's end of the ring"),
    Allowed("memory/session_memory.cpp", "header.complete_head.store(", "the client's end of the ring"),
    Allowed("memory/session_memory.cpp", "header.client_sleeps.store(", "the client's end of the ring"),
    Allowed("memory/session_memory.cpp", "client_sleeps.store(0", "the client's end of the ring"),
    Allowed("memory/session_memory.cpp", "worker_sleeps.exchange(0", "the client's end of the ring"),
    Allowed("memory/session_memory.cpp", "std::memcpy(words.data(), &value", "to this thread's stack"),
    Allowed("memory/session_memory.cpp", "std::memcpy(static_cast<void*>(&value), words", "to this thread's stack"),
    Allowed("memory/version_table.hpp", "std::memcpy(words.data(), key.data()", "to this thread's stack"),
    Allowed("memory/version_table.cpp", "std::memcpy(&word", "to this thread's stack"),
    Allowed("memory/version_table.cpp", "std::memcpy(key.bytes.data()", "reads a key"),
    Allowed("tiers/blocks/request_chains.cpp", "std::memcpy(&asked", "to this thread's stack"),
    Allowed("tiers/blocks/request_chains.cpp", "std::memcpy(&runs", "to this thread's stack"),
    Allowed("tiers/blocks/slab_space.cpp", "state.store(free_number", "each stands alone; it takes two million slabs"),
    Allowed("actors/session_resources.hpp", "bell_sent.", "the worker's own"),
    Allowed("tiers/blocks/provisioner.cpp", "unfilled_bytes_.store(", "the worker's own"),
    Allowed("actors/pulse.cpp", "answered->", "the worker's own"),
    Allowed("worker/server.cpp", "std::memcpy(&request", "to this thread's stack"),
    Allowed("worker/kill_at.cpp", "", "what a hook looks for"),
    Allowed("tiers/blocks/corrupt_blocks.cpp", "", "alters blocks on purpose, in tests of engines"),
)


@dataclass(frozen=True)
class Point:
    name: str
    file: str
    line: int

    @property
    def kind(self) -> str:
        return kind_of(self.name)


def kind_of(name: str) -> str:
    """Who kills there: `store`, the matrix over a store in its own process (tests/unit/tiers/blocks), or `process`,
    the matrix over a whole node (tests/processes)."""
    return "process" if name.split(".")[0] in PROCESS else "store"


def sources() -> list[Path]:
    found: list[Path] = []
    for place in COVERED:
        path = ROOT / place
        found += [path] if path.is_file() else [*path.glob("*.hpp"), *path.glob("*.cpp")]
    return sorted(found)


def without_comment(line: str) -> str:
    return line.split("//", 1)[0]


def points() -> list[Point]:
    found = []
    for path in sources():
        file = str(path.relative_to(ROOT))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found += [Point(name, file, number) for name in POINT.findall(without_comment(line))]
    return sorted(found, key=lambda point: (point.name, point.file, point.line))


def faults() -> list[str]:
    """What is wrong, one line each, as a compiler would say it."""
    wrong = []
    seen: dict[str, Point] = {}
    for point in points():
        place = f"{point.file}:{point.line}"
        if not NAME.fullmatch(point.name):
            wrong.append(f"{place}: point `{point.name}` is not written as what.happened, in small letters")
        if before := seen.get(point.name):
            wrong.append(f"{place}: point `{point.name}` stands at {before.file}:{before.line} too; each has one place")
        seen[point.name] = point
    used = set()
    for path in sources():
        file = str(path.relative_to(ROOT))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not STORE.search(without_comment(line)):
                continue
            allowed = next((each for each in ALLOWED if each.file == file and each.text in line), None)
            if allowed is None:
                wrong.append(
                    f"{file}:{number}: a store without a point; use shared_store() or its like of "
                    "memory/store_point.hpp, or, if this is no shared memory, add it to ALLOWED in "
                    f"scripts/store_points.py: {line.strip()}"
                )
            else:
                used.add(allowed)
    for path in sources():
        wrong += unnamed_calls(path)
    stale = [each for each in ALLOWED if each not in used]
    return wrong + [f"scripts/store_points.py: nothing in {each.file} contains `{each.text}`" for each in stale]


def unnamed_calls(path: Path) -> list[str]:
    text = "\n".join(without_comment(line) for line in path.read_text().splitlines())
    wrong = []
    for call in CALL.finditer(text):
        depth, end = 1, call.end()
        while depth > 0 and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        arguments = text[call.end() : end]
        if "_point" not in arguments and not re.search(r"\bpoint\)$", arguments):
            place = f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, call.start()) + 1}"
            wrong.append(f"{place}: {call.group()[1:-1]} without a point")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true")
    what.add_argument("--list", nargs="?", const="", metavar="KIND")
    options = parser.parse_args()
    if options.check:
        wrong = faults()
        for each in wrong:
            print(each, file=sys.stderr)
        return 1 if wrong else 0
    for point in points():
        if options.list in ("", point.kind):
            print(point.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
