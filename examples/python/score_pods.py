"""Feeds the events of two engines to an index in this process, and asks which of them has the most of a prompt.

It needs no server. A program has payloads from an engine's PUB socket already; this one writes its own.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence

from cenote.indexer import Indexer

BLOCK = 16
MODEL = "a-model"


def packed(value: object) -> bytes:
    """MessagePack of the few kinds of values that events have."""
    if value is None:
        return b"\xc0"
    if isinstance(value, int):
        return b"\xcf" + value.to_bytes(8, "big")
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"\xd9" + bytes([len(value)]) + value.encode()
    assert isinstance(value, Sequence)
    return b"\xdd" + len(value).to_bytes(4, "big") + b"".join(packed(each) for each in value)


def stored(tokens: Sequence[int], first: int, last: int) -> bytes:
    """A batch as vLLM publishes it: blocks [first, last) of the tokens; block i has the hash 1000 + i."""
    hashes = [1000 + i for i in range(first, last)]
    parent = 1000 + first - 1 if first else None
    event = ["BlockStored", hashes, parent, tokens[first * BLOCK : last * BLOCK], BLOCK, None, "GPU"]
    return packed([1.0, [event], 0])


def main() -> int:
    prompt = list(range(9000, 9000 + 8 * BLOCK))
    with Indexer(memory=64 << 20) as index:
        index.feed(f"kv@a@{MODEL}", 0, stored(prompt, 0, 3))
        index.feed(f"kv@b@{MODEL}", 0, stored(prompt, 0, 2))
        index.feed(f"kv@b@{MODEL}", 1, stored(prompt, 2, 6))
        scores = index.score(prompt, MODEL)
        for pod, score in scores.items():
            print(f"{pod}: {score.blocks} of {scores.blocks} blocks, score {score.score}")
        assert list(scores) == ["b", "a"] and scores["b"].blocks == 6

        gap = index.feed(f"kv@a@{MODEL}", 2, stored(prompt, 5, 8))
        print(f"a's batches {list(gap.missing)} are missing: this one is {gap.fate}")
        assert gap.fate == "waiting"

        index.clear("b")
        assert list(index.score(prompt, MODEL)) == ["a"]
    print("all as it should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
