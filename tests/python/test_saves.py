"""Stores of vLLM's worker: no step waits for one, and the engine has its blocks back whatever becomes of it. Needs no
vLLM."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from cenote import CenoteError, Closed, NotRunning
from vllm_stand_ins import stand_ins

PATIENCE = 60.0  # seconds, for what is to happen at once
LAYERS = 2
SPEC: Any = SimpleNamespace(id="i")


class Slot:
    """A blank block."""

    def __init__(self, key: bytes) -> None:
        self.key = key


class Node:
    """Gives room when `answers` is set."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.request = threading.Event()
        self.fails: CenoteError | None = None  # what commits end with
        self.stored: list[bytes] = []
        self.abandoned: list[bytes] = []

    def reserve(self, keys: Sequence[bytes], part: str, group: str) -> list[Slot]:
        self.request.set()
        assert self.answers.wait(PATIENCE)
        return [Slot(key) for key in keys]

    def commit(self, slots: Sequence[Slot]) -> None:
        if self.fails is not None:
            raise self.fails
        self.stored += [slot.key for slot in slots]

    def abandon(self, slots: Sequence[Slot]) -> None:
        self.abandoned += [slot.key for slot in slots]


class Device:
    """Its streams, with what the engine's own waits for. Copies end when `works` is set."""

    def __init__(self) -> None:
        self.loading = self.saving = self
        self.works = threading.Event()
        self.works.set()
        self.failed = False
        self.orders = 0  # of copies behind the engine
        self.waits = 0  # of the engine for copies

    def record(self) -> None:
        return None

    def wait(self, event: Any) -> None:
        return None

    def after_engine(self, stream: Any) -> None:
        self.orders += 1

    def engine_waits(self, event: Any) -> None:
        self.waits += 1

    def settle(self, stream: Any) -> bool:
        assert self.works.wait(PATIENCE)
        return not self.failed


class Tensors:
    """The engine's: which of their blocks and layers were copied, and by which thread."""

    layers = LAYERS

    def __init__(self) -> None:
        self.copied: list[tuple[int, int | None]] = []
        self.threads: set[str] = set()

    def gather(self, blocks: Sequence[int], slots: Any, part: str, *, stream: Any, layer: range | None) -> None:
        self.threads.add(threading.current_thread().name)
        self.copied += [(block, each) for block in blocks for each in ([None] if layer is None else layer)]


class Rank:
    """A worker whose engine computes in the thread of the test."""

    def __init__(self, module: Any, monkeypatch: pytest.MonkeyPatch, *, device: bool) -> None:
        self.messages = importlib.import_module("cenote._vllm.messages")
        self.node, self.tensors = Node(), Tensors()
        self.device = Device() if device else None
        monkeypatch.setattr(module, "Block", Slot)
        connection = SimpleNamespace(session=lambda: self.node, close=lambda: None, failed=lambda why, session: None)
        monkeypatch.setattr(module.Worker, "_connection", lambda worker, spec: connection)
        monkeypatch.setattr(module.Worker, "_check", lambda worker, spec, number: None)
        config = SimpleNamespace(parallel_config=SimpleNamespace(use_ubatching=False))
        self.worker = worker = module.Worker(config, None, None, 0)
        worker._layout = self.messages.RankLayout(by_layer=device)
        worker._groups = [
            SimpleNamespace(block_bytes=1, strides=self.tensors, spans=[range(1), range(1, 2)], layers={"a": 0, "b": 1})
        ]
        worker._names = ["g"]
        worker._streams = self.device
        worker._connections = {SPEC.id: connection}
        worker._threads = [threading.Thread(target=worker._store_all, daemon=True, name="storing")]
        worker._threads[0].start()
        self._acknowledged = self.messages.Acknowledged()
        self._outcomes: dict[int, bool] = {}  # stores, and whether they failed
        acknowledge = worker._acknowledge

        def note_end(reserved: Any, *facts: Any) -> None:
            acknowledge(reserved, *facts)
            self._outcomes[reserved.store.number] = bool(reserved.failed)

        monkeypatch.setattr(worker, "_acknowledge", note_end)

    def store(self, number: int, blocks: Sequence[int]) -> Any:
        return self.messages.Store(number, 0, [b"%d" % block for block in blocks], list(blocks))

    def step(self, stores: Sequence[Any] = (), meanwhile: Callable[[], None] = lambda: None, **options: Any) -> None:
        self.worker.step_begins(self.messages.CenoteMetadata(SPEC, [], list(stores), **options))
        for layer in "ab":
            meanwhile()
            self.worker.layer_computed(layer)
        self.worker.step_computed()

    def step_until(self, holds: Callable[[Any], bool]) -> Any:
        """The engine steps until `holds` is true of all acknowledgements and ends of stores; returns these."""
        for _ in range(int(PATIENCE / 0.001)):
            taken = self.worker.acknowledged()
            if taken is not None:
                self._acknowledged = self._acknowledged.aggregate(taken)
            so_far = SimpleNamespace(**vars(self._acknowledged), outcomes=dict(self._outcomes))
            if holds(so_far):
                return so_far
            threading.Event().wait(0.001)
            self.step()
        raise AssertionError(f"acknowledged so far: {self._acknowledged}")

    @property
    def waits(self) -> int:
        return self.device.waits if self.device is not None else 0


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """cenote._vllm.worker with stand-ins for vLLM's classes."""
    with stand_ins(monkeypatch):
        yield importlib.import_module("cenote._vllm.worker")


