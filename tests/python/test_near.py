"""Blocks from a device and from DRAM as one prefix, whatever the device's session does; the sessions are stand-ins."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from cenote import CenoteError, Closed, DeadlineExceeded, LimitExceeded, NoSpace, PinLimit
from cenote import _near as near_module
from cenote._near import Near, acquire, exists, reachable, resident
from cenote._sglang.pages import gpu_of
from cenote.device import DeviceLost
from vllm_stand_ins import stand_ins

KEYS = [bytes([i]) * 8 for i in range(10)]


class Pins:
    def __init__(self, session: FakeSession, keys: Sequence[bytes]) -> None:
        self.session = session
        self.keys = list(keys)

    def __len__(self) -> int:
        return len(self.keys)

    def release(self) -> None:
        if self.session.refuses is not None:
            raise self.session.refuses
        self.session.pinned -= len(self.keys)
        self.keys = []

    def release_after(self, stream: Any) -> None:
        self.release()

    def __del__(self) -> None:
        self.session.pinned -= len(self.keys)


class FakeSession:
    """Has `keys`, and below them `lower`. `refuses` everything with an error, if it is set."""

    device = object()

    def __init__(self, keys: Sequence[bytes], lower: Sequence[bytes] = ()) -> None:
        self.keys = set(keys)
        self.lower = set(lower)
        self.pinned = 0
        self.refuses: CenoteError | None = None
        self.evicts: Callable[[], None] = lambda: None  # between a lookup and a pin
        self.abandoned: list[Any] = []

    def _prefix(self, keys: Sequence[bytes], of: set[bytes]) -> int:
        return next((i for i, key in enumerate(keys) if key not in of), len(keys))

    def exists(self, keys: Sequence[bytes], group: str | None = None) -> list[bool]:
        if self.refuses is not None:
            raise self.refuses
        return [key in self.keys for key in keys]

    def acquire(self, keys: Sequence[bytes], group: str | None = None) -> Pins:
        self.evicts()
        if self.refuses is not None:
            raise self.refuses
        pins = Pins(self, keys[: self._prefix(keys, self.keys)])
        self.pinned += len(pins)
        return pins

    def abandon(self, slots: Sequence[Any]) -> None:
        self.abandoned += slots

    def match(self, keys: Sequence[bytes], group: str | None = None) -> Any:
        class Found:
            resident = self._prefix(keys, self.keys)
            reachable = self._prefix(keys, self.keys | self.lower)

        return Found


class Kept:
    """What keeps the session attached."""

    def __init__(self, session: FakeSession) -> None:
        self.kept: FakeSession | None = session

    def session(self) -> Any:
        return self.kept

    def failed(self, why: CenoteError, session: Any = None) -> None:
        if isinstance(why, Closed):
            self.kept = None

    def close(self) -> None:
        self.kept = None


def near_with(session: FakeSession, works: Any = "streams") -> Near[Any]:
    def source(prepare: Callable[[Any], None]) -> Kept:
        prepare(session)
        return Kept(session)

    return Near(source, lambda device: works)


def runs(taken: Any) -> list[tuple[int, int, bool]]:
    return [(run.first, len(run.held), run.is_near) for run in taken.runs]


def test_a_prefix_is_pinned_on_the_device_where_it_is_there_and_in_dram_else() -> None:
    here, host = FakeSession([*KEYS[:2], *KEYS[4:6]]), FakeSession([*KEYS[1:4], KEYS[7]])
    near = near_with(here)
    with acquire(near, host, KEYS) as taken:  # type: ignore[arg-type]
        assert runs(taken) == [(0, 2, True), (2, 2, False), (4, 2, True)]
        assert len(taken) == 6 and here.pinned == 4 and host.pinned == 2
        assert near.works_on(taken.runs[0].session) == "streams"
        assert near.works_on(taken.runs[1].session) is None
    assert here.pinned == host.pinned == 0


def test_lengths_count_both_and_lower_tiers_behind_them() -> None:
    near, host = near_with(FakeSession(KEYS[:3])), FakeSession(KEYS[3:5], KEYS[5:8])
    sessions: Any = (near, host)
    assert exists(*sessions, KEYS) == [True] * 5 + [False] * 5
    assert resident(*sessions, KEYS) == 5
    assert reachable(*sessions, KEYS) == 8
    assert reachable(None, host, KEYS) == 0  # type: ignore[arg-type]


def test_what_leaves_the_device_between_lookup_and_pin_comes_from_dram() -> None:
    here, host = FakeSession(KEYS[:6]), FakeSession(KEYS[:8])
    here.evicts = lambda: here.keys.discard(KEYS[2])
    taken = acquire(near_with(here), host, KEYS)  # type: ignore[arg-type]
    assert runs(taken) == [(0, 2, True), (2, 6, False)]
    taken.release()
    assert here.pinned == host.pinned == 0


@pytest.mark.parametrize("why", [Closed("away"), DeadlineExceeded("hangs"), PinLimit("full")])
@pytest.mark.parametrize("when", ["at the lookup", "at the pin"])
def test_a_session_on_a_device_that_fails_leaves_all_to_dram(why: CenoteError, when: str) -> None:
    here, host = FakeSession(KEYS[:4]), FakeSession(KEYS[:8])

    def fail() -> None:
        here.refuses = why

    if when == "at the lookup":
        fail()
    here.evicts = fail
    near = near_with(here)
    with acquire(near, host, KEYS) as taken:  # type: ignore[arg-type]
        assert runs(taken) == [(0, 8, False)]
    assert host.pinned == 0
    assert (near.session() is None) == (not isinstance(why, PinLimit))


def test_pins_of_a_session_that_is_over_end_without_a_word() -> None:
    here, host = FakeSession(KEYS[:4]), FakeSession(KEYS[4:6])
    taken = acquire(near_with(here), host, KEYS)  # type: ignore[arg-type]
    here.refuses = Closed("away")
    taken.release()
    assert host.pinned == 0


def test_a_failure_in_dram_ends_the_pins_on_the_device() -> None:
    here, host = FakeSession(KEYS[:4]), FakeSession(KEYS[4:6])
    host.refuses = Closed("gone")
    with pytest.raises(Closed):
        acquire(near_with(here), host, KEYS)  # type: ignore[arg-type]
    assert here.pinned == 0


def test_a_device_is_left_alone_for_a_while_or_for_good_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(near_module.time, "monotonic", lambda: now)
    near = near_with(FakeSession(KEYS))
    near.failed(NoSpace("full"))
    assert near.session() is not None and not caplog.records
    with caplog.at_level(logging.WARNING):
        near.failed(DeadlineExceeded("hangs"))
        near.failed(DeadlineExceeded("hangs"))
        assert near.session() is None
        now += 6
        assert near.session() is not None
        near.failed(DeviceLost("failed"))
        near.failed(DeviceLost("failed"))
        now += 1000
        assert near.session() is None
    assert [each.levelname for each in caplog.records] == ["WARNING", "ERROR"]


# ---- copies that a device refuses

REFUSALS = [LimitExceeded("too many"), DeadlineExceeded("slow"), NoSpace("no memory")]


@pytest.mark.parametrize("why", REFUSALS)
def test_a_device_that_refuses_a_copy_is_asked_again_after_a_while(
    why: CenoteError, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(near_module.time, "monotonic", lambda: now)
    near, host = near_with(FakeSession(KEYS[:4])), FakeSession(KEYS[:3])
    with caplog.at_level(logging.WARNING):
        assert near.refused(why)
        assert near.refused(why)
        assert near.session() is None
        assert runs(acquire(near, host, KEYS)) == [(0, 3, False)]  # type: ignore[arg-type]
        now += 6
        assert runs(acquire(near, host, KEYS)) == [(0, 4, True)]  # type: ignore[arg-type]
        assert near.refused(why)
    assert [each.levelname for each in caplog.records] == ["WARNING", "WARNING"]
    assert "refused copy 3" in caplog.records[1].message


@pytest.mark.parametrize("why", [Closed("away"), DeviceLost("failed")])
def test_a_device_that_is_lost_is_not_asked_again(why: CenoteError, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(near_module.time, "monotonic", lambda: now)
    near = near_with(FakeSession(KEYS))
    assert not near.refused(why)
    now += 1000
    assert near.session() is None


SPEC: Any = SimpleNamespace(id="i")


class FakeStreams:
    """Of a device that takes copies unless `refuses` is set; what it took is done at once."""

    def __init__(self) -> None:
        self.loading = self.saving = self
        self.refuses: CenoteError | None = None

    def record(self) -> None:
        return None

    def settle(self, stream: Any) -> bool:
        return True

    def after_engine(self, stream: Any) -> None:
        return None

    def engine_waits(self, event: Any) -> None:
        return None


class FakeStrides:
    """Two layers; a copy that is refused is half done. `engine`: the session from which each layer of a block came."""

    layers = 2

    def __init__(self) -> None:
        self.engine: dict[tuple[int, int], FakeSession] = {}

    def scatter(
        self, blocks: Sequence[int], held: Pins, part: str, *, stream: FakeStreams, layer: range | None = None
    ) -> None:
        refused = stream.refuses if layer != range(1) else None
        taken = blocks if refused is None else blocks[: len(blocks) // 2]
        layers = range(self.layers) if layer is None else layer
        self.engine.update({(block, each): held.session for block in taken for each in layers})
        if refused is not None:
            raise type(refused)(str(refused))  # a new one: it keeps what it passes, pins too

    def gather(self, blocks: Sequence[int], slots: Any, part: str, *, stream: FakeStreams, layer: range | None) -> None:
        if stream.refuses is not None:
            raise stream.refuses


class Rank:
    """vLLM's worker on a device that has the first four of six blocks; DRAM has the first `host_has`."""

    def __init__(self, module: Any, monkeypatch: pytest.MonkeyPatch, host_has: int = 6) -> None:
        messages = importlib.import_module("cenote._vllm.messages")
        self.here, self.host = FakeSession(KEYS[:4]), FakeSession(KEYS[:host_has])
        self.streams, self.strides = FakeStreams(), FakeStrides()
        self.near = near_with(self.here, self.streams)
        connection = SimpleNamespace(session=lambda: self.host, close=lambda: None)
        monkeypatch.setattr(module.Worker, "_connection", lambda worker, spec: connection)
        monkeypatch.setattr(module.Worker, "_check", lambda worker, spec, number: None)
        self.worker = worker = module.Worker(None, None, SimpleNamespace(debug_fail_loads_from_block=None), 0)
        worker._layout = messages.RankLayout(by_layer=True)
        worker._groups = [
            SimpleNamespace(block_bytes=1, strides=self.strides, spans=[range(1), range(1, 2)], layers={})
        ]
        worker._names = ["g"]
        worker._streams = FakeStreams()
        worker._connections, worker._nears = {SPEC.id: connection}, {SPEC.id: self.near}
        worker._threads = [threading.Thread(target=worker._load_all, daemon=True)]
        worker._threads[0].start()
        self._load = messages.Load("r", [(0, KEYS[:6], list(range(6)))])
        self._step = messages.CenoteMetadata(spec=SPEC, loads=[self._load])

    def load(self, by_layer: bool) -> list[str]:
        """From where the blocks came that are loaded."""
        self.strides.engine.clear()
        if by_layer:
            self.worker.load(self._step)
            count = 6 - len(self.worker.bad_blocks())
        else:
            (count,) = self.worker._load(SPEC, self._load)
        names = {id(self.here): "device", id(self.host): "dram"}
        found = [{names[id(self.strides.engine[block, layer])] for layer in range(2)} for block in range(count)]
        return ["/".join(sorted(each)) for each in found]

    def refusals(self) -> int:
        return int(self.worker.stats.data.get("copies_refused", 0))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """cenote._vllm.worker with stand-ins for vLLM's classes."""
    with stand_ins(monkeypatch):
        yield importlib.import_module("cenote._vllm.worker")


