"""A worker's side: copies blocks between the engine's KV tensors and the node.

Loads run in a thread of their own, and stores in another one: the engine keeps the blocks until they are copied, so no
step waits for a store.

With a device its streams copy. If there is one KV group, loads belong to the step that needs them: each layer waits for
its own copy only, and what a step computes is saved layer by layer as it goes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import queue
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._full_node import FullNode
from .._near import DEADLINE, WITHOUT_DEVICE, Near, Run, Taken, acquire
from .._updates import Condition, Updates, unconditional
from ..blocks import PRESENT, Block, Held
from ..device import DeviceLost, Event
from ..errors import CenoteError, DeadlineExceeded, NoSpace
from ..session import InstanceSpec, Session, Slot
from . import model
from .connection import Connection
from .layout import GroupLayout, Unservable
from .messages import Acknowledged, CenoteMetadata, Load, RankLayout, Store
from .pinning import Pinning
from .places import Places, machine
from .saving import Blanks, Reservation, Reserved, Save, each_once
from .settings import Settings
from .spans import LoadSpan
from .stats import CenoteStats
from .streams import Streams, streams_for
from .voter import Voter

logger = logging.getLogger("cenote")

_BATCH = 256  # blocks of one reservation or pin
_MAX_PINS = 8192
_MAX_PINS_BY_LAYER = 1 << 16  # as many as the scheduler's side offers: all loads of a step are pinned at once
_DEADLINE = 5.0  # seconds, of calls that need the node
_ROOM_PATIENCE = 1.0  # seconds that the engine keeps blocks for which the node gives no room
_FENCE_PATIENCE = 1.0  # seconds that a step waits for copies of blocks that the engine does not keep any more
_LOAD_PATIENCE = 1.0  # seconds that a step waits for the pins of what it loads: longer than a worker's restart
_FLUSH = 5.0  # seconds that a shutdown waits for what is under way


@dataclasses.dataclass
class LayerLoads:
    """The loads of a step by layer. `counts`: blocks of each that are on their way."""

    loads: list[Load]
    counts: list[int]
    events: list[list[tuple[Streams, Event]]]  # of each layer; none: nothing is on its way
    streams: list[Streams] = dataclasses.field(default_factory=list)  # in which something is, or was
    near: int = 0  # blocks of them that come from the device
    waited: float = 0.0  # seconds, by the engine
    spec: InstanceSpec | None = None
    begin: int = 0  # nanoseconds since 1970


LoadJob = tuple[InstanceSpec | None, Load | LoadSpan]


class _Refused(Exception):
    """The device takes no copies of its blocks now."""


# Of vLLM's worker: its weights are others afterwards, or may be.
_UPDATING: dict[str, Condition] = {
    "apply_model": unconditional,  # a function of the user's gets the model
    "discard": lambda tags: "weights" in tags,
    "finish_weight_update": unconditional,
    "reload_weights": unconditional,
    "reset_weights": unconditional,
    "sleep": lambda level=1: level >= 2,  # a lower one keeps them
    "start_draft_weight_update": unconditional,
    "start_weight_update": unconditional,
    "update_weights": unconditional,
}
_UPDATES = Updates()  # of this process
_WORKERS: weakref.WeakSet[Worker] = weakref.WeakSet()  # of this process


def _end_saves() -> None:
    """The engine's memory may go."""
    for each in list(_WORKERS):
        each.end_saves()


