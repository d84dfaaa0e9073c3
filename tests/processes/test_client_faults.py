"""Clients that die, stop, fork or lose their socket: nobody else is harmed, nothing is lost for long."""

from __future__ import annotations

import functools
import gc
import signal
import time
from collections.abc import Callable
from typing import Any

import blocks
import cenote
import footprint
import numpy as np
import pytest
import wire
from conftest import StartAgent, StartNode, pin_all
from node import LIMIT, UNREACHED, AgentError, KiB, MiB, Node, until
from tier import both_tiers, seen, write

Attach = Callable[..., Any]
BLOCK = 16 * KiB
NO_EVICTION_AHEAD = tuple(f"{tier}.{mark}_water=1" for tier in ("dram", "gpu") for mark in ("high", "low"))


def held_by(node: Node, instance: str) -> dict[str, int]:
    """What is not free and not a block that everybody may read."""
    state = node.instance(instance)
    return {name: state[name] for name in ("pending", "quarantined", "zombie")} | {"granted": node.blocks()["granted"]}


def reclaimed(node: Node) -> int:
    """Blocks taken back from sessions: of dead ones, and idle grants of those whose socket closed first."""
    return node.counter("reclaimed_blocks") + node.counter("revoked_grants")


NOTHING = {"pending": 0, "quarantined": 0, "zombie": 0, "granted": 0}


@pytest.mark.sanitizer
def test_a_killed_client_s_pins_grants_and_pending_blocks_are_reclaimed(node: Node, start_agent: StartAgent) -> None:
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    agent.call("put", label="a", count=100)  # leaves grants for the next put
    agent.call("pin", label="a", count=60)
    assert agent.call("reserve", label="b", count=25) == ["writable"] * 25
    agent.call("remove", label="a", first=0, count=10)  # pinned: zombies
    before = held_by(node, "i")
    assert (before["pending"], before["zombie"]) == (25, 10)
    assert before["granted"] > 0
    used = node.status()["dram"]["used"]
    session = node.session_of(agent.pid)
    assert session is not None
    assert (session["pins"], session["writing"], session["grants"]) == (60, 25, before["granted"])
    counted = reclaimed(node)

    agent.kill()
    until("all is reclaimed", lambda: held_by(node, "i") == NOTHING)
    until("its session is gone", lambda: node.session_of(agent.pid) is None)
    assert reclaimed(node) - counted == before["pending"] + before["granted"]
    assert used - node.status()["dram"]["used"] == (before["pending"] + before["granted"] + before["zombie"]) * BLOCK
    assert node.instance("i")["blocks"] == 90


@both_tiers
@pytest.mark.sanitizer
def test_keys_that_a_killed_client_had_reserved_are_free_for_others(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    agent.call("reserve", label="a", count=20)
    agent.call("fill", share=0.5, salt=1)
    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 20)
    assert session.reserve(keys) == [cenote.PENDING] * 20
    agent.kill()

    def mine() -> list[Any]:
        slots = session.reserve(keys)
        return slots if cenote.PENDING not in slots else []

    slots = until("the keys are free", mine)
    for key, slot in zip(keys, slots, strict=True):
        write(session, slot, blocks.content_of(key, BLOCK))
    assert session.commit(slots) == 20
    targets = np.zeros((20, BLOCK), np.uint8)
    assert session.get_into(keys, targets) == 20
    assert blocks.wrong_blocks(keys, list(targets), BLOCK) == []


def test_a_child_that_keeps_the_descriptors_does_not_keep_a_dead_client_s_blocks(
    node: Node, start_agent: StartAgent
) -> None:
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    agent.call("put", label="a", count=20)
    agent.call("pin", label="a", count=20)
    agent.call("reserve", label="b", count=5)
    agent.send("fork_and_die")
    assert agent.process.wait(LIMIT) == -signal.SIGKILL
    until("all is reclaimed", lambda: held_by(node, "i") == NOTHING)
    assert node.session_of(agent.pid) is None


def has_prefix(session: Any, keys: list[bytes], length: int) -> bool:
    return int(session.match(keys).resident) >= length


