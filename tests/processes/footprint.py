"""What a node takes of the machine: descriptors, memory, address space, messages that wait."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from node import LIMIT, MiB, Node, open_files


def _kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise AssertionError(f"no {field} in /proc/{pid}/status")


def descriptors(pid: int) -> int:
    """But for memory of slabs, and memory that waits to be one."""
    return sum("cenote-slab" not in each for each in open_files(pid))


@dataclass(frozen=True)
class Footprint:
    """Bytes but for the counts. `private`: resident memory that is neither a file's nor shared. Descriptors are those
    beside the slabs', of which the pool's size allows only so many."""

    worker_fds: int
    keeper_fds: int
    private: int
    address_space: int
    threads: int
    queued: int
    sessions: int
    instances: int

    @classmethod
    def of(cls, node: Node) -> Footprint:
        status = node.status()
        worker = int(status["node"]["worker_pid"])
        return cls(
            worker_fds=descriptors(worker),
            keeper_fds=descriptors(node.pid),
            private=_kib(worker, "RssAnon") * 1024,
            address_space=_kib(worker, "VmSize") * 1024,
            threads=_kib(worker, "Threads"),
            queued=int(status["node"]["queued_messages"]),
            sessions=len(status["sessions"]),
            instances=len(status["instances"]),
        )

    def descriptors_since(self, before: Footprint) -> bool:
        """More than growth() allows."""
        return any("_fds" in each for each in self.growth(before))

    def growth(self, since: Footprint, *, private: int = 48 * MiB, address_space: int = 256 * MiB) -> list[str]:
        """What is more than before, each as a line; a few descriptors and `private`, `address_space` bytes are free."""
        allowed = {
            "worker_fds": 6,
            "keeper_fds": 4,
            "private": private,
            "address_space": address_space,
            "threads": 2,
            "queued": 20,
            "sessions": 0,
            "instances": 0,
        }
        found = []
        for name, more in allowed.items():
            before, now = getattr(since, name), getattr(self, name)
            if now > before + more:
                found.append(f"{name} {before} -> {now}")
        return found


def left_since(node: Node, before: Footprint, **allowed: int) -> list[str]:
    """growth() when it is nothing, or stays: what ended goes by and by, as descriptors do, which the keeper closes."""
    end = time.monotonic() + LIMIT
    while (found := Footprint.of(node).growth(before, **allowed)) and time.monotonic() < end:
        time.sleep(0.05)
    return found
