"""Counters of the adapter: in vLLM's log line, and as Prometheus metrics."""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

# name -> what it counts
COUNTERS = {
    "lookups": "Requests whose prefix was looked up",
    "lookup_seconds": "Seconds that lookups took in the scheduler",
    "blocks_looked_up": "Blocks looked up, beyond what the engine had itself",
    "blocks_offered": "Blocks found and offered to the scheduler",
    "blocks_prefetched": "Blocks offered that came up from a lower tier first",
    "blocks_from_remote": "Blocks offered that came from a tier outside this machine",
    "agreements": "Prefixes on which the nodes of an engine's ranks were to agree",
    "blocks_not_everywhere": "Blocks found on the node of rank 0 and not offered, since another node did not have them",
    "requests_published": "Requests whose blocks were published for another engine",
    "requests_followed": "Requests whose blocks another engine was to compute",
    "blocks_followed": "Blocks of those that came from it",
    "loads_joined": "Requests that waited for another one's load of the same prefix",
    "blocks_loaded": "Blocks copied into the engine, counted by each rank",
    "blocks_loaded_from_device": "Blocks copied into the engine that lay on its device",
    "copies_refused": "Copies of blocks on its device that the device did not take, though it works",
    "bytes_loaded": "Bytes copied into the engine",
    "load_seconds": "Seconds that loads took in the workers",
    "blocks_failed": "Blocks offered that could not be loaded",
    "blocks_stored": "Blocks copied out of the engine, counted by each rank",
    "blocks_stored_on_device": "Blocks copied out of the engine that lie on its device now",
    "bytes_stored": "Bytes copied out of the engine",
    "store_seconds": "Seconds that stores took in the workers",
    "blocks_present": "Blocks that another writer had stored before",
    "blocks_dropped": "Blocks that could not be stored",
    "store_waits": "Steps that waited for stores, since the engine kept their blocks no more",
}


class CenoteStats(KVConnectorStats):
    """Sums by name, since the last call. Not thread-safe."""

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        super().__init__(data=dict(data or {}))

    def add(self, **counted: float) -> None:
        for name, value in counted.items():
            if value:
                self.data[name] = self.data.get(name, 0) + value

    def reset(self) -> None:
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        self.add(**other.data)
        return self

    def reduce(self) -> dict[str, int | float]:
        return {f"cenote {name}": round(value, 6) for name, value in self.data.items()}

    def is_empty(self) -> bool:
        return not self.data


class CenotePromMetrics(KVConnectorPromMetrics):
    """vllm:cenote_<name>_total, a counter each."""

    def __init__(self, config: Any, types: Any, labels: list[str], per_engine: dict[int, list[object]]) -> None:
        super().__init__(config, types, labels, per_engine)
        self._counters: dict[str, dict[int, Any]] = {}
        for name, meaning in COUNTERS.items():
            counter = self._counter_cls(
                name=f"vllm:cenote_{name}_total", documentation=f"{meaning}.", labelnames=labels
            )
            self._counters[name] = {engine: counter.labels(*values) for engine, values in per_engine.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        for name, value in transfer_stats_data.items():
            counter = self._counters.get(name, {}).get(engine_idx)
            if counter is not None:
                counter.inc(value)