@pytest.mark.parametrize("by_layer", [True, False])
@pytest.mark.parametrize("why", REFUSALS)
def test_vllm_loads_from_dram_what_a_device_refuses_to_copy_and_asks_it_again(
    module: Any, monkeypatch: pytest.MonkeyPatch, why: CenoteError, by_layer: bool
) -> None:
    rank = Rank(module, monkeypatch)
    assert rank.load(by_layer) == ["device"] * 4 + ["dram"] * 2
    rank.streams.refuses = why
    assert rank.load(by_layer) == ["dram"] * 6
    assert rank.here.pinned == rank.host.pinned == 0
    rank.streams.refuses = None
    assert rank.load(by_layer) == ["dram"] * 6, "it is left alone"
    rank.near._quiet_until = 0.0
    assert rank.load(by_layer) == ["device"] * 4 + ["dram"] * 2
    assert rank.refusals() == 1
    rank.worker.close()


@pytest.mark.parametrize("by_layer", [True, False])
def test_vllm_computes_what_a_device_refuses_to_copy_and_dram_does_not_have(
    module: Any, monkeypatch: pytest.MonkeyPatch, by_layer: bool
) -> None:
    rank = Rank(module, monkeypatch, host_has=1)
    rank.streams.refuses = LimitExceeded("too many")
    assert rank.load(by_layer) == ["dram"]
    rank.worker.close()


