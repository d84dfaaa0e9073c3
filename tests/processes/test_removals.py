"""Removals beside fetches, kills and partitions: what was removed is found nowhere, once that was answered as done."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import blocks
import cenote
import pytest
from conftest import StartNode, make_spec
from footprint import Footprint
from node import FULL, LIMIT, SANITIZED, KiB, Node, run_cenote, until
from redis import Redis
from test_pool import Pool, found, of_pool, put, settled

from cluster import kill_node

Attach = Callable[..., Any]
BLOCK = 64 * KiB
COUNT = 8
ROUNDS = 200 if FULL else 5
FIRST_PART, LATER_PART = (60.0, 540.0) if FULL else (3.0, 5.0)  # seconds
SLOWNESS = 1 if FULL else 6  # of a machine that does other things, too
PATIENCE = ("remote.timeout=1s", "remote.lookup_timeout=8s", "prefetch.threshold_tokens=0")


@contextlib.contextmanager
def fetching(sessions: list[Any], keys: list[bytes], seed: int) -> Iterator[None]:
    """Engines that ask for these blocks all the time; what they find has the right bytes."""
    ending = threading.Event()
    wrong: list[BaseException] = []

    def fetch(session: Any, chooser: random.Random) -> None:
        while not ending.is_set():
            try:
                found(session, [chooser.choice(keys)])
            except cenote.CenoteError:  # its node is away
                ending.wait(0.02)
            except BaseException as why:
                wrong.append(why)
                return

    threads = [
        threading.Thread(target=fetch, args=(each, random.Random(seed + index))) for index, each in enumerate(sessions)
    ]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        ending.set()
        for each in threads:
            each.join()
    assert not wrong, wrong


def removes(session: Any, keys: list[bytes] | None) -> bool:
    """Whether it is done; no keys: all of the instance."""
    try:
        session.clear() if keys is None else session.remove(keys)
    except cenote.RemovalPending:
        return False
    return True


class Engines:
    """Sessions of one round."""

    def __init__(self, attach: Attach, instance: str) -> None:
        self._attach = attach
        self._instance = instance
        self._sessions: list[Any] = []

    def session(self, node: Node) -> Any:
        self._sessions.append(self._attach(node, self._instance, block=BLOCK))
        return self._sessions[-1]

    def close(self) -> None:
        for each in self._sessions:
            each.close()


def none_found(engines: Engines, nodes: list[Node], keys: list[bytes]) -> None:
    for node in nodes:
        session = engines.session(node)
        assert [key for key in keys if found(session, [key])] == [], f"at {node.folder}"


def all_confirmed(pool: Pool) -> None:
    until("no removal waits", lambda: sum(of_pool(each, "unconfirmed") for each in pool.nodes) == 0)


def pins(node: Node) -> int:
    return sum(int(each["pins"]) for each in node.status()["sessions"])


def harm(kind: str, remover: Node, victim: Node) -> None:
    if kind == "worker":
        victim.worker_dies()
    elif kind == "node":
        kill_node(victim)
    elif kind in {"one", "both"}:
        names = [node_name(remover), node_name(victim)]
        assert run_cenote("debug", "partition", *names, kind, "--socket", remover.socket).returncode == 0


def node_name(node: Node) -> str:
    return str(node.status()["cluster"]["name"])


def mend(kind: str, remover: Node, victim: Node) -> None:
    if kind == "node":
        victim.start()
    elif kind in {"one", "both"}:
        assert run_cenote("debug", "heal", "--socket", remover.socket).returncode == 0


def disk_of(folder: Path, index: int) -> list[str]:
    path = folder.with_name(f"disk{index}")
    path.mkdir()
    return [f'nvme.paths=["{path}"]', "nvme.capacity=64MiB", "nvme.ingest=all"]


def test_what_was_removed_in_a_pool_is_found_at_no_node(start_node: StartNode, attach: Attach, folder: Path) -> None:
    pool = Pool(start_node)
    for index in range(3):
        made = start_node(*pool.settings(index), *PATIENCE, *disk_of(folder, index), capacity="16MiB")
        pool.nodes.append(made)
    pool.all_ask()
    kinds = itertools.cycle(["nothing", "worker", "node", "both", "one"])
    for number, kind in zip(range(ROUNDS), kinds, strict=False):
        chooser = random.Random(number)
        remover, victim, third = chooser.sample(pool.nodes, 3)
        engines = Engines(attach, f"model {number % 3}")
        keys = put(engines.session(chooser.choice(pool.nodes)), f"round {number}", COUNT, BLOCK)
        settled(*pool.nodes)
        gone = keys[: COUNT // 2] if number % 2 else None
        removing = engines.session(remover)
        with fetching([engines.session(victim), engines.session(third)], keys, number):
            harm(kind, remover, victim)
            is_done = removes(removing, gone)
        if is_done:
            none_found(engines, [each for each in pool.nodes if each.running], gone or keys)
        mend(kind, remover, victim)
        pool.all_ask()
        all_confirmed(pool)
        none_found(engines, pool.nodes, gone or keys)
        engines.close()


def done_at_last(session: Any, keys: list[bytes] | None) -> None:
    """A removal that is pending is asked for again."""
    until("it is done", lambda: removes(session, keys))


def finds_nothing(session: Any, keys: list[bytes]) -> None:
    until("nothing is found", lambda: not any(found(session, [key]) for key in keys))


def test_what_was_removed_over_redis_is_not_found_there(
    start_node: StartNode, attach: Attach, redis: Redis, tmp_path: Path
) -> None:
    backends = f'remote.backends=["{redis.url}"]'
    here, there = (
        start_node(backends, f"remote.state_dir={tmp_path / f'state{index}'}", *PATIENCE) for index in range(2)
    )
    kinds = itertools.cycle(["nothing", "worker", "silence", "own worker", "empty server"])
    for number, kind in zip(range(ROUNDS), kinds, strict=False):
        until("both ask the server", lambda: all(each.status()["remote"]["serving"] == 1 for each in (here, there)))
        engines = Engines(attach, f"model {number % 3}")
        writer, reader = engines.session(here), engines.session(there)
        keys = put(writer, f"round {number}", COUNT, BLOCK)
        settled(here)
        half = keys[: COUNT // 2]
        gone = half if number % 2 else None
        with fetching([reader], keys[COUNT // 2 :], number):  # what it has itself of the others no server takes away
            if kind == "worker":
                there.worker_dies()
            elif kind == "silence":
                redis.stop()
            elif kind == "empty server":
                redis.kill()
            is_done = removes(writer, gone)
            if kind == "silence":
                redis.resume()
            elif kind == "empty server":
                redis.start()
            elif kind == "own worker":
                here.worker_dies()
        none_found(engines, [here], gone or keys)
        if not is_done:
            done_at_last(writer, gone)
        assert [key for key in half if found(reader, [key])] == []
        if gone is None:
            found(reader, blocks.keys_of("nobody's", 0, 1))  # the question brings the clear, and its own tiers follow
            finds_nothing(reader, keys)
        engines.close()


class Visitor(threading.Thread):
    """An engine at one node that puts, hands over, fetches, removes and clears, whatever becomes of the nodes."""

    def __init__(self, node: Node, partners: list[Node], attach: Callable[[Node], Any], seed: int) -> None:
        super().__init__()
        self.ending = threading.Event()
        self.steps = 0
        self.wrong: BaseException | None = None
        self._node = node
        self._partners = [node_name(each) for each in partners]
        self._attach = attach
        self._chooser = random.Random(seed)

    def run(self) -> None:
        try:
            while not self.ending.is_set():
                try:
                    self._visit()
                except (cenote.CenoteError, OSError):  # its node is away
                    self.ending.wait(0.05)
        except BaseException as why:
            self.wrong = why

    def _visit(self) -> None:
        with contextlib.closing(self._attach(self._node)) as session:
            for _ in range(20):
                if self.ending.is_set():
                    return
                self._step(session)
                self.steps += 1

    def _step(self, session: Any) -> None:
        label = f"visit {self._chooser.randrange(20)}"
        keys = blocks.keys_of(label, 0, COUNT)
        what = self._chooser.random()
        if what < 0.4:
            session.publish(label, keys)
            session.put(keys, blocks.contents_of(keys, BLOCK))
            session.publish(label, [], end=True)
        elif what < 0.7:
            found(session, [self._chooser.choice(keys)])
        elif what < 0.8:
            ticket = session.follow(label, self._chooser.choice(self._partners), deadline=0.2)
            ticket.wait(0.5)
            ticket.release()
        elif what < 0.98:
            removes(session, keys)
        else:
            removes(session, None)


def visited(nodes: list[Node], seconds: float, seed: int) -> int:
    """Engines work at all nodes for so long while a worker or a node dies now and then; their steps."""

    def attach(node: Node) -> Any:
        return cenote.attach(make_spec("visited", BLOCK), socket=str(node.socket), deadline=2)

    visitors = [
        Visitor(node, [each for each in nodes if each is not node], attach, seed + index)
        for index, node in enumerate(nodes)
    ]
    for each in visitors:
        each.start()
    chooser = random.Random(seed)
    end = time.monotonic() + seconds
    try:
        while (left := end - time.monotonic()) > 0:
            visitors[0].ending.wait(min(left, 1 + 3 * chooser.random()))
            victim = chooser.choice(nodes)
            if chooser.random() < 0.6:
                victim.worker_dies()
            else:
                kill_node(victim)
                victim.start()
    finally:
        for each in visitors:
            each.ending.set()
        for each in visitors:
            each.join()
    assert [each.wrong for each in visitors if each.wrong] == []
    return sum(each.steps for each in visitors)


def comes_to_rest(pool: Pool, attach: Attach) -> None:
    """Within ten seconds after the last fault what one node stores is found at all; nothing is pinned, and no removal
    waits."""
    pool.all_ask()
    a, *others = pool.nodes

    def shared() -> bool:
        with contextlib.closing(attach(a, "quiet", block=BLOCK)) as writer:
            keys = put(writer, "quiet", COUNT, BLOCK)
        settled(a)
        for node in others:
            with contextlib.closing(attach(node, "quiet", block=BLOCK)) as reader:
                if sum(found(reader, [key]) for key in keys) < COUNT:
                    return False
        return True

    until("all is found again", shared, limit=10 * SLOWNESS)
    all_confirmed(pool)
    until("nothing is pinned", lambda: sum(map(pins, pool.nodes)) == 0)


def grown(node: Node, earlier: Footprint) -> list[str]:
    """Sessions that other nodes have there last for minutes, and differ with the deaths."""
    return [each for each in Footprint.of(node).growth(earlier) if not each.startswith(("sessions", "instances"))]


def idle_seconds(nodes: list[Node]) -> float:
    """Processor time of all workers in two seconds without requests."""

    def used() -> float:
        lines = [Path(f"/proc/{each.worker_pid}/stat").read_text().rpartition(")")[2].split() for each in nodes]
        return sum(int(line[11]) + int(line[12]) for line in lines) / os.sysconf("SC_CLK_TCK")

    before = used()
    time.sleep(2)
    return used() - before


@pytest.mark.skipif(SANITIZED, reason="about the memory of a product without sanitizers")
def test_a_pool_is_after_ten_minutes_of_removals_and_deaths_what_it_was_after_the_first(
    start_node: StartNode, attach: Attach
) -> None:
    pool = Pool(start_node)
    for index in range(3):
        pool.nodes.append(start_node(*pool.settings(index), *PATIENCE, capacity="16MiB"))
    pool.all_ask()

    def rest() -> list[Footprint]:
        comes_to_rest(pool, attach)
        return [Footprint.of(each) for each in pool.nodes]

    steps = visited(pool.nodes, FIRST_PART, 1)
    before, timers = rest(), [each.status()["node"]["timers"] for each in pool.nodes]
    idle = idle_seconds(pool.nodes)
    steps += visited(pool.nodes, LATER_PART, 2)
    rest()
    end = time.monotonic() + LIMIT
    while growth := [found for each, was in zip(pool.nodes, before, strict=True) if (found := grown(each, was))]:
        assert time.monotonic() < end, growth
        time.sleep(0.05)
    assert [each.status()["node"]["timers"] for each in pool.nodes] == timers
    later = idle_seconds(pool.nodes)
    assert later <= 2 * idle + 0.1, (idle, later)  # a timer that stays wakes its worker again and again
    print(f"{steps} steps of engines, {sum(each.announced_deaths for each in pool.nodes)} deaths of workers")
