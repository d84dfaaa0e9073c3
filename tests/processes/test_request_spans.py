"""Spans of sampled requests: from prefetches and loads of a client to a collector, which may be away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import self_signed
from collector import Collector, Span, Stopped
from conftest import StartNode
from node import LIMIT, KiB, Node, free_port, preloading, run_cenote, until
from test_nvme import serving
from test_nvme_faults import SHIM, Faults, faults, only_below

__all__ = ["faults"]  # a fixture: pytest finds it by its name here

Attach = Callable[..., Any]
BLOCK = 256 * KiB
COUNT = 32  # blocks of a chain
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
Start = Callable[..., Node]


@pytest.fixture
def start(start_node: StartNode, tmp_path: Path) -> Start:
    """A node of 32 MiB of DRAM over a disk, with a collector at `url`."""

    def start(url: str = "", *sets: str, **options: Any) -> Node:
        traced = [f'trace.otlp="{url}"'] if url else []
        disk = (f"nvme.paths=[{tmp_path / 'store'}]", "nvme.capacity=256MiB", "nvme.engine=threads")
        node = start_node(*disk, *traced, *sets, capacity="32MiB", **options)
        serving(node)
        return node

    return start


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def stopped() -> Iterator[Stopped]:
    made = Stopped()
    yield made
    made.close()


def traces(node: Node) -> dict[str, Any]:
    return dict(node.status()["trace"])


def dropped(node: Node) -> dict[str, int]:
    return {why: count for why, count in traces(node)["dropped"].items() if count}


def one_span(collector: Collector, name: str) -> Span:
    (span,) = until(f"a span {name}", lambda: collector.named(name))
    return span


def spans(session: Any, count: int, traceparent: str = SAMPLED) -> None:
    for _ in range(count):
        session.trace_load(traceparent, 1, 2, 3, 3, 4)


# ---- contents of spans


def test_a_prefetch_is_a_span_of_the_request_with_what_came_from_where(
    start: Start, attach: Attach, collector: Collector
) -> None:
    node = start(collector.url)
    session = attach(node, "i", block=BLOCK)
    assert session.wants_spans
    keys = only_below(session, node, count=COUNT)
    before = time.time_ns()
    ticket = session.prefetch(keys, "wait_complete", threshold_tokens=0, traceparent=SAMPLED)
    assert ticket.wait(LIMIT) == COUNT
    after = time.time_ns()
    ticket.release()
    span = one_span(collector, "cenote.prefetch")
    assert (span.trace, span.parent, span.failure) == (TRACE, PARENT, "")
    assert len(span.id) == 16 and span.id not in ("0" * 16, PARENT)
    assert before <= span.begin <= span.end <= after
    said = span.attributes
    assert said["cenote.blocks.asked"] == COUNT and said["cenote.blocks.ready"] == COUNT
    assert said["cenote.blocks.resident"] == 0 and said["cenote.blocks.from.nvme"] == COUNT
    assert said["cenote.prefetch.ended"] == "complete"
    assert 0 < int(said["cenote.prefetch.node_us"]) * 1000 <= span.end - span.begin
    assert said["cenote.session"] == node.sessions()[0]["id"]
    assert span.resource["service.name"] == "cenote"
    assert span.resource["service.version"] == node.status()["node"]["version"]
    assert collector.paths == ["/v1/traces"]
    until("it is counted", lambda: traces(node)["exported"] == 1)
    assert traces(node)["waiting"] == 0 and dropped(node) == {}
    shown = run_cenote("status", "--socket", str(node.socket)).stdout
    assert f"traces    1 spans to {collector.url}, 0 waiting, 0 dropped\n" in shown


def test_a_load_is_a_span_of_the_request(start: Start, attach: Attach, collector: Collector) -> None:
    node = start(collector.url)
    session = attach(node, "i", block=BLOCK)
    begin = time.time_ns()
    session.trace_load(SAMPLED, begin, begin + 1_500_000, 8, 7, 7 * BLOCK)
    span = one_span(collector, "cenote.load")
    assert (span.trace, span.parent) == (TRACE, PARENT)
    assert (span.begin, span.end) == (begin, begin + 1_500_000)
    assert span.attributes["cenote.blocks.asked"] == 8 and span.attributes["cenote.blocks.loaded"] == 7
    assert span.attributes["cenote.bytes"] == 7 * BLOCK


def test_a_prefetch_that_its_client_gives_up_says_so(start: Start, attach: Attach, collector: Collector) -> None:
    node = start(collector.url)
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    with node.worker_stopped():  # it answers no sooner than the cancel
        ticket = session.prefetch(keys, "wait_complete", threshold_tokens=0, traceparent=SAMPLED)
        ticket.cancel()
    span = one_span(collector, "cenote.prefetch")
    assert span.attributes["cenote.prefetch.ended"] == "cancelled" and span.failure == ""
    assert "cenote.prefetch.node_us" not in span.attributes


def test_a_prefetch_whose_worker_died_is_a_failed_span_of_the_next_one(
    start: Start, attach: Attach, collector: Collector, faults: Faults
) -> None:
    node = start(collector.url, environment=preloading(SHIM) | {"CENOTE_TEST_FAULTS": str(faults.file)})
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "hold")
    ticket = session.prefetch(keys, "wait_complete", threshold_tokens=0, traceparent=SAMPLED)
    until("it waits for the disk", lambda: node.status()["prefetch"]["bytes_in_flight"] > 0)
    node.worker_dies()
    faults.end()
    ticket.wait(LIMIT)
    ticket.release()
    span = one_span(collector, "cenote.prefetch")
    assert (span.trace, span.failure) == (TRACE, "the node's worker was replaced")


# ---- requests without spans


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        f"00-{TRACE}-{PARENT}-00",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        SAMPLED.upper(),
        "ä",
    ],
)
def test_a_request_that_is_not_sampled_or_has_no_trace_makes_no_span(
    start: Start, attach: Attach, collector: Collector, traceparent: str | None
) -> None:
    node = start(collector.url)
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=4)
    session.prefetch(keys, threshold_tokens=0, traceparent=traceparent).wait(LIMIT)
    session.trace_load(traceparent or "", 1, 2, 3, 3, 4)
    spans(session, 1)  # the socket keeps the order
    one_span(collector, "cenote.load")
    until("it is counted", lambda: traces(node)["exported"] == 1)
    assert len(collector.spans) == 1 and collector.batches == [1]


def test_without_a_collector_nothing_is_made_of_a_trace(start: Start, attach: Attach) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    assert not session.wants_spans
    keys = only_below(session, node, count=4)
    assert session.prefetch(keys, threshold_tokens=0, traceparent=SAMPLED).wait(LIMIT) == 4
    spans(session, 1000)
    session.barrier()
    assert traces(node) == {
        "exported": 0,
        "waiting": 0,
        "dropped": {"client": 0, "full": 0, "away": 0, "refused": 0, "stop": 0},
    }


def test_a_load_that_makes_no_sense_is_refused(start: Start, attach: Attach, collector: Collector) -> None:
    session = attach(start(collector.url), "i", block=BLOCK)
    for wrong in ((2, 1, 1, 1, 1), (-1, 1, 1, 1, 1), (1, 2, -1, 1, 1), (1, 2, 1, 1 << 64, 1), (1, 2, 1, True, 1)):
        with pytest.raises(Exception, match=r"ends before|no time"):
            session.trace_load(SAMPLED, *wrong)


# ---- collectors that fail


def test_a_collector_that_comes_back_gets_what_waited(start: Start, attach: Attach) -> None:
    failing = Collector(lambda number: 503 if number < 2 else 200)
    try:
        node = start(failing.url)
        spans(attach(node, "i", block=BLOCK), 3)
        until("it has them", lambda: len(failing.spans) == 3)
        until("it is counted", lambda: traces(node)["exported"] == 3)
        assert dropped(node) == {}
        (line,) = node.logged("the collector does not take spans; those that find no room are dropped")
        assert line["reason"] == "status 503"
        assert len(node.logged("the collector takes spans again")) == 1
    finally:
        failing.close()


def test_what_a_collector_refuses_is_dropped_and_counted(start: Start, attach: Attach) -> None:
    refusing = Collector(lambda number: 400)
    try:
        node = start(refusing.url)
        spans(attach(node, "i", block=BLOCK), 3)
        until("they are dropped", lambda: dropped(node) == {"refused": 3})
        spans(attach(node, "i", block=BLOCK), 2)
        until("they are dropped", lambda: dropped(node) == {"refused": 5})
        assert len(node.logged("the collector does not take spans; those that find no room are dropped")) == 1
    finally:
        refusing.close()


def test_a_collector_that_stands_still_keeps_nobody_waiting(start: Start, attach: Attach, stopped: Stopped) -> None:
    """A greedy client fills its share; another one finds room, both get their blocks, and the node stops."""
    node = start(stopped.url)
    greedy, modest = attach(node, "i", block=BLOCK), attach(node, "j", block=BLOCK, instance_group="other")
    spans(greedy, 20_000)
    keys = only_below(greedy, node, count=COUNT)
    assert greedy.prefetch(keys, "wait_complete", threshold_tokens=0, traceparent=SAMPLED).wait(LIMIT) == COUNT
    spans(modest, 100)
    modest.barrier()

    def all_are_known() -> bool:
        now = traces(node)
        return int(now["waiting"]) + sum(now["dropped"].values()) == 20_101

    until("every span waits or is counted", all_are_known)
    assert traces(node)["waiting"] <= 8192 and set(dropped(node)) <= {"full", "client"}
    assert node.stop() == 0


def test_a_node_stops_without_its_collector(start: Start, attach: Attach) -> None:
    node = start(f"http://127.0.0.1:{free_port()}/v1/traces")
    spans(attach(node, "i", block=BLOCK), 3)
    until("it was tried", lambda: node.logged("the collector does not take spans; those that find no room are dropped"))
    assert node.stop() == 0


def test_what_waits_at_a_stop_is_handed_over(start: Start, attach: Attach, collector: Collector) -> None:
    node = start(collector.url)
    session = attach(node, "i", block=BLOCK)
    spans(session, 3)
    until("they are there", lambda: traces(node)["waiting"] + traces(node)["exported"] == 3)
    assert node.stop() == 0
    assert len(collector.spans) == 3


# ---- TLS


def test_a_collector_with_tls_is_trusted_by_its_authority_alone(start: Start, attach: Attach, tmp_path: Path) -> None:
    own, other = self_signed(tmp_path, "own"), self_signed(tmp_path, "other")
    secured = Collector(identity=own)
    try:
        node = start(secured.url, f"trace.ca={own.certificate}")
        spans(attach(node, "i", block=BLOCK), 2)
        until("it has them", lambda: len(secured.spans) == 2)
        assert node.stop() == 0
        node = start(secured.url, f"trace.ca={other.certificate}")
        spans(attach(node, "j", block=BLOCK), 2)
        (line,) = until("it refuses", lambda: node.logged("the collector does not take spans", since_start=True))
        assert "certificate" in line["reason"]
        assert len(secured.spans) == 2
    finally:
        secured.close()


# ---- configuration


@pytest.mark.parametrize(
    ("sets", "reason"),
    [
        (["trace.otlp=127.0.0.1:4318"], "must be http://HOST:PORT/v1/traces"),
        (["trace.otlp=http://127.0.0.1/v1/traces"], "must be http://HOST:PORT/v1/traces"),
        (["trace.otlp=http://h:0/v1/traces"], "must be http://HOST:PORT/v1/traces"),
        (["trace.otlp=ftp://h:1/"], "must be http://HOST:PORT/v1/traces"),
        ([r'trace.otlp="http://h:1/a\r\nX: y"'], "has characters that no address of a collector has"),
        (["trace.otlp=http://user:secret@h:1/"], "has characters that no address of a collector has"),
        (["trace.otlp=https://h:1/v1/traces"], "needs trace.ca"),
        (["trace.otlp=http://h:1/v1/traces", "trace.ca=/x.pem"], "is for https:// in trace.otlp alone"),
        (["trace.ca=/x.pem"], "needs trace.otlp"),
    ],
)
def test_an_address_that_is_none_is_refused(sets: list[str], reason: str) -> None:
    options = [part for each in sets for part in ("--set", each)]
    done = run_cenote("config", "check", *options)
    assert done.returncode != 0 and reason in done.stdout + done.stderr
