"""What the scheduler's side and the workers' side tell each other; all of it is pickled."""

from __future__ import annotations

import dataclasses

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from ..session import InstanceSpec
from .places import Places


@dataclasses.dataclass(frozen=True)
class RankLayout(KVConnectorHandshakeMetadata):
    """What one rank's KV tensors look like; sent once, when they are there. `by_layer`: it loads while the step is
    computed, each layer before it is needed. `problem` is why they cannot be served. `machine`: that the rank is on.
    `device`: that copies, as the node names it; empty: the processor does."""

    group_bytes: tuple[int, ...] = ()  # of one block, by KV group
    shape: str = ""  # everything about the tensors, the attention and the processor that decides what the bytes mean
    by_layer: bool = False
    problem: str = ""
    machine: str = dataclasses.field(default="", compare=False)
    device: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass
class Load:
    """Blocks of one request to fill, by KV group: (group, keys, the engine's block numbers), of equal lengths. Without
    any group the load has failed before it began."""

    request: str
    groups: list[tuple[int, list[bytes], list[int]]]
    traceparent: str | None = None  # the request's trace context


@dataclasses.dataclass
class Store:
    """Full blocks of one request, which the engine keeps until every rank has copied them."""

    number: int
    group: int
    keys: list[bytes]
    blocks: list[int]


@dataclasses.dataclass(frozen=True)
class Together:
    """Nodes that hold parts of the same blocks. `group`: the name by which they agree. `specs`: each one's instance."""

    group: str
    places: Places
    specs: tuple[InstanceSpec, ...]


@dataclasses.dataclass(frozen=True)
class Ask:
    """How much of a prefix there is, as nodes without rank 0 are asked. `first`: the position of the first key in its
    request. `patience`: seconds, after which nobody waits any more."""

    number: int
    first: int
    keys: list[bytes]
    tokens_per_s: float | None
    patience: float
    traceparent: str | None = None  # the request's trace context


@dataclasses.dataclass
class CenoteMetadata(KVConnectorMetadata):
    """Work of one step. `spec`: the instance that it is for, on rank 0's node. `stores`: of blocks that are full when
    this step is computed; `backlog`: of those that were full before, of requests that are over. `fence`: the engine
    keeps no blocks of stores of earlier steps and of `backlog` any more, so they are copied before this step is
    computed, or not at all. `generation`: how often the scheduler's side has gone over to another instance since it
    began. `together`: set where ranks sit on several nodes; then `asks` are for those without rank 0, and so is
    `ended`, the numbers of ballots whose blocks nobody needs any more. `have_met`: whether the scheduler's side is in
    the group."""

    spec: InstanceSpec | None = None
    loads: list[Load] = dataclasses.field(default_factory=list)
    stores: list[Store] = dataclasses.field(default_factory=list)
    backlog: list[Store] = dataclasses.field(default_factory=list)
    fence: bool = False
    generation: int = 0
    together: Together | None = None
    asks: list[Ask] = dataclasses.field(default_factory=list)
    ended: list[int] = dataclasses.field(default_factory=list)
    have_met: bool = False


@dataclasses.dataclass
class Acknowledged(KVConnectorWorkerMetadata):
    """What ranks have ended. `copied`: number of a store -> ranks that do not read its blocks any more. `pinned`:
    request -> ranks that have pinned what they load by layer. `failed_loads`: the requests whose loads failed.
    `updated`: a rank's weights were changed in place."""

    copied: dict[int, int] = dataclasses.field(default_factory=dict)
    pinned: dict[str, int] = dataclasses.field(default_factory=dict)
    failed_loads: set[str] = dataclasses.field(default_factory=set)
    updated: bool = False

    def aggregate(self, other: KVConnectorWorkerMetadata) -> Acknowledged:
        assert isinstance(other, Acknowledged)
        for number, ranks in other.copied.items():
            self.copied[number] = self.copied.get(number, 0) + ranks
        for request, ranks in other.pinned.items():
            self.pinned[request] = self.pinned.get(request, 0) + ranks
        self.failed_loads |= other.failed_loads
        self.updated |= other.updated
        return self
