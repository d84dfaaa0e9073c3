"""SGLang's own radix tree, cache controller and host pools, on a CPU, over a real node: what the tests here run.

SGLang moves pages between device and host with CUDA kernels, and pins host memory: here the copies are index copies of
torch, and nothing is pinned. All the rest is SGLang's own code.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import itertools
import json
import logging
import os
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests" / "processes"), str(ROOT / "python")]

os.environ.setdefault("SGLANG_LOG_LEVEL", "error")
pytest.importorskip(
    "sglang", reason="SGLang is not installed in this environment: scripts/engine-venv sglang makes one"
)

import torch  # noqa: E402
from node import FULL as FULL  # noqa: E402
from node import PATIENCE, Node, finish_all, is_alive, until  # noqa: E402
from node import run_cenote as run_cenote  # noqa: E402
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator  # noqa: E402
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator  # noqa: E402
from sglang.srt.mem_cache.base_prefix_cache import (  # noqa: E402
    CacheRequestHandle,
    InsertParams,
    MatchPrefixParams,
)
from sglang.srt.mem_cache.cache_init_params import CacheInitParams  # noqa: E402
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig  # noqa: E402
from sglang.srt.mem_cache.hybrid_cache import hybrid_pool_assembler as assembler  # noqa: E402
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool, ReqToTokenPool  # noqa: E402
from sglang.srt.mem_cache.pool_host import base as pool_base  # noqa: E402
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost  # noqa: E402
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixKey  # noqa: E402
from sglang.srt.mem_cache.storage import StorageBackendFactory  # noqa: E402
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool  # noqa: E402
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType  # noqa: E402
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache  # noqa: E402
from sglang.srt.mem_cache.utils import get_hash_str  # noqa: E402
from sglang.srt.runtime_context import get_parallel  # noqa: E402
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler  # noqa: E402

PAGE = 16  # tokens
MHA_LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head")
MLA_LAYOUTS = ("layer_first", "page_first", "page_first_direct")
EVERY_LAYOUT = [(False, each) for each in MHA_LAYOUTS] + [(True, each) for each in MLA_LAYOUTS]

logging.getLogger("sglang").setLevel(logging.ERROR)
_numbers = itertools.count()


# ---- SGLang on a CPU


def _rows(pool: Any, kind: int, layer: int, slots: Any) -> tuple[Any, ...]:
    """Where the rows of `slots` are in the host pool's tensor."""
    page, within = slots // pool.page_size, slots % pool.page_size
    head = (kind,) if isinstance(pool, MHATokenToKVPoolHost) else ()
    return {
        "layer_first": (*head, layer, slots),
        "page_first": (*head, slots, layer),
        "page_first_direct": (*head, page, layer, within),
        "page_head": (*head, page, slice(None), within, layer),
    }[pool.layout]


def _device_tensors(pool: Any) -> list[tuple[Any, ...]]:
    if isinstance(pool, MHATokenToKVPoolHost):
        return [pool.device_k_buffers, pool.device_v_buffers]
    return [pool.device_kv_buffers]


def _load(
    self: Any, device_pool: Any, host: Any, device: Any, layer_id: int, io: str, *, is_draft: bool = False
) -> None:
    for kind, layers in enumerate(_device_tensors(self)):
        layers[layer_id][device] = self.kv_buffer[_rows(self, kind, layer_id, host)]


def _backup(self: Any, device_pool: Any, host: Any, device: Any, io: str) -> None:
    for kind, layers in enumerate(_device_tensors(self)):
        for layer_id, tensor in enumerate(layers):
            self.kv_buffer[_rows(self, kind, layer_id, host)] = tensor[device]


_plain_init = pool_base.HostKVCache.__init__


def _init_unpinned(self: Any, **more: Any) -> None:
    _plain_init(self, **{**more, "pin_memory": False})


for _class in (MHATokenToKVPoolHost, MLATokenToKVPoolHost):
    _class.load_to_device_per_layer = _load
    _class.backup_from_device_all_layer = _backup
pool_base.HostKVCache.__init__ = _init_unpinned
pool_base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0


