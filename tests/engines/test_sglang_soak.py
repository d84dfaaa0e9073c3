"""An engine at work while its node is killed, restarted and too small: no wrong byte, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sglang", reason="SGLang is not installed in this environment")

import torch
from sglang_support import Engine, Node, host_pool, kill_node, names, page_of, sequence, slots, until

pytest_plugins = ["sglang_support"]

SECONDS = 600
MiB = 1 << 20


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def own_memory() -> int:
    """Bytes that this process alone holds; shared memory of the node is not counted."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def shared_memory() -> set[str]:
    return {each for each in os.listdir("/dev/shm") if "cenote" in each}


class Trouble:
    """What happens to the node, at random."""

    def __init__(self, node: Node, dice: random.Random) -> None:
        self.node = node
        self.dice = dice
        self.done: Counter[str] = Counter()

    def next(self) -> None:
        what = self.dice.choice(["worker", "worker", "stop", "kill", "nothing", "nothing"])
        self.done[what] += 1
        if what == "worker":
            self.node.worker_dies()
        elif what == "stop":
            self.node.stop()
            time.sleep(self.dice.random())  # not a wait for anything: an outage of some length
            self.node.start()
        elif what == "kill":
            kill_node(self.node)
            time.sleep(self.dice.random())
            self.node.start()


class Copier:
    """A second rank: sets, looks up and gets pages of its own, and compares them."""

    def __init__(self, backend: Any, pool: Any) -> None:
        self.backend = backend
        self.pool = pool
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        dice = random.Random(2)
        while not self._end.is_set() and not self.problems:
            count = dice.randrange(1, 40)
            keys = names(count)
            sources = dice.sample(range(64), count)
            targets = dice.sample(range(64, 128), count)
            wanted = [page_of(self.pool, each) for each in sources]
            before = [page_of(self.pool, each) for each in targets]
            self.backend.batch_set_v1(keys, slots(sources))
            if dice.random() < 0.5:
                self.backend.batch_exists(keys)
            got = self.backend.batch_get_v1(keys, slots(targets))
            for i, target in enumerate(targets):
                right = wanted[i] if got[i] else before[i]
                self.counts["got" if got[i] else "missed"] += 1
                if not torch.equal(page_of(self.pool, target), right):
                    self.problems.append(f"page {i} of {count}, got: {got[i]}")
            page = dice.randrange(64)
            place = self.pool.kv_buffer[:, page * self.pool.page_size : (page + 1) * self.pool.page_size]
            place.copy_(torch.randn(place.shape))

    def stop(self) -> None:
        self._end.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        assert not self.problems, self.problems


@pytest.mark.full  # has found no fault so far
@pytest.mark.timeout(SECONDS + 120)
def test_an_engine_survives_a_node_that_does_not(
    start_sglang_node: Callable[..., Node],
    backend_of: Callable[..., Any],
    engine_of: Callable[..., Engine],
    tmp_path: Path,
) -> None:
    dice = random.Random(1)
    files_before, shm_before = descriptors(), shared_memory()
    node = start_sglang_node(
        "dram.capacity=4MiB",
        "dram.slab_size=256KiB",
        f"nvme.paths=[{tmp_path / 'store'}]",
        "nvme.capacity=64MiB",
    )
    engine = engine_of(node, tokens=2048, deadline=1.0, hold=0.5)
    pool = host_pool(False, "page_first", tokens=64 * 16)
    second = backend_of(node, pool, tp=(1, 2), deadline=1.0, hold=0.5)
    copier = Copier(second, pool)
    trouble = Trouble(node, dice)
    counts: Counter[str] = Counter()
    marks: list[tuple[int, int]] = []
    begin = time.monotonic()
    next_trouble, next_mark = begin + 2, begin + SECONDS / 4
    while time.monotonic() < begin + SECONDS and not copier.problems:
        tokens = sequence(dice.choice([1, 3, 20, 60, 120]), seed=dice.randrange(12))
        engine.compute(tokens)
        engine.backed_up()
        engine.forget()
        if dice.random() < 0.05:
            engine.detach()
            engine.attach()
            counts["attached again"] += 1
        loaded = engine.prefetch(tokens)
        assert engine.load_back(tokens) == loaded  # compares every byte
        engine.forget()
        counts["tokens"] += loaded
        counts["hits" if loaded else "misses"] += 1
        if time.monotonic() > next_trouble:
            trouble.next()
            next_trouble = time.monotonic() + dice.uniform(0.5, 3)
        if time.monotonic() > next_mark:
            gc.collect()
            marks.append((descriptors(), own_memory()))
            next_mark += SECONDS / 8
    copier.stop()
    print(dict(counts), dict(copier.counts), dict(trouble.done), marks)

    assert counts["hits"] > 20
    assert copier.counts["got"] > 500
    assert copier.counts["missed"] > 0  # a node that never lost a page proves little
    assert sum(trouble.done.values()) >= SECONDS / 6
    sessions = [each._pools[0]._attachment for each in (engine.backend, second)]
    until("both are attached again", lambda: all(each.session() is not None for each in sessions))
    until(
        "no pin is left",
        lambda: all(each.session().stats()["pins_in_use"] == 0 for each in sessions if each.session() is not None),
    )
    gc.collect()
    marks.append((descriptors(), own_memory()))
    assert marks[-1][1] <= marks[0][1] + 64 * MiB, marks
    # A session keeps the descriptors of at most 256 slabs that its node has given up, besides those in use.
    assert max(files for files, _ in marks) <= files_before + 2 * (256 + 64), marks
    engine.close()
    second.close()
    until("the sessions are gone", lambda: not node.status()["sessions"])
    gc.collect()
    assert descriptors() <= files_before + 8
    assert shared_memory() == shm_before
