"""One transfer by one peer, in a process of its own, with the Python of scripts/peers; prints its seconds as JSON.

    nvme_peer.py lmcache|sglang store|load FOLDER BLOCKS BLOCK WORKERS

The buffers exist and were touched before the clock starts. Contents are compared after it stops.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import select
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["LMCACHE_TRACK_USAGE"] = "false"  # before lmcache is imported
PAGES = 128  # a call of SGLang's: its STORAGE_BATCH_SIZE
ALIGNMENT = 4096


def host_memory(blocks: int, block: int) -> Any:
    """One row a block, aligned for O_DIRECT, every page touched."""
    import torch

    whole = torch.full((blocks * block + ALIGNMENT,), 0xA5, dtype=torch.uint8)
    skip = -whole.data_ptr() % ALIGNMENT
    return whole[skip : skip + blocks * block].view(blocks, block)


def stamps(blocks: int) -> Any:
    """Eight bytes a block that are its own."""
    import torch

    return torch.arange(1, blocks + 1, dtype=torch.int64).view(torch.uint8).view(blocks, 8)


def fill(rows: Any) -> None:
    import torch

    torch.manual_seed(1)
    rows[:] = torch.randint(0, 256, (rows.shape[1],), dtype=torch.uint8)
    rows[:, :8] = rows[:, -8:] = stamps(len(rows))


def check(rows: Any) -> None:
    import torch

    expected = host_memory(1, rows.shape[1])
    fill(expected)
    expected[:, :8] = expected[:, -8:] = 0
    for row, stamp in zip(rows, stamps(len(rows)), strict=True):
        expected[0, :8] = expected[0, -8:] = stamp
        assert torch.equal(row, expected[0]), "other bytes than were stored"


class Lmcache:
    """LMCache's `fs_native` adapter with O_DIRECT; all blocks in one task."""

    def __init__(self, folder: Path, rows: Any, workers: int) -> None:
        from lmcache.v1.distributed.api import ObjectKey
        from lmcache.v1.distributed.l2_adapters import fs_native_l2_adapter as native
        from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj

        settings = {"base_path": str(folder), "num_workers": workers, "use_odirect": True}
        config = native.FSNativeL2AdapterConfig.from_dict(settings)
        self.adapter = native._create_fs_native_l2_adapter(config)
        self.keys = [ObjectKey(hashlib.sha256(b"%d" % i).digest(), "bench", 0) for i in range(len(rows))]
        self.objects = []
        for row in rows:
            about = MemoryObjMetadata(row.shape, row.dtype, row.data_ptr(), row.numel(), 1, fmt=MemoryFormat.KV_2LTD)
            self.objects.append(TensorMemoryObj(row, about, None))

    def store(self) -> None:
        task = self.adapter.submit_store_task(self.keys, self.objects)
        result = wait(self.adapter.get_store_event_fd(), lambda: self.adapter.pop_completed_store_tasks().get(task))
        assert result.is_successful(), "store failed"

    def load(self) -> None:
        task = self.adapter.submit_load_task(self.keys, self.objects)
        loaded = wait(self.adapter.get_load_event_fd(), lambda: self.adapter.query_load_result(task))
        assert loaded.popcount() == len(self.keys), loaded.popcount()

    def close(self) -> None:
        self.adapter.close()


def wait(event: int, result: Callable[[], Any]) -> Any:
    poller = select.poll()
    poller.register(event, select.POLLIN)
    while True:
        found = result()
        if found is not None:
            return found
        poller.poll(100)


class Sglang:
    """SGLang's HiCacheFile; 128 blocks a call."""

    def __init__(self, folder: Path, rows: Any, _workers: int) -> None:
        bare_sglang()
        from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig

        config = HiCacheStorageConfig(
            tp_rank=0,
            tp_size=1,
            pp_rank=0,
            pp_size=1,
            attn_cp_rank=0,
            attn_cp_size=1,
            is_mla_model=False,
            enable_storage_metrics=False,
            is_page_first_layout=True,
            model_name="bench",
        )
        self.file = HiCacheFile(config, str(folder))
        self.keys = [hashlib.sha256(b"%d" % i).hexdigest() for i in range(len(rows))]
        self.rows = list(rows)

    def store(self) -> None:
        for at in range(0, len(self.keys), PAGES):
            assert self.file.batch_set(self.keys[at : at + PAGES], self.rows[at : at + PAGES]), "store failed"

    def load(self) -> None:
        for at in range(0, len(self.keys), PAGES):
            got = self.file.batch_get(self.keys[at : at + PAGES], self.rows[at : at + PAGES])
            assert all(each is not None for each in got), "load failed"

    def close(self) -> None:
        pass


def bare_sglang() -> None:
    """The package without its __init__, which wants kernels for a GPU; HiCacheFile needs none of it, nor triton."""
    place = importlib.util.find_spec("sglang")
    assert place is not None
    package = types.ModuleType("sglang")
    package.__path__ = list(place.submodule_search_locations or [])
    sys.modules["sglang"] = package
    sys.modules["triton"] = types.ModuleType("triton")


def each_file(folder: Path, work: Callable[[int], object]) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                work(fd)
            finally:
                os.close(fd)


def forget(fd: int) -> None:
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    name, direction, place, blocks, block, workers = sys.argv[1:]
    folder = Path(place)
    folder.mkdir(exist_ok=True)
    rows = host_memory(int(blocks), int(block))
    if direction == "store":
        fill(rows)
    else:
        each_file(folder, forget)
    peer = {"lmcache": Lmcache, "sglang": Sglang}[name](folder, rows, int(workers))
    begin = time.perf_counter()
    getattr(peer, direction)()
    took = {"seconds": time.perf_counter() - begin}
    if direction == "store":
        each_file(folder, os.fsync)
        took["synced"] = time.perf_counter() - begin
    else:
        check(rows)
    peer.close()
    print(json.dumps(took))


if __name__ == "__main__":
    main()