@pytest.fixture(params=[False, True], ids=["processor", "device"])
def rank(request: pytest.FixtureRequest, module: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
    made = Rank(module, monkeypatch, device=request.param)
    yield made
    made.node.answers.set()
    if made.device is not None:
        made.device.works.set()
    made.worker.close()


def is_over(number: int, failed: int) -> Callable[[Any], bool]:
    return lambda so_far: so_far.outcomes.get(number) == bool(failed)


def copies(*blocks: int, layers: Sequence[int | None]) -> list[tuple[int, int | None]]:
    return sorted((block, layer) for block in blocks for layer in layers)


def test_a_step_ends_before_the_node_gives_room_and_its_blocks_are_stored_later(rank: Rank) -> None:
    rank.node.answers.clear()
    rank.step([rank.store(1, [5, 6])])
    rank.step()
    assert rank.tensors.copied == [] and rank.worker.acknowledged() is None
    rank.node.answers.set()
    rank.step_until(is_over(1, 0))
    assert rank.node.stored == [b"5", b"6"]
    layers = [None] if rank.device is None else [0, 1]
    assert sorted(rank.tensors.copied) == copies(5, 6, layers=layers)
    assert rank.tensors.threads == {"storing"}
    assert rank.waits == 0 and (rank.device is None or rank.device.orders > 0)


def test_blocks_are_had_back_when_they_are_copied_however_long_the_node_takes_to_publish_them(
    rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = threading.Event()
    plain = rank.node.commit

    def commit(slots: Sequence[Slot]) -> None:
        assert published.wait(PATIENCE)
        plain(slots)

    monkeypatch.setattr(rank.node, "commit", commit)
    rank.step([rank.store(1, [5])])
    acknowledged = rank.step_until(lambda so_far: so_far.copied == {1: 1})
    assert acknowledged.outcomes == {}
    published.set()
    assert rank.step_until(is_over(1, 0)).copied == {1: 1}
    assert rank.waits == 0


def test_blocks_for_which_the_node_gives_no_room_are_had_back_and_never_read(
    module: Any, monkeypatch: pytest.MonkeyPatch, rank: Rank
) -> None:
    rank.node.answers.clear()
    rank.step([rank.store(1, [5])])
    assert rank.node.request.wait(PATIENCE)
    monkeypatch.setattr(module, "_ROOM_PATIENCE", -1.0)
    assert rank.step_until(is_over(1, 1)).copied == {1: 1}
    monkeypatch.undo()
    monkeypatch.setattr(module, "Block", Slot)
    rank.node.answers.set()
    rank.step_until(lambda _: rank.node.abandoned == [b"5"])
    assert rank.tensors.copied == [] and rank.node.stored == []
    assert rank.worker.stats.data["blocks_dropped"] == 1


@pytest.mark.parametrize("failure", [NotRunning("gone"), Closed("over"), ValueError("not an error of ours")])
def test_blocks_that_cannot_be_published_are_had_back(rank: Rank, failure: Any) -> None:
    rank.node.fails = failure
    rank.step([rank.store(1, [5])])
    assert rank.step_until(is_over(1, 1)).copied == {1: 1}
    rank.node.fails = None
    rank.step([rank.store(2, [6])])
    assert rank.step_until(is_over(2, 0)).copied == {1: 1, 2: 1}
    assert rank.worker._open == []


def test_what_the_engine_does_not_keep_any_more_is_copied_before_the_next_step_is_computed(rank: Rank) -> None:
    rank.node.answers.clear()
    rank.step([rank.store(1, [5])])
    threading.Timer(0.01, rank.node.answers.set).start()
    seen: list[list[int]] = []
    rank.step(
        backlog=[rank.store(2, [7])],
        fence=True,
        meanwhile=lambda: seen.append(sorted({block for block, _ in rank.tensors.copied})),
    )
    assert seen == [[5, 7]] * 2
    assert rank.step_until(lambda so_far: len(so_far.outcomes) == 2).outcomes == {1: False, 2: False}
    assert rank.worker.stats.data["store_waits"] == 1 and rank.waits == 0


def test_what_is_not_copied_in_time_then_is_not_read_any_more(
    module: Any, monkeypatch: pytest.MonkeyPatch, rank: Rank
) -> None:
    monkeypatch.setattr(module, "_FENCE_PATIENCE", 0.01)
    rank.node.answers.clear()
    rank.step([rank.store(1, [5])])
    rank.step([rank.store(3, [8])], fence=True)
    assert rank.step_until(is_over(1, 1)).copied[1] == 1
    rank.node.answers.set()
    rank.step_until(is_over(3, 0))
    assert rank.node.abandoned == [b"5"] and rank.node.stored == [b"8"]
    assert {block for block, _ in rank.tensors.copied} == {8}


def test_nothing_is_copied_into_blocks_of_a_session_that_is_closed(rank: Rank) -> None:
    rank.node.answers.clear()
    rank.step([rank.store(1, [5])])
    assert rank.node.request.wait(PATIENCE)
    rank.worker._close_connections()  # as after a reset
    rank.node.answers.set()
    assert rank.step_until(is_over(1, 1)).copied == {1: 1}
    assert rank.tensors.copied == []


def test_the_engine_s_memory_goes_only_when_nothing_reads_it(module: Any, rank: Rank) -> None:
    updates = importlib.import_module("cenote._updates").Updates()
    engine: Any = type("Engine", (), {"sleep": lambda self: list(rank.tensors.copied)})
    module._WORKERS.add(rank.worker)
    updates.watch(engine, ["sleep"], module._end_saves)
    rank.node.answers.clear()
    rank.step([rank.store(1, [5])])
    threading.Timer(0.01, rank.node.answers.set).start()
    assert {block for block, _ in engine().sleep()} == {5}


class TestDevice:
    """Of a device alone."""

    @pytest.fixture
    def rank(self, module: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rank]:
        made = Rank(module, monkeypatch, device=True)
        yield made
        assert made.device is not None
        made.device.works.set()
        made.worker.close()

    def test_layers_go_while_the_step_is_computed_once_there_is_room(self, rank: Rank) -> None:
        rank.node.answers.clear()

        def meanwhile() -> None:
            if rank.node.answers.is_set():
                while not rank.worker._saving.is_ready:
                    threading.Event().wait(0.001)
            rank.node.answers.set()  # for the second layer, which takes the first one along

        rank.step([rank.store(1, [5])], meanwhile)
        assert rank.tensors.copied == [(5, 0), (5, 1)]
        assert rank.tensors.threads == {threading.current_thread().name}
        rank.step_until(is_over(1, 0))
        assert rank.node.stored == [b"5"] and rank.waits == 0

    def test_a_device_that_fails_costs_its_blocks_and_keeps_none_of_the_engine_s(self, rank: Rank) -> None:
        assert rank.device is not None
        rank.device.failed = True
        rank.step([rank.store(1, [5])])
        assert rank.step_until(is_over(1, 1)).copied == {1: 1}
        assert rank.node.abandoned == rank.node.stored == []  # it may still write to them
        rank.step([rank.store(2, [6])])
        assert rank.step_until(is_over(2, 1)).copied == {1: 1, 2: 1}

    def test_the_engine_waits_for_a_slow_device_only_for_blocks_that_are_not_kept(
        self, module: Any, monkeypatch: pytest.MonkeyPatch, rank: Rank
    ) -> None:
        assert rank.device is not None
        monkeypatch.setattr(module, "_FENCE_PATIENCE", 0.01)
        rank.device.works.clear()
        rank.step([rank.store(1, [5])])
        rank.step([rank.store(2, [6])])
        assert rank.waits == 0
        while not rank.worker._open[0].is_begun:
            threading.Event().wait(0.001)
        rank.step(fence=True)
        assert rank.waits == 1
        assert rank.step_until(lambda so_far: len(so_far.outcomes) == 2).copied == {1: 1, 2: 1}
        rank.device.works.set()
