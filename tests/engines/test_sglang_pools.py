"""SGLang's host pools beside KV: states of Mamba layers, and the index keys of sparse attention."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("sglang", reason="SGLang is not installed in this environment")

import torch
from cenote._sglang.identity import is_replicated
from cenote._sglang.pages import Pages, Unsupported
from sglang.srt.mem_cache.device_pool_info import MambaStateBufferInfo
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer
from sglang.srt.mem_cache.memory_pool import DSATokenToKVPool
from sglang.srt.mem_cache.pool_host.dsa import DSAIndexerPoolHost, make_dsa_indexer_pool_decl
from sglang.srt.mem_cache.pool_host.mamba import MambaPoolHost
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang_support import (
    PAGE,
    Node,
    assembler,
    config,
    fill,
    host_pool,
    names,
    page_of,
    ranks,
    set_server,
    slots,
)

pytest_plugins = ["sglang_support"]

Attach = Callable[..., Any]


def mamba_pool(side_state: bool = False) -> Any:
    count = 24
    extra = (torch.zeros(count, 5, dtype=torch.int32),) if side_state else ()
    info = MambaStateBufferInfo(
        temporal=torch.zeros(3, count, 2, 16, 16, dtype=torch.float32),
        conv=(torch.zeros(3, count, 64, 3, dtype=torch.bfloat16), torch.zeros(3, count, 32, 3, dtype=torch.bfloat16)),
        extra_checkpoint_buffers=extra,
    )
    pool = MambaPoolHost(info, 2.0, 0, device_capacity=count, pin_memory=False, layout="page_first")
    for buffer in (pool.temporal_buffer, *pool.conv_buffer, *pool.slot_state_buffers):
        raw = buffer.view(torch.uint8)
        raw.copy_(torch.randint(0, 256, raw.shape, dtype=torch.uint8))
    return pool


def dsa_pools(layout: str) -> tuple[Any, Any]:
    """The latent KV and its index keys."""
    set_server(layout, 64, hicache_ratio=2.0)
    with ranks():
        device = DSATokenToKVPool(
            size=64 * 12,
            page_size=64,
            kv_lora_rank=64,
            dtype=torch.bfloat16,
            qk_rope_head_dim=16,
            layer_num=2,
            device="cpu",
            index_head_dim=128,
            enable_memory_saver=False,
            kv_cache_dim=80,
        )
        latent = assembler.build_kv_host_pool(kv_pool=device, page_size=64)
        keys = DSAIndexerPoolHost(make_dsa_indexer_pool_decl(device), latent, pin_memory=False)
    fill(latent)
    keys.index_k_with_scale_buffer.copy_(torch.randint(0, 256, keys.index_k_with_scale_buffer.shape, dtype=torch.uint8))
    return latent, keys


def transfer(name: PoolName, keys: list[str], indices: Any, policy: Any = PoolHitPolicy.ALL_PAGES) -> Any:
    return PoolTransfer(name=name, keys=keys, host_indices=indices, hit_policy=policy)


@pytest.mark.parametrize("side_state", [False, True], ids=["in place", "by flat pages"])
def test_mamba_states_come_back_where_they_were_stored(sglang_node: Node, backend_of: Attach, side_state: bool) -> None:
    backend = backend_of(sglang_node, host_pool(False, "page_first"), model=f"mamba {side_state}")
    pool = mamba_pool(side_state)
    backend.register_mem_host_pool_v2(pool, PoolName.MAMBA)
    assert Pages(pool).in_place is not side_state
    keys = names(8)
    assert all(backend.batch_set_v1(keys, slots(list(range(8)))))
    states = [page_of(pool, each) for each in (3, 9)]
    untouched = page_of(pool, 20)
    asked = transfer(PoolName.MAMBA, [keys[2], keys[6]], torch.tensor([3, 9]))
    assert backend.batch_set_v2([asked]) == {"mamba": [True, True]}

    found = backend.batch_exists_v2(keys, [transfer(PoolName.MAMBA, keys[-1:], None, PoolHitPolicy.TRAILING_PAGES)])
    assert found.restorable_prefix_pages == [3, 7]
    asked = transfer(PoolName.MAMBA, [keys[6], keys[2]], torch.tensor([21, 19]))
    assert backend.batch_get_v2([asked]) == {"mamba": [True, True]}
    assert torch.equal(page_of(pool, 21), states[1])
    assert torch.equal(page_of(pool, 19), states[0])
    assert torch.equal(page_of(pool, 20), untouched)


@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct"])
def test_index_keys_travel_with_their_pages(sglang_node: Node, backend_of: Attach, layout: str) -> None:
    latent, index = dsa_pools(layout)
    backend = backend_of(sglang_node, latent, mla=True, model="sparse")
    backend.register_mem_host_pool_v2(index, PoolName.INDEXER)
    keys = names(3)
    wanted = [page_of(index, each) for each in (4, 5, 6)]
    indices = slots([4, 5, 6], 64)
    assert backend.batch_set_v2([transfer(PoolName.INDEXER, keys, indices)]) == {"indexer": [True] * 3}
    assert backend.batch_set_v1(keys, indices) == [True] * 3
    assert backend.batch_exists_v2(keys, [transfer(PoolName.INDEXER, keys, None)]).kv_hit_pages == 3
    indices = slots([12, 10, 11], 64)
    assert backend.batch_get_v2([transfer(PoolName.INDEXER, keys, indices)]) == {"indexer": [True] * 3}
    assert [torch.equal(page_of(index, to), page) for to, page in zip((12, 10, 11), wanted, strict=True)] == [True] * 3


def test_only_pools_known_to_be_the_same_on_all_ranks_are_shared() -> None:
    mla, mha = config(None, mla=True), config(None)
    latent, index = dsa_pools("page_first")
    assert is_replicated(mla, latent)
    assert is_replicated(mla, index)
    assert not is_replicated(mha, latent)
    assert not is_replicated(mla, mamba_pool())
    assert not is_replicated(mla, host_pool(False, "page_first"))
    latent._layer_shard_enabled = True
    assert not is_replicated(mla, latent)
    index.device_pool = SimpleNamespace(layer_shard_enabled=True)
    assert not is_replicated(mla, index)


@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct", "page_head"])
def test_places_that_were_learnt_are_what_the_pool_says(layout: str) -> None:
    pool = host_pool(False, layout)
    pages = Pages(pool)
    some = slots([0, 5, 128, 64])
    learnt = pages.places(some)
    assert pages._rule is not None
    asked = pages._sorted(pages._ask(some))
    assert (learnt.addresses == asked.addresses).all()
    rule, pages._rule = pages._rule, None
    pool.kv_buffer = pool.kv_buffer.clone()  # another tensor: what was learnt does not hold any more
    pages._rule = rule
    assert (pages.places(some).addresses == pages._sorted(pages._ask(some)).addresses).all()
    assert (pages.places(some).addresses != learnt.addresses).all()


def test_a_page_that_does_not_begin_at_a_page_is_asked_for() -> None:
    pool = host_pool(False, "page_first")
    pages = Pages(pool)
    odd = torch.arange(3, 3 + PAGE)
    assert (pages.places(odd).addresses == pages._ask(odd).addresses).all()


def test_a_pool_that_says_nothing_of_its_pages_is_refused_by_name() -> None:
    class Mute(MHATokenToKVPoolHost):
        def __init__(self) -> None:
            self.layout, self.page_size = "page_unified", 16

        def get_page_buffer_meta(self, indices: Any) -> Any:
            raise ValueError("Unsupported layout: page_unified")

        def get_dummy_flat_data_page(self) -> Any:
            raise ValueError("no flat pages")

    with pytest.raises(Unsupported, match=r"a Mute of layout page_unified .*Unsupported layout"):
        Pages(Mute())
