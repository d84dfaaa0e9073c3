"""Cenote as a storage backend of SGLang's hierarchical cache (HiCache). See docs/sglang.md.

--hicache-storage-backend dynamic --hicache-storage-backend-extra-config
'{"backend_name": "cenote", "module_path": "cenote.sglang", "class_name": "CenoteHiCache", "interface_v1": 1}'
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

try:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolHitPolicy, PoolName, PoolTransferResult
except ImportError as why:
    raise ImportError(f"cenote.sglang is a backend of SGLang 0.5.23, which cannot be imported here: {why}") from why

from ._sglang.copier import Copier
from ._sglang.engine import UPDATES, Engine, Unshareable, engine_of, watch_updates
from ._sglang.identity import is_replicated, spec_of
from ._sglang.keys import Keys
from ._sglang.pages import Pages, Places, Unsupported, gpu_of
from ._sglang.pool import PATIENCE, Pool
from ._sglang.ranks import Ranks, place_of
from ._sglang.settings import Settings
from .errors import Closed, Forked, InvalidArgument, NotRunning, SessionKilled
from .session import Session

logger = logging.getLogger("cenote.sglang")

T = TypeVar("T")

_SAID_ALREADY = (NotRunning, Closed, SessionKilled, Forked)  # the attachment tells of a node that is gone, once
_KV = "kv"
_PATIENCE = 5.0  # seconds that the engine's start waits for its weights to be read
_LOOK = 0.5  # seconds between two looks after the node


class _Registered(NamedTuple):
    """One host pool of the engine. Without `pool`: one that holds no bytes itself, that cannot be served, or whose
    instance is not known yet."""

    host_pool: Any
    pages: Pages | None = None
    pool: Pool | None = None
    writes: bool = True
    logical: bool = False


class CenoteHiCache(HiCacheStorage):  # type: ignore[misc]  # SGLang's classes are not typed
    """All three surfaces of HiCache: generic (get, set, exists, batch_*), v1 (in place), v2 (several pools).

    No call raises, and each ends in time: what went wrong is False, None or 0, and a line in the log now and then.
    Without a node all answers are misses; a node that comes back is used again. Thread-safe.
    """

    def __init__(self, storage_config: Any, kwargs: dict[str, Any] | None = None) -> None:
        """ValueError: a setting cannot be used."""
        self._config = storage_config
        self._settings = Settings.read(storage_config.extra_config)
        self._copier = Copier(self._settings.device, self._settings.threads)
        self._registered: dict[str, _Registered] = {}
        self._pools: list[Pool] = []
        self._gpu: str | None = None  # of this rank's KV, once a pool told
        self._complaints = _Complaints()
        self._figures = _Figures()
        self._closed = False
        place = place_of(storage_config)
        self._ranks = Ranks(place, self._present) if place is not None else None
        self._opening = threading.Lock()
        self._engine: Engine | None = None  # until it is known, nothing is shared
        watch_updates()
        self._updates = UPDATES.count
        self._ended = threading.Event()
        self._known = threading.Event()
        threading.Thread(target=self._find_out, name="cenote-weights", daemon=True).start()
        looking = (weakref.WeakMethod(self._look), self._ended)
        threading.Thread(target=_look_after, args=looking, name="cenote-look", daemon=True).start()

    # ---- which engine this is, and whether there is a node

    def _find_out(self) -> None:
        try:
            self._engine = engine_of(self._settings)
            if self._engine.launch:
                logger.warning(
                    "files of the weights changed since this process was started, so they may be others than were "
                    "loaded: what this engine stores is its own alone; start it again to share, or set `fingerprint`"
                )
        except Unshareable as why:
            logger.error("nothing is cached: %s", str(why))
        except Exception:
            logger.exception("nothing is cached")
        self._open_all()
        self._known.set()

    def _present(self) -> Session | None:
        """The session with which this rank agrees with others."""
        pools = list(self._pools)
        return pools[0].session() if pools and not self._closed else None

    def _look(self) -> None:
        for pool in list(self._pools):
            self._safely("looking for the node", None, pool.look)

    def _check_weights(self) -> None:
        if UPDATES.count != self._updates:
            with self._opening:
                self._updates = UPDATES.count
                pools, self._pools = self._pools, []
                self._engine = None
                self._registered = {name: each._replace(pool=None) for name, each in self._registered.items()}
            logger.error("the weights were updated in place: nothing is cached any more; see docs/sglang.md")
            for pool in pools:
                self._safely("close", None, pool.close)

    # ---- pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        self._register(_KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        self._register(str(host_pool_name), host_pool)

    def on_host_pools_registered(self) -> None:
        """Attaches now, so that the log says at the start whether there is a node."""
        self._safely("attaching", None, lambda: [pool.attach() for pool in self._pools[:1]])

    def _register(self, name: str, host_pool: Any) -> None:
        before = self._registered.get(name)
        if self._closed or (before is not None and before.host_pool is host_pool):
            return
        self._registered[name] = self._safely(
            f"registering the pool {name}", _Registered(host_pool), lambda: self._understood(name, host_pool)
        )
        self._known.wait(_PATIENCE)
        self._open_all()

    def _understood(self, name: str, host_pool: Any) -> _Registered:
        if getattr(host_pool, "kv_buffer", host_pool) is None:
            return _Registered(host_pool, logical=True)  # only counts slots; other pools hold the bytes
        if self._settings.gpu_pool and self._gpu is None:
            self._gpu = gpu_of(host_pool)
        try:
            pages = Pages(host_pool)
        except Unsupported as why:
            logger.error("pool %s will not be cached: %s", name, str(why))
            return _Registered(host_pool)
        return _Registered(host_pool, pages)

    def _open_all(self) -> None:
        """Gives an instance to each pool that has none, if it is known which engine this is."""
        with self._opening:
            for name, each in list(self._registered.items()):
                if self._engine is not None and not self._closed and each.pages is not None and each.pool is None:
                    self._registered[name] = self._safely(f"opening the pool {name}", each, self._opened(name, each))

    def _opened(self, name: str, known: _Registered) -> Callable[[], _Registered]:
        def run() -> _Registered:
            assert self._engine is not None
            assert known.pages is not None
            spec = spec_of(self._config, name, known.pages, self._settings, self._engine)
            leader = self._pools[0] if self._pools else None
            pool = Pool(spec, known.pages.page_bytes, self._settings, self._copier, leader, self._gpu)
            self._pools.append(pool)
            writes = self._config.is_storage_writer or not is_replicated(self._config, known.host_pool)
            return known._replace(pool=pool, writes=writes)

        return run

    def _pool(self, name: Any) -> _Registered:
        self._check_weights()
        try:
            return self._registered[str(name)]
        except KeyError:
            raise InvalidArgument(f"there is no pool {name}; there is: {', '.join(self._registered)}") from None

    # ---- v1: pages of the host pool, in place

    def batch_exists(self, keys: Sequence[str], extra_info: Any = None) -> int:
        """How many of the first pages the node has."""
        return self._safely("batch_exists", 0, lambda: self._exists(keys))

    def _exists(self, names: Sequence[str]) -> int:
        pool = self._pool(_KV).pool
        if pool is None or not names:
            return 0
        keys = Keys.of(names)
        return pool.exists(keys, lambda count: self._agreed(keys, count))

    def _agreed(self, keys: Keys, count: int) -> int:
        """Of `count` pages that this rank has, those that all ranks have: some may be on other machines."""
        return count if self._ranks is None else self._ranks.agree(keys, count)

    def batch_get_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Which pages were copied into the host pool: a prefix."""
        none = [False] * len(keys)
        return self._safely("batch_get_v1", none, lambda: self._get(_KV, keys, host_indices))

    def batch_set_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Which pages the node has now."""
        none = [False] * len(keys)
        return self._safely("batch_set_v1", none, lambda: self._set(_KV, keys, host_indices))

    def _get(self, name: Any, names: Sequence[str], indices: Any) -> list[bool]:
        known = self._pool(name)
        if known.logical:
            return [True] * len(names)
        if known.pool is None or known.pages is None or not names:
            return [False] * len(names)
        self._check_indices(known.pages, names, indices)
        begin = time.perf_counter()
        if known.pages.in_place:
            done = known.pool.fetch(Keys.of(names), known.pages.places(indices))
        else:
            done = self._get_flat(known.pool, known.pages, names, indices)
        if str(name) == _KV:
            self._figures.got(done, done * known.pool.page_bytes, time.perf_counter() - begin)
        return [True] * done + [False] * (len(names) - done)

    def _get_flat(self, pool: Pool, pages: Pages, names: Sequence[str], indices: Any) -> int:
        host = pages.pool
        copies = [host.get_dummy_flat_data_page() for _ in names]
        done = pool.fetch(Keys.of(names), _places_of(copies, pool.page_bytes))
        for start, page in zip(pages.starts(indices)[:done].tolist(), copies, strict=False):
            host.set_from_flat_data_page(start, page)
        return done

    def _set(self, name: Any, names: Sequence[str], indices: Any) -> list[bool]:
        known = self._pool(name)
        if known.logical:
            return [True] * len(names)
        if known.pool is None or known.pages is None or not names:
            return [False] * len(names)
        self._check_indices(known.pages, names, indices)
        if not known.writes:  # another rank stores the same bytes
            return [True] * len(names)
        begin = time.perf_counter()
        if known.pages.in_place:
            stored = known.pool.store(Keys.of(names), known.pages.places(indices))
        else:
            host = known.pages.pool
            copies = [host.get_data_page(start, flat=True) for start in known.pages.starts(indices).tolist()]
            stored = self._set_tensors(known.pool, names, copies)
        if str(name) == _KV:
            done = sum(stored)
            self._figures.put(done, done * known.pool.page_bytes, time.perf_counter() - begin)
        return stored

    @staticmethod
    def _check_indices(pages: Pages, names: Sequence[str], indices: Any) -> None:
        if indices is None or len(indices) != len(names) * pages.tokens:
            count = 0 if indices is None else len(indices)
            raise InvalidArgument(f"{count} slots for {len(names)} pages of {pages.tokens}")

    # ---- generic: flat copies of pages

    def exists(self, key: str) -> bool:
        return self._safely("exists", 0, lambda: self._exists([key])) == 1

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """The page's bytes in `target_location`, a tensor of the page's size (None: in a new one); None: a miss."""
        targets = None if target_location is None else [target_location]
        found = self.batch_get([key], targets)
        return found[0] if found else None

    def batch_get(self, keys: Sequence[str], target_locations: Any = None, target_sizes: Any = None) -> list[Any]:
        none: list[Any] = [None] * len(keys)
        return self._safely("batch_get", none, lambda: self._get_tensors(keys, target_locations))

    def _get_tensors(self, names: Sequence[str], targets: Sequence[Any] | None) -> list[Any]:
        known = self._pool(_KV)
        if known.pool is None or not names:
            return [None] * len(names)
        if targets is None:
            targets = [known.host_pool.get_dummy_flat_data_page() for _ in names]
        begin = time.perf_counter()
        done = known.pool.fetch(Keys.of(names), _places_of(targets, known.pool.page_bytes, len(names)))
        self._figures.got(done, done * known.pool.page_bytes, time.perf_counter() - begin)
        return [*targets[:done], *[None] * (len(names) - done)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        return self.batch_set([key], [value])

    def batch_set(
        self, keys: Sequence[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        """Whether the node has all of these pages now."""
        return self._safely("batch_set", False, lambda: self._put_tensors(keys, values))

    def _put_tensors(self, names: Sequence[str], values: Sequence[Any]) -> bool:
        known = self._pool(_KV)
        if known.pool is None:
            return False
        if not known.writes or not names:
            return True
        begin = time.perf_counter()
        stored = self._set_tensors(known.pool, names, values)
        done = sum(stored)
        self._figures.put(done, done * known.pool.page_bytes, time.perf_counter() - begin)
        return all(stored)

    @staticmethod
    def _set_tensors(pool: Pool, names: Sequence[str], values: Sequence[Any]) -> list[bool]:
        kept = [each.contiguous() for each in values]  # alive until the copy is done
        return pool.store(Keys.of(names), _places_of(kept, pool.page_bytes, len(names)))

    # ---- v2: several pools

    def batch_exists_v2(self, keys: Sequence[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        return self._safely(
            "batch_exists_v2", PoolTransferResult(0, {}, []), lambda: self._exists_v2(keys, pool_transfers or [])
        )

    def _exists_v2(self, names: Sequence[str], transfers: Sequence[Any]) -> Any:
        if not names:
            return PoolTransferResult(0, {}, [])
        keys = Keys.of(names)
        known = self._pool(_KV)
        if known.logical:
            count = len(keys) if transfers else 0  # the other pools decide
        else:
            count = known.pool.reach(keys) if known.pool is not None else 0
        hits: dict[Any, int] = {PoolName.KV: count} if count else {}
        may_end = np.ones(count + 1, bool)  # whether the prefix of so many pages can be restored
        allowed = may_end.copy()  # the same, if all windows were there
        wanted: list[tuple[Pool, int]] = []  # pool, and how many of the last pages it is asked for; 0: all
        windows: dict[Any, tuple[Pool, int]] = {}  # those of them that are asked for the last pages
        for transfer in transfers:
            if count == 0:
                break
            boundary, ends, window = self._hits_of(transfer, keys.cut(0, count))
            if boundary:
                hits[transfer.name] = boundary
            pool = self._pool(transfer.name).pool
            if ends is not None:
                may_end &= ends
                if pool is not None:
                    wanted.append((pool, window))
                if pool is None or not window:
                    allowed &= ends
                else:
                    windows[transfer.name] = pool, window
        may_end[0] = False
        farthest = _farthest(keys, windows.values(), np.flatnonzero(allowed), np.flatnonzero(may_end))
        if farthest:
            may_end[farthest] = True
            hits |= {name: max(hits.get(name, 0), farthest) for name in windows}
        longest = int(np.flatnonzero(may_end)[-1]) if may_end.any() else 0
        agreed = self._agreed(keys, longest)
        may_end[agreed + 1 :] = False  # SGLang finds the longest of these at which all ranks can end
        restorable = np.flatnonzero(may_end).tolist()
        final = restorable[-1] if restorable else 0
        if final:
            if known.pool is not None:
                known.pool.promise(keys.cut(0, final))
            for pool, window in wanted:
                pool.promise(keys.cut(max(0, final - window) if window else 0, final))
        return PoolTransferResult(final, hits, restorable)

    def _hits_of(self, transfer: Any, keys: Keys) -> tuple[int, Any, int]:
        """Of one pool: up to which page it goes, which prefixes it can restore (None: it has no say), its window."""
        count = len(keys)
        known = self._pool(transfer.name)
        policy = transfer.hit_policy
        ends = np.zeros(count + 1, bool)
        if known.logical:
            return count, np.ones(count + 1, bool), 0
        if policy == PoolHitPolicy.ALL_PAGES:
            boundary = known.pool.reach(keys) if known.pool is not None else 0
            ends[: boundary + 1] = True
            return boundary, ends, 0
        if policy == PoolHitPolicy.TRAILING_PAGES:
            window = max(1, len(transfer.keys) if transfer.keys else 1)
            if known.pool is not None:
                ends[1:] = _windows(known.pool.present(keys), window)
            return int(np.flatnonzero(ends)[-1]) if ends.any() else 0, ends, window
        if policy == PoolHitPolicy.BLOCK_GROUPS:
            return self._group_hits(known.pool, transfer), None, 0
        raise InvalidArgument(f"unknown hit policy {policy}")

    @staticmethod
    def _group_hits(pool: Pool | None, transfer: Any) -> int:
        """The pages that the leading complete groups of keys stand for."""
        size = transfer.group_pages
        if pool is None or not transfer.keys or size < 1:
            return 0
        present = pool.reach(Keys.of(transfer.keys))
        return int(present // size * transfer.block_pages)

    def batch_get_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[Any, list[bool]]:
        return {each.name: self._one_transfer("batch_get_v2", self._get, each) for each in transfers}

    def batch_set_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[Any, list[bool]]:
        return {each.name: self._one_transfer("batch_set_v2", self._set, each) for each in transfers}

    def _one_transfer(self, what: str, move: Callable[..., list[bool]], transfer: Any) -> list[bool]:
        keys = transfer.keys or []
        return self._safely(what, [False] * len(keys), lambda: move(transfer.name, keys, transfer.host_indices))

    # ---- the rest

    def clear(self) -> bool:
        """Forgets the pages of all pools, of this rank and of those that it shares, in all tiers."""
        return all([self._safely("clear", False, pool.clear) for pool in self._pools])

    def get_stats(self) -> Any:
        """SGLang's StorageMetrics since the last call."""
        from sglang.srt.observability.metrics_collector import StorageMetrics

        metrics = StorageMetrics()
        self._figures.move_into(metrics)
        return metrics

    def close(self) -> None:
        """Ends all pins and sessions. Calls that come later are misses."""
        self._closed = True
        self._ended.set()
        if self._ranks is not None:
            self._ranks.close()
        for pool in self._pools:
            self._safely("close", None, pool.close)

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the constructor failed, or the interpreter is ending: then no module's name can be used
            return

    def _safely(self, what: str, otherwise: T, run: Callable[[], T]) -> T:
        try:
            return run()
        except _SAID_ALREADY:
            return otherwise
        except Exception as why:
            self._complaints.log(what, why)
            return otherwise


