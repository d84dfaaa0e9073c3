"""What the first use of memory costs: one GiB in single puts, on a young node, on a populated one and on a warm one.

young       `dram.populate = false`, nothing was stored before
populating  `dram.populate = true`, from the node's start on
populated   … once `cenote status` says that all is
warm        the same node, after `clear`: its slabs, and this client's mappings of them, are in use already

Each beside memcpy of the same size between memory that was touched. Rounds alternate; figures are medians of rounds.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable

import support
from support import GiB, KiB, MiB, Report, cenote, until

SOURCE = 256 * MiB  # more than caches hold


def timed(count: int, work: Callable[[int], object]) -> list[float]:
    times = []
    for number in range(count):
        start = time.perf_counter_ns()
        work(number)
        times.append((time.perf_counter_ns() - start) / 1e9)
    return times


class Client:
    """Puts blocks of one size, and copies as many bytes itself."""

    def __init__(self, socket: str, block: int, total: int) -> None:
        self.session = cenote.attach(support.spec("first-touch", block), socket=socket)
        self.block, self.count, self.lap = block, total // block, 0
        self.source = bytearray(b"\1" * SOURCE)
        self.target = bytearray(b"\2" * SOURCE)
        self.views = [memoryview(self.source)[at : at + block] for at in range(0, SOURCE, block)]

    def put(self) -> list[float]:
        self.lap += 1
        names = support.keys(f"lap{self.lap}", 0, self.count)
        return timed(self.count, lambda i: self.session.put([names[i]], [self.views[i % len(self.views)]]))

    def copy(self) -> list[float]:
        to, out = (ctypes.addressof(ctypes.c_char.from_buffer(each)) for each in (self.target, self.source))
        ring, size = len(self.views), self.block
        return timed(self.count, lambda i: ctypes.memmove(to + i % ring * size, out + i % ring * size, size))


def is_populated(node: support.Node) -> bool:
    return bool(node.status()["dram"]["populate"]["state"] == "done")


def measure(block: int, total: int, populate: bool, waits: bool) -> dict[str, list[float]]:
    """Times of single calls, by what they did."""
    with support.node(2 * total, f"dram.populate={str(populate).lower()}") as node:
        if waits:
            until("memory is populated", lambda: is_populated(node), limit=300.0, pause=0.1)
        client = Client(str(node.socket), block, total)
        if waits:
            found = {"populated": client.put()}
            client.session.clear()
            found |= {"warm": client.put(), "memcpy": client.copy()}
        else:
            found = {"populating" if populate else "young": client.put()}
        client.session.close()
    return found


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--total", type=int, default=GiB, help="bytes")
    parser.add_argument("--sizes", default="131072,2097152", help="of blocks, bytes")
    options = parser.parse_args()
    report = Report("first_touch", options.json)
    for block in (int(each) for each in options.sizes.split(",")):
        all_times: dict[str, list[list[float]]] = {}
        for _ in range(options.rounds):
            for populate, waits in ((False, False), (True, False), (True, True)):
                for name, times in measure(block, options.total, populate, waits).items():
                    all_times.setdefault(name, []).append(times)

        print_rows(report, f"{block // KiB} KiB", all_times, options.total)


def print_rows(report: Report, size: str, rounds: dict[str, list[list[float]]], total: int) -> None:
    def figure(name: str, of: Callable[[list[float]], float]) -> float:
        return statistics.median(of(times) for times in rounds[name])

    whole, single = figure("memcpy", sum), figure("memcpy", statistics.median)
    for name in ("young", "populating", "populated", "warm"):
        median = figure(name, statistics.median)
        bound = "<= 5" if name == "populated" else ""
        report.add(f"{size}, {name}: {total / GiB:g} GiB", figure(name, sum), "s", whole)
        report.add(f"{size}, {name}: median", median * 1e6, "us", single * 1e6)
        report.add(f"{size}, {name}: p99 beside median", figure(name, p99) * 1e6, "us", median * 1e6, bound)


def p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


if __name__ == "__main__":
    main()
