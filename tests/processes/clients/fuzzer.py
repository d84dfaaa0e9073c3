"""A client that writes random bytes into everything it shares with the node, as often as it is told to."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import wire

GROUPS = {"full": {"kv": 4096}}


def sensible_entry(dice: random.Random) -> bytes:
    """Like a real submission, with one field or another out of its mind."""
    operation = dice.choice([1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, dice.randrange(256)])
    width = dice.choice([16, 32, 64, dice.randrange(256)])
    return wire.SUBMISSION.pack(
        operation,
        dice.choice([0, 1, 1, 1, dice.randrange(256)]),
        dice.choice([0, 0, 0, dice.randrange(1 << 16)]),
        dice.randrange(1 << 32),
        dice.choice([0, dice.randrange(1 << 32)]),
        dice.choice([1, 2, dice.randrange(1 << 32)]),
        dice.choice([(1 << 18) | dice.randrange(1024), dice.randrange(1 << 64)]),
        dice.choice([1, 8, 64, dice.randrange(1 << 64)]),
        dice.choice([0, 64, dice.randrange(1 << 64)]),
        width,
        dice.randbytes(64),
    )


def fuzz(seed: int, instance: str, gentle: bool = False) -> int:
    """One session: rounds of plausible entries and of plain noise, with the bell rung in between. `gentle`: only what
    the instance's other sessions must survive unharmed (no removal, no clear)."""
    dice = random.Random(seed)
    place = os.environ["CENOTE_SOCKET"]
    raw = wire.RawSession.attach(place, instance, GROUPS, pins=dice.choice([1, 64, 4096]))
    for _ in range(dice.randrange(5, 30)):
        tail = raw.word(wire.SUBMIT_TAIL)
        room = wire.SUBMISSIONS - (tail - raw.word(wire.SUBMIT_HEAD))
        count = max(0, min(dice.randrange(1, 64), room))
        for i in range(count):
            entry = bytearray(sensible_entry(dice))
            if gentle and entry[0] in (6, 7):
                entry[0] = 9
            if i + 1 == count:
                entry[1] |= wire.FLAG_LAST
            at = wire.SUBMISSIONS_AT + (tail + i) % wire.SUBMISSIONS * wire.SUBMISSION_BYTES
            raw.memory[at : at + wire.SUBMISSION_BYTES] = bytes(entry)
        raw.set_word(wire.SUBMIT_TAIL, tail + count)
        raw.ring()
        for _ in range(dice.randrange(20)):  # while it is being read
            at = dice.randrange(wire.SUBMISSIONS_AT if not gentle else wire.GRANTS_AT, len(raw.memory) - 8)
            raw.memory[at : at + 8] = dice.randbytes(8)
        if dice.random() < 0.7:
            raw.set_word(wire.COMPLETE_HEAD, raw.word(wire.COMPLETE_TAIL))
        if dice.random() < 0.3:
            time.sleep(dice.random() * 0.005)
    if not gentle:
        end = len(raw.memory)
        for _ in range(10):
            at = dice.randrange(wire.WORKER_EPOCH, end - 64)
            size = dice.choice([8, 64, 4096, end])
            piece = dice.randbytes(min(size, end - at))
            raw.memory[at : at + len(piece)] = piece
            raw.ring()
            time.sleep(0.001)
        raw.memory[:end] = dice.randbytes(end)
        raw.ring()
    link = raw.link
    if dice.random() < 0.5:
        link.ask(wire.DETACH)
    if dice.random() < 0.5:
        raw.close(detach=False)
    return 1


def serve(commands: dict[str, Callable[..., Any]]) -> None:
    """Carries out a command a line, answers with a line each, until standard input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        reply: dict[str, Any]
        try:
            reply = {"value": commands[request["command"]](**request["arguments"])}
        except Exception as why:
            reply = {"error": type(why).__name__, "code": "python", "message": repr(why), "stored": None}
        print(json.dumps(reply), flush=True)
    os._exit(0)


if __name__ == "__main__":
    serve({"fuzz": fuzz})
