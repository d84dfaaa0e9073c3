"""KV events: a list that a subscriber keeps is what the node has, by every way and after every death."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import pytest
from conftest import StartNode
from kv_events import DEALER, END, SUB, Mirror, Socket, answers
from node import LIMIT, KiB, Node, free_ports, run_cenote, until

Attach = Callable[..., Any]
BLOCK = 64 * KiB
MODEL = {"model": "org/model"}
TOPIC = b"kv@node:n1@org/model"


class Endpoints:
    def __init__(self) -> None:
        self.live, self.replay = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))


@pytest.fixture
def endpoints() -> Endpoints:
    return Endpoints()


@pytest.fixture
def start(start_node: StartNode, tmp_path: Path, endpoints: Endpoints) -> StartNode:
    """A node that publishes, of 8 MiB of DRAM over 64 MiB of disk."""

    def start(*sets: str, capacity: str = "8MiB", **options: Any) -> Node:
        tier = (f"nvme.paths=[{tmp_path / 'store'}]", "nvme.capacity=64MiB", "prefetch.threshold_tokens=0")
        publish = (f"publish.endpoint={endpoints.live}", f"publish.replay={endpoints.replay}", "publish.name=n1")
        return start_node(*tier, *publish, *sets, capacity=capacity, **options)

    return start


def put(session: Any, label: str, count: int) -> list[bytes]:
    keys = blocks.keys_of(label, 0, count)
    blocks.put(session, keys, BLOCK)
    return keys


def is_mirrored(node: Node, session: Any, keys: list[bytes], mirror: Mirror) -> bool:
    """By lookups in shared memory, and the NVMe tier's count."""
    assert mirror.wrong == []
    matches = {key: session.match([key]) for key in keys}
    cpu = {key for key, match in matches.items() if match.resident}
    below = {key for key, match in matches.items() if match.reachable and not match.resident}
    disk = mirror.blocks["DISK"]
    status = node.status()["nvme"]
    quiet = node.status()["dram"]["writing_bytes"] == 0 and status["bytes_in_flight"] == 0
    return quiet and mirror.blocks["CPU"] == cpu and below <= disk <= set(keys) and len(disk) == status["blocks"]


def mirrored(node: Node, session: Any, keys: list[bytes], read: Callable[[], Mirror]) -> Mirror:
    """A list that `read` gives, once it is the node's: it goes on evicting and writing down by itself."""
    last = Mirror()

    def is_the_same() -> bool:
        nonlocal last
        last = read()
        return is_mirrored(node, session, keys, last)

    until("the list is what the node has", is_the_same)
    return last


def joined(session: Any, subscriber: Socket, endpoints: Endpoints) -> tuple[Mirror, list[bytes]]:
    """A list that live batches go on from, and the keys that were put until one came, which takes a moment."""
    keys: list[bytes] = []

    def hears() -> bool:
        keys.append(blocks.key_of("first", len(keys)))
        session.put(keys[-1:], blocks.contents_of(keys[-1:], BLOCK))
        return subscriber.receive(0.1) is not None

    until("a batch comes live", hears)
    return Mirror.snapshot(endpoints.replay, LIMIT), keys


@pytest.mark.sanitizer
def test_live_events_a_replay_and_a_snapshot_say_what_dram_and_nvme_hold(
    start: StartNode, attach: Attach, endpoints: Endpoints
) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK, spec=MODEL)
    with Socket(SUB, endpoints.live) as subscriber:
        live, keys = joined(session, subscriber, endpoints)

        def read_live() -> Mirror:
            live.follow(subscriber)
            return live

        keys += put(session, "a", 300)
        mirrored(node, session, keys, read_live)
        assert live.blocks["CPU"] and live.blocks["DISK"], "some blocks went down"
        mirrored(node, session, keys, lambda: Mirror.replay(endpoints.replay, LIMIT))
        mirrored(node, session, keys, lambda: Mirror.snapshot(endpoints.replay, LIMIT))
        session.remove(keys[::3])
        mirrored(node, session, keys, read_live)
        keys += put(session, "b", 50)
        mirrored(node, session, keys, read_live)
        assert run_cenote("clear", "--all", "--socket", node.socket).returncode == 0
        mirrored(node, session, keys, read_live)
        assert live.blocks == {"CPU": set(), "DISK": set()}
        assert live.clears > 0, "NVMe was cleared as a whole"


@pytest.mark.sanitizer
def test_after_a_workers_death_a_replay_from_the_start_says_what_the_next_one_has(
    start: StartNode, attach: Attach, endpoints: Endpoints
) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK, spec=MODEL)
    keys = put(session, "a", 300)
    before = mirrored(node, session, keys, lambda: Mirror.replay(endpoints.replay, LIMIT))
    assert before.blocks["CPU"] and before.blocks["DISK"]
    for _ in range(2):
        node.restart_worker()
        again = mirrored(node, session, keys, lambda: Mirror.replay(endpoints.replay, LIMIT))
        assert again.blocks["CPU"] == before.blocks["CPU"], "DRAM lost nothing"
        mirrored(node, session, keys, lambda: Mirror.snapshot(endpoints.replay, LIMIT))
    with Socket(SUB, endpoints.live) as subscriber:
        live, more = joined(session, subscriber, endpoints)
        keys += more

        def read_live() -> Mirror:
            live.follow(subscriber)
            return live

        keys += put(session, "b", 20)
        mirrored(node, session, keys, read_live)


