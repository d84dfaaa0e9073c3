"""What blocks cost that only one of the nodes of an engine still has: two nodes, LRU, requests of a trace.

tests/bench/orphans.py TRACE.jsonl [--capacity BLOCKS] [--limit REQUESTS]

Both nodes see the same requests. A request takes the prefix that both have, and stores the rest on both; each node
evicts from its high to its low water mark, by its own clock of tenths of a second. A block of a node is an orphan when
the other one lacks it, or a block before it: no request can take it. For each way in which the nodes differ: the share
of orphans among the blocks of the first node (the mean over all requests after the first tenth), the share of all
blocks that requests took, and what they would have taken if each node dropped at once what the other one evicts.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

BLOCK = 512  # tokens
TICK = 0.1  # seconds, of the clock that orders blocks
HIGH, LOW = 1.0, 0.95  # water marks
SAMPLES = 200  # of the share of orphans

Request = tuple[float, list[int]]  # seconds, and the ids of full blocks


def read(path: Path, limit: int) -> list[Request]:
    found = []
    for line in path.read_text().splitlines()[:limit]:
        each = json.loads(line)
        ids = each["hash_ids"][: each["input_length"] // BLOCK]
        if ids:
            found.append((each["timestamp"] / 1000, ids))
    return sorted(found, key=lambda each: each[0])


class Lru:
    """One node. Blocks of a tick have an order of their own on each node: `chance`."""

    def __init__(self, capacity: int, chance: random.Random | None = None, jitter: float = 0.0) -> None:
        self.capacity = capacity
        self.blocks: dict[int, tuple[int, float, int]] = {}
        self._chance = chance
        self._jitter = jitter
        self._count = 0

    def prefix(self, ids: Sequence[int]) -> int:
        return next((i for i, each in enumerate(ids) if each not in self.blocks), len(ids))

    def touch(self, now: float, ids: Sequence[int]) -> None:
        """Tail to head: a parent is never older than its child."""
        request = self._chance.random() if self._chance else 0.0
        for each in reversed(ids):
            self._count += 1
            self.blocks[each] = (int(now / TICK), request, self._count)

    def evict(self) -> list[int]:
        if len(self.blocks) <= HIGH * self.capacity:
            return []
        low = LOW - (self._chance.random() * self._jitter if self._chance else 0.0)
        gone = sorted(self.blocks, key=lambda each: self.blocks[each])[: len(self.blocks) - int(low * self.capacity)]
        for each in gone:
            del self.blocks[each]
        return gone


def orphans(nodes: Sequence[Lru], parents: dict[int, int | None]) -> float:
    """Their share of the first node's blocks."""
    usable: dict[int, bool] = {}

    def is_usable(block: int) -> bool:
        chain = []
        while block not in usable:
            chain.append(block)
            parent = parents[block]
            if parent is None or not all(block in each.blocks for each in nodes):
                usable[block] = all(block in each.blocks for each in nodes)
                break
            block = parent
        known = usable[block]
        for each in reversed(chain):
            known = usable[each] = known and all(each in node.blocks for node in nodes)
        return known

    return sum(not is_usable(each) for each in nodes[0].blocks) / max(1, len(nodes[0].blocks))


Disturb = Callable[[int, int, list[Lru]], None]  # request's number, of how many


def run(requests: Sequence[Request], nodes: list[Lru], disturb: Disturb, told: bool) -> tuple[float, int]:
    parents: dict[int, int | None] = {}
    shares, taken = [], 0
    every = max(1, len(requests) // SAMPLES)
    for number, (now, ids) in enumerate(requests):
        parents.update(zip(ids, [None, *ids[:-1]], strict=True))
        taken += min(each.prefix(ids) for each in nodes)
        for each in nodes:
            each.touch(now, ids)
        disturb(number, len(requests), nodes)
        for each in nodes:
            gone = each.evict()
            for other in nodes if told else ():
                for block in gone:
                    other.blocks.pop(block, None)
        if number % every == 0 and number > len(requests) // 10:
            shares.append(orphans(nodes, parents))
    return sum(shares) / max(1, len(shares)), taken


def nothing(number: int, count: int, nodes: list[Lru]) -> None:
    return


def restart(number: int, count: int, nodes: list[Lru]) -> None:
    """The second node comes back empty, once."""
    if number == count // 2:
        nodes[1].blocks.clear()


def lose_some(share: float) -> Disturb:
    """With each request the second node loses blocks that nobody would have chosen."""
    chance = random.Random(3)

    def disturb(number: int, count: int, nodes: list[Lru]) -> None:
        mine = nodes[1].blocks
        for each in chance.sample(list(mine), int(len(mine) * share)) if number % 10 == 0 else ():
            del mine[each]

    return disturb


def ways(capacity: int) -> Iterator[tuple[str, Callable[[], list[Lru]], Disturb]]:
    def alike() -> list[Lru]:
        return [Lru(capacity), Lru(capacity)]

    def own_order() -> list[Lru]:
        return [Lru(capacity, random.Random(1), 0.02), Lru(capacity, random.Random(2), 0.02)]

    yield "the same in both", alike, nothing
    yield "own order within a tick, own water marks (2 %)", own_order, nothing
    yield "the second has 10 % less room", lambda: [Lru(capacity), Lru(capacity * 9 // 10)], nothing
    yield "the second has 30 % less room", lambda: [Lru(capacity), Lru(capacity * 7 // 10)], nothing
    yield "the second comes back empty once", alike, restart
    yield "the second loses 1 % at random, every 10 requests", alike, lose_some(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--capacity", type=int, default=10_000, help="blocks of each node")
    parser.add_argument("--limit", type=int, default=1 << 60, help="requests")
    options = parser.parse_args()
    requests = read(options.trace, options.limit)
    wanted = sum(len(ids) for _, ids in requests)
    print(f"{len(requests)} requests, {wanted} blocks; room for {options.capacity} on each of two nodes")
    print(f"{'':52} orphans   taken   if told")
    for name, nodes, disturb in ways(options.capacity):
        share, taken = run(requests, nodes(), disturb, told=False)
        _, told = run(requests, nodes(), disturb, told=True)
        print(f"{name:52} {share:7.2%} {taken / wanted:7.2%} {told / wanted:9.2%}")


if __name__ == "__main__":
    main()
