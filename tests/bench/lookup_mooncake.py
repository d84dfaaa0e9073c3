"""A chain's lookup, 1,000 keys: Session.match beside Mooncake's batched exist, in turn, in one run.

    python lookup_mooncake.py [--kvbench PATH/kvbench.py] [--json]

Needs what kvbench_cenote.py needs. Both get their keys as a program of theirs has them: Mooncake a list of strings,
Cenote one array of hashes. The values are small; only their presence is asked for.
The limit is Mooncake's time.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import sys
import time
from collections.abc import Callable

import kvbench_cenote
import numpy as np
from figures import Report

CHAIN = 1000
ROUNDS = 40
STREAK = 10  # calls of one store in a row: the first finds the other's work in the processor's caches
BYTES = 4096
BOUND = "<= 0.05"  # a twentieth


def timed(work: Callable[[], int]) -> float:
    begin = time.perf_counter()
    found = work()
    assert found == CHAIN, found
    return time.perf_counter() - begin


def main() -> None:
    report = Report("lookup_mooncake", "--json" in sys.argv)
    kvbench = kvbench_cenote.kvbench
    os.makedirs(kvbench.LOGS, exist_ok=True)
    cfg = {"server_store_bytes": 256 << 20, "client_store_bytes": 256 << 20, "buf_bytes": 16 << 20}
    names = [hashlib.sha256(bytes([n % 251, n // 251])).hexdigest() for n in range(CHAIN)]
    array = np.frombuffer(b"".join(bytes.fromhex(name) for name in names), np.uint8).reshape(CHAIN, 32)
    value = bytes(BYTES)

    servers = []
    try:
        ours = kvbench_cenote.CenoteAdapter
        theirs = kvbench.ADAPTERS["mc-tcp"]
        servers = [*ours.start_servers(cfg), *theirs.start_servers(cfg)]
        node, peer = ours(cfg, 0), theirs(cfg, 0)
        node.open()
        peer.open()
        session = node.of_size(BYTES)
        assert session.put(array, [value] * CHAIN) == CHAIN
        for name in names:
            peer.put(name, value)
        asks: list[tuple[str, Callable[[], int]]] = [
            ("cenote match", lambda: session.match(array).resident),
            ("mooncake batch_is_exist", lambda: sum(peer.batch_exists(names))),
        ]
        first: dict[str, list[float]] = {name: [] for name, _ in asks}
        later: dict[str, list[float]] = {name: [] for name, _ in asks}
        for _ in range(ROUNDS):
            for name, ask in asks:
                streak = [timed(ask) for _ in range(STREAK)]
                first[name].append(streak[0])
                later[name] += streak[1:]
        for title, took in (("first call of a streak", first), ("the calls after it", later)):
            ours_us, theirs_us = (statistics.median(took[name]) * 1e6 for name, _ in asks)
            report.add(title, ours_us, "us", theirs_us, BOUND if took is later else "")
        node.close()
        peer.close()
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait()


if __name__ == "__main__":
    main()
