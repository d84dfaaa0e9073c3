"""How fast SGLang's HiCache stores and fetches pages through a node: v1, beside memcpy and SGLang's own HiCacheFile.

Runs in SGLang's environment: "$(scripts/engine-venv sglang --path | tail -1)" tests/bench/sglang_adapter.py
Every round measures each in turn; medians are compared. The limit of `batch_exists` is a session's own `acquire` of as
many keys that are bytes already. `--shapes llama,deepseek`, `--layouts page_first`, `--no-file`.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import mmap
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import support
from support import MiB, Report, cenote

sys.path.insert(0, str(support.ROOT / "tests" / "engines"))

import sglang_support as sglang
from cenote._sglang.keys import Keys
from sglang.srt.environ import envs
from sglang.srt.mem_cache.hicache_storage import HiCacheFile
from sglang_support import Node, StorageBackendFactory

PAGE = 64  # tokens
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"mla": False, "layers": 32, "heads": 8, "dim": 128},  # 8 MiB a page
    "deepseek": {"mla": True, "layers": 61, "dim": 560},  # 512 + 64 wide: 4.3 MiB a page
}
BOUND, EXISTS_BOUND = 0.85, 2.0


def parallel_memcpy(targets: list[int], sources: list[int], sizes: list[int], threads: int) -> None:
    def some(first: int) -> None:
        for i in range(first, len(targets), threads):
            ctypes.memmove(targets[i], sources[i], sizes[i])  # without the GIL

    others = [threading.Thread(target=some, args=(i,)) for i in range(1, threads)]
    for each in others:
        each.start()
    some(0)
    for each in others:
        each.join()


def timed(what: Callable[[], object]) -> float:
    begin = time.perf_counter()
    what()
    return time.perf_counter() - begin


class Shared:
    """Memory like the node's: shared, already there."""

    def __init__(self, size: int) -> None:
        self.map = mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        ctypes.memset(self.address, 1, size)