@both_tiers
def test_a_client_that_ends_in_the_middle_of_a_put_leaves_whole_blocks_only(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    reader = attach(node, "i", block=BLOCK)
    found = 0
    attempts = 6 if node.device is None else 2  # each waits until the device has had its time
    for attempt in range(attempts):
        agent = start_agent(node)
        agent.call("attach", instance="i", block=BLOCK)
        agent.send("put", label=f"a{attempt}", count=500, batch=16)
        keys = blocks.keys_of(f"a{attempt}", 0, 500)
        until("some are there", functools.partial(has_prefix, reader, keys, 32), pause=0)
        agent.kill()
        until("all is reclaimed", lambda: held_by(node, "i") == NOTHING)
        targets = np.zeros((500, BLOCK), np.uint8)
        there = reader.get_into(keys, targets)
        assert blocks.wrong_blocks(keys[:there], list(targets[:there]), BLOCK) == []
        found += there
    assert found >= attempts * 16


def test_a_client_of_whose_calls_two_workers_die_is_ended_by_name_and_nobody_else(
    start_node: StartNode, start_agent: StartAgent, attach: Attach
) -> None:
    node = start_node("debug.enabled=true", 'debug.kill_at=["guard.begin","guard.begin"]')
    node.allowed_errors = ["workers died of what this session asked for"]
    node.announced_deaths += 2
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    agent.send("put", label="a", count=1)
    assert agent.process.wait(LIMIT) == -signal.SIGKILL
    (said,) = node.logged("workers died of what this session asked for")
    assert said["pid"] == agent.pid
    until("its session is gone", lambda: node.session_of(agent.pid) is None)
    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("b", 0, 20)
    assert session.put(keys, blocks.contents_of(keys, BLOCK)) == 20
    assert node.status()["node"]["epoch"] == 3


# ---- stopped


@both_tiers
def test_a_stopped_writer_s_late_commit_is_refused_and_no_block_has_two_writers(
    start_node: StartNode, start_agent: StartAgent, attach: Attach
) -> None:
    node = start_node("session.reserve_timeout=300ms")
    slow = start_agent(node)
    slow.call("attach", instance="i", block=BLOCK)
    slow.call("put", label="old", count=30)
    slow.call("pin", label="old", count=30)
    slow.call("reserve", label="a", count=30)
    slow.call("fill", share=0.5, salt=1)
    granted = node.blocks()["granted"]
    slow.pause()

    # Longer than every deadline: its reservations are taken back, its memory is not given to others.
    until("the reservations are revoked", lambda: held_by(node, "i")["pending"] == 0)
    assert held_by(node, "i")["quarantined"] == 30
    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 30)
    slots = session.reserve(keys)
    assert all(isinstance(slot, cenote.Block) for slot in slots)
    for key, slot in zip(keys, slots, strict=True):
        write(session, slot, blocks.content_of(key, BLOCK))
    assert session.commit(slots) == 30
    # The whole tier is written once more, so that whatever could be reused is.
    for first in range(0, 5000, 100):
        filler = blocks.keys_of("filler", first, 100)
        session.put(filler, blocks.contents_of(filler, BLOCK))
    assert node.tier()["evicted"] > 0
    assert held_by(node, "i")["quarantined"] == 30
    found = node.session_of(slow.pid)
    assert found is not None
    assert found["pins"] == 30
    assert session.match(blocks.keys_of("old", 0, 30)).resident == 30, "pinned blocks stay hits"

    slow.resume()
    slow.call("fill", share=1.0, salt=1)  # it goes on writing where it was
    with pytest.raises(AgentError) as why:
        slow.call("commit")
    assert why.value.code == "revoked"
    assert slow.call("verify_pinned") == 0, "what it had pinned did not change"
    slow.call("unpin")
    again = blocks.keys_of("a", 0, 30)
    targets = np.zeros((30, BLOCK), np.uint8)
    there = session.get_into(again, targets)
    assert blocks.wrong_blocks(again[:there], list(targets[:there]), BLOCK) == []
    for first in range(4000, 5000):
        key = blocks.key_of("filler", first)
        if session.get_into([key], targets[:1]):
            assert blocks.is_content_of(key, targets[0], BLOCK)
    assert held_by(node, "i")["quarantined"] == 0, "its word that it stopped writing frees the memory"
    assert granted > 0
    assert slow.call("put", label="new", count=10) == 10, "the session lives on"


@both_tiers
def test_a_stopped_reader_keeps_its_blocks_and_harms_nobody(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    reader = start_agent(node)
    reader.call("attach", instance="i", block=BLOCK)
    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 200)
    session.put(keys, blocks.contents_of(keys, BLOCK))
    assert reader.call("pin", label="a", count=200) == 200
    reader.pause()
    for first in range(0, 6000, 100):  # 94 MiB through 64 MiB
        filler = blocks.keys_of("filler", first, 100)
        assert session.put(filler, blocks.contents_of(filler, BLOCK)) == 100
    session.remove(keys)
    assert held_by(node, "i")["zombie"] == 200
    reader.resume()
    assert reader.call("verify_pinned") == 0
    reader.call("unpin")
    until("the zombies are freed", lambda: held_by(node, "i")["zombie"] == 0)


