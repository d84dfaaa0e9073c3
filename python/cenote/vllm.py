"""The vLLM adapter: --kv-transfer-config '{"kv_connector": "CenoteConnector", "kv_connector_module_path":
"cenote.vllm", "kv_role": "kv_both", "kv_load_failure_policy": "recompute"}'. See docs/vllm.md.

Nothing that goes wrong here reaches the engine: it is a miss, or a load that is reported as failed.
"""

from __future__ import annotations

import atexit
import functools
import logging
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

try:
    import vllm
except ImportError as why:
    raise ImportError("cenote.vllm needs vLLM 0.32; it is not installed in this environment") from why

SUPPORTED = (0, 32)
if tuple(vllm.__version_tuple__[:2]) != SUPPORTED:
    raise ImportError(f"cenote.vllm is made for vLLM 0.32.x, but this is {vllm.__version__}: its interface may differ")

from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorBase_V1,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource  # noqa: E402

from ._vllm.layout import Unservable  # noqa: E402
from ._vllm.media import mark_names  # noqa: E402
from ._vllm.messages import Acknowledged, CenoteMetadata  # noqa: E402
from ._vllm.scheduler import Scheduler  # noqa: E402
from ._vllm.settings import Settings  # noqa: E402
from ._vllm.stats import CenotePromMetrics, CenoteStats  # noqa: E402
from ._vllm.worker import Worker  # noqa: E402

__all__ = ["CenoteConnector"]

logger = logging.getLogger("cenote")
mark_names()  # in each process of vLLM that imports this; that of the requests is one of them

F = TypeVar("F", bound=Callable[..., Any])


def _or(make_default: Callable[[], Any]) -> Callable[[F], F]:
    """What a method gives when it fails; the failure is logged, the engine goes on."""

    def wrap(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: CenoteConnector, *arguments: Any, **more: Any) -> Any:
            try:
                return method(self, *arguments, **more)
            except Exception:
                logger.exception("%s failed; the engine goes on", method.__name__)
                return make_default()

        return guarded  # type: ignore[return-value]

    return wrap


def _log_as_vllm_does() -> None:
    """vLLM sets up a logger for its own modules only."""
    if not logger.handlers:
        theirs = logging.getLogger("vllm")
        logger.handlers = list(theirs.handlers)
        logger.setLevel(theirs.getEffectiveLevel())
        logger.propagate = theirs.propagate
        logger.addFilter(_with_name)


def _with_name(record: logging.LogRecord) -> bool:
    """vLLM's lines name files, not loggers: nobody would find ours among them."""
    record.msg = f"cenote: {record.msg}"
    return True


def _nothing() -> None:
    return None