def _look_after(look: weakref.WeakMethod[Callable[[], None]], ended: threading.Event) -> None:
    """Lookups and reads need no answer from the node: they alone would never tell that it is gone. Ends with `look`'s
    object, which this does not keep."""
    while not ended.wait(_LOOK):
        now = look()
        if now is None:
            return
        now()
        del now


def _farthest(keys: Keys, windows: Collection[tuple[Pool, int]], allowed: Any, known: Any) -> int:
    """The longest of the `allowed` prefixes, in pages, of which each pool has its window, with those tiers asked that
    have to be; 0: none that is longer than what is `known`, or nobody said so in time."""
    until = time.monotonic() + PATIENCE
    least = int(known[-1]) if known.size else 0
    end = int(allowed[-1]) if allowed.size and any(pool.asks_tiers for pool, _ in windows) else 0
    while end > least and time.monotonic() < until:
        shorter = end
        for pool, window in windows:
            first = max(0, end - window)
            there = pool.reach(keys.cut(first, end), until - time.monotonic())
            if first + there < end:  # every prefix that ends behind the missing page needs it, too
                shorter = min(shorter, first + there)
        if shorter == end:
            return end
        end = int(allowed[allowed <= shorter][-1]) if (allowed <= shorter).any() else 0
    return 0


