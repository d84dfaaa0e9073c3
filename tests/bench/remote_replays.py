"""Whether a remote tier ever makes requests slower: one replay without it, and over servers that get slower and slower.

    python remote_replays.py [--rounds N] [--workload DESCRIPTION] [--speed 20x] [--prefill-rate N]

Each run has a node of its own with DRAM for a small part of what is asked for; the server is a real one, behind a proxy
that hands on so many bytes a second in each direction, or waits before each piece. All cases in turn, `rounds` times.
A figure is the time of all requests, from their lookup to their first token with computing included, beside that of the
replay without the tier; "hits" are those of the remote tier alone.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import support
from support import ROOT, KiB, MiB, Report

sys.path.insert(0, str(ROOT / "tests" / "processes"))

from redis import Redis
from redis_proxy import Behaviour, Proxy

BOUND = 1.03  # of the time without the tier
SETTINGS = ("--dram=128MiB", "--nvme=0", "--policy=lru", "--block-bytes=256KiB", "--verify=all")
SERVER = ("--maxmemory", "2gb", "--maxmemory-policy", "allkeys-lru")
STOPPED_AFTER = 2.0  # seconds


def throttled(rate: int) -> Behaviour:
    """So many bytes a second."""
    piece = min(64 * KiB, max(4 * KiB, rate // 100))
    return Behaviour(piece=piece, pause=piece / rate)


@dataclass(frozen=True)
class Case:
    name: str
    link: Behaviour | None = field(default_factory=Behaviour)  # None: no remote tier
    direct: bool = False
    stops: bool = False  # in the middle of the replay, for good


CASES = (
    Case("without", None),
    Case("a server on this machine", direct=True),
    Case("100 MiB/s", throttled(100 * MiB)),
    Case("20 MiB/s", throttled(20 * MiB)),
    Case("4 MiB/s", throttled(4 * MiB)),
    Case("256 KiB/s", throttled(256 * KiB)),
    Case("50 ms before each 64 KiB", Behaviour(pause=0.05)),
    Case("stops after 2 s, for good", direct=True, stops=True),
)


@contextmanager
def place_of(case: Case) -> Iterator[list[str]]:
    """The options that name the remote tier."""
    if case.link is None:
        yield []
        return
    redis = Redis(*SERVER)
    proxy = Proxy(redis.socket)
    proxy.up = proxy.down = case.link
    timer = threading.Timer(STOPPED_AFTER, redis.stop)
    if case.stops:
        timer.start()
    try:
        yield [f"--remote={redis.url if case.direct else proxy.url}"]
    finally:
        timer.cancel()
        proxy.close()
        redis.close()


def replay(case: Case, arguments: Any) -> dict[str, Any]:
    with place_of(case) as remote:
        command = [
            os.environ.get("CENOTE_BINARY", str(ROOT / "build/cenote")),
            *("replay", "--generate", arguments.workload, "--json", f"--speed={arguments.speed}"),
            *(f"--prefill-rate={arguments.prefill_rate}", *SETTINGS, *remote),
        ]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    said = dict(json.loads(ended.stdout))
    assert said["wrong_blocks"] == 0 and said["failed_requests"] == 0, said["failures"]
    return said


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workload", default="chat:requests=600")
    parser.add_argument("--speed", default="20x")
    parser.add_argument("--prefill-rate", type=float, default=20_000)
    arguments = parser.parse_args()
    report = Report("remote_replays", arguments.json)
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for _ in range(arguments.rounds):
        for case in CASES:
            runs[case.name].append(replay(case, arguments))

    def median(name: str, figure: Any) -> float:
        return float(statistics.median(figure(each) for each in runs[name]))

    def seconds(of: dict[str, Any]) -> float:
        return float(of["request_seconds"]["with_lower_tiers"])

    slower = False
    without = median("without", seconds)
    for case in CASES:
        value = median(case.name, seconds)
        slower |= value > BOUND * without
        report.add(case.name, value, "s", without, f"<= {BOUND}" if case.link else "")
        late = median(case.name, lambda of: of["latency_us"]["with_computing"]["p99"] / 1000)
        report.add(f"{case.name}: p99 of a request", late, "ms")
        hits = median(case.name, lambda of: 100 * of["prefix_tokens_remote"] / of["tokens"])
        report.add(f"{case.name}: hits", hits, "% of tokens")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
