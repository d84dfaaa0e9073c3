"""Blocks of vLLM's pool that are being stored have references, not too many and not for too long. Needs no vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from cenote._vllm import holds as module
from cenote._vllm.holds import Holds


class Pool:
    """As vLLM's BlockPool. Block 0 is the null block."""

    def __init__(self, size: int) -> None:
        self.num_gpu_blocks = size
        self.blocks = [SimpleNamespace(block_id=i, ref_cnt=int(i == 0)) for i in range(size)]
        self.freed: list[int] = []

    def touch(self, blocks: Sequence[Any]) -> None:
        for block in blocks:
            block.ref_cnt += 1

    def free_blocks(self, blocks: Iterable[Any]) -> None:
        for block in blocks:
            assert block.ref_cnt > 0
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                self.freed.append(block.block_id)

    def reset_prefix_cache(self) -> bool:
        return self.references == []

    @property
    def references(self) -> list[int]:
        return [block.block_id for block in self.blocks[1:] if block.ref_cnt]

    def computes(self, *blocks: int) -> None:
        """A request has them."""
        self.touch([self.blocks[each] for each in blocks])

    def ends(self, *blocks: int) -> None:
        """It is over, or preempted, or its window has passed them."""
        self.free_blocks([self.blocks[each] for each in blocks])


def make_holds(size: int = 10, ranks: int = 1) -> tuple[Pool, Holds]:
    pool, holds = Pool(size), Holds(ranks)
    holds.bind(pool)
    return pool, holds


def test_a_block_is_kept_until_every_rank_has_copied_it() -> None:
    pool, holds = make_holds(ranks=3)
    pool.computes(1, 2, 3)
    holds.add(7, [1, 2])
    holds.add(8, [2])  # in two stores
    pool.ends(1, 2, 3)
    assert pool.references == [1, 2]
    holds.copied(7, 2)
    assert pool.references == [1, 2] and len(holds) == 2
    holds.copied(7, 1)
    assert pool.references == [2]
    holds.copied(8, 3)
    holds.copied(8, 3)  # what is over does not count
    holds.copied(9, 3)
    assert pool.references == [] and not holds
    assert not holds.fence()


def test_the_tail_of_a_prefix_is_evicted_first() -> None:
    pool, holds = make_holds()
    pool.computes(3, 4, 5)
    holds.add(1, [3, 4, 5])
    pool.ends(3, 4, 5)
    holds.copied(1, 1)
    assert pool.freed == [5, 4, 3]


def test_stores_keep_at_most_their_share_of_the_pool() -> None:
    pool, holds = make_holds(size=10)
    assert Holds(1).room == 0  # of no pool
    assert holds.room == module.SHARE * 10 == 5
    pool.computes(1, 2, 3)
    holds.add(1, [1, 2])
    holds.add(2, [2, 3])
    assert holds.room == 2
    holds.copied(1, 1)
    assert holds.room == 3
    holds.copied(2, 1)
    assert holds.room == 5


def test_the_engine_gets_blocks_back_only_where_nothing_else_has_them() -> None:
    pool, holds = make_holds()
    assert not holds.frees_blocks
    pool.computes(1, 2)
    holds.add(1, [1, 2])
    holds.add(2, [2])
    assert not holds.frees_blocks  # their request goes on: it has to be preempted for them
    pool.ends(2)
    assert holds.frees_blocks
    holds.copied(1, 1)
    assert holds.frees_blocks
    holds.copied(2, 1)
    assert not holds.frees_blocks
    pool.ends(1)
    assert pool.references == []


def test_a_reset_of_the_pool_succeeds_while_stores_keep_blocks_and_the_next_step_waits_for_them() -> None:
    pool, holds = make_holds()
    assert pool.reset_prefix_cache() and not holds.fence()
    pool.computes(1, 2)
    holds.add(1, [1, 2])
    assert not pool.reset_prefix_cache()  # of a request that goes on
    pool.ends(1, 2)
    assert holds.fence() and not holds.fence()
    pool.computes(3)
    holds.add(2, [3])
    pool.ends(3)
    assert pool.reset_prefix_cache()
    assert pool.references == [] and not holds
    assert holds.fence()
    holds.copied(2, 1)  # comes later
    assert pool.references == [] and pool.freed[-1] == 3


def test_a_store_that_no_rank_ends_keeps_its_blocks_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    pool, holds = make_holds(ranks=2)
    pool.computes(1)
    holds.add(1, [1])
    pool.ends(1)
    holds.copied(1, 1)
    now += module.LONGEST
    assert not holds.fence() and pool.references == [1]
    now += 1
    assert holds.fence() and pool.references == []
