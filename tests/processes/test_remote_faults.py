"""Whole nodes with a real Redis server that is slow, cut off, silent, full or closed to them, or has wrong values."""

from __future__ import annotations

import itertools
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import blocks
import cenote
import pytest
from node import LIMIT, KiB, Node, free_port
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


def all_found(session: Any, keys: list[bytes]) -> bool:
    return found(session, keys) == len(keys)


def has_whole_values(redis: Redis) -> bool:
    """Nothing that was cut off stayed there."""
    whole = BLOCK + 144
    return all(redis.ask("STRLEN", each) == b":%d\r\n" % whole for each in redis.values())


# ---- between node and server


def test_what_comes_in_small_pieces_comes_right(launch: Callable[..., Node], attach: Attach, proxy: Proxy) -> None:
    proxy.up = proxy.down = Behaviour(piece=997, pause=0.0001)
    here, there = launch(url=proxy.url), launch(url=proxy.url)
    keys = put(attach(here, "model", block=BLOCK), "pieces", COUNT)
    all_put(here, COUNT)
    reader = attach(there, "model", block=BLOCK)
    assert reader.locate(keys, timeout=LIMIT).reachable == COUNT
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
    assert reader.locate(keys, timeout=5).reachable in (0, COUNT)
    assert found(reader, keys) < COUNT
    assert counter(there, "unreachable") > 0
    until(lambda: is_idle(there) and not is_well(there))
    proxy.behaves()
    until(lambda: all_found(reader, keys))
    until(lambda: is_well(there))
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
    until(lambda: is_well(here) and is_well(there))
    until(lambda: all_found(reader, before))
    assert has_whole_values(redis)
    assert counter(there, "wrong") == 0


def stamped(redis: Redis) -> bool:
    """A node has looked whether others remove something."""
    return b":removals" in redis.ask("KEYS", "*:removals")


def test_what_is_stored_while_a_server_is_away_is_put_when_it_is_back(
    launch: Callable[..., Node], attach: Attach, redis: Redis
) -> None:
    here = launch()
    writer = attach(here, "model", block=BLOCK)
    put(writer, "before", COUNT)
    all_put(here, COUNT)
    until(lambda: stamped(redis))
    time.sleep(0.25)  # arrivals are known by tenths of a second: the next ones are behind the look at the stamp
    redis.kill()
    until(lambda: not standing(here)["serves"])
    keys = put(writer, "meanwhile", COUNT)
    until(lambda: here.counter("copies_skipped") == COUNT)
    redis.start()
    until(lambda: counter(here, "put") == 2 * COUNT)
    there = launch()
    assert found(attach(there, "model", block=BLOCK), keys) == COUNT


def test_what_is_stored_while_a_line_is_cut_is_not_put_when_another_node_has_removed_something(
    launch: Callable[..., Node], attach: Attach, redis: Redis, proxy: Proxy
) -> None:
    here, there = launch(url=proxy.url), launch()
    writer, other = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    put(writer, "before", COUNT)
    all_put(here, COUNT)
    until(lambda: stamped(redis))
    proxy.up = proxy.down = Behaviour(whole=0, cuts=True)
    until(lambda: not standing(here)["serves"])
    keys = put(writer, "meanwhile", COUNT)
    until(lambda: here.counter("copies_skipped") == COUNT)
    other.remove(keys)
    proxy.behaves()
    until(lambda: f'"taken":0,"left":{COUNT}' in here.log_text())
    assert counter(here, "put") == COUNT
    assert other.locate(keys, timeout=LIMIT).reachable == 0
    put(writer, "after", COUNT)
    until(lambda: counter(here, "put") == 2 * COUNT)


