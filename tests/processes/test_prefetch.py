"""Prefetches on a real node over a disk that is as slow as the test says: policies, recomputing, ends, deaths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import pytest
from conftest import StartAgent, StartNode
from node import LIMIT, KiB, MiB, Node, preloading, until
from test_nvme import filled, nvme, serving, settled
from test_nvme_faults import SHIM, Faults, faults, only_below

__all__ = ["faults"]  # a fixture: pytest finds it by its name here

Attach = Callable[..., Any]
BLOCK = 256 * KiB
COUNT = 64  # blocks of a chain: 1,024 tokens


@pytest.fixture
def start(start_node: StartNode, tmp_path: Path, faults: Faults) -> Callable[..., Node]:
    """A node of 32 MiB of DRAM over 256 MiB of disk, four transfers at a time, which obey `faults`."""

    def start(*sets: str, **more: Any) -> Node:
        environment = preloading(SHIM) | {"CENOTE_TEST_FAULTS": str(faults.file)}
        disk = (f"nvme.paths=[{tmp_path / 'store'}]", "nvme.capacity=256MiB", "nvme.engine=threads")
        node = start_node(*disk, "nvme.queue_depth=4", *sets, capacity="32MiB", environment=environment, **more)
        serving(node)
        return node

    return start


def status(node: Node) -> dict[str, Any]:
    return dict(node.status()["prefetch"])


def ended(node: Node, reason: str) -> int:
    return int(status(node)["ended"][reason])


def nothing_left(node: Node) -> bool:
    now = status(node)
    return bool((now["waiting"], now["held"], now["held_bytes"], now["bytes_in_flight"]) == (0, 0, 0, 0))


def right(ticket: Any, keys: list[bytes], length: int) -> None:
    """The ticket pins exactly the first `length` of the keys, with the right bytes."""
    with ticket.held() as held:
        assert len(held) == length
        assert blocks.wrong_blocks(keys[:length], [each.view() for each in held], BLOCK) == []
    ticket.release()


# ---- policies


def test_what_is_in_dram_is_offered_below_the_threshold_and_nothing_is_loaded(
    start: Callable[..., Node], attach: Attach
) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    below = only_below(session, node, count=COUNT)
    here = blocks.keys_of("after a", 130, 10)
    ticket = session.prefetch([*here, *below[:15]])  # 240 tokens
    assert ticket.wait(LIMIT) == 10
    right(ticket, here, 10)
    assert ended(node, "below_threshold") == 1
    assert status(node)["blocks_loaded"] == 0
    ticket = session.prefetch([*here, *below[:16]])
    assert ticket.wait(LIMIT) == 26
    right(ticket, [*here, *below[:16]], 26)
    assert ended(node, "complete") == 1
    ticket = session.prefetch(below[16:18], threshold_tokens=32)  # this client knows better
    assert ticket.wait(LIMIT) == 2
    right(ticket, below[16:18], 2)


def test_a_timeout_answers_with_what_came_by_then(start: Callable[..., Node], attach: Attach, faults: Faults) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "hold")
    ticket = session.prefetch(keys, "timeout", base=0.05, per_ki_token=0.05)
    assert ticket.wait(LIMIT) == 0
    assert ticket.done
    assert ended(node, "timeout") == 1
    faults.end()
    until("what was under way has come", lambda: nothing_left(node))


def test_a_slow_load_has_a_line_in_the_log_and_all_loads_are_counted_by_time(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start("prefetch.slow_load=20ms")
    node.allowed_errors = ["slow loads"]
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "delay_ms=5")  # sixteen rounds of four
    ticket = session.prefetch(keys, "wait_complete")
    assert ticket.wait(LIMIT) == COUNT
    ticket.release()
    (line,) = node.logged("slow loads")
    assert (line["count"], line["loaded"], line["prefix"]) == (1, COUNT, COUNT)
    assert line["ms"] >= 20
    assert status(node)["loads"]["count"] == 1
    assert status(node)["sources"][0]["loaded"] == COUNT


@pytest.mark.sanitizer
def test_progress_is_seen_before_the_end_and_wait_complete_waits_for_all(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "delay_ms=5")
    ticket = session.prefetch(keys, "wait_complete")
    seen = {until("more blocks", lambda least=least: ticket.length >= least and ticket.length) for least in (1, 9, 33)}
    assert len(seen) > 1
    ticket.stop()  # says nothing to this policy
    assert ticket.wait(LIMIT) == COUNT
    right(ticket, keys, COUNT)


@pytest.mark.sanitizer
def test_a_node_that_stops_keeps_the_memory_of_transfers_under_way(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "linger_ms=500")  # what was read is looked at after the tier above has ended
    ticket = session.prefetch(keys, "wait_complete")
    until("blocks are on their way", lambda: status(node)["bytes_in_flight"] > 0)
    assert not ticket.done
    assert node.stop() == 0, node.log_text()[-2000:]


@pytest.mark.sanitizer
def test_best_effort_ends_at_the_stop_with_a_pinned_prefix(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start("nvme.read_window=1MiB")
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "delay_ms=20")
    ticket = session.prefetch(keys, "best_effort")
    until("some blocks came", lambda: ticket.length >= 4)
    assert not ticket.done
    faults.give("store", "hold")
    ticket.stop()
    length = ticket.wait(LIMIT)
    assert 4 <= length < COUNT
    assert ended(node, "stopped") == 1
    right(ticket, keys, length)
    faults.end()
    until("what was under way has come", lambda: nothing_left(node))
    assert status(node)["blocks_loaded"] < COUNT, "the rest was not asked for"


def test_a_cancelled_prefetch_pins_nothing_and_asks_for_nothing_more(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start("nvme.read_window=1MiB")
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "hold")
    ticket = session.prefetch(keys, "wait_complete")
    until("it has begun", lambda: status(node)["bytes_in_flight"] == MiB)
    ticket.cancel()
    assert ticket.done
    assert ticket.length == 0
    until("the node has heard", lambda: ended(node, "cancelled") == 1)
    assert session.stats()["pins_in_use"] == 0
    faults.end()
    until("what was under way has come", lambda: nothing_left(node))
    assert status(node)["blocks_loaded"] == 4


def test_the_node_s_configuration_is_what_a_client_does_not_say(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start("prefetch.policy=timeout", "prefetch.base=30ms", "prefetch.per_ki_token=0s")
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "hold")
    assert session.prefetch(keys).wait(LIMIT) == 0
    assert ended(node, "timeout") == 1
    faults.end()
    assert session.prefetch(keys, "wait_complete").wait(LIMIT) == COUNT


# ---- never slower than recomputing


def test_a_disk_that_recomputing_beats_is_left_alone_and_found_again_when_it_is_fast(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "delay_ms=100")
    slow = session.prefetch(keys, "wait_complete", prefill_tokens_per_s=16_000)  # a block in 1 ms, all in 64 ms
    assert slow.wait(LIMIT) <= 4
    assert ended(node, "cut") == 1
    slow.release()
    until("the window has come", lambda: nothing_left(node))
    first = status(node)
    assert (first["probes"], first["compared"]) == (1, 1)
    assert 8 <= first["blocks_loaded"] <= 20
    assert first["bytes_per_s"] < 16 * MiB
    assert session.prefetch(keys[32:], prefill_tokens_per_s=16_000).wait(LIMIT) <= 1
    assert ended(node, "cannot_win") == 1
    faults.end()
    until("what is behind it has come", lambda: nothing_left(node))
    ungated = session.prefetch(keys, "wait_complete", prefill_tokens_per_s=0)
    assert ungated.wait(LIMIT) == COUNT, "an engine that does not compare gets all"
    ungated.release()
    filled(session, "out", 140, pace=node)
    fast = session.prefetch(keys, "wait_complete", prefill_tokens_per_s=200)  # 80 ms a block
    assert fast.wait(LIMIT) == COUNT
    right(fast, keys, COUNT)
    now = status(node)
    assert now["saved_s"] > 1
    assert now["waited_s"] < now["saved_s"]
    assert now["recompute_s"] >= now["saved_s"]


def test_a_rate_that_nobody_gave_is_assumed_and_the_log_says_so(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start("prefetch.assumed_tokens_per_s=16000")
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "delay_ms=100")
    assert session.prefetch(keys, "wait_complete").wait(LIMIT) <= 4
    assert ended(node, "cut") == 1
    assert len(node.logged("prefetch.assumed_tokens_per_s")) == 1


# ---- holds, deaths


@pytest.mark.sanitizer
def test_what_came_survives_a_burst_of_puts_until_its_client_takes_it_over(
    start: Callable[..., Node], attach: Attach
) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=40)
    ticket = session.prefetch(keys, "wait_complete")
    until("the node holds them", lambda: status(node)["held_bytes"] == 40 * BLOCK)
    filled(session, "burst", 300, pace=node)
    assert session.match(keys).resident == 40
    assert ticket.wait(LIMIT) == 40
    until("the client pins them itself", lambda: status(node)["held_bytes"] == 0)
    right(ticket, keys, 40)
    filled(session, "burst 2", 300, pace=node)
    assert session.match(keys).resident == 0
    assert status(node)["unclaimed"] == 0


@pytest.mark.sanitizer
@pytest.mark.parametrize("when", ["loading", "held"])
def test_a_killed_client_leaves_no_bytes_in_flight_and_no_holds(
    start: Callable[..., Node], start_agent: StartAgent, attach: Attach, faults: Faults, when: str
) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    only_below(session, node, count=40)
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    if when == "loading":
        faults.give("store", "hold")
    agent.call("prefetch", label="a", count=40, policy="wait_complete")
    if when == "loading":
        until("loads are under way", lambda: status(node)["bytes_in_flight"] > 0)
    else:
        until("the node holds them", lambda: status(node)["held"] == 1)
    agent.kill()
    until("its holds are gone", lambda: (status(node)["held_bytes"], status(node)["waiting"]) == (0, 0))
    faults.end()
    until("nothing is left", lambda: nothing_left(node))
    assert ended(node, "session_gone") == (1 if when == "loading" else 0)
    assert node.blocks()["loading"] == 0
    filled(session, "b", 300, pace=node)  # all of DRAM is free to go
    assert session.match(blocks.keys_of("a", 0, 40)).resident == 0


@pytest.mark.sanitizer
def test_a_worker_that_dies_in_the_middle_ends_every_ticket(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "hold")
    tickets = [session.prefetch(keys, policy) for policy in ("wait_complete", "best_effort", "timeout")]
    until("they are under way", lambda: status(node)["waiting"] == 3)
    node.worker_dies()
    faults.end()
    for each in tickets:
        assert each.wait(LIMIT) == 0
        assert each.done
        each.release()
    serving(node)
    until("the next worker has nothing of them", lambda: nothing_left(node))
    again = session.prefetch(keys, "wait_complete")
    assert again.wait(LIMIT) == COUNT
    right(again, keys, COUNT)


def test_a_chain_longer_than_a_request_is_one_prefetch(start: Callable[..., Node], attach: Attach) -> None:
    node = start("prefetch.threshold_tokens=9600", "nvme.ingest=all")  # 600 blocks: more than one request has
    block = 16 * KiB
    session = attach(node, "i", block=block)
    keys = blocks.keys_of("a", 0, 600)
    session.put(keys, blocks.contents_of(keys, block))
    settled(node)
    others = blocks.keys_of("b", 0, 2100)
    session.put(others, blocks.contents_of(others, block))
    settled(node)
    assert not any(session.exists(keys))
    assert session.match(keys).reachable == 600
    assert session.prefetch(keys[:599], "wait_complete").wait(LIMIT) == 0
    assert ended(node, "below_threshold") == 1
    ticket = session.prefetch(keys, "wait_complete")
    assert ticket.wait(LIMIT) == 600
    assert status(node)["started"] == 2
    assert status(node)["blocks_loaded"] == 600
    ticket.release()


def test_a_session_with_too_many_prefetches_is_told_so(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    faults.give("store", "hold")
    tickets = [session.prefetch(keys, "wait_complete") for _ in range(257)]
    with pytest.raises(cenote.CenoteError, match="too many prefetches"):
        tickets[-1].wait(LIMIT)
    assert tickets[-1].done
    for each in tickets:
        each.cancel()
    faults.end()
    until("nothing is left", lambda: nothing_left(node))
    assert session.prefetch(keys, "wait_complete").wait(LIMIT) == COUNT
    assert nvme(node)["counters"]["read"] == COUNT


@pytest.mark.sanitizer
def test_the_next_turn_of_a_conversation_is_there_before_it_is_asked_for(
    start: Callable[..., Node], attach: Attach
) -> None:
    node = start("prefetch.read_ahead=16")
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    for turn in (32, COUNT):  # the node sees which blocks follow the first 32
        ticket = session.prefetch(keys[:turn], "wait_complete")
        assert ticket.wait(LIMIT) == turn
        ticket.release()
    filled(session, "between", 140, BLOCK, pace=node)
    assert not any(session.exists(keys))
    ticket = session.prefetch(keys[:32], "wait_complete")
    assert ticket.wait(LIMIT) == 32
    until("what followed has come, too", lambda: session.match(keys).resident == 48)
    right(ticket, keys, 32)
    assert status(node)["read_ahead"] == 16
    assert nothing_left(node)  # nothing of it is held


def test_metrics_tell_of_prefetches(start: Callable[..., Node], attach: Attach) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=COUNT)
    assert session.prefetch(keys, "wait_complete").wait(LIMIT) == COUNT
    now = status(node)
    assert (now["started"], now["finished"], now["blocks_wanted"], now["blocks_loaded"]) == (1, 1, COUNT, COUNT)
    assert sum(now["ended"].values()) == 1
    assert now["bytes_per_s"] > 0