class CenoteConnector(KVConnectorBase_V1, SupportsHMA):
    """One object in the scheduler's process, one in each worker's."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        _log_as_vllm_does()
        settings = Settings.read(self._kv_transfer_config.kv_connector_extra_config or {})
        self._scheduler: Scheduler | None = None
        self._worker: Worker | None = None
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = Scheduler(vllm_config, kv_cache_config, settings)
        else:
            from vllm.distributed.parallel_state import get_tp_group

            self._worker = Worker(vllm_config, kv_cache_config, settings, get_tp_group().rank_in_group)
        this = weakref.ref(self)  # an engine that is not shut down still flushes when its process ends
        atexit.register(lambda: (lambda alive: alive and alive.shutdown())(this()))

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # a cache: what is lost is computed again

    @_or(_nothing)
    def shutdown(self) -> None:
        scheduler, self._scheduler = self._scheduler, None
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
        if scheduler is not None:
            scheduler.close()

    # ---- worker

    @_or(_nothing)
    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        if self._worker is not None:
            self._worker.register(kv_caches)

    def get_handshake_metadata(self) -> Any:
        return self._worker.handshake() if self._worker is not None else None

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        super().bind_connector_metadata(connector_metadata)
        self._step_begins(connector_metadata)

    @_or(_nothing)
    def _step_begins(self, metadata: CenoteMetadata) -> None:
        if self._worker is not None:
            self._worker.step_begins(metadata)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        if self._worker is not None:
            metadata = self._get_connector_metadata()
            assert isinstance(metadata, CenoteMetadata)
            self._worker.load(metadata)

    def wait_for_layer_load(self, layer_name: str) -> None:
        if self._worker is not None:  # without a device no request runs before all of its blocks are loaded
            self._worker.layer_needed(layer_name)

    @_or(_nothing)
    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        if self._worker is not None:  # without a device all layers are copied together, after the step
            self._worker.layer_computed(layer_name)

    @_or(_nothing)
    def wait_for_save(self) -> None:
        if self._worker is not None:  # it waits for nothing: the engine keeps the blocks until they are copied
            self._worker.step_computed()

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        if self._worker is None:
            return KVConnectorTransferResults()
        loaded, failed = self._worker.results()
        return KVConnectorTransferResults(finished_recving=loaded, failed_recving=failed)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        results = self.get_transfer_results(finished_req_ids)
        return results.finished_sending, results.finished_recving

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._worker.bad_blocks() if self._worker is not None else set()

    @_or(_nothing)
    def build_connector_worker_meta(self) -> Acknowledged | None:
        return self._worker.acknowledged() if self._worker is not None else None

    @_or(_nothing)
    def get_kv_connector_stats(self) -> CenoteStats | None:
        if self._worker is not None:
            return self._worker.taken_stats()
        return self._scheduler.taken_stats() if self._scheduler is not None else None

    # ---- scheduler

    @_or(_nothing)
    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], Any]) -> None:
        if self._scheduler is None:
            return
        try:
            self._scheduler.begin(metadata)
        except Unservable as why:
            logger.error("%s is not cached: %s", self._vllm_config.model_config.model, str(why))

    @_or(_nothing)
    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        if self._scheduler is not None:
            self._scheduler.bind_pool(gpu_block_pool)

    @_or(_nothing)
    def on_new_request(self, request: Any) -> None:
        if self._scheduler is not None:
            self._scheduler.added(request)

    @_or(lambda: (0, False))
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        if self._scheduler is None:
            return 0, False
        return self._scheduler.match(request, num_computed_tokens)

    @_or(_nothing)
    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if self._scheduler is not None:
            self._scheduler.allocated(request, blocks, num_external_tokens)

    @_or(dict)
    def get_external_cache_hit_sources(self, request: Any, num_external_tokens: int) -> dict[CacheHitSource, int]:
        return self._scheduler.sources(request, num_external_tokens) if self._scheduler is not None else {}

    def build_connector_meta(self, scheduler_output: Any) -> CenoteMetadata:
        return self._scheduler.build(scheduler_output) if self._scheduler is not None else CenoteMetadata()

    @_or(_nothing)
    def update_connector_output(self, connector_output: Any) -> None:
        if self._scheduler is not None:
            self._scheduler.acknowledged(
                connector_output.finished_recving or (), connector_output.kv_connector_worker_meta
            )

    @_or(lambda: (False, None))
    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        if self._scheduler is None:
            return False, None
        answer = self._scheduler.answer_of(request)
        self._scheduler.finished(request, block_ids)
        return False, answer  # what is stored of its blocks has references in the engine's pool

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    @_or(tuple)
    def take_events(self) -> Iterable[Any]:
        """Called at the end of each step. None: a node publishes itself what it has."""
        if self._scheduler is not None:
            self._scheduler.step_ended()
        return ()

    @_or(lambda: False)
    def has_pending_block_frees(self) -> bool:
        return self._scheduler is not None and self._scheduler.frees_blocks

    def has_pending_push_work(self) -> bool:
        return self._scheduler is not None and self._scheduler.is_waiting

    @_or(lambda: False)
    def reset_cache(self) -> bool | None:
        return self._scheduler.reset() if self._scheduler is not None else True

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        return True  # what waits for a layer, and saves it, is no part of a graph

    # ---- metrics

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> CenoteStats:
        return CenoteStats(data)

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> CenotePromMetrics:
        return CenotePromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)
