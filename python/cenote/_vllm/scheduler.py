"""The scheduler's side: what a request may take from the node, and which of its blocks go there."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import logging
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vllm.v1.metrics.cache_hit_source import CacheHitSource

from .._near import DEADLINE, Near, exists
from ..errors import CenoteError, PinLimit
from ..session import InstanceSpec, Session
from . import identity, model
from .agreement import Agreement
from .ballots import Ballot
from .connection import Connection
from .finder import Finder, Offer, Search
from .handover import NODE, REQUEST, Following, Publisher, Terms, has_failed, terms_of
from .holds import Holds
from .layout import Unservable
from .media import have_digests
from .messages import Acknowledged, CenoteMetadata, Load, RankLayout, Store, Together
from .places import Places, places_of
from .prefill_rate import PrefillRate
from .reach import Tiers
from .settings import Settings
from .spans import traceparent_of
from .stats import CenoteStats

logger = logging.getLogger("cenote")

_MAX_PINS = 1 << 16
_LONGEST_NAME = 64  # bytes, of a group
_DEADLINE = 0.5  # seconds; only prefetches and resets wait for the node
_HANDOVER_DEADLINE = 20.0  # seconds for which a request waits for what another engine computes
_PATIENCE = 5.0  # seconds that the engine's start waits for its weights to be read


@dataclasses.dataclass
class Tracked:
    """A request of the engine. `stored`: its first blocks, which need no more thought."""

    request: Any
    stored: int = 0
    may_load: bool = True
    may_store: bool = True
    loaded: tuple[int, int, int] = (0, 0, 0)  # blocks from DRAM, from NVMe, from elsewhere
    joined: bool = False  # waits for another request's load
    search: Search = dataclasses.field(default_factory=Search)
    ballot: Ballot | None = None  # of the nodes, if there are several
    agreed: range = range(0)  # its blocks that all of them have
    terms: Terms | None = None  # of its hand-over
    publication: concurrent.futures.Future[bool] | None = None
    following: Following | None = None


class Scheduler:
    """All calls come from the engine's scheduler thread."""

    def __init__(self, config: Any, kv_cache_config: Any, settings: Settings) -> None:
        self._config = config
        self._kv_cache_config = kv_cache_config
        self._settings = settings
        transfer = config.kv_transfer_config
        self._may_load = bool(transfer.is_kv_consumer)
        self._may_store = bool(transfer.is_kv_producer)
        self._ranks = int(config.parallel_config.world_size)
        self._spec: InstanceSpec | None = None
        self._layout: RankLayout | None = None
        self._connection: Connection | None = None  # None until it is known which instance this is
        self._near: Near[None] | None = None  # blocks on the engine's device, if it has one rank
        self._places: Places | None = None
        self._agreement: Agreement | None = None  # where ranks sit on several nodes
        self._weights: identity.Weights | None = None
        self._connecting = threading.Lock()
        self._generation = ""  # of the weights, after a reset
        self._generations = 0  # how many of them
        self._is_own = False  # its instance: no other engine has it
        self._closed = False
        self._groups: list[model.Group] = []
        self._block_size = 1
        self._null_block = -1
        self._holds = Holds(self._ranks)
        self._announced: InstanceSpec | None = None  # the instance of which the workers know
        self._requests: dict[str, Tracked] = {}
        self._offers: dict[str, Offer] = {}
        self._loading: dict[str, Offer] = {}
        self._pinned: dict[str, int] = {}  # loads by layer -> ranks that have pinned their blocks
        self._keys_loading: dict[bytes, str] = {}  # key -> the request that loads it
        self._new_loads: list[Load] = []
        self._late_stores: list[Store] = []  # of requests that are over
        self._next_store = 0
        self._rate = PrefillRate(settings.prefill_tokens_per_s)
        self._finder = Finder(self._groups, self._block_size, self.failed)
        self._publisher = Publisher()
        self._refuses = False  # to hand requests over, and has said so
        self.stats = CenoteStats()

    # ---- beginning and end

    def begin(self, layouts: Mapping[tuple[int, int], RankLayout]) -> None:
        """The ranks have their KV tensors. Unservable: the engine is to run without Cenote."""
        config = self._config
        if not config.cache_config.enable_prefix_caching:
            raise Unservable("prefix caching is off")
        model.check_engine(config)
        groups = model.groups_of(self._kv_cache_config)
        block_size = model.block_size_of(self._kv_cache_config)
        problems = sorted({layout.problem for layout in layouts.values() if layout.problem})
        if problems:
            raise Unservable("; ".join(problems))
        if len(layouts) != self._ranks:
            raise Unservable(f"{len(layouts)} of {self._ranks} ranks have KV tensors")
        if len(set(layouts.values())) != 1:
            raise Unservable("its ranks have different KV tensors")
        (self._layout,) = set(layouts.values())
        self._places = self._places_of(layouts)
        self.describe(groups, block_size)
        if not model.is_reproducible(config):
            logger.warning(
                "this engine's block hashes are random: no other process can use what it stores; "
                "set PYTHONHASHSEED, or prefix_caching_hash_algo to sha256"
            )
        # Reading all weights may take a minute: the engine goes on meanwhile, and stores and finds nothing.
        thread = threading.Thread(target=self._find_out, name="cenote-weights", daemon=True)
        thread.start()
        thread.join(_PATIENCE)

    def describe(self, groups: list[model.Group], block_size: int) -> None:
        """`block_size`: tokens."""
        self._groups, self._block_size = groups, block_size
        self._finder = Finder(groups, block_size, self.failed)

    def _places_of(self, layouts: Mapping[tuple[int, int], RankLayout]) -> Places:
        machines = {rank: layout.machine for (_, rank), layout in layouts.items()}
        copies = int(self._kv_cache_config.kv_tp_replicas)
        found = places_of(self._config.parallel_config, copies, self._settings, machines)
        if found.nodes > 1:
            logger.info("%d nodes, each with %d of %d ranks", found.nodes, found.per_node, found.ranks)
        return found

    def _find_out(self) -> None:
        """Which weights these are; then the node may be asked."""
        try:
            told = self._settings.fingerprint
            weights = identity.Weights(f"user:{told}") if told else identity.weights_of(self._config)
            if weights.doubt:
                logger.warning(
                    "%s, so they may be others than those of the files: what this engine stores is its own alone; "
                    "start it again without that to share, or set `fingerprint`",
                    weights.doubt,
                )
            with self._connecting:
                self._weights = weights
                if not self._closed:
                    self._connect(self._generation or (uuid.uuid4().hex if weights.doubt else ""))
        except Unservable as why:
            logger.error("%s is not cached: %s", self._config.model_config.model, str(why))
        except Exception:
            logger.exception("%s is not cached", self._config.model_config.model)

    def _connect(self, generation: str) -> None:
        assert self._layout is not None
        assert self._weights is not None
        assert self._places is not None
        specs = [
            model.instance_of(
                self._config, self._kv_cache_config, self._layout, self._settings, self._weights, generation, share
            )
            for share in map(self._places.share_of, range(self._places.nodes))
        ]
        self._spec = specs[0]
        self._is_own = bool(generation)
        connection = Connection(
            self._spec, self._settings, max_pins=_MAX_PINS, deadline=_DEADLINE, name="vllm-scheduler"
        )
        if len(specs) > 1:
            # Of this process and instance alone: nobody else may answer for it, an earlier one's ranks neither.
            name = f"vllm-{self._config.kv_transfer_config.engine_id}-{uuid.uuid4().hex[:8]}"
            name = name.encode()[-_LONGEST_NAME:].decode(errors="ignore")
            together = Together(name, self._places, tuple(specs))
            first = self._generations << 32  # ballots of earlier ones may still end
            self._agreement = Agreement(together, connection.session, self._finder, first)
        self._near = self._finder.near = self._near_of(self._spec, self._layout.device)
        self._connection = connection  # only now: what a step is told of an instance is told with all of its nodes

    def _near_of(self, spec: InstanceSpec, device: str) -> Near[None] | None:
        """With several ranks a block is whole on no device, and this process has none of theirs open: then what DRAM
        has is offered, and each rank takes from its device what is there."""
        settings = self._settings
        if not settings.gpu_pool or self._ranks > 1 or not device:
            return None
        return Near(
            lambda prepare: Connection(
                spec,
                settings,
                max_pins=_MAX_PINS,
                deadline=DEADLINE,
                name="vllm-scheduler",
                prepare=prepare,
                pool=device,
                tells=False,  # the worker's session does
            ),
            lambda device: None,
        )

    def bind_pool(self, pool: Any) -> None:
        self._null_block = pool.null_block.block_id
        self._holds.bind(pool)

    def reset(self) -> bool:
        """Forgets what is stored. The weights may be others from now on, and no fingerprint of files tells which: this
        engine goes on in an instance of its own."""
        session = self._session()
        if session is not None:
            try:
                session.clear()
            except CenoteError as why:
                logger.warning("reset: %s; the old blocks are left behind unused", str(why))
        self._leave()
        return True

    def _leave(self) -> None:
        """Goes over to an instance of this engine's own, and a new one each time: what is on its way into the old one
        is not found there."""
        self._drop_offers()
        for tracked in self._requests.values():
            self._end_waits(tracked)
            tracked.may_store = False  # it may have been computed with the old weights
        for late in self._late_stores:
            self._holds.drop(late.number)
        self._late_stores = []
        with self._connecting:  # or the old weights are still being read, for a connection that comes later
            self._generation = uuid.uuid4().hex
            self._generations += 1
            if self._connection is not None:
                self._close_connection()
                self._connect(self._generation)

    def _close_connection(self) -> None:
        agreement, self._agreement = self._agreement, None
        if agreement is not None:
            agreement.close()
        if self._connection is not None:
            self._connection.close()
        if self._near is not None:
            self._near.close()

    def close(self) -> None:
        self._drop_offers()
        for tracked in self._requests.values():
            self._end_waits(tracked)
        self._finder.close()
        self._publisher.close()
        for offer in self._loading.values():
            offer.release()
        with self._connecting:
            self._closed = True
            self._close_connection()

    # ---- taking

    def added(self, request: Any) -> None:
        """A new request came."""
        tracked = self._requests.setdefault(request.request_id, Tracked(request))
        tracked.search.traceparent = traceparent_of(request)
        tracked.terms = terms_of(request, self._may_store, self._may_load, self._settings.node)
        session = self._session()
        if tracked.terms is None:
            return
        if session is None or not _is_cacheable(request) or not self._hands_over():
            tracked.terms = None
        elif not tracked.terms.node:
            prompt = request.block_hashes[: request.num_prompt_tokens // self._block_size]
            groups = [group.name for group in self._groups]
            tracked.publication = self._publisher.publish(session, tracked.terms, prompt, groups)
            self.stats.add(requests_published=1)
        else:
            self._follow(session, tracked)

    def _hands_over(self) -> bool:
        """Whether this engine can; if not, it is said once."""
        if any(group.window for group in self._groups):  # of those most blocks are never stored
            why = "requests of models with sliding windows are not handed over"
        elif self._agreement is not None:  # each has parts of a block only, and terms name one
            why = "requests of an engine whose ranks are on several nodes are not handed over"
        elif self._is_own:
            why = "requests of an engine that was reset, or whose weights are not certain, are not handed over"
        else:
            return True
        if not self._refuses:
            logger.warning("%s: `%s` and the setting `node` count for nothing", why, REQUEST)
        self._refuses = True
        return False

    def _follow(self, session: Session, tracked: Tracked) -> None:
        assert tracked.terms is not None
        if self._finder.is_quiet:
            return
        deadline = self._settings.handover_deadline
        wanted = _HANDOVER_DEADLINE if deadline is None else deadline
        hashes = tracked.request.block_hashes
        here = min(session.match(hashes, group=group.name).resident for group in self._groups) if hashes else 0
        tracked.search.tiers = Tiers(here, here)
        try:
            names = [group.name for group in self._groups]
            tracked.following = Following(session, tracked.terms, names, wanted)
            self.stats.add(requests_followed=1)
        except CenoteError as why:
            self._finder.note(why)
            self.failed(why)

    def _is_handed_over(self, tracked: Tracked) -> bool:
        """Whether nothing more comes from the engine that prefills."""
        assert tracked.following is not None
        try:
            return not tracked.following.is_open()
        except CenoteError as why:
            logger.warning("a request is not handed over: %s", str(why))
            self._end_following(tracked)
            return True

    def _end_following(self, tracked: Tracked) -> None:
        following, tracked.following = tracked.following, None
        if following is not None:
            following.end()

    def match(self, request: Any, computed: int) -> tuple[int | None, bool]:
        """Tokens beyond the first `computed` that the node has, pinned until the end of the step, and whether there
        are any; None: ask again."""
        session = self._session()
        tracked = self._requests.get(request.request_id)
        if session is None or tracked is None or not (self._may_load and tracked.may_load):
            return 0, False
        if request.skip_reading_prefix_cache or not _is_cacheable(request):
            return 0, False
        first, odd = divmod(computed, self._block_size)
        last = (request.num_tokens - 1) // self._block_size  # the last token is always computed
        keys = request.block_hashes[first:last]
        if odd or not keys:
            return 0, False
        if keys[0] in self._keys_loading:
            if not tracked.joined:  # asked again in each step until it has ended
                tracked.joined = True
                self.stats.add(loads_joined=1)
            return None, False
        tracked.joined = False
        began = time.perf_counter()
        self._forget_offer(request.request_id)
        find = self._find_alone if self._agreement is None else self._find_together
        offer = find(session, tracked, first, keys)
        self.stats.add(lookups=1, lookup_seconds=time.perf_counter() - began, blocks_looked_up=len(keys))
        if offer is None or offer.count == 0:
            return (None if offer is None else 0), False
        self._offers[request.request_id] = offer
        by_layer = self._layout is not None and self._layout.by_layer
        return offer.count * self._block_size, not by_layer

    def _session(self) -> Session | None:
        return self._connection.session() if self._connection is not None else None

    def _find_alone(self, session: Session, tracked: Tracked, first: int, keys: Sequence[bytes]) -> Offer | None:
        """What the node has, pinned; None: wait, more is on its way."""
        if tracked.following is not None and not self._is_handed_over(tracked):
            return None
        offer = Offer(first, keys)
        wait = False
        try:
            wait = self._finder.find(session, tracked.search, offer, self._rate.tokens_per_s)
            if tracked.following is not None:
                self.stats.add(blocks_followed=tracked.following.length)
                offer.tiers = tracked.search.tiers
        except CenoteError as why:
            offer.count = 0
            self.failed(why)
        finally:
            self._end_following(tracked)  # only now: the offer has pins of its own
        if wait or offer.count == 0:
            offer.release()
        return None if wait else offer

    def _find_together(self, session: Session, tracked: Tracked, first: int, keys: Sequence[bytes]) -> Offer | None:
        """What all nodes have, pinned on each; None: they do not agree yet."""
        agreement, ballot = self._agreement, tracked.ballot
        nothing = Offer(first, [])
        if agreement is None:
            return nothing
        if ballot is not None and agreement.is_stale(ballot, first, keys):
            self._end_ballot(tracked)
            ballot = None
        if ballot is None:
            if not agreement.is_possible:
                return nothing
            tokens = len(keys) * self._block_size
            tracked.ballot = ballot = agreement.begin(
                first, keys, tokens, self._rate.tokens_per_s, tracked.search.traceparent
            )
        try:
            if not agreement.is_over(ballot, self.stats):
                return None
        except CenoteError as why:
            self.failed(why)
        if not ballot.result:
            return nothing
        ballot.offer.ballot, ballot.offer.count = ballot.ask.number, ballot.result
        return ballot.offer

    def _end_waits(self, tracked: Tracked) -> None:
        self._end_following(tracked)
        self._finder.end(tracked.search)
        self._end_ballot(tracked)

    def _end_ballot(self, tracked: Tracked) -> None:
        ballot, tracked.ballot = tracked.ballot, None
        if ballot is not None and self._agreement is not None:
            self._agreement.drop(ballot)

    def _forget_offer(self, name: str) -> None:
        """One on which nodes agreed stays until its request begins or ends: it would take them a step to agree anew."""
        offer = self._offers.pop(name, None)
        if offer is not None and offer.ballot is None:
            offer.release()

    def _drop_offers(self) -> None:
        for name in list(self._offers):
            self._forget_offer(name)

    def allocated(self, request: Any, blocks: Any, external: int) -> None:
        """The engine has blocks for the request, and wants the first `external` tokens of what was offered."""
        name = request.request_id
        tracked = self._requests.get(name)
        if external <= 0:
            self._forget_offer(name)
            if tracked is not None:
                self._end_ballot(tracked)
            return
        self._loading[name] = offer = self._offers.pop(name, None) or Offer(0, [])
        if tracked is not None and offer.ballot is not None:
            tracked.ballot = None  # its blocks are the load's now
            tracked.agreed = range(offer.first, offer.first + offer.count)
        try:
            load = self._load_of(name, offer, blocks.get_block_ids(), external)
        except Exception:
            self._new_loads.append(self._failed_load(name, offer, blocks.get_block_ids(), external))
            raise
        self._new_loads.append(load)
        for key in offer.keys[: offer.count]:
            self._keys_loading[key] = name

    def _failed_load(self, name: str, offer: Offer, tables: Sequence[list[int]], external: int) -> Load:
        """The request waits for a load, or computes with its blocks in this step: let it fail."""
        if self._layout is None or not self._layout.by_layer:
            return Load(name, [])
        return Load(name, [(0, [], list(tables[0][offer.first : offer.first + external // self._block_size]))])

    def _load_of(self, name: str, offer: Offer, tables: Sequence[list[int]], external: int) -> Load:
        count, odd = divmod(external, self._block_size)
        if odd or count > offer.count:
            raise ValueError(f"{name}: {external} tokens to load, {offer.count} blocks offered")
        tiers = offer.tiers or Tiers(offer.first + count, offer.first + count)
        dram, nvme, elsewhere = tiers.split(offer.first, count)
        self._requests[name].loaded = (dram, nvme, elsewhere)
        self.stats.add(blocks_offered=count, blocks_prefetched=count - dram, blocks_from_remote=elsewhere)
        load = Load(name, [], self._requests[name].search.traceparent)
        for number, (group, start) in enumerate(zip(self._groups, offer.starts, strict=True)):
            table = tables[number][offer.first : offer.first + count]
            if len(table) != count:
                raise ValueError(f"{name}: {len(table)} of {count} blocks in group {number}")
            wanted = [i for i, block in enumerate(table) if block != self._null_block]
            if (wanted and wanted[0] < start) or (not group.window and len(wanted) != count):
                raise ValueError(f"{name}: the engine wants other blocks of group {number} than were offered")
            load.groups.append((number, [offer.keys[i] for i in wanted], [table[i] for i in wanted]))
        return load

    def sources(self, request: Any, tokens: int) -> dict[CacheHitSource, int]:
        """Where the tokens that a request loads came from."""
        tracked = self._requests.get(request.request_id)
        _, nvme, elsewhere = tracked.loaded if tracked is not None else (0, 0, 0)
        remote = min(tokens, elsewhere * self._block_size)
        disk = min(tokens - remote, nvme * self._block_size)
        counted = {
            CacheHitSource.HOST: tokens - disk - remote,
            CacheHitSource.DISK: disk,
            CacheHitSource.EXTERNAL_UNSPECIFIED: remote,  # what vLLM says of remote stores
        }
        return {source: count for source, count in counted.items() if count}

    # ---- giving

    def build(self, output: Any) -> CenoteMetadata:
        """The work of this step."""
        loads, self._new_loads = self._new_loads, []
        backlog, self._late_stores = self._late_stores, []
        fence = self._holds.fence()
        stores: list[Store] = []
        self._drop_offers()  # of those whose request got no blocks in this step
        try:
            for found in self._stores_of(output):
                stores += found
            self._rate.step_begins(self._prefill_tokens(output))
        except Exception as why:
            self.failed(why)
        # Without a node the workers would look for one, too.
        is_there = loads or stores or backlog or self._session() is not None
        spec = self._spec if is_there else None
        self._announced = spec or self._announced
        metadata = CenoteMetadata(spec, loads, stores, backlog, fence, self._generations)
        if self._agreement is not None:
            metadata.together = self._agreement.together
            metadata.have_met = self._agreement.is_possible
            metadata.asks, metadata.ended = self._agreement.taken()
        return metadata

    def _prefill_tokens(self, output: Any) -> int:
        counted = 0
        for name, tokens in output.num_scheduled_tokens.items():
            tracked = self._requests.get(name)
            if tracked is not None and tracked.request.num_computed_tokens < tracked.request.num_prompt_tokens:
                counted += tokens
        return counted

    def _stores_of(self, output: Any) -> Iterator[list[Store]]:
        session = self._session()
        state = output.kv_connector_block_state
        if session is None or state is None or not self._may_store:
            return
        for name, tokens in output.num_scheduled_tokens.items():
            tracked = self._requests.get(name)
            if tracked is None or not tracked.may_store:
                continue
            request = tracked.request
            ready = request.num_computed_tokens
            if request.num_output_placeholders or name in output.scheduled_spec_decode_tokens:
                ready -= request.num_output_placeholders  # what is under way may be rejected
            else:
                ready += tokens  # computed when the workers copy
            full = self._full_blocks(request, ready)
            if full > tracked.stored and _is_cacheable(request) and not self._may_lack_blocks(request, full):
                tables = state.get_block_ids(name)
                if tables is not None:
                    yield self._stores_from(session, tracked, tables, full)

    def _may_lack_blocks(self, request: Any, full: int) -> bool:
        """Whether some of its blocks are being loaded in steps whose outcome is not known yet. What is computed from
        them may be wrong and be computed again: nobody may have it before."""
        loading = self._keys_loading
        return bool(loading) and any(key in loading for key in request.block_hashes[:full])

    def _full_blocks(self, request: Any, computed: int) -> int:
        """Blocks whose tokens are all computed and known."""
        return min(min(computed, request.num_tokens) // self._block_size, len(request.block_hashes))

    def _stores_from(self, session: Session, tracked: Tracked, tables: Sequence[list[int]], full: int) -> list[Store]:
        """Stores of its first `full` blocks, as far as the engine may keep so many; the others come with a later
        step."""
        first = tracked.stored
        hashes = tracked.request.block_hashes
        jobs = [
            (number, self._unstored(session, tracked, number, table, range(first, full)))
            for number, table in enumerate(tables)
        ]
        positions, room = sorted(i for _, wanted in jobs for i in wanted), self._holds.room
        end = full if len(positions) <= room else positions[room]
        found = []
        for number, wanted in jobs:
            chosen = [i for i in wanted if i < end]
            if not chosen:
                continue
            self._next_store += 1
            store = Store(self._next_store, number, [hashes[i] for i in chosen], [tables[number][i] for i in chosen])
            self._holds.add(store.number, store.blocks)
            found.append(store)
        tracked.stored = end
        return found

    def _unstored(
        self, session: Session, tracked: Tracked, number: int, table: Sequence[int], positions: range
    ) -> list[int]:
        """Those of a group's blocks that are to be stored."""
        there = [i for i in positions if i < len(table) and table[i] != self._null_block]
        if self._agreement is not None:
            return [i for i in there if i not in tracked.agreed]  # what this node has, another one may have lost
        keys = tracked.request.block_hashes[positions.start : positions.stop]
        present = exists(self._near, session, keys, self._groups[number].name)
        return [i for i in there if not present[i - positions.start]]

    def finished(self, request: Any, tables: Sequence[list[int]]) -> None:
        """A request is over, and the engine is about to let go of its blocks."""
        name = request.request_id
        tracked = self._requests.pop(name, None)
        self._forget_offer(name)
        if tracked is None:
            return
        self._end_waits(tracked)
        session = self._session()
        if session is None or not (self._may_store and tracked.may_store) or not _is_cacheable(request):
            return
        if name in self._loading:  # its blocks hold nothing yet
            return
        full = self._full_blocks(request, request.num_computed_tokens - request.num_output_placeholders)
        if full > tracked.stored and not self._may_lack_blocks(request, full):
            self._late_stores += self._stores_from(session, tracked, tables, full)
            self.stats.add(blocks_dropped=(full - tracked.stored) * len(self._groups))  # the engine would keep too many

    def answer_of(self, request: Any) -> dict[str, Any] | None:
        """What whoever sends the request on must know; before finished()."""
        tracked = self._requests.get(request.request_id)
        if tracked is None or tracked.terms is None or tracked.terms.node or not self._settings.node:
            return None
        if has_failed(tracked.publication):  # whoever follows it would wait until the deadline for nothing
            return None
        return {REQUEST: tracked.terms.request, NODE: self._settings.node}

    def acknowledged(self, loaded: Iterable[str], answer: Acknowledged | None) -> None:
        """What the workers say at the end of a step."""
        for name, ranks in answer.pinned.items() if answer is not None else ():
            self._pinned[name] = self._pinned.get(name, 0) + ranks
        all_pinned = [name for name, ranks in self._pinned.items() if ranks >= self._ranks]
        for name in all_pinned:
            del self._pinned[name]
        for name in (*loaded, *all_pinned):
            offer = self._loading.pop(name, None)
            if offer is not None:
                for key in offer.keys[: offer.count]:
                    self._keys_loading.pop(key, None)
                offer.release()
                if offer.ballot is not None and self._agreement is not None:
                    self._agreement.over(offer.ballot)
        if answer is None:
            return
        for number, ranks in answer.copied.items():
            self._holds.copied(number, ranks)
        if answer.updated:
            logger.warning(
                "the weights were updated in place, and no file tells what they are: what this engine stores from now "
                "on is its own alone"
            )
            self._leave()
        if answer.failed_loads and self._connection is not None:
            self._connection.doubt()
        for name in answer.failed_loads:
            if name in self._requests:
                self._requests[name].may_load = False  # or it would be offered the same again and again
                self._requests[name].agreed = range(0)

    def step_ended(self) -> None:
        self._rate.step_ended()

    @property
    def is_waiting(self) -> bool:
        """The engine has to go on stepping, or nobody sees what the workers acknowledge, nor they what they are to do:
        attach, say, before the first request comes."""
        is_new = self._session() is not None and self._announced is not self._spec
        has_news = self._agreement is not None and self._agreement.has_news
        return bool(self._holds or self._late_stores or is_new or has_news)

    @property
    def frees_blocks(self) -> bool:
        """Whether the engine soon has blocks that only stores keep: it need not preempt for them."""
        return self._holds.frees_blocks

    def taken_stats(self) -> CenoteStats | None:
        """Since the last call."""
        if self.stats.is_empty():
            return None
        taken, self.stats = self.stats, CenoteStats()
        return taken

    def failed(self, why: Exception, session: Session | None = None) -> None:
        """Something went wrong with `session` (None: the present one); the engine goes on without it."""
        if isinstance(why, PinLimit):
            logger.warning("no pins are left, so these blocks are not offered: %s", str(why))
        elif isinstance(why, CenoteError):
            logger.warning("asking the node: %s", str(why))
            if self._connection is not None:
                self._connection.failed(why, session)
        else:
            logger.error("in the scheduler", exc_info=why)


def _is_cacheable(request: Any) -> bool:
    """vLLM's hashes name an adapter only by the name that it has in this process, and media by any identifier."""
    return request.lora_request is None and have_digests(request.mm_features)
