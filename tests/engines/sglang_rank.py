"""One tensor-parallel rank of an engine's cache; test_sglang_ranks.py starts two. Prints what it found as JSON.

sglang_rank.py RANK FOLDER SOCKET [LAUNCH]

With LAUNCH, an address that names this start of the engine, the ranks are on several machines, as SGLang sees it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from sglang_support import PAGE, CacheRequestHandle, Engine, array, sequence

RANK, FOLDER, SOCKET = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
LAUNCH = sys.argv[4] if len(sys.argv) > 4 else None


class Rank(Engine):
    """Whatever the tree does is a collective of all ranks: they have to do it equally often."""

    def content(self, key: str, layer: int, like: Any) -> Any:
        own = 0 if self.mla else 1000 * RANK
        return super().content(key, own + layer, like)

    def together(self, condition: Callable[[], bool], limit: float = 30.0) -> None:
        end = time.monotonic() + limit
        while True:
            self.pump()
            done = torch.tensor(int(condition()))
            torch.distributed.all_reduce(done, op=torch.distributed.ReduceOp.MIN)
            if done.item():
                return
            assert time.monotonic() < end, "the ranks wait for each other"

    def backed_up(self, limit: float = 30.0) -> None:
        self.together(lambda: not self.cache.ongoing_write_through and not self.cache.ongoing_backup, limit)

    def prefetch(self, tokens: list[int], limit: float = 30.0) -> int:
        handle = CacheRequestHandle(f"r{tokens[0]}", 0)
        self.cache.prefetch_from_storage(handle, self.cache.root_node_handle(), array("q", tokens), None, None)
        self.together(lambda: bool(self.cache.check_prefetch_progress(handle)), limit)
        return int(self.cache.pop_prefetch_loaded_tokens(handle) or 0)


def run(mla: bool) -> dict[str, Any]:
    node: Any = SimpleNamespace(socket=SOCKET)
    engine = Rank(node, mla=mla, tp=(RANK, 2), group=torch.distributed.group.WORLD, deadline=5.0)
    found: dict[str, Any] = {"page": PAGE}
    tokens = sequence(12, seed=1)
    engine.compute(tokens)
    engine.backed_up()
    engine.forget()
    found["whole"] = engine.prefetch(tokens)
    found["right"] = engine.load_back(tokens)
    engine.forget()

    if RANK == 1 and not mla:  # one rank has less: the other has to follow
        pool = engine.backend._pools[0]
        pool.promises.clear()
        keys = [bytes.fromhex(each) for each in engine.keys(tokens)]
        found["removed"] = pool._attachment.session().remove(keys[7:9])
    torch.distributed.barrier()
    found["part"] = engine.prefetch(tokens)
    found["right part"] = engine.load_back(tokens)
    found["stored"] = engine.backend.get_stats().backup_pgs
    torch.distributed.barrier()
    engine.close()
    return found


def run_on_nodes() -> dict[str, Any]:
    """Each rank has a node of its own. The second one's loses pages at random, dies when the test is told, and returns.
    Lengths are pages."""
    node: Any = SimpleNamespace(socket=SOCKET)
    server = {"nnodes": 2, "node_rank": RANK, "dist_init_addr": LAUNCH}
    group = torch.distributed.group.WORLD
    engine = Rank(node, tp=(RANK, 2), group=group, server=server, deadline=5.0, hold=60.0)
    membership = engine.backend._ranks._membership
    chance = random.Random(11)
    found: dict[str, Any] = {"rounds": []}

    def looked_up(seed: int, lose: bool) -> dict[str, int]:
        """What is found of a prompt that all have stored, some of which this rank's node has lost."""
        tokens = sequence(12, seed=seed)
        engine.compute(tokens)
        engine.backed_up()
        engine.forget()
        pool = engine.backend._pools[0]
        there = 12
        if lose:
            keys = [bytes.fromhex(each) for each in engine.keys(tokens)]
            lost = [i for i in range(12) if chance.random() < 0.15]
            if lost:
                pool._attachment.session().remove([keys[i] for i in lost])
                there = lost[0]
        torch.distributed.barrier()
        pool.promises.clear()
        count = engine.prefetch(tokens) // PAGE
        # What this rank holds for SGLang besides: nothing, once the last page was fetched.
        return {"there": there, "found": count, "right": engine.load_back(tokens) // PAGE, "held": pool.promises.pages}

    engine.together(lambda: membership.is_in)
    for seed in range(6):
        found["rounds"].append(looked_up(seed, lose=RANK == 1))
        engine.forget()
    asked_then = sequence(12, seed=10)
    engine.compute(asked_then)
    engine.backed_up()
    (FOLDER / f"ready{RANK}").touch()
    engine.together((FOLDER / "killed").exists)
    found["while lost"] = []
    agreed = torch.tensor(0)
    while not agreed.item():  # a rank that asks nothing does not hear that its group is lost
        engine.forget()
        found["while lost"].append(engine.prefetch(asked_then) // PAGE)
        agreed = torch.tensor(int(not membership.is_in))
        torch.distributed.all_reduce(agreed, op=torch.distributed.ReduceOp.MIN)
    found["losses"] = membership.losses
    (FOLDER / f"lost{RANK}").touch()
    engine.together(lambda: membership.is_in, limit=60.0)
    found["after"] = looked_up(20, lose=False)
    torch.distributed.barrier()
    engine.close()
    return found


def main() -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{FOLDER / 'meet'}", rank=RANK, world_size=2)
    print(json.dumps({"mha": run(False), "mla": run(True)} if LAUNCH is None else run_on_nodes()))


if __name__ == "__main__":
    main()
