"""Where the pages of an SGLang host pool lie in memory.

A page is several objects (K and V, or one of each layer). In a block they lie back to back in the order of the pool's
own flat page, so that a page means the same bytes whichever of SGLang's surfaces moved it.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from .._near import name_of

Words = NDArray[np.uint64]


class Unsupported(Exception):
    """Pages of this pool cannot be moved; the message names the pool and why."""


class Places(NamedTuple):
    """Pages in memory: `addresses[page, object]`, and the bytes of each object of a page."""

    addresses: Words
    sizes: Words

    def __len__(self) -> int:
        return len(self.addresses)

    def pick(self, pages: Any) -> Places:
        """A slice, or a list of numbers."""
        return Places(self.addresses[pages], self.sizes)

    @property
    def page_bytes(self) -> int:
        return int(self.sizes.sum())

    def offsets(self) -> Words:
        """Where each object starts in a block."""
        return cast(Words, np.cumsum(self.sizes, dtype=np.uint64) - self.sizes)


def gpu_of(pool: Any) -> str | None:
    """The GPU on which the KV lies that a host pool is for; None: on none, or the pool does not show it."""
    for owner in (getattr(pool, "device_pool", None), pool):
        for value in getattr(owner, "__dict__", {}).values():
            for each in value if isinstance(value, list | tuple) else (value,):
                place = getattr(each, "device", None)  # of pools "cuda", of tensors with its number
                if getattr(place, "type", None) == "cuda":
                    return name_of(place)
    return None


class Pages:
    """The pages of one host pool. Thread-safe."""

    def __init__(self, pool: Any) -> None:
        """Unsupported: the pool offers neither the places of its pages nor flat pages."""
        self.pool = pool
        # One page of the cache may be several slots per token here: the widened page of context-parallel decoding.
        self.tokens = int(getattr(pool, "logical_page_size", None) or getattr(pool, "page_size", None) or 1)
        self._order: list[int] | None = None
        self._rule: _Rule | None = None
        try:
            first = self._ask(np.arange(self.tokens))
        except (NotImplementedError, ValueError, AttributeError, AssertionError, KeyError) as why:
            self._take_flat(why)
        else:
            self.in_place = True
            self._order = _flat_order(pool, first.addresses.shape[1])
            self.sizes = self._sorted(first).sizes
            self._rule = _Rule.learn(self)
        self.page_bytes = int(self.sizes.sum())

    def _take_flat(self, why: Exception) -> None:
        """Pages that cannot be addressed are moved by way of a flat copy."""
        try:
            page = self.pool.get_dummy_flat_data_page()
        except Exception:
            kind, layout = type(self.pool).__name__, getattr(self.pool, "layout", "?")
            raise Unsupported(f"a {kind} of layout {layout} does not say where its pages are: {why}") from why
        self.in_place = False
        self.sizes = np.array([page.numel() * page.element_size()], np.uint64)

    @property
    def layout(self) -> str:
        """How a block of this pool is composed; equal for pools whose pages are interchangeable in form."""
        runs: list[list[int]] = []
        for size in self.sizes.tolist():
            if runs and runs[-1][1] == size:
                runs[-1][0] += 1
            else:
                runs.append([1, size])
        objects = "+".join(f"{count}x{size}" for count, size in runs)
        return f"{getattr(self.pool, 'layout', '?')}:{'' if self.in_place else 'flat:'}{objects}"

    def starts(self, indices: Any) -> NDArray[np.int64]:
        """The first slot of each page of `indices`, a tensor of the slots of whole pages."""
        return cast("NDArray[np.int64]", indices.detach().cpu().numpy()[:: self.tokens])

    def places(self, indices: Any) -> Places:
        """Of the pages of `indices`; for pools that are `in_place`."""
        starts = self.starts(indices)
        if self._rule is not None and self._rule.holds(self.pool, starts):
            return Places(self._rule.addresses(starts), self.sizes)
        return self._sorted(self._ask(indices))

    def _ask(self, indices: Any) -> Places:
        """What the pool says, in its own order."""
        import torch  # SGLang's; not needed to import this module

        if not isinstance(indices, torch.Tensor):
            indices = torch.from_numpy(indices)
        pages = len(indices) // self.tokens
        addresses, sizes = self.pool.get_page_buffer_meta(indices)
        table = np.array(addresses, np.uint64).reshape(pages, -1)
        size_table = np.array(sizes, np.uint64).reshape(pages, -1)
        if table.shape != size_table.shape or table.size == 0 or (size_table != size_table[0]).any():
            raise ValueError("the pages of the pool are of different kinds")
        return Places(table, size_table[0])

    def _sorted(self, places: Places) -> Places:
        if self._order is None:
            return places
        return Places(places.addresses[:, self._order], places.sizes[self._order])


def _flat_order(pool: Any, objects: int) -> list[int] | None:
    """Pools with a buffer of K and V by layers name the K and V of a layer in turn; their flat page has all K first."""
    if getattr(pool, "layout", "") != "layer_first" or objects != 2 * getattr(pool, "layer_num", 0):
        return None
    if not (hasattr(pool, "k_buffer") and hasattr(pool, "v_buffer")):
        return None
    return [*range(0, objects, 2), *range(1, objects, 2)]


class _Rule:
    """Pages at equal distances, as in every pool that is one tensor: to ask the pool for many costs more than to copy
    some layouts. Learnt from the pool's own answers, and given up when its tensor is another one."""

    def __init__(self, buffer: Any, base: Words, stride: Words, pages: int, tokens: int) -> None:
        self._buffer = weakref.ref(buffer)
        self._base = base
        self._stride = stride
        self._end = pages * tokens
        self._tokens = tokens

    @classmethod
    def learn(cls, pages: Pages) -> _Rule | None:
        pool, tokens = pages.pool, pages.tokens
        buffer = getattr(pool, "kv_buffer", None)
        count = int(getattr(pool, "page_num", 0))
        if not hasattr(buffer, "data_ptr") or getattr(pool, "shared_allocation_domain", None) is not None or count < 4:
            return None
        probes = np.unique(np.array([0, 1, 2, count // 3, count // 2, count - 2, count - 1]))
        slots = (probes[:, None] * tokens + np.arange(tokens)).reshape(-1)
        try:
            said = pages._sorted(pages._ask(slots)).addresses
        except Exception:
            return None
        rule = cls(buffer, said[0], said[1] - said[0], count, tokens)
        return rule if (rule.addresses(probes * tokens) == said).all() else None

    def holds(self, pool: Any, starts: NDArray[np.int64]) -> bool:
        """Whether it may be used for these pages."""
        if pool.kv_buffer is None or pool.kv_buffer is not self._buffer():
            return False
        return bool((starts % self._tokens == 0).all() and (starts >= 0).all() and (starts < self._end).all())

    def addresses(self, starts: NDArray[np.int64]) -> Words:
        numbers = (starts // self._tokens).astype(np.uint64)
        return cast(Words, self._base + numbers[:, None] * self._stride)
