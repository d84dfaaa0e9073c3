"""Whole nodes with a real Redis server that is slow, cut off, silent, full or closed to them, or has wrong values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import blocks
import pytest
from node import KiB, Node
from redis import Redis
from redis_proxy import EXISTS, GET_OF_BLOCK, Behaviour, Proxy
from test_remote import BLOCK, all_put, counter, found, put, remote, start, until

__all__ = ["start"]  # a fixture: pytest finds it by its name here

Attach = Callable[..., Any]
COUNT = 16
IN_A_VALUE = 40_000  # bytes from the begin of a connection: behind its greeting, in the middle of its first value


@pytest.fixture
def launch(start: Callable[..., Node]) -> Callable[..., Node]:
    """A node whose prefetches end by what the server does, not by the time that this machine takes."""

    def launch(*sets: str, **more: Any) -> Node:
        return start("remote.lookup_timeout=5s", "prefetch.policy=wait_complete", *sets, **more)

    return launch


@pytest.fixture
def proxy(redis: Redis) -> Iterator[Proxy]:
    made = Proxy(redis.socket)
    yield made
    made.close()


def standing(node: Node) -> dict[str, Any]:
    return dict(remote(node)["backends"][0])


def is_well(node: Node) -> bool:
    now = standing(node)
    return bool(now["serves"] and now["breaker"] == "closed")


def is_idle(node: Node) -> bool:
    now = remote(node)
    return (now["putting"], now["getting"], now["putting_bytes"], now["getting_bytes"]) == (0, 0, 0, 0)


def names_of_values(redis: Redis) -> list[bytes]:
    words = redis.ask("KEYS", "cenote:*").split(b"\r\n")
    return [each for each in words if each.startswith(b"cenote:") and each.count(b":") == 3]


def all_found(session: Any, keys: list[bytes]) -> bool:
    return found(session, keys) == len(keys)


# ---- between node and server


def test_what_comes_in_small_pieces_comes_right(launch: Callable[..., Node], attach: Attach, proxy: Proxy) -> None:
    proxy.up = proxy.down = Behaviour(piece=997, pause=0.0001)
    here, there = launch(url=proxy.url), launch(url=proxy.url)
    keys = put(attach(here, "model", block=BLOCK), "pieces", COUNT)
    all_put(here, COUNT)
    reader = attach(there, "model", block=BLOCK)
    assert reader.locate(keys, timeout=5).reachable == COUNT
    assert found(reader, keys) == COUNT
    assert counter(here, "unreachable") == counter(there, "unreachable") == counter(there, "wrong") == 0


def test_a_line_that_is_too_slow_is_given_up_said_and_used_again(
    launch: Callable[..., Node], attach: Attach, proxy: Proxy
) -> None:
    here, there = launch(url=proxy.url), launch("remote.timeout=300ms", url=proxy.url)
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    keys = put(writer, "slow", COUNT)
    all_put(here, COUNT)
    proxy.down = Behaviour(piece=4096, pause=0.02)  # a block takes as long as may be waited
    begun = time.monotonic()
    assert reader.locate(keys, timeout=5).reachable in (0, COUNT)
    assert found(reader, keys) < COUNT
    assert time.monotonic() - begun < 15
    assert counter(there, "unreachable") > 0
    until(lambda: is_idle(there) and not is_well(there))
    proxy.behaves()
    until(lambda: all_found(reader, keys), 60)
    until(lambda: is_well(there), 60)
    assert counter(there, "wrong") == 0


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_connection_that_is_cut_in_the_middle_of_a_value_costs_hits_alone(
    launch: Callable[..., Node], attach: Attach, redis: Redis, proxy: Proxy, direction: str
) -> None:
    here, there = launch(url=proxy.url), launch(url=proxy.url)
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    before = put(writer, "before", COUNT)
    all_put(here, COUNT)
    setattr(proxy, direction, Behaviour(whole=IN_A_VALUE, cuts=True))
    if direction == "up":
        keys = put(writer, "cut", COUNT)
        assert found(writer, keys) == COUNT  # here it is
        until(lambda: counter(here, "unreachable") > 0 and is_idle(here))
        assert counter(here, "put") + counter(here, "unreachable") + counter(here, "dropped") == 2 * COUNT
    else:
        keys = before
        assert found(reader, keys) == 0
        assert counter(there, "unreachable") > 0
    cut_off = here if direction == "up" else there
    until(lambda: proxy.cuts > 0 and not standing(cut_off)["serves"])
    assert standing(cut_off)["last_error"] != ""
    proxy.behaves()
    until(lambda: is_well(here) and is_well(there), 60)
    until(lambda: all_found(reader, before), 60)
    whole = BLOCK + 128
    assert all(redis.ask("STRLEN", each) == b":%d\r\n" % whole for each in names_of_values(redis))
    assert counter(there, "wrong") == 0


def test_a_worker_that_dies_in_the_middle_of_a_load_leaves_no_wrong_byte(
    launch: Callable[..., Node], attach: Attach, proxy: Proxy
) -> None:
    here, there = launch(), launch("remote.timeout=8s", url=proxy.url)
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    keys = put(writer, "under way", COUNT)
    all_put(here, COUNT)
    proxy.down = Behaviour(whole=IN_A_VALUE)
    ticket = reader.prefetch(keys)
    until(lambda: remote(there)["getting"] == COUNT and proxy.cuts > 0)  # half a block has landed
    there.worker_dies()
    proxy.behaves()
    ticket.wait(20)
    ticket.release()
    until(lambda: is_well(there), 60)
    assert there.blocks()["granted"] == 0
    until(lambda: all_found(reader, keys), 60)
    assert counter(there, "got") == COUNT  # since the new worker began


@pytest.mark.parametrize("silent_from", [EXISTS, GET_OF_BLOCK], ids=["questions", "values"])
def test_a_thousand_keys_without_an_answer_end_in_time(
    launch: Callable[..., Node], attach: Attach, proxy: Proxy, silent_from: Any
) -> None:
    size, count = 4 * KiB, 1000
    here = launch()
    keys = blocks.keys_of("unanswered", 0, count)
    attach(here, "model", block=size).put(keys, blocks.contents_of(keys, size))
    all_put(here, count)
    there = launch("remote.timeout=500ms", url=proxy.url)
    reader = attach(there, "model", block=size)
    proxy.up = Behaviour(silent_from=silent_from)
    begun = time.monotonic()
    asked = reader.locate(keys, timeout=5)
    assert asked.reachable == (0 if silent_from is EXISTS else count)
    ticket = reader.prefetch(keys)
    other = attach(there, "other", block=size)
    mine = blocks.keys_of("mine", 0, 8)
    other.put(mine, blocks.contents_of(mine, size))
    assert len(other.acquire(mine)) == 8
    assert ticket.wait(20) == 0
    assert time.monotonic() - begun < 10  # tenths of a second are allowed
    assert proxy.cuts > 0
    until(lambda: is_idle(there))
    ticket.release()
    prefetches = there.status()["prefetch"]
    assert (prefetches["waiting"], prefetches["held"], prefetches["bytes_in_flight"]) == (0, 0, 0)
    reader.close()
    other.close()
    until(lambda: there.status()["sessions"] == [])
    assert there.blocks()["granted"] == 0
    assert counter(there, "got") == counter(there, "wrong") == 0
    proxy.behaves()
    again = attach(there, "model", block=size)
    until(lambda: again.locate(keys, timeout=1).reachable == count, 60)
