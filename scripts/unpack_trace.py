"""Prints the first requests of a trace in tests/data/traces in the form that `cenote replay` reads.

python3 scripts/unpack_trace.py tests/data/traces/conversation.txt 1500 > sample.jsonl
"""

import itertools
import json
import sys
from collections.abc import Iterator


def ids_of(ranges: str) -> Iterator[int]:
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        yield from range(int(first), int(last or first) + 1)


def main(path: str, count: str) -> None:
    with open(path, encoding="ascii") as packed:
        for line in itertools.islice(packed, int(count)):
            time, tokens, ranges = line.split()
            print(json.dumps({"timestamp": int(time), "input_length": int(tokens), "hash_ids": list(ids_of(ranges))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
