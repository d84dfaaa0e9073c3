"""Stores that the scheduler's side of cenote._vllm plans: their blocks in vLLM's pool, and when a step is due. Needs no
vLLM."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from test_holds import Pool
from vllm_stand_ins import stand_ins

BLOCK = 16  # tokens
KEYS = [b"key%02d" % i for i in range(40)]
RANKS = 2
SPEC: Any = SimpleNamespace(id="i")


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """cenote._vllm.scheduler with stand-ins for what needs vLLM."""
    with stand_ins(monkeypatch):
        for name, member, made in (
            ("vllm.v1.metrics.cache_hit_source", "CacheHitSource", SimpleNamespace),
            ("cenote._vllm.media", "have_digests", lambda features: True),
        ):
            module = ModuleType(name)
            setattr(module, member, made)
            monkeypatch.setitem(sys.modules, name, module)
        yield importlib.import_module("cenote._vllm.scheduler")


class Side:
    """The scheduler's side of an engine with two groups and a pool, and one request of `tokens` tokens."""

    def __init__(self, module: Any, pool: Pool, tokens: int) -> None:
        model, settings = (importlib.import_module(f"cenote._vllm.{each}") for each in ("model", "settings"))
        messages = importlib.import_module("cenote._vllm.messages")
        config: Any = SimpleNamespace(
            kv_transfer_config=SimpleNamespace(is_kv_consumer=True, is_kv_producer=True),
            parallel_config=SimpleNamespace(world_size=RANKS),
        )
        self.scheduler = module.Scheduler(config, None, settings.Settings())
        self.scheduler.describe([model.Group("full", 0), model.Group("window", 3 * BLOCK)], BLOCK)
        self.stored: set[bytes] = set()
        session = SimpleNamespace(exists=lambda keys, group: [key in self.stored for key in keys])
        self.scheduler._connection = SimpleNamespace(session=lambda: session)
        self.scheduler._spec = SPEC
        pool.null_block = pool.blocks[0]
        self.scheduler.bind_pool(pool)
        self._pool = pool
        self._acknowledged = messages.Acknowledged
        self.request = SimpleNamespace(
            request_id="r",
            num_tokens=tokens,
            num_prompt_tokens=tokens,
            num_computed_tokens=0,
            num_output_placeholders=0,
            block_hashes=KEYS[: tokens // BLOCK],
            lora_request=None,
            mm_features=[],
            kv_transfer_params=None,
        )
        self.scheduler.added(self.request)
        self.tables: list[list[int]] = [[], []]

    def step(self, tokens: int = 0) -> Any:
        """It computes so many tokens more."""
        scheduled = {"r": tokens} if tokens else {}
        for table, start in zip(self.tables, (1, 1 + len(self._pool.blocks) // 2), strict=True):
            known, wanted = len(table), -(-(self.request.num_computed_tokens + tokens) // BLOCK)
            table.extend(range(start + known, start + wanted))
            self._pool.computes(*table[known:])
        state = SimpleNamespace(get_block_ids=lambda name: self.tables)
        output = SimpleNamespace(
            num_scheduled_tokens=scheduled, kv_connector_block_state=state, scheduled_spec_decode_tokens={}
        )
        metadata = self.scheduler.build(output)
        self.request.num_computed_tokens += tokens
        return metadata

    def leave_window(self, count: int) -> None:
        """Its first blocks do."""
        window = self.tables[1]
        self._pool.ends(*(each for each in window[:count] if each))
        window[:count] = [0] * count

    def end(self) -> None:
        self.scheduler.finished(self.request, self.tables)
        for table in self.tables:
            self._pool.ends(*(each for each in table if each))

    def copied(self, stores: Sequence[Any], ranks: int = RANKS) -> None:
        self.scheduler.acknowledged((), self._acknowledged(copied={store.number: ranks for store in stores}))


def blocks(stores: Sequence[Any]) -> list[list[int]]:
    return [store.blocks for store in stores]


def test_blocks_stay_while_their_request_ends_or_their_window_passes_them(scheduler: Any) -> None:
    pool = Pool(41)
    side = Side(scheduler, pool, 6 * BLOCK + 1)
    first = side.step(4 * BLOCK).stores
    assert blocks(first) == [[1, 2, 3, 4], [21, 22, 23, 24]]
    side.leave_window(3)
    last = side.step(2 * BLOCK + 1).stores
    assert blocks(last) == [[5, 6], [25, 26]]  # the last one is not full
    side.end()
    assert pool.references == [1, 2, 3, 4, 5, 6, 21, 22, 23, 24, 25, 26]
    assert side.scheduler.is_waiting and side.scheduler.frees_blocks
    side.copied([*first, *last], 1)
    assert side.scheduler.is_waiting and len(pool.references) == 12  # one rank of two
    side.copied([*first, *last], 1)
    assert not side.scheduler.is_waiting and pool.references == []


def test_blocks_that_are_full_at_a_request_s_end_stay_too_and_are_no_part_of_the_next_step(scheduler: Any) -> None:
    pool = Pool(41)
    side = Side(scheduler, pool, 2 * BLOCK)
    side.step(2 * BLOCK - 1)
    side.request.num_computed_tokens += 1
    first = [1, 21]
    side.end()
    assert side.scheduler.is_waiting
    told = side.step()
    assert blocks(told.stores) == [] and blocks(told.backlog) == [[2], [22]] and not told.fence
    assert pool.references == [1, 2, 21, 22]
    side.copied(told.backlog)
    assert pool.references == first


def test_what_the_engine_would_keep_too_many_of_comes_with_a_later_step_or_is_counted(scheduler: Any) -> None:
    pool = Pool(21)  # stores keep ten of them
    side = Side(scheduler, pool, 10 * BLOCK)
    side.stored = {KEYS[0]}  # costs nothing
    first = side.step(8 * BLOCK).stores
    assert blocks(first) == [[2, 3, 4, 5, 6], [12, 13, 14, 15, 16]]
    assert blocks(side.step(BLOCK // 2).stores) == []
    side.copied(first[:1])
    second = side.step(BLOCK // 2).stores
    assert blocks(second) == [[7, 8], [17, 18]]
    side.end()
    assert side.scheduler.stats.data["blocks_dropped"] == 2
    side.copied([*first, *second])
    assert pool.references == []


def test_a_reset_succeeds_and_makes_the_next_step_wait(scheduler: Any) -> None:
    pool = Pool(41)
    side = Side(scheduler, pool, 2 * BLOCK)
    first = side.step(2 * BLOCK).stores
    side.end()
    assert pool.reset_prefix_cache() and pool.references == []
    assert side.step().fence and not side.step().fence
    side.copied(first)
    assert pool.references == []


def test_stores_that_another_instance_replaces_keep_nothing(scheduler: Any) -> None:
    pool = Pool(41)
    side = Side(scheduler, pool, 2 * BLOCK)
    side.step(2 * BLOCK - 1)
    side.request.num_computed_tokens += 1
    side.end()
    assert pool.references == [1, 2, 21, 22]
    side.scheduler._connection = None
    side.scheduler._leave()
    assert pool.references == [1, 21]  # of what the ranks know of
    assert side.step().backlog == []


def test_a_step_is_due_until_the_ranks_know_the_instance(scheduler: Any) -> None:
    side = Side(scheduler, Pool(11), BLOCK)
    connection, side.scheduler._connection = side.scheduler._connection, None
    assert not side.scheduler.is_waiting  # no node
    assert side.step().spec is None
    side.scheduler._connection = connection
    assert side.scheduler.is_waiting
    assert side.step().spec is SPEC
    assert not side.scheduler.is_waiting
    side.scheduler._spec = SimpleNamespace(id="another")
    assert side.scheduler.is_waiting