@pytest.mark.parametrize("ingest", ["evicted", "hot"])
def test_what_another_node_has_removed_is_not_put_when_it_leaves(
    launch: Callable[..., Node], attach: Attach, redis: Redis, ingest: str
) -> None:
    here, there = launch(f"remote.ingest={ingest}", "remote.hot_accesses=1"), launch()
    writer, other = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    until(lambda: stamped(redis))
    put(writer, "held", COUNT)
    put(other, "else", COUNT)
    all_put(there, COUNT)
    assert other.remove(blocks.keys_of("else", 0, COUNT)) == COUNT
    assert all_found(writer, blocks.keys_of("held", 0, COUNT))  # which makes them hot
    here.stop()
    assert len(redis.values()) == 0
    again = launch(f"remote.ingest={ingest}", "remote.hot_accesses=1")
    writer = attach(again, "model", block=BLOCK)
    rounds = itertools.count()

    def some_are_put() -> bool:  # what came once the node knows the stamp
        found(writer, put(writer, f"later {next(rounds)}", COUNT))
        return counter(again, "put") > 0

    until(some_are_put)


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
    ticket.wait(LIMIT)
    ticket.release()
    until(lambda: is_well(there))
    assert there.blocks()["granted"] == 0
    until(lambda: all_found(reader, keys))
    assert counter(there, "got") == COUNT  # since the new worker began


