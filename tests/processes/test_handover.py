"""A request's blocks, followed from the node that makes them to the one that wants them."""

from __future__ import annotations

import functools
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import blocks
import cenote
import pytest
import wire
from conftest import StartNode, make_spec
from node import FULL, LIMIT, UNREACHED, KiB, Node, free_ports, run_cenote, stop_process, until
from test_pool import Pool, alter_blocks, of_pool

from cluster import kill_node

Attach = Callable[..., Any]
BLOCK = 64 * KiB
COUNT = 40


class Hands:
    """Two nodes of a pool, each with an engine of one model: `a` makes blocks, `b` wants them."""

    def __init__(self, pool: Pool, attach: Attach) -> None:
        self.pool = pool
        self.attach = attach
        self.a, self.b = pool.pooled(2)
        self.makes = attach(self.a, "model", block=BLOCK)
        self.wants = attach(self.b, "model", block=BLOCK)

    def store(self, keys: list[bytes], salt: int = 0) -> None:
        self.makes.put(keys, blocks.contents_of(keys, BLOCK, salt))


@pytest.fixture
def pool(start_node: StartNode) -> Pool:
    return Pool(start_node)


@pytest.fixture
def hands(pool: Pool, attach: Attach) -> Hands:
    return Hands(pool, attach)


def takes(ticket: cenote.Follow, keys: list[bytes], limit: float = LIMIT) -> int:
    """How many blocks came; they are the first of these, and every byte is right."""
    length = ticket.wait(limit)
    assert ticket.done
    with ticket.held() as held:
        assert len(held) == length
        assert ticket.keys[:length] == keys[:length]
        assert blocks.wrong_blocks(keys[:length], [each.view() for each in held], BLOCK) == []
    ticket.release()
    return int(length)


def comes_to(ticket: cenote.Follow, length: int) -> None:
    until(f"{length} blocks came", lambda: ticket.length >= length)


def test_blocks_come_as_they_are_stored_in_the_requests_order(hands: Hands) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    assert hands.makes.publish("r1", keys[:30]) == 30
    ticket = hands.wants.follow("r1", "a", deadline=UNREACHED)
    assert ticket.wait(0.05) == 0
    hands.store(keys[:10])
    comes_to(ticket, 10)
    assert not ticket.done
    assert ticket.keys[:10] == keys[:10]
    hands.store(keys[11:30])  # all but one
    hands.store([keys[10]])
    comes_to(ticket, 30)
    assert hands.makes.publish("r1", keys[30:], end=True) == COUNT
    hands.store(keys[30:])
    assert takes(ticket, keys) == COUNT
    assert of_pool(hands.b, "follows") == 1
    assert of_pool(hands.a, "followed") == 1
    assert of_pool(hands.a, "handed") == COUNT
    status = hands.b.status()["prefetch"]
    assert status["follows"] == 1
    assert status["followed"] == COUNT
    assert status["held"] == 0


def test_who_follows_may_be_first(hands: Hands) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    ticket = hands.wants.follow(b"\x00\xff r", "a", deadline=UNREACHED)
    until("the node is followed", lambda: hands.a.status()["handover"]["followers"] == 1)
    hands.store(keys)
    hands.makes.publish(b"\x00\xff r", keys, end=True)
    assert takes(ticket, keys) == COUNT


def test_a_request_that_nobody_publishes_is_waited_for_and_is_then_empty(hands: Hands) -> None:
    ticket = hands.wants.follow("nothing", "a", deadline=0.5)
    assert takes(ticket, []) == 0
    ticket = hands.wants.follow("nothing", "no such node", deadline=0.5)
    assert takes(ticket, []) == 0
    until("nobody follows", lambda: hands.a.status()["handover"]["followers"] == 0)


def test_requests_that_are_waited_for_cost_one_timer(hands: Hands) -> None:
    def timers() -> int:
        return max(int(each.status()["node"]["timers"]) for each in (hands.a, hands.b))

    before = timers()
    tickets = []
    for number in range(60):
        tickets.append(hands.wants.follow(f"nothing {number}", "a", deadline=UNREACHED))
        hands.store(blocks.keys_of(f"other {number}", 0, 2))
        assert timers() <= before + 1
    until("all are followed", lambda: hands.a.status()["handover"]["followers"] == len(tickets))
    for ticket in tickets:
        ticket.release()
    until("nobody follows", lambda: hands.a.status()["handover"]["followers"] == 0)
    assert timers() <= before + 1


