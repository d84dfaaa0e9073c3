"""What blocks between nodes cost in messages and processor time, by the number of nodes.

    python pool_nodes.py [--nodes 2,4,8,16] [--requests N] [--chain BLOCKS] [--block BYTES] [--rounds N] [--json]

Real nodes on this machine, all of one weight. An engine at the first one stores requests of CHAIN blocks, which are
offered to their homes; then an engine at the second one fetches them, a request at a time. Counted over all nodes: the
frames that they hear, and the processor time of their workers. What nodes that have nothing to do say and take, which
grows with the square of their number, is measured just before and taken off. The limit is what two nodes take.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from contextlib import ExitStack
from typing import Any, NamedTuple

import support
from node import free_ports
from support import KiB, MiB, Node, Report, cenote, until

IDLE = 2.0  # seconds that are watched before
SETS = (
    *('remote.backends=["peers"]', "remote.lookup_timeout=5s", "remote.timeout=8s", "node.threads=2"),
    *("prefetch.threshold_tokens=0", "prefetch.assumed_tokens_per_s=0", "metrics.listen=off", "cluster.copies=1"),
)


class Cost(NamedTuple):
    """Of all nodes together, since they were started."""

    frames: int
    cpu: float
    at: float

    @staticmethod
    def of(nodes: list[Node], workers: list[int]) -> Cost:
        frames = sum(each.status()["cluster"]["counters"]["frames"] for each in nodes)
        return Cost(frames, sum(support.processor_seconds(each) for each in workers), time.monotonic())

    def beyond(self, begin: Cost, idle: tuple[float, float]) -> tuple[float, float]:
        """Frames and processor seconds since `begin`, without what idle nodes have in a second."""
        seconds = self.at - begin.at
        return self.frames - begin.frames - idle[0] * seconds, self.cpu - begin.cpu - idle[1] * seconds


class Pool:
    """Nodes that share their blocks, and an engine at each of the first two."""

    def __init__(self, stack: ExitStack, count: int, block: int, blocks: int) -> None:
        ports = free_ports(count)
        seeds = f'cluster.seeds=["127.0.0.1:{ports[0]}"]'
        self.nodes = []
        for number, port in enumerate(ports):
            place = [f"cluster.name=n{number}", f"cluster.listen=127.0.0.1:{port}", "cluster.weight=1000000000"]
            self.nodes.append(stack.enter_context(support.node(2 * block * blocks + 16 * MiB, *place, seeds, *SETS)))
        until("all see each other", lambda: all(self.askable(each) == count - 1 for each in self.nodes), limit=120)
        for each in self.nodes:
            each.until_populated()
        self.workers = [each.worker_pid for each in self.nodes]
        spec = support.spec("nodes", block)
        self.writer, self.reader = (
            stack.enter_context(cenote.attach(spec, socket=str(each.socket), max_pins=4096)) for each in self.nodes[:2]
        )
        self.content = bytes(block)

    @staticmethod
    def askable(of: Node) -> int:
        return int(of.status()["cluster"]["askable"])

    def cost(self) -> Cost:
        return Cost.of(self.nodes, self.workers)

    def idle(self) -> tuple[float, float]:
        """Frames and processor seconds that all have in a second."""
        begin = self.cost()
        time.sleep(IDLE)
        frames, cpu = self.cost().beyond(begin, (0, 0))
        return frames / IDLE, cpu / IDLE

    def taken(self) -> int:
        """Blocks that other nodes store for the first one; waits until there are no more."""
        seen = -1
        while True:
            now = sum(int(each.status()["cluster"]["pool"]["hosted"]) for each in self.nodes)
            if now == seen:
                return now
            seen = now
            time.sleep(0.5)

    def store(self, requests: list[list[bytes]]) -> Cost:
        for keys in requests:
            self.writer.put(keys, [self.content] * len(keys))
        self.taken()
        return self.cost()

    def fetch(self, requests: list[list[bytes]]) -> Cost:
        for keys in requests:
            ticket = self.reader.prefetch(keys, "wait_complete", prefill_tokens_per_s=0)
            found = ticket.wait(60)
            assert found == len(keys), f"{found} of {len(keys)} blocks were found"
            ticket.release()
        return self.cost()


def measure(count: int, arguments: Any) -> dict[str, float]:
    blocks = arguments.requests * arguments.chain
    with ExitStack() as stack:
        pool = Pool(stack, count, arguments.block, blocks)
        chains = [
            support.keys(f"nodes-{count}", n * arguments.chain, arguments.chain) for n in range(arguments.requests)
        ]
        pool.store([support.keys("first", 0, 64)])  # all instances are bound
        pool.fetch([support.keys("first", 0, 64)])
        idle = pool.idle()
        begin = pool.cost()
        stored = pool.store(chains)
        fetched = pool.fetch(chains)
        costs = {"stored": stored.beyond(begin, idle), "fetched": fetched.beyond(stored, idle)}
    return {
        f"{what} {part}": value / blocks
        for what, pair in costs.items()
        for part, value in zip(("frames", "cpu"), pair, strict=True)
    }


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--nodes", default="2,4,8,16", help="how many, in this order")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--chain", type=int, default=32, help="blocks of a request")
    parser.add_argument("--block", type=int, default=64 * KiB, help="bytes")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    figures: dict[tuple[int, str], list[float]] = defaultdict(list)
    numbers = [int(each) for each in arguments.nodes.split(",")]
    for _ in range(arguments.rounds):
        for count in numbers:
            for name, value in measure(count, arguments).items():
                figures[count, name].append(value)
    report = Report("pool_nodes", arguments.json)
    for what in ("stored", "fetched"):
        for part, unit, scale in (("frames", "frames", 1.0), ("cpu", "us", 1e6)):
            for count in numbers:
                least = statistics.median(figures[numbers[0], f"{what} {part}"]) * scale
                value = statistics.median(figures[count, f"{what} {part}"]) * scale
                report.add(f"a block {what}, {count} nodes: {part}", value, unit, least)


if __name__ == "__main__":
    main()
