"""A worker's side: copies blocks between the engine's KV tensors and the node.

Loads run in a thread of their own. Stores are reserved and committed in another one, and copied by the engine's own
between the two, since it may reuse its blocks afterwards: the step waits for one round trip and one copy.
"""

from __future__ import annotations

import dataclasses
import logging
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._updates import Updates
from ..blocks import Block
from ..errors import CenoteError, NoSpace
from ..session import InstanceSpec, Session
from . import model
from .connection import Connection
from .layout import GroupLayout, Unservable
from .messages import Acknowledged, CenoteMetadata, Load, RankLayout, Store
from .settings import Settings
from .stats import CenoteStats

logger = logging.getLogger("cenote")

_BATCH = 256  # blocks of one reservation or pin
_MAX_PINS = 8192
_DEADLINE = 5.0  # seconds, of calls that need the node
_PATIENCE = 0.1  # seconds that a computed step waits for reservations at most
_PATIENCE_SHARE = 0.05  # of the step's own time, if that is more
_FLUSH = 5.0  # seconds that a shutdown waits for what is under way


@dataclasses.dataclass
class Reserved:
    """A store, with the blank blocks that it may fill."""

    store: Store
    spec: InstanceSpec
    session: Session | None = None
    slots: list[Block] = dataclasses.field(default_factory=list)
    blocks: list[int] = dataclasses.field(default_factory=list)  # the engine's, one a slot
    failed: bool = False  # not all of it will be stored
    copied: bool = False


# Of vLLM's worker: its weights are others afterwards.
_UPDATING = ("reload_weights", "reset_weights", "update_weights")
_UPDATES = Updates()  # of this process


