#!/usr/bin/env python3
"""Time until the scores of an indexer that was killed are right again: 100 publishers, each with 10,000 batches of a
block in its ring, replayed over TCP. Publishers are processes of their own, as engines' are.

The limit, in turn with it, is one process that asks for the same replays, eight at a time, and looks at nothing: both
wait for the publishers, which take most of the time.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import support
import zmq
from indexer import BLOCK, MODEL, Indexer
from node import free_ports, until
from support import Report

END = b"\xff" * 8
CHAIN = 100  # blocks of a prompt
SETS = 10  # of prompts, each of a tenth of the publishers
AT_ONCE = 8  # replays, as the indexer has them
PROCESSES = 2
BOUND = "<= 20 s"


def prompts(number: int, batches: int) -> list[tuple[int, ...]]:
    """No token is in two of them."""
    size, count = CHAIN * BLOCK, batches // CHAIN
    return [tuple(range(i * size, (i + 1) * size)) for i in range(number * count, (number + 1) * count)]


def payloads(number: int, batches: int) -> list[bytes]:
    """As vLLM publishes while it decodes: a batch for each block."""
    encode, made = msgspec.msgpack.Encoder().encode, []
    for i, tokens in enumerate(prompts(number, batches)):
        parent = None
        for at in range(CHAIN):
            name = ((number * batches + i) << 20) + at + 1
            event = {
                "type": "BlockStored",
                "block_hashes": [name],
                "parent_block_hash": parent,
                "token_ids": tokens[at * BLOCK : (at + 1) * BLOCK],
                "block_size": BLOCK,
                "lora_id": None,
                "medium": "GPU",
            }
            made.append(encode([1.0, [event], 0]))
            parent = name
    return made


def publish(pods: list[tuple[int, int, int]], batches: int) -> None:
    """A process: a PUB and a ROUTER for each (number, port of events, port of replays)."""
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 4096)
    poller, rings, live = zmq.Poller(), {}, []
    sets = {number % SETS: payloads(number % SETS, batches) for number, _, _ in pods}
    for number, events, replay in pods:
        pub, router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        router.sndhwm = 0
        pub.bind(f"tcp://127.0.0.1:{events}")
        router.bind(f"tcp://127.0.0.1:{replay}")
        live.append(pub)
        rings[router] = (f"kv@pod{number}@{MODEL}".encode(), sets[number % SETS])
        poller.register(router, zmq.POLLIN)
    numbers = [struct.pack(">Q", i) for i in range(batches)]
    while True:
        for router, _ in poller.poll():
            client, _, begin = router.recv_multipart()[:3]
            topic, ring = rings[router]
            if begin != b"snapshot":
                for i in range(struct.unpack(">Q", begin)[0], batches):
                    router.send_multipart((client, b"", topic, numbers[i], ring[i]))
            router.send_multipart((client, b"", topic, END, b""))


@contextlib.contextmanager
def publishers(count: int, batches: int) -> Iterator[list[tuple[int, int, int]]]:
    ports = free_ports(2 * count)
    pods = [(i, ports[2 * i], ports[2 * i + 1]) for i in range(count)]
    workers = [
        multiprocessing.Process(target=publish, args=(pods[i::PROCESSES], batches), daemon=True)
        for i in range(PROCESSES)
    ]
    for each in workers:
        each.start()
    try:
        yield pods
    finally:
        for each in workers:
            each.kill()
            each.join()


def plain_reader(pods: list[tuple[int, int, int]], batches: int) -> float:
    """Seconds until one process has all replays."""
    context, poller, waiting, got = zmq.Context(), zmq.Poller(), list(pods), 0
    begin = time.perf_counter()

    def ask() -> None:
        _, _, port = waiting.pop()
        line = context.socket(zmq.DEALER)
        line.rcvhwm = 0
        line.connect(f"tcp://127.0.0.1:{port}")
        line.send_multipart((b"", bytes(8)))
        poller.register(line, zmq.POLLIN)

    for _ in range(min(AT_ONCE, len(waiting))):
        ask()
    while got < len(pods) * batches or poller.sockets:
        for line, _ in poller.poll():
            with contextlib.suppress(zmq.Again):
                while True:
                    frames = line.recv_multipart(zmq.NOBLOCK)
                    if frames[2] != END:
                        got += 1
                        continue
                    poller.unregister(line)
                    line.close(0)
                    if waiting:
                        ask()
                    break
    seconds = time.perf_counter() - begin
    context.destroy(0)
    return seconds


def is_exact(indexer: Indexer, pods: list[tuple[int, int, int]], batches: int) -> bool:
    """Whether each pod has each tenth of its prompts whole."""
    if not indexer.is_ready():
        return False
    for number in range(SETS):
        wanted = {f"pod{pod}" for pod, _, _ in pods if pod % SETS == number}
        for tokens in prompts(number, batches)[::10]:
            found = indexer.scores(tokens)
            if {pod for pod, row in found.pods.items() if row["blocks"] == CHAIN} != wanted or found.degraded:
                return False
    return True


def measure(count: int, batches: int, rounds: int, report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as place, publishers(count, batches) as pods:
        config = "".join(
            f'[publishers.pod{number}]\nendpoint = "tcp://127.0.0.1:{events}"\nreplay = "tcp://127.0.0.1:{replay}"\n'
            for number, events, replay in pods
        )
        indexer = Indexer(Path(place) / "indexer", config=config)
        times, limits = [], []
        try:
            indexer.start()
            until("the first replays are through", lambda: is_exact(indexer, pods, batches), 300, 0.2)
            for _ in range(rounds):
                limits.append(plain_reader(pods, batches))
                indexer.kill()
                begin = time.perf_counter()
                indexer.start()
                until("scores are right", lambda: is_exact(indexer, pods, batches), 300, 0.2)
                times.append(time.perf_counter() - begin)
        finally:
            indexer.kill()
    name = f"{count} publishers with {batches} batches each"
    report.add(name, statistics.median(times), "s", statistics.median(limits), BOUND)


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--publishers", type=int, default=100)
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    measure(options.publishers, options.batches, options.rounds, Report("indexer_restart", options.json))


if __name__ == "__main__":
    main()
