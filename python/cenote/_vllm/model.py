"""Which instance an engine's KV belongs to: everything that changes its bytes, or why they cannot be cached."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import vllm

from ..session import InstanceSpec
from .layout import Unservable
from .messages import RankLayout
from .settings import Settings

_FULL = {"FullAttentionSpec", "MLAAttentionSpec"}
_WINDOW = {"SlidingWindowSpec"}
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.npz")
_SAMPLES, _SAMPLE_BYTES = 64, 4096  # of each weight file
# Positional embeddings of these kinds are the same whatever the longest sequence may be.
_STATIC_ROPE = {"default", "linear", "llama3", "yarn", "mrope", "proportional", None}


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


def weights_fingerprint(config: Any) -> str:
    """Of what the model was loaded from: the hub's commit, or the weight files. Unservable: neither is known."""
    model = config.model_config
    loading = str(config.load_config.load_format)
    if "dummy" in loading:
        return f"dummy:{model.seed}"
    place = Path(model.model)
    if place.is_dir():
        files = sorted({file for pattern in _WEIGHTS for file in place.glob(pattern)})
        if files:
            return _files_fingerprint(files)
    elif place.is_file():
        return _files_fingerprint([place])
    else:
        commit = getattr(model.hf_config, "_commit_hash", None)
        if commit:
            return f"commit:{commit}"
    raise Unservable("its weights cannot be told from others'; set `fingerprint` in kv_connector_extra_config")


def _files_fingerprint(files: list[Path]) -> str:
    known = hashlib.sha256()
    for file in files:
        target = file.resolve()
        known.update(f"{file.name} {target.stat().st_size} ".encode())
        if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", target.name):  # a hub's blob, named by its content
            known.update(target.name.encode())
        else:  # the time tells of changes between the samples
            known.update(f"{target.stat().st_mtime_ns} ".encode())
            known.update(_samples(target))
    return f"files:{known.hexdigest()}"


def _samples(file: Path) -> bytes:
    taken = hashlib.sha256()
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        for i in range(_SAMPLES):
            opened.seek(size * i // _SAMPLES)
            taken.update(opened.read(_SAMPLE_BYTES))
    return taken.digest()


def hash_scheme(config: Any) -> str:
    """Algorithm and seed of vLLM's block hashes."""
    return f"{config.cache_config.prefix_caching_hash_algo}:{os.environ.get('PYTHONHASHSEED', 'default')}"


def is_reproducible(config: Any) -> bool:
    """Whether another process hashes the same tokens to the same keys."""
    return "xxhash" not in str(config.cache_config.prefix_caching_hash_algo) or "PYTHONHASHSEED" in os.environ


def _longest(config: Any) -> int:
    """The longest sequence, if positions depend on it; else 0."""
    text = config.model_config.hf_text_config
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    nested = [each for each in rope.values() if isinstance(each, Mapping)] or [rope]
    kinds = {each.get("rope_type", each.get("type")) for each in nested}
    return 0 if kinds <= _STATIC_ROPE else int(config.model_config.max_model_len)


def _architecture(hf_config: Any) -> dict[str, Any]:
    """All that the model's configuration says, but for where it was found."""
    found = json.loads(hf_config.to_json_string(use_diff=False))
    return {key: value for key, value in found.items() if key not in ("_name_or_path", "transformers_version")}


def parts_of(config: Any, kv_cache_config: Any) -> int:
    """How many ranks hold KV that differs; the others hold copies."""
    return int(config.parallel_config.tensor_parallel_size) // int(kv_cache_config.kv_tp_replicas)


def instance_of(
    config: Any, kv_cache_config: Any, layout: RankLayout, settings: Settings, generation: str = ""
) -> InstanceSpec:
    """The instance of an engine whose ranks all have `layout`. `generation`: set when the weights may have changed
    since they were loaded. Unservable: it cannot be told which weights these are."""
    model = config.model_config
    groups = groups_of(kv_cache_config)
    fingerprint = f"user:{settings.fingerprint}" if settings.fingerprint else weights_fingerprint(config)
    parts = parts_of(config, kv_cache_config)
    facts = {
        "vllm": vllm.__version__,
        "model": model.model if not Path(model.model).exists() else Path(model.model).name,
        "fingerprint": fingerprint,
        "generation": generation,
        "config": _architecture(model.hf_config),
        "quantization": str(model.quantization),
        "load": str(config.load_config.load_format),
        "dtype": str(model.dtype),
        "cache_dtype": str(config.cache_config.cache_dtype),
        "max_model_len": _longest(config),
        "block_size": block_size_of(kv_cache_config),
        "parts": parts,
        "groups": [[*map(str, dataclasses.astuple(group))] for group in groups],
        "layers": [list(group.layer_names) for group in kv_cache_config.kv_cache_groups],
        "group_bytes": layout.group_bytes,
        "shape": layout.shape,
        "kv_layout": str(kv_cache_config.kv_cache_layout),
        "hash_scheme": hash_scheme(config),
    }
    name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return InstanceSpec(
        id=f"vllm-{name[:32]}",
        model=str(facts["model"]),
        dtype=str(config.cache_config.cache_dtype if config.cache_config.cache_dtype != "auto" else model.dtype),
        layout=f"{kv_cache_config.kv_cache_layout}:{layout.shape[:16]}",
        tokens_per_block=block_size_of(kv_cache_config),
        groups={
            group.name: {"parts": {f"tp{part}": size for part in range(parts)}}
            for group, size in zip(groups, layout.group_bytes, strict=True)
        },
        hash_scheme=hash_scheme(config),
        fingerprint=name,
        instance_group=settings.instance_group,
    )