@contextlib.contextmanager
def ranks(tp: tuple[int, int] = (0, 1), pp: tuple[int, int] = (0, 1)) -> Iterator[None]:
    """SGLang's idea of which rank this process is."""
    rank, size = tp
    tensor = {"tp_rank": rank, "tp_size": size, "attn_tp_rank": rank, "attn_tp_size": size}
    with get_parallel().override(**tensor, moe_tp_rank=rank, moe_tp_size=size, pp_rank=pp[0], pp_size=pp[1]):
        yield


def set_server(layout: str, page: int = PAGE, **more: Any) -> ServerArgs:
    arguments = ServerArgs(
        model_path="dummy", page_size=page, hicache_mem_layout=layout, hicache_io_backend="kernel", **more
    )
    arguments.hicache_mem_layout = layout  # as asked, also where the GPU's kernels would want another
    set_global_server_args_for_scheduler(arguments)
    return arguments


def device_pool(
    mla: bool,
    *,
    tokens: int = 1024,
    page: int = PAGE,
    layers: int = 3,
    heads: int = 2,
    dim: int = 32,
    dtype: Any = None,
) -> Any:
    dtype = dtype or torch.bfloat16
    shape: dict[str, Any] = {"size": tokens, "page_size": page, "dtype": dtype, "layer_num": layers}
    if mla:
        shape |= {"kv_lora_rank": dim, "qk_rope_head_dim": 16}
        return MLATokenToKVPool(**shape, device="cpu", enable_memory_saver=False)
    return MHATokenToKVPool(**shape, head_num=heads, head_dim=dim, device="cpu", enable_memory_saver=False)


def host_pool(mla: bool, layout: str, *, page: int = PAGE, ratio: float = 2.0, **shape: Any) -> Any:
    """A host pool as SGLang itself builds it, full of bytes that no two pages share."""
    set_server(layout, page, hicache_ratio=ratio)
    with ranks():
        made = assembler.build_kv_host_pool(kv_pool=device_pool(mla, page=page, **shape), page_size=page)
    assert made.layout == layout
    fill(made)
    return made


def fill(pool: Any) -> None:
    raw = pool.kv_buffer.view(torch.uint8)
    raw.copy_(torch.randint(0, 256, raw.shape, dtype=torch.uint8))


# ---- backends


def config(
    node: Node | None,
    *,
    model: str | None = "meta-llama/Llama-3-8B",
    mla: bool = False,
    tp: tuple[int, int] = (0, 1),
    pp: tuple[int, int] = (0, 1),
    cp: tuple[int, int] = (0, 1),
    metrics: bool = True,
    **extra: Any,
) -> Any:
    """What the controller hands to a backend; `extra` are keys of the extra config."""
    return HiCacheStorageConfig(
        tp_rank=tp[0],
        tp_size=tp[1],
        pp_rank=pp[0],
        pp_size=pp[1],
        attn_cp_rank=cp[0],
        attn_cp_size=cp[1],
        is_mla_model=mla,
        enable_storage_metrics=metrics,
        is_page_first_layout=True,
        model_name=model,
        extra_config=extra_config(node, **{"fingerprint": model, **extra}),
    )


def extra_config(node: Node | None, **extra: Any) -> dict[str, Any]:
    base = {"backend_name": "cenote", "module_path": "cenote.sglang", "class_name": "CenoteHiCache", "interface_v1": 1}
    if "CENOTE_TEST_DEVICE" in os.environ:
        base["device"] = os.environ["CENOTE_TEST_DEVICE"]
    return {**base, "socket": str(node.socket) if node else "/nowhere/cenote.sock", **extra}


def names(count: int, label: object = None) -> list[str]:
    """Keys as SGLang makes them; new ones with each call unless they are labelled."""
    label = next(_numbers) if label is None else label
    return [hashlib.sha256(f"{label}/{i}".encode()).hexdigest() for i in range(count)]


def slots(pages: list[int], page: int = PAGE) -> Any:
    """The slots of these pages of a host pool, in this order."""
    return torch.cat([torch.arange(each * page, (each + 1) * page) for each in pages])


def page_of(pool: Any, number: int) -> Any:
    """A copy of the bytes of one page."""
    return pool.get_data_page(number * pool.page_size, flat=True).clone().view(torch.uint8)


Attach = Callable[..., Any]


