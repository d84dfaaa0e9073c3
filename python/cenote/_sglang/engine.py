"""What makes the KV of two SGLang engines interchangeable: their server arguments, and their weights.

A storage backend is told little: a model's name, ranks. It runs in the scheduler's process, where SGLang's arguments
can be seen.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .. import _weights
from .._identity import NUMERIC_VARIABLES, Untold, canonical, digest, fields_of
from .._updates import Updates
from .left_out import FIELDS, is_left_out
from .settings import Settings

logger = logging.getLogger("cenote.sglang")

# Formats that load from the files of the model's folder and from nowhere else.
_FROM_FILES = {
    "auto",
    "bitsandbytes",
    "fastsafetensors",
    "gguf",
    "instanttensor",
    "layered",
    "mistral",
    "npcache",
    "pt",
    "runai_streamer",
    "safetensors",
    "sharded_state",
}
_ELSEWHERE = (
    "encoder_urls",
    "kt_weight_path",
    "modelopt_checkpoint_restore_path",
    "uno_lora_path",
)  # more that KV is made of
_ADAPTER = ("lora_name", "lora_path")
_SETTLES = "set `fingerprint` in the extra config to a name for these weights and settings"


UPDATES = Updates()  # of this process
_UPDATING = (
    "begin_weight_update",
    "end_weight_update",
    "load_weights_from_distributed",
    "update_weights_from_disk",
    "update_weights_from_ipc",
    "update_weights_from_tensor",
)


class Unshareable(Exception):
    """Why nothing of this engine may be cached; the message names the key that settles it."""


class Engine(NamedTuple):
    """`facts`: all that counts, for JSON. `model`: to be read by people; the same wherever the facts are. `launch`: set
    where files of the weights changed since the engine was started; the same on all its ranks, and on no other's."""

    facts: dict[str, Any]
    model: str
    launch: str = ""


def engine_of(settings: Settings) -> Engine:
    """Of this process; reads all files of weights that nobody read before. Unshareable: see there."""
    try:
        return _told(settings.fingerprint) if settings.fingerprint is not None else _seen()
    except (OSError, _weights.Unreadable, Untold) as why:
        raise Unshareable(f"this engine cannot be told from others: {why}; {_SETTLES}") from why


def _told(fingerprint: str) -> Engine:
    arguments = arguments_of()
    said = None if arguments is None else _said(arguments, is_told=True)
    return Engine({"fingerprint": fingerprint, "arguments": said, "environment": _environment()}, fingerprint)


def _seen() -> Engine:
    arguments = arguments_of()
    if arguments is None:
        raise Untold("SGLang's server arguments are not to be seen here")
    if UPDATES.count or value_of(arguments, "weight_version") != _weight_version(arguments):
        raise Untold("its weights were updated in place, and so are not those of its files")
    weights, model, loaded = _weights_of(arguments)
    beside = _beside(arguments)
    facts = {
        "arguments": _said(arguments, is_told=False),
        "environment": _environment(),
        "weights": weights,
        "beside": {name: _digest(folder) for name, folder in beside.items()},
    }
    changed = any(map(_changed_since_start, [*loaded, *beside.values()]))
    return Engine(facts, model, _launch(arguments) if changed else "")


def arguments_of() -> Any:
    """SGLang's server arguments; None: they are not set in this process."""
    try:
        from sglang.srt.runtime_context import get_server_args

        return get_server_args()
    except (ImportError, ValueError):
        return None


def value_of(arguments: Any, field: str) -> Any:
    """As SGLang resolved it."""
    from sglang.srt.arg_groups.overrides import resolution_result

    return resolution_result(arguments, field)


def _said(arguments: Any, *, is_told: bool) -> dict[str, Any]:
    import sglang

    counted = [name for name in fields_of(type(arguments)) if name not in FIELDS["ServerArgs"]]
    found = {name: canonical(value_of(arguments, name), FIELDS, name, opaque=is_told) for name in counted}
    return {"sglang": str(sglang.__version__), **found}


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in sorted(os.environ.items()) if name in NUMERIC_VARIABLES or not is_left_out(name)
    }


def _weight_version(arguments: Any) -> Any:
    """The present one."""
    try:
        from sglang.srt.runtime_context import get_serving

        return get_serving().weight_version
    except (ImportError, ValueError, AttributeError):
        return value_of(arguments, "weight_version")


