"""Nodes whose blocks are one pool: what is stored at one is found at the others, whatever becomes of a node."""

from __future__ import annotations

import itertools
import mmap
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import blocks
import cenote
import pytest
import wire
from conftest import StartNode
from node import FULL, LIMIT, KiB, MiB, Node, run_cenote, stop_process, until
from test_cluster import listener_at

from cluster import Cluster, becomes, cluster_of, kill_node, peers

Attach = Callable[..., Any]
BLOCK = 64 * KiB
COUNT = 60


class Pool(Cluster):
    """A cluster whose nodes ask each other for blocks."""

    def __init__(self, start_node: StartNode, replicas: int = 1) -> None:
        super().__init__(start_node)
        self.replicas = replicas

    def settings(self, index: int, **changed: str) -> list[str]:
        more = ['remote.backends=["peers"]', "remote.lookup_timeout=8s", "prefetch.threshold_tokens=0"]
        return [*super().settings(index, **changed), *more, f"remote.replicas={self.replicas}"]

    def pooled(self, count: int = 3) -> list[Node]:
        nodes = self.form(count)
        self.all_ask(nodes)
        return nodes

    def all_ask(self, nodes: Sequence[Node] = ()) -> None:
        """Each of them, or of all, can ask all the others for blocks."""
        self.all_live(nodes)
        those = nodes or self.nodes
        until(
            "all nodes ask all others",
            lambda: all(
                cluster_of(each)["askable"] == len(those) - 1 and remote(each)["serving"] == 1 for each in those
            ),
        )


@pytest.fixture
def pool(start_node: StartNode) -> Pool:
    return Pool(start_node)


def remote(node: Node) -> dict[str, Any]:
    return dict(node.status()["remote"])


def of_pool(node: Node, name: str) -> int:
    return int(cluster_of(node)["pool"][name])


def put(session: Any, label: str, count: int = COUNT, block: int = BLOCK) -> list[bytes]:
    keys = blocks.keys_of(label, 0, count)
    session.put(keys, blocks.contents_of(keys, block))
    return keys


def settled(*nodes: Node) -> None:
    """Nothing is on its way to another node."""
    until("all blocks are where they belong", lambda: all(remote(each)["putting"] == 0 for each in nodes))


def found(session: Any, keys: list[bytes], block: int = BLOCK) -> int:
    """How many blocks a prefetch finds; their bytes are looked at."""
    ticket = session.prefetch(keys, "wait_complete", prefill_tokens_per_s=0)
    length = int(ticket.wait(LIMIT))
    with ticket.held() as held:
        assert blocks.wrong_blocks(keys[:length], [each.view() for each in held], block) == []
    ticket.release()
    return length


def loses_at_most(session: Any, keys: list[bytes], away: int) -> None:
    """Of keys that are asked for one by one, all but those of a node that is away are found."""
    here = sum(found(session, [key]) for key in keys)
    assert here >= len(keys) - away, f"{here} of {len(keys)}, {away} away"


def away_of(node: Node) -> int:
    """Of its first COUNT blocks those that it stored at other nodes, once all are where they belong."""
    until("its blocks are where they belong", lambda: remote(node)["puts"]["count"] >= COUNT)
    return of_pool(node, "offered")


def alter_blocks(node: Node) -> None:
    """Flips a bit of each block in its DRAM behind its back."""
    for descriptor in Path(f"/proc/{node.worker_pid}/fd").iterdir():
        try:
            if "cenote-slab" not in os.readlink(descriptor):
                continue
        except FileNotFoundError:  # one of the moment
            continue
        with descriptor.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            for offset in range(100, len(memory) - BLOCK, BLOCK):
                memory[offset] ^= 1


def test_blocks_of_a_restricted_group_go_to_nodes_that_know_its_token_alone(
    pool: Pool, start_node: StartNode, attach: Attach
) -> None:
    knows = 'groups.tenant.token="a token of the tenant"'
    for index, more in enumerate(([knows], [knows], [])):
        pool.nodes.append(start_node(*pool.settings(index), *more, capacity="16MiB"))
    pool.all_ask()
    a, b, c = pool.nodes
    first, second = (
        attach(node, "shared", block=BLOCK, instance_group="tenant", token="a token of the tenant") for node in (a, b)
    )
    stranger = attach(c, "shared", block=BLOCK, instance_group="tenant")  # its node asks for no token
    keys = put(first, "conversation")
    settled(a)
    assert sum(found(second, [key]) for key in keys) > 0
    assert sum(found(stranger, [key]) for key in keys) == 0
    assert of_pool(a, "refused") + of_pool(b, "refused") > 0 and of_pool(c, "hosted") == 0


