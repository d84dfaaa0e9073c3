"""The engine's blocks that are being stored: a reference in its pool keeps each until all ranks have copied it."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

SHARE = 0.5  # of the pool's blocks that stores may keep
LONGEST = 30.0  # seconds that a store may keep its blocks


@dataclasses.dataclass
class Hold:
    """The blocks of one store. `ranks`: how many have not copied them yet. `start`: a monotonic time."""

    blocks: list[Any]
    ranks: int
    start: float


class Holds:
    """Of the scheduler's thread. Stores are known by their numbers."""

    def __init__(self, ranks: int) -> None:
        """`ranks`: that copy each block."""
        self._ranks = ranks
        self._pool: Any = None
        self._holds: dict[int, Hold] = {}
        self._references: Counter[int] = Counter()  # of stores, by block
        self._fence = False

    def bind(self, pool: Any) -> None:
        """A reset of the pool fails while a block has a reference, and asks no connector: it lets go of these first."""
        self._pool = pool
        plain = pool.reset_prefix_cache

        def reset_prefix_cache() -> bool:
            self.revoke()
            return bool(plain())

        pool.reset_prefix_cache = reset_prefix_cache

    def __len__(self) -> int:
        return len(self._holds)

    @property
    def room(self) -> int:
        """Blocks that stores may keep beyond those that they keep."""
        if self._pool is None:
            return 0
        return max(0, int(SHARE * self._pool.num_gpu_blocks) - len(self._references))

    def add(self, number: int, blocks: Sequence[int]) -> None:
        """The store begins."""
        kept = [self._pool.blocks[each] for each in blocks]
        self._pool.touch(kept)
        self._references.update(blocks)
        self._holds[number] = Hold(kept, self._ranks, time.monotonic())

    def copied(self, number: int, ranks: int) -> None:
        """So many more ranks do not read the blocks of the store any more."""
        hold = self._holds.get(number)
        if hold is None:
            return
        hold.ranks -= ranks
        if hold.ranks <= 0:
            self.drop(number)

    def drop(self, number: int) -> None:
        hold = self._holds.pop(number, None)
        if hold is None:
            return
        for block in hold.blocks:
            self._references[block.block_id] -= 1
            if not self._references[block.block_id]:
                del self._references[block.block_id]
        self._pool.free_blocks(reversed(hold.blocks))  # the last of a prefix is to be evicted first

    def revoke(self) -> None:
        """Keeps nothing any more. Ranks may still copy: the next step waits for them before it is computed."""
        self._fence = self._fence or bool(self._holds)
        for number in list(self._holds):
            self.drop(number)

    def fence(self) -> bool:
        """Whether the step that is built now has to wait for copies of blocks that nothing keeps."""
        if self._holds and time.monotonic() - next(iter(self._holds.values())).start > LONGEST:
            self.revoke()
        fence, self._fence = self._fence, False
        return fence

    @property
    def frees_blocks(self) -> bool:
        """Whether the engine gets a block when some copy is done: one that nothing else has a reference to."""
        return any(self._pool.blocks[each].ref_cnt == count for each, count in self._references.items())
