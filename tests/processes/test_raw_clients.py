"""Clients without libcenote: rings that nobody drains, fuzzed memory, and what a client can reach of others."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import select
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import pytest
import wire
from conftest import StartAgent, StartNode
from node import FULL, Node, stop_process, until

Attach = Callable[..., Any]
GROUPS = {"full": {"kv": 4096}}
F_ADD_SEALS, F_GET_SEALS = 1033, 1034
SHRINK, GROW, SEAL = 2, 4, 1
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE = 1, 2


def puts_and_reads(session: Any, label: str, count: int = 20) -> None:
    keys = blocks.keys_of(label, 0, count)
    assert session.put(keys, blocks.contents_of(keys, 4096)) == count
    with session.acquire(keys) as held:
        assert len(held) == count
        assert blocks.wrong_blocks(keys, [b.view() for b in held], 4096) == []
    assert session.remove(keys) == count


# ---- rings


@pytest.mark.sanitizer
def test_a_raw_client_speaks_the_protocol(node: Node, attach: Attach) -> None:
    raw = wire.RawSession.attach(node.socket, "i", GROUPS)
    key = blocks.key_of("a", 0)
    request = raw.submit(wire.RESERVE, key=key, argument=1)
    until("answers", lambda: raw.waiting_completions() == 2)
    answer, done = raw.take()
    assert (answer.request, answer.kind, done.kind, done.value) == (request, 2, 1, 1)
    slabs, fds = raw.slabs([answer.block >> 18])
    assert len(slabs) == len(fds) == 1
    with mmap.mmap(fds[0], slabs[0][1]) as slab:
        at = (answer.block & 0x3FFFF) * 4096
        slab[at : at + 4096] = blocks.content_of(key, 4096).tobytes()
    raw.submit(wire.FINISH, block=answer.block, grant_version=answer.grant_version, argument=1)
    until("an answer", raw.waiting_completions)
    assert [(a.kind, a.code, a.value) for a in raw.take()] == [(1, 0, 1)]
    session = attach(node, "i", spec={"model": "m", "tokens_per_block": 16, "hash_scheme": "sha256"})
    target = bytearray(4096)
    assert session.get_into([key], [target]) == 1
    assert blocks.is_content_of(key, target, 4096)
    for fd in fds:
        os.close(fd)
    raw.close()


@pytest.mark.sanitizer
def test_a_client_that_never_drains_its_completion_ring_harms_only_itself(node: Node, attach: Attach) -> None:
    raw = wire.RawSession.attach(node.socket, "mute", GROUPS)
    session = attach(node, "i")
    worker = node.worker_pid
    sent = 0

    def send(most: int) -> None:
        nonlocal sent
        for _ in range(most):
            if raw.word(wire.SUBMIT_TAIL) - raw.word(wire.SUBMIT_HEAD) >= wire.SUBMISSIONS:
                return
            raw.submit(wire.BARRIER)
            sent += 1

    def both_full() -> bool:
        send(500)
        return sent > wire.COMPLETIONS and raw.word(wire.SUBMIT_TAIL) - raw.word(wire.SUBMIT_HEAD) == wire.SUBMISSIONS

    for _ in range(20):
        send(500)
        puts_and_reads(session, "alive", 5)
    until("both rings are full", both_full)
    answered = raw.waiting_completions()
    assert wire.COMPLETIONS // 2 < answered <= wire.COMPLETIONS
    assert sent > answered, "the rest waits in the ring"
    puts_and_reads(session, "alive")
    assert node.worker_pid == worker
    # It comes to its senses: the rest is answered.
    got = len(raw.take())

    def drained() -> bool:
        nonlocal got
        got += len(raw.take())
        return got == sent

    until("every request is answered", drained)
    raw.close()


@pytest.mark.sanitizer
def test_a_client_that_makes_its_doorbell_blocking_and_fills_it_stops_no_thread_of_the_node(
    node: Node, attach: Attach
) -> None:
    session = attach(node, "i")
    worker = node.worker_pid
    for _ in range(4):  # more than the node has threads
        raw = wire.RawSession.attach(node.socket, "other", GROUPS)
        fcntl.fcntl(raw.complete_bell, fcntl.F_SETFL, 0)
        with contextlib.suppress(OSError):
            os.write(raw.complete_bell, struct.pack("<Q", 0xFFFFFFFFFFFFFFFE))
        for sent in range(1, 1001):
            raw.set_word(wire.CLIENT_SLEEPS, 1)
            raw.submit(wire.BARRIER)
            until("its answer", raw.waiting_completions, pause=0)
            assert len(raw.take()) == 1, sent
    puts_and_reads(session, "a")
    assert node.worker_pid == worker


def test_a_client_without_the_doorbell_of_today_hears_eight_bytes_a_ring(node: Node) -> None:
    raw = wire.RawSession.attach(node.socket, "i", GROUPS, minor=2)
    with pytest.raises(BlockingIOError):
        os.read(raw.complete_bell, 8)
    for _ in range(3):
        raw.set_word(wire.CLIENT_SLEEPS, 1)
        raw.submit(wire.BARRIER)
        assert select.select([raw.complete_bell], [], [], 10)[0]
        assert len(os.read(raw.complete_bell, 8)) == 8
        assert len(raw.take()) == 1
    with pytest.raises(BlockingIOError):
        os.read(raw.complete_bell, 8)


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("word", "value"),
    [
        (wire.SUBMIT_TAIL, 1 << 63),
        (wire.SUBMIT_TAIL, wire.SUBMISSIONS + 1),
        (wire.SUBMIT_TAIL, (1 << 64) - 1),
        (wire.COMPLETE_HEAD, 5),
        (wire.COMPLETE_HEAD, 1 << 63),
    ],
)
def test_ring_indices_that_make_no_sense_end_the_reading_of_that_ring_only(
    node: Node, attach: Attach, word: int, value: int
) -> None:
    raw = wire.RawSession.attach(node.socket, "liar", GROUPS)
    session = attach(node, "i")
    worker = node.worker_pid
    raw.set_word(word, value)
    raw.ring()
    until("the node has said why", lambda: node.logged("malformed ring"))
    (line,) = node.logged("malformed ring")
    assert (line["level"], line["session"], line["pid"]) == ("warn", raw.number, os.getpid())
    puts_and_reads(session, "alive")
    assert node.worker_pid == worker
    raw.close()
    until("its session is gone", lambda: len(node.status()["sessions"]) == 1)


@pytest.mark.sanitizer
def test_a_batch_that_never_ends_is_not_waited_for_by_others(node: Node, attach: Attach) -> None:
    raw = wire.RawSession.attach(node.socket, "endless", GROUPS)
    session = attach(node, "i")
    for number in range(wire.SUBMISSIONS):
        raw.submit(wire.REMOVE, key=blocks.key_of("x", number), last=False)
    until("it is called malformed", lambda: node.logged("malformed ring"))
    puts_and_reads(session, "alive")
    raw.close()


@pytest.mark.sanitizer
def test_pins_of_blocks_that_do_not_exist_are_ignored(node: Node, attach: Attach) -> None:
    raw = wire.RawSession.attach(node.socket, "i", GROUPS, pins=512)
    session = attach(node, "i", spec={"model": "m", "tokens_per_block": 16, "hash_scheme": "sha256"})
    for slot in range(512):
        raw.set_word(wire.PINS_AT + 8 * slot, 0xFFFFFFFFFFFFFFFF - slot * 7919)
    raw.set_word(wire.PIN_HIGH_WATER, (1 << 64) - 1)
    for turn in range(5):
        puts_and_reads(session, f"turn{turn}", 50)
    for first in range(0, 20_000, 500):  # evictions scan those pins
        keys = blocks.keys_of("filler", first, 500)
        assert session.put(keys, blocks.contents_of(keys, 4096)) == 500
    raw.close()


def test_fuzzed_session_memory_harms_nobody(start_node: StartNode, start_agent: StartAgent, attach: Attach) -> None:
    # What it reserves is its own to keep: only a quota holds that in bounds.
    # Its memory may say that a device writes for it, and then what it was writing is set aside for a while.
    node = start_node("groups.fuzzed.quota=16MiB", "gpu.quarantine=1s")
    session = attach(node, "i")
    worker = node.worker_pid
    keys = blocks.keys_of("kept", 0, 100)
    session.put(keys, blocks.contents_of(keys, 4096))
    rounds = 300 if FULL else 25
    agent = start_agent(node, script="fuzzer.py")
    for number in range(rounds):
        agent.send("fuzz", seed=number, instance="fuzzed")
        while not agent.has_answer(0.02):
            puts_and_reads(session, f"round{number}", 10)
        agent.answer()
    assert node.worker_pid == worker
    assert session.match(keys).resident == 100
    with session.acquire(keys) as held:
        assert blocks.wrong_blocks(keys, [b.view() for b in held], 4096) == []
    agent.kill()
    until("the fuzzer's sessions are gone", lambda: len(node.status()["sessions"]) == 1)
    state, own = node.instance("fuzzed"), node.session_of(os.getpid())
    assert own is not None
    assert (state["pending"], state["quarantined"], node.blocks()["granted"]) == (0, 0, own["grants"])
    fresh = attach(node, "after")
    puts_and_reads(fresh, "a", 50)


@pytest.mark.sanitizer
def test_a_fuzzer_of_the_instance_itself_spoils_at_most_its_own_blocks(
    node: Node, start_agent: StartAgent, attach: Attach
) -> None:
    spec = {"model": "m", "tokens_per_block": 16, "hash_scheme": "sha256"}
    session = attach(node, "shared", spec=spec)
    keys = blocks.keys_of("kept", 0, 200)
    session.put(keys, blocks.contents_of(keys, 4096))
    worker = node.worker_pid
    agent = start_agent(node, script="fuzzer.py")
    for number in range(8):
        agent.call("fuzz", seed=1000 + number, instance="shared", gentle=True)
    targets = [bytearray(4096) for _ in keys]
    assert session.get_into(keys, targets) == 200
    assert blocks.wrong_blocks(keys, targets, 4096) == []
    puts_and_reads(session, "alive")
    assert node.worker_pid == worker


# ---- the server's thread


def resident(pid: int) -> int:
    (line,) = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def test_attaching_and_detaching_leaves_nothing_in_the_worker(node: Node) -> None:
    worker = node.until_populated().worker_pid

    def attach_and_detach(times: int) -> None:
        with wire.Link(node.socket) as link:
            for _ in range(times):
                for fd in link.ask(wire.ATTACH, ATTACH).fds:
                    os.close(fd)
                link.ask(wire.DETACH)

    attach_and_detach(500)
    before = resident(worker)
    attach_and_detach(6000)
    assert resident(worker) - before < 2 << 20  # a few hundred bytes an attach would show


ATTACH = wire.encode_attach(wire.encode_spec("i", GROUPS))


def test_frames_that_one_connection_sent_ahead_wait_for_the_turns_of_others(node: Node) -> None:
    with wire.Link(node.socket) as greedy, wire.Link(node.socket) as patient:
        for link in (greedy, patient):
            link.ask(wire.ADMIN, b'{"command": "log_level", "level": "info"}')  # both are known to the worker
        with node.worker_stopped():
            for _ in range(4):
                greedy.send(wire.ATTACH, ATTACH)
                greedy.send(wire.DETACH)
            patient.send(wire.ATTACH, ATTACH)
        numbers = []
        for link, answers in ((patient, 1), (greedy, 8)):
            got = [link.receive() for _ in range(answers)]
            assert all(each.type in (wire.ATTACH_REPLY, wire.DONE) for each in got)
            numbers.append(struct.unpack_from("<Q", got[0].payload)[0])
            for fd in [fd for each in got for fd in each.fds]:
                os.close(fd)
        assert numbers[0] - numbers[1] <= 2, "the one attach came after its turn, not after all of the other's"


def test_status_is_shared_by_those_who_ask_at_once(node: Node) -> None:
    links = [wire.Link(node.socket) for _ in range(40)]
    with node.worker_stopped():
        for link in links:
            link.send(wire.ADMIN, b'{"command": "status"}')
    answers = {link.receive().payload for link in links}
    assert len(answers) < len(links), "each has its time in it: as many reports as answers would all differ"
    for link in links:
        link.close()


def test_answers_with_descriptors_wait_until_earlier_ones_are_read(node: Node, attach: Attach) -> None:
    raw = wire.RawSession.attach(node.socket, "i", GROUPS)
    raw.submit(wire.GRANT, argument=1)
    until("a slab", raw.waiting_completions)
    for _ in range(8):
        raw.link.send(wire.SLABS, struct.pack("<I64I", 64, *[1] * 64))
    until("one is held back", lambda: node.status()["server"]["held_back"] >= 1)
    assert node.status()["server"]["descriptors_in_flight"] == 64
    puts_and_reads(attach(node, "other"), "alive")
    for _ in range(8):
        answer = raw.link.receive()
        assert (answer.type, len(answer.fds)) == (wire.SLABS_REPLY, 64)
        for fd in answer.fds:
            os.close(fd)
    until("none is in flight", lambda: node.status()["server"]["descriptors_in_flight"] == 0)
    raw.close()


def test_a_closed_connection_s_unread_descriptors_still_count(node: Node) -> None:
    raw = wire.RawSession.attach(node.socket, "i", GROUPS)
    raw.submit(wire.GRANT, argument=1)
    until("a slab", raw.waiting_completions)
    raw.link.send(wire.SLABS, struct.pack("<I64I", 64, *[1] * 64))
    until("they are in flight", lambda: node.status()["server"]["descriptors_in_flight"] == 64)
    raw.link.socket.send(b"nonsense")
    until("the node closed it", lambda: node.status()["server"]["closing"] == 1)
    assert node.status()["server"]["descriptors_in_flight"] == 64
    raw.close(detach=False)
    until("they are gone", lambda: node.status()["server"]["closing"] == 0)
    assert node.status()["server"]["descriptors_in_flight"] == 0


# ---- attaches that end half-way


def test_a_client_that_left_before_it_was_attached_leaves_no_session(node: Node) -> None:
    with node.worker_stopped():
        early = wire.Link(node.socket)
        early.send(wire.ATTACH, ATTACH)
        early.close()
    until("its attach has ended", lambda: node.logged("session ended") or node.logged("an attach was given up"))
    assert node.status()["sessions"] == []


def test_a_client_that_never_read_its_attach_reply_leaves_no_session(node: Node) -> None:
    link = wire.Link(node.socket)
    link.send(wire.ATTACH, ATTACH)
    until("it is attached", lambda: node.status()["sessions"])
    link.close()
    until("its session has ended", lambda: not node.status()["sessions"])


def test_a_session_of_which_its_client_never_heard_ends_when_it_tries_again(node: Node) -> None:
    # As when the worker dies before the answer: to the client it is one call to attach.
    unheard = wire.RawSession.attach(node.socket, "i", GROUPS, call=7)
    other = wire.RawSession.attach(node.socket, "i", GROUPS, call=8)
    node.restart_worker()
    again = wire.RawSession.attach(node.socket, "i", GROUPS, call=7)
    assert {each["id"] for each in node.status()["sessions"]} == {other.number, again.number}
    again.close()
    other.close(detach=False)
    unheard.close(detach=False)


def test_an_attach_that_the_keeper_did_not_confirm_in_time_leaves_nothing_behind(node: Node) -> None:
    node.allowed_errors = ["no memory for a slab"]  # of which the keeper was told, too
    wire.RawSession.attach(node.socket, "i", GROUPS).close()  # the instance is there
    stop_process(node.pid)
    try:
        with wire.Link(node.socket, 60) as link, pytest.raises(wire.Refused, match="keeper"):
            link.ask(wire.ATTACH, ATTACH)
    finally:
        os.kill(node.pid, signal.SIGCONT)
    with wire.Link(node.socket, 60) as link:  # this attach comes behind what the keeper had to catch up with
        for fd in link.ask(wire.ATTACH, ATTACH).fds:
            os.close(fd)
        link.ask(wire.DETACH)
    node.restart_worker()
    assert node.status()["sessions"] == []


# ---- isolation


@pytest.mark.sanitizer
def test_no_slab_of_another_instance_is_handed_out(node: Node, attach: Attach) -> None:
    victim = attach(node, "victim")
    keys = blocks.keys_of("a", 0, 3000)
    victim.put(keys, blocks.contents_of(keys, 4096))
    assert node.instance("victim")["slabs"] >= 2
    thief = wire.RawSession.attach(node.socket, "thief", GROUPS)
    request = thief.submit(wire.GRANT, argument=1)
    until("an answer", thief.waiting_completions)
    assert thief.take()[-1].request == request
    own = int(node.instance("thief")["slabs"])
    found, fds = thief.slabs(list(range(own + 1, own + 60)))
    assert (found, fds) == ([], [])
    found, fds = thief.slabs([0, 1, 1 << 22, (1 << 32) - 1])
    assert [index for index, _ in found] == [1]
    theirs = {os.fstat(fd).st_ino for fd in fds}
    for fd in fds:
        os.close(fd)
    victims = {
        os.stat(f"/proc/self/fd/{name}").st_ino
        for name in os.listdir("/proc/self/fd")
        if "cenote-slab" in link_of(int(name))
    }
    assert victims
    assert not theirs & victims
    thief.close()


def link_of(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


@pytest.mark.sanitizer
def test_more_slabs_than_a_frame_holds_are_refused(node: Node) -> None:
    raw = wire.RawSession.attach(node.socket, "i", GROUPS)
    with pytest.raises(wire.Refused, match="slab query"):
        raw.slabs(list(range(65)))
    with pytest.raises(wire.Refused, match="slab query"):
        raw.link.ask(wire.SLABS, struct.pack("<I", 0xFFFFFFFF))
    raw.close()


@pytest.mark.sanitizer
def test_index_and_versions_cannot_be_written_by_a_client(node: Node) -> None:
    raw = wire.RawSession.attach(node.socket, "i", GROUPS)
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    for fd in (raw.index, raw.versions):
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        with pytest.raises(PermissionError):
            mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        with pytest.raises(OSError):
            os.write(fd, b"x")
        with pytest.raises(OSError):
            os.pwrite(fd, b"x", 4096)
        with mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ) as view:
            assert view[:8] == b"CENSEGT\0"
        size, start = ctypes.c_size_t(4096), ctypes.c_long(0)
        assert libc.fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, start, size) != 0
        address = ctypes.c_void_p(libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, start))
        assert libc.mprotect(address, size, mmap.PROT_READ | mmap.PROT_WRITE) != 0
        libc.munmap(address, size)
    raw.close()


@pytest.mark.sanitizer
def test_no_segment_can_be_shrunk_grown_or_sealed_by_a_client(node: Node) -> None:
    raw = wire.RawSession.attach(node.socket, "i", GROUPS)
    raw.submit(wire.GRANT, argument=1)
    until("an answer", raw.waiting_completions)
    slabs, fds = raw.slabs([1])
    assert len(slabs) == 1
    segments = {"memory": raw.memory_fd, "index": raw.index, "versions": raw.versions, "slab": fds[0]}
    for name, fd in segments.items():
        size = os.fstat(fd).st_size
        assert os.fstat(fd).st_mode & 0o777 == 0o600, name
        assert fcntl.fcntl(fd, F_GET_SEALS) & (SHRINK | GROW | SEAL) == SHRINK | GROW | SEAL, name
        for wanted in (0, 4096, size - 4096, size + 4096):
            with pytest.raises(OSError):
                os.ftruncate(fd, wanted)
        with pytest.raises(OSError):
            fcntl.fcntl(fd, F_ADD_SEALS, 0x10)  # F_SEAL_FUTURE_WRITE
        assert os.fstat(fd).st_size == size
    os.close(fds[0])
    raw.close()


@pytest.mark.sanitizer
def test_another_session_s_secret_is_needed_to_speak_for_it(node: Node, attach: Attach) -> None:
    raw = wire.RawSession.attach(node.socket, "i", GROUPS)
    session = attach(node, "i2")
    with wire.Link(node.socket) as link:
        for number, secret in ((raw.number, raw.secret ^ 1), (raw.number, 0), (raw.number + 1, raw.secret), (0, 0)):
            with pytest.raises(wire.Refused, match="does not know this session"):
                link.ask(wire.REATTACH, wire.encode_reattach(number, secret))
        answer = link.ask(wire.REATTACH, wire.encode_reattach(raw.number, raw.secret))
        assert answer.type == wire.REATTACH_REPLY
    assert session.stats()["session"] != raw.number
    raw.close(detach=False)


@pytest.mark.sanitizer
def test_a_touch_that_names_two_groups_costs_no_worker(start_node: StartNode, attach: Attach) -> None:
    node = start_node(capacity="64MiB")
    worker = node.worker_pid
    raw = wire.RawSession.attach(node.socket, "i", {"a": {"kv": 4096}, "b": {"kv": 4096}})
    stored: dict[int, list[int]] = {0: [], 1: []}
    for group, places in stored.items():
        for number in range(64):
            raw.submit(wire.RESERVE, group=group, key=blocks.key_of(f"g{group}", number), argument=1)
            until("answers", lambda: raw.waiting_completions() >= 2)
            answer = raw.take()[0]
            raw.submit(wire.FINISH, block=answer.block, grant_version=answer.grant_version, argument=1)
            until("an answer", raw.waiting_completions)
            assert raw.take()[0].value == 1
            places.append(answer.block)
    for first in range(0, 64, 8):
        runs = struct.pack("<8Q", *[block << 24 | 1 for block in stored[0][first : first + 8]])
        raw.submit(wire.TOUCH, group=0, key=runs, index=0, last=False)
        raw.submit(wire.TOUCH, group=1, index=1, last=True)
    raw.submit(wire.BARRIER)
    until("an answer", raw.waiting_completions)
    puts_and_reads(attach(node, "other"), "b")
    assert node.worker_pid == worker
    raw.close()


def test_a_client_that_does_not_name_parts_keeps_all_of_a_block_after_a_restart(node: Node) -> None:
    groups = {"full": {"r0": 4096, "r1": 4096}}
    raw = wire.RawSession.attach(node.socket, "i", groups, minor=2)
    raw.submit(wire.RESERVE, key=blocks.key_of("a", 0), argument=1)
    until("answers", lambda: raw.waiting_completions() == 2)
    answer = raw.take()[0]
    raw.link.close()
    node.restart_worker()
    raw.link = wire.Link(node.socket)
    held = [(answer.block, answer.grant_version, 0)]
    payload = wire.encode_reattach(raw.number, raw.secret, held=held, minor=2)
    assert raw.link.ask(wire.REATTACH, payload, minor=2).type == wire.REATTACH_REPLY
    raw.submit(wire.FINISH, block=answer.block, grant_version=answer.grant_version, argument=1)
    until("an answer", raw.waiting_completions)
    assert raw.take()[0].code != 0
    assert node.instance("i")["quarantined"] == 1, "it may be writing the other part"
    raw.close()
    until("its detach ends it", lambda: node.instance("i")["quarantined"] == 0)


def test_a_core_dump_of_the_worker_does_not_hold_the_pool(start_node: StartNode, attach: Attach) -> None:
    node = start_node(capacity="256MiB")
    session = attach(node, "i")
    keys = blocks.keys_of("a", 0, 100)
    session.put(keys, blocks.contents_of(keys, 4096))
    flagged = {}
    name = ""
    for line in Path(f"/proc/{node.worker_pid}/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            name = line.split("/", 1)[1] if "/" in line else ""
        elif line.startswith("VmFlags") and "memfd:cenote" in name:
            flagged[name] = "dd" in line.split()
    assert any("cenote-slab" in each for each in flagged)
    assert all(flagged.values()), flagged


# ---- work


@pytest.mark.sanitizer
@pytest.mark.parametrize("operation", [wire.TOUCH, wire.CLEAR])
def test_a_ring_full_of_long_work_ends_nothing_and_others_are_served(
    start_node: StartNode, attach: Attach, operation: int
) -> None:
    node = start_node("dram.policy=lru", "dram.slab_size=32MiB", capacity="128MiB")  # a slab for each
    session = attach(node, "flooded", spec={"model": "m", "tokens_per_block": 16, "hash_scheme": "sha256"})
    other = attach(node, "other")
    for first in range(0, 6000, 500):
        keys = blocks.keys_of("a", first, 500)
        session.put(keys, blocks.contents_of(keys, 4096))
    raw = wire.RawSession.attach(node.socket, "flooded", GROUPS)
    worker = node.worker_pid
    named = [((slab << 18) << 24) | 6000 for slab in range(4)] * 2  # one of them holds the blocks
    runs = struct.pack("<8Q", *named) if operation == wire.TOUCH else b""
    entry = wire.SUBMISSION.pack(operation, wire.FLAG_LAST, 0, 1, 0, 0, 0, 0, 0, len(runs), runs)
    last = wire.SUBMISSION.pack(wire.BARRIER, wire.FLAG_LAST, 0, 2, 0, 0, 0, 0, 0, 0, b"")
    ring = entry * (wire.SUBMISSIONS - 1) + last
    raw.memory[wire.SUBMISSIONS_AT : wire.SUBMISSIONS_AT + len(ring)] = ring
    raw.set_word(wire.SUBMIT_TAIL, wire.SUBMISSIONS)
    raw.ring()
    for turn in range(5):
        puts_and_reads(other, f"turn{turn}")
    until("all of it is carried out", lambda: raw.word(wire.SUBMIT_HEAD) == wire.SUBMISSIONS)
    assert raw.take()[-1].request == 2
    assert node.worker_pid == worker
    if operation == wire.TOUCH:
        until("uses beyond the bound were dropped", lambda: node.counter("touches_dropped") > 0)
    else:
        assert session.match(blocks.keys_of("a", 0, 6000)).resident == 0
    raw.close()
