"""Loads by layer of vLLM's worker: a node that does not answer keeps no step waiting. vLLM is not needed."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cenote._vllm.pinning import Pinning
from vllm_stand_ins import stand_ins

PATIENCE = 60.0
SPEC: Any = SimpleNamespace(id="i")


class FakeHeld:
    def __init__(self) -> None:
        self.is_released = threading.Event()

    def release(self) -> None:
        self.is_released.set()


def pinning() -> Pinning:
    return Pinning(SPEC, [])


def test_pins_that_come_in_time_are_had_and_stay() -> None:
    held: Any = FakeHeld()
    connection: Any = object()
    made = pinning()
    threading.Timer(0.0, made.give, (connection, [held, None])).start()
    assert made.take(PATIENCE)
    assert made.held == [held, None] and made.connection is connection
    assert not held.is_released.is_set() and not made.is_under_way


def test_pins_that_come_later_end() -> None:
    held: Any = FakeHeld()
    made = pinning()
    assert not made.take(0.0)
    assert made.is_under_way
    made.give(None, [None, held])
    assert held.is_released.is_set() and made.held == []
    assert not made.is_under_way


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """cenote._vllm.worker with stand-ins for vLLM's classes."""
    with stand_ins(monkeypatch):
        yield importlib.import_module("cenote._vllm.worker")


class Steps:
    """A worker of an engine, and a node of which `answers` is set when it does."""

    def __init__(self, module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.asked: list[str] = []
        self._module = module
        messages = importlib.import_module("cenote._vllm.messages")
        monkeypatch.setattr(module, "_LOAD_PATIENCE", 0.05)
        monkeypatch.setattr(module.Worker, "_connection", self._attach)
        self.worker = module.Worker(None, None, None, 0)
        self.worker._layout = messages.RankLayout(by_layer=True)
        self.worker._groups = [SimpleNamespace(block_bytes=1)]
        self.worker._threads = [threading.Thread(target=self.worker._load_all, daemon=True)]
        self.worker._threads[0].start()
        self._load_of = lambda name, blocks: messages.Load(name, [(0, [b""] * len(blocks), blocks)])
        self._metadata_of = lambda load: messages.CenoteMetadata(spec=SPEC, loads=[load])

    def _attach(self, spec: Any) -> Any:
        self.asked.append(spec.id)
        assert self.answers.wait(PATIENCE)
        return SimpleNamespace(session=lambda: None)

    def step(self, name: str, blocks: list[int]) -> set[int]:
        """The blocks that it has to compute after all; the engine's thread is another one here, so that a test can see
        it hang."""
        bad: list[set[int]] = []

        def compute() -> None:
            self.worker.load(self._metadata_of(self._load_of(name, blocks)))
            bad.append(self.worker.bad_blocks())

        engine = threading.Thread(target=compute, daemon=True)
        engine.start()
        engine.join(PATIENCE / 2)
        assert not engine.is_alive(), "the step waits for the node"
        return bad[0]


def test_a_step_computes_what_it_cannot_load_while_the_node_does_not_answer(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(module, monkeypatch)
    assert steps.step("a", [3, 4]) == {3, 4}
    assert steps.asked == ["i"]
    monkeypatch.setattr(module, "_LOAD_PATIENCE", 2 * PATIENCE)
    assert steps.step("b", [5]) == {5}, "the next one does not wait at all"
    acknowledged = steps.worker.acknowledged()
    assert acknowledged.pinned == {"a": 1, "b": 1} and acknowledged.failed_loads == {"a", "b"}
    steps.answers.set()
    while steps.worker._pinning.is_under_way:
        threading.Event().wait(0.001)
    assert steps.step("c", [6]) == {6}  # there is an answer, if only that there is no session
    assert steps.asked == ["i", "i"]
    steps.worker.close()
