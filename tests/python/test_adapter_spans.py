"""A traced request of vLLM: its prefetches and loads belong to its trace. Neither vLLM nor a node is needed."""

from __future__ import annotations

import importlib
import queue
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cenote.errors import Closed
from vllm_stand_ins import stand_ins

PATIENCE = 60.0
SPEC: Any = SimpleNamespace(id="i")
TRACED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
Module = Callable[[str], Any]


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    """A module of cenote._vllm with stand-ins for vLLM's classes."""
    with stand_ins(monkeypatch):
        yield lambda name: importlib.import_module(f"cenote._vllm.{name}")


class FakeSession:
    """Keeps what it is asked for."""

    asks_tiers = False

    def __init__(self) -> None:
        self.spans: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.prefetches: list[dict[str, Any]] = []
        self.is_over = False

    def trace_load(self, *span: Any) -> None:
        self.spans.put(span)
        if self.is_over:
            raise Closed("over")

    def prefetch(self, keys: list[bytes], **terms: Any) -> Any:
        self.prefetches.append(terms)
        return SimpleNamespace(release=lambda: None)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"traceparent": TRACED, "tracestate": "a=b"}, TRACED),
        ({"tracestate": "a=b"}, None),
        ({"traceparent": 3}, None),
        ("traceparent", None),
        (None, None),
    ],
)
def test_a_request_says_its_trace_by_its_headers(module: Module, headers: Any, expected: str | None) -> None:
    assert module("spans").traceparent_of(SimpleNamespace(trace_headers=headers)) == expected


def test_a_request_of_a_vllm_without_traces_has_none(module: Module) -> None:
    assert module("spans").traceparent_of(SimpleNamespace()) is None


def test_each_groups_prefetch_belongs_to_the_trace(module: Module) -> None:
    model, finder = module("model"), module("finder")
    groups = [model.Group("full", 0), model.Group("window", 64)]
    made = finder.Finder(groups, 16, lambda why, session: None)
    session: Any = FakeSession()
    offer = finder.Offer(0, [b"%08d" % i for i in range(8)])
    made._start_prefetch(session, finder.Search(traceparent=TRACED), made._prefix(offer), 0, 8, None)
    assert [each["traceparent"] for each in session.prefetches] == [TRACED, TRACED]


def test_a_ballot_takes_the_trace_to_the_other_nodes(module: Module) -> None:
    messages, ballots = module("messages"), module("ballots")
    assert ballots.Ballot(messages.Ask(1, 0, [b"a"], None, 1.0, TRACED)).search.traceparent == TRACED


class Loads:
    """A worker of an engine that loads from a session."""

    def __init__(self, module: Module, monkeypatch: pytest.MonkeyPatch, by_layer: bool) -> None:
        self.session = FakeSession()
        worker, self._messages = module("worker"), module("messages")
        connection = SimpleNamespace(session=lambda: self.session, close=lambda: None)
        monkeypatch.setattr(worker.Worker, "_load", lambda self, spec, load: [2])
        monkeypatch.setattr(worker.Worker, "_pinned", lambda self, spec, loads: None)
        self.worker = worker.Worker(None, None, None, 0)
        self.worker._connections[SPEC.id] = connection
        self.worker._layout = self._messages.RankLayout(by_layer=by_layer)
        self.worker._groups = [SimpleNamespace(block_bytes=10)]
        self.worker._threads = [threading.Thread(target=self.worker._load_all, daemon=True)]
        self.worker._threads[0].start()

    def load(self, *traceparents: str | None) -> None:
        loads = [
            self._messages.Load(str(i), [(0, [b"a", b"b", b"c"], [1, 2, 3])], each)
            for i, each in enumerate(traceparents)
        ]
        self.worker.load(self._messages.CenoteMetadata(spec=SPEC, loads=loads))
        self.worker.bad_blocks()  # after the step

    def close(self) -> None:
        self.worker.close()
        assert not self.worker._threads or not self.worker._threads[0].is_alive()


def test_a_load_of_a_traced_request_becomes_a_span_and_no_other(
    module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = Loads(module, monkeypatch, by_layer=False)
    loads.load(None, TRACED)
    trace, begin, end, *counts = loads.session.spans.get(timeout=PATIENCE)
    assert trace == TRACED and 0 < begin <= end and counts == [3, 2, 20]
    loads.close()
    assert loads.session.spans.empty()


def test_a_load_by_layer_becomes_a_span_when_its_step_is_over(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Loads(module, monkeypatch, by_layer=True)
    loads.load(None, TRACED)
    trace, begin, end, *counts = loads.session.spans.get(timeout=PATIENCE)
    assert trace == TRACED and 0 < begin <= end and counts == [3, 0, 0]  # the node gave no pins
    loads.close()
    assert loads.session.spans.empty()


def test_a_session_that_is_over_costs_the_span_alone(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Loads(module, monkeypatch, by_layer=False)
    loads.session.is_over = True
    loads.load(TRACED, TRACED)
    for _ in range(2):
        assert loads.session.spans.get(timeout=PATIENCE)
    loads.close()
