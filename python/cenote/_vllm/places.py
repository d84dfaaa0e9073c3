"""Which ranks of an engine share a node, and so which parts of a block that node can have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .layout import Unservable
from .settings import Settings

_MACHINE = Path("/proc/sys/kernel/random/boot_id")  # the same in all containers of a machine


@dataclasses.dataclass(frozen=True)
class Share:
    """The parts of a block that one node has: `count` of `parts`, from `first` on."""

    first: int
    count: int
    parts: int

    @property
    def is_whole(self) -> bool:
        return self.count == self.parts

    @property
    def names(self) -> list[str]:
        return [f"tp{part}" for part in range(self.first, self.first + self.count)]


@dataclasses.dataclass(frozen=True)
class Places:
    """`ranks` ranks, each `per_node` of which in turn share a node. `copies`: ranks in turn that hold the same KV."""

    ranks: int
    per_node: int
    copies: int = 1

    @property
    def nodes(self) -> int:
        return self.ranks // self.per_node

    def node_of(self, rank: int) -> int:
        return rank // self.per_node

    def is_first(self, rank: int) -> bool:
        """Whether this rank speaks for its node."""
        return rank % self.per_node == 0

    def part_of(self, rank: int) -> str:
        return f"tp{rank // self.copies}"

    def writes(self, rank: int) -> bool:
        """Whether this rank writes its part: of those on a node that hold the same, the first."""
        return rank % self.copies == 0 or self.is_first(rank)

    def share_of(self, node: int) -> Share:
        first = node * self.per_node
        parts = range(first // self.copies, (first + self.per_node - 1) // self.copies + 1)
        return Share(parts[0], len(parts), self.ranks // self.copies)


def machine() -> str:
    """The same for all processes of a machine; empty: unknown."""
    try:
        return _MACHINE.read_text().strip()
    except OSError:
        return ""


def places_of(parallel: Any, copies: int, settings: Settings, machines: Mapping[int, str]) -> Places:
    """What the user says counts, then vLLM's number of nodes, then on which of the `machines` each rank is.

    Unservable: nodes have different numbers of ranks.
    """
    ranks = int(parallel.tensor_parallel_size)
    told = len(settings.sockets or ())
    if settings.ranks_per_node is not None:
        per_node, said = settings.ranks_per_node, f"`ranks_per_node` is {settings.ranks_per_node}"
        if told and told * per_node != ranks:
            raise Unservable(f"`sockets` names {told} nodes and {said}, but there are {ranks} ranks")
    elif told:
        per_node, said = ranks // told, f"`sockets` names {told} nodes"
    elif int(parallel.nnodes_within_dp) > 1:
        per_node, said = int(parallel.local_world_size), f"vLLM has {parallel.nnodes_within_dp} nodes"
    else:
        runs = _runs([machines.get(rank, "") for rank in range(ranks)])
        per_node, said = runs[0], f"the machines have {', '.join(map(str, runs))} ranks in turn"
        if len(set(runs)) > 1:
            raise Unservable(f"{said}; each must have as many as the others")
    if not 0 < per_node <= ranks or ranks % per_node or (told and told * per_node != ranks):
        raise Unservable(f"{said}, but there are {ranks} ranks, and each node must have as many as the others")
    return Places(ranks, per_node, copies)


def _runs(machines: Sequence[str]) -> list[int]:
    """How many ranks in turn are on the same machine."""
    runs: list[int] = []
    for number, each in enumerate(machines):
        if number and each == machines[number - 1]:
            runs[-1] += 1
        else:
            runs.append(1)
    return runs