class Worker:
    """The engine's thread calls it; two threads work for it."""

    def __init__(self, config: Any, kv_cache_config: Any, settings: Settings, rank: int) -> None:
        self._config = config
        self._kv_cache_config = kv_cache_config
        self._settings = settings
        self._rank = rank  # within the TP group
        self._groups: list[GroupLayout] = []
        self._names: list[str] = []
        self._part = "tp0"
        self._writes = True
        self._layout = RankLayout(problem="its KV tensors were not registered")
        self._connections: dict[str, Connection] = {}
        self._attaching = threading.Lock()
        self._reading = threading.Lock()  # held while blocks are read: their session must not be closed
        self._lock = threading.Lock()  # over what follows
        self._loaded: set[str] = set()
        self._failed_requests: set[str] = set()
        self._bad_blocks: set[int] = set()
        self._stored: set[str] = set()
        self._acknowledged = Acknowledged()
        self.stats = CenoteStats()
        self._loads: queue.SimpleQueue[tuple[InstanceSpec | None, Load] | None] = queue.SimpleQueue()
        self._stores: queue.SimpleQueue[InstanceSpec | Reservation | Commit | None] = queue.SimpleQueue()
        self._step = (CenoteMetadata(), 0.0)
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
        self._watch_weights()
        for name, work in (("cenote-load", self._load_all), ("cenote-store", self._store_all)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _watch_weights(self) -> None:
        from vllm.v1.worker.gpu_worker import Worker as Base  # of the CPU's worker, too

        _UPDATES.watch(Base, _UPDATING)
        self._updates = _UPDATES.count

    def _look_at(self, caches: Mapping[str, Any]) -> RankLayout:
        config = self._kv_cache_config
        groups = model.groups_of(config)
        self._names = [group.name for group in groups]
        self._groups = [
            GroupLayout(group.layer_names, caches, config.num_blocks, group.kv_cache_spec)
            for group in config.kv_cache_groups
        ]
        copies = int(config.kv_tp_replicas)
        self._part = f"tp{self._rank // copies}"
        self._writes = self._rank % copies == 0  # the other ranks hold the same
        shape = [group.shape for group in self._groups]
        return RankLayout(tuple(group.block_bytes for group in self._groups), f"{'.'.join(shape)} {self._attention()}")

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
        for connection in self._connections.values():
            connection.close()

    def _connection(self, spec: InstanceSpec) -> Connection:
        with self._attaching:
            found = self._connections.get(spec.id)
            if found is None:
                with self._reading:
                    for old in self._connections.values():  # after a reset
                        old.close()
                    self._connections.clear()
                found = Connection(
                    spec,
                    self._settings,
                    max_pins=_MAX_PINS,
                    deadline=_DEADLINE,
                    name=f"vllm-worker-{self._rank}",
                )
                self._connections[spec.id] = found
            return found

    def _check(self, spec: InstanceSpec, number: int) -> None:
        """Unservable: the scheduler's idea of this rank's blocks is another one."""
        groups = spec.groups or {}
        declared = groups.get(self._names[number], {}).get("parts", {}).get(self._part)
        if declared != self._groups[number].block_bytes:
            raise Unservable(f"group {number} has {self._groups[number].block_bytes} bytes, the instance {declared}")

    # ---- loading

    def load(self, metadata: CenoteMetadata) -> None:
        """Starts the loads of a step."""
        is_outdated = metadata.generation < self._least_generation
        for load in metadata.loads:
            if self._threads:
                self._loads.put((None if is_outdated else metadata.spec, load))
            else:
                self._end_load(load, [])

    def _load_all(self) -> None:
        while (job := self._loads.get()) is not None:
            spec, load = job
            began = time.perf_counter()
            try:
                loaded = self._load(spec, load) if spec is not None else []
            except Exception:
                logger.exception("loading blocks of %s", load.request)
                loaded = []
            self._end_load(load, loaded, time.perf_counter() - began)

    def _load(self, spec: InstanceSpec, load: Load) -> list[int]:
        """How many of the first blocks of each group are loaded."""
        connection = self._connection(spec)
        with self._reading:
            return self._load_with(connection, load, spec)

    def _load_with(self, connection: Connection, load: Load, spec: InstanceSpec) -> list[int]:
        session = connection.session()
        if session is None:
            return []
        limit = self._settings.debug_fail_loads_from_block
        counts = []
        for number, keys, blocks in load.groups:
            self._check(spec, number)
            done = 0
            try:
                for start, end in _batches(len(keys) if limit is None else min(limit, len(keys))):
                    with session.acquire(keys[start:end], group=self._names[number]) as held:
                        self._groups[number].strides.scatter(blocks[start : start + len(held)], held, self._part)
                        done += len(held)
                        if len(held) < end - start:
                            break
            except CenoteError as why:
                logger.warning("loading blocks of %s: %s", load.request, str(why))
                connection.failed(why, session)
            counts.append(done)
        return counts

    def _end_load(self, load: Load, counts: Sequence[int], seconds: float = 0.0) -> None:
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
            self._loaded.add(load.request)

    # ---- storing

    def step_begins(self, metadata: CenoteMetadata) -> None:
        """`metadata` is this step's."""
        if self._updates != _UPDATES.count:
            self._updates = _UPDATES.count
            self._least_generation = metadata.generation + 1
            with self._lock:
                self._acknowledged.updated = True
        if metadata.generation < self._least_generation:
            for store in metadata.stores:  # they stay, for what they close
                store.keys, store.blocks = [], []
        self._step = (metadata, time.monotonic())
        spec = metadata.spec
        if spec is not None and spec.id not in self._connections and self._threads:
            self._stores.put(spec)  # attached while the step is computed

    def step_computed(self) -> None:
        """Copies this step's blocks: they hold their tokens now, and the engine may reuse them after this."""
        metadata, began = self._step
        self._step = (CenoteMetadata(), began)
        if metadata.spec is None or not metadata.stores:
            return
        patience = max(_PATIENCE, (time.monotonic() - began) * _PATIENCE_SHARE)
        # Not reserved ahead, while the step is computed: that may take longer than the node keeps a reservation.
        reservation = Reservation([Reserved(store, metadata.spec) for store in metadata.stores])
        if self._threads and self._writes:
            self._stores.put(reservation)
        else:
            reservation.ready()
        began = time.perf_counter()
        try:
            self._copy(reservation, patience)
        finally:
            with self._lock:
                self._stored.update(each.store.closes for each in reservation.all if each.store.closes)
        self._stores.put(Commit(reservation, time.perf_counter() - began))

    def _copy(self, reservation: Reservation, patience: float) -> None:
        if not reservation.take(patience):
            logger.warning("the node gave no room in time; %d stores are dropped", len(reservation.all))
            return
        for reserved in reservation.all:
            if reserved.slots:
                try:
                    group = self._groups[reserved.store.group]
                    group.strides.gather(reserved.blocks, reserved.slots, self._part)
                    reserved.copied = True
                except Exception:
                    logger.exception("copying blocks to the node")

    def _store_all(self) -> None:
        while (job := self._stores.get()) is not None:
            try:
                if isinstance(job, InstanceSpec):
                    self._connection(job)
                elif isinstance(job, Commit):
                    self._commit(job)
                else:
                    self._reserve(job)
            except Exception:
                logger.exception("storing blocks")

    def _reserve(self, reservation: Reservation) -> None:
        try:
            for reserved in reservation.all:
                if reservation.is_late:
                    reserved.failed = True
                else:
                    self._reserve_one(reserved)
        finally:
            reservation.ready()

    def _reserve_one(self, reserved: Reserved) -> None:
        connection = self._connection(reserved.spec)
        session = reserved.session = connection.session()
        if session is None:
            reserved.failed = True
            return
        store = reserved.store
        try:
            self._check(reserved.spec, store.group)
            for start, end in _batches(len(store.keys)):
                slots = session.reserve(store.keys[start:end], self._part, group=self._names[store.group])
                for block, slot in zip(store.blocks[start:end], slots, strict=True):
                    if isinstance(slot, Block):
                        reserved.slots.append(slot)
                        reserved.blocks.append(block)
        except NoSpace:
            reserved.failed = True
        except CenoteError as why:
            logger.warning("reserving blocks: %s", str(why))
            connection.failed(why, session)
            reserved.failed = True

    def _commit(self, job: Commit) -> None:
        seconds = job.seconds
        for reserved in job.reservation.all:
            began = time.perf_counter()
            stored = self._commit_one(reserved)
            seconds += time.perf_counter() - began
            wanted = len(reserved.store.keys) if self._writes else 0
            present = 0 if reserved.failed else wanted - stored
            number = reserved.store.number
            with self._lock:
                self.stats.add(
                    blocks_stored=stored,
                    bytes_stored=stored * self._groups[reserved.store.group].block_bytes,
                    store_seconds=seconds,
                    blocks_present=present,
                    blocks_dropped=wanted - stored - present,
                )
                before = self._acknowledged.stores.get(number, (0, 0))
                self._acknowledged.stores[number] = (before[0] + 1, before[1] + int(reserved.failed))
            seconds = 0.0

    def _commit_one(self, reserved: Reserved) -> int:
        """How many blocks are stored."""
        if not reserved.slots or reserved.session is None:
            return 0
        try:
            if reserved.copied:
                reserved.session.commit(reserved.slots)
                return len(reserved.slots)
            reserved.failed = True
            reserved.session.abandon(reserved.slots)
        except CenoteError as why:
            logger.warning("committing blocks: %s", str(why))
            connection = self._connections.get(reserved.spec.id)
            if connection is not None:
                connection.failed(why, reserved.session)
            reserved.failed = True
        return 0

    # ---- telling

    def results(self) -> tuple[set[str], set[str], set[str]]:
        """Requests whose blocks were kept for us, whose loads ended, and of these those that failed; since the last
        call."""
        with self._lock:
            stored, self._stored = self._stored, set()
            loaded, self._loaded = self._loaded, set()
            failed, self._failed_requests = self._failed_requests, set()
        return stored, loaded, failed

    def bad_blocks(self) -> set[int]:
        """The engine's blocks that were to be loaded and are not."""
        with self._lock:
            bad, self._bad_blocks = self._bad_blocks, set()
        return bad

    def acknowledged(self) -> Acknowledged | None:
        with self._lock:
            now = self._acknowledged
            if not (now.stores or now.failed_loads or now.updated):
                return None
            taken, self._acknowledged = self._acknowledged, Acknowledged()
        return taken

    def taken_stats(self) -> CenoteStats | None:
        with self._lock:
            if self.stats.is_empty():
                return None
            taken, self.stats = self.stats, CenoteStats()
        return taken


class Reservation:
    """The stores of one step, on their way through the storing thread and back."""

    def __init__(self, stores: list[Reserved]) -> None:
        self.all = stores
        self.taken = False  # in time: may be filled
        self.is_late = False  # nobody will fill it
        self._ready = threading.Event()

    def ready(self) -> None:
        self._ready.set()

    def take(self, patience: float) -> bool:
        """Waits at most `patience` seconds."""
        self.taken = self._ready.wait(patience)
        self.is_late = not self.taken
        return self.taken


@dataclasses.dataclass
class Commit:
    """`seconds` that the copy took."""

    reservation: Reservation
    seconds: float


def _batches(count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, _BATCH):
        yield start, min(start + _BATCH, count)
