"""Which instance an engine's KV belongs to: everything that changes its bytes, or why they cannot be cached."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from .._identity import digest
from ..session import InstanceSpec
from . import identity
from .layout import Unservable
from .messages import RankLayout
from .places import Share
from .settings import Settings

_FULL = {"FullAttentionSpec", "MLAAttentionSpec"}
_WINDOW = {"SlidingWindowSpec"}


@dataclasses.dataclass(frozen=True)
class Group:
    """One KV group. `window`: tokens that attention looks back, 0: all."""

    name: str
    window: int

    def first_needed(self, tokens: int, block_size: int) -> int:
        """The first block that is needed to go on after `tokens` tokens."""
        return max(0, tokens - self.window + 1) // block_size if self.window else 0


def groups_of(kv_cache_config: Any) -> list[Group]:
    """Unservable: a group of a kind whose blocks cannot be taken by their keys alone."""
    groups = []
    for number, group in enumerate(kv_cache_config.kv_cache_groups):
        spec = group.kv_cache_spec
        inner = list(getattr(spec, "kv_cache_specs", {}).values()) or [spec]
        kinds = {type(each).__name__ for each in inner}
        if group.is_eagle_group:
            raise Unservable(f"KV group {number} is a draft model's")
        if group.host_resident or not group.enable_kv_transfer or not spec.prefix_cacheable:
            raise Unservable(f"KV group {number} ({', '.join(kinds)}) is not one that connectors may cache")
        if kinds <= _FULL:
            groups.append(Group(f"full{number}", 0))
        elif kinds <= _WINDOW and len({each.sliding_window for each in inner}) == 1:
            groups.append(Group(f"window{number}", inner[0].sliding_window))
        else:
            raise Unservable(f"KV group {number} is of kind {', '.join(sorted(kinds))}")
    if not groups:
        raise Unservable("it has no KV cache")
    if not any(group.window == 0 for group in groups):
        raise Unservable("none of its KV groups is of full attention")
    return groups


def block_size_of(kv_cache_config: Any) -> int:
    """Tokens. Unservable: groups or hashes have different sizes."""
    sizes = {group.kv_cache_spec.block_size for group in kv_cache_config.kv_cache_groups}
    if len(sizes) != 1:
        raise Unservable(f"its KV groups have blocks of different sizes, {sorted(sizes)} tokens")
    (size,) = sizes
    if kv_cache_config.hash_block_size not in (None, size):
        raise Unservable(f"blocks have {size} tokens, but are hashed by {kv_cache_config.hash_block_size}")
    return int(size)


def check_engine(config: Any) -> None:
    """Unservable: what is set changes KV in a way that keys do not tell."""
    parallel, cache = config.parallel_config, config.cache_config
    if parallel.pipeline_parallel_size > 1:
        raise Unservable("pipeline parallelism is not supported yet")
    if parallel.decode_context_parallel_size > 1 or parallel.prefill_context_parallel_size > 1:
        raise Unservable("context parallelism is not supported yet")
    if getattr(cache, "calculate_kv_scales", False):
        raise Unservable("calculate_kv_scales gives every engine scales of its own")
    if config.speculative_config is not None:
        raise Unservable("speculative decoding is not supported yet")


def hash_scheme(config: Any) -> str:
    """Algorithm and seed of vLLM's block hashes."""
    return f"{config.cache_config.prefix_caching_hash_algo}:{os.environ.get('PYTHONHASHSEED', 'default')}"


def is_reproducible(config: Any) -> bool:
    """Whether another process hashes the same tokens to the same keys."""
    return "xxhash" not in str(config.cache_config.prefix_caching_hash_algo) or "PYTHONHASHSEED" in os.environ


def parts_of(config: Any, kv_cache_config: Any) -> int:
    """How many ranks hold KV that differs; the others hold copies."""
    return int(config.parallel_config.tensor_parallel_size) // int(kv_cache_config.kv_tp_replicas)


def instance_of(
    config: Any,
    kv_cache_config: Any,
    layout: RankLayout,
    settings: Settings,
    weights: identity.Weights,
    generation: str = "",
    share: Share | None = None,
) -> InstanceSpec:
    """The instance of an engine whose ranks all have `layout`. `generation`: set when the weights may be others than
    `weights`. `share`: what its node has of a block; None: all of it. Unservable: a setting cannot be compared with
    other engines'."""
    model = config.model_config
    groups = groups_of(kv_cache_config)
    parts = parts_of(config, kv_cache_config)
    facts = {
        **identity.settings_of(config, is_told=settings.fingerprint is not None),
        "weights": weights.fingerprint,
        "generation": generation,
        "block_size": block_size_of(kv_cache_config),
        "parts": parts,
        "groups": [[*map(str, dataclasses.astuple(group))] for group in groups],
        "layers": [list(group.layer_names) for group in kv_cache_config.kv_cache_groups],
        "group_bytes": layout.group_bytes,
        "shape": layout.shape,
        "kv_layout": str(kv_cache_config.kv_cache_layout),
        "hash_scheme": hash_scheme(config),
    }
    name = digest(facts)
    share = share or Share(0, parts, parts)
    # In the name alone: where all ranks share a node it is what it was before there were others.
    which = "" if share.is_whole else f"-{share.names[0]}-{share.count}of{parts}"
    return InstanceSpec(
        id=f"vllm-{name[:32]}{which}",
        model=str(model.architecture),  # not where it lies: that is another place on each machine
        dtype=str(config.cache_config.cache_dtype if config.cache_config.cache_dtype != "auto" else model.dtype),
        layout=f"{kv_cache_config.kv_cache_layout}:{layout.shape[:16]}",
        tokens_per_block=block_size_of(kv_cache_config),
        groups={
            group.name: {"parts": dict.fromkeys(share.names, size)}
            for group, size in zip(groups, layout.group_bytes, strict=True)
        },
        hash_scheme=hash_scheme(config),
        fingerprint=name,
        instance_group=settings.instance_group,
    )
