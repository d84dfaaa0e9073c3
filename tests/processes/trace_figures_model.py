"""The analyses of a trace by lists and dictionaries: what `cenote optimize analyze` must agree with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

import lru_model
from lru_model import Request


def joined(requests: list[Request]) -> list[Request]:
    """One request of each read with the write of the same chain directly behind it."""
    made: list[Request] = []
    for each in requests:
        if made and not made[-1].stores and not each.asks and made[-1].keys == each.keys:
            made[-1] = Request(each.keys, made[-1].tokens)
        else:
            made.append(each)
    return made


def powers(values: Iterable[int]) -> list[list[int]]:
    """[[the smallest power of two above them, how many]]"""
    return [list(each) for each in sorted(Counter(1 << value.bit_length() for value in values).items())]


def reuse_distances(requests: list[Request]) -> dict[str, Any]:
    stream = [key for request in requests for key in request.keys]
    last: dict[Hashable, int] = {}
    distances = []
    for place, key in enumerate(stream):
        if key in last:
            distances.append(len(set(stream[last[key] + 1 : place])))
        last[key] = place
    return {"cold": len(last), "below": powers(distances)}


def reuse_times(requests: list[Request], times: list[int]) -> dict[str, Any]:
    last: dict[Hashable, int] = {}
    gaps = []
    for request, time in zip(requests, times, strict=True):
        for key in request.keys:
            if key in last:
                gaps.append(time - last[key])
            last[key] = time
    return {"below": powers(gaps)}


def frequency(requests: list[Request]) -> list[list[int]]:
    uses = Counter({key: 0 for request in requests for key in request.keys})
    uses.update(key for request in requests if request.asks for key in request.keys)
    return [list(each) for each in sorted(Counter(uses.values()).items())]


def gini(counts: list[list[int]]) -> float:
    uses = [each for each, blocks in counts for _ in range(blocks) if each > 0]
    return sum(abs(a - b) for a in uses for b in uses) / (2 * len(uses) * sum(uses))


def tree(requests: list[Request]) -> dict[str, int]:
    parents: dict[Hashable, Hashable | None] = {}
    for request in requests:
        for parent, key in zip((None, *request.keys), request.keys, strict=False):
            assert parents.setdefault(key, parent) == parent
    children = Counter(parent for parent in parents.values() if parent is not None)
    return {
        "nodes": len(parents),
        "roots": sum(parent is None for parent in parents.values()),
        "leaves": len(parents) - len(children),
        "forks": sum(some > 1 for some in children.values()),
        "depth": max(len(request.keys) for request in requests),
    }


def endless_hits(requests: list[Request]) -> list[int]:
    stored: set[Hashable] = set()
    hits = []
    for request in requests:
        lead = next((i for i, key in enumerate(request.keys) if key not in stored), len(request.keys))
        hits.append(lead if request.asks else 0)
        if request.stores:
            stored.update(request.keys)
    return hits


def windows(requests: list[Request], times: list[int], length: int, size: int) -> list[dict[str, int]]:
    hits = endless_hits(requests)
    rows = []
    for start in sorted({time // length * length for time in times}):
        inside = [i for i, time in enumerate(times) if time // length * length == start and requests[i].asks]
        seen = {
            key for request, time in zip(requests, times, strict=True) if time < start + length for key in request.keys
        }
        rows.append(
            {
                "start_ms": start,
                "requests": len(inside),
                "references": sum(len(requests[i].keys) for i in inside),
                "distinct": len(seen),
                "hit_blocks": sum(hits[i] for i in inside),
                "hit_tokens": size * sum(hits[i] for i in inside),
            }
        )
    return rows


def ttl_tokens(requests: list[Request], times: list[int], seconds: int, size: int) -> int:
    last: dict[Hashable, int] = {}
    blocks = 0
    for request, time in zip(requests, times, strict=True):
        fresh = (key in last and time - last[key] < 1000 * seconds for key in request.keys)
        blocks += next((i for i, good in enumerate(fresh) if not good), len(request.keys))
        last.update(dict.fromkeys(request.keys, time))
    return blocks * size


def larger(requests: list[Request], factor: int) -> list[Request]:
    return [Request(request.keys[factor - 1 :: factor], request.tokens) for request in requests]


def size_tokens(requests: list[Request], factor: int, size: int, capacity: int) -> tuple[int, int]:
    """Hit tokens of an endless cache and of LRU with blocks `factor` times as large."""
    coarse = larger(requests, factor)
    endless = size * factor * sum(endless_hits(coarse))
    return endless, lru_model.hits(coarse, capacity // factor, "rev", size * factor)[1]
