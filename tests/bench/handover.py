"""How long after a block's commit at one node it is readable at another one that follows its request.

    python handover.py [--blocks N] [--block BYTES] [--rounds N] [--json]

One engine stores blocks one at a time, and waits for each to be readable at the other node: by a lookup in shared
memory there, and by what the engine there is told of its request. Beside it the request and answer between two nodes'
actors of `cenote bench peer` in the same rounds, and the time of one block between two processes at its rate.
"""

from __future__ import annotations

import os
import statistics
import time
from contextlib import ExitStack

import support
from pool import bench_peer, start_nodes
from support import GiB, KiB, MiB, Report, cenote


def hand_over(block: int, count: int) -> tuple[list[float], list[float]]:
    """Seconds from the end of each block's commit until it is readable at the other node, and until its follower
    knows."""
    with ExitStack() as stack:
        # the second node takes no blocks by itself: its weight is as good as none
        makes_at, wants_at = start_nodes(stack, 3 * block * count + 64 * MiB, [1 << 50, 1])
        spec = support.spec("handover", block)
        makes, wants = (
            stack.enter_context(cenote.attach(spec, socket=str(each.socket), max_pins=2 * count))
            for each in (makes_at, wants_at)
        )
        content = os.urandom(block)
        keys = support.keys("handover", 0, count)
        makes.publish("request", keys, end=True)
        ticket = wants.follow("request", "n0", deadline=60)
        readable, known = [], []
        for number, key in enumerate(keys):
            makes.put([key], [content])
            stored = time.perf_counter()
            while not wants.match([key]).resident:
                pass
            readable.append(time.perf_counter() - stored)
            while ticket.length <= number:
                pass
            known.append(time.perf_counter() - stored)
            time.sleep(0.001)  # as an engine that computes; what is under way of the last one ends
        assert ticket.wait(60) == count
        with ticket.held() as held:
            assert all(each.view() == content for each in held), "other bytes"
        ticket.release()
        return readable[count // 10 :], known[count // 10 :]  # after all memory was touched once


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--blocks", type=int, default=300)
    parser.add_argument("--block", type=int, default=512 * KiB, help="bytes: 65536, 524288, 2097152 or 8388608")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    readable: list[float] = []
    known: list[float] = []
    requests, rates = [], []
    for _ in range(arguments.rounds):
        one, other = hand_over(arguments.block, arguments.blocks)
        readable += one
        known += other
        peer = bench_peer(arguments.block)
        requests.append(peer["request"])
        rates.append(peer["rate"])
    size = f"{arguments.block / MiB:g} MiB"
    report = Report("handover", arguments.json)
    report.add(f"from commit to readable elsewhere, {size}", statistics.median(readable) * 1e6, "us")
    report.add("its 90th percentile", statistics.quantiles(readable, n=10)[8] * 1e6, "us")
    report.add("from commit until the follower knows", statistics.median(known) * 1e6, "us")
    report.add("a request between actors", statistics.median(requests), "us")
    report.add(f"{size} at the rate of blocks", arguments.block / GiB / statistics.median(rates) * 1e6, "us")


if __name__ == "__main__":
    main()
