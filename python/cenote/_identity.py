"""A canonical form of an engine's settings: equal where the settings are equal, in every process and on every machine.

Everything counts, but for fields that are left out by name. So a field that nobody thought of keeps engines apart that
could have shared, and never lets one read what another computed differently.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import hashlib
import json
import os
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _weights

LeftOut = Mapping[str, Mapping[str, str]]  # class -> field -> why it changes no KV

# Variables that other libraries read, and that change what is computed.
NUMERIC_VARIABLES = (
    "DNNL_DEFAULT_FPMATH_MODE",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
_MODEL_MARKS = ("config.json", "adapter_config.json")
_NO_SETTINGS = {"_name_or_path", "transformers_version"}  # of a model's configuration: where it was found, who wrote it


class Untold(Exception):
    """A value cannot be told from others; the message says which."""


def left_out(fields_by_reason: Mapping[str, str]) -> dict[str, str]:
    """Field -> reason, from reason -> fields, separated by spaces."""
    table: dict[str, str] = {}
    for reason, fields in fields_by_reason.items():
        for field in fields.split():
            assert field not in table, field
            table[field] = reason
    return table


def digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def fields_of(kind: type) -> list[str]:
    """Of a dataclass or a msgspec Struct; of another class none."""
    if dataclasses.is_dataclass(kind):
        return [each.name for each in dataclasses.fields(kind)]
    return list(getattr(kind, "__struct_fields__", ()))


def canonical(value: Any, skip: LeftOut, where: str, *, opaque: bool = False) -> Any:
    """What JSON can hold. `where`: a name for `value` in messages. Untold: see there; not with `opaque`, where things
    that cannot be compared count by their type alone."""
    return _Form(skip, opaque).of(value, where)


class _Form:
    def __init__(self, skip: LeftOut, opaque: bool) -> None:
        self._skip = skip
        self._opaque = opaque

    def of(self, value: Any, where: str) -> Any:
        if isinstance(value, enum.Enum):
            return f"{type(value).__name__}.{value.name}"
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return repr(value)
        if isinstance(value, str | os.PathLike):
            return _text(os.fspath(value))
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, Mapping):
            pairs = [[self.of(key, where), self.of(each, f"{where}.{key}")] for key, each in value.items()]
            return {"map": sorted(pairs, key=json.dumps)}
        if isinstance(value, collections.abc.Set):
            return {"set": sorted((self.of(each, where) for each in value), key=json.dumps)}
        if isinstance(value, list | tuple):
            return [self.of(each, f"{where}[{i}]") for i, each in enumerate(value)]
        return self._object(value, where)

    def _object(self, value: Any, where: str) -> Any:
        kind = type(value)
        if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) and "<" not in value.__qualname__:
            return f"{value.__module__}.{value.__qualname__}"
        if hasattr(value, "to_json_string"):  # a model's configuration, which has more than its fields
            return _without_places(json.loads(value.to_json_string(use_diff=False)))
        names = fields_of(kind)
        if names:
            without = {name for each in kind.__mro__ for name in self._skip.get(each.__name__, ())}
            counted = [name for name in names if name not in without]
            return {kind.__name__: {name: self.of(getattr(value, name), f"{where}.{name}") for name in counted}}
        if hasattr(value, "model_dump"):
            return {kind.__name__: self.of(value.model_dump(), where)}
        if kind.__module__.partition(".")[0] == "torch" and kind.__name__ in ("dtype", "device"):
            return str(value)
        if callable(getattr(value, "compute_hash", None)):  # vLLM's own protocol for what it cannot look into
            return {kind.__name__: str(value.compute_hash())}
        if self._opaque:
            return {"opaque": f"{kind.__module__}.{kind.__qualname__}"}
        raise Untold(f"{where} is a {kind.__module__}.{kind.__qualname__}, which cannot be compared between engines")


def _text(text: str) -> Any:
    """Files count by what is in them, not by where they lie; so do folders that hold a model or an adapter."""
    if os.sep in text and len(text) < 4096 and "\0" not in text:
        path = Path(text)
        try:
            if path.is_file():
                return {"file": _weights.digest_file(path)}
            if path.is_dir() and any((path / mark).is_file() for mark in _MODEL_MARKS):
                return {"files": _weights.digest_of(_weights.files_of(path))}
        except OSError:
            pass
    return text


def _without_places(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _without_places(each) for key, each in found.items() if key not in _NO_SETTINGS}
    return [_without_places(each) for each in found] if isinstance(found, list) else found
