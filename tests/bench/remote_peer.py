"""LMCache's Redis connectors, by its own RemoteBackend, in a process of its own, with the Python of scripts/peers.

    remote_peer.py URL BLOCK BATCH BATCHES

URL is redis://HOST:PORT (its RedisConnector, over redis-py) or resp://HOST:PORT (its RESPConnector, of its own C++).
A line on standard input is a round; its answer is a line of JSON, the seconds of both directions. Contents are compared
after the clock stops. All settings are LMCache's defaults, but that its pool has room for what is moved.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import types
from typing import Any

os.environ["LMCACHE_TRACK_USAGE"] = "false"  # before lmcache is imported
TOKENS = 16  # a chunk
PATIENCE = 60  # seconds a round


class StandIn(types.ModuleType):
    """A module that importing LMCache's backends names and that nothing here uses."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Remote:
    """A RemoteBackend over LMCache's own pool of host memory, its event loop on a thread as in its storage manager."""

    def __init__(self, url: str, block: int, room: int, **more: Any) -> None:
        for name in ("aiofile", "transformers"):
            sys.modules[name] = StandIn(name)
        import torch
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
        from lmcache.v1.storage_backend.remote_backend import RemoteBackend

        settings: dict[str, Any] = {"chunk_size": TOKENS, "remote_url": url, "max_local_cpu_size": room / (1 << 30)}
        settings |= more
        if url.startswith("resp:"):
            settings["extra_config"] = {"save_chunk_meta": False}  # it takes no other value
        config = LMCacheEngineConfig.from_dict(settings)
        about = LMCacheMetadata(
            model_name="bench",
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=torch.bfloat16,
            kv_shape=(1, 2, TOKENS, 1, block // (2 * TOKENS * 2)),  # layers, K and V, tokens, heads, their size
            chunk_size=TOKENS,
        )
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.memory = LocalCPUBackend(config, about, dst_device="cpu")
        self.backend = RemoteBackend(config, about, self.loop, self.memory, dst_device="cpu")
        assert self.backend.connection is not None, "no connection"
        self.shapes, self.types = about.get_shapes(), about.get_dtypes()

    def allocate(self) -> Any:
        made = self.memory.allocate(self.shapes, self.types)
        assert made is not None, "LMCache's pool is full"
        return made

    def put(self, batches: list[tuple[list[Any], list[Any]]]) -> None:
        """Batch after batch handed in, as LMCache stores; back when the server has answered for all."""
        done = threading.Semaphore(0)
        for keys, objects in batches:
            self.backend.batched_submit_put_task(keys, objects, on_complete_callback=lambda _key: done.release())
        for _ in range(sum(len(keys) for keys, _ in batches)):
            assert done.acquire(timeout=PATIENCE), "puts did not end"

    def get(self, keys: list[Any]) -> list[Any]:
        got = self.backend.batched_get_blocking(keys)
        assert all(each is not None for each in got), "some blocks were not found"
        return got


def row_of(held: Any) -> Any:
    import torch

    return torch.frombuffer(held.byte_array, dtype=torch.uint8)


class Rounds:
    """What is put and got back, under new keys each round."""

    def __init__(self, remote: Remote, block: int, batch: int, batches: int) -> None:
        import torch

        self.remote, self.batch, self.batches = remote, batch, batches
        self.number = 0
        self.objects = [remote.allocate() for _ in range(batch * batches)]
        torch.manual_seed(1)
        self.rows = torch.randint(0, 256, (block,), dtype=torch.uint8).repeat(batch * batches, 1)
        stamps = torch.arange(1, batch * batches + 1, dtype=torch.int64).view(torch.uint8).view(-1, 8)
        self.rows[:, :8] = self.rows[:, -8:] = stamps
        for each, row in zip(self.objects, self.rows, strict=True):
            row_of(each)[:] = row

    def once(self) -> dict[str, float]:
        import torch
        from lmcache.utils import CacheEngineKey

        first = self.number * len(self.objects)
        self.number += 1
        keys = [CacheEngineKey("bench", 1, 0, first + i, torch.bfloat16) for i in range(len(self.objects))]
        cut = [slice(at, at + self.batch) for at in range(0, len(keys), self.batch)]
        begin = time.perf_counter()
        self.remote.put([(keys[each], self.objects[each]) for each in cut])
        took = {"put": time.perf_counter() - begin}
        begin = time.perf_counter()
        got = [held for each in cut for held in self.remote.get(keys[each])]
        took["get"] = time.perf_counter() - begin
        for held, row in zip(got, self.rows, strict=True):
            assert torch.equal(row_of(held), row), "other bytes than were put"
            held.ref_count_down()
        return took


def main() -> None:
    url, block, batch, batches = sys.argv[1], *map(int, sys.argv[2:])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # LMCache logs to standard output
    remote = Remote(url, block, room=3 * block * batch * batches + (64 << 20))
    rounds = Rounds(remote, block, batch, batches)
    for _ in sys.stdin:
        print(json.dumps(rounds.once()), file=answers, flush=True)
    answers.flush()
    os._exit(0)  # closing its RemoteBackend may never end


if __name__ == "__main__":
    main()