def measure_copies(
    report: Report, shape: str, layout: str, options: argparse.Namespace, node: Node, folder: str
) -> bool:
    """Whether the bound is kept; the same of measure_exists()."""
    pool = sglang.host_pool(**SHAPES[shape], layout=layout, page=PAGE, tokens=options.pages * PAGE // 2)
    backend = StorageBackendFactory.create_backend(
        "dynamic",
        sglang.config(node, mla=SHAPES[shape]["mla"], model=shape, threads=options.threads, deadline=60.0),
        pool,
    )
    backend.register_mem_pool_host(pool)
    indices = sglang.slots(list(range(options.pages)), PAGE)
    addresses, sizes = pool.get_page_buffer_meta(indices)
    total = sum(sizes)
    shared = Shared(total)
    places = [shared.address + offset for offset in itertools.accumulate([0, *sizes[:-1]])]
    threads = options.threads or min(4, len(os.sched_getaffinity(0)))
    file = None
    if not options.no_file:
        with envs.SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR.override(folder):
            file = HiCacheFile(sglang.config(None, mla=SHAPES[shape]["mla"], model=shape))
    seconds: dict[str, list[float]] = {}

    def note(name: str, what: Callable[[], object]) -> None:
        seconds.setdefault(name, []).append(timed(what))

    def check(found: Any) -> None:
        assert all(found), f"{found.count(False)} of {len(found)} pages failed"

    for number in range(options.rounds + 1):
        keys = sglang.names(options.pages)
        note("memcpy in", lambda: parallel_memcpy(places, addresses, sizes, threads))
        note("set", lambda keys=keys: check(backend.batch_set_v1(keys, indices)))
        note("memcpy out", lambda: parallel_memcpy(addresses, places, sizes, threads))
        note("get", lambda keys=keys: check(backend.batch_get_v1(keys, indices)))
        if file is not None and number <= 3:
            pages = [pool.get_data_page(i * PAGE) for i in range(options.pages)]
            note("file set", lambda keys=keys, pages=pages: check([file.batch_set(keys, pages)]))
            blank = [pool.get_dummy_flat_data_page() for _ in keys]
            note(
                "file get",
                lambda keys=keys, blank=blank: check([each is not None for each in file.batch_get(keys, blank)]),
            )
            del pages, blank
            file.clear()
        backend.clear()
        if number == 0:
            seconds.clear()  # the first round maps slabs and warms caches
    backend.close()
    about = f"{options.pages} x {total / options.pages / MiB:.1f} MiB, {layout}"
    kept = True
    for way, to in (("set", "in"), ("get", "out")):
        limit = seconds[f"memcpy {to}"]
        ratio = statistics.median(a / b for a, b in zip(limit, seconds[way], strict=True))  # of pairs, side by side
        kept &= ratio >= BOUND
        rate = total / statistics.median(limit) / 1e9
        report.add(f"{about}, {way}", ratio * rate, "GB/s", rate, f">= {BOUND}", f"{threads} threads")
        if f"file {way}" in seconds:
            report.add(
                f"{about}, {way}, HiCacheFile", total / statistics.median(seconds[f"file {way}"]) / 1e9, "GB/s", rate
            )
    return kept


def measure_exists(report: Report, node: Node) -> bool:
    kept = True
    pool = sglang.host_pool(False, "page_first", tokens=64 * sglang.PAGE)
    for count in (1000, 4000):
        backend = StorageBackendFactory.create_backend("dynamic", sglang.config(node, model=f"e{count}"), pool)
        backend.register_mem_pool_host(pool)
        keys = sglang.names(count)
        for first in range(0, count, 64):
            some = keys[first : first + 64]
            assert all(backend.batch_set_v1(some, sglang.slots(list(range(len(some))))))
        answers, conversions, rests, pins = [], [], [], []
        session = cenote.attach(support.spec(f"exists-{count}", 4096), socket=str(node.socket), max_pins=count)
        plain = Keys(b"".join(support.keys("exists", 0, count)))
        support.commit_unwritten(session, plain.each())
        for _ in range(60):
            begin = time.thread_time()  # it waits for nothing, and other processes may want the core
            found = backend.batch_exists(keys)
            middle = time.thread_time()
            Keys.of(keys)
            end = time.thread_time()
            assert found == count
            answers.append((middle - begin) / count * 1e6)
            conversions.append((end - middle) / count * 1e6)
            rests.append(answers[-1] - conversions[-1])
            begin = time.thread_time()
            with session.acquire(plain.array()) as held:
                assert len(held) == count
            pins.append((time.thread_time() - begin) / count * 1e6)
        session.close()
        limit = statistics.median(pins)
        kept &= statistics.median(rests) <= EXISTS_BOUND * limit
        report.add(f"exists of {count} pages, a page", statistics.median(rests), "us", limit, f"<= {EXISTS_BOUND:g}")
        report.add(f"exists of {count} pages, their names", statistics.median(conversions), "us")
        backend.close()
    return kept


def main() -> int:
    parser = support.arguments(__doc__)
    parser.add_argument("--pages", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--shapes", default="llama,deepseek")
    parser.add_argument("--layouts", default="page_first")
    parser.add_argument("--no-file", action="store_true")
    parser.add_argument("--no-exists", action="store_true")
    options = parser.parse_args()
    report = Report("sglang_adapter", options.json)
    capacity = (options.pages * 8 * 5 // 4 + 256) * MiB
    kept = True
    if not options.no_exists:
        with support.node(capacity, "dram.policy=lru") as node:
            kept &= measure_exists(report, node)
    for shape, layout in itertools.product(filter(None, options.shapes.split(",")), options.layouts.split(",")):
        with support.node(capacity, "dram.policy=lru") as node, tempfile.TemporaryDirectory() as folder:
            kept &= measure_copies(report, shape, layout, options, node, folder)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