def test_what_one_node_stores_the_others_find(pool: Pool, attach: Attach) -> None:
    a, b, c = pool.pooled()
    keys = put(attach(a, "model", block=BLOCK), "shared")
    away = away_of(a)
    assert of_pool(b, "hosted") + of_pool(c, "hosted") == away
    assert 0 < of_pool(b, "hosted") < away < COUNT
    for node in (b, c):
        session = attach(node, "model", block=BLOCK)
        assert session.match(keys).resident == 0 or session.match(keys).resident < COUNT
        assert session.locate(keys, timeout=LIMIT).reachable == COUNT
        assert found(session, keys) == COUNT
        assert of_pool(node, "fetched") == COUNT - of_pool(node, "hosted")
    assert found(attach(b, "another model", block=BLOCK), keys) == 0


def test_instances_that_differ_share_nothing(pool: Pool, attach: Attach) -> None:
    a, b = pool.pooled(2)
    put(attach(a, "model", block=BLOCK), "one")
    away_of(a)
    other = attach(b, "other", block=2 * BLOCK)
    keys = blocks.keys_of("one", 0, COUNT)
    assert found(other, keys) == 0
    attach(a, "clash", block=BLOCK)
    clash = attach(b, "clash", block=2 * BLOCK)
    refused = of_pool(a, "refused")
    clash.put(keys, blocks.contents_of(keys, 2 * BLOCK))
    until("the other node refuses it", lambda: of_pool(a, "refused") > refused and remote(b)["putting"] == 0)
    assert of_pool(a, "hosted") == 0
    assert "clash" in a.log_text() and "an instance of another node is refused" in a.log_text()


@pytest.mark.parametrize("dies", ["worker", "node"])
@pytest.mark.sanitizer
def test_a_home_that_is_killed_costs_its_blocks_and_comes_back(pool: Pool, attach: Attach, dies: str) -> None:
    a, b, c = pool.pooled()
    keys = put(attach(a, "model", block=BLOCK), "shared")
    away_of(a)
    hosted = of_pool(b, "hosted")
    if dies == "worker":
        b.restart_worker()
    else:
        kill_node(b)
    reader = attach(c, "model", block=BLOCK)
    loses_at_most(reader, keys, hosted)
    if dies == "node":
        b.start()
    pool.all_ask()
    if dies == "worker":  # its memory outlived it
        assert found(reader, keys) == COUNT
    more = put(attach(a, "model", block=BLOCK), "more")
    at_b = attach(b, "model", block=BLOCK)
    until("b finds them", lambda: found(at_b, more) == COUNT)
    assert found(reader, more) == COUNT


@pytest.mark.sanitizer
def test_a_home_that_stands_still_hangs_nobody(pool: Pool, attach: Attach) -> None:
    a, b, c = pool.pooled()
    keys = put(attach(a, "model", block=BLOCK), "shared")
    away_of(a)
    hosted = of_pool(b, "hosted")
    writer, reader = attach(a, "model", block=BLOCK), attach(c, "model", block=BLOCK)
    with b.worker_stopped():
        found(reader, keys)  # as far as it goes
        put(writer, "while it slept")
        until("puts end", lambda: remote(a)["putting"] == 0 and remote(c)["getting"] == 0)
        becomes(c, "b", "suspect", "gone", "dialling", "greeting")
        loses_at_most(reader, keys, hosted)
    pool.all_ask()
    until("it is asked again", lambda: found(reader, keys) == COUNT)