@pytest.fixture
def backend_of() -> Iterator[Attach]:
    """backend_of(node, pool, **config): a backend as SGLang's factory makes it, closed with the test."""
    made: list[Any] = []

    def make(node: Node | None, pool: Any, **more: Any) -> Any:
        backend = StorageBackendFactory.create_backend("dynamic", config(node, **more), pool)
        made.append(backend)
        backend.register_mem_pool_host(pool)
        backend.register_mem_host_pool_v2(pool, "kv")
        backend.on_host_pools_registered()
        return backend

    yield make
    for each in made:
        getattr(each, "_backend", each).close()  # the failure injector has no close()


@pytest.fixture(scope="module")
def sglang_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node of 256 MiB for a whole file; tests use keys or models of their own."""
    yield from _running(tmp_path_factory.mktemp("n") / "run", "dram.capacity=256MiB")


@pytest.fixture
def start_sglang_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """start_sglang_node("key=value", …): a node of this test alone."""
    nodes: list[Node] = []

    def start(*sets: str, launch_only: bool = False) -> Node:
        made = Node(tmp_path / f"run{len(nodes)}", "prefetch.assumed_tokens_per_s=0", *sets, "dram.policy=lru")
        nodes.append(made)
        return made.launch() if launch_only else made.start()

    yield start
    finish_all(nodes)


def _running(folder: Path, *sets: str) -> Iterator[Node]:
    made = Node(folder, "prefetch.assumed_tokens_per_s=0", *sets, "dram.policy=lru")
    try:
        yield made.start()
        made.finish()
    finally:
        made.kill_everything()


def let_the_clock_move_on() -> None:
    """The DRAM tier's clock counts tenths of a second: pages used within one are of the same age, and one look at the
    pins counts for all of it."""
    time.sleep(0.15)


def kill_node(node: Node) -> None:
    """kill -9 of the keeper and its worker, as when a machine's memory is out."""
    worker = node.worker_pid
    # The worker outlives its keeper for a moment, and may ask it for something.
    node.allowed_errors.append("no memory for a slab")
    node.kill_everything()
    until("the worker is gone, too", lambda: not is_alive(worker))


def set_v1(backend: Any, keys: list[str], pages: list[int]) -> list[bool]:
    return list(backend.batch_set_v1(keys, slots(pages)))


def get_v1(backend: Any, keys: list[str], pages: list[int]) -> list[bool]:
    return list(backend.batch_get_v1(keys, slots(pages)))


# ---- a whole engine's cache


