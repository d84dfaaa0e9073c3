"""The nodes' pool beside the network that carries it: whole fetches, questions, and what they cost the home.

    python pool.py [--blocks N] [--block BYTES] [--rounds N] [--json]

fetch       N blocks that one node has, from the prefetch at another node until its client holds them: the question
            where they are, the transfer, the check of every block, and their publication. Limit: blocks of that size
            between two processes, by `cenote bench peer` in the same rounds, which checks nothing.
locate      where 1,000 keys are, over four other nodes that have a quarter of them each; from the client's call to its
            answer. Limit: three requests between two nodes' actors, of `cenote bench peer`, and what the home may take.
home        the processor time that a question for 1,000 keys costs the one node that has them all: of the thread that
            answers, as the kernel counts it. Limit: a client's match of the same keys in that node's shared memory.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import support
from node import free_ports
from support import GiB, KiB, MiB, Node, Report, cenote, until

KEYS = 1000
QUESTIONS = 50  # a round
HOME_BOUND = 2.5  # times a match
SETS = (
    *('remote.backends=["peers"]', "remote.lookup_timeout=2s", "remote.timeout=8s"),
    *("prefetch.threshold_tokens=0", "prefetch.assumed_tokens_per_s=0", "metrics.listen=off"),
)


def start_nodes(stack: ExitStack, capacity: int, weights: list[int]) -> list[Node]:
    """Nodes that all can ask each other for blocks."""
    ports = free_ports(len(weights))
    nodes = []
    for number, (port, weight) in enumerate(zip(ports, weights, strict=True)):
        place = [f"cluster.name=n{number}", f"cluster.listen=127.0.0.1:{port}", f"cluster.weight={weight}"]
        seeds = f'cluster.seeds=["127.0.0.1:{ports[0]}"]'
        nodes.append(stack.enter_context(support.node(capacity, *place, seeds, *SETS)))
    askable = len(weights) - 1
    until("all nodes see each other", lambda: all(n.status()["cluster"]["askable"] == askable for n in nodes), limit=60)
    for each in nodes:
        each.until_populated()
    return nodes


class Fetches:
    """One node has blocks, a client of the other one fetches them."""

    def __init__(self, stack: ExitStack, block: int, count: int) -> None:
        self.block, self.count = block, count
        self.number = 0
        home, here = start_nodes(stack, 3 * block * count + 64 * MiB, [1 << 50, 1])
        spec = support.spec("pool", block)
        self.writer, self.reader = (
            stack.enter_context(cenote.attach(spec, socket=str(each.socket), max_pins=2 * count))
            for each in (home, here)
        )
        self.content = os.urandom(block)

    def __call__(self) -> tuple[float, list[float]]:
        """Seconds of the whole, and of single blocks, which are asked for one after the other."""
        keys = support.keys("pool", self.number, self.count + 20)
        self.number += len(keys)
        self.writer.put(keys, [self.content] * len(keys))
        whole = self._fetch(keys[: self.count])
        single = [self._fetch([key]) for key in keys[self.count :]]
        self.writer.clear()
        return whole, single

    def _fetch(self, keys: list[bytes]) -> float:
        begin = time.perf_counter()
        ticket = self.reader.prefetch(keys, "wait_complete", prefill_tokens_per_s=0)
        found = ticket.wait(60)
        with ticket.held() as held:
            took = time.perf_counter() - begin
            assert found == len(keys), f"{found} of {len(keys)} blocks were found"
            assert all(each.view() == self.content for each in held), "other bytes"
        ticket.release()
        return took


class Questions:
    """Where blocks are that `homes` nodes have; asked by a node that has none."""

    def __init__(self, stack: ExitStack, homes: int) -> None:
        *self.homes, self.asker_node = start_nodes(stack, 64 * MiB, [1 << 50] * homes + [1])
        spec = support.spec(f"pool-{homes}", 4 * KiB)
        self.writer = stack.enter_context(cenote.attach(spec, socket=str(self.homes[0].socket)))
        self.asker = stack.enter_context(cenote.attach(spec, socket=str(self.asker_node.socket)))
        self.keys = support.keys("questions", 0, KEYS)
        self.writer.put(self.keys, [bytes(4 * KiB)] * KEYS)
        until("all can be found", lambda: self.asker.locate(self.keys, timeout=5).reachable == KEYS, limit=60)

    def __call__(self) -> tuple[float, float]:
        """Seconds of one question, median; and of the first home's processor a question."""
        took = []
        before = network_seconds(self.homes[0])
        for _ in range(QUESTIONS):
            begin = time.perf_counter()
            found = self.asker.locate(self.keys, timeout=5).reachable
            took.append(time.perf_counter() - begin)
            assert found == KEYS
        return statistics.median(took), (network_seconds(self.homes[0]) - before) / QUESTIONS

    def match_seconds(self) -> float:
        """Median of a match of all keys at the first home."""
        return support.median_time(QUESTIONS, lambda: self.writer.match(self.keys))[0]