class Traffic:
    """Stores blocks at one node and fetches them at another, over and over; what it reads is looked at."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer, self._reader = writer, reader
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failures: list[BaseException] = []
        self.rounds = 0

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                keys = put(self._writer, f"traffic{self.rounds}", 20)
                found(self._reader, keys)
                self.rounds += 1
        except BaseException as failure:  # shown where it is joined
            self.failures.append(failure)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(60)
        assert not self._thread.is_alive() and self.failures == []

    def goes_on(self, rounds: int = 2) -> None:
        """Some rounds are over that begin from now on."""
        wanted = self.rounds + rounds + 1
        until("traffic goes on", lambda: self.rounds >= wanted or self.failures)
        assert self.failures == []


@pytest.mark.parametrize("fault", [pytest.param("kill", marks=pytest.mark.sanitizer), "stop", "cut", "drain"])
def test_a_home_that_fails_under_load_costs_no_byte_and_no_error(pool: Pool, attach: Attach, fault: str) -> None:
    a, b, c = pool.pooled()
    with Traffic(attach(a, "model", block=BLOCK), attach(b, "model", block=BLOCK)) as traffic:
        for _ in range(20 if FULL else 3):
            pool.all_ask()
            traffic.goes_on()
            if fault == "kill":
                c.restart_worker()
            elif fault == "stop":
                with c.worker_stopped():
                    traffic.goes_on(1)
            elif fault == "drain":
                run_cenote("cluster", "drain", "--socket", c.socket)  # busy homes may turn blocks down, and it says so
                assert cluster_of(c)["weight"] == 0
                traffic.goes_on(1)
                assert run_cenote("cluster", "rejoin", "--socket", c.socket).returncode == 0
            else:
                for other in ("a", "b"):
                    assert run_cenote("debug", "partition", "c", other, "both", "--socket", c.socket).returncode == 0
                traffic.goes_on(1)
                assert run_cenote("debug", "heal", "--socket", c.socket).returncode == 0
        pool.all_ask()
        traffic.goes_on()
    assert all(of_pool(each, "wrong") == 0 for each in (a, b, c))
    assert of_pool(c, "hosted") > 0


@pytest.mark.parametrize("direction", ["both", "one"])
def test_nodes_that_are_cut_off_from_each_other_do_without(pool: Pool, attach: Attach, direction: str) -> None:
    a, b = pool.pooled(2)
    writer, reader = attach(a, "model", block=BLOCK), attach(b, "model", block=BLOCK)
    keys = put(writer, "shared")
    away = away_of(a)
    assert run_cenote("debug", "partition", "a", "b", direction, "--socket", a.socket).returncode == 0
    found(reader, keys)
    put(writer, "meanwhile")
    until("puts end", lambda: remote(a)["putting"] == 0 and remote(b)["getting"] == 0)
    becomes(b, "a", "suspect", "gone", "dialling", "greeting")
    loses_at_most(reader, keys, COUNT - away)
    assert run_cenote("debug", "heal", "--socket", a.socket).returncode == 0
    pool.all_live()
    until("it is asked again", lambda: found(reader, keys) == COUNT)


@pytest.mark.sanitizer
def test_altered_bytes_are_never_served(pool: Pool, attach: Attach) -> None:
    a, b = pool.pooled(2)
    keys = put(attach(a, "model", block=BLOCK), "shared")
    away_of(a)
    hosted = of_pool(b, "hosted")
    alter_blocks(a)
    reader = attach(b, "model", block=BLOCK)
    assert sum(found(reader, [key]) for key in keys) == hosted  # what b has itself
    assert of_pool(b, "wrong") > 0
    assert of_pool(b, "fetched") == 0


@pytest.mark.sanitizer
def test_altered_bytes_are_not_taken_in(pool: Pool, attach: Attach) -> None:
    a, b = pool.pooled(2)
    keys = put(attach(a, "model", block=BLOCK), "shared")
    away = away_of(a)
    alter_blocks(a)
    run_cenote("cluster", "drain", "--time", "5", "--socket", a.socket)  # offers the others; none is handed on
    until("b has looked at them", lambda: of_pool(b, "wrong") > 0)
    settled(a)
    assert of_pool(b, "hosted") == away
    assert found(attach(b, "model", block=BLOCK), keys) <= away


def end_of(node: Node, client: str) -> dict[str, Any]:
    """The status of the session of that client, once the node has ended it."""

    def find() -> dict[str, Any]:
        sessions = (each for each in node.sessions() if each["client"] == client)
        return next((each for each in sessions if each["state"] == "ended"), {})

    return until("its session has ended", find)


def store_wrong(raw: wire.RawSession, label: str, count: int) -> None:
    """Stores blocks whose sums are not theirs, as far as the node takes them."""

    def submit(operation: int, answers: int, **fields: Any) -> list[wire.Completion]:
        raw.submit(operation, **fields)
        until("an answer", lambda: raw.waiting_completions() >= answers, pause=0.001)
        return raw.take()

    for key in blocks.keys_of(label, 0, count):
        place = submit(wire.RESERVE, 2, key=key, argument=1)[0]
        if place.kind == 2:  # reserved
            submit(wire.FINISH, 1, block=place.block, grant_version=place.grant_version, argument=1, checksum=0xBAD)


def test_a_client_whose_sums_are_not_those_of_its_blocks_loses_its_session_and_no_other_does(
    pool: Pool, attach: Attach
) -> None:
    a, b = pool.pooled(2)
    other, reader = attach(a, "other", block=BLOCK), attach(b, "other", block=BLOCK)
    keys = put(other, "right")
    wrong = wire.RawSession.attach(a.socket, "wrong", {"full": {"kv": BLOCK}}, name="careless")
    store_wrong(wrong, "wrong", COUNT)
    assert end_of(a, "careless")["wrong_blocks"] >= 4
    counters = a.status()["counters"]
    assert counters["sessions_ended"] == 1 and counters["checksum_errors"] == counters["copies_checked"] >= 4
    assert "a session is ended" in a.log_text()
    assert found(reader, keys) == COUNT
    assert a.status()["remote"]["backends"][0]["breaker"] == "closed"
    store_wrong(wrong, "later", 1)  # refused, and answered
    wrong.close()
    until("the session is gone", lambda: len(a.sessions()) == 1)
    wire.RawSession.attach(a.socket, "wrong", {"full": {"kv": BLOCK}}, name="careless").close()


def test_a_client_whose_blocks_change_after_they_were_stored_hears_why_its_session_ended(
    pool: Pool, attach: Attach
) -> None:
    a, b = pool.pooled(2)
    writer = attach(a, "model", block=BLOCK, client_name="scribbler")
    keys = put(writer, "shared")
    away_of(a)
    alter_blocks(a)
    reader = attach(b, "model", block=BLOCK)
    for key in keys:
        found(reader, [key])
    assert end_of(a, "scribbler")["wrong_blocks"] >= 4
    with pytest.raises(cenote.SessionKilled, match="4 blocks that it stored did not have the bytes of their checksums"):
        writer.barrier()
    put(attach(a, "model", block=BLOCK), "later")


def with_disks(pool: Pool, start_node: StartNode, folder: Any, count: int = 2) -> list[Node]:
    """Nodes that write all blocks to a disk of their own."""
    for index in range(count):
        path = folder.with_name(f"disk{index}")
        path.mkdir()
        disk = [f'nvme.paths=["{path}"]', "nvme.capacity=64MiB", "nvme.ingest=all"]
        pool.nodes.append(start_node(*pool.settings(index), *disk, capacity="16MiB"))
    pool.all_ask()
    return pool.nodes


def test_a_home_that_comes_back_with_its_disk_serves_what_it_had(
    start_node: StartNode, attach: Attach, folder: Any
) -> None:
    pool = Pool(start_node)
    a, b, c = with_disks(pool, start_node, folder, 3)
    keys = put(attach(a, "model", block=BLOCK), "shared")
    away_of(a)
    hosted = of_pool(b, "hosted")
    until("it is on b's disk", lambda: b.status()["nvme"]["blocks"] >= hosted > 0)
    b.stop()
    reader = attach(c, "model", block=BLOCK)
    assert sum(found(reader, [key]) for key in keys) < COUNT
    b.start()
    pool.all_ask()
    until("all of it is found", lambda: found(reader, keys) == COUNT)
    assert of_pool(b, "brought_up") > 0


def test_what_a_node_hosts_counts_against_its_own_quota(start_node: StartNode, attach: Attach) -> None:
    pool = Pool(start_node)
    for index, quota in enumerate(["0", "1MiB"]):
        settings = pool.settings(index, weight="1" if index == 0 else "1PiB")
        pool.nodes.append(start_node(*settings, f"groups.tenant.quota={quota}", capacity="16MiB"))
    pool.all_ask()
    a, b = pool.nodes
    session = attach(a, "model", block=BLOCK, instance_group="tenant")
    keys = put(session, "shared")
    settled(a)
    assert of_pool(b, "hosted") > 0
    assert b.group_used("tenant") <= MiB
    assert a.group_used("tenant") > 3 * MiB
    assert session.match(keys).resident == COUNT


@pytest.mark.sanitizer
def test_what_only_a_homes_disk_has_is_brought_up_for_others(
    start_node: StartNode, attach: Attach, folder: Any
) -> None:
    pool = Pool(start_node)
    nodes = with_disks(pool, start_node, folder)
    a, b = nodes
    writer = attach(a, "model", block=BLOCK)
    keys = put(writer, "shared")
    away_of(a)
    for n in range(12):  # more than DRAM has room for
        put(writer, f"more{n}")
    until("it is on the disks", lambda: all(node.status()["dram"]["evicted"] > 0 for node in nodes))
    reader = attach(b, "model", block=BLOCK)
    until("all of it is found", lambda: found(reader, keys) == COUNT)
    assert of_pool(a, "brought_up") > 0


@pytest.mark.sanitizer
def test_what_is_removed_is_gone_at_all_nodes(pool: Pool, attach: Attach) -> None:
    a, b, c = pool.pooled()
    sessions = [attach(node, "model", block=BLOCK) for node in (a, b, c)]
    keys = put(sessions[0], "shared")
    away_of(a)
    assert all(found(each, keys) == COUNT for each in sessions[1:])
    sessions[1].remove(keys[:10])
    until("ten are gone", lambda: all(found(each, [key]) == 0 for each in sessions for key in keys[:10]))
    assert all(found(each, keys[10:]) == COUNT - 10 for each in sessions)
    sessions[2].clear()
    until("all are gone", lambda: all(found(each, [key]) == 0 for each in sessions for key in keys[10:]))


def parted(pool: Pool, attach: Attach) -> tuple[Node, Node, Any, Any, list[bytes]]:
    """Nodes a and b with the same blocks, cut off so that b is gone for a; a session at each, and the keys."""
    a, b = (pool.start(index, launch_only=True, gone_after="2s") for index in range(2))
    pool.all_ask()
    writer, reader = attach(a, "model", block=BLOCK), attach(b, "model", block=BLOCK)
    keys = put(writer, "shared")
    away_of(a)
    assert found(reader, keys) == COUNT
    assert run_cenote("debug", "partition", "a", "b", "both", "--socket", a.socket).returncode == 0
    becomes(a, "b", "gone", "dialling", "greeting")
    return a, b, writer, reader, keys


@pytest.mark.parametrize("asks_first", [pytest.param("who cleared", marks=pytest.mark.sanitizer), "who was away"])
def test_a_clear_reaches_a_node_that_was_away_when_it_is_back(pool: Pool, attach: Attach, asks_first: str) -> None:
    a, b, writer, reader, keys = parted(pool, attach)
    becomes(b, "a", "gone", "dialling", "greeting")
    with pytest.raises(cenote.RemovalPending):
        writer.remove(keys[:10])
    assert found(reader, keys) == COUNT  # it keeps its copies
    with pytest.raises(cenote.RemovalPending):
        writer.clear()
    assert any("not confirmed by b" in each["reason"] for each in a.logged("a removal is not confirmed"))
    assert of_pool(a, "unconfirmed") == 1  # the clear covers the removal
    assert found(reader, keys) == COUNT  # it has not heard of it
    assert run_cenote("debug", "heal", "--socket", a.socket).returncode == 0
    pool.all_live()
    pool.all_ask()
    both = [writer, reader] if asks_first == "who cleared" else [reader, writer]
    for each in both:  # binds the instance anew
        found(each, blocks.keys_of("nobody's", 0, COUNT))
    until("b has forgotten them", lambda: found(reader, keys) == 0)
    until("b has confirmed it", lambda: of_pool(a, "unconfirmed") == 0)


@pytest.mark.parametrize("restarts", ["in between", "not"])
def test_a_removal_that_a_silent_node_missed_reaches_it_when_it_is_back(
    pool: Pool, attach: Attach, restarts: str
) -> None:
    a, _, writer, reader, keys = parted(pool, attach)
    with pytest.raises(cenote.RemovalPending):
        writer.remove(keys)
    if restarts == "in between":
        a.restart_worker()  # the cut ends with it
    else:
        assert run_cenote("debug", "heal", "--socket", a.socket).returncode == 0
    pool.all_ask()
    until("b has confirmed it", lambda: of_pool(a, "unconfirmed") == 0)
    assert sum(reader.exists(keys)) == 0  # its own engine binds nothing
    assert all(found(writer, [key]) == 0 for key in keys)


def test_a_node_that_was_stopped_undrained_hears_of_what_was_removed_when_it_is_back(
    start_node: StartNode, attach: Attach, folder: Any
) -> None:
    pool = Pool(start_node)
    a, b = with_disks(pool, start_node, folder)
    writer = attach(a, "model", block=BLOCK)
    keys = put(writer, "shared")
    away_of(a)
    until("it is on b's disk", lambda: b.status()["nvme"]["blocks"] >= of_pool(b, "hosted") > 0)
    b.stop()
    becomes(a, "b", "left")
    a.restart_worker()  # the next one has not met b
    with pytest.raises(cenote.RemovalPending):
        writer.remove(keys)
    until("it is waited for", lambda: cluster_of(a)["awaited"] == [{"name": "b", "removals": 1, "is_here": False}])
    assert "removals wait for b (1)" in run_cenote("status", "--socket", a.socket).stdout
    b.start()
    until("b has confirmed it", lambda: of_pool(a, "unconfirmed") == 0)
    assert "awaited" not in cluster_of(a)
    reader = attach(b, "model", block=BLOCK)
    assert all(found(reader, [key]) == 0 for key in keys)


def test_a_node_without_a_disk_that_was_stopped_is_not_waited_for(pool: Pool, attach: Attach) -> None:
    a, b = pool.pooled(2)
    writer = attach(a, "model", block=BLOCK)
    keys = put(writer, "shared")
    away_of(a)
    b.stop()
    becomes(a, "b", "left")
    assert writer.remove(keys) > 0
    assert of_pool(a, "write_offs") == 1
    b.start()
    pool.all_ask()
    until("b has nothing to clear", lambda: of_pool(a, "write_offs") == 0)


def test_a_removal_at_a_worker_without_a_network_is_pending_and_sent_when_there_is_one(
    pool: Pool, attach: Attach
) -> None:
    a, b = pool.pooled(2)
    b.allowed_errors = ["other nodes do not reach this one"]
    writer, reader = attach(a, "model", block=BLOCK), attach(b, "model", block=BLOCK)
    keys = put(writer, "shared")
    away_of(a)
    stop_process(b.pid)  # so that the next worker does not start yet
    b.worker_dies()
    with until("its address is free", lambda: listener_at(pool.ports[1])):
        b.send_signal(signal.SIGCONT)
        until("it says why others do not reach it", lambda: "nowhere yet" in str(cluster_of(b).get("address")))
        with pytest.raises(cenote.RemovalPending):
            reader.remove(keys)
        assert sum(writer.exists(keys)) > 0
    pool.all_ask()
    until("a has confirmed it", lambda: of_pool(b, "unconfirmed") == 0)
    assert sum(writer.exists(keys)) == 0


def write_off(node: Node, name: str) -> str:
    """The command's output or its error."""
    said = run_cenote("cluster", "write-off", name, "--socket", node.socket)
    return str(said.stdout if said.returncode == 0 else said.stderr)