class Engine:
    """UnifiedRadixCache and HybridCacheController of SGLang, with a node behind them. One thread."""

    def __init__(
        self,
        node: Node | None,
        *,
        mla: bool = False,
        layout: str = "page_first",
        v1: bool = True,
        tokens: int = 1024,
        page: int = PAGE,
        attach: bool = True,
        model: str = "meta-llama/Llama-3-8B",
        tp: tuple[int, int] = (0, 1),
        group: Any = None,
        server: dict[str, Any] | None = None,
        events: bool = False,
        **extra: Any,
    ) -> None:
        """`server`: more of SGLang's server arguments; `events`: those of blocks are kept for take_events()."""
        self.page = page
        self.mla = mla
        self._closed = False
        self._undo = contextlib.ExitStack()
        self._undo.enter_context(ranks(tp))
        self.extra = {
            **extra_config(node, fingerprint=model, **extra),
            "interface_v1": int(v1),
            "prefetch_threshold": page,
        }
        arguments = set_server(
            layout,
            page,
            hicache_ratio=2.0,
            hicache_write_policy="write_through",
            hicache_storage_prefetch_policy="wait_complete",
            served_model_name=model,
            **(server or {}),
        )
        self.requests = ReqToTokenPool(size=4, max_context_len=tokens, device="cpu", enable_memory_saver=False)
        parameters = CacheInitParams(
            req_to_token_pool=self.requests,
            page_size=page,
            disable=False,
            tp_cache_group=group,
            enable_kv_cache_events=events,
            **self._pools(mla, tokens, page),
        )
        self.allocator = parameters.token_to_kv_pool_allocator
        self.cache = UnifiedRadixCache(params=parameters)
        self.cache.init_hicache(arguments, parameters)
        self.cache.load_back_threshold = 0
        self.host = self.cache.cache_controller.storage_host_pool
        if attach:
            self.attach()

    def _pools(self, mla: bool, tokens: int, page: int) -> dict[str, Any]:
        """The device's memory, as parameters of the cache."""
        pool = device_pool(mla, tokens=tokens, page=page)
        allocator = TokenToKVPoolAllocator(size=tokens, dtype=pool.dtype, device="cpu", kvcache=pool, need_sort=False)
        return {"token_to_kv_pool_allocator": allocator, "tree_components": (ComponentType.FULL,)}

    # ---- the storage backend, as the server's control interface does it

    def attach(self) -> None:
        ok, why = self.cache.attach_storage_backend("dynamic", json.dumps(self.extra), served_model_name="tests/model")
        assert ok, why

    def detach(self) -> None:
        ok, why = self.cache.detach_storage_backend()
        assert ok, why

    @property
    def backend(self) -> Any:
        found = self.cache.cache_controller.storage_backend
        return getattr(found, "_backend", found)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self.cache.enable_storage:
                self.detach()
        finally:
            atexit.unregister(self.cache.shutdown)
            self.cache.release_host_resources()
            self._undo.close()

    # ---- bytes

    def keys(self, tokens: list[int]) -> list[str]:
        return list(get_hash_str(array("q", tokens), None, page_size=self.page))

    def _tensors(self) -> list[Any]:
        return [tensor for layers in _device_tensors(self.host) for tensor in layers]

    def content(self, key: str, layer: int, like: Any) -> Any:
        """What a page with this key has in one of the device's tensors."""
        generator = torch.Generator().manual_seed(int(key[:12], 16) + layer)
        shape = (self.page, *like.shape[1:])
        return torch.randn(shape, generator=generator).to(like.dtype)

    # ---- what a scheduler does

    def pump(self) -> None:
        self.cache.check_hicache_events()

    def compute(self, tokens: list[int]) -> None:
        """Prefill: fills device slots and puts them into the tree, which backs them up."""
        found = self.cache.insert(
            InsertParams(key=RadixKey(array("q", tokens)), value=self._prefilled(tokens), priority=0)
        )
        assert found is not None
        self.pump()

    def _prefilled(self, tokens: list[int]) -> Any:
        value = self._alloc(len(tokens))
        for number, key in enumerate(self.keys(tokens)):
            place = value[number * self.page : (number + 1) * self.page]
            for layer, tensor in enumerate(self._tensors()):
                tensor[place] = self.content(key, layer, tensor)
        return value

    def _alloc(self, count: int) -> Any:
        value = self.allocator.alloc(count)
        assert value is not None, "the device pool of the test is too small"
        return value

    def backed_up(self, limit: float = 20.0) -> None:
        """Waits until nothing is on its way to the host or to the node."""

        def idle() -> bool:
            self.pump()
            return not self.cache.ongoing_write_through and not self.cache.ongoing_backup

        until("all backups are done", idle, limit=limit, pause=0.002)

    def forget(self) -> None:
        """An engine that starts anew: empty device, empty host, empty tree."""
        self.cache.reset()
        self.allocator.clear()
        for tensor in self._tensors():
            tensor.fill_(0)
        self.host.kv_buffer.fill_(0)

    def prefetch(self, tokens: list[int], limit: float = 20.0) -> int:
        """Tokens that came from the node into the host pool."""
        handle = CacheRequestHandle(f"r{next(_numbers)}", 0)
        self.cache.prefetch_from_storage(handle, self.cache.root_node_handle(), array("q", tokens), None, None)

        def done() -> bool:
            self.pump()
            return bool(self.cache.check_prefetch_progress(handle))

        until("the prefetch is over", done, limit=limit, pause=0.002)
        return int(self.cache.pop_prefetch_loaded_tokens(handle) or 0)

    def load_back(self, tokens: list[int]) -> int:
        """Brings what the host has to the device, compares every byte, and returns how many tokens are right."""
        match = self.cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", tokens))))
        if match.host_hit_length > 0:
            assert self.cache.load_back(match.best_match_node)
            assert self.cache.ready_to_load_host_cache() != -1
            for ack in list(self.cache.cache_controller.ack_load_queue):
                ack.finish_event.synchronize()
            self.cache.loading_check()
        match = self.cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", tokens))))
        there = self.cache.path_device_indices(match.last_device_node)
        for number, key in enumerate(self.keys(tokens[: len(there)])):
            place = there[number * self.page : (number + 1) * self.page]
            for layer, tensor in enumerate(self._tensors()):
                assert torch.equal(tensor[place], self.content(key, layer, tensor)), f"page {number}, tensor {layer}"
        return len(there)


