"""One host pool of an SGLang engine as an instance of a node: look up, fetch, store."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

import numpy as np

from .._attachment import Attachment
from .._full_node import FullNode
from .._near import DEADLINE, WITHOUT_DEVICE, Near, Run, Taken, acquire, exists
from ..blocks import PRESENT, Block
from ..device import DeviceLost
from ..errors import (
    CenoteError,
    DeadlineExceeded,
    LimitExceeded,
    NodeRestarting,
    NoSpace,
    NotReserved,
    PinLimit,
    Revoked,
)
from ..prefetch import Prefetch
from ..session import InstanceSpec, Session
from .copier import Copier, NearCopier
from .keys import Keys
from .pages import Places
from .promises import Promise, Promises
from .settings import Settings

logger = logging.getLogger("cenote")

_GET_BYTES = 1 << 30  # of one copy; between two of them the deadline counts
_SET_BYTES = 256 << 20  # bound in one reservation: the node has to find room for all of them at once
_NAP = 0.005  # seconds, between two looks at what is on its way
PATIENCE = 0.05  # seconds that tiers may take to say what they have


class Pool:
    """Every call ends in time and answers with what is certain. A CenoteError goes to the caller. Thread-safe."""

    def __init__(
        self,
        spec: InstanceSpec,
        page_bytes: int,
        settings: Settings,
        copier: Copier,
        leader: Pool | None = None,
        gpu: str | None = None,
    ) -> None:
        """`leader`: a pool that has to be attached before this one tries: only one says that there is no node. `gpu`:
        on which the engine's KV is."""
        self.spec = spec
        self._leader = leader
        self.page_bytes = page_bytes
        self._settings = settings
        self._copier = copier
        self._full = FullNode(logger)
        self.promises = Promises(settings.hold, settings.hold_pages)
        self._attachment = Attachment(
            spec,
            socket=settings.socket,
            token=settings.token,
            deadline=settings.deadline,
            max_pins=2 * settings.hold_pages + 1024,
            client_name="sglang",
            prepare=copier.attach,
        )
        device = settings.device or gpu
        self._near = self._near_of(spec, device) if settings.gpu_pool and device is not None else None
        if settings.gpu_pool and device is None and leader is None:
            logger.warning(WITHOUT_DEVICE)

    def _near_of(self, spec: InstanceSpec, device: str) -> Near[NearCopier]:
        settings = self._settings
        return Near(
            lambda prepare: Attachment(
                spec,
                socket=settings.socket,
                token=settings.token,
                deadline=min(DEADLINE, settings.deadline / 4),  # DRAM may have to do in the same call
                max_pins=2 * settings.hold_pages + 1024,
                client_name="sglang",
                prepare=prepare,
                device=device,
                tells=self._leader is None,
            ),
            lambda device: NearCopier(device, settings.threads),
        )

    @contextlib.contextmanager
    def _attached(self) -> Iterator[Session | None]:
        session = self._session()
        try:
            yield session
        except CenoteError as why:
            self._attachment.failed(why, session)
            raise

    def _session(self) -> Session | None:
        if self._leader is not None and self._leader._session() is None:
            return None
        return self._attachment.session()

    def session(self) -> Session | None:
        """None while there is no node."""
        return self._session()

    def attach(self) -> bool:
        """Whether there is a node."""
        if self._session() is None:
            return False
        if self._near is not None:
            self._near.session()
        return True

    def look(self) -> None:
        """Notices a node that is gone, and one that is there again."""
        with self._attached() as session:
            if session is not None:
                with contextlib.suppress(DeadlineExceeded, NodeRestarting):  # slow is not gone
                    session.barrier()
                if self._near is not None:
                    self._near.look()

    # ---- looking up

    def reach(self, keys: Keys, patience: float = PATIENCE) -> int:
        """How many of the first pages the node has, in whatever tier; those are asked that have to be, for at most
        `patience` seconds."""
        with self._attached() as session:
            if session is None or not keys:
                return 0
            return self._locate(session, keys, max(0.0, patience))

    def _locate(self, session: Session, keys: Keys, patience: float = PATIENCE) -> int:
        """reach(), of one session; with what only the device has before that."""
        first = 0
        if self._near is not None and self._near.session() is not None:
            there = exists(self._near, session, keys.array())
            first = next((i for i, each in enumerate(there) if not each), len(there))
        return first + (session.locate(keys.cut(first).array(), timeout=patience).reachable if first < len(keys) else 0)

    @property
    def asks_tiers(self) -> bool:
        """Whether present() does not know what some tier has."""
        with self._attached() as session:
            return session is not None and session.asks_tiers

    def present(self, keys: Keys) -> list[bool]:
        """For each page, whether the node has it, in whatever tier that says so without being asked."""
        with self._attached() as session:
            if session is None or not keys:
                return [False] * len(keys)
            found = exists(self._near, session, keys.array())
            for i, there in enumerate(found):
                if not there:
                    found[i] = session.match(keys.cut(i, i + 1).array()).reachable == 1
            return found

    def exists(self, keys: Keys, agree: Callable[[int], int] = lambda count: count) -> int:
        """reach(), and a promise of what it found. Pinning is also the fastest way to look up what is in DRAM.
        `agree`: what all ranks have, of what this one has, which is pinned meanwhile."""
        with self._attached() as session:
            if session is None or not keys:
                return 0
            first = keys.cut(0, self.promises.room)
            held = self._pin(session, first)
            count = len(held) if held is not None else 0
            if count < len(keys):
                count += self._locate(session, keys.cut(count))
            count = agree(count)
            if held is not None and count < len(held):
                surplus, held = held, self._pin(session, first.cut(0, count))
                surplus.release()
            self._promise(session, first.cut(0, count), held)
            return count

    def promise(self, keys: Keys) -> None:
        """These pages will be fetched soon: pins them, and asks for those in lower tiers."""
        keys = keys.cut(0, self.promises.room)
        with self._attached() as session:
            if session is not None and keys:
                self._promise(session, keys, self._pin(session, keys))

    def _pin(self, session: Session, keys: Keys) -> Taken | None:
        """None: the session has not enough pins left."""
        if keys:
            with contextlib.suppress(PinLimit):
                return acquire(self._near, session, keys.array())
        return None

    def _promise(self, session: Session, keys: Keys, held: Taken | None) -> None:
        if not keys:
            return
        ticket: Prefetch | None = None
        if held is not None and len(held) < len(keys):
            with contextlib.suppress(LimitExceeded):
                # A chain that begins with pages that only the device has would end there.
                ticket = self._bring(session, keys if self._near is None else keys.cut(len(held)))
        self.promises.add(Promise(keys, held, ticket))

    # ---- fetching

    def fetch(self, keys: Keys, targets: Places) -> int:
        """Copies the first pages into `targets`, waits for those that are on their way, and returns how many it
        copied: those are whole, the others were not touched, unless a device refused them half-way."""
        end = time.monotonic() + self._settings.deadline
        step = max(1, _GET_BYTES // self.page_bytes)
        done = 0
        with self._attached() as session:
            if session is None:
                return 0
            while done < len(keys):
                with acquire(self._near, session, keys.cut(done, done + step).array()) as taken:
                    found, copied = len(taken), 0
                    for run in taken.runs:
                        if not self._scatter(run, targets, done + run.first):
                            break
                        copied += len(run.held)
                done += copied
                if done < len(keys) and time.monotonic() > end:
                    break
                if not found and not self._await(session, keys.cut(done), end):
                    break
        if done == len(keys):
            self.promises.redeem(keys)
        return done

    def _await(self, session: Session, keys: Keys, end: float) -> bool:
        """Whether the first of these pages came up in time."""
        first = keys.cut(0, 1)
        promise = self.promises.take(first.packed)
        if promise is None:
            if session.locate(first.array()).reachable == 0:
                return False
            promise = Promise(keys, None, self._bring(session, keys))
        try:
            while True:
                waits = promise.wait(min(_NAP, max(0.0, end - time.monotonic())))
                if session.match(first.array()).resident:
                    return True
                if not waits or time.monotonic() > end:
                    return False
        finally:
            self.promises.add(promise)

    def _bring(self, session: Session, keys: Keys) -> Prefetch:
        rate = self._settings.prefill_tokens_per_s
        # SGLang has decided by its own threshold already, and windows and states are short.
        return session.prefetch(keys.each(), "wait_complete", prefill_tokens_per_s=rate, threshold_tokens=0)

    def _scatter(self, run: Run, targets: Places, first: int) -> bool:
        """False: the device takes no copies now; DRAM has to do."""
        count = len(run.held)
        blocks = np.frombuffer(run.held.addresses(), np.uint64, count)
        pages = targets.pick(slice(first, first + count))
        try:
            with self._copier_of(run.session) as copier:
                copier.copy("load", pages.addresses, blocks[:, None] + targets.offsets(), targets.sizes)
        except DeviceLost:
            raise
        except CenoteError:
            if not run.is_near:
                raise
            return False
        return True

    @contextlib.contextmanager
    def _copier_of(self, session: Session) -> Iterator[Copier | NearCopier]:
        """That reaches the session's blocks. Of those on a device, DeviceLost: it is lost. Any other CenoteError: it
        refused, and works on nothing any more."""
        near = self._near.works_on(session) if self._near is not None else None
        try:
            yield near or self._copier
        except CenoteError as why:
            if near is None or self._near is None:
                raise
            if self._near.refused(why):
                raise
            raise DeviceLost(str(why)) from why  # whatever it was, the session in DRAM is as it was

    # ---- storing

    def store(self, keys: Keys, sources: Places) -> list[bool]:
        """For each page, whether the node has it now. What it had before stays as it was."""
        end = time.monotonic() + self._settings.deadline
        stored = [False] * len(keys)
        with self._attached() as session:
            if session is None:
                return stored
            # What was stored stays pinned until all is: else a set that meets a full node would evict its own first
            # pages for its last ones. A node that is full of pinned pages takes no more; that is no error.
            with contextlib.ExitStack() as pins:
                try:
                    self._store(session, keys, sources, stored, end, pins)
                except NoSpace as why:
                    self._full.refused(stored.count(False), why)
        return stored

    def _store(
        self,
        session: Session,
        keys: Keys,
        sources: Places,
        stored: list[bool],
        end: float,
        pins: contextlib.ExitStack,
    ) -> None:
        def keep(pages: list[int]) -> None:
            held = self._pin(session, keys.pick(pages))
            if held is not None:
                pins.enter_context(held)

        for i, there in enumerate(exists(self._near, session, keys.array())):
            stored[i] = there
        missing = [i for i, there in enumerate(stored) if not there]
        if missing:
            keep([i for i, there in enumerate(stored) if there])
        step = max(1, _SET_BYTES // self.page_bytes)
        pause = 0.0005
        while missing:
            later: list[int] = []  # another writer has them: what it writes is what we would
            position = 0
            while position < len(missing):
                if time.monotonic() > end:
                    return
                batch = missing[position : position + step]
                try:
                    later += self._store_batch(session, keys, sources, stored, batch)
                except NoSpace:
                    if len(batch) == 1:
                        raise
                    step = max(1, len(batch) // 2)
                    continue
                position += len(batch)
                if position < len(missing) or later:
                    keep([i for i in batch if stored[i]])
            if later and time.monotonic() + pause > end:
                return
            if later:
                time.sleep(pause)
                pause = min(2 * pause, 0.05)
            missing = later

    def _store_batch(
        self, session: Session, keys: Keys, sources: Places, stored: list[bool], batch: list[int]
    ) -> list[int]:
        """Marks what is stored now, and returns what another writer has. On the device, if there is room: the node
        brings it to DRAM."""
        here = self._near.session() if self._near is not None else None
        if self._near is not None and here is not None:
            try:
                return self._store_with(here, keys, sources, stored, batch)
            except CenoteError as why:  # the pages are as they were, and what the device was to write is not given back
                self._near.failed(why, here)
        return self._store_with(session, keys, sources, stored, batch)

    def _store_with(
        self, session: Session, keys: Keys, sources: Places, stored: list[bool], batch: list[int]
    ) -> list[int]:
        slots = session.reserve(keys.pick(batch).array())
        mine = [(i, slot) for i, slot in zip(batch, slots, strict=True) if isinstance(slot, Block)]
        blocks = [slot for _, slot in mine]
        if blocks:
            try:
                starts = np.array([block.address() for block in blocks], np.uint64)
                pages = sources.pick([i for i, _ in mine])
                with self._copier_of(session) as copier:
                    copier.copy("store", starts[:, None] + sources.offsets(), pages.addresses, sources.sizes)
            except DeviceLost:  # it may still write: these blocks are not given back
                raise
            except BaseException:
                with contextlib.suppress(CenoteError):
                    session.abandon(slots)
                raise
            try:
                session.commit(slots)
            except (Revoked, NotReserved):  # the node was restarted meanwhile: what it has counts
                there = session.exists(keys.pick(batch).array())
                for i, found in zip(batch, there, strict=True):
                    stored[i] = found
                return [i for i in batch if not stored[i]]
        for i, _ in mine:
            stored[i] = True
        for i, slot in zip(batch, slots, strict=True):
            if slot is PRESENT:
                stored[i] = True
        return [i for i in batch if not stored[i]]

    # ---- the rest

    def clear(self) -> bool:
        """Forgets all pages of the instance, in all tiers."""
        self.promises.clear()
        with self._attached() as session:
            if session is None:
                return False
            session.clear()  # of what lies on devices, too
            return True

    def close(self) -> None:
        self.promises.close()
        if self._near is not None:
            self._near.close()
        self._attachment.close()