def test_a_node_that_is_written_off_is_not_waited_for_and_clears_its_disk_before_it_serves_again(
    start_node: StartNode, attach: Attach, folder: Any
) -> None:
    pool = Pool(start_node)
    a, b, c = with_disks(pool, start_node, folder, 3)
    writer = attach(a, "model", block=BLOCK)
    keys = put(writer, "shared")
    away_of(a)
    until("it is on b's disk", lambda: b.status()["nvme"]["blocks"] >= of_pool(b, "hosted") > 0)
    assert "node `b` is live" in write_off(a, "b")
    assert "no node `z` is known here" in write_off(a, "z")
    kill_node(b)
    becomes(a, "b", "gone", "dialling", "greeting")
    with pytest.raises(cenote.RemovalPending):
        writer.remove(keys)
    assert of_pool(a, "unconfirmed") == 1
    assert writer.unconfirmed() == (1, 1)
    assert attach(a, "another", block=BLOCK).unconfirmed() == (0, 0)
    a.restart_worker()
    assert writer.unconfirmed() == (1, 1)
    becomes(a, "c", "live")
    assert write_off(a, "b").startswith("b is written off; 1 removals")
    until("the others have confirmed it once more", lambda: writer.unconfirmed() == (0, 0))
    until("c knows it", lambda: of_pool(c, "write_offs") == 1)
    assert writer.remove(keys) == 0
    a.restart_worker()
    until("the next worker knows it", lambda: of_pool(a, "write_offs") == 1)
    b.start()
    until("b has cleared itself", lambda: of_pool(a, "write_offs") == of_pool(c, "write_offs") == 0)
    assert b.status()["nvme"]["blocks"] == 0
    pool.all_ask()
    reader = attach(c, "model", block=BLOCK)
    assert all(found(reader, [key]) == 0 for key in keys)


