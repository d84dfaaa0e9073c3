"""Prints the first requests of a trace in tests/data/traces in the form that `cenote replay` reads.

python3 scripts/unpack_trace.py tests/data/traces/conversation.txt 1500 > sample.jsonl
"""

import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def ids_of(ranges: str) -> Iterator[int]:
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        yield from range(int(first), int(last or first) + 1)


def requests(path: str | Path, count: int) -> Iterator[dict[str, Any]]:
    """The first `count` of them."""
    with open(path, encoding="ascii") as packed:
        for line in itertools.islice(packed, count):
            time, tokens, ranges = line.split()
            yield {"timestamp": int(time), "input_length": int(tokens), "hash_ids": list(ids_of(ranges))}


def main(path: str, count: str) -> None:
    for each in requests(path, int(count)):
        print(json.dumps(each))


if __name__ == "__main__":
    main(*sys.argv[1:])
