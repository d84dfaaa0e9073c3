"""KV events: what became visible in the node, in vLLM's own format."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_events import MEDIUM_CPU, BlockStored
from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys, maybe_convert_block_hash, to_event_extra_keys
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window


class Events:
    """Collected only when vLLM publishes KV events."""

    def __init__(self, config: Any) -> None:
        events = config.kv_events_config
        self._on = events is not None and events.enable_kv_cache_events
        self._new: list[Any] = []

    def describe(
        self, request: Any, number: int, kv_cache_config: Any, positions: list[int], block_size: int
    ) -> list[Any] | None:
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
            made.append(
                BlockStored(
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
            )
        return made

    def stored(self, described: list[Any]) -> None:
        self._new += described

    def take(self) -> list[Any]:
        taken, self._new = self._new, []
        return taken