def test_at_the_deadline_it_has_what_came(hands: Hands) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    hands.makes.publish("r", keys, end=True)
    hands.store(keys[:15])
    ticket = hands.wants.follow("r", "a", deadline=2)
    assert takes(ticket, keys) == 15


def test_many_keys_come_in_parts(hands: Hands, attach: Attach) -> None:
    """More than an answer, a batch and a frame hold; keys of an odd width."""
    makes = attach(hands.a, "small", block=4 * KiB)
    wants = attach(hands.b, "small", block=4 * KiB)
    keys = [blocks.key_of("many", i, 59) for i in range(1500)]
    ticket = wants.follow("r", "a", deadline=UNREACHED)
    assert makes.publish("r", keys, end=True) == len(keys)
    for first in range(0, len(keys), 100):
        some = keys[first : first + 100]
        makes.put(some, blocks.contents_of(some, 4 * KiB))
    assert ticket.wait(LIMIT) == len(keys)
    with ticket.held() as held:
        assert blocks.wrong_blocks(keys, [each.view() for each in held], 4 * KiB) == []
    ticket.release()


def test_two_nodes_follow_one_request_and_one_of_them_leaves(pool: Pool, attach: Attach) -> None:
    a, b, c = pool.pooled(3)
    makes = attach(a, "model", block=BLOCK)
    keys = blocks.keys_of("prompt", 0, COUNT)
    first = attach(b, "model", block=BLOCK).follow("r", "a", deadline=UNREACHED)
    second = attach(c, "model", block=BLOCK).follow("r", "a", deadline=UNREACHED)
    makes.publish("r", keys, end=True)
    makes.put(keys[:5], blocks.contents_of(keys[:5], BLOCK))
    comes_to(first, 5)
    first.cancel()
    until("one follows", lambda: a.status()["handover"]["followers"] == 1)
    makes.put(keys, blocks.contents_of(keys, BLOCK))
    assert takes(second, keys) == COUNT


def test_an_engine_of_the_same_node_follows(hands: Hands) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    other = hands.attach(hands.a, "model", block=BLOCK)
    tickets = [other.follow("r", node, deadline=UNREACHED) for node in ("a", "")]
    hands.makes.publish("r", keys, end=True)
    hands.store(keys)
    assert [takes(each, keys) for each in tickets] == [COUNT, COUNT]


