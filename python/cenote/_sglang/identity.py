"""The instance in which the pages of a host pool are cached: everything that changes their bytes is in its name."""

from __future__ import annotations

import re
from typing import Any

from .._identity import digest
from ..session import InstanceSpec
from .engine import Engine
from .pages import Pages
from .settings import Settings

# Host pools whose pages are the same on every tensor-parallel rank of a model with latent attention (MLA). All others
# hold a rank's own share.
_REPLICATED = {
    "MLATokenToKVPoolHost",
    "DSAIndexerPoolHost",
    "DeepSeekV4PagedHostPool",
    "DeepSeekV4StateHostPool",
}


def is_replicated(config: Any, host_pool: Any) -> bool:
    """Whether all tensor-parallel ranks hold the same pages in this pool. When in doubt they do not: then the ranks
    share nothing, but never read another's bytes."""
    owners = (host_pool, getattr(host_pool, "device_pool", None))
    sharded = any(
        getattr(each, name, False) for each in owners for name in ("_layer_shard_enabled", "layer_shard_enabled")
    )
    if not config.is_mla_model or sharded:  # sharded: each rank holds other layers
        return False
    return any(each.__name__ in _REPLICATED for each in type(host_pool).__mro__)


def spec_of(config: Any, name: str, pages: Pages, settings: Settings, engine: Engine) -> InstanceSpec:
    """`config`: SGLang's HiCacheStorageConfig; `name`: of the pool."""
    pool = pages.pool
    dtype = str(getattr(pool, "dtype", "")).removeprefix("torch.")
    replicated = is_replicated(config, pool)
    facts = {
        "engine": engine.facts,
        "launch": engine.launch,
        "pool": name,
        "kind": type(pool).__name__,
        "dtype": dtype,
        "layout": pages.layout,
        "page_tokens": pages.tokens,
        "layers": [_plain(getattr(pool, each, None)) for each in ("layer_num", "start_layer", "end_layer")],
        "heads": [_plain(getattr(pool, each, None)) for each in ("head_num", "head_dim", "v_head_dim", "kv_cache_dim")],
        "tp": None if replicated else [config.tp_rank, config.tp_size],
        "pp": [config.pp_rank, config.pp_size],
        "cp": [config.attn_cp_rank, config.attn_cp_size],
        "dcp": [getattr(config, "dcp_rank", 0), getattr(config, "dcp_size", 1)],
    }
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", engine.model)[:60]
    rank = "" if replicated else f".tp{config.tp_rank}-{config.tp_size}"
    return InstanceSpec(
        id=f"sglang.{readable}.{name}{rank}.{digest(facts)[:24]}",
        model=_bounded(engine.model),
        dtype=dtype,
        layout=_bounded(pages.layout),
        tokens_per_block=pages.tokens,
        parts={"page": pages.page_bytes},
        hash_scheme="sglang-sha256",
        fingerprint=settings.fingerprint,
        instance_group=settings.instance_group,
    )


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int | str) else str(value)


def _bounded(text: str) -> str:
    """Names in a spec have at most 255 bytes; the digest in the id stands for all of it."""
    return text.encode()[:255].decode(errors="ignore")
