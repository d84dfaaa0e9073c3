"""Workers that are killed, stopped and replaced: every complete block is there again, clients go on by themselves."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import numpy as np
import pytest
from conftest import StartAgent, StartNode
from node import FULL, Agent, KiB, Node, run_cenote, stop_process, until
from tier import both_tiers, seen, write

Attach = Callable[..., Any]
BLOCK = 16 * KiB


def filled(session: Any, label: str, count: int) -> list[bytes]:
    keys = blocks.keys_of(label, 0, count)
    blocks.put(session, keys, BLOCK, batch=100)
    return keys


def all_right(session: Any, keys: list[bytes]) -> bool:
    targets = np.zeros((len(keys), BLOCK), np.uint8)
    return session.get_into(keys, targets) == len(keys) and not blocks.wrong_blocks(keys, list(targets), BLOCK)


# ---- one death


@both_tiers
@pytest.mark.sanitizer
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT], ids=lambda n: n.name)
def test_a_worker_that_dies_is_back_with_all_complete_blocks(
    start_node: StartNode, start_agent: StartAgent, attach: Attach, number: int
) -> None:
    node = start_node(capacity="128MiB")
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 3000)
    other = attach(node, "j", block=4 * KiB, groups={"x": {"parts": {"k": 4096}}, "y": {"parts": {"v": 8192}}})
    for salt, (group, size) in enumerate({"x": 4096, "y": 8192}.items()):
        other.put(keys[:50], blocks.contents_of(keys[:50], size, salt), group=group)
    epoch = node.epoch
    took = node.restart_worker(number)
    print(f"{signal.Signals(number).name}: serving again after {took * 1000:.0f} ms")
    status = node.status()
    assert status["node"]["epoch"] == epoch + 1
    assert status["node"]["restarts"] == 1
    assert node.instance("i")["blocks"] == 3000
    assert session.match(keys).resident == 3000
    assert all_right(session, keys)
    assert session.put(keys, blocks.contents_of(keys, BLOCK)) == 0
    assert len(filled(session, "b", 500)) == 500
    assert all_right(session, keys[:10])
    for salt, (group, size) in enumerate({"x": 4096, "y": 8192}.items()):
        with other.acquire(keys[:50], group=group) as held:
            assert blocks.wrong_blocks(keys[:50], seen(other, held), size, salt) == []
    late = start_agent(node)
    late.call("attach", instance="i", block=BLOCK)
    assert late.call("verify", label="a", count=3000) == {"there": 3000, "wrong": 0}
    assert session.stats()["reattaches"] == 1


@both_tiers
@pytest.mark.sanitizer
def test_reads_under_way_finish_while_there_is_no_worker(node: Node, attach: Attach) -> None:
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 500)
    with session.acquire(keys[:100]) as held:
        with node.worker_stopped() as worker:
            assert all_right(session, keys), "reading needs nobody"
            assert session.match(keys).resident == 500
            assert session.exists(keys) == [True] * 500
            with session.acquire(keys[100:200]) as more:
                assert blocks.wrong_blocks(keys[100:200], seen(session, more), BLOCK) == []
            node.announced_deaths += 1
            os.kill(worker, signal.SIGKILL)
            assert all_right(session, keys)
        assert blocks.wrong_blocks(keys[:100], seen(session, held), BLOCK) == []
        node.status()
        # The new worker respects the pins of before.
        session.remove(keys[:100])
        filled(session, "b", 4500)
        assert blocks.wrong_blocks(keys[:100], seen(session, held), BLOCK) == []
        assert node.instance("i")["zombie"] == 100
    until("the zombies are freed", lambda: node.instance("i")["zombie"] == 0)


@both_tiers
@pytest.mark.sanitizer
def test_pins_over_a_restart_hold_blocks_against_eviction(node: Node, attach: Attach) -> None:
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 200)
    with session.acquire(keys) as held:
        node.restart_worker()
        filled(session, "b", 5000)  # more than the tier holds
        assert node.tier()["evicted"] > 0
        assert blocks.wrong_blocks(keys, seen(session, held), BLOCK) == []
        assert session.match(keys).resident == 200, "what is pinned stays a hit"


@both_tiers
@pytest.mark.sanitizer
def test_half_done_operations_roll_back(node: Node, attach: Attach) -> None:
    session, other = attach(node, "i", block=BLOCK), attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 20)
    slots = session.reserve(keys)
    for key, slot in zip(keys, slots, strict=True):
        write(session, slot, blocks.content_of(key, BLOCK, salt=1)[: BLOCK // 2])
    node.restart_worker()
    mine = other.reserve(keys)
    assert all(isinstance(slot, cenote.Block) for slot in mine), "the keys are free"
    for key, slot in zip(keys, mine, strict=True):
        write(other, slot, blocks.content_of(key, BLOCK))
    for key, slot in zip(keys, slots, strict=True):  # the first writer has not noticed yet
        write(session, slot, blocks.content_of(key, BLOCK, salt=1))
    with pytest.raises(cenote.Revoked):
        session.commit(slots)
    assert other.commit(mine) == 20
    assert all_right(session, keys)
    assert node.instance("i")["quarantined"] == 0
    assert node.instance("i")["pending"] == 0


@pytest.mark.parametrize("how", ["restart", "time-out"])
def test_a_late_commit_of_one_part_leaves_the_memory_to_the_other_part_s_writer(
    start_node: StartNode, attach: Attach, how: str
) -> None:
    node = start_node("session.reserve_timeout=" + ("1s" if how == "time-out" else "30s"), capacity="16MiB")
    part = 16 * KiB
    groups = {"full": {"parts": {"r0": part, "r1": part}}}
    writer, other, reader = (attach(node, "tp", groups=groups) for _ in range(3))
    key = blocks.keys_of("a", 0, 1)
    [first], [second] = writer.reserve(key, part="r0"), writer.reserve(key, part="r1")
    view = second.view("r1")
    if how == "restart":
        node.restart_worker()
    until("the block is taken back", lambda: node.instance("tp")["quarantined"] == 1)
    with pytest.raises(cenote.Revoked):
        writer.commit([first])
    assert node.instance("tp")["quarantined"] == 1
    keys = blocks.keys_of("b", 0, 400)
    other.put(keys[:200], blocks.contents_of(keys[:200], 2 * part))
    view[:] = b"\xee" * part  # nobody has told this thread anything
    other.put(keys[200:], blocks.contents_of(keys[200:], 2 * part))
    for each in keys:
        with reader.acquire([each]) as held:
            assert blocks.wrong_blocks([each][: len(held)], [b.view() for b in held], 2 * part) == []
    with pytest.raises(cenote.Revoked):
        writer.commit([second])
    assert node.instance("tp")["quarantined"] == 0


def accounts(node: Node) -> dict[str, Any]:
    """When nothing is on its way to another tier."""
    until("all is written", lambda: node.tier()["writing_bytes"] == 0)
    tier = node.tier()
    found = {name: tier[name] for name in ("used", "assigned", "slabs")}
    return {**found, "blocks": node.blocks(), "payer": node.group_used("payer"), "groups": node.status()["groups"]}


@both_tiers
@pytest.mark.sanitizer
def test_grants_and_accounts_are_the_same_after_a_restart(start_node: StartNode, attach: Attach) -> None:
    node = start_node("groups.payer.priority=normal")
    session = attach(node, "i", block=BLOCK, instance_group="payer")
    filled(session, "a", 300)
    before = accounts(node)
    node.restart_worker()
    until("the client is back", lambda: session.barrier() is None)
    assert accounts(node) == before
    session.remove(blocks.keys_of("a", 0, 300))
    session.close()
    until("the session is gone", lambda: not node.sessions())
    assert node.tier()["used"] == 0
    assert node.group_used("payer") == 0


@both_tiers
def test_a_client_that_died_while_there_was_no_worker_is_reclaimed(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    agent.call("put", label="a", count=100)
    agent.call("pin", label="a", count=50)
    agent.call("reserve", label="b", count=20)
    with node.worker_stopped() as worker:
        agent.kill()
        node.announced_deaths += 1
        os.kill(worker, signal.SIGKILL)

    def reclaimed() -> bool:
        state = node.instance("i")
        return not node.sessions() and state["pending"] == 0 and state["quarantined"] == 0

    until("all is reclaimed", reclaimed)
    assert node.blocks()["granted"] == 0
    session = attach(node, "i", block=BLOCK)
    assert session.match(blocks.keys_of("a", 0, 100)).resident == 100
    assert len(session.reserve(blocks.keys_of("b", 0, 20))) == 20


@pytest.mark.sanitizer
def test_a_part_that_was_committed_before_a_restart_does_not_make_half_a_block(node: Node, attach: Attach) -> None:
    groups = {"full": {"parts": {"r0": 4096, "r1": 4096}}}
    ranks = [attach(node, "tp", groups=groups) for _ in range(2)]
    keys = blocks.keys_of("a", 0, 10)
    whole = blocks.contents_of(keys, 8192)
    pieces = {"r0": [w[:4096] for w in whole], "r1": [w[4096:] for w in whole]}
    late = ranks[1].reserve(keys[:5], part="r1")
    assert ranks[0].put(keys, pieces["r0"], part="r0") == 10
    node.restart_worker()
    assert ranks[0].exists(keys) == [False] * 10
    for slot, content in zip(late, pieces["r1"], strict=False):
        with pytest.raises(cenote.CenoteError):
            slot.view("r1")[:] = content.data
            ranks[1].commit([slot])
    assert ranks[1].put(keys, pieces["r1"], part="r1") == 10
    assert ranks[0].exists(keys) == [False] * 10, "what the other rank wrote is gone"
    assert ranks[0].put(keys, pieces["r0"], part="r0") == 10
    with ranks[1].acquire(keys) as held:
        assert len(held) == 10
        assert blocks.wrong_blocks(keys, [b.view() for b in held], 8192) == []
    assert node.instance("tp")["quarantined"] == 0


@both_tiers
@pytest.mark.sanitizer
def test_put_async_over_a_restart_is_whole_or_refused_at_the_flush(node: Node, attach: Attach) -> None:
    session = attach(node, "i", block=BLOCK)
    refused = 0
    for turn in range(4):
        keys = blocks.keys_of(f"a{turn}", 0, 400)
        for first in range(0, 400, 20):
            batch = keys[first : first + 20]
            session.put_async(batch, blocks.contents_of(batch, BLOCK))
            if first == 200:
                node.worker_dies()
        try:
            session.flush()
            assert session.exists(keys) == [True] * 400
        except (cenote.Revoked, cenote.NotReserved):
            refused += 1
        there = [key for key, present in zip(keys, session.exists(keys), strict=True) if present]
        assert all_right(session, there)
        assert session.put(keys, blocks.contents_of(keys, BLOCK)) == 400 - len(there)
        assert all_right(session, keys)
    print(f"{refused} of 4 flushes were refused")


@pytest.mark.sanitizer
def test_blocks_with_a_checksum_come_back_as_well(start_node: StartNode, attach: Attach) -> None:
    node = start_node("dram.integrity=commit", capacity="32MiB")
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 1500)
    node.restart_worker()
    assert all_right(session, keys)
    other = attach(node, "other", block=64 * KiB)  # its slabs come from the first instance's, whose blocks move
    more = blocks.keys_of("b", 0, 200)
    other.put(more, blocks.contents_of(more, 64 * KiB))
    there = [key for key, present in zip(keys, session.exists(keys), strict=True) if present]
    assert all_right(session, there)
    assert node.counter("checksum_errors") == 0


# ---- waiting


def attached_within(node: Node, attach: Attach, deadline: float) -> Any:
    """A session whose calls have that time alone; None where the attach needs more."""
    with contextlib.suppress(cenote.DeadlineExceeded, cenote.NodeRestarting):
        return attach(node, "i", block=BLOCK, deadline=deadline)
    return None


@both_tiers
@pytest.mark.sanitizer
def test_calls_made_while_the_worker_is_stopped_wait_for_their_deadline_and_say_so(node: Node, attach: Attach) -> None:
    keys = filled(attach(node, "i", block=BLOCK), "a", 10)
    session = until("it is attached", functools.partial(attached_within, node, attach, 0.5))
    with node.worker_stopped():
        for call in (
            lambda: session.remove(keys[:1]),
            lambda: session.reserve(blocks.keys_of("b", 0, 1)),
            lambda: session.put(blocks.keys_of("c", 0, 100), blocks.contents_of(blocks.keys_of("c", 0, 100), BLOCK)),
            session.barrier,
        ):
            begin = time.monotonic()
            with pytest.raises((cenote.DeadlineExceeded, cenote.NodeRestarting)):
                call()
            assert time.monotonic() - begin > 0.4
        with pytest.raises((cenote.DeadlineExceeded, cenote.NodeRestarting)):
            attach(node, "late", deadline=0.5)
    session.barrier()  # the removal that nobody waits for any more is still carried out: before the put, not after it
    assert session.put(keys, blocks.contents_of(keys, BLOCK)) == 1
    assert all_right(session, keys)
    until("what nobody waits for any more goes back", lambda: node.instance("i")["pending"] == 0 or session.barrier())


@both_tiers
@pytest.mark.sanitizer
def test_a_worker_that_hangs_is_replaced_and_named(start_node: StartNode, attach: Attach) -> None:
    node = start_node("node.hang_timeout=2s")
    node.allowed_errors = ["killing the worker"]
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 10)
    node.announced_deaths += 1
    with node.worker_stopped() as hung:
        assert session.remove(keys[:1]) == 1  # waits for the next worker
    assert node.worker_pid != hung
    assert "its main thread" in node.logged("killing the worker")[0]["reason"]
    assert all_right(session, keys[1:])


@pytest.mark.parametrize(
    ("point", "part"),
    [
        ("publish.version:15", "the DRAM tier"),
        ("hints.added:15", "the NVMe tier"),
        ("keeper.session_put:2", "the thread of sockets"),
        ("instance.created:1", "the maker of instances"),
    ],
)
def test_a_worker_of_which_one_part_hangs_is_replaced_and_the_part_named(
    start_node: StartNode, attach: Attach, tmp_path: Path, point: str, part: str
) -> None:
    node = start_node(
        "node.hang_timeout=2s",
        "debug.enabled=true",
        f'debug.kill_at=["{point}:hang"]',
        f"nvme.paths=[{tmp_path}/store]",
        "nvme.capacity=64MiB",
        "nvme.ingest=all",
    )
    node.allowed_errors = ["killing the worker"]
    hung = node.worker_pid
    node.announced_deaths += 1
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 30)
    attach(node, "i", block=BLOCK)
    until("the worker is replaced", lambda: node.worker_pid != hung)
    assert part in node.logged("killing the worker")[0]["reason"]
    assert session.remove(keys[:1]) == 1
    assert all_right(session, keys[1:])


def test_no_call_is_served_before_the_keeper_counts_the_worker_as_ready(start_node: StartNode) -> None:
    """Until then the keeper waits out a start of minutes: a call that hangs a thread would hold its client as long."""
    node = start_node("node.hang_timeout=2s", "debug.enabled=true", 'debug.kill_at=["keeper.told_ready:hang"]')
    node.allowed_errors = ["killing the worker"]
    node.announced_deaths += 1
    assert node.epoch == 2


def test_a_worker_that_was_stopped_for_a_while_goes_on(start_node: StartNode, attach: Attach) -> None:
    node = start_node("node.hang_timeout=20s")
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 10)
    with node.worker_stopped() as worker:
        time.sleep(5 if FULL else 1)
    assert all_right(session, keys)
    assert session.remove(keys) == 10
    assert node.worker_pid == worker


def test_a_machine_that_stood_still_for_longer_than_the_time_limit_costs_no_worker(
    start_node: StartNode, attach: Attach
) -> None:
    """As after a suspend, or a live migration: all processes stand, and the clock has gone on."""
    node = start_node("node.hang_timeout=2s")
    assert node.process is not None
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 10)
    worker = node.worker_pid
    for pid in (node.process.pid, worker):
        stop_process(pid)
    time.sleep(25 if FULL else 4)
    for pid in (node.process.pid, worker):
        os.kill(pid, signal.SIGCONT)
    assert all_right(session, keys)
    assert session.remove(keys[:1]) == 1
    time.sleep(3 if FULL else 0)
    assert node.worker_pid == worker


@both_tiers
def test_calls_made_while_the_worker_is_away_wait_for_the_next_one(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    with node.worker_stopped() as worker:
        agent.send("put", label="a", count=200)
        agent.send("remove", label="a", count=10)
        assert not agent.has_answer(0.2)
        node.announced_deaths += 1
        os.kill(worker, signal.SIGKILL)
    assert agent.answer() == 200
    assert agent.answer() == 10
    assert agent.call("verify", label="a", count=200) == {"there": 190, "wrong": 0}


@both_tiers
@pytest.mark.sanitizer
def test_an_attach_while_the_worker_is_away_waits_for_the_next_one(node: Node, start_agent: StartAgent) -> None:
    agent = start_agent(node)
    with node.worker_stopped() as worker:
        agent.send("attach", instance="i", block=BLOCK)
        assert not agent.has_answer(0.2)
        node.announced_deaths += 1
        os.kill(worker, signal.SIGKILL)
    agent.answer()
    assert agent.call("put", label="a", count=20) == 20


@both_tiers
def test_a_stopped_keeper_hinders_nobody_who_is_attached(node: Node, attach: Attach) -> None:
    session = attach(node, "i", block=4 * KiB)
    keys = blocks.keys_of("a", 0, 200)
    session.put(keys, blocks.contents_of(keys, 4 * KiB))
    stop_process(node.pid)
    try:
        more = blocks.keys_of("b", 0, 200)
        assert session.put(more, blocks.contents_of(more, 4 * KiB)) == 200
        with session.acquire([*keys, *more]) as held:
            assert blocks.wrong_blocks([*keys, *more], seen(session, held), 4 * KiB) == []
        assert session.remove(keys) == 200
        with pytest.raises(cenote.CenoteError):
            attach(node, "late", deadline=0.5)
    finally:
        os.kill(node.pid, signal.SIGCONT)
    until("a new client attaches again", lambda: attach(node, "late"))
    node.restart_worker()
    assert session.match(more).resident == 200


@both_tiers
def test_a_worker_that_starts_cold_never_shows_a_reader_other_bytes(start_node: StartNode, attach: Attach) -> None:
    node = start_node(capacity="512MiB")
    session = attach(node, "i", block=256 * KiB)
    keys = blocks.keys_of("a", 0, 1500)
    contents = [bytes([1 + i % 255]) * (256 * KiB) for i in range(len(keys))]
    for first in range(0, len(keys), 250):
        session.put(keys[first : first + 250], contents[first : first + 250])
    pinned = session.acquire(keys[:64])
    # As an update to a build with another layout finds them.
    for records in (each for each in Path(f"/proc/{node.pid}/fd").iterdir() if "cenote-records" in os.readlink(each)):
        with records.open("r+b", buffering=0) as header:
            header.seek(8)
            header.write((999).to_bytes(4, "little"))
    node.worker_dies()
    target = bytearray(256 * KiB)
    wrong, reads = 0, 0
    with pytest.raises(cenote.CenoteError):
        while True:
            at = len(keys) - 1 - reads % len(keys)
            if session.get_into([keys[at]], [target]) == 1:
                wrong += target != contents[at]
            reads += 1
    assert wrong == 0, f"{wrong} of {reads} hits had other bytes"
    assert [i for i, have in enumerate(seen(session, pinned)) if bytes(have) != contents[i]] == []
    assert node.logged("starting cold")
    again = attach(node, "i", block=256 * KiB)
    assert again.match(keys).resident == 0
    assert again.put(keys[:10], contents[:10]) == 10


# ---- several


@both_tiers
def test_a_killed_worker_is_started_again_without_delay_however_often(node: Node, attach: Attach) -> None:
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 200)
    took = []
    for starts in range(1, 5):  # clients are served before the keeper hears that the worker is ready
        until("the worker is ready", lambda wanted=starts: len(node.logged("worker is ready")) == wanted)
        took.append(node.restart_worker())
    print("back after", ", ".join(f"{each * 1000:.0f} ms" for each in took))
    assert node.logged("waiting before the next start") == [], "SIGKILL of a ready worker is no fault of its own"
    assert all_right(session, keys)


@both_tiers
def test_a_worker_that_crashes_right_after_its_start_is_backed_off_and_comes_back(node: Node, attach: Attach) -> None:
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 100)
    for _ in range(3):
        node.restart_worker(signal.SIGSEGV)
    delays = [line["delay_ms"] for line in node.logged("waiting before the next start")]
    assert delays == sorted(delays)
    assert all(each > 0 for each in delays)
    assert all_right(session, keys)
    assert len(filled(session, "b", 10)) == 10


# ---- under load


class Readers:
    """Two processes that verify a run of keys all the time, by copy and under pins."""

    def __init__(self, start_agent: StartAgent, node: Node, label: str, count: int) -> None:
        self.agents: list[Agent] = []
        for how in ("copy", "pin"):
            agent = start_agent(node)
            agent.call("attach", instance="i", block=4 * KiB)
            agent.call("start_reader", label=label, count=count, how=how)
            self.agents.append(agent)

    def rounds(self) -> int:
        return min(int(each) for agent in self.agents for each in agent.call("readers_rounds"))

    def stop(self) -> int:
        verified = 0
        for agent in self.agents:
            for report in agent.call("stop_readers", limit=90):
                assert report["wrong"] == [], report
                assert report["errors"] == [], report
                verified += report["verified"]
        return verified


@both_tiers
def test_a_worker_killed_again_and_again_during_ten_thousand_puts_loses_and_spoils_nothing(
    start_node: StartNode, start_agent: StartAgent, attach: Attach
) -> None:
    """Index growth is under way (from 1,024 slots), the tier is large enough that nothing is evicted."""
    kills = 100 if FULL else 10
    puts = 10_000
    node = start_node("dram.populate=false", capacity="192MiB")
    readers = Readers(start_agent, node, "a", puts)
    writers = [start_agent(node) for _ in range(2)]
    for writer in writers:
        writer.call("attach", instance="i", block=4 * KiB)
    session = attach(node, "i", block=4 * KiB)
    keys = blocks.keys_of("a", 0, puts)
    dice = random.Random(11)
    took: list[float] = []
    returned = 0
    rounds = 10 if not FULL else 1
    # Each writer has half of the keys; after every answer all that was put must be there.
    share = puts // len(writers)
    step = max(20, share // (kills * rounds))
    places = [0] * len(writers)
    for turn in range(kills):
        goal = share * (turn + 1) // kills
        while min(places) < goal:
            for number, writer in enumerate(writers):
                if places[number] < goal:
                    count = min(step, goal - places[number])
                    writer.send("put", label="a", first=number * share + places[number], count=count, batch=16)
                    places[number] += count
                else:
                    writer.send("match", label="a")
            if len(took) == turn:
                time.sleep(dice.random() * 0.02)  # where in the puts it dies is left to chance
                took.append(node.restart_worker(dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGKILL])))
            for writer in writers:
                returned += writer.answer(90) >= 0
        for number in range(len(writers)):
            done = keys[number * share : number * share + places[number]]
            assert all(session.exists(done)), "a put that returned is present"
    assert node.tier()["evicted"] == 0
    assert session.match(keys).resident == puts
    last = readers.rounds()
    until("the readers have seen all of it once more", lambda: readers.rounds() > last, pause=0.1)
    verified = readers.stop()
    targets = np.zeros((puts, 4 * KiB), np.uint8)
    assert session.get_into(keys, targets) == puts
    assert blocks.wrong_blocks(keys, list(targets), 4 * KiB) == []
    assert node.instance("i")["index_entries"] == puts
    assert node.instance("i")["blocks"] == puts
    assert node.instance("i")["index_slots"] > 10_000
    assert node.status()["node"]["restarts"] == kills
    print(f"{kills} kills, {verified} blocks verified, back after {max(took) * 1000:.0f} ms at most")


@both_tiers
def test_a_worker_killed_while_it_evicts_never_serves_a_wrong_byte(
    start_node: StartNode, start_agent: StartAgent, attach: Attach
) -> None:
    node = start_node("dram.populate=false", capacity="16MiB")  # 4,000 blocks for 12,000 keys or more
    kills = 30 if FULL else 5 if node.device is None else 3
    readers = Readers(start_agent, node, "a", 3000)
    writer = start_agent(node)
    writer.call("attach", instance="i", block=4 * KiB)
    for turn in range(kills):
        writer.send("put", label="a", first=0, count=3000, batch=16)
        writer.send("put", label="b", first=turn * 3000, count=3000, batch=16)
        time.sleep(0.05)
        node.restart_worker()
        writer.answer(90)
        writer.answer(90)
    assert readers.stop() > 0
    session = attach(node, "i", block=4 * KiB)
    state = node.instance("i")
    assert state["index_entries"] == state["blocks"]
    # Which blocks were the oldest at a restart is known to a tenth of a second only, so some of these may have gone.
    last = blocks.keys_of("b", kills * 3000 - 500, 500)
    kept = [key for key, there in zip(last, session.exists(last), strict=True) if there]
    targets = np.zeros((500, 4 * KiB), np.uint8)
    assert session.get_into(kept, targets[: len(kept)]) == len(kept)
    assert blocks.wrong_blocks(kept, list(targets[: len(kept)]), 4 * KiB) == []

    def all_there() -> bool:  # what is stored anew takes the room of others as old, perhaps of these
        writer.call("put", label="b", first=kills * 3000 - 500, count=500)
        return bool(session.match(last).resident == 500)

    until("the last ones are all there", all_there)
    assert session.get_into(last, targets) == 500
    assert blocks.wrong_blocks(last, list(targets), 4 * KiB) == []


@both_tiers
def test_clients_and_worker_killed_by_turns_leave_no_block_behind(
    start_node: StartNode, start_agent: StartAgent, attach: Attach
) -> None:
    node = start_node(capacity="32MiB")
    turns = 40 if FULL else 6 if node.device is None else 3
    dice = random.Random(5)
    for turn in range(turns):
        agents = [start_agent(node) for _ in range(2)]
        for number, agent in enumerate(agents):
            agent.call("attach", instance="i", block=BLOCK)
            agent.call("reserve", label=f"r{turn}-{number}", count=10)
            agent.send("put", label="a", first=dice.randrange(500), count=300, batch=8)
        time.sleep(dice.random() * 0.03)
        order: list[Callable[[], object]] = [agents[0].kill, node.restart_worker, agents[1].kill]
        dice.shuffle(order)
        for harm in order:
            harm()

    def nothing_held() -> bool:
        held = node.blocks()
        return (held["granted"], held["pending"], held["quarantined"], held["zombie"]) == (0, 0, 0, 0)

    until("nothing is held by the dead", nothing_held)
    assert node.sessions() == []
    assert node.tier()["used"] == node.blocks()["present"] * BLOCK
    session = attach(node, "i", block=BLOCK)
    keys = [key for key in blocks.keys_of("a", 0, 800) if session.exists([key])[0]]
    assert all_right(session, keys)
    session.clear()
    assert node.tier()["used"] == 0


@both_tiers
def test_a_session_that_was_closed_while_no_worker_answered_ends_although_its_process_lives(
    node: Node, attach: Attach
) -> None:
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 5)
    with node.worker_stopped() as worker:
        session.close()  # gives up after its patience: no answer comes
        node.announced_deaths += 1
        os.kill(worker, signal.SIGKILL)
    until("nobody is attached", lambda: not node.sessions())
    assert all_right(attach(node, "i", block=BLOCK), keys)


@both_tiers
def test_clients_that_come_and_go_while_the_worker_is_killed_leave_no_session_behind(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    agents = [start_agent(node) for _ in range(3)]
    for number, agent in enumerate(agents):
        agent.send("come_and_go", instance="i", label=f"{number}", count=60, block=BLOCK)
    for _ in range(20 if FULL else 5):
        time.sleep(0.03)
        node.restart_worker()
    assert [agent.answer(90) for agent in agents] == [60, 60, 60]
    until("nobody is attached", lambda: not node.sessions())
    assert node.blocks()["granted"] == 0
    session = attach(node, "i", block=BLOCK)
    for number in range(3):
        assert all_right(session, blocks.keys_of(f"{number}", 0, 60))


@both_tiers
def test_clearing_everything_under_load_never_shows_a_wrong_byte(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    readers = Readers(start_agent, node, "a", 800)
    writer = start_agent(node)
    writer.call("attach", instance="i", block=4 * KiB)
    for _ in range(15):
        writer.send("put", label="a", count=800, batch=32)
        time.sleep(0.01)
        assert run_cenote("clear", "--all", "--socket", node.socket).returncode == 0
        writer.answer()
    assert readers.stop() > 0
    for agent in (*readers.agents, writer):
        agent.kill()
    run_cenote("clear", "--all", "--socket", node.socket)
    until("all is free", lambda: node.tier()["used"] == 0)


# ---- upgrade


@both_tiers
@pytest.mark.sanitizer
def test_an_upgrade_replaces_keeper_and_worker_and_keeps_the_blocks(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 1000)
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    agent.call("pin", label="a", count=50)
    worker, epoch = node.worker_pid, node.epoch
    agent.send("put", label="b", count=1000, batch=16)
    begin = time.monotonic()
    ran = run_cenote("node", "upgrade", "--socket", node.socket)
    print(f"upgraded in {(time.monotonic() - begin) * 1000:.0f} ms")
    assert ran.returncode == 0, ran.stderr
    assert "upgraded" in ran.stdout
    assert agent.answer() == 1000
    status = node.status()
    assert (status["node"]["worker_pid"], status["node"]["epoch"]) != (worker, epoch)
    assert status["node"]["pid"] == node.pid, "the keeper is the same process, with a new program"
    assert status["node"]["restarts"] == 0, "an upgrade is no accident"
    assert session.match(keys).resident == 1000
    assert all_right(session, keys)
    assert agent.call("verify_pinned") == 0
    assert agent.call("verify", label="b", count=1000) == {"there": 1000, "wrong": 0}
    node.restart_worker()
    assert all_right(session, keys)
    agent.kill()
    until("its pins are gone", lambda: len(node.sessions()) == 1)


def test_an_upgrade_to_a_binary_that_does_not_run_is_refused_and_changes_nothing(
    tmp_path: Path, start_node: StartNode, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    import node as harness

    program = tmp_path / "bin" / "cenote"
    program.parent.mkdir()
    shutil.copy(harness.BINARY, program)
    monkeypatch.setattr(harness, "BINARY", program)
    node = start_node()
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 100)
    worker = node.worker_pid
    original = program.read_bytes()
    program.unlink()
    monkeypatch.undo()
    ran = run_cenote("node", "upgrade", "--socket", node.socket)
    assert ran.returncode == 1
    assert str(program) in ran.stderr
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    ran = run_cenote("node", "upgrade", "--socket", node.socket)
    assert ran.returncode == 1
    assert "exit status 7" in ran.stderr
    assert node.worker_pid == worker
    assert all_right(session, keys)
    # A worker that dies meanwhile is started from the program that the keeper runs, not from the broken file.
    node.restart_worker()
    assert all_right(session, keys)
    program.unlink()
    program.write_bytes(original)
    program.chmod(0o755)
    assert run_cenote("node", "upgrade", "--socket", node.socket).returncode == 0
    assert all_right(session, keys)
