"""Two nodes and a Redis server: what is stored at one is found at the other, whatever becomes of the server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import pytest
from conftest import StartNode
from node import LIMIT, KiB, Node, run_cenote
from node import until as until_it_is
from redis import Redis
from test_policies import reload

Attach = Callable[..., Any]
BLOCK = 64 * KiB
COUNT = 32


@pytest.fixture
def start(start_node: StartNode, redis: Redis, tmp_path: Path) -> Callable[..., Node]:
    """A node with a state folder of its own and the server as its remote tier, once it answers."""
    count = iter(range(100))

    def start(*sets: str, serves: bool = True, url: str = "", **more: Any) -> Node:
        state = f"remote.state_dir={tmp_path / f'state{next(count)}'}"
        backends = f'remote.backends=["{url or redis.url}"]'
        patience = ("remote.lookup_timeout=8s", "prefetch.threshold_tokens=0")
        node = start_node(backends, state, *patience, *sets, **more)
        if serves:
            until(lambda: remote(node)["serving"] == 1)
        return node

    return start


def until(condition: Callable[[], bool]) -> None:
    until_it_is("so", condition)


def remote(node: Node) -> dict[str, Any]:
    return dict(node.status()["remote"])


def counter(node: Node, name: str) -> int:
    return int(remote(node)["counters"][name])


def put(session: Any, label: str, count: int = COUNT) -> list[bytes]:
    keys = blocks.keys_of(label, 0, count)
    session.put(keys, blocks.contents_of(keys, BLOCK))
    return keys


def found(session: Any, keys: list[bytes]) -> int:
    """How many blocks a prefetch finds; their bytes are looked at."""
    ticket = session.prefetch(keys, "wait_complete", prefill_tokens_per_s=0)  # however slow this machine is
    length = int(ticket.wait(LIMIT))
    with ticket.held() as held:
        assert blocks.wrong_blocks(keys[:length], [each.view() for each in held], BLOCK) == []
    ticket.release()
    return length


def all_put(node: Node, count: int) -> None:
    until(lambda: counter(node, "put") == count and remote(node)["putting"] == 0)


def test_what_expires_at_one_node_stays_on_the_server_and_is_no_removal(
    start: Callable[..., Node], attach: Attach, redis: Redis, tmp_path: Path
) -> None:
    file = tmp_path / "cenote.toml"
    file.write_text("")
    here, there = start(config=file), start()
    writer = attach(here, "model", block=BLOCK)
    keys = put(writer, "shared")
    all_put(here, COUNT)
    stamp = redis.ask("GET", redis.ask("KEYS", "*:removals").split(b"\r\n")[2].decode())
    file.write_text("[groups.model]\nttl = '100ms'\n")
    reload(here)
    until(lambda: writer.match(keys).resident == 0)
    assert found(attach(there, "model", block=BLOCK), keys) == COUNT
    assert redis.ask("GET", redis.ask("KEYS", "*:removals").split(b"\r\n")[2].decode()) == stamp


def test_what_one_node_stores_another_finds(start: Callable[..., Node], attach: Attach) -> None:
    here, there = start(), start()
    keys = put(attach(here, "model", block=BLOCK), "shared")
    all_put(here, COUNT)
    reader = attach(there, "model", block=BLOCK)
    assert reader.match(keys).resident == 0
    assert reader.locate(keys, timeout=LIMIT).reachable == COUNT
    assert reader.match(keys).resident == 0  # to ask loads nothing
    assert found(reader, keys) == COUNT
    assert counter(there, "got") == COUNT
    assert found(attach(there, "another model", block=BLOCK), keys) == 0


def test_a_node_that_puts_nothing_reads_what_others_put(start: Callable[..., Node], attach: Attach) -> None:
    here, there = start(), start("remote.ingest=none", capacity="16MiB")
    keys = put(attach(here, "model", block=BLOCK), "shared", COUNT)
    all_put(here, COUNT)
    reader = attach(there, "model", block=BLOCK)
    assert found(reader, keys) == COUNT
    for n in range(16):  # more than there is room for
        put(reader, f"own{n}", COUNT)
    assert there.status()["dram"]["evicted"] > 0
    assert (counter(there, "put"), remote(there)["putting"]) == (0, 0)


def test_a_chain_goes_on_elsewhere_where_it_ends_here(start: Callable[..., Node], attach: Attach) -> None:
    here, there = start(), start()
    keys = put(attach(here, "model", block=BLOCK), "chain")
    all_put(here, COUNT)
    reader = attach(there, "model", block=BLOCK)
    reader.put(keys[:7], blocks.contents_of(keys[:7], BLOCK))
    assert found(reader, keys) == COUNT
    assert counter(there, "got") == COUNT - 7
    assert found(reader, [*keys, *blocks.keys_of("nowhere", 0, 5)]) == COUNT


def test_a_server_that_is_killed_costs_hits_and_comes_back(
    start: Callable[..., Node], attach: Attach, redis: Redis
) -> None:
    here, there = start(), start()
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    keys = put(writer, "before")
    all_put(here, COUNT)
    redis.kill()
    until(lambda: remote(there)["serving"] == 0)
    assert found(reader, keys) == 0
    lost = put(writer, "meanwhile")
    assert found(writer, lost) == COUNT  # here it is
    redis.start()  # and empty
    until(lambda: remote(there)["serving"] == 1 and remote(here)["serving"] == 1)
    assert found(reader, keys) == 0
    more = put(writer, "after")
    until(lambda: remote(here)["putting"] == 0 and counter(here, "put") >= 2 * COUNT)
    assert found(reader, more) == COUNT


def test_blocks_that_a_server_away_does_not_get_are_counted(
    start: Callable[..., Node], attach: Attach, redis: Redis
) -> None:
    here = start()
    redis.kill()
    until(lambda: remote(here)["serving"] == 0)
    session = attach(here, "model", block=BLOCK)
    put(session, "meanwhile")
    until(lambda: here.counter("copies_skipped") == COUNT)
    until(lambda: counter(here, "dropped") == COUNT)
    assert counter(here, "put") == 0
    redis.start()
    until(lambda: remote(here)["serving"] == 1)
    put(session, "after")
    all_put(here, COUNT)
    assert here.counter("copies_skipped") == COUNT


def test_a_server_that_stands_still_keeps_nobody_waiting(
    start: Callable[..., Node], attach: Attach, redis: Redis
) -> None:
    here, there = start("remote.timeout=500ms"), start("remote.timeout=500ms")
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    keys = put(writer, "before")
    all_put(here, COUNT)
    redis.stop()
    try:
        assert found(reader, keys) == 0
        more = put(writer, "meanwhile")
        assert found(writer, more) == COUNT
        until(lambda: remote(here)["putting"] == 0)
    finally:
        redis.resume()
    until(lambda: remote(there)["serving"] == 1)
    until(lambda: found(reader, keys) == COUNT)


def test_wrong_bytes_are_refused_counted_and_deleted(start: Callable[..., Node], attach: Attach, redis: Redis) -> None:
    here, there = start(), start()
    keys = put(attach(here, "model", block=BLOCK), "spoilt", 2)
    all_put(here, 2)
    size = redis.size()
    names = redis.values()
    assert len(names) == 2
    for name in names:
        redis.ask("SETRANGE", name, str(BLOCK // 2), b"other")
    reader = attach(there, "model", block=BLOCK)
    assert reader.locate(keys, timeout=LIMIT).reachable == 2  # nobody looks at the bytes
    assert found(reader, keys) == 0
    until(lambda: counter(there, "wrong") >= 1)
    until(lambda: redis.size() < size)


def test_a_clear_at_one_node_holds_for_all(start: Callable[..., Node], attach: Attach) -> None:
    here, there = start(), start()
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    keys = put(writer, "cleared")
    all_put(here, COUNT)
    writer.clear()
    assert reader.locate(keys, timeout=LIMIT).reachable == 0
    assert found(reader, keys) == 0
    again = put(writer, "cleared")
    until(lambda: counter(here, "put") == 2 * COUNT)
    assert found(reader, again) == COUNT


def test_a_clear_of_a_name_that_nobody_attached_to_holds_when_somebody_does(
    start: Callable[..., Node], attach: Attach
) -> None:
    here, there = start(), start()
    keys = put(attach(here, "model", block=BLOCK), "cleared")
    all_put(here, COUNT)
    said = run_cenote("clear", "--instance", "model", "--socket", there.socket)
    assert "no instance" in said.stdout + said.stderr
    reader = attach(there, "model", block=BLOCK)
    assert reader.locate(keys, timeout=LIMIT).reachable == 0
    assert found(reader, keys) == 0


def test_a_clear_at_one_node_empties_the_other_ones_tiers_before_it_puts_again(
    start: Callable[..., Node], attach: Attach, tmp_path: Path
) -> None:
    disk = (f'nvme.paths=["{tmp_path / "disk"}"]', "nvme.capacity=64MiB", "nvme.ingest=all")
    here, there = start(), start("remote.ingest=hot", "remote.hot_accesses=2", *disk)
    clearing, goes_on = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    keys = put(goes_on, "cleared")
    until(lambda: int(there.status()["nvme"]["counters"]["written"]) == COUNT)
    clearing.clear()

    def is_used_and_gone() -> bool:  # blocks that are read often are put, behind a look at the epoch
        for key in keys:
            goes_on.acquire([key]).release()
        return sum(goes_on.exists(keys)) == 0

    until(is_used_and_gone)
    assert found(goes_on, keys) == 0
    assert found(clearing, keys) == 0
    assert counter(there, "put") == 0
    again = put(goes_on, "cleared")
    assert found(goes_on, again) == COUNT


def test_a_removed_key_is_removed_there_too(start: Callable[..., Node], attach: Attach) -> None:
    here, there = start(), start()
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    keys = put(writer, "removed")
    all_put(here, COUNT)
    writer.remove(keys[3:])
    assert found(reader, keys) == 3


def test_what_a_server_has_not_confirmed_is_counted_until_it_has(
    start: Callable[..., Node], attach: Attach, redis: Redis
) -> None:
    node = start()
    writer = attach(node, "model", block=BLOCK)
    keys = put(writer, "removed")
    all_put(node, COUNT)
    redis.kill()
    until(lambda: remote(node)["serving"] == 0)
    with pytest.raises(cenote.RemovalPending, match="1 removals or clears of the instance wait for 1 nodes or servers"):
        writer.remove(keys)
    assert writer.unconfirmed() == (1, 1)
    until(lambda: remote(node)["backends"][0]["unconfirmed"] == 1)
    assert "1 removals not confirmed" in run_cenote("status", "--socket", node.socket).stdout
    node.restart_worker()
    until(lambda: writer.unconfirmed() == (1, 1))
    redis.start()
    until(lambda: writer.unconfirmed() == (0, 0))


def test_blocks_of_a_group_that_may_not_leave_stay(start: Callable[..., Node], attach: Attach, redis: Redis) -> None:
    node = start("groups.private.remote=false")
    session = attach(node, "model", block=BLOCK, instance_group="private")
    put(session, "secret")
    until(lambda: counter(node, "kept_back") == COUNT)
    assert redis.ask("KEYS", "cenote:*:*") == b"*0\r\n"
    other = attach(node, "model 2", block=BLOCK)
    put(other, "public", 3)
    all_put(node, 3)


def test_with_both_tiers_below_each_block_comes_from_one_of_them(
    start: Callable[..., Node], attach: Attach, tmp_path: Path
) -> None:
    disk = (f"nvme.paths=[{tmp_path / 'store'}]", "nvme.capacity=128MiB")
    here, there = start(*disk, capacity="8MiB"), start(capacity="8MiB")
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    chains = [put(writer, f"chain {n}") for n in range(8)]  # twice what DRAM holds
    all_put(here, 8 * COUNT)
    for keys in chains:
        assert found(writer, keys) == COUNT
        assert found(reader, keys) == COUNT


def test_a_worker_that_dies_while_a_server_that_stands_still_is_asked_leaves_no_wrong_byte(
    start: Callable[..., Node], attach: Attach, redis: Redis
) -> None:
    here, there = start(), start()
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    chains = [put(writer, f"chain {n}") for n in range(8)]
    all_put(here, 8 * COUNT)
    redis.stop()
    tickets = [reader.prefetch(keys) for keys in chains]
    there.worker_dies()
    redis.resume()
    del tickets
    until(lambda: remote(there)["serving"] == 1)
    until(lambda: all(found(reader, keys) == COUNT for keys in chains))


def test_a_setting_that_can_never_work_refuses_to_start(start: Callable[..., Node], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password")
    secret.chmod(0o644)
    for wrong, said in (({"url": "reddis://10.0.0.1:1"}, "redis://"), ({"auth": str(secret)}, "chmod 600")):
        settings = [f"remote.auth_file={wrong['auth']}"] if "auth" in wrong else []
        node = start(*settings, url=wrong.get("url", ""), serves=False, launch_only=True)
        assert node.process.wait(LIMIT) == 2
        assert said in node.log_text()


def test_a_server_that_is_not_there_is_no_reason_not_to_start(
    start: Callable[..., Node], attach: Attach, tmp_path: Path
) -> None:
    node = start(url=f"unix://{tmp_path}/nobody.sock", serves=False)
    session = attach(node, "model", block=BLOCK)
    keys = put(session, "alone")
    assert found(session, keys) == COUNT
    assert session.locate([*keys, *blocks.keys_of("more", 0, 3)], timeout=LIMIT).reachable == COUNT
    assert remote(node)["backends"][0]["serves"] is False