class SlidingEngine(Engine):
    """A model of which one layer attends to everything and two to the last WINDOW tokens: a pool "swa" beside KV."""

    WINDOW = 3 * PAGE

    def _pools(self, mla: bool, tokens: int, page: int) -> dict[str, Any]:
        pool = SWAKVPool(
            size=tokens,
            size_swa=tokens,
            page_size=page,
            dtype=torch.bfloat16,
            head_num=2,
            head_dim=32,
            swa_attention_layer_ids=[0, 2],
            full_attention_layer_ids=[1],
            device="cpu",
        )
        allocator = SWATokenToKVPoolAllocator(
            size=tokens,
            size_swa=tokens,
            page_size=page,
            dtype=torch.bfloat16,
            device="cpu",
            kvcache=pool,
            need_sort=False,
        )
        components = (ComponentType.FULL, ComponentType.SWA)
        return {
            "token_to_kv_pool_allocator": allocator,
            "tree_components": components,
            "sliding_window_size": self.WINDOW,
        }

    @property
    def side(self) -> Any:
        return self.cache.host_pool_group.get_pool("swa")

    def _alloc(self, count: int) -> Any:
        everything = self.allocator.full_attn_allocator.alloc(count)
        window = self.allocator.swa_attn_allocator.alloc(count)
        assert everything is not None and window is not None, "the device pool of the test is too small"
        self.allocator.full_to_swa_index_mapping[everything] = window
        return everything

    def _side_tensors(self) -> list[Any]:
        return [tensor for layers in _device_tensors(self.side) for tensor in layers]

    def _prefilled(self, tokens: list[int]) -> Any:
        value = super()._prefilled(tokens)
        places = self.allocator.full_to_swa_index_mapping[value]
        for number, key in enumerate(self.keys(tokens)):
            place = places[number * self.page : (number + 1) * self.page]
            for layer, tensor in enumerate(self._side_tensors()):
                tensor[place] = self.content(key, 100 + layer, tensor)
        return value

    def forget(self) -> None:
        super().forget()
        for tensor in self._side_tensors():
            tensor.fill_(0)
        self.side.kv_buffer.fill_(0)

    def load_back(self, tokens: list[int]) -> int:
        """Compares the window's pages of the other layers as well."""
        count = super().load_back(tokens)
        match = self.cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", tokens))))
        there = self.allocator.full_to_swa_index_mapping[self.cache.path_device_indices(match.last_device_node)]
        keys = self.keys(tokens[:count])
        window = range(max(0, len(keys) - self.WINDOW // self.page), len(keys))
        for number in window:
            place = there[number * self.page : (number + 1) * self.page]
            assert (place > 0).all(), f"page {number} of the window was not loaded"
            for layer, tensor in enumerate(self._side_tensors()):
                assert torch.equal(tensor[place], self.content(keys[number], 100 + layer, tensor)), f"page {number}"
        return count


@pytest.fixture
def engine_of() -> Iterator[Callable[..., Engine]]:
    """engine_of(node, **what): an engine's cache, ended with the test; `kind` is its class."""
    made: list[Engine] = []

    def make(node: Node | None, kind: type[Engine] = Engine, **more: Any) -> Engine:
        made.append(kind(node, **more))
        return made[-1]

    yield make
    for each in reversed(made):
        each.close()


def sequence(pages: int, seed: int | None = None, page: int = PAGE) -> list[int]:
    """Tokens of so many pages; others with each call unless a seed is given."""
    start = 1_000_000 + (next(_numbers) if seed is None else 500 + seed) * 10_007
    return list(range(start, start + pages * page))


def wait_out(seconds: float) -> float:
    """A deadline for polls, stretched where the machine is slow."""
    return time.monotonic() + seconds * PATIENCE
