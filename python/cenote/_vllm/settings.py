"""The keys of kv_connector_extra_config."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidArgument


@dataclasses.dataclass(frozen=True)
class Settings:
    """`device` None: the GPU on which the KV tensors are, if they are on one; "sim:0": threads that behave like one,
    for tensors of the CPU. `gpu_pool`: the node's blocks on that device are used before those in DRAM.
    `prefill_tokens_per_s` None: measured. `ranks_per_node` None: as vLLM is started; `sockets`: of the nodes, in
    the order of their ranks, in place of `socket`. `node`: `cluster.name` of the engine's node, which requests
    that were prefilled here are answered with. `handover_deadline`: seconds; None: 20.
    `debug_fail_loads_from_block` None: loads do not fail on purpose."""

    socket: str | None = None
    token: str | None = None
    instance_group: str | None = None
    fingerprint: str | None = None
    device: str | None = None
    gpu_pool: bool = False
    prefill_tokens_per_s: float | None = None
    ranks_per_node: int | None = None
    sockets: tuple[str, ...] | None = None
    node: str | None = None
    handover_deadline: float | None = None
    debug_fail_loads_from_block: int | None = None

    @classmethod
    def read(cls, extra: Mapping[str, Any]) -> Settings:
        """InvalidArgument: an unknown key, or a value of the wrong kind."""
        names = [field.name for field in dataclasses.fields(cls)]
        for key, value in extra.items():
            if key not in names:
                raise InvalidArgument(f"kv_connector_extra_config has no key `{key}`; there is: {', '.join(names)}")
            wanted = _KINDS.get(key, (str,))
            if value is not None and (isinstance(value, bool) != (wanted == (bool,)) or not isinstance(value, wanted)):
                raise InvalidArgument(f"kv_connector_extra_config: `{key}` is {value!r}; want {wanted[-1].__name__}")
        sockets = extra.get("sockets")
        if sockets is not None and not (sockets and all(isinstance(each, str) for each in sockets)):
            raise InvalidArgument(f"kv_connector_extra_config: `sockets` is {sockets!r}; want one path for each node")
        made = cls(**{**extra, "sockets": None if sockets is None else tuple(sockets)})
        for key in ("prefill_tokens_per_s", "ranks_per_node", "handover_deadline", "debug_fail_loads_from_block"):
            if (getattr(made, key) or 0) < 0:
                raise InvalidArgument(f"kv_connector_extra_config: `{key}` is negative")
        return made

    def socket_of(self, node: int) -> str | None:
        """Of one of the nodes that the engine's ranks use."""
        return self.sockets[node] if self.sockets is not None else self.socket


_KINDS: dict[str, tuple[type, ...]] = {
    "gpu_pool": (bool,),
    "prefill_tokens_per_s": (int, float),
    "ranks_per_node": (int,),
    "sockets": (tuple, list),
    "handover_deadline": (int, float),
    "debug_fail_loads_from_block": (int,),
}