@pytest.mark.parametrize("silent_from", [EXISTS, GET_OF_BLOCK], ids=["questions", "values"])
def test_a_thousand_keys_without_an_answer_all_end(
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
    asked = reader.locate(keys, timeout=5)
    assert asked.reachable == (0 if silent_from is EXISTS else count)
    ticket = reader.prefetch(keys)
    other = attach(there, "other", block=size)
    mine = blocks.keys_of("mine", 0, 8)
    other.put(mine, blocks.contents_of(mine, size))
    assert len(other.acquire(mine)) == 8
    assert ticket.wait(LIMIT) == 0
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
    until(lambda: again.locate(keys, timeout=LIMIT).reachable == count)


# ---- a server that does not serve, or not all


def test_a_full_server_takes_no_more_and_gives_what_it_has(
    launch: Callable[..., Node], attach: Attach, redis: Redis
) -> None:
    here, there = launch(), launch()
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    kept = put(writer, "kept", COUNT)
    all_put(here, COUNT)
    redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    refused = put(writer, "refused", COUNT)  # no error for the client
    until(lambda: counter(here, "full") == COUNT and is_idle(here))
    assert is_well(here)
    assert found(writer, refused) == COUNT
    assert found(reader, kept) == COUNT
    assert found(reader, refused) == 0
    redis.ask("CONFIG", "SET", "maxmemory", "0")
    more = put(writer, "more", COUNT)
    all_put(here, 2 * COUNT)
    assert found(reader, more) == COUNT
    assert counter(here, "full") == COUNT
    assert counter(here, "unreachable") == counter(there, "unreachable") == 0


def test_a_server_that_is_full_from_the_start_is_counted_and_not_waited_for(
    launch: Callable[..., Node], attach: Attach, redis: Redis
) -> None:
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    node = launch()
    session = attach(node, "model", block=BLOCK)
    keys = put(session, "refused", COUNT)
    until(lambda: counter(node, "full") == COUNT and is_idle(node))
    assert found(session, [*keys, *blocks.keys_of("nowhere", 0, 3)]) == COUNT
    redis.ask("CONFIG", "SET", "maxmemory", "0")
    until(lambda: put(session, f"{time.monotonic()}", 1) != [] and counter(node, "put") > 0)


def works_alone(node: Node, attach: Attach) -> None:
    """It serves from its own memory, whatever its backend does."""
    session = attach(node, block=BLOCK)
    keys = put(session, "alone", COUNT)
    assert found(session, keys) == COUNT
    assert session.locate([*keys, *blocks.keys_of("more", 0, 3)], timeout=LIMIT).reachable == COUNT
    with pytest.raises(cenote.RemovalPending):
        session.remove(keys)
    assert session.match(keys).resident == 0
    session.close()


def says(node: Node, reason: str) -> None:
    """Status and log give the reason why it does without its backend."""
    until(lambda: not standing(node)["serves"] and reason in standing(node)["last_error"])
    until(lambda: any(reason in each["reason"] for each in node.logged("a backend does not answer")))


def test_a_wrong_password_is_said_and_the_right_one_is_taken_without_a_restart(
    launch: Callable[..., Node], attach: Attach, redis: Redis, tmp_path: Path
) -> None:
    redis.ask("CONFIG", "SET", "requirepass", "the right one")
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text("another one")
    node = launch(f"remote.auth_file={file}", serves=False)
    says(node, "WRONGPASS")
    works_alone(node, attach)
    file.write_text("the right one")
    until(lambda: is_well(node))
    put(attach(node, "model", block=BLOCK), "now", COUNT)
    all_put(node, COUNT)
    assert "another one" not in node.log_text() + str(node.status())


def test_the_reason_is_that_of_the_last_attempt(launch: Callable[..., Node], redis: Redis) -> None:
    redis.kill()
    node = launch(serves=False)
    says(node, "connect")
    redis.start()
    redis.ask("CONFIG", "SET", "requirepass", "a secret")
    redis.ask("CLIENT", "KILL", "TYPE", "normal")
    says(node, "NOAUTH")


def test_a_primary_that_becomes_a_replica_is_left_and_taken_again(
    launch: Callable[..., Node], attach: Attach, redis: Redis
) -> None:
    here, there = launch(), launch()
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    keys = put(writer, "before", COUNT)
    all_put(here, COUNT)
    with socket.create_server(("127.0.0.1", 0)) as nobody:  # a primary that does not answer
        redis.ask("REPLICAOF", "127.0.0.1", str(nobody.getsockname()[1]))
        put(writer, "refused", COUNT)
        says(here, "READONLY")
        works_alone(here, attach)
        redis.ask("REPLICAOF", "NO", "ONE")
    until(lambda: is_well(here))
    until(lambda: all_found(reader, keys))


def test_a_member_of_a_redis_cluster_is_refused_with_the_reason_and_without_flapping(
    launch: Callable[..., Node], attach: Attach
) -> None:
    member = Redis("--port", str(free_port()), "--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    try:
        member.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")  # it serves, alone
        until(lambda: b"cluster_state:ok" in member.ask("CLUSTER", "INFO"))
        line = Proxy(member.socket)
        node = launch(url=line.url, serves=False)
        says(node, "Redis Cluster")
        works_alone(node, attach)
        stays_away(node, line)
        line.close()
    finally:
        member.close()


def stays_away(node: Node, line: Proxy) -> None:
    """After several attempts, of three connections each, the log has one line."""
    until(lambda: line.connections >= 9)
    assert len(node.logged("a backend does not answer")) == 1
    assert node.logged("a backend answers") == []


def test_a_name_that_nobody_knows_is_said_and_the_node_serves(launch: Callable[..., Node], attach: Attach) -> None:
    node = launch("remote.timeout=500ms", url="redis://name.invalid:6379", serves=False)
    works_alone(node, attach)
    says(node, "name.invalid")


@pytest.fixture
def name_service() -> Iterator[socket.socket]:
    """Takes questions for names and never answers one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        try:
            silent.bind(("127.0.0.153", 53))
        except OSError as refused:
            pytest.skip(f"no name service can be had here: {refused}")
        silent.settimeout(LIMIT)
        yield silent


def asking(service: socket.socket, tmp_path: Path) -> tuple[str, ...]:
    """Words before a command that let it, and nobody else, ask `service` for names: 150 s a question."""
    file = tmp_path / "resolv.conf"
    file.write_text(f"nameserver {service.getsockname()[0]}\noptions timeout:30 attempts:5\n")
    words = ("unshare", "--mount", "sh", "-c", f'mount --bind "{file}" /etc/resolv.conf && exec "$@"', "sh")
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no mounts of its own can be had here: {tried.stderr.strip()}")
    return words


def test_a_name_service_that_never_answers_keeps_nobody(
    launch: Callable[..., Node], attach: Attach, name_service: socket.socket, tmp_path: Path
) -> None:
    prefix = asking(name_service, tmp_path)
    node = launch("remote.timeout=500ms", url="redis://server.example:6379", serves=False, prefix=prefix)
    assert b"\6server\7example" in name_service.recv(512)  # it asked, and waits since
    works_alone(node, attach)
    says(node, "its name is not looked up yet")
    session = attach(node, block=BLOCK)
    assert session.locate(blocks.keys_of("unknown", 0, 3), timeout=1).reachable == 0
    session.close()
    node.stop()  # in less than the question takes


# ---- values that are not what was put

# What is done to a value by its name, as a script of the server.
SPOILT = {
    "its version": "redis.call('SETRANGE', KEYS[1], 8, '\\3')",
    "its magic": "redis.call('SETRANGE', KEYS[1], 0, 'other')",
    "its identity": "redis.call('SETRANGE', KEYS[1], 16, 'other')",
    "its key": "redis.call('SETRANGE', KEYS[1], 72, 'other')",
    "its first byte": f"redis.call('SETRANGE', KEYS[1], 144, 'x{'y' * 7}')",
    "its last bytes": f"redis.call('SETRANGE', KEYS[1], {BLOCK + 136}, 'otherone')",
    "cut by a byte": "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, -2))",
    "cut in the middle": "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, 30000))",
    "cut in its header": "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, 100))",
    "empty": "redis.call('SET', KEYS[1], '')",
    "longer": "redis.call('APPEND', KEYS[1], 'x')",
    "of another type": "redis.call('DEL', KEYS[1]) redis.call('LPUSH', KEYS[1], 'x')",
}


def test_a_spoilt_value_is_refused_counted_deleted_and_put_again(
    launch: Callable[..., Node], attach: Attach, redis: Redis
) -> None:
    here, there, third = launch(), launch(), launch()
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    whole = put(writer, "whole", 3)
    all_put(here, 3)
    right = redis.values()
    keys = put(writer, "spoilt", len(SPOILT))
    all_put(here, 3 + len(SPOILT))
    names = [each for each in redis.values() if each not in right]
    assert len(names) == len(SPOILT)
    for name, (what, script) in zip(names, SPOILT.items(), strict=True):
        assert redis.ask("EVAL", f"{script} return 'done'", "1", name) == b"$4\r\ndone\r\n", what
    assert reader.locate([*whole, *keys], timeout=LIMIT).reachable == 3 + len(SPOILT)  # nobody looks at the bytes
    assert found(reader, [*whole, *keys]) == 3
    assert [found(reader, [each]) for each in keys] == [0] * len(keys)
    until(lambda: sorted(redis.values()) == sorted(right))
    assert counter(there, "wrong") == len(SPOILT)
    assert is_well(there)
    put(reader, "spoilt", len(SPOILT))  # recomputed
    all_put(there, len(SPOILT))
    assert found(attach(third, "model", block=BLOCK), [*whole, *keys]) == 3 + len(SPOILT)


def test_instances_of_one_name_and_another_shape_never_meet(
    launch: Callable[..., Node], attach: Attach, redis: Redis
) -> None:
    here = launch()
    shapes: list[dict[str, Any]] = [
        {"block": BLOCK},
        {"block": 2 * BLOCK},
        {"block": BLOCK, "spec": {"layout": "layer_first"}},
        {"block": BLOCK, "spec": {"dtype": "fp16"}},
        {"block": BLOCK, "groups": {"full": {"parts": {"k": BLOCK // 2, "v": BLOCK // 2}}}},
    ]
    keys = put(attach(here, "model", **shapes[0]), "shared", COUNT)
    all_put(here, COUNT)
    nodes = [launch() for _ in shapes[1:]]
    for node, shape in zip(nodes, shapes[1:], strict=True):
        session = attach(node, "model", **shape)
        assert session.locate(keys, timeout=5).reachable == 0
        assert found(session, keys) == 0
        session.put(keys, blocks.contents_of(keys, shape["block"], salt=1))
        all_put(node, COUNT)
        session.clear()
        assert counter(node, "got") == counter(node, "wrong") == 0
    assert len(redis.values()) == COUNT * len(shapes)
    assert found(attach(launch(), "model", **shapes[0]), keys) == COUNT