def network_seconds(node: Node) -> float:
    """Processor time of the thread that talks to other nodes."""
    for task in Path(f"/proc/{node.worker_pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "cenote-net":
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise AssertionError("there is no thread cenote-net")


def bench_peer(block: int) -> dict[str, float]:
    """Of one round: GiB/s of blocks, and microseconds of a request between actors."""
    binary = os.environ.get("CENOTE_BINARY", str(support.ROOT / "build/cenote"))
    command = [binary, "bench", "peer", "--rounds", "1", "--json"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # its bounds are not asked here
    said = {line["case"]: float(line["value"]) for line in map(json.loads, ran.stdout.splitlines())}
    size = f"{block / MiB:.1f} MiB" if block >= MiB else f"{block / KiB:.1f} KiB"
    return {"rate": said[f"blocks of {size}"], "request": said["request between actors, 64 bytes"]}


def measure(arguments: Any) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = defaultdict(list)
    for number in range(-1, arguments.rounds):
        with ExitStack() as stack:
            fetches = Fetches(stack, arguments.block, arguments.blocks)
            fetches()  # all memory was touched once
            whole, single = fetches()
        with ExitStack() as stack:
            took, _ = Questions(stack, 4)()
        with ExitStack() as stack:
            questions = Questions(stack, 1)
            _, cpu = questions()
            match = questions.match_seconds()
        peer = bench_peer(arguments.block)
        if number < 0:
            continue
        rate = arguments.block * arguments.blocks / GiB / whole
        for name, value in (
            *(("rate", rate), ("took", took), ("cpu", cpu), ("match", match)),
            ("ratio", rate / peer["rate"]),
        ):
            figures[name].append(value)
        figures["single"] += single
        figures["limit"].append(peer["rate"])
        figures["request"].append(peer["request"])
    return figures


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--blocks", type=int, default=500)
    parser.add_argument("--block", type=int, default=2 * MiB, help="bytes: 65536, 524288, 2097152 or 8388608")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    figures = measure(arguments)
    median = {name: statistics.median(values) for name, values in figures.items()}
    size = f"{arguments.block / MiB:g} MiB"
    report = Report("pool", arguments.json)
    report.add(f"fetch of {arguments.blocks} x {size}", median["rate"], "GiB/s", median["limit"], ">= 0.9")
    report.add("its ratio in each round, median", median["ratio"], "times", None, ">= 0.9 times")
    report.add(f"fetch of one block of {size}, median", median["single"] * 1e6, "us")
    slowest = statistics.quantiles(figures["single"], n=100)[98] if len(figures["single"]) > 1 else median["single"]
    report.add(f"fetch of one block of {size}, p99", slowest * 1e6, "us")
    match = median["match"] * 1e6
    limit = 3 * median["request"] + HOME_BOUND * match
    report.add(f"locate of {KEYS} keys, 4 nodes", median["took"] * 1e6, "us", limit, "<= 1")
    report.add("a request between actors", median["request"], "us")
    report.add(f"processor of the home, {KEYS} keys", median["cpu"] * 1e6, "us", match, f"<= {HOME_BOUND:g}")


if __name__ == "__main__":
    main()
