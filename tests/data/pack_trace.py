"""Packs a trace of Mooncake's into the form that the tests read: pack_trace.py TRACE.jsonl >TRACE.txt

A line a request: time in ms, input tokens, and the block ids as ranges: "3000 13544 0,219-244".
"""

from __future__ import annotations

import json
import sys


def ranges(ids: list[int]) -> str:
    runs: list[list[int]] = []
    for block in ids:
        if runs and runs[-1][1] + 1 == block:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def main() -> None:
    with open(sys.argv[1], encoding="ascii") as trace:
        for line in trace:
            request = json.loads(line)
            print(request["timestamp"], request["input_length"], ranges(request["hash_ids"]))


if __name__ == "__main__":
    main()