def _weights_of(arguments: Any) -> tuple[str, str, list[Path]]:
    """Their fingerprint, what model it is, and the folder that they were loaded from, if any."""
    for name in _ELSEWHERE:
        if value_of(arguments, name):
            raise Untold(f"--{name.replace('_', '-')} is set, and what comes from there cannot be compared")
    if value_of(arguments, "weight_cache_mode") != "off":
        raise Untold("the weights come from a weight cache")
    loading = value_of(arguments, "load_format")
    loading = str(getattr(loading, "value", loading)).lower()
    folder = _folder(arguments, "model_path", "revision")
    config = _config_of(folder)
    model = str((config.get("architectures") or ["model"])[0])
    if loading == "dummy":  # drawn by each rank for its own part
        drawn = [value_of(arguments, each) for each in ("random_seed", "tp_size", "pp_size", "ep_size")]
        return json.dumps(["dummy", _digest(folder, said_only=True), *drawn]), model, []
    if loading not in _FROM_FILES:
        raise Untold(f"weights of the format {loading} cannot be compared")
    with contextlib.suppress(ValueError, TypeError):
        config |= json.loads(value_of(arguments, "json_model_override_args") or "{}")
    elsewhere = _weights.from_elsewhere(config, trusts_code=bool(value_of(arguments, "trust_remote_code")))
    if elsewhere:
        raise Untold(f"it also loads {elsewhere}, which cannot be compared")
    return _digest(folder), model, [folder]


def _changed_since_start(folder: Path) -> bool:
    return _weights.changed_after(folder, _weights.files_of(folder), _weights.process_began())


def _launch(arguments: Any) -> str:
    parent = os.getppid()
    began = round(_weights.process_began(parent))
    return digest(
        [parent, began, *(str(value_of(arguments, each)) for each in ("port", "nccl_port", "dist_init_addr"))]
    )


def _beside(arguments: Any) -> dict[str, Path]:
    """The folders of what is loaded beside the model."""
    found = {}
    if value_of(arguments, "speculative_draft_model_path"):
        loading = str(value_of(arguments, "speculative_draft_load_format") or "auto").lower()
        if loading not in _FROM_FILES | {"dummy"}:
            raise Untold(f"draft weights of the format {loading} cannot be compared")
        found["draft"] = _folder(arguments, "speculative_draft_model_path", "speculative_draft_model_revision")
    for each in value_of(arguments, "lora_paths") or ():
        said = each if isinstance(each, Mapping) else {name: getattr(each, name, None) for name in _ADAPTER}
        name, path = (said.get(each) for each in _ADAPTER)
        found[f"adapter {name}"] = _weights.folder_of(str(path), None, None)
    return found


def _folder(arguments: Any, path: str, revision: str) -> Path:
    cache = value_of(arguments, "download_dir")
    return _weights.folder_of(str(value_of(arguments, path)), value_of(arguments, revision), cache)


def _digest(folder: Path, *, said_only: bool = False) -> str:
    files = _weights.files_of(folder)
    if not said_only and not _weights.holds_weights(files):
        raise Untold(f"there are no weight files in {folder}")
    return _weights.digest_of([each for each in files if not said_only or each.path.suffix == ".json"])


def _config_of(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def watch_updates() -> None:
    """From now on updates of weights in place are counted. The engine's own model is loaded by now."""
    try:
        import torch
        from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager
        from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
        from sglang.srt.model_loader.loader import BaseModelLoader

        UPDATES.watch(WeightUpdater, _UPDATING)
        UPDATES.watch(SchedulerWeightUpdaterManager, {"release_memory_occupation": _loses_weights})
        UPDATES.watch_models(torch.nn.Module, BaseModelLoader)
    except (ImportError, AttributeError) as why:
        logger.warning("not all updates of weights in place will be noticed: %s", str(why))


def _loses_weights(request: Any) -> bool:
    """Whether a release of memory gives the weights up, and keeps no copy of them."""
    if request.tags and "weights" not in request.tags:
        return False
    arguments = arguments_of()
    return arguments is None or not value_of(arguments, "enable_weights_cpu_backup")