@both_tiers
def test_a_client_stopped_in_its_calls_over_a_restart_goes_on(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    agent.send("put", label="a", count=2000, batch=16)
    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 2000)
    until("it is under way", lambda: session.match(keys).resident > 50, pause=0)
    agent.pause()
    node.restart_worker()
    session.barrier()
    agent.resume()
    agent.answer()
    assert agent.call("verify", label="a", count=2000) == {"there": 2000, "wrong": 0}


# ---- forks


@pytest.mark.sanitizer
def test_a_child_is_told_that_it_is_forked_and_the_parent_is_unharmed(node: Node, start_agent: StartAgent) -> None:
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    agent.call("put", label="a", count=20)
    agent.call("pin", label="a", count=20)
    said = agent.call("fork", label="a")
    assert said == {call: "forked" for call in said}
    assert agent.call("verify_pinned") == 0
    assert agent.call("put", label="b", count=20) == 20
    assert agent.call("verify", label="b", count=20) == {"there": 20, "wrong": 0}
    session = node.session_of(agent.pid)
    assert session is not None
    assert session["pins"] == 20
    assert agent.call("fork_and_attach", instance="i", label="a", count=20) == 20
    assert agent.call("verify_pinned") == 0
    until("only the parent's session is left", lambda: len(node.sessions()) == 1)


# ---- the socket


