#!/usr/bin/env python3
"""Time until the scores of an indexer that was killed are right again: 100 publishers, each with 10,000 batches of a
block in its ring, replayed over TCP by one process, `replay_publishers`, which made them before.

The limit, in turn with it, is a process that asks for the same replays, eight at a time, and looks at nothing. A second
figure is the indexer's processor time until then.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import support
from indexer import BLOCK, MODEL, Indexer
from node import until
from support import Report

CHAIN = 100  # blocks of a prompt
SETS = 10  # of prompts, each of a tenth of the publishers
AT_ONCE = 8  # replays, as the indexer has them
BOUND = "<= 20 s"


def program() -> Path:
    """It stands in the build of the binaries that are measured, or is built there."""
    build = Path(os.environ.get("CENOTE_BINARY", support.ROOT / "build" / "cenote")).parent
    made = build / "tests" / "bin" / "replay_publishers"
    if not made.exists():
        subprocess.run(["cmake", "--build", str(build), "--target", made.name], check=True, stdout=subprocess.DEVNULL)
    return made


def prompts(number: int, batches: int) -> list[tuple[int, ...]]:
    """No token is in two of them."""
    size, count = CHAIN * BLOCK, batches // CHAIN
    return [tuple(range(i * size, (i + 1) * size)) for i in range(number * count, (number + 1) * count)]


@contextlib.contextmanager
def publishers(count: int, batches: int) -> Iterator[list[tuple[int, int, int]]]:
    """Number, port of events and port of replays of each."""
    command = [str(program()), "serve", str(count), str(batches), MODEL, str(BLOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        pods = []
        for line in iter(served.stdout.readline, "ready\n"):
            if not line:
                raise SystemExit("indexer_restart: the publishers did not start")
            events, replays = line.split()
            pods.append((len(pods), int(events), int(replays)))
        try:
            yield pods
        finally:
            served.kill()


def plain_reader(pods: list[tuple[int, int, int]], batches: int) -> float:
    """Seconds until one process has all replays."""
    ports = [str(port) for _, _, port in pods]
    command = [str(program()), "read", str(batches), str(AT_ONCE), *ports]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout)


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
        times, limits, work = [], [], []
        try:
            indexer.start()
            until("the first replays are through", lambda: is_exact(indexer, pods, batches), 300, 0.2)
            for _ in range(rounds):
                limits.append(plain_reader(pods, batches))
                indexer.kill()
                begin = time.perf_counter()
                indexer.start()
                until("scores are right", lambda: is_exact(indexer, pods, batches), 300, 0.05)
                times.append(time.perf_counter() - begin)
                work.append(support.processor_seconds(indexer.pid))
        finally:
            indexer.kill()
    name = f"{count} publishers with {batches} batches each"
    report.add(name, statistics.median(times), "s", statistics.median(limits), BOUND)
    report.add("the indexer's processor time meanwhile", statistics.median(work), "s")


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--publishers", type=int, default=100)
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    measure(options.publishers, options.batches, options.rounds, Report("indexer_restart", options.json))


if __name__ == "__main__":
    main()
