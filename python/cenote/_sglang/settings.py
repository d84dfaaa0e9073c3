"""What a user sets in SGLang's --hicache-storage-backend-extra-config."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Settings:
    """Keys that are not named here are SGLang's or another backend's: they are ignored."""

    socket: str | None = None  # None: $CENOTE_SOCKET, else the runtime directory's
    token: str | None = None
    instance_group: str | None = None
    fingerprint: str | None = None  # of the weights
    deadline: float = 5.0  # seconds, of every call
    hold: float = 5.0  # seconds that pages stay pinned after batch_exists
    hold_pages: int = 4096  # pages of one pool that are pinned so at one time
    device: str | None = None  # whose streams copy, as cenote.Device names it; None: the processor
    gpu_pool: bool = False  # the node's blocks on it (None: the GPU of the engine's KV) are used before those in DRAM
    threads: int = 0  # of a copy; 0: as many as cores, four at most
    prefill_tokens_per_s: float | None = None

    @classmethod
    def read(cls, extra: Mapping[str, Any] | None) -> Settings:
        """ValueError: a value cannot be used; the message names its key."""
        extra = extra or {}
        given: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            value = extra.get(field.name)
            if value is not None:
                given[field.name] = _check(field.name, value)
        return cls(**given)


# key -> least, most, whether only integers
_RANGES: dict[str, tuple[float, float, bool]] = {
    "deadline": (0.01, 60, False),
    "hold": (0, 60, False),
    "hold_pages": (0, 32000, True),
    "threads": (0, 64, True),
    "prefill_tokens_per_s": (0, 1e9, False),
}


def _check(name: str, value: object) -> object:
    if name == "gpu_pool":
        if not isinstance(value, bool):
            raise ValueError(f"hicache-storage-backend-extra-config: {name} is {value!r}; it must be true or false")
        return value
    if name not in _RANGES:
        if not isinstance(value, str):
            raise ValueError(f"hicache-storage-backend-extra-config: {name} is {value!r}; it must be a string")
        return value
    least, most, whole = _RANGES[name]
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        what = "an integer" if whole else "a number"
        raise ValueError(
            f"hicache-storage-backend-extra-config: {name} is {value!r}; it must be {what} from {least:g} to {most:g}"
        )
    return value