@both_tiers
@pytest.mark.sanitizer
def test_a_client_whose_socket_is_closed_while_it_lives_loses_its_keys_and_keeps_its_memory(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    agent = start_agent(node)
    agent.call("attach", instance="i", block=BLOCK)
    agent.call("put", label="a", count=40)
    agent.call("pin", label="a", count=40)
    agent.call("reserve", label="b", count=10)
    agent.call("fill", share=0.5, salt=1)
    assert agent.call("break_sockets") == 1
    until("the node notices", lambda: (node.session_of(agent.pid) or {}).get("state") == "disconnected")
    state = held_by(node, "i")
    assert (state["pending"], state["quarantined"]) == (0, 10), "the keys are free, the memory is not"
    found = node.session_of(agent.pid)
    assert found is not None
    assert found["pins"] == 40, "a closed socket is not death"

    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("b", 0, 10)
    slots = session.reserve(keys)
    for key, slot in zip(keys, slots, strict=True):
        write(session, slot, blocks.content_of(key, BLOCK))
    assert session.commit(slots) == 10
    session.remove(blocks.keys_of("a", 0, 40))
    assert agent.call("verify_pinned") == 0
    agent.call("fill", share=1.0, salt=1)
    with pytest.raises(AgentError) as why:
        agent.call("commit")
    assert why.value.code == "revoked"
    assert agent.call("put", label="c", count=10) == 10, "it goes on"

    def met_again() -> bool:  # it looks at its socket when it has to wait for an answer
        agent.call("put", label="c", count=300)
        agent.call("remove", label="c", count=300)
        return (node.session_of(agent.pid) or {}).get("state") == "attached"

    until("it has met the node again", met_again)
    assert held_by(node, "i")["quarantined"] == 0
    targets = np.zeros((10, BLOCK), np.uint8)
    assert session.get_into(keys, targets) == 10
    assert blocks.wrong_blocks(keys, list(targets), BLOCK) == []
    agent.call("unpin")
    until("the removed blocks are free", lambda: held_by(node, "i")["zombie"] == 0)


# ---- many


@pytest.mark.sanitizer
def test_64_sessions_at_once_put_and_read_each_other_s_blocks(
    start_node: StartNode, start_agent: StartAgent, attach: Attach
) -> None:
    node = start_node(capacity="128MiB")
    agents = [start_agent(node) for _ in range(4)]
    for number, agent in enumerate(agents):
        for each in range(15):
            agent.send("attach", instance="i", block=4 * KiB, name=f"s{number}-{each}")
    for agent in agents:
        for _ in range(15):
            agent.answer()
    own = [attach(node, "i", block=4 * KiB) for _ in range(4)]
    assert len(node.sessions()) == 64
    for number, agent in enumerate(agents):
        for each in range(15):
            agent.send("put", label=f"{number}-{each}", count=32, name=f"s{number}-{each}")
    for agent in agents:
        assert [agent.answer() for _ in range(15)] == [32] * 15
    for number, agent in enumerate(agents):
        for each in range(15):
            label = f"{(number + 1) % 4}-{(each + 1) % 15}"
            assert agent.call("verify", label=label, count=32, name=f"s{number}-{each}") == {"there": 32, "wrong": 0}
    for session in own:
        assert session.match(blocks.keys_of("3-14", 0, 32)).resident == 32
    for agent in agents:
        agent.kill()
    until("only ours are left", lambda: len(node.sessions()) == 4)
    assert held_by(node, "i")["pending"] == 0


@pytest.mark.sanitizer
def test_more_sessions_than_allowed_are_refused_until_one_leaves(start_node: StartNode, attach: Attach) -> None:
    node = start_node("node.max_sessions=3")
    sessions = [attach(node, "i") for _ in range(3)]
    with pytest.raises(cenote.CenoteError, match=r"node\.max_sessions") as why:
        attach(node, "i")
    assert why.value.code == "limit_exceeded"
    assert node.status()["server"]["attaches_refused"] == 1
    sessions[1].close()
    attach(node, "i")
    assert node.status()["server"]["attaches_refused"] == 1


def test_sessions_that_come_and_go_leave_nothing_behind(node: Node, attach: Attach) -> None:
    node.until_populated()  # which maps memory, too
    kept = attach(node, "i", block=BLOCK)
    attach(node, "i", block=BLOCK).close()

    def descriptors() -> tuple[int, int]:
        status = node.status()["node"]
        return footprint.descriptors(status["worker_pid"]), footprint.descriptors(status["pid"])

    def maps() -> int:
        with open(f"/proc/{node.worker_pid}/maps") as file:
            return sum(1 for _ in file)

    until("one session is left", lambda: len(node.sessions()) == 1)
    before, mapped = descriptors(), maps()
    for number in range(150):
        session = attach(node, "i", block=BLOCK)
        key = blocks.key_of("a", number)
        session.put([key], [blocks.content_of(key, BLOCK)])
        session.close()
    del session
    gc.collect()  # a closed session keeps its mappings until nobody can see them any more
    until("one session is left", lambda: len(node.sessions()) == 1)
    until("the descriptors are closed", lambda: descriptors() <= before)
    assert maps() <= mapped + 5
    assert kept.match(blocks.keys_of("a", 0, 150)).resident == 150


@both_tiers
@pytest.mark.sanitizer
def test_the_same_keys_put_by_several_sessions_at_once_are_stored_once(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    agents = [start_agent(node) for _ in range(4)]
    for agent in agents:
        agent.call("attach", instance="i", block=BLOCK)
    for agent in agents:
        agent.send("put", label="same", count=600, batch=32)
    stored = [agent.answer() for agent in agents]
    assert sum(stored) == 600
    assert node.instance("i")["blocks"] == 600
    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("same", 0, 600)
    with session.acquire(keys) as held:
        assert len(held) == 600
        assert blocks.wrong_blocks(keys, seen(session, held), BLOCK) == []


@both_tiers
@pytest.mark.sanitizer
def test_the_same_keys_reserved_by_several_sessions_at_once_have_one_writer_each(
    node: Node, start_agent: StartAgent
) -> None:
    agents = [start_agent(node) for _ in range(4)]
    for agent in agents:
        agent.call("attach", instance="i", block=BLOCK)
    for agent in agents:
        agent.send("reserve", label="same", count=200)
    answers = [agent.answer() for agent in agents]
    for place in range(200):
        assert sorted(answer[place] for answer in answers) == ["PENDING"] * 3 + ["writable"]
    for agent in agents:
        agent.call("fill")
    assert sum(agent.call("commit") for agent in agents) == 200
    assert agents[0].call("verify", label="same", count=200) == {"there": 200, "wrong": 0}


# ---- no space


@both_tiers
@pytest.mark.sanitizer
def test_a_pool_exhausted_by_pins_says_no_space_at_once_and_works_again_after_unpin(
    start_node: StartNode, attach: Attach
) -> None:
    node = start_node(*NO_EVICTION_AHEAD, capacity="16MiB")
    session = attach(node, "i", block=64 * KiB, deadline=UNREACHED)
    keys = blocks.keys_of("a", 0, 1000)
    held = pin_all(session, keys, 64 * KiB)
    there = len(held)
    assert there >= 16 * MiB // (64 * KiB) * 3 // 4
    assert session.match(keys).resident == there

    other = attach(node, "other", block=64 * KiB, deadline=UNREACHED)
    more = blocks.keys_of("b", 0, 8)
    data = blocks.contents_of(more, 64 * KiB)
    for who in (session, other):
        for call, arguments in ((who.put, (more, data)), (who.reserve, (more,))):
            with pytest.raises(cenote.NoSpace):
                call(*arguments)
    with pytest.raises(cenote.NoSpace):
        session.put_async(more, data)
        session.flush()
    if node.device is None:  # the status counts DRAM's alone
        assert node.counter("no_space") > 0
    assert session.match(keys).resident == there, "nothing was lost by it"
    assert blocks.wrong_blocks(keys[:there], [seen(session, each)[0] for each in held], 64 * KiB) == []

    for each in held:
        each.release()
    assert session.put(more, data) == 8
    assert session.match(more).resident == 8
    assert other.put(more, data) == 8, "capacity moves to the other instance as well"


@both_tiers
@pytest.mark.sanitizer
def test_no_space_in_the_middle_of_a_batch_tells_exactly_what_is_stored(start_node: StartNode, attach: Attach) -> None:
    node = start_node(*NO_EVICTION_AHEAD, capacity="8MiB")
    session = attach(node, "i", block=16 * KiB)
    pinned = blocks.keys_of("a", 0, 1000)
    held = pin_all(session, pinned, 16 * KiB)
    new = blocks.keys_of("b", 0, 20)
    for known in (0, 1, 5, 64, 200):
        batch = [*pinned[:known], new[0], *pinned[known : known + 5], *new[1:]]
        with pytest.raises(cenote.NoSpace) as why:
            session.put(batch, blocks.contents_of(batch, 16 * KiB))
        assert why.value.stored == known
        assert session.exists(batch) == [key not in new for key in batch]
    for each in held[:3]:
        each.release()
    # Three blocks may be evicted now; pinned as they come, they are exactly what fits.
    with pytest.raises(cenote.NoSpace) as why:
        for stored, key in enumerate(new):
            session.put([*new[:stored], key], blocks.contents_of([*new[:stored], key], 16 * KiB))
            held.append(session.acquire([key]))
    assert why.value.stored == stored == 3
    assert session.exists(new) == [True] * 3 + [False] * 17
    target = np.zeros((3, 16 * KiB), np.uint8)
    assert session.get_into(new[:3], target) == 3
    assert blocks.wrong_blocks(new[:3], list(target), 16 * KiB) == []


def test_a_client_that_never_commits_is_bounded_by_its_share(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    hog = start_agent(node)
    hog.call("attach", instance="i", block=BLOCK)
    hog.call("put", label="a", count=64)
    session = attach(node, "i", block=BLOCK)
    granted = node.blocks()["granted"]
    assert granted <= 64 * MiB // BLOCK // 4
    for first in range(0, 8000, 100):
        keys = blocks.keys_of("b", first, 100)
        assert session.put(keys, blocks.contents_of(keys, BLOCK)) == 100


def test_a_node_out_of_descriptors_says_so_and_recovers(start_node: StartNode, attach: Attach) -> None:
    # Memory that is still being made takes the descriptor with which the node refuses, now and then.
    node = start_node("dram.slab_size=1MiB", capacity="2GiB", prefix=("prlimit", "--nofile=100:100"))
    session = attach(node, "i", block=BLOCK)
    early = blocks.keys_of("early", 0, 20)
    session.put(early, blocks.contents_of(early, BLOCK))
    worker = node.worker_pid
    links = [wire.Link(node.socket) for _ in range(150)]
    until("it says so", lambda: node.logged("turned away"))
    lines = len(list(node.log_lines()))
    time.sleep(1.0)
    assert len(list(node.log_lines())) - lines < 50, "it must not fill the log"
    keys = blocks.keys_of("a", 0, 20)
    assert session.put(keys, blocks.contents_of(keys, BLOCK)) == 20
    assert session.match([*early, *keys]).resident == 40
    refusal = links[-1].receive().failure()
    assert (refusal.code, "out of file descriptors" in refusal.message) == (12, True)
    for link in links:
        link.close()
    until("others attach again", lambda: attach(node, "i", block=BLOCK))
    assert node.worker_pid == worker