@pytest.mark.parametrize("scope", [["--instance", "model"], ["--all"]])
def test_a_clear_reaches_blocks_elsewhere_of_what_only_an_earlier_process_used(
    pool: Pool, attach: Attach, scope: list[str]
) -> None:
    a = pool.start(0, launch_only=True, weight="1")
    b = pool.start(1, launch_only=True, weight="1PiB")  # all blocks belong there
    pool.all_ask()
    writer, reader = attach(a, "model", block=BLOCK), attach(b, "model", block=BLOCK)
    keys = put(writer, "shared")
    settled(a)
    assert found(reader, keys) == COUNT
    writer.close()
    a.stop()
    a.start()
    pool.all_ask()
    assert run_cenote("clear", *scope, "--socket", a.socket).returncode == 0
    until("b has forgotten them", lambda: sum(reader.exists(keys)) == 0)


def test_a_worker_that_is_replaced_clears_once_more_at_most(pool: Pool, attach: Attach) -> None:
    a = pool.start(0, launch_only=True, weight="1PiB")  # all blocks belong there, so that b's are found there alone
    b = pool.start(1, launch_only=True, weight="1")
    pool.all_ask()
    at_a, at_b = attach(a, "model", block=BLOCK), attach(b, "model", block=BLOCK)
    put(at_b, "before")
    settled(b)
    at_a.clear()
    until("b has heard of it", lambda: at_b.match(blocks.keys_of("before", 0, COUNT)).resident == 0)
    b.restart_worker()  # it may have written down that it carried the clear out, or not yet
    pool.all_ask()
    rounds = itertools.count()

    def stays() -> bool:
        kept = put(at_b, f"after {next(rounds)}")  # the first one binds the instance
        settled(b)
        return bool(at_b.match(kept).resident == COUNT)

    until("b keeps what it stores", stays)


