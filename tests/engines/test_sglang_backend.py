"""The surfaces of the backend against SGLang's own host pools: which bytes go where, and what is a miss."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("sglang", reason="SGLang is not installed in this environment")

import torch
from sglang_support import (
    EVERY_LAYOUT,
    PAGE,
    Node,
    StorageBackendFactory,
    config,
    fill,
    get_v1,
    host_pool,
    let_the_clock_move_on,
    names,
    page_of,
    set_v1,
    slots,
    until,
)

pytest_plugins = ["sglang_support"]

Attach = Callable[..., Any]
StartNode = Callable[..., Node]


# ---- bytes


@pytest.mark.parametrize(("mla", "layout"), EVERY_LAYOUT)
def test_v1_moves_scattered_pages_and_touches_no_other(
    sglang_node: Node, backend_of: Attach, mla: bool, layout: str
) -> None:
    pool = host_pool(mla, layout)
    backend = backend_of(sglang_node, pool, mla=mla)
    keys, sources, targets = names(6), [3, 17, 4, 40, 90, 8], [60, 2, 33, 21, 61, 128]
    wanted = [page_of(pool, each) for each in sources]
    assert set_v1(backend, keys, sources) == [True] * 6
    fill(pool)
    before = [page_of(pool, each) for each in range(pool.page_num)]
    assert get_v1(backend, keys, targets) == [True] * 6
    for target, page in zip(targets, wanted, strict=True):
        before[target] = page
    for number, page in enumerate(before):
        assert torch.equal(page_of(pool, number), page), f"page {number}"


@pytest.mark.parametrize(("mla", "layout"), EVERY_LAYOUT)
def test_what_one_surface_stored_another_fetches(sglang_node: Node, backend_of: Attach, mla: bool, layout: str) -> None:
    pool = host_pool(mla, layout)
    backend = backend_of(sglang_node, pool, mla=mla)
    by_v1, by_generic = names(3), names(3)
    pages = [page_of(pool, each) for each in (5, 6, 7)]
    flat = [pool.get_data_page(each * PAGE) for each in (5, 6, 7)]
    assert set_v1(backend, by_v1, [5, 6, 7]) == [True] * 3
    assert backend.batch_set(by_generic, flat) is True

    found = backend.batch_get(by_v1, [pool.get_dummy_flat_data_page() for _ in by_v1])
    assert [torch.equal(a.view(torch.uint8), b) for a, b in zip(found, pages, strict=True)] == [True] * 3
    fill(pool)
    assert get_v1(backend, by_generic, [50, 51, 52]) == [True] * 3
    assert [torch.equal(page_of(pool, 50 + i), page) for i, page in enumerate(pages)] == [True] * 3


@pytest.mark.parametrize(("mla", "layout"), EVERY_LAYOUT)
def test_v2_moves_every_pool_by_its_name(sglang_node: Node, backend_of: Attach, mla: bool, layout: str) -> None:
    pool, draft = host_pool(mla, layout), host_pool(mla, layout, layers=1)
    backend = backend_of(sglang_node, pool, mla=mla)
    backend.register_mem_host_pool_v2(draft, "draft")
    keys = names(4)
    wanted = {"kv": [page_of(pool, i) for i in range(4)], "draft": [page_of(draft, i) for i in range(4)]}
    assert backend.batch_set_v2([transfer("kv", keys, [0, 1, 2, 3]), transfer("draft", keys, [0, 1, 2, 3])]) == {
        "kv": [True] * 4,
        "draft": [True] * 4,
    }
    fill(pool)
    fill(draft)
    targets = [9, 7, 5, 3]
    got = backend.batch_get_v2([transfer("kv", keys, targets), transfer("draft", keys, targets)])
    assert got == {"kv": [True] * 4, "draft": [True] * 4}
    for i, target in enumerate(targets):
        assert torch.equal(page_of(pool, target), wanted["kv"][i])
        assert torch.equal(page_of(draft, target), wanted["draft"][i])


def test_pools_that_cannot_say_where_their_pages_are_go_by_flat_pages(sglang_node: Node, backend_of: Attach) -> None:
    pool = host_pool(False, "layer_first")

    def refuse(indices: Any) -> Any:
        raise NotImplementedError("no zero copy here")

    pool.get_page_buffer_meta = refuse
    backend = backend_of(sglang_node, pool, model="flat")
    keys = names(3)
    pages = [page_of(pool, each) for each in (5, 6, 7)]
    assert set_v1(backend, keys, [5, 6, 7]) == [True] * 3
    fill(pool)
    assert get_v1(backend, keys, [20, 10, 30]) == [True] * 3
    assert [torch.equal(page_of(pool, to), page) for to, page in zip((20, 10, 30), pages, strict=True)] == [True] * 3


def test_128_pages_go_in_one_batch(sglang_node: Node, backend_of: Attach) -> None:
    pool = host_pool(False, "page_first", tokens=256 * PAGE)
    backend = backend_of(sglang_node, pool)
    keys = names(128)
    wanted = [page_of(pool, each) for each in range(128)]
    assert set_v1(backend, keys, list(range(128))) == [True] * 128
    fill(pool)
    targets = list(range(511, 383, -1))
    assert get_v1(backend, keys, targets) == [True] * 128
    assert all(torch.equal(page_of(pool, to), page) for to, page in zip(targets, wanted, strict=True))


def test_four_threads_at_a_time_get_their_own_pages(sglang_node: Node, backend_of: Attach) -> None:
    pool = host_pool(False, "page_first", tokens=512 * PAGE)
    backend = backend_of(sglang_node, pool)
    problems: list[str] = []

    def work(number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        mine = list(range(number * 100, number * 100 + 50))
        for turn in range(15):
            keys = names(50, (number, turn))
            for page in mine:
                pool.kv_buffer[:, page * PAGE : (page + 1) * PAGE] = torch.randn(
                    pool.kv_buffer[:, :PAGE].shape, generator=generator
                )
            wanted = [page_of(pool, page) for page in mine]
            if not all(set_v1(backend, keys, mine)) or backend.batch_exists(keys) != 50:
                problems.append(f"thread {number}, turn {turn}: not stored")
            targets = [page + 50 for page in mine]
            if not all(get_v1(backend, keys, targets)):
                problems.append(f"thread {number}, turn {turn}: not fetched")
            if not all(torch.equal(page_of(pool, to), page) for to, page in zip(targets, wanted, strict=True)):
                problems.append(f"thread {number}, turn {turn}: wrong bytes")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert not problems


# ---- what is there


def test_a_set_is_visible_to_another_process_of_the_same_rank_when_it_returns(
    sglang_node: Node, backend_of: Attach
) -> None:
    pool = host_pool(False, "page_first")
    one, other = backend_of(sglang_node, pool), backend_of(sglang_node, host_pool(False, "page_first"))
    keys = names(20)
    assert other.batch_exists(keys) == 0
    assert all(set_v1(one, keys, list(range(20))))
    assert other.batch_exists(keys) == 20


def test_exists_counts_the_consecutive_pages_from_the_start(sglang_node: Node, backend_of: Attach) -> None:
    backend = backend_of(sglang_node, host_pool(False, "page_first"))
    keys = names(10)
    assert all(set_v1(backend, keys[:4] + keys[5:], list(range(9))))
    assert backend.batch_exists(keys) == 4
    assert backend.batch_exists(keys[5:]) == 5
    assert backend.batch_exists(keys[4:]) == 0
    assert backend.batch_exists([]) == 0
    assert [backend.exists(each) for each in keys[3:6]] == [True, False, True]


def test_a_span_longer_than_what_may_be_pinned_is_counted_whole(sglang_node: Node, backend_of: Attach) -> None:
    backend = backend_of(sglang_node, host_pool(False, "page_first"), hold_pages=8)
    keys = names(40)
    assert all(set_v1(backend, keys, list(range(40))))
    assert backend.batch_exists([*keys, *names(3)]) == 40


def test_the_first_missing_page_ends_a_get(sglang_node: Node, backend_of: Attach) -> None:
    pool = host_pool(False, "page_first")
    backend = backend_of(sglang_node, pool)
    keys = names(6)
    assert all(set_v1(backend, keys[:3] + keys[4:], [0, 1, 2, 4, 5]))
    before = [page_of(pool, each) for each in (13, 14, 15)]
    assert get_v1(backend, keys, list(range(10, 16))) == [True, True, True, False, False, False]
    assert [torch.equal(page_of(pool, 13 + i), page) for i, page in enumerate(before)] == [True] * 3


def test_the_first_write_of_a_page_wins_and_the_second_says_true(sglang_node: Node, backend_of: Attach) -> None:
    pool = host_pool(False, "page_first")
    backend = backend_of(sglang_node, pool)
    key = names(1)
    first = page_of(pool, 1)
    assert set_v1(backend, key, [1]) == [True]
    assert set_v1(backend, key, [2]) == [True]
    assert get_v1(backend, key, [30]) == [True]
    assert torch.equal(page_of(pool, 30), first)


def test_the_same_page_twice_in_one_batch_is_stored_once(sglang_node: Node, backend_of: Attach) -> None:
    pool = host_pool(False, "page_first")
    backend = backend_of(sglang_node, pool)
    keys = names(2)
    assert set_v1(backend, [keys[0], keys[1], keys[0]], [1, 2, 3]) == [True] * 3
    assert get_v1(backend, keys, [30, 31]) == [True, True]
    assert torch.equal(page_of(pool, 30), page_of(pool, 1))


def test_clear_forgets_every_pool(sglang_node: Node, backend_of: Attach) -> None:
    pool, draft = host_pool(False, "page_first"), host_pool(False, "page_first", layers=1)
    backend = backend_of(sglang_node, pool, model="cleared")
    backend.register_mem_host_pool_v2(draft, "draft")
    other = backend_of(sglang_node, pool, model="not-cleared")
    keys = names(5)
    for each in (backend, other):
        assert all(set_v1(each, keys, list(range(5))))
    backend.batch_set_v2([transfer("draft", keys, list(range(5)))])
    assert backend.batch_exists(keys) == 5  # and so they are pinned
    assert backend.clear() is True
    assert backend.batch_exists(keys) == 0
    assert backend.batch_get_v2([transfer("draft", keys, list(range(5)))]) == {"draft": [False] * 5}
    assert other.batch_exists(keys) == 5


# ---- who shares with whom


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"model": "another/model"}),
        ({}, {"fingerprint": "other weights"}),
        ({"tp": (0, 2)}, {"tp": (1, 2)}),
        ({"tp": (0, 1)}, {"tp": (0, 2)}),
        ({"pp": (0, 2)}, {"pp": (1, 2)}),
        ({"cp": (0, 2)}, {"cp": (1, 2)}),
    ],
    ids=["models", "weights", "ranks", "world sizes", "stages", "context-parallel ranks"],
)
def test_pages_are_kept_apart_by(sglang_node: Node, backend_of: Attach, one: Any, other: Any) -> None:
    pool = host_pool(False, "page_first")
    keys = names(3)
    writer, reader = backend_of(sglang_node, pool, **one), backend_of(sglang_node, pool, **other)
    assert all(set_v1(writer, keys, [0, 1, 2]))
    assert reader.batch_exists(keys) == 0
    assert get_v1(reader, keys, [0, 1, 2]) == [False] * 3


@pytest.mark.parametrize(
    "shape",
    [
        {"layout": "page_head"},
        {"layout": "page_first_direct"},
        {"dtype": torch.float16},
        {"page": 2 * PAGE},
        {"heads": 4, "dim": 16},
    ],
    ids=["layouts", "direct layouts", "dtypes", "page sizes", "heads"],
)
def test_pools_of_one_model_are_kept_apart_by(sglang_node: Node, backend_of: Attach, shape: dict[str, Any]) -> None:
    keys = names(1)
    writer = backend_of(sglang_node, host_pool(False, "page_first"))
    other = host_pool(**{"mla": False, "layout": "page_first", **shape})
    reader = backend_of(sglang_node, other)
    assert set_v1(writer, keys, [0]) == [True]
    assert reader.batch_exists(keys) == 0
    assert list(reader.batch_get_v1(keys, slots([0], other.page_size))) == [False]


def test_ranks_of_a_latent_attention_model_share_and_one_writes(sglang_node: Node, backend_of: Attach) -> None:
    pools = [host_pool(True, "page_first") for _ in range(2)]
    writer, other = (backend_of(sglang_node, pools[i], mla=True, tp=(i, 2)) for i in range(2))
    keys = names(2)
    assert set_v1(other, keys, [0, 1]) == [True, True]
    assert writer.batch_exists(keys) == 0  # it left the writing to the other
    assert set_v1(writer, keys, [0, 1]) == [True, True]
    assert get_v1(other, keys, [7, 8]) == [True, True]
    assert torch.equal(page_of(pools[1], 7), page_of(pools[0], 0))
    wider = backend_of(sglang_node, pools[1], mla=True, tp=(3, 4))
    assert wider.batch_exists(keys) == 2


def test_a_rank_own_pool_of_a_latent_attention_model_is_not_shared(sglang_node: Node, backend_of: Attach) -> None:
    """A draft model with ordinary attention beside latent attention: each rank has other heads."""
    drafts = [host_pool(False, "page_first", layers=1) for _ in range(2)]
    backends = [backend_of(sglang_node, host_pool(True, "page_first"), mla=True, tp=(i, 2)) for i in range(2)]
    keys = names(1)
    for backend, draft in zip(backends, drafts, strict=True):
        backend.register_mem_host_pool_v2(draft, "draft")
    assert backends[0].batch_set_v2([transfer("draft", keys, [0])]) == {"draft": [True]}
    assert backends[1].batch_get_v2([transfer("draft", keys, [0])]) == {"draft": [False]}
    assert backends[1].batch_set_v2([transfer("draft", keys, [0])]) == {"draft": [True]}
    assert backends[1].batch_get_v2([transfer("draft", keys, [3])]) == {"draft": [True]}
    assert torch.equal(page_of(drafts[1], 3), page_of(drafts[1], 0))


def test_the_allocator_of_the_host_pool_does_not_part_what_it_holds(sglang_node: Node, backend_of: Attach) -> None:
    keys = names(1)
    assert set_v1(backend_of(sglang_node, host_pool(False, "page_first")), keys, [0]) == [True]
    reader = backend_of(sglang_node, host_pool(False, "page_first"), allocator="shm")
    assert reader.batch_exists(keys) == 1


# ---- several pools


def transfer(name: str, keys: list[str], pages: list[int] | None = None, policy: str = "all_pages", **more: Any) -> Any:
    from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer

    indices = None if pages is None else slots(pages)
    return PoolTransfer(name=PoolName(name), keys=keys, host_indices=indices, hit_policy=PoolHitPolicy(policy), **more)


@pytest.fixture
def hybrid(sglang_node: Node, backend_of: Attach) -> Any:
    """A backend with KV pages 0…9, and a function that stores pages of a pool "swa"."""
    backend = backend_of(sglang_node, host_pool(False, "page_first"), model=f"hybrid-{names(1)[0][:8]}")
    backend.register_mem_host_pool_v2(host_pool(False, "page_first", layers=1), "swa")
    keys = names(12)
    assert all(set_v1(backend, keys[:10], list(range(10))))

    def store(numbers: list[int]) -> None:
        some = [keys[i] for i in numbers]
        assert backend.batch_set_v2([transfer("swa", some, numbers)]) == {"swa": [True] * len(some)}

    return backend, keys, store


def ask(backend: Any, keys: list[str], window: int, policy: str = "trailing_pages") -> Any:
    return backend.batch_exists_v2(keys, [transfer("swa", keys[-window:] if window else keys, policy=policy)])


def test_a_pool_with_a_window_can_end_where_its_window_is_whole(hybrid: Any) -> None:
    backend, keys, store = hybrid
    store([2, 3, 4, 7, 8])
    found = ask(backend, keys, 2)
    assert found.restorable_prefix_pages == [4, 5, 9]
    assert found.kv_hit_pages == 9
    assert found.extra_pool_hit_pages == {"kv": 10, "swa": 9}


def test_a_window_longer_than_the_prefix_needs_all_of_it(hybrid: Any) -> None:
    backend, keys, store = hybrid
    store([0, 1, 2, 5])
    assert ask(backend, keys, 3).restorable_prefix_pages == [1, 2, 3]


def test_a_pool_of_all_pages_cuts_the_prefix(hybrid: Any) -> None:
    backend, keys, store = hybrid
    store([0, 1, 2, 4])
    found = ask(backend, keys, 0, "all_pages")
    assert found.kv_hit_pages == 3
    assert found.restorable_prefix_pages == [1, 2, 3]
    assert found.extra_pool_hit_pages == {"kv": 10, "swa": 3}


def test_a_pool_of_which_nothing_is_there_leaves_nothing(hybrid: Any) -> None:
    backend, keys, _ = hybrid
    found = ask(backend, keys, 1)
    assert (found.kv_hit_pages, found.restorable_prefix_pages) == (0, [])
    assert found.extra_pool_hit_pages == {"kv": 10}


def test_groups_of_keys_are_a_verdict_of_their_own(hybrid: Any) -> None:
    backend, keys, store = hybrid
    store([0, 1, 2, 3, 4])
    asked = transfer("swa", keys[:8], policy="block_groups", block_pages=4, group_pages=2)
    found = backend.batch_exists_v2(keys, [asked])
    assert found.kv_hit_pages == 10
    assert found.extra_pool_hit_pages == {"kv": 10, "swa": 8}


def test_a_pool_that_comes_late_has_an_instance_of_its_own(hybrid: Any) -> None:
    backend, keys, _ = hybrid
    late = host_pool(False, "page_first", layers=2)
    backend.register_mem_host_pool_v2(late, "draft")
    wanted = page_of(late, 1)
    assert backend.batch_set_v2([transfer("draft", keys[:1], [1])]) == {"draft": [True]}
    fill(late)
    assert backend.batch_get_v2([transfer("draft", keys[:1], [6])]) == {"draft": [True]}
    assert torch.equal(page_of(late, 6), wanted)


def test_an_unknown_pool_is_a_miss(hybrid: Any) -> None:
    backend, keys, _ = hybrid
    assert backend.batch_get_v2([transfer("mamba", keys[:2], [0, 1])]) == {"mamba": [False, False]}
    assert backend.batch_set_v2([transfer("mamba", keys[:2], [0, 1])]) == {"mamba": [False, False]}
    assert backend.batch_exists_v2(keys, [transfer("mamba", keys)]).kv_hit_pages == 0


def test_a_pool_that_only_counts_slots_leaves_the_word_to_the_others(sglang_node: Node, backend_of: Attach) -> None:
    logical = host_pool(False, "page_first")
    logical.kv_buffer = None
    backend = backend_of(sglang_node, logical, model="logical")
    backend.register_mem_host_pool_v2(host_pool(False, "page_first", layers=1), "swa")
    keys = names(4)
    assert set_v1(backend, keys, [0, 1, 2, 3]) == [True] * 4
    assert backend.batch_exists(keys) == 0
    assert backend.batch_set_v2([transfer("swa", keys[:3], [0, 1, 2])]) == {"swa": [True] * 3}
    assert backend.batch_exists_v2(keys, [transfer("swa", keys)]).kv_hit_pages == 3


# ---- what goes wrong


def test_misused_calls_are_misses(sglang_node: Node, backend_of: Attach, caplog: pytest.LogCaptureFixture) -> None:
    pool = host_pool(False, "page_first")
    backend = backend_of(sglang_node, pool)
    keys = names(3)
    with caplog.at_level(logging.WARNING, "cenote.sglang"):
        assert backend.batch_set_v1(keys, slots([1, 2])) == [False] * 3
        assert backend.batch_get_v1(keys, None) == [False] * 3
        assert backend.batch_set(keys, [torch.zeros(3)] * 3) is False
        assert backend.batch_get(keys, [torch.zeros(3)] * 3) == [None] * 3
        assert backend.set(keys[0], None) is False
        assert backend.batch_exists([1, 2]) == 0  # type: ignore[list-item]
    assert "32 slots for 3 pages of 16" in caplog.text
    assert get_v1(backend, keys, [1, 2, 3]) == [False] * 3


def test_the_same_complaint_is_logged_once_in_a_while(
    sglang_node: Node, backend_of: Attach, caplog: pytest.LogCaptureFixture
) -> None:
    backend = backend_of(sglang_node, host_pool(False, "page_first"))
    with caplog.at_level(logging.WARNING, "cenote.sglang"):
        for _ in range(100):
            assert backend.batch_get_v1(names(1), None) == [False]
    assert len([each for each in caplog.records if each.name == "cenote.sglang"]) == 1


def test_names_that_are_no_digests_are_keys_as_well(sglang_node: Node, backend_of: Attach) -> None:
    pool = host_pool(False, "page_first")
    backend = backend_of(sglang_node, pool, model="odd names")
    odd = ["a", "", "x" * 64, "ab" * 31 + "é", "ab" * 31, "cd" * 33, names(1)[0]]
    assert set_v1(backend, odd, list(range(7))) == [True] * 7
    for number, name in enumerate(odd):
        assert get_v1(backend, [name], [50]) == [True]
        assert torch.equal(page_of(pool, 50), page_of(pool, number))
    assert backend.batch_exists(odd) == 7


def test_without_a_node_all_is_a_miss_and_one_line_says_so(
    backend_of: Attach, caplog: pytest.LogCaptureFixture
) -> None:
    pool = host_pool(False, "page_first")
    with caplog.at_level(logging.INFO, "cenote"):
        backend = backend_of(None, pool)
        backend.register_mem_host_pool_v2(host_pool(False, "page_first", layers=1), "draft")
        keys = names(2)
        for _ in range(5):
            assert backend.batch_exists(keys) == 0
            assert set_v1(backend, keys, [0, 1]) == [False, False]
            assert get_v1(backend, keys, [0, 1]) == [False, False]
            assert backend.batch_get(keys) == [None, None]
            assert backend.batch_set_v2([transfer("draft", keys, [0, 1])]) == {"draft": [False, False]}
            assert backend.batch_exists_v2(keys, [transfer("draft", keys)]).kv_hit_pages == 0
            assert backend.clear() is False
    assert len(caplog.records) == 1
    assert "no node" in caplog.text


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"deadline": "soon"}, "deadline is 'soon'; it must be a number from 0.01 to 60"),
        ({"hold_pages": 1.5}, "hold_pages is 1.5; it must be an integer"),
        ({"socket": 7}, "socket is 7; it must be a string"),
        ({"threads": True}, "threads is True"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(extra: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("(", r"\(").replace(".", r"\.")):
        StorageBackendFactory.create_backend("dynamic", config(None, **{"socket": "/nowhere", **extra}), None)


def test_unknown_settings_are_ignored(sglang_node: Node, backend_of: Attach) -> None:
    backend = backend_of(
        sglang_node, host_pool(False, "page_first"), tp_lcm_size=8, master_server_address="x", hold=None
    )
    assert set_v1(backend, names(1), [0]) == [True]


def test_a_set_stores_as_much_as_there_is_room_for(start_sglang_node: StartNode, backend_of: Attach) -> None:
    node = start_sglang_node("dram.capacity=1MiB", "dram.slab_size=64KiB")
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool, hold=60)
    results = []
    for _ in range(16):
        keys = names(7)
        results += set_v1(backend, keys, list(range(7)))
        backend.batch_exists(keys)  # and so they stay
    stored = results.count(True)
    assert 70 <= stored < 112
    assert results == [True] * stored + [False] * (112 - stored)
    assert node.blocks()["present"] == stored
    backend.clear()
    assert set_v1(backend, names(7), list(range(7))) == [True] * 7


def test_a_set_does_not_evict_the_pages_that_it_goes_on_from(start_sglang_node: StartNode, backend_of: Attach) -> None:
    node = start_sglang_node("dram.capacity=1MiB", "dram.slab_size=64KiB")  # 80 pages
    backend = backend_of(node, host_pool(False, "page_first"))
    keys = names(100)
    assert all(set_v1(backend, keys[:60], list(range(60))))
    results = set_v1(backend, keys, list(range(100)))
    stored = results.count(True)
    assert 70 <= stored < 100
    assert results == [True] * stored + [False] * (100 - stored)
    assert backend.batch_exists(keys) == stored


def test_a_promised_page_is_not_evicted_before_its_get(start_sglang_node: StartNode, backend_of: Attach) -> None:
    node = start_sglang_node("dram.capacity=4MiB")
    pool = host_pool(False, "page_first", tokens=64 * PAGE)
    backend = backend_of(node, pool, hold=60)
    keys = names(10)
    wanted = [page_of(pool, each) for each in range(10)]
    assert all(set_v1(backend, keys, list(range(10))))
    assert backend.batch_exists(keys) == 10
    for _ in range(60):
        set_v1(backend, names(10), list(range(20, 30)))
    assert node.status()["dram"]["evicted"] > 100
    assert get_v1(backend, keys, list(range(40, 50))) == [True] * 10
    assert all(torch.equal(page_of(pool, 40 + i), page) for i, page in enumerate(wanted))
    let_the_clock_move_on()  # until then they may still count as pinned
    for _ in range(60):
        set_v1(backend, names(10), list(range(20, 30)))
    assert backend.batch_exists(keys) == 0  # fetched, and so evicted like any other


def test_a_promise_ends_in_time_though_nobody_asks_anything_more(
    start_sglang_node: StartNode, backend_of: Attach
) -> None:
    node = start_sglang_node("dram.capacity=4MiB")
    backend = backend_of(node, host_pool(False, "page_first"), hold=0.3)
    keys = names(10)
    assert all(set_v1(backend, keys, list(range(10))))
    assert backend.batch_exists(keys) == 10
    session = backend._pools[0]._attachment.session()
    assert session.stats()["pins_in_use"] == 10
    until("the pins have ended", lambda: session.stats()["pins_in_use"] == 0)


def test_stats_are_what_sglang_collects(sglang_node: Node, backend_of: Attach) -> None:
    backend = backend_of(sglang_node, host_pool(False, "page_first"))
    keys = names(8)
    set_v1(backend, keys, list(range(8)))
    get_v1(backend, keys[:5], list(range(5)))
    stats = backend.get_stats()
    assert (stats.backup_pgs, stats.prefetch_pgs) == ([8], [5])
    assert stats.backup_bandwidth[0] > 0
    assert stats.prefetch_bandwidth[0] > 0
    assert backend.get_stats().backup_pgs == []


def test_a_closed_backend_misses_and_leaves_no_session(start_sglang_node: StartNode, backend_of: Attach) -> None:
    node = start_sglang_node("dram.capacity=16MiB")
    backend = backend_of(node, host_pool(False, "page_first"))
    keys = names(3)
    assert all(set_v1(backend, keys, [0, 1, 2]))
    assert backend.batch_exists(keys) == 3
    assert len(node.status()["sessions"]) == 1
    backend.close()
    until("the session is gone", lambda: not node.status()["sessions"])
    assert backend.batch_exists(keys) == 0
    assert set_v1(backend, keys, [0, 1, 2]) == [False] * 3
    backend.close()
