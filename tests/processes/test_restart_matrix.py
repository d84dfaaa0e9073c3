"""The restart matrix of a whole node: its worker dies right behind each store to a session and each word to the keeper,
while two ranks write their parts, sessions come and go, instances take each other's memory, and NVMe is under way.

The points come from the sources (scripts/store_points.py); `debug.kill_at` names them to the node. What lies in the
store itself is killed at in tests/unit/tiers/blocks/restart_matrix_test.cpp.
"""

from __future__ import annotations

import contextlib
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import blocks
import cenote
import pytest
from conftest import StartAgent, StartNode, make_spec
from node import FULL, LIMIT, PATIENCE, ROOT, KiB, Node, run_cenote, until
from tier import both_tiers, seen, write

BLOCK = 32 * KiB
RANKS = ("r0", "r1")
GROUPS = {"full": {"parts": {rank: BLOCK // 2 for rank in RANKS}}}
PASSED_WITHIN = 60.0  # seconds of all that a node does, until a worker must have passed its point

# Points that the first test's work does not pass: name -> where they are killed, or why nowhere.
ELSEWHERE = {
    "keeper.upgrade_asked": "test_an_upgrade_…",
    "session.phase": "test_a_session_whose_end_is_cut_short_…",
    "session.wrong_blocks": "nowhere: the session goes on, and ends when four more of its blocks are wrong",
    "session.pin_ended": "nowhere: the next worker finds the session set aside, and ends its pins again",
    "session.set_aside": "test_devices.py: test_a_worker_that_comes_later_knows_what_was_set_aside_…",
    "keeper.records_dropped": "test_a_cold_start_…",
    "worker.session_retired": "test_a_cold_start_…",
    "records.orphan_freed": "nowhere: what stood there before is nobody's, and the next worker does it again",
    "removals.kept": "test_nvme_faults.py: test_a_worker_that_dies_behind_a_removal_it_kept_…",
    "keeper.listener_asked": "nowhere: the next worker has the present socket from the handover",
    "keeper.told_why": "the last word of a worker that ends by itself behind it",
    "keeper.node_put": "nothing is kept under this kind",
    "keeper.node_dropped": "nothing is kept under this kind",
}


def points() -> list[str]:
    script = [sys.executable, str(ROOT / "scripts/store_points.py"), "--list", "process"]
    return subprocess.run(script, check=True, capture_output=True, text=True).stdout.split()


def kills(*names: str) -> tuple[str, ...]:
    listed = ",".join(f'"{name}"' for name in names)
    return ("debug.enabled=true", f"debug.kill_at=[{listed}]")


class Work:
    """What clients do all the time. A death of the worker may refuse any of it, but never alter a byte."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.lap = 0
        self.put: list[bytes] = []
        self.ranks = [self.patiently(partial(self.attach, "tp", rank)) for rank in range(len(RANKS))]
        self.other = self.patiently(lambda: self.attach("other"))
        names = ("other", "tp") if node.device else ()
        self.below = [self.patiently(partial(self.attach, name, below=True)) for name in names]
        self.pinned = blocks.keys_of("pinned", 0, 4)
        self.patiently(lambda: self.other.put(self.pinned, blocks.contents_of(self.pinned, BLOCK)))
        self.held = self.other.acquire(self.pinned)

    def attach(self, instance: str, rank: int = 0, *, below: bool = False) -> Any:
        """`below`: to DRAM, whatever the node has above it."""
        groups = GROUPS if instance == "tp" else None
        device = None if below else self.node.device
        where: dict[str, Any] = {"device": device, "part": rank if device else 0}
        return cenote.attach(make_spec(instance, BLOCK, groups), socket=str(self.node.socket), deadline=10, **where)

    @staticmethod
    def patiently(what: Callable[[], Any]) -> Any:
        done: list[Any] = []

        def tried() -> bool:
            with contextlib.suppress(cenote.CenoteError):
                done.append(what())
            return bool(done)

        until("a client is served", tried, pause=0.02)
        return done[0]

    def go_on(self) -> None:
        """Once everything."""
        self.lap += 1
        self.node.send_signal(signal.SIGHUP)  # the worker tells the keeper what it runs with
        for each in (self.store, self.store_parts, self.bring_up, self.come_and_go):
            with contextlib.suppress(cenote.CenoteError):
                each()
        self.look()

    def store(self) -> None:
        """Two instances in turn take more than there is: blocks leave for NVMe, slabs change hands."""
        keys = blocks.keys_of("other", self.lap * 160, 160)
        for first in range(0, len(keys), 40):
            some = keys[first : first + 40]
            self.other.put(some, blocks.contents_of(some, BLOCK))
            self.put += some

    def store_parts(self) -> None:
        keys = blocks.keys_of("tp", self.lap * 120, 120)
        reserved: list[list[tuple[bytes, Any]]] = []
        try:
            for session, rank in zip(self.ranks, RANKS, strict=True):
                slots = session.reserve(keys[:20], part=rank)
                reserved.append([each for each in zip(keys, slots, strict=False) if isinstance(each[1], cenote.Block)])
            for session, rank, mine in zip(self.ranks, RANKS, reserved, strict=True):
                for key, slot in mine:
                    write(session, slot, part_of(key, rank), rank)
                done = [slot for _, slot in mine]
                mine.clear()
                session.commit(done)
        finally:
            for session, mine in zip(self.ranks, reserved, strict=False):
                with contextlib.suppress(cenote.CenoteError):
                    session.abandon([slot for _, slot in mine])
        for session, rank in zip(self.ranks, RANKS, strict=True):
            session.put(keys[20:], [part_of(key, rank) for key in keys[20:]], part=rank)

    def bring_up(self) -> None:
        some = random.Random(self.lap).sample(self.put, min(60, len(self.put)))
        ticket = self.other.prefetch(some, policy="best_effort")
        self.ranks[0].remove(blocks.keys_of("tp", self.lap * 120, 5))
        ticket.wait(0.2)
        ticket.release()

    def come_and_go(self) -> None:
        session = self.attach(f"new{self.lap}")
        try:
            keys = blocks.keys_of(f"new{self.lap}", 0, 2)
            session.put(keys, blocks.contents_of(keys, BLOCK))
        finally:
            session.close()

    def look(self) -> None:
        assert blocks.wrong_blocks(self.pinned, seen(self.other, self.held), BLOCK) == [], "a pinned block changed"
        some = random.Random(-self.lap).sample(self.put, min(40, len(self.put)))
        parts = blocks.keys_of("tp", max(0, self.lap - 1) * 120, 200)
        looks = [(self.other, some, blocks.content_of), (self.ranks[1], parts, self.content_of_rank)]
        looks += [(session, keys, blocks.content_of) for session, keys in zip(self.below, (some, parts), strict=False)]
        for session, keys, content in looks:
            there = [key for key, present in zip(keys, session.exists(keys), strict=True) if present]
            for key in there:
                with session.acquire([key]) as held:
                    assert [bytes(each) for each in seen(session, held)] == [content(key, BLOCK).tobytes()][: len(held)]

    def content_of_rank(self, key: bytes, size: int) -> Any:
        """What the second rank's session has under the key: on a device the rank's part alone."""
        return part_of(key, RANKS[1]) if self.node.device else blocks.content_of(key, size)

    def end(self) -> None:
        """All memory is accounted for when every session says what it holds."""
        self.held.release()
        for session in (*self.ranks, self.other, *self.below):
            self.patiently(session.barrier)
            session.close()
        # A visitor whose greeting or goodbye met no worker in time stays until this process ends, and holds nothing.
        until("sessions are gone", lambda: all(s["instance"].startswith("new") for s in self.node.sessions()))
        left = self.node.blocks()
        assert [left[each] for each in ("granted", "pending", "quarantined", "zombie")] == [0, 0, 0, 0], left


def part_of(key: bytes, rank: str) -> Any:
    whole = blocks.content_of(key, BLOCK)
    return whole[: BLOCK // 2] if rank == "r0" else whole[BLOCK // 2 :]


def disk(folder: Path) -> tuple[str, ...]:
    return (f"nvme.paths=[{folder / 'store'}]", "nvme.capacity=64MiB", "prefetch.threshold_tokens=0")


def killed_in_turn(start_node: StartNode, folder: Path, names: list[str]) -> None:
    """One node whose i-th worker dies behind the i-th of `names`."""
    node = start_node(
        *kills(*names),
        *disk(folder),
        "dram.populate=true",  # below a device, too: its memory waits with the keeper
        "instances.idle=1s",
        "node.hang_timeout=12s",
        capacity="20MiB",
        launch_only=True,
    )
    node.allowed_errors += ["did not start", "the keeper"]
    until("the node has a socket", node.socket.exists)
    work = Work(node)
    for epoch, name in enumerate(names, 1):
        end = time.monotonic() + PASSED_WITHIN * PATIENCE
        while node.epoch <= epoch:
            work.go_on()
            assert time.monotonic() < end, f"worker {epoch} never passed {name}"
    work.go_on()
    node.announced_deaths = len(node.logged("worker died"))
    assert node.announced_deaths == len(names), "somebody died who should not"
    work.end()


@both_tiers
def test_a_worker_that_dies_behind_any_word_leaves_nothing_wrong(start_node: StartNode, tmp_path: Path) -> None:
    names = [name for name in points() if name not in ELSEWHERE]
    first = ["keeper.tier_memory_put", "keeper.records_put"]  # made once in a node's life, in this order
    passings = ("", ":2", ":5", ":17") if FULL else ("",)
    names = first + [f"{name}{nth}" for nth in passings for name in names if name not in first]
    killed_in_turn(start_node, tmp_path, names)


@both_tiers
def test_an_upgrade_whose_worker_dies_behind_its_wish_keeps_every_block(start_node: StartNode, tmp_path: Path) -> None:
    node = start_node(*kills("keeper.upgrade_asked"), *disk(tmp_path), capacity="20MiB")
    work = Work(node)
    work.go_on()
    run_cenote("node", "upgrade", "--socket", node.socket)  # its answer died with the worker
    until("the next worker serves", lambda: node.epoch > 1)
    work.go_on()
    node.announced_deaths = len(node.logged("worker died"))
    work.end()


@both_tiers
def test_a_session_whose_end_is_cut_short_is_ended_by_the_next_command(
    start_node: StartNode, start_agent: StartAgent
) -> None:
    node = start_node(*kills("session.phase"), capacity="20MiB")
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    agent.call("put", label="a", count=20)
    ended = ("session", "kill", str(node.sessions()[0]["id"]), "--socket", str(node.socket))
    run_cenote(*ended)  # its answer died with the worker
    until("the next worker serves", lambda: node.epoch > 1)
    node.announced_deaths = 1

    def is_over() -> bool:
        if node.sessions():  # a client that was not ended attaches some time after the worker has come
            run_cenote(*ended)  # it may have gone meanwhile
        return not node.sessions() and node.blocks()["granted"] == 0

    until("its memory is back", is_over)
    agent.process.wait(LIMIT)


@both_tiers
def test_a_cold_start_that_is_cut_short_is_ended_by_the_next_worker(start_node: StartNode, tmp_path: Path) -> None:
    dying = ["keeper.records_dropped", "keeper.instance_dropped", "worker.session_retired"]
    node = start_node(*kills("", *dying), *disk(tmp_path), capacity="20MiB")
    work = Work(node)
    work.go_on()
    make_unreadable(node)
    node.worker_dies()
    until("a worker lives", lambda: node.epoch > len(dying) + 1 and node.tier())
    node.announced_deaths = len(node.logged("worker died"))
    assert node.announced_deaths == len(dying) + 1
    with pytest.raises(cenote.Closed):  # nothing of an old layout is a hit
        work.other.exists(work.pinned)
    assert blocks.wrong_blocks(work.pinned, seen(work.other, work.held), BLOCK) == [], "a pinned block changed"
    late = Work(node)
    late.go_on()
    late.end()


def make_unreadable(node: Node) -> None:
    """The records of the node have the layout of another build from now on."""
    found = False
    for entry in Path(f"/proc/{node.pid}/fd").iterdir():
        if "memfd:cenote-records" in str(entry.readlink()):
            found = True
            with entry.open("r+b") as records:
                records.seek(8)
                records.write(struct.pack("<I", 0x7777))
    assert found, "the keeper holds no records"