@pytest.mark.sanitizer
def test_a_node_that_was_away_forgets_when_it_asks_another_before_that_one_asks_it(pool: Pool, attach: Attach) -> None:
    a, b = pool.pooled(2)
    writer, reader = attach(a, "model", block=BLOCK), attach(b, "model", block=BLOCK)
    keys = put(writer, "shared")
    away_of(a)
    assert found(reader, keys) == COUNT
    assert run_cenote("debug", "partition", "a", "b", "both", "--socket", a.socket).returncode == 0
    becomes(a, "b", "gone", "dialling", "greeting")
    becomes(b, "a", "gone", "dialling", "greeting")  # the link is closed, and nobody uses the instance of another
    with pytest.raises(cenote.RemovalPending):
        writer.clear()
    assert run_cenote("debug", "heal", "--socket", a.socket).returncode == 0
    pool.all_live()
    found(reader, blocks.keys_of("others", 0, COUNT))  # binds the instance anew
    until("b has forgotten them", lambda: found(reader, keys) == 0)
    assert found(writer, keys) == 0


def test_a_rolling_restart_is_felt_by_no_engine(pool: Pool, attach: Attach) -> None:
    nodes = pool.pooled()
    sessions = [attach(node, "model", block=BLOCK) for node in nodes]
    for round_, node in enumerate(nodes):
        node.restart_worker()
        for n, session in enumerate(sessions):
            keys = put(session, f"round{round_}-{n}", 20)
            assert found(session, keys) <= 20
        pool.all_ask()
    settled(*nodes)
    keys = put(sessions[0], "last")
    until("all find them", lambda: all(found(each, keys) == COUNT for each in sessions))