def test_a_follow_that_is_let_go_takes_its_session_along_without_the_collector(hands: Hands) -> None:
    gc.collect()
    gc.disable()
    try:
        before = set(os.listdir("/proc/self/fd"))
        session = cenote.attach(make_spec("model", BLOCK), socket=str(hands.b.socket))
        tickets = [session.follow("nothing", "a", deadline=UNREACHED), session.prefetch(blocks.keys_of("none", 0, 1))]
        session.close()
        del session, tickets
        assert set(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()


def test_requests_of_another_instance_are_others(hands: Hands) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    hands.store(keys)
    hands.makes.publish("r", keys, end=True)
    other = hands.attach(hands.b, "other", block=BLOCK)
    assert takes(other.follow("r", "a", deadline=0.5), []) == 0


def test_it_ends_where_the_engine_stops_it(hands: Hands) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    hands.makes.publish("r", keys)
    hands.store(keys[:7])
    ticket = hands.wants.follow("r", "a", deadline=UNREACHED)
    comes_to(ticket, 7)
    ticket.stop()
    assert takes(ticket, keys) == 7


def test_what_cannot_be_published_is_refused_with_a_reason(hands: Hands) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    for name in (b"", b"x" * 65):
        with pytest.raises(cenote.InvalidArgument, match="1 to 64 bytes"):
            hands.makes.publish(name, keys)
    with pytest.raises(cenote.InvalidArgument, match="next keys"):
        hands.makes.publish("r", keys, first=1)
    assert hands.makes.publish("r", keys[:10], first=0) == 10
    assert hands.makes.publish("r", keys[5:15], first=5) == 15
    with pytest.raises(cenote.InvalidArgument, match="next keys"):
        hands.makes.publish("r", keys[:10], first=5)
    assert hands.makes.publish("r", end=True) == 15
    with pytest.raises(cenote.InvalidArgument, match="has ended"):
        hands.makes.publish("r", keys[15:])
    many = [number.to_bytes(8, "little") for number in range(65536)]
    hands.makes.publish("long", many)
    with pytest.raises(cenote.LimitExceeded, match="60 s"):
        hands.makes.publish("long", [b"one more"])
    assert hands.a.status()["counters"]["publications_refused"] == 4
    assert hands.a.status()["handover"]["published"] == 2


def test_a_node_alone_and_one_that_asks_nobody_say_so(start_node: StartNode, attach: Attach) -> None:
    alone = attach(start_node(), "model", block=BLOCK)
    with pytest.raises(cenote.Unsupported, match=r"cluster\.name"):
        alone.follow("r").wait(5)
    port = free_ports(1)[0]
    asks_nobody = attach(start_node("cluster.name=x", f"cluster.listen=127.0.0.1:{port}"), "model", block=BLOCK)
    with pytest.raises(cenote.Unsupported, match="peers"):
        asks_nobody.follow("r", "y").wait(5)


def test_a_clear_takes_the_requests_along(hands: Hands) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    hands.store(keys)
    hands.makes.publish("r", keys, end=True)
    hands.makes.clear()
    assert hands.a.status()["handover"]["published"] == 0
    assert takes(hands.wants.follow("r", "a", deadline=0.5), []) == 0


def test_who_got_keys_of_a_request_that_was_cleared_hears_that_it_is_closed(hands: Hands) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    hands.makes.publish("r", keys, end=True)
    hands.store(keys[:10])
    ticket = hands.wants.follow("r", "a", deadline=UNREACHED)
    comes_to(ticket, 10)
    waits = hands.wants.follow("other", "a", deadline=UNREACHED)
    until("both follow", lambda: hands.a.status()["handover"]["followers"] == 2)
    hands.makes.clear()
    with pytest.raises(cenote.Closed, match="cleared"):
        ticket.wait(LIMIT)
    ticket.release()
    others = blocks.keys_of("another prompt", 0, COUNT)
    hands.store(others)
    hands.makes.publish("other", others, end=True)
    assert takes(waits, others) == COUNT


def test_a_request_ends_with_the_session_that_published_it_and_is_published_anew(hands: Hands, attach: Attach) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    leaves = attach(hands.a, "model", block=BLOCK)
    leaves.publish("r", keys, end=True)
    hands.store(keys[:10])
    ticket = hands.wants.follow("r", "a", deadline=UNREACHED)
    comes_to(ticket, 10)
    leaves.close()
    assert takes(ticket, keys) == 10  # long before its deadline
    assert takes(hands.wants.follow("r", "a", deadline=UNREACHED), keys) == 10
    with pytest.raises(cenote.InvalidArgument, match="from its first key on"):
        hands.makes.publish("r", keys[10:], end=True)
    hands.makes.publish("r", keys, first=0, end=True)
    hands.store(keys[10:])
    assert takes(hands.wants.follow("r", "a", deadline=UNREACHED), keys) == COUNT


def test_another_node_says_why_a_request_is_not_followed(hands: Hands) -> None:
    most = 64
    hands.makes.publish("r", blocks.keys_of("prompt", 0, COUNT))
    tickets = [hands.wants.follow("r", "a", deadline=UNREACHED) for _ in range(most)]
    until("they follow", lambda: hands.a.status()["handover"]["followers"] == most)
    with pytest.raises(cenote.LimitExceeded, match="followed too much"):
        hands.wants.follow("r", "a", deadline=UNREACHED).wait(LIMIT)
    for each in tickets:
        each.cancel()


def test_a_block_that_is_gone_again_ends_it_there(hands: Hands) -> None:
    """It was evicted, or removed, at its node after it was whole, and is nowhere else."""
    keys = blocks.keys_of("prompt", 0, COUNT)
    hands.store(keys)
    hands.makes.publish("r", keys, end=True)
    hands.makes.remove([keys[12]])
    assert takes(hands.wants.follow("r", "a", deadline=UNREACHED), keys) == 12


def test_altered_bytes_are_not_handed_over(hands: Hands) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    hands.store(keys)
    until("all are where they belong", lambda: hands.a.status()["remote"]["putting"] == 0)
    hands.makes.publish("r", keys, end=True)
    alter_blocks(hands.a)
    before = hands.b.status()["prefetch"]["blocks_lost"]
    length = takes(hands.wants.follow("r", "a", deadline=20), keys)
    assert length < COUNT  # those that `b` hosts were sent before
    assert of_pool(hands.b, "wrong") > 0 or hands.b.status()["prefetch"]["blocks_lost"] > before


def test_entries_of_a_hostile_client_are_refused_and_harm_nobody(hands: Hands) -> None:
    malformed, invalid, closed_chain = 18, 1, 77
    raw = wire.RawSession.attach(hands.b.socket, "wire", {"full": {"kv": 4096}}, minor=wire.MINOR)

    def answers(expected: int) -> list[int]:
        until("the answers", lambda: raw.waiting_completions() >= expected)
        return [each.code for each in raw.take() if each.kind == 1]

    huge = (1 << 64) - 1
    for operation in (wire.PUBLISH, wire.FOLLOW):
        raw.submit(operation, group=99, key=b"name")  # no such group
        raw.submit(operation, key=b"x" * 200)  # a size that no key has
    raw.submit(wire.PUBLISH)  # no name
    raw.submit(wire.FOLLOW, key=b"name", grant_version=1)  # no node's entry
    assert answers(6) == [malformed] * 6
    raw.submit(wire.FOLLOW, grant_version=closed_chain, argument=huge)  # a chain that there is not
    raw.submit(wire.FOLLOW, key=b"name", argument=huge, last=False)
    raw.submit(wire.FOLLOW, key=b"a", grant_version=0)  # the chain 0
    assert answers(2) == [invalid] * 2
    for index, key in enumerate((b"name", b"node", b"more")):  # an entry too many
        raw.submit(wire.FOLLOW, key=key, grant_version=2, index=index, last=index == 2)
    raw.submit(wire.PUBLISH, key=b"name", argument=huge, last=False)
    raw.submit(wire.PUBLISH, key=b"1234567")  # a key that is too short
    raw.submit(wire.PUBLISH, key=b"name", argument=huge - 1, last=False)
    raw.submit(wire.PUBLISH, key=b"12345678")  # far behind what there is
    assert answers(3) == [malformed, malformed, invalid]
    assert hands.b.status()["handover"]["published"] == 0
    raw.submit(wire.FOLLOW, key=b"r", argument=huge, last=False)
    raw.submit(wire.FOLLOW, key=b"a", grant_version=3)
    until("it follows", lambda: hands.a.status()["handover"]["followers"] == 1)
    raw.close()
    until("nobody follows", lambda: hands.a.status()["handover"]["followers"] == 0)
    keys = blocks.keys_of("prompt", 0, COUNT)
    hands.makes.publish("r", keys, end=True)
    hands.store(keys)
    assert takes(hands.wants.follow("r", "a", deadline=UNREACHED), keys) == COUNT


@contextmanager
def stores_on(hands: Hands, keys: list[bytes]) -> Iterator[threading.Event]:
    """An engine at `a` goes on storing, a block at a time, until its node is gone."""
    over = threading.Event()

    def run() -> None:
        for key in keys:
            try:
                hands.store([key])
            except cenote.CenoteError:
                break
            if over.wait(0.005):
                break

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield over
    finally:
        over.set()
        thread.join()


def cut_off(node: Node) -> None:
    assert run_cenote("debug", "partition", "a", "b", "--socket", node.socket).returncode == 0


def under_way(hands: Hands) -> cenote.Follow | None:
    """A follower with a few blocks and not much time left; None where the time went first."""
    ticket = hands.wants.follow("r", "a", deadline=3)
    until("a few came", lambda: ticket.length >= 5 or ticket.done)
    if ticket.done:
        ticket.release()
        return None
    return ticket


@pytest.mark.parametrize("fault", ["worker", "node", "stopped", "cut"])
def test_when_the_node_that_makes_them_fails_the_follower_has_what_came(hands: Hands, fault: str) -> None:
    keys = blocks.keys_of("prompt", 0, 400)
    hands.makes.publish("r", keys, end=True)
    with stores_on(hands, keys[:-1]):
        ticket = until("blocks came, and more are waited for", functools.partial(under_way, hands))
        worker = hands.a.worker_pid
        if fault == "worker":
            hands.a.worker_dies()
        elif fault == "node":
            kill_node(hands.a)
        elif fault == "stopped":
            stop_process(worker)
            stop_process(hands.a.pid)
        else:
            cut_off(hands.b)
        try:
            length = takes(ticket, keys)
        finally:
            if fault == "stopped":
                os.kill(worker, signal.SIGCONT)
                hands.a.send_signal(signal.SIGCONT)
    assert length >= 5
    status = hands.b.status()["prefetch"]
    assert status["waiting"] == 0
    until("nothing is under way", lambda: hands.b.status()["prefetch"]["bytes_in_flight"] == 0)


def test_a_worker_that_comes_back_goes_on_when_the_request_is_published_again(hands: Hands) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    hands.makes.publish("r", keys, end=True)
    hands.store(keys[:10])
    ticket = hands.wants.follow("r", "a", deadline=UNREACHED)
    comes_to(ticket, 10)

    hands.a.worker_dies()
    hands.makes.barrier()  # the next worker answers

    hands.makes.publish("r", keys, first=0, end=True)
    hands.store(keys[10:])
    assert takes(ticket, keys) == COUNT


def test_when_the_follower_dies_nothing_of_it_is_left(hands: Hands, attach: Attach) -> None:
    keys = blocks.keys_of("prompt", 0, COUNT)
    hands.makes.publish("r", keys)
    hands.store(keys[:10])
    tickets = [hands.wants.follow("r", "a", deadline=UNREACHED) for _ in range(3)]
    comes_to(tickets[0], 10)
    until("they follow", lambda: hands.a.status()["handover"]["followers"] == 3)
    hands.wants.close()
    until("nobody follows", lambda: hands.a.status()["handover"]["followers"] == 0)
    until("nothing is held", lambda: hands.b.status()["prefetch"]["held_bytes"] == 0)
    assert hands.b.status()["prefetch"]["waiting"] == 0


def test_when_the_followers_node_dies_the_other_forgets_it(hands: Hands) -> None:
    hands.makes.publish("r", blocks.keys_of("prompt", 0, COUNT))
    ticket = hands.wants.follow("r", "a", deadline=UNREACHED)
    until("it follows", lambda: hands.a.status()["handover"]["followers"] == 1)
    hands.b.worker_dies()
    until("nobody follows", lambda: hands.a.status()["handover"]["followers"] == 0)
    assert ticket.wait(LIMIT) == 0  # the next worker knows nothing of it
    ticket.release()


def test_the_window_of_a_node_bounds_what_is_on_its_way(start_node: StartNode, attach: Attach) -> None:
    pool = Pool(start_node)
    usual = pool.settings
    pool.settings = lambda index, **changed: [*usual(index, **changed), "remote.peer_window=1MiB"]  # type: ignore[method-assign]
    hands = Hands(pool, attach)
    keys = blocks.keys_of("prompt", 0, 120)
    hands.makes.publish("r", keys, end=True)
    hands.store(keys)
    assert takes(hands.wants.follow("r", "a", deadline=UNREACHED), keys) == 120


@pytest.mark.skipif(not FULL, reason="waits for a minute")
def test_a_request_lives_for_a_minute(hands: Hands) -> None:
    hands.makes.publish("r", blocks.keys_of("prompt", 0, COUNT))
    assert hands.a.status()["handover"]["published"] == 1
    until("it is forgotten", lambda: hands.a.status()["handover"]["published"] == 0, limit=90)