def _windows(present: Sequence[bool], window: int) -> Any:
    """For each end 1…n, whether the `window` pages before it (all, where there are fewer) are present."""
    sums = np.concatenate([[0], np.cumsum(np.array(present, np.int64))])
    ends = np.arange(1, len(present) + 1)
    begins = np.maximum(0, ends - window)
    return sums[ends] - sums[begins] == ends - begins


def _places_of(tensors: Sequence[Any], page_bytes: int, count: int | None = None) -> Places:
    """Flat pages in tensors. InvalidArgument: one of them is no such page."""
    if count is not None and len(tensors) != count:
        raise InvalidArgument(f"{len(tensors)} tensors for {count} keys")
    for each in tensors:
        size = each.numel() * each.element_size()
        if each.device.type != "cpu" or not each.is_contiguous() or size != page_bytes:
            raise InvalidArgument(
                f"a page is a contiguous CPU tensor of {page_bytes} bytes, not {size} on {each.device}"
            )
    addresses = np.array([[each.data_ptr()] for each in tensors], np.uint64)
    return Places(addresses, np.array([page_bytes], np.uint64))


class _Complaints:
    """Tells of failures: the first of each kind at once, then one line in ten seconds. Thread-safe."""

    _PAUSE = 10.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def log(self, what: str, why: Exception) -> None:
        kind = f"{what}: {type(why).__name__}"
        now = time.monotonic()
        with self._lock:
            if now < self._next.get(kind, 0.0):
                self._untold[kind] = self._untold.get(kind, 0) + 1
                return
            self._next[kind] = now + self._PAUSE
            untold = self._untold.pop(kind, 0)
        more = f" (and {untold} times before)" if untold else ""
        ours = isinstance(why, OSError | ValueError | RuntimeError) or type(why).__module__.startswith("cenote")
        # As text: a record that a handler keeps would keep the exception, the frames that it passed, and their session.
        logger.warning("%s failed, taken as a miss: %s%s", kind, str(why), more, exc_info=None if ours else why)


class _Figures:
    """Pages and GB/s of transfers for StorageMetrics. Thread-safe. What nobody fetches is forgotten after a while."""

    _KEPT = 4096

    def __init__(self) -> None:
        self._gets: deque[tuple[int, float]] = deque(maxlen=self._KEPT)
        self._puts: deque[tuple[int, float]] = deque(maxlen=self._KEPT)

    def got(self, pages: int, size: int, seconds: float) -> None:
        if pages:
            self._gets.append((pages, size / max(seconds, 1e-9) / 1e9))

    def put(self, pages: int, size: int, seconds: float) -> None:
        if pages:
            self._puts.append((pages, size / max(seconds, 1e-9) / 1e9))

    def move_into(self, metrics: Any) -> None:
        for figures, pages, rates in (
            (self._gets, metrics.prefetch_pgs, metrics.prefetch_bandwidth),
            (self._puts, metrics.backup_pgs, metrics.backup_bandwidth),
        ):
            while figures:
                count, rate = figures.popleft()
                pages.append(count)
                rates.append(rate)