@pytest.mark.sanitizer
def test_a_small_node_lends_a_part_of_its_memory_at_a_time(pool: Pool, attach: Attach) -> None:
    a = pool.start(0, launch_only=True, weight="1PiB")  # all blocks belong there
    b = pool.start(1, launch_only=True, weight="1")
    pool.all_ask()
    keys = put(attach(a, "model", block=MiB), "large", 6, MiB)  # a quarter of its memory is four
    assert found(attach(b, "model", block=MiB), keys, MiB) == 6
    assert of_pool(b, "fetched") == of_pool(a, "lent") == 6


@pytest.mark.sanitizer
def test_a_block_with_two_homes_survives_the_death_of_one(start_node: StartNode, attach: Attach) -> None:
    pool = Pool(start_node, replicas=2)
    a, b, c = pool.pooled()
    keys = put(attach(a, "model", block=BLOCK), "shared")
    until("each is at two nodes", lambda: of_pool(b, "hosted") + of_pool(c, "hosted") + away_of(a) >= 2 * COUNT)
    kill_node(a)  # which has all of them, and so one of the two homes of some
    reader = attach(b, "model", block=BLOCK)
    until("all are found without it", lambda: found(reader, keys) == COUNT)
    assert of_pool(b, "wrong") == 0


def test_blocks_of_other_nodes_do_not_push_out_those_of_this_one(pool: Pool, attach: Attach) -> None:
    a = pool.start(0, launch_only=True, weight="1PiB", guest_share="0.1")  # all blocks belong there
    b = pool.start(1, launch_only=True, weight="1")
    pool.all_ask()
    engine, guest = attach(a, "model", block=BLOCK), attach(b, "model", block=BLOCK)
    own = put(engine, "own")
    settled(a)
    for n in range(6):
        put(guest, f"many{n}")
        settled(b)
    status = a.status()["dram"]
    assert status["evicted"] > COUNT and status["hosted"] > 0
    assert engine.match(own).resident == COUNT