class Worker:
    """The engine's thread calls it; two threads work for it."""

    def __init__(self, config: Any, kv_cache_config: Any, settings: Settings, rank: int) -> None:
        self._config = config
        self._kv_cache_config = kv_cache_config
        self._settings = settings
        self._rank = rank  # within the TP group
        self._groups: list[GroupLayout] = []
        self._names: list[str] = []
        self._places = Places(rank + 1, rank + 1)  # until the scheduler's side says where the ranks are
        self._voter: Voter | None = None
        self._layout = RankLayout(problem="its KV tensors were not registered")
        self._streams: Streams | None = None
        self._by_layer: LayerLoads | None = None  # of this step
        self._pinning: Pinning | None = None  # of the last step that loaded by layer
        self._saving: Reservation | None = None  # of this step, if layers are saved as they are computed
        self._copying = threading.Lock()  # held while blocks are copied to the node, or such a copy is launched
        self._computed: set[int] = set()  # layers of this step
        self._is_device_lost = False
        self._connections: dict[str, Connection] = {}
        self._nears: dict[str, Near[Streams]] = {}  # the same instances' blocks on the device
        self._attaching = threading.Lock()
        self._reading = threading.Lock()  # held while blocks are read: their session must not be closed
        self._lock = threading.Lock()  # over what follows
        self._loaded: set[str] = set()
        self._failed_requests: set[str] = set()
        self._bad_blocks: set[int] = set()
        self._open: list[Reservation] = []  # that may still read the engine's blocks, in their order
        self._acknowledged = Acknowledged()
        self.stats = CenoteStats()
        self._full = FullNode(logger)
        self._loads: queue.SimpleQueue[LoadJob | Pinning | None] = queue.SimpleQueue()
        self._stores: queue.SimpleQueue[InstanceSpec | Reservation | Save | None] = queue.SimpleQueue()
        self._step = CenoteMetadata()
        self._updates = 0
        self._least_generation = 0  # work of earlier ones is for weights that are not there any more
        self._threads: list[threading.Thread] = []

    # ---- beginning and end

    def register(self, caches: Mapping[str, Any]) -> None:
        """The KV tensors, by layer."""
        try:
            self._layout = self._look_at(caches)
        except Unservable as why:
            self._layout = RankLayout(problem=str(why))
            return
        if self._streams is not None:
            how = "layer by layer, while the step is computed" if self._layout.by_layer else "before and after steps"
            logger.info("%s copies KV, %s", self._streams.device.name, how)
        elif self._settings.gpu_pool:
            logger.warning(WITHOUT_DEVICE)
        self._watch_weights()
        for name, work in (("cenote-load", self._load_all), ("cenote-store", self._store_all)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _watch_weights(self) -> None:
        """Its own model is loaded by now."""
        import torch
        from vllm.model_executor.model_loader.base_loader import BaseModelLoader
        from vllm.v1.worker.gpu_worker import Worker as Base  # of the CPU's worker, too

        _WORKERS.add(self)
        _UPDATES.watch(Base, _UPDATING, _end_saves)
        _UPDATES.watch_models(torch.nn.Module, BaseModelLoader)  # worker extensions call them
        self._updates = _UPDATES.count

    def _look_at(self, caches: Mapping[str, Any]) -> RankLayout:
        config = self._kv_cache_config
        groups = model.groups_of(config)
        self._names = [group.name for group in groups]
        self._groups = [
            GroupLayout(group.layer_names, caches, config.num_blocks, group.kv_cache_spec)
            for group in config.kv_cache_groups
        ]
        self._streams = streams_for(set().union(*(group.devices for group in self._groups)), self._settings.device)
        self._places = Places(self._rank + 1, self._rank + 1, int(config.kv_tp_replicas))
        shape = [group.shape for group in self._groups]
        return RankLayout(
            tuple(group.block_bytes for group in self._groups),
            f"{'.'.join(shape)} {self._attention()}",
            # vLLM cannot be told of blocks of several groups that failed to load in the step that needs them.
            by_layer=self._streams is not None and len(self._groups) == 1,
            machine=machine(),
            device=self._streams.device.name if self._streams is not None else "",
        )

    @property
    def _writes(self) -> bool:
        return self._places.writes(self._rank)

    @property
    def _part(self) -> str:
        return self._places.part_of(self._rank)

    @property
    def _node(self) -> int:
        return self._places.node_of(self._rank)

    def _spec_of(self, metadata: CenoteMetadata) -> InstanceSpec | None:
        """The instance of a step on this rank's node."""
        if metadata.spec is None or metadata.together is None:
            return metadata.spec
        return metadata.together.specs[self._node]

    def _meet(self, metadata: CenoteMetadata) -> None:
        """Where the ranks are; the first of a node without rank 0 says what that node has."""
        together = metadata.together
        if together is None:
            return
        self._places = together.places
        if self._node == 0 or not self._places.is_first(self._rank) or not self._threads:
            return
        if self._voter is None:
            groups = model.groups_of(self._kv_cache_config)
            self._voter = Voter(self._node, groups, model.block_size_of(self._kv_cache_config), self._settings)
        self._voter.tell(together, metadata.asks, metadata.ended, metadata.have_met)

    def _attention(self) -> str:
        """What computes attention: it decides how bytes lie within a block."""
        layers = self._config.compilation_config.static_forward_context
        found = set()
        for group in self._kv_cache_config.kv_cache_groups:
            for name in group.layer_names:
                layer = layers.get(name)
                backend = getattr(layer, "attn_backend", None)
                found.add((backend.__name__ if backend is not None else "", str(getattr(layer, "isa", ""))))
        return repr(sorted(found))

    def handshake(self) -> RankLayout:
        return self._layout

    def close(self) -> None:
        """Waits a moment for what is under way."""
        threads, self._threads = self._threads, []
        if threads:
            self._loads.put(None)
            self._stores.put(None)
        end = time.monotonic() + _FLUSH
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        for reservation in self._open:
            reservation.is_stopped = True
        if self._voter is not None:
            self._voter.close()
        self._close_connections()

    def _close_connections(self) -> None:
        is_mine = self._copying.acquire(timeout=_FLUSH)  # nothing is copied into their blocks afterwards
        every: list[Near[Streams] | Connection] = [*self._nears.values(), *self._connections.values()]
        self._connections.clear()
        self._nears.clear()
        if is_mine:
            self._copying.release()
        for each in every:
            each.close()

    def _connection(self, spec: InstanceSpec) -> Connection:
        with self._attaching:
            found = self._connections.get(spec.id)
            if found is None:
                with self._reading:
                    self._close_connections()  # after a reset
                found = Connection(
                    spec,
                    self._settings,
                    max_pins=_MAX_PINS_BY_LAYER if self._layout.by_layer else _MAX_PINS,
                    deadline=_DEADLINE,
                    name=f"vllm-worker-{self._rank}",
                    device=self._streams.device if self._streams is not None else None,
                    node=self._node,
                )
                if self._settings.gpu_pool and self._streams is not None:
                    self._nears[spec.id] = self._near_of(spec, self._streams)
                self._connections[spec.id] = found
            return found

    def _near_of(self, spec: InstanceSpec, streams: Streams) -> Near[Streams]:
        parts = list(next(iter((spec.groups or {}).values()))["parts"])
        return Near(
            lambda prepare: Connection(
                spec,
                self._settings,
                max_pins=_MAX_PINS_BY_LAYER if self._layout.by_layer else _MAX_PINS,
                deadline=DEADLINE,
                name=f"vllm-worker-{self._rank}",
                node=self._node,
                prepare=prepare,
                pool=streams.device.name,
                part=parts.index(self._part),
            ),
            streams.of_blocks,
        )

    def _streams_of(self, spec: InstanceSpec, session: Session) -> Streams | None:
        """That work on blocks of the session."""
        near = self._nears.get(spec.id)
        return (near.works_on(session) if near is not None else None) or self._streams

    def _check(self, spec: InstanceSpec, number: int) -> None:
        """Unservable: the scheduler's idea of this rank's blocks is another one."""
        groups = spec.groups or {}
        declared = groups.get(self._names[number], {}).get("parts", {}).get(self._part)
        if declared != self._groups[number].block_bytes:
            raise Unservable(f"group {number} has {self._groups[number].block_bytes} bytes, the instance {declared}")

    # ---- loading

    def load(self, metadata: CenoteMetadata) -> None:
        """Starts the loads of a step."""
        spec = self._spec_of(metadata) if metadata.generation >= self._least_generation else None
        if self._layout.by_layer:
            self._begin_loads(spec, metadata.loads)
            return
        for load in metadata.loads:
            if self._threads:
                self._loads.put((spec, load))
            else:
                self._end_load(load, [])

    def _load_all(self) -> None:
        while (job := self._loads.get()) is not None:
            if isinstance(job, Pinning):
                self._pin(job)
                continue
            spec, load = job
            if isinstance(load, LoadSpan):
                self._send(spec, load)
                continue
            began, begin = time.perf_counter(), time.time_ns()
            try:
                loaded = self._load(spec, load) if spec is not None else []
            except Exception:
                logger.exception("loading blocks of %s", load.request)
                loaded = []
            self._end_load(load, loaded, time.perf_counter() - began)
            if load.traceparent is not None:
                self._send(spec, self._span_of(load, loaded, begin))

    def _load(self, spec: InstanceSpec, load: Load) -> list[int]:
        """How many of the first blocks of each group are loaded."""
        if self._is_device_lost:
            return []
        connection = self._connection(spec)
        with self._reading:
            return self._load_with(connection, load, spec)

    def _load_with(self, connection: Connection, load: Load, spec: InstanceSpec) -> list[int]:
        session = connection.session()
        if session is None:
            return []
        counts = []
        for number, keys, blocks in load.groups:
            self._check(spec, number)
            done = 0
            try:
                for start, end in _batches(self._allowed(keys)):
                    done += self._load_batch(session, spec, number, keys[start:end], blocks[start:end])
                    if done < end:
                        break
            except DeviceLost:
                done = 0
            except CenoteError as why:
                logger.warning("loading blocks of %s: %s", load.request, str(why))
                connection.failed(why, session)
            counts.append(done)
        return counts

    def _load_batch(
        self, session: Session, spec: InstanceSpec, number: int, keys: Sequence[bytes], blocks: Sequence[int]
    ) -> int:
        """How many of the first blocks are loaded: from DRAM alone what a device takes no copies of."""
        near, done = self._nears.get(spec.id), 0
        with acquire(near, session, keys, self._names[number]) as taken:
            for run in taken.runs:
                if not self._scatter(spec, number, blocks[done:][: len(run.held)], run):
                    break
                done += len(run.held)
            else:
                return done
        with acquire(None, session, keys[done:], self._names[number]) as taken:
            for run in taken.runs:
                self._scatter(spec, number, blocks[done:][: len(run.held)], run)
            return done + len(taken)

    def _allowed(self, keys: Sequence[bytes]) -> int:
        """How many of them may be loaded."""
        limit = self._settings.debug_fail_loads_from_block
        return len(keys) if limit is None else min(limit, len(keys))

    def _scatter(self, spec: InstanceSpec, group: int, blocks: Sequence[int], run: Run) -> bool:
        """False: the device takes no copies of its blocks now; DRAM has to do."""
        streams, strides = self._streams_of(spec, run.session), self._groups[group].strides
        if streams is None:
            strides.scatter(blocks, run.held, self._part)
            return True
        refusal: CenoteError | None = None
        try:
            strides.scatter(blocks, run.held, self._part, stream=streams.loading)
        except CenoteError as why:
            if not run.is_near:
                raise
            refusal = why
        finally:  # before the pins end, and the engine has its blocks again
            if not streams.settle(streams.loading):
                self._streams_failed(streams, "a load failed")
                raise DeviceLost("the device failed")
        if refusal is not None:
            if not self._refused(refusal):
                raise DeviceLost(str(refusal))  # the session in DRAM is as it was
            return False
        if run.is_near:
            with self._lock:
                self.stats.add(blocks_loaded_from_device=len(run.held))
        return True

    # ---- loading by layer: in the engine's thread, which waits for a node only as long as the step may

    def _begin_loads(self, spec: InstanceSpec | None, loads: list[Load]) -> None:
        """Pins what the step loads and begins to copy it, layer by layer."""
        self._by_layer = step = LayerLoads(loads, [0] * len(loads), []) if loads else None
        if step is None:
            return
        step.spec, step.begin = spec, time.time_ns()
        for _ in range(2):  # again where the device takes no copies of its blocks: from DRAM, if it has them
            pinning = self._pinned(spec, loads) if spec is not None and not self._is_device_lost else None
            if pinning is None or self._begin_copies(pinning, step):
                break
        with self._lock:
            for load in loads:
                self._acknowledged.pinned[load.request] = 1

    def _begin_copies(self, pinning: Pinning, step: LayerLoads) -> bool:
        """False: the device takes no copies of its blocks now, and nothing is under way."""
        try:
            self._copy_pinned(pinning, step)
        except Exception as why:
            step.counts = [0] * len(step.loads)
            if self._settle(step, why) and isinstance(why, _Refused):
                return False
            logger.exception("loading blocks")
        return True

    def _pinned(self, spec: InstanceSpec, loads: list[Load]) -> Pinning | None:
        """The pins of these loads; None: not in time, or an earlier step waits for its own still."""
        if not self._threads or (self._pinning is not None and self._pinning.is_under_way):
            return None
        self._pinning = Pinning(spec, loads)
        self._loads.put(self._pinning)
        if self._pinning.take(_LOAD_PATIENCE):
            return self._pinning
        logger.warning("the node gave no pins in time; %d loads are computed instead", len(loads))
        return None

    def _pin(self, job: Pinning) -> None:
        """In the loading thread: it may have to attach, and to fetch memory that is not mapped yet."""
        connection: Connection | None = None
        held: list[Taken | None] = []
        try:
            connection = self._connection(job.spec)
            session = connection.session()
            if session is not None:
                for load in job.loads:
                    held.append(self._pin_load(connection, session, job.spec, load))
        except Exception:
            logger.exception("pinning blocks")
        finally:
            job.give(connection, [*held, *[None] * (len(job.loads) - len(held))])

    def _copy_pinned(self, pinning: Pinning, step: LayerLoads) -> None:
        held, pinning.held = pinning.held, []  # whatever comes, nobody keeps these pins
        if not self._reading.acquire(timeout=_LOAD_PATIENCE):
            return
        try:
            if self._connections.get(pinning.spec.id) is pinning.connection is not None:  # else it was closed meanwhile
                self._copy_layers(pinning.spec, held, step)
        finally:
            self._reading.release()

    def _copy_layers(self, spec: InstanceSpec, pinned: list[Taken | None], step: LayerLoads) -> None:
        strides = self._groups[0].strides
        step.counts = [len(taken) if taken is not None else 0 for taken in pinned]
        step.near = 0
        jobs: list[tuple[list[int], Held, Streams]] = []
        for load, taken in zip(step.loads, pinned, strict=True):
            for run in taken.runs if taken is not None else ():
                streams = self._streams_of(spec, run.session)
                assert streams is not None
                jobs.append((load.groups[0][2][run.first :][: len(run.held)], run.held, streams))
                step.near += len(run.held) if run.is_near else 0
        step.streams = each_once(streams for _, _, streams in jobs)
        for streams in step.streams:
            streams.after_engine(streams.loading)  # it may still read what these blocks held before
        for span in self._groups[0].spans:
            for blocks, held, streams in jobs:
                with self._refusing(streams):
                    strides.scatter(blocks, held, self._part, stream=streams.loading, layer=span)
            events = [(streams, streams.loading.record()) for streams in step.streams]
            step.events += [events] * len(span)
        for _, held, streams in jobs:
            held.release_after(streams.loading)

    def _pin_load(self, connection: Connection, session: Session, spec: InstanceSpec, load: Load) -> Taken | None:
        for number, keys, _ in load.groups:
            self._check(spec, number)
            try:
                return acquire(self._nears.get(spec.id), session, keys[: self._allowed(keys)], self._names[number])
            except CenoteError as why:
                logger.warning("loading blocks of %s: %s", load.request, str(why))
                connection.failed(why, session)
        return None

    def _settle(self, step: LayerLoads, why: Exception) -> bool:
        """After a failure: no copy may come later into blocks that the engine computes itself. False: a device is gone,
        and with it what it was to do."""
        step.events = []
        lost = [streams for streams in step.streams if not streams.settle(streams.loading)]
        for streams in lost:
            self._streams_failed(streams, why)
        return not lost

    def layer_needed(self, name: str) -> None:
        """The engine is about to read this layer.

        Raises
        ------
        DeadlineExceeded
            The device hangs. It may still write into blocks of the engine, which therefore cannot go on.
        """
        step = self._by_layer
        if step is None or not step.events or self._streams is None:
            return
        began = time.perf_counter()
        for streams, event in step.events[self._groups[0].layers.get(name, len(step.events) - 1)]:
            try:
                streams.engine_waits(event)
            except DeadlineExceeded:
                raise
            except CenoteError as why:
                self._streams_failed(streams, why)
                step.counts = [0] * len(step.loads)
                self._settle(step, why)
                break
        step.waited += time.perf_counter() - began

    def _end_loads_by_layer(self) -> None:
        """After the step: which of its blocks do not hold what was to be loaded. All copies have ended by then."""
        step = self._by_layer
        if step is None:
            return
        try:
            self.layer_needed("")  # if the step did not read all layers
        finally:
            self._by_layer = None
        if any(step.counts):
            with self._lock:
                self.stats.add(blocks_loaded_from_device=step.near)
        for load, count in zip(step.loads, step.counts, strict=True):
            self._end_load(load, [count] if load.groups else [], step.waited, in_step=True)
            step.waited = 0.0
            if load.traceparent is not None and self._threads:
                self._loads.put((step.spec, self._span_of(load, [count], step.begin)))

    def _span_of(self, load: Load, counts: Sequence[int], begin: int) -> LoadSpan:
        jobs = zip(load.groups, counts, strict=False)
        size = sum(count * self._groups[job[0]].block_bytes for job, count in jobs)
        return LoadSpan(load, begin, max(begin, time.time_ns()), sum(counts), size)

    def _send(self, spec: InstanceSpec | None, span: LoadSpan) -> None:
        connection = self._connections.get(spec.id) if spec is not None else None
        if connection is not None:
            span.send(connection.session())

    def _end_load(self, load: Load, counts: Sequence[int], seconds: float = 0.0, *, in_step: bool = False) -> None:
        """`in_step`: the engine does not wait to hear of it."""
        counts = [*counts, *[0] * (len(load.groups) - len(counts))]
        bad = [blocks[count:] for (_, _, blocks), count in zip(load.groups, counts, strict=True)]
        lacking = sum(map(len, bad))
        size = sum(count * self._groups[job[0]].block_bytes for job, count in zip(load.groups, counts, strict=True))
        with self._lock:
            self.stats.add(blocks_loaded=sum(counts), bytes_loaded=size, load_seconds=seconds, blocks_failed=lacking)
            if lacking or not load.groups:
                self._acknowledged.failed_loads.add(load.request)
                # Block numbers name a request's blocks only while there is one group.
                if len(load.groups) == 1 and len(self._groups) == 1:
                    self._bad_blocks.update(bad[0])
                else:
                    self._failed_requests.add(load.request)
            if not in_step:
                self._loaded.add(load.request)

    # ---- storing

    def step_begins(self, metadata: CenoteMetadata) -> None:
        """`metadata` is this step's."""
        self._step, self._computed, self._saving = metadata, set(), None
        self._meet(metadata)
        if self._updates != _UPDATES.count:
            self._updates = _UPDATES.count
            self._least_generation = metadata.generation + 1
            with self._lock:
                self._acknowledged.updated = True
        if metadata.generation < self._least_generation:
            for store in (*metadata.stores, *metadata.backlog):  # they stay, for their acknowledgements
                store.keys, store.blocks = [], []
        self._stop_waiting()
        if (backlog := self._reservation_of(metadata, metadata.backlog)) is not None:
            self._save(backlog)
        if metadata.fence:
            self.end_saves()
        # Without a device not while the step is computed: that may take longer than the node keeps a reservation.
        if self._saves_by_layer:
            self._step = CenoteMetadata()
            self._saving = self._reservation_of(metadata, metadata.stores)
            if self._saving is not None:
                self._stores.put(self._saving)
        spec = self._spec_of(metadata)
        if spec is not None and spec.id not in self._connections and self._threads:
            self._stores.put(spec)  # attached while the step is computed

    def step_computed(self) -> None:
        """This step's blocks hold their tokens now, or will when the engine's stream comes there. Waits for nothing:
        the engine keeps them until they are copied."""
        metadata, self._step = self._step, CenoteMetadata()
        reservation, self._saving = self._saving, None
        if reservation is None:
            reservation = self._reservation_of(metadata, metadata.stores)
        if reservation is not None:
            self._save(reservation)

    @property
    def _saves_by_layer(self) -> bool:
        # With two half batches a layer is not written when it is called for the first time.
        return self._layout.by_layer and not self._config.parallel_config.use_ubatching

    def _reservation_of(self, metadata: CenoteMetadata, stores: list[Store]) -> Reservation | None:
        """None: there is nothing to be copied."""
        spec = self._spec_of(metadata)
        if spec is None or not stores:
            return None
        reservation = Reservation([Reserved(store, spec) for store in stores])
        if self._threads and self._writes and not self._is_device_lost:
            self._open.append(reservation)
            return reservation
        self._end_unsaved(reservation, failed=self._writes)
        return None

    def _save(self, reservation: Reservation) -> None:
        """All that it is to copy is computed, or will be when the engine's stream comes there."""
        candidates = [self._streams, *reservation.ordered]
        for near in self._nears.values():
            session = near.session()
            candidates.append(near.works_on(session) if session is not None else None)
        for streams in each_once(each for each in candidates if each is not None):
            self._begin_saving(reservation, streams)
        reservation.is_computed = True
        self._stores.put(Save(reservation))

    def _begin_saving(self, reservation: Reservation, streams: Streams) -> bool:
        """What the stream copies from now on comes after what the engine has begun."""
        reservation.ordered.discard(streams)
        try:
            streams.after_engine(streams.saving)
        except CenoteError as why:
            self._streams_failed(streams, why)
            return False
        reservation.ordered.add(streams)
        return True

    def _stop_waiting(self) -> None:
        """The engine does not keep blocks for long for which the node gives no room."""
        now = time.monotonic()
        waiting = [each for each in self._open if each.is_computed and not each.is_begun]
        old = [each for each in waiting if now - each.start > _ROOM_PATIENCE and not each.is_ready]
        if not old or not self._copying.acquire(blocking=False):
            return
        try:
            stopped = [each for each in old if not each.is_begun]
            for each in stopped:
                each.is_stopped = True
        finally:
            self._copying.release()
        for each in stopped:
            logger.warning("the node gave no room in time; %d stores are dropped", len(each.all))
            self._end_unsaved(each)

    def end_saves(self) -> None:
        """The engine's blocks are not kept any more: waits for the copies of those that are computed, and stops what
        does not end in time."""
        computed = [each for each in list(self._open) if each.is_computed]
        if not computed:
            return
        with self._lock:
            self.stats.add(store_waits=1)
        end = time.monotonic() + _FENCE_PATIENCE
        left = [each for each in computed if not each.wait(end)]
        if not left:
            return
        with self._copying:
            for each in left:
                each.is_stopped = True
        for streams in each_once(streams for each in left if each.is_ready for streams in each.streams):
            try:
                event = streams.saving.record()
                streams.engine_waits(event)
                streams.loading.wait(event)
            except CenoteError as why:
                self._streams_failed(streams, why)
        logger.warning("%d steps' stores did not end in time, and are dropped", len(left))
        for each in left:
            self._end_unsaved(each)

    def _end_unsaved(self, reservation: Reservation, *, failed: bool = True) -> None:
        """Nothing is copied for it, or nothing more, and what was is not published."""
        self._release(reservation)
        for reserved in reservation.all:
            reserved.failed |= failed
            self._acknowledge(reserved, 0, 0, 0.0)

    def _release(self, reservation: Reservation) -> None:
        """Nothing reads the engine's blocks for it any more."""
        with self._lock:
            if reservation.is_released:
                return
            reservation.release()
            if reservation in self._open:
                self._open.remove(reservation)
            for reserved in reservation.all:
                self._acknowledged.copied[reserved.store.number] = 1

    def _acknowledge(self, reserved: Reserved, stored: int, near: int, seconds: float) -> None:
        """So many of its blocks are stored, `near` of them on the device, and no others will be."""
        wanted = len(reserved.store.keys) if self._writes else 0
        present = 0 if reserved.failed else wanted - stored
        with self._lock:
            if reserved.is_acknowledged:
                return
            reserved.is_acknowledged = True
            self.stats.add(
                blocks_stored=stored,
                blocks_stored_on_device=near,
                bytes_stored=stored * self._groups[reserved.store.group].block_bytes if stored else 0,
                store_seconds=seconds,
                blocks_present=present,
                blocks_dropped=wanted - stored - present,
            )

    def _gather(self, reservation: Reservation, span: range | None = None) -> None:
        """Copies the step's blocks, or some layers of them; begins to, if a device does so."""
        reservation.is_begun = True
        if span is not None:
            reservation.saved.update(span)
        for reserved in reservation.all:
            strides = self._groups[reserved.store.group].strides
            for blanks in reserved.blanks:
                if reserved.spec.id not in self._connections:
                    blanks.broken = True  # its sessions are closed
                if blanks.streams is not None and blanks.streams not in reservation.ordered:
                    blanks.broken = True  # of a session that began meanwhile, or a device that failed
                if blanks.slots and not blanks.broken:
                    blanks.copied = True  # or a part of it: a device may be writing
                    stream = blanks.streams.saving if blanks.streams is not None else None
                    try:
                        strides.gather(blanks.blocks, blanks.slots, self._part, stream=stream, layer=span)
                    except Exception as why:
                        blanks.broken = True
                        if not (isinstance(why, CenoteError) and blanks.on_device and self._refused(why)):
                            logger.exception("copying blocks to the node")

    def layer_computed(self, name: str) -> None:
        """The engine has written this layer of all tokens of the step, or will have when its stream comes there."""
        reservation = self._saving
        layer = self._groups[0].layers.get(name) if reservation is not None else None
        if reservation is None or layer is None:
            return
        self._computed.add(layer)
        spans = [each for each in self._groups[0].spans if self._computed.issuperset(each)]
        spans = [each for each in spans if each.start not in reservation.saved]
        if not spans or not reservation.is_ready:  # a later layer takes this one along
            return
        if not all([self._begin_saving(reservation, streams) for streams in reservation.streams]):
            return  # what failed is not committed, and the other is copied to after the step
        with self._copying:
            for each in spans:
                self._gather(reservation, each)

    @contextlib.contextmanager
    def _refusing(self, streams: Streams) -> Iterator[None]:
        """_Refused: the device took no copy of its blocks, though it works on."""
        try:
            yield
        except CenoteError as why:
            if streams is not self._streams and self._refused(why):
                raise _Refused(str(why)) from why
            raise

    def _refused(self, why: Exception) -> bool:
        """The device took no copy of its blocks. Whether it works on; nobody asks it again for a while then."""
        works = all([near.refused(why) for near in list(self._nears.values())])  # all of the same device
        with self._lock:
            self.stats.add(copies_refused=int(works))
        return works

    def _streams_failed(self, streams: Streams, why: object) -> None:
        if streams is self._streams:
            self._device_failed(why)
            return
        for near in list(self._nears.values()):  # all of the same device
            near.failed(DeviceLost(str(why)))

    def _device_failed(self, why: object) -> None:
        """Nothing is loaded or stored any more: nobody knows what the device has written, or still will."""
        if not self._is_device_lost:
            logger.error("the device failed, and this engine goes on without its cache: %s", str(why))
        self._is_device_lost = True

    def _store_all(self) -> None:
        while (job := self._stores.get()) is not None:
            try:
                if isinstance(job, InstanceSpec):
                    self._connection(job)
                elif isinstance(job, Save):
                    self._store(job.reservation)
                else:
                    self._reserve(job)
            except Exception:
                logger.exception("storing blocks")

    def _reserve(self, reservation: Reservation) -> None:
        for reserved in reservation.all:
            reserved.failed = reservation.is_stopped
            if reserved.failed:
                continue
            try:
                self._reserve_one(reserved)
            except Exception:
                logger.exception("reserving blocks")
                reserved.failed = True
        reservation.ready()

    def _reserve_one(self, reserved: Reserved) -> None:
        connection = self._connection(reserved.spec)
        session = connection.session()
        if session is None:
            reserved.failed = True
            return
        store = reserved.store
        try:
            self._check(reserved.spec, store.group)
            for start, end in _batches(len(store.keys)):
                wanted = self._reserve_near(reserved, range(start, end))
                if wanted:
                    blocks = [store.blocks[i] for i in wanted]
                    keys = [store.keys[i] for i in wanted]
                    slots = session.reserve(keys, self._part, group=self._names[store.group])
                    self._take_blanks(reserved, Blanks(session, self._streams), blocks, slots)
        except NoSpace as why:
            self._full.refused(len(store.keys), why)
            reserved.failed = True
        except CenoteError as why:
            logger.warning("reserving blocks: %s", str(why))
            connection.failed(why, session)
            reserved.failed = True

    def _reserve_near(self, reserved: Reserved, positions: range) -> Sequence[int]:
        """On the device, from where the node brings them to DRAM. Returns what is to be stored in DRAM: all, if the
        device has no room or is away; what it has already, since DRAM does not (or no longer, and nobody would bring it
        there again)."""
        near = self._nears.get(reserved.spec.id)
        session = near.session() if near is not None else None
        if near is None or session is None:
            return positions
        store = reserved.store
        try:
            keys = store.keys[positions.start : positions.stop]
            slots = session.reserve(keys, self._part, group=self._names[store.group])
        except CenoteError as why:
            near.failed(why, session)
            return positions
        blanks = Blanks(session, near.works_on(session), on_device=True)
        self._take_blanks(reserved, blanks, store.blocks[positions.start : positions.stop], slots)
        return [i for i, slot in zip(positions, slots, strict=True) if slot is PRESENT]

    @staticmethod
    def _take_blanks(reserved: Reserved, blanks: Blanks, blocks: Sequence[int], slots: Sequence[Slot]) -> None:
        for block, slot in zip(blocks, slots, strict=True):
            if isinstance(slot, Block):
                blanks.slots.append(slot)
                blanks.blocks.append(block)
        reserved.blanks.append(blanks)

    def _store(self, reservation: Reservation) -> None:
        """Copies what is left of the step's blocks, and publishes them."""
        began = time.perf_counter()
        written: list[Streams] = []
        try:
            if not reservation.is_ready:
                self._reserve(reservation)
            written = self._copy(reservation)
        except Exception:
            logger.exception("copying blocks to the node")
        finally:
            self._release(reservation)
        for reserved in reservation.all:
            each = [self._commit_one(reserved, blanks, written) for blanks in reserved.blanks]
            near = sum(count for count, blanks in zip(each, reserved.blanks, strict=True) if blanks.on_device)
            self._acknowledge(reserved, sum(each), near, time.perf_counter() - began)
            began = time.perf_counter()

    def _copy(self, reservation: Reservation) -> list[Streams]:
        """Copies the step's blocks, or what is left of them; the streams that did so, if a device does. What failed is
        not among them."""
        spans: list[range | None] = [None]
        if self._layout.by_layer:
            spans = [each for each in self._groups[0].spans if each.start not in reservation.saved]
        for span in spans:
            with self._copying:
                if not reservation.is_stopped:
                    self._gather(reservation, span)
        if reservation.is_stopped:
            for blanks in (each for reserved in reservation.all for each in reserved.blanks):
                blanks.broken = True
        return [each for each in reservation.streams if self._is_written(reservation, each)]

    def _is_written(self, reservation: Reservation, streams: Streams) -> bool:
        """Waits for the copies of the stream. False: what is written, or still will be, is not known."""
        if not streams.settle(streams.saving):
            self._streams_failed(streams, "a save failed")
            return False
        return streams in reservation.ordered

    def _commit_one(self, reserved: Reserved, blanks: Blanks, written: list[Streams]) -> int:
        """How many blocks are stored."""
        if not blanks.slots:
            return 0
        try:
            # If the device failed, it may still write: these blocks are not given back.
            if blanks.copied and blanks.streams is not None and blanks.streams not in written:
                reserved.failed = True
                return 0
            if blanks.copied and not blanks.broken:
                blanks.session.commit(blanks.slots)
                return len(blanks.slots)
            reserved.failed = True
            blanks.session.abandon(blanks.slots)
        except CenoteError as why:
            logger.warning("committing blocks: %s", str(why))
            sessions = self._nears if blanks.on_device else self._connections
            owner = sessions.get(reserved.spec.id)
            if owner is not None:
                owner.failed(why, blanks.session)
            reserved.failed = True
        except Exception:  # whatever it was: a store that is never acknowledged is waited for for good
            logger.exception("committing blocks")
            reserved.failed = True
        return 0

    # ---- telling

    def results(self) -> tuple[set[str], set[str]]:
        """Requests whose loads ended, and of these those that failed; since the last call."""
        with self._lock:
            loaded, self._loaded = self._loaded, set()
            failed, self._failed_requests = self._failed_requests, set()
        return loaded, failed

    def bad_blocks(self) -> set[int]:
        """The engine's blocks that were to be loaded and are not."""
        self._end_loads_by_layer()
        with self._lock:
            bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def acknowledged(self) -> Acknowledged | None:
        with self._lock:
            now = self._acknowledged
            if not (now.copied or now.pinned or now.failed_loads or now.updated):
                return None
            taken, self._acknowledged = self._acknowledged, Acknowledged()
        return taken

    def taken_stats(self) -> CenoteStats | None:
        with self._lock:
            if self.stats.is_empty():
                return None
            taken, self.stats = self.stats, CenoteStats()
        return taken


def _batches(count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, _BATCH):
        yield start, min(start + _BATCH, count)
