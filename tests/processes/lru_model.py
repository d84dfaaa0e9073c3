"""LRU by lists and searching, and recorded requests in each form, read by nothing of the product: what
`cenote optimize` must agree with."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node import ROOT

TRACES = ROOT / "tests/data/optimizer"
CASES = ROOT.parent / "shared/cases/optimizer"  # the contract's, where they are beside the checkout
SIZE = 16  # tokens of a block in both


@dataclass(frozen=True)
class Request:
    """A chain in full blocks. Equal keys are equal blocks behind equal prefixes."""

    keys: tuple[Hashable, ...]
    tokens: int
    asks: bool = True
    stores: bool = True


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_mooncake(path: Path, size: int) -> list[Request]:
    return [Request(tuple(row["hash_ids"][: row["input_length"] // size]), row["input_length"]) for row in rows(path)]


def of_bailian(path: Path, size: int) -> list[Request]:
    """A block is its content and all contents before it."""
    made = []
    for row in rows(path):
        full = row["hash_ids"][: row["input_length"] // size]
        made.append(Request(tuple(tuple(full[: i + 1]) for i in range(len(full))), row["input_length"]))
    return made


def of_tair_schema(path: Path, size: int) -> list[Request]:
    return [Request(tuple((row["instance_id"], key) for key in row["keys"]), row["input_len"]) for row in rows(path)]


def of_tair_log(path: Path, size: int) -> list[Request]:
    """Reads and writes apart, in the order of their times."""
    started: dict[str, tuple[str, int, list[int]]] = {}
    events: list[tuple[int, Request]] = []

    def add(time: int, source: str, keys: Iterable[int], **access: bool) -> None:
        chain = tuple((source, key) for key in keys)
        events.append((time, Request(chain, len(chain) * size, **access)))

    for row in rows(path):
        time = row["trigger_time_us"]
        if row["type"] == "GetCacheLocation":
            add(time, row["source"], row["keys"], stores=False)
        elif row["type"] == "StartWriteCache":
            started[row["write_session_id"]] = (row["source"], time, row["keys"])
        else:
            source, _, keys = started.pop(row["write_session_id"])
            mask = row["success_block"]
            stored = (
                [key for key, good in zip(keys, mask, strict=True) if good] if isinstance(mask, list) else keys[:mask]
            )
            add(time, source, stored, asks=False)
    for source, time, keys in started.values():
        add(time + 100_000, source, keys, asks=False)
    return [request for _, request in sorted(events, key=lambda event: event[0])]


READERS = {
    "mooncake": of_mooncake,
    "bailian": of_bailian,
    "tair-log": of_tair_log,
    "tair-schema": of_tair_schema,
}


def hits(requests: list[Request], capacity: int, order: str, size: int) -> tuple[int, int]:
    """Leading blocks that were there when they were asked for, and their tokens."""
    asked = [pair for pair in zip(requests, leads(requests, capacity, order), strict=True) if pair[0].asks]
    return sum(lead for _, lead in asked), sum(min(lead * size, request.tokens) for request, lead in asked)


@dataclass(frozen=True)
class Levels:
    """Percent of the capacity: behind a request that leaves more than `high`, the oldest blocks go down to `low`."""

    high: int = 100
    low: int = 100
    batch: int = 1

    def drop(self, cache: list[Hashable], capacity: int) -> None:
        if 100 * len(cache) <= self.high * capacity:
            return
        while cache and 100 * len(cache) > self.low * capacity:
            del cache[-self.batch :]


def levelled_hits(requests: list[Request], capacity: int, levels: Levels) -> int:
    """Leading blocks of requests that store what they ask for, tail to head."""
    return sum(leads(requests, capacity, "rev", levels))


def leads(requests: list[Request], capacity: int, order: str, levels: Levels | None = None) -> list[int]:
    """Leading blocks of each request that were there when it came."""
    cache: list[Hashable] = []  # the latest use in front

    def use(key: Hashable, *, stores: bool) -> None:
        if key in cache:
            cache.remove(key)
        elif not stores:
            return
        cache.insert(0, key)
        del cache[capacity:]

    all_leads = []
    for request in requests:
        keys = request.keys
        lead = next((i for i, key in enumerate(keys) if key not in cache), len(keys))
        all_leads.append(lead)
        if not request.stores:
            for key in keys[:lead] if order == "fwd" else reversed(keys[:lead]):
                use(key, stores=False)
        elif order == "fwd":
            for key in keys:
                use(key, stores=True)
        else:
            for key in (*reversed(keys[:lead]), *reversed(keys[lead:])):
                use(key, stores=True)
            for key in reversed(keys[:lead]):
                use(key, stores=False)
        if levels is not None:
            levels.drop(cache, capacity)
    return all_leads


def capacities_for(requests: list[Request], size: int) -> Iterator[tuple[float, int]]:
    """By trying one after the other."""
    distinct = len({key for request in requests for key in request.keys})
    tokens = [hits(requests, capacity, "rev", size)[1] for capacity in range(distinct + 1)]
    for share in (0.6, 0.8, 0.9, 0.95, 0.99):
        wanted = math.ceil(share * tokens[-1])
        yield share, next(capacity for capacity, some in enumerate(tokens) if some >= wanted)