def test_what_was_stored_while_its_home_was_away_is_there_once_it_is_back(pool: Pool, attach: Attach) -> None:
    a = pool.start(0, launch_only=True, weight="1PiB")  # all blocks belong there
    b = pool.start(1, launch_only=True, weight="1")
    pool.all_ask()
    home, writer = attach(a, "model", block=BLOCK), attach(b, "model", block=BLOCK)
    assert run_cenote("debug", "partition", "a", "b", "both", "--socket", b.socket).returncode == 0
    becomes(b, "a", "suspect", "gone", "dialling", "greeting")
    keys = put(writer, "alone")
    assert run_cenote("debug", "heal", "--socket", b.socket).returncode == 0
    pool.all_ask()
    until("its home has it", lambda: home.match(keys).resident == COUNT)


@pytest.mark.sanitizer
def test_copies_of_what_others_have_leave_first(pool: Pool, start_node: StartNode, attach: Attach) -> None:
    a = pool.start(0, launch_only=True, weight="1PiB")  # all blocks belong there …
    settings = pool.settings(1, weight="1", copies="0.25")
    b = start_node(*settings, "remote.ingest=none", capacity="16MiB", launch_only=True)
    pool.nodes.append(b)
    pool.all_ask()
    writer, reader = attach(a, "model", block=BLOCK), attach(b, "model", block=BLOCK)
    assert run_cenote("debug", "partition", "a", "b", "both", "--socket", b.socket).returncode == 0
    becomes(b, "a", "suspect", "gone", "dialling", "greeting")
    own = put(reader, "own")  # … but these, which b stored while it was alone
    assert run_cenote("debug", "heal", "--socket", b.socket).returncode == 0
    pool.all_ask()
    for n in range(12):
        keys = put(writer, f"many{n}", 20)
        assert found(reader, keys) == 20
    status = b.status()["dram"]
    assert of_pool(b, "fetched") == 240 and status["evicted"] > COUNT and status["copies"] > 0
    assert reader.match(own).resident == COUNT


@pytest.mark.sanitizer
def test_a_hot_prefix_is_given_on_by_those_who_fetched_it(start_node: StartNode, attach: Attach) -> None:
    pool = Pool(start_node)
    for index in range(4):
        settings = pool.settings(index, weight="1PiB" if index == 0 else "1")  # all blocks belong to the first
        pool.nodes.append(start_node(*settings, "remote.peer_window=512KiB", capacity="16MiB"))
    pool.all_ask()
    home, *others = pool.nodes
    writer, readers = attach(home, "model", block=BLOCK), [attach(each, "model", block=BLOCK) for each in others]

    def hammer(number: int) -> bool:
        keys = put(writer, f"hot{number}")
        with ThreadPoolExecutor(len(readers)) as threads:
            assert list(threads.map(lambda each: found(each, keys), readers)) == [COUNT] * len(readers)
        return of_pool(home, "sent_elsewhere") > 0 and sum(of_pool(each, "lent") for each in others) > 0

    assert any(hammer(number) for number in range(20)), "the home sent all of it to each of them"
    fetched = sum(of_pool(each, "fetched") for each in others)
    assert of_pool(home, "lent") < fetched
    assert all(of_pool(each, "wrong") == 0 for each in pool.nodes)


@pytest.mark.sanitizer
def test_a_node_that_is_drained_hands_its_blocks_on_and_loses_none_of_them(pool: Pool, attach: Attach) -> None:
    a, b, c = pool.pooled()
    keys = put(attach(a, "model", block=BLOCK), "shared")
    away_of(a)
    hosted = of_pool(b, "hosted")
    said = run_cenote("cluster", "drain", "--socket", b.socket)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith(f"{hosted} blocks were handed on")
    assert cluster_of(b)["weight"] == 0 and peers(c)["b"]["weight"] == 0
    put(attach(a, "model", block=BLOCK), "after")
    settled(a)
    assert of_pool(b, "hosted") == hosted  # nothing belongs there any more
    b.stop()
    reader = attach(c, "model", block=BLOCK)
    until("all are found without it", lambda: found(reader, keys) == COUNT)


def test_a_node_that_rejoins_is_a_home_again(pool: Pool, attach: Attach) -> None:
    a, b = pool.pooled(2)
    assert run_cenote("cluster", "drain", "--socket", b.socket).returncode == 0
    assert run_cenote("cluster", "rejoin", "--socket", b.socket).returncode == 0
    until("a knows it", lambda: peers(a)["b"]["weight"] == cluster_of(b)["weight"] > 0)
    put(attach(a, "model", block=BLOCK), "shared")
    assert away_of(a) == of_pool(b, "hosted") > 0


def test_peers_need_a_name(start_node: StartNode) -> None:
    node = start_node('remote.backends=["peers"]', launch_only=True)
    assert node.wait() == 2
    assert "cluster.name" in node.log_text()