@pytest.mark.parametrize("by_layer", [True, False])
def test_vllm_leaves_a_device_that_is_away_to_itself(
    module: Any, monkeypatch: pytest.MonkeyPatch, by_layer: bool
) -> None:
    rank = Rank(module, monkeypatch)
    rank.streams.refuses = Closed("away")
    assert rank.load(by_layer) == [], "nobody knows what it writes still"
    rank.near._quiet_until = 0.0
    assert rank.load(by_layer) == ["dram"] * 6
    assert rank.refusals() == 0
    rank.worker.close()


def test_vllm_gives_room_back_that_a_device_refuses_to_fill(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank(module, monkeypatch)
    worker = rank.worker
    rank.streams.refuses = LimitExceeded("too many")
    slots: Any = ["slot"]
    blanks = module.Blanks(rank.here, rank.streams, on_device=True, slots=slots, blocks=[0])
    reserved = module.Reserved(SimpleNamespace(group=0), SPEC, [blanks])
    reservation = module.Reservation([reserved])
    reservation.ready()
    reservation.ordered.add(rank.streams)
    written = worker._copy(reservation)
    assert worker._commit_one(reserved, blanks, written) == 0
    assert reserved.failed and rank.here.abandoned == slots
    assert rank.refusals() == 1 and rank.near.session() is None
    rank.near._quiet_until = 0.0
    assert rank.near.session() is not None
    worker.close()


def test_vllm_acknowledges_a_store_whose_commit_raises_whatever_it_is(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = Rank(module, monkeypatch)
    worker = rank.worker

    def commit(slots: Any) -> int:
        raise ValueError("not an error of ours")

    monkeypatch.setattr(rank.here, "commit", commit, raising=False)
    slots: Any = ["slot"]
    blanks = module.Blanks(rank.here, rank.streams, on_device=True, slots=slots, blocks=[0])
    reserved = module.Reserved(SimpleNamespace(group=0, number=5, keys=[b"k"]), SPEC, [blanks])
    reservation = module.Reservation([reserved])
    reservation.ready()
    reservation.ordered.add(rank.streams)
    written = worker._copy(reservation)
    assert worker._commit_one(reserved, blanks, written) == 0
    assert reserved.failed
    worker.close()


# ---- the device of an engine's own tensors


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch with GPUs, the n-th of which has the UUID `u<n>`."""
    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        get_device_properties=lambda place: SimpleNamespace(uuid=f"u{str(place).removeprefix('cuda:')}")
    )
    monkeypatch.setitem(sys.modules, "torch", torch)


class Place(SimpleNamespace):
    """torch.device."""

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"


def tensor_on(kind: str, index: int) -> Any:
    return SimpleNamespace(device=Place(type=kind, index=index))


@pytest.mark.usefixtures("gpus")
def test_each_rank_of_vllm_uses_the_gpu_of_its_tensors_and_refuses_another_by_name(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = importlib.import_module("cenote._vllm.streams")
    device_of = lambda name: SimpleNamespace(name=name, stream=FakeStreams)  # noqa: E731
    monkeypatch.setattr(streams, "Device", device_of)
    for index in range(2):
        for told in (None, f"GPU-u{index}", f"cuda:GPU-u{index}", f"cuda:{index}"):
            assert streams.streams_for({f"cuda:{index}"}, told).device.name == f"cuda:GPU-u{index}"
    for told in ("GPU-u0", "cuda:GPU-u0", "cuda:0", "sim:0"):
        with pytest.raises(module.Unservable, match=f"`device` is {told}, but the KV tensors are on cuda:1"):
            streams.streams_for({"cuda:1"}, told)
    assert streams.streams_for({"cpu"}, None) is None


@pytest.mark.usefixtures("gpus")
def test_sglang_finds_the_gpu_of_the_kv_that_a_host_pool_is_for() -> None:
    device_pool = SimpleNamespace(device="cuda", size=3, k_buffer=[tensor_on("cuda", 2)])
    assert gpu_of(SimpleNamespace(kv_buffer=tensor_on("cpu", 0), device_pool=device_pool)) == "cuda:GPU-u2"
    assert gpu_of(SimpleNamespace(device_pool=None, device_buffers=[tensor_on("cuda", 1)])) == "cuda:GPU-u1"
    assert gpu_of(SimpleNamespace(kv_buffer=tensor_on("cpu", 0), device_pool=SimpleNamespace(device="cpu"))) is None
    assert gpu_of(object()) is None
