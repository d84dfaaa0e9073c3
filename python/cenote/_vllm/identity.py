"""What makes the KV of two vLLM engines interchangeable: all that their configuration says, and their weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import vllm
import vllm.envs

from .. import _weights
from .._identity import NUMERIC_VARIABLES, Untold, canonical
from .layout import Unservable
from .left_out import FIELDS, VARIABLES

# Formats that load from the files of the model's folder and from nowhere else.
_FROM_FILES = {
    "auto",
    "bitsandbytes",
    "fastsafetensors",
    "gguf",
    "hf",
    "instanttensor",
    "mistral",
    "npcache",
    "pt",
    "runai_streamer",
    "runai_streamer_sharded",
    "safetensors",
    "sharded_state",
}
_SETTLES = "set `fingerprint` in kv_connector_extra_config to a name for these weights"
# Positional embeddings of these kinds are the same whatever the longest sequence may be.
_STATIC_ROPE = {"default", "linear", "llama3", "yarn", "mrope", "proportional", None}


_CHANGED = "files of the weights changed since this process was started"
_EXTENDED = "a worker extension ({}) may change the weights"


class Weights(NamedTuple):
    """`doubt`: a reason for which the engine may compute with others. Empty: these are the weights that were loaded."""

    fingerprint: str
    doubt: str = ""


def weights_of(config: Any) -> Weights:
    """Reads all files of weights that nobody read before. Unservable: it cannot be told which weights these are."""
    found = _loaded_weights(config)
    extension = config.parallel_config.worker_extension_cls
    return found if found.doubt or not extension else found._replace(doubt=_EXTENDED.format(extension))


def _loaded_weights(config: Any) -> Weights:
    model, loading = config.model_config, str(config.load_config.load_format).lower()
    if "dummy" in loading:  # drawn by each rank for its own part
        parallel = config.parallel_config
        return Weights(f"dummy:{model.seed}:{parallel.tensor_parallel_size}:{parallel.pipeline_parallel_size}")
    if loading not in _FROM_FILES:
        raise Unservable(f"weights of the format {loading} cannot be told from others; {_SETTLES}")
    if model.model_weights:
        raise Unservable(f"the weights come from {model.model_weights}, which cannot be compared; {_SETTLES}")
    elsewhere = _weights.from_elsewhere(model.hf_config.to_dict(), trusts_code=model.trust_remote_code)
    if elsewhere:
        raise Unservable(f"it also loads {elsewhere}, which cannot be compared; {_SETTLES}")
    try:
        folder = _weights.folder_of(model.model, model.revision, config.load_config.download_dir)
        commit = getattr(model.hf_config, "_commit_hash", None)
        if folder.parent.name == "snapshots" and commit and not model.hf_config_path and folder.name != commit:
            raise Unservable(f"the hub's cache has come to hold {folder.name}, but {commit} was loaded: start it again")
        files = _weights.files_of(folder)
        if not _weights.holds_weights(files):
            raise Unservable(f"there are no weight files in {model.model}; {_SETTLES}")
        changed = _weights.changed_after(folder, files, _weights.process_began())
        return Weights(f"files:{_weights.digest_of(files)}", _CHANGED if changed else "")
    except (OSError, _weights.Unreadable) as why:
        raise Unservable(f"its weights cannot be told from others: {why}; {_SETTLES}") from why


def settings_of(config: Any, *, is_told: bool) -> dict[str, Any]:
    """All that the configuration says. `is_told`: the user's fingerprint stands for what cannot be compared.
    Unservable: something cannot be compared."""
    try:
        facts = canonical(config, FIELDS, "vllm_config", opaque=is_told)
        variables = {name: canonical(value, FIELDS, name) for name, value in sorted(_variables().items())}
    except (Untold, _weights.Unreadable) as why:
        raise Unservable(f"{why}; {_SETTLES}") from why
    found = {"vllm": vllm.__version__, "config": facts, "environment": variables, "longest": _longest(config)}
    if config.model_config.using_transformers_backend():  # then it is Transformers that computes
        import transformers

        found["transformers"] = transformers.__version__
    return found


def _variables() -> dict[str, Any]:
    """What vLLM reads from the environment, by its own defaults where nothing is set."""
    found: dict[str, Any] = {name: os.environ[name] for name in NUMERIC_VARIABLES if name in os.environ}
    for name, read in vllm.envs.environment_variables.items():
        if name not in VARIABLES:
            found[name] = read()
    return found


def _longest(config: Any) -> int:
    """The longest sequence, if positions depend on it; else 0."""
    text = config.model_config.hf_text_config
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    nested = [each for each in rope.values() if isinstance(each, Mapping)] or [rope]
    kinds = {each.get("rope_type", each.get("type")) for each in nested}
    return 0 if kinds <= _STATIC_ROPE else int(config.model_config.max_model_len)
