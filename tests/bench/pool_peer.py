"""One end of LMCache's remote server, `lm://`, by its own RemoteBackend, with the Python of scripts/peers.

    pool_peer.py hold|get lm://HOST:PORT BLOCK COUNT CONNECTIONS

A line on standard input is a round's number. `hold` stores COUNT blocks at the server and answers when it has them all;
`get` fetches them into LMCache's pool in this process and answers with the seconds as JSON. An LMCache worker has one
connection: with more there are as many RemoteBackends, each with a thread and a pool of its own, one call to each for
its share of the blocks. Contents differ in each round and are compared after the clock stops. Keys do not: the server
forgets nothing, but replaces.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from remote_peer import PATIENCE, Remote, row_of


class Blocks:
    """What is stored in a round, and the keys."""

    def __init__(self, block: int, count: int) -> None:
        import torch
        from lmcache.utils import CacheEngineKey

        self.keys = [CacheEngineKey("bench", 1, 0, number, torch.bfloat16) for number in range(count)]
        torch.manual_seed(1)
        self.content = torch.randint(0, 256, (block,), dtype=torch.uint8)

    def row(self, series: int, number: int) -> Any:
        """Valid until the next one is asked for."""
        import torch

        stamp = torch.tensor([series * len(self.keys) + number + 1]).view(torch.uint8)
        self.content[:8] = self.content[-8:] = stamp
        return self.content


def hold(remotes: list[Remote], blocks: Blocks, answers: Any) -> None:
    remote = remotes[0]
    objects = [remote.allocate() for _ in blocks.keys]
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        for number, each in enumerate(objects):
            row_of(each)[:] = blocks.row(int(line), number)
        remote.put([(blocks.keys, objects)])
        # a put is not answered, but the server takes what a connection says one after the other
        if not all(remote.backend.contains(key) for key in blocks.keys):
            raise SystemExit("pool_peer: LMCache's server did not store a block")
        print("ready", file=answers, flush=True)


def get(remotes: list[Remote], blocks: Blocks, answers: Any) -> None:
    shares = [range(first, len(blocks.keys), len(remotes)) for first in range(len(remotes))]
    for remote, share in zip(remotes, shares, strict=True):
        touch(remote, len(share))
    threads = ThreadPoolExecutor(len(remotes))
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        got = list(threads.map(Remote.get, remotes, [[blocks.keys[i] for i in share] for share in shares]))
        took = time.perf_counter() - begin
        for share, objects in zip(shares, got, strict=True):
            for number, each in zip(share, objects, strict=True):
                if not row_of(each).equal(blocks.row(int(line), number)):
                    raise SystemExit("pool_peer: LMCache got other bytes")
                each.ref_count_down()
        print(json.dumps({"seconds": took}), file=answers, flush=True)


def touch(remote: Remote, count: int) -> None:
    """The memory of as many blocks of its pool."""
    objects = [remote.allocate() for _ in range(count)]
    for each in objects:
        row_of(each).zero_()
        each.ref_count_down()


def main() -> None:
    what, url, *numbers = sys.argv[1:]
    block, count, connections = map(int, numbers)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # LMCache logs to standard output
    room = block * -(-count // connections) + (64 << 20)
    remotes = [Remote(url, block, room, blocking_timeout_secs=PATIENCE) for _ in range(connections)]
    {"hold": hold, "get": get}[what](remotes, Blocks(block, count), answers)
    os._exit(0)  # closing its RemoteBackend may never end


if __name__ == "__main__":
    main()
