"""How fast SGLang's HiCache stores and fetches pages through a node: v1, beside memcpy and SGLang's own HiCacheFile.

Run it with the Python of `scripts/engine-venv sglang`. Every round measures each in turn; medians are compared.

    tests/bench/sglang_adapter.py [--pages 128] [--rounds 7] [--threads 0] [--shapes llama,deepseek] [--no-file]
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
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "engines"))

import sglang_support as support  # noqa: E402
from cenote._sglang_keys import Keys  # noqa: E402
from sglang.srt.environ import envs  # noqa: E402
from sglang.srt.mem_cache.hicache_storage import HiCacheFile  # noqa: E402
from sglang_support import Node, StorageBackendFactory  # noqa: E402

MiB = 1 << 20
PAGE = 64  # tokens
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"mla": False, "layers": 32, "heads": 8, "dim": 128},  # 8 MiB a page
    "deepseek": {"mla": True, "layers": 61, "dim": 560},  # 512 + 64 wide: 4.3 MiB a page
}
BOUND, EXISTS_BOUND = 0.85, 0.1


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


def measure_copies(shape: str, layout: str, options: argparse.Namespace, node: Node, folder: str) -> bool:
    pool = support.host_pool(**SHAPES[shape], layout=layout, page=PAGE, tokens=options.pages * PAGE // 2)
    backend = StorageBackendFactory.create_backend(
        "dynamic",
        support.config(node, mla=SHAPES[shape]["mla"], model=shape, threads=options.threads, deadline=60.0),
        pool,
    )
    backend.register_mem_pool_host(pool)
    indices = support.slots(list(range(options.pages)), PAGE)
    addresses, sizes = pool.get_page_buffer_meta(indices)
    total = sum(sizes)
    shared = Shared(total)
    places = [shared.address + offset for offset in itertools.accumulate([0, *sizes[:-1]])]
    threads = options.threads or min(4, len(os.sched_getaffinity(0)))
    file = None
    if not options.no_file:
        with envs.SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR.override(folder):
            file = HiCacheFile(support.config(None, mla=SHAPES[shape]["mla"], model=shape))
    seconds: dict[str, list[float]] = {}

    def note(name: str, what: Callable[[], object]) -> None:
        seconds.setdefault(name, []).append(timed(what))

    def check(found: Any) -> None:
        assert all(found), f"{found.count(False)} of {len(found)} pages failed"

    for number in range(options.rounds + 1):
        keys = support.names(options.pages)
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
    rates = {name: total / statistics.median(each) / 1e9 for name, each in seconds.items()}
    ratios = {
        way: statistics.median(a / b for a, b in zip(seconds[f"memcpy {to}"], seconds[way], strict=True))
        for way, to in (("set", "in"), ("get", "out"))
    }
    print(f"{shape}, {layout}: {options.pages} pages of {total / options.pages / MiB:.2f} MiB, {threads} threads")
    for name, rate in rates.items():
        print(f"  {name:11} {rate:6.2f} GB/s")
    good = True
    for way, ratio in ratios.items():
        passed = ratio >= BOUND
        good &= passed
        print(f"  {way}: {ratio:.2f} of memcpy (bound {BOUND}){'' if passed else '  MISSED'}")
        if f"file {way}" in rates:
            print(f"  {way}: {rates[way] / rates[f'file {way}']:.1f} times HiCacheFile")
    return good


def measure_exists(node: Node) -> bool:
    pool = support.host_pool(False, "page_first", tokens=64 * support.PAGE)
    good = True
    for count in (1000, 4000):
        backend = StorageBackendFactory.create_backend("dynamic", support.config(node, model=f"e{count}"), pool)
        backend.register_mem_pool_host(pool)
        keys = support.names(count)
        for first in range(0, count, 64):
            some = keys[first : first + 64]
            assert all(backend.batch_set_v1(some, support.slots(list(range(len(some))))))
        answers, conversions, rests = [], [], []
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
        beyond = statistics.median(rests)
        passed = beyond <= EXISTS_BOUND
        good &= passed
        print(
            f"exists of {count}: {statistics.median(answers):.3f} us a key, {statistics.median(conversions):.3f} of it "
            f"the conversion of the keys; {beyond:.3f} beyond (bound {EXISTS_BOUND}){'' if passed else '  MISSED'}"
        )
        backend.close()
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--shapes", default="llama,deepseek")
    parser.add_argument("--layouts", default="page_first")
    parser.add_argument("--no-file", action="store_true")
    parser.add_argument("--no-exists", action="store_true")
    options = parser.parse_args()
    good = True
    capacity = f"dram.capacity={options.pages * 8 * 5 // 4 + 256}MiB"
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as place:
        if not options.no_exists:
            good &= with_node(Path(place) / "e", capacity, measure_exists)
        for number, shape in enumerate(filter(None, options.shapes.split(","))):
            for layout in options.layouts.split(","):
                good &= with_node(
                    Path(place) / f"{number}{layout}",
                    capacity,
                    lambda node, shape=shape, layout=layout: measure_copies(
                        shape, layout, options, node, f"{place}/file"
                    ),
                )
    return 0 if good else 1


def with_node(folder: Path, capacity: str, measure: Callable[[Node], bool]) -> bool:
    node = Node(folder, capacity, "dram.policy=lru")
    try:
        good = measure(node.start())
        node.finish()
        return good
    finally:
        node.kill_everything()


if __name__ == "__main__":
    sys.exit(main())