def test_each_model_has_a_topic_and_numbers_of_its_own(start: StartNode, attach: Attach, endpoints: Endpoints) -> None:
    node = start(capacity="16MiB")
    one = attach(node, "one", block=BLOCK, spec=MODEL)
    other = attach(node, "other", block=BLOCK, spec={"model": "org/other"})
    a, b = put(one, "a", 20), put(other, "b", 10)

    def answer_of(topic: bytes, request: bytes) -> Mirror:
        found = Mirror()
        for name, number, payload in answers(endpoints.replay, request, LIMIT, topic):
            assert name == topic
            if payload:
                assert request == b"snapshot" or number == found.next
                found.next += 1
                found.take(payload)
            else:
                assert request == b"snapshot" or number == END
        return found

    other_topic = b"kv@node:n1@org/other"
    for request in (bytes(8), b"snapshot"):
        until(
            "the first model's blocks are told",
            lambda request=request: answer_of(TOPIC, request).blocks["CPU"] == set(a),
        )
        until("the other model's are", lambda request=request: answer_of(other_topic, request).blocks["CPU"] == set(b))
    topics = {name for name, _, payload in answers(endpoints.replay, bytes(8), LIMIT) if payload}
    assert topics == {TOPIC, other_topic}
    ends = [name for name, _, payload in answers(endpoints.replay, b"snapshot", 1.0) if not payload]
    assert ends[0] in topics


def test_of_two_instances_of_one_model_one_is_cleared_alone(
    start: StartNode, attach: Attach, endpoints: Endpoints
) -> None:
    node = start("nvme.ingest=all", capacity="16MiB")
    one = attach(node, "one", block=BLOCK, spec=MODEL)
    other = attach(node, "other", block=BLOCK, spec={**MODEL, "dtype": "fp8"})
    with Socket(SUB, endpoints.live) as subscriber:
        live, keys = joined(one, subscriber, endpoints)
        put(one, "a", 20)
        kept = set(put(other, "b", 20))
        until("all are on NVMe", lambda: node.status()["nvme"]["blocks"] == 40 + len(keys))
        assert run_cenote("clear", "--instance", "one", "--socket", node.socket).returncode == 0

        def is_followed() -> bool:
            live.follow(subscriber)
            assert live.wrong == []
            return live.blocks == {"CPU": kept, "DISK": kept}

        until("what is left is known", is_followed)
    for read in (Mirror.replay, Mirror.snapshot):
        assert read(endpoints.replay, LIMIT).blocks == {"CPU": kept, "DISK": kept}


def test_strangers_cost_neither_memory_nor_others_their_answers(
    start: StartNode, attach: Attach, endpoints: Endpoints
) -> None:
    node = start(capacity="16MiB")
    session = attach(node, "i", block=BLOCK, spec=MODEL)
    keys = put(session, "a", 40)
    mirrored(node, session, keys, lambda: Mirror.replay(endpoints.replay, LIMIT))
    silent = [Socket(DEALER, endpoints.replay) for _ in range(20)]
    try:
        for each in silent:
            for request in (
                (b"",),
                (b"", b"nonsense"),
                (b"", b"short"),
                (b"a", b"b", b"c", b"d", b"e"),
                (b"", bytes(8)),
            ):
                each.send(*request)
            for _ in range(200):
                each.send(b"", b"snapshot")
        for _ in range(3):
            mirrored(node, session, keys, lambda: Mirror.replay(endpoints.replay, LIMIT))
            mirrored(node, session, keys, lambda: Mirror.snapshot(endpoints.replay, LIMIT))
    finally:
        for each in silent:
            each.close()


def test_an_endpoint_that_is_taken_is_no_reason_not_to_serve(
    start: StartNode, start_node: StartNode, attach: Attach, endpoints: Endpoints
) -> None:
    first = start()
    publish = (f"publish.endpoint={endpoints.live}", f"publish.replay={endpoints.replay}", "publish.name=n2")
    second = start_node(*publish, capacity="8MiB")
    put(attach(second, "i", block=BLOCK, spec=MODEL), "a", 4)
    until("it says so", lambda: second.logged("an endpoint cannot be had; it is tried again"))
    first.stop()

    def answered() -> bool:
        names = {name for name, _, _ in answers(endpoints.replay, bytes(8), LIMIT)}
        return b"kv@node:n2@org/model" in names

    until("it has the endpoint then", answered)


def test_what_cannot_be_published_is_refused_at_the_start(start_node: StartNode) -> None:
    for wrong, why in (
        (("publish.endpoint=udp://1.2.3.4:5",), "must be tcp://"),
        (("publish.endpoint=tcp://127.0.0.1:5557",), "needs a name"),
        (("publish.replay=tcp://127.0.0.1:5558",), "needs publish.endpoint"),
        (("publish.endpoint=tcp://127.0.0.1:5557", "publish.name=a b"), "letters"),
    ):
        checked = run_cenote("config", "check", *(f"--set={each}" for each in wrong))
        assert checked.returncode != 0
        assert why in checked.stderr + checked.stdout
