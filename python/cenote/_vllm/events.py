"""KV events: what became visible in the node, moved between its tiers and left it, in vLLM's own format."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from vllm.distributed.kv_events import MEDIUM_CPU, BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys, maybe_convert_block_hash, to_event_extra_keys
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window

from .._near import Near, exists
from ..session import Session
from .model import Group

MEDIUM_DISK = "DISK"

_MOST_BLOCKS = 1 << 17  # announced ones; each takes some 500 bytes where blocks have 32 tokens
_LOOK = 0.25  # seconds between two looks at some of them
_LOOKS = 20  # after so many looks each block was looked at

Described = tuple[bytes, Any]  # a block's key and its BlockStored


class Events:
    """Collected only when vLLM publishes KV events. A node tells nobody what it evicts, so announced blocks are looked
    up in shared memory, some at a time; each is announced for one medium at a time."""

    def __init__(self, config: Any) -> None:
        events = config.kv_events_config
        self._on = events is not None and events.enable_kv_cache_events
        self._new: list[Any] = []
        self._blocks: dict[tuple[int, bytes], tuple[str, bytes]] = {}  # group, key -> medium, packed BlockStored
        self._to_look_at: list[tuple[int, bytes]] = []
        self._next_look = 0.0

    def describe(
        self, request: Any, number: int, kv_cache_config: Any, positions: list[int], block_size: int
    ) -> list[Described] | None:
        """Events for the blocks at `positions`, taken while their request is there."""
        if not self._on:
            return None
        spec = kv_cache_config.kv_cache_groups[number].kv_cache_spec
        hashes, tokens = request.block_hashes, request.all_token_ids
        made = []
        image = 0
        for i in positions:
            start, end = i * block_size, (i + 1) * block_size
            extra, image = generate_block_hash_extra_keys(request, start, end, image)
            event = BlockStored(
                block_hashes=[maybe_convert_block_hash(hashes[i])],
                parent_block_hash=maybe_convert_block_hash(hashes[i - 1]) if i else None,
                token_ids=list(tokens[start:end]),
                block_size=block_size,
                lora_id=None,
                medium=MEDIUM_CPU,
                lora_name=None,
                extra_keys=to_event_extra_keys([extra]),
                group_idx=number,
                kv_cache_spec_kind=get_kv_cache_spec_kind(spec).value,
                kv_cache_spec_sliding_window=get_kv_cache_spec_sliding_window(spec),
            )
            made.append((bytes(hashes[i]), event))
        return made

    def stored(self, described: Sequence[Described]) -> None:
        for key, event in described:
            name = (event.group_idx, key)
            if name in self._blocks:  # it left the node and came back between two looks
                self._remove(name)
            elif len(self._blocks) >= _MOST_BLOCKS:
                self._remove(next(iter(self._blocks)))  # whether it leaves would not be told any more
            self._blocks[name] = (MEDIUM_CPU, msgspec.msgpack.encode(event))
            self._new.append(event)

    def look(self, session: Session, groups: Sequence[Group], near: Near[None] | None = None) -> None:
        """Announces what moved; what is on the engine's device (`near`) counts as in DRAM. Some microseconds, a few
        times a second."""
        now = time.monotonic()
        if not self._blocks or now < self._next_look:
            return
        self._next_look = now + _LOOK
        if not self._to_look_at:
            self._to_look_at = list(self._blocks)
        share = max(64, -(-len(self._blocks) // _LOOKS))
        names, self._to_look_at = self._to_look_at[-share:], self._to_look_at[:-share]
        for number, group in enumerate(groups):
            keys = [key for of, key in names if of == number and (of, key) in self._blocks]
            for key, present in zip(keys, exists(near, session, keys, group.name) if keys else [], strict=True):
                below = not present and session.match([key], group=group.name).reachable == 1
                self._is_now((number, key), MEDIUM_CPU if present else MEDIUM_DISK if below else None)

    def clear(self) -> None:
        """Nothing of what was announced is found any more."""
        for name in list(self._blocks):
            self._remove(name)

    def take(self) -> list[Any]:
        taken, self._new = self._new, []
        return taken

    def _is_now(self, name: tuple[int, bytes], medium: str | None) -> None:
        before, packed = self._blocks[name]
        if medium == before:
            return
        self._remove(name)
        if medium is not None:
            event = msgspec.msgpack.decode(packed, type=BlockStored)
            event.medium = medium
            self._blocks[name] = (medium, packed)
            self._new.append(event)

    def _remove(self, name: tuple[int, bytes]) -> None:
        number, key = name
        medium, _ = self._blocks.pop(name)
        self._new.append(BlockRemoved(block_hashes=[maybe_convert_block_hash(key)], medium=medium, group_idx=number))
