"""An engine process that a test steers: a JSON command a line on standard input, a JSON answer a line on standard
output.

{"command": "put", "arguments": {…}} -> {"value": …} or {"error": class, "code": …, "message": …, "stored": …}
Keys and contents are those of blocks.py. The process ends when standard input does. Its argument, if any, is the device
that it attaches to.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import blocks
import cenote
import numpy as np
import wire
from lengths import length_of
from tier import seen, write


class Reader(threading.Thread):
    """Reads and verifies a run of keys in a loop until told to stop."""

    def __init__(
        self, agent: Agent, label: str, first: int, count: int, how: str, session: str, must_hold: bool
    ) -> None:
        super().__init__(daemon=True)
        self.session = agent.sessions[session]
        self.size = agent.size
        self.keys = blocks.keys_of(label, first, count)
        self.want = [blocks.content_of(key, self.size) for key in self.keys]
        self.how = how
        self.must_hold = must_hold
        self.stopping = threading.Event()
        self.rounds = 0
        self.verified = 0
        self.wrong: list[str] = []
        self.errors: list[str] = []
        self.longest = 0.0

    def run(self) -> None:
        targets = [np.empty(self.size, np.uint8) for _ in range(32)]
        place = 0
        while not self.stopping.is_set() and len(self.wrong) < 10 and len(self.errors) < 10:
            some = self.keys[place : place + 32]
            want = self.want[place : place + 32]
            begin = time.monotonic()
            try:
                found = self._look(some, want, targets)
            except cenote.CenoteError as why:
                self.errors.append(f"{why.code}: {why}")
                continue
            finally:
                self.longest = max(self.longest, time.monotonic() - begin)
            self.verified += found
            if self.must_hold and found < len(some):
                self.wrong.append(f"only {found} of {len(some)} blocks from {place} on are there")
            place += len(some)
            if place >= len(self.keys):
                place = 0
                self.rounds += 1

    def _look(self, keys: list[bytes], want: list[Any], targets: list[Any]) -> int:
        if self.how == "copy":
            found = self.session.get_into(keys, targets[: len(keys)])
            for i in range(found):
                if not np.array_equal(targets[i], want[i]):
                    self.wrong.append(f"key {keys[i].hex()}: wrong bytes")
            return int(found)
        with self.session.acquire(keys) as held:
            found = len(held)
            for i, view in enumerate(seen(self.session, held)):
                if bytes(view) != want[i].tobytes():
                    self.wrong.append(f"key {keys[i].hex()}: wrong bytes under a pin")
            return found

    def report(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "verified": self.verified,
            "wrong": self.wrong,
            "errors": self.errors,
            "longest": self.longest,
        }


class Asker(threading.Thread):
    """Asks one question after the other until it is stopped, or the group is lost. Ranks that wait for each other's
    answers end without a wait if one holds, and all end behind the question that it would have asked next."""

    def __init__(self, group: cenote.Group, first: int) -> None:
        super().__init__(daemon=True)
        self.group = group
        self.question = first
        self.last: int | None = None
        self.stopping = threading.Event()
        self.holding = threading.Event()
        self.held = threading.Event()
        self.resumed = threading.Event()
        self.answers: dict[int, int] = {}
        self.error: tuple[str, str] | None = None

    def run(self) -> None:
        while not self.stopping.is_set() and self.error is None and (self.last is None or self.question <= self.last):
            if self.holding.is_set() and not self.resumed.is_set():
                self.held.set()
                self.resumed.wait()
                continue
            try:
                self.answers[self.question] = self.group.agree(self.question, length_of(self.question, self.group.rank))
            except cenote.CenoteError as why:
                self.error = (why.code, str(why))
            self.question += 1
        self.held.set()

    def hold(self) -> int:
        """The question that it would ask next."""
        self.holding.set()
        assert self.held.wait(60), "a question hangs"
        return self.question

    def end_with(self, last: int) -> None:
        self.last = last
        self.resumed.set()

    def report(self) -> dict[str, Any]:
        return {
            "rank": self.group.rank,
            "answers": [[question, length] for question, length in self.answers.items()],
            "error": self.error[0] if self.error else None,
            "why": self.error[1] if self.error else "",
        }


class Agent:
    """The commands; each is a method."""

    def __init__(self, device: str | None) -> None:
        self.device = device
        self.sessions: dict[str, Any] = {}
        self.size = 0
        self.held: dict[str, Any] = {}
        self.slots: dict[str, Any] = {}
        self.readers: list[Reader] = []
        self.tickets: list[cenote.Prefetch] = []
        self.groups: dict[str, cenote.Group] = {}

    # ---- life

    def attach(
        self,
        instance: str,
        block: int = 4096,
        groups: dict[str, Any] | None = None,
        instance_group: str | None = None,
        name: str = "s",
        **options: Any,
    ) -> int:
        spec = cenote.InstanceSpec(
            id=instance,
            model="llama-3-8b",
            dtype="bf16",
            layout="page_first",
            tokens_per_block=16,
            groups=groups or {"full": {"parts": {"kv": block}}},
            hash_scheme="sha256_cbor",
            fingerprint=None,
            instance_group=instance_group,
        )
        self.size = block
        self.sessions[name] = cenote.attach(spec, device=self.device, **{"deadline": 60.0, **options})
        return int(self.sessions[name].stats()["session"])

    def become(self, uid: int, gid: int) -> int:
        """Gives up root."""
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        return os.geteuid()

    def close(self, name: str = "s") -> None:
        self.sessions.pop(name).close()

    def stats(self, name: str = "s") -> dict[str, int]:
        return dict(self.sessions[name].stats())

    # ---- writing

    def put(self, label: str, first: int = 0, count: int = 1, salt: int = 0, name: str = "s", batch: int = 64) -> int:
        """Puts a run of keys in batches; how many are new."""
        stored = 0
        for start in range(first, first + count, batch):
            keys = blocks.keys_of(label, start, min(batch, first + count - start))
            try:
                stored += self.sessions[name].put(keys, blocks.contents_of(keys, self.size, salt))
            except cenote.CenoteError as why:
                if why.stored is not None:
                    why.stored += start - first
                raise
        return stored

    def come_and_go(self, instance: str, label: str, count: int, block: int) -> int:
        """Attaches, puts one block, leaves; `count` times. How many puts stored their block."""
        stored = 0
        for number in range(count):
            self.attach(instance, block=block, name="visitor")
            stored += self.put(label, number, 1, name="visitor")
            self.close("visitor")
        return stored

    def put_part(self, label: str, part: str, size: int, offset: int, block: int, count: int = 1) -> int:
        """Puts one part of each block: the bytes [offset, offset + size) of the whole block's content."""
        keys = blocks.keys_of(label, 0, count)
        pieces = [np.ascontiguousarray(blocks.content_of(key, block)[offset : offset + size]) for key in keys]
        return int(self.sessions["s"].put(keys, pieces, part=part))

    def put_async(self, label: str, first: int = 0, count: int = 1) -> int:
        keys = blocks.keys_of(label, first, count)
        return int(self.sessions["s"].put_async(keys, blocks.contents_of(keys, self.size)))

    def flush(self) -> int:
        return int(self.sessions["s"].flush())

    def reserve(self, label: str, first: int = 0, count: int = 1, store: str = "r", name: str = "s") -> list[str]:
        """What each key got: "writable", "PRESENT" or "PENDING"."""
        keys = blocks.keys_of(label, first, count)
        slots = self.sessions[name].reserve(keys)
        self.slots[store] = (keys, slots, self.sessions[name])
        return ["writable" if not isinstance(s, cenote.BlockState) else s.name for s in slots]

    def fill(self, store: str = "r", share: float = 1.0, salt: int = 0) -> None:
        """Writes the first `share` of every reserved block."""
        keys, slots, session = self.slots[store]
        for key, slot in zip(keys, slots, strict=True):
            if not isinstance(slot, cenote.BlockState):
                write(session, slot, blocks.content_of(key, self.size, salt)[: int(self.size * share)])

    def prefetch(self, label: str, first: int = 0, count: int = 1, **options: Any) -> None:
        """Begins; nobody waits for it."""
        self.tickets.append(self.sessions["s"].prefetch(blocks.keys_of(label, first, count), **options))

    def commit(self, store: str = "r", name: str = "s") -> int:
        _, slots, _ = self.slots[store]
        return int(self.sessions[name].commit(slots))

    def abandon(self, store: str = "r") -> None:
        self.sessions["s"].abandon(self.slots[store][1])

    def remove(self, label: str, first: int = 0, count: int = 1) -> int:
        return int(self.sessions["s"].remove(blocks.keys_of(label, first, count)))

    def clear(self) -> None:
        self.sessions["s"].clear()

    # ---- reading

    def match(self, label: str, first: int = 0, count: int = 1, name: str = "s") -> int:
        return int(self.sessions[name].match(blocks.keys_of(label, first, count)).resident)

    def present(self, label: str, first: int = 0, count: int = 1, name: str = "s") -> int:
        """How many of the keys are there, wherever they stand."""
        return sum(self.sessions[name].exists(blocks.keys_of(label, first, count)))

    def verify(self, label: str, first: int = 0, count: int = 1, salt: int = 0, name: str = "s") -> dict[str, int]:
        """Reads each key that is there; {"there": …, "wrong": …}."""
        there = wrong = 0
        target = np.empty(self.size, np.uint8)
        for number in range(first, first + count):
            key = blocks.key_of(label, number)
            if self.sessions[name].get_into([key], [target]):
                there += 1
                wrong += not blocks.is_content_of(key, target, self.size, salt)
        return {"there": there, "wrong": wrong}

    def pin(self, label: str, first: int = 0, count: int = 1, store: str = "h", name: str = "s") -> int:
        keys = blocks.keys_of(label, first, count)
        held = self.sessions[name].acquire(keys)
        self.held[store] = (keys, held, self.sessions[name])
        return len(held)

    def verify_pinned(self, store: str = "h", salt: int = 0) -> int:
        """How many of the pinned blocks have other bytes than they should."""
        keys, held, session = self.held[store]
        return len(blocks.wrong_blocks(keys[: len(held)], seen(session, held), self.size, salt))

    def unpin(self, store: str = "h") -> None:
        self.held.pop(store)[1].release()

    def start_reader(
        self, label: str, count: int, first: int = 0, how: str = "copy", name: str = "s", must_hold: bool = False
    ) -> None:
        reader = Reader(self, label, first, count, how, name, must_hold)
        self.readers.append(reader)
        reader.start()

    def readers_rounds(self) -> list[int]:
        return [reader.rounds for reader in self.readers]

    def stop_readers(self) -> list[dict[str, Any]]:
        for reader in self.readers:
            reader.stopping.set()
        for reader in self.readers:
            reader.join(60)
            if reader.is_alive():
                reader.errors.append("the reader hangs")
        done, self.readers = [reader.report() for reader in self.readers], []
        return done

    # ---- misbehaviour

    def reopen(self, instance: str) -> dict[str, dict[str, str]]:
        """What opening the given descriptors anew says, by segment and intent."""
        raw = wire.RawSession.attach(os.environ["CENOTE_SOCKET"], instance, {"full": {"kv": 4096}})
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self is ours again after the change of user
        raw.submit(wire.GRANT, argument=1)  # answered when there is a slab
        while not raw.waiting_completions():
            time.sleep(0.001)
        _, slabs = raw.slabs([1])
        said: dict[str, dict[str, str]] = {}
        fds = {"memory": raw.memory_fd, "index": raw.index, "versions": raw.versions, "slab": slabs[0]}
        for name, fd in fds.items():
            said[name] = {}
            os.readlink(f"/proc/self/fd/{fd}")
            for intent, flags in (("read", os.O_RDONLY), ("write", os.O_RDWR)):
                try:
                    os.close(os.open(f"/proc/self/fd/{fd}", flags))
                    said[name][intent] = "opened"
                except OSError as why:
                    said[name][intent] = type(why).__name__
        return said

    def fork(self, label: str) -> dict[str, str]:
        """What a child's calls of the parent's session say, by call."""
        session = self.sessions["s"]
        keys = blocks.keys_of(label, 0, 1)
        buffer = np.zeros(self.size, np.uint8)
        calls = {
            "match": lambda: session.match(keys),
            "exists": lambda: session.exists(keys),
            "put": lambda: session.put(keys, [buffer]),
            "put_async": lambda: session.put_async(keys, [buffer]),
            "flush": session.flush,
            "get_into": lambda: session.get_into(keys, [buffer]),
            "acquire": lambda: session.acquire(keys),
            "reserve": lambda: session.reserve(keys),
            "commit": lambda: session.commit([]),
            "remove": lambda: session.remove(keys),
            "clear": session.clear,
            "stats": session.stats,
        }
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            said = {}
            for what, call in calls.items():
                try:
                    call()
                    said[what] = "no error"
                except cenote.CenoteError as why:
                    said[what] = why.code
            os.write(into, json.dumps(said).encode())
            os._exit(0)
        os.close(into)
        with os.fdopen(out, "rb") as pipe:
            said = json.loads(pipe.read())
        os.waitpid(child, 0)
        return dict(said)

    def fork_and_attach(self, instance: str, label: str, count: int) -> int:
        """A child attaches for itself and verifies a run; the number of right blocks."""
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            right = -1
            try:
                self.attach(instance, block=self.size, name="child")
                seen = self.verify(label, 0, count, name="child")
                right = seen["there"] - seen["wrong"]
                self.close("child")
            finally:
                os.write(into, str(right).encode())
                os._exit(0)
        os.close(into)
        with os.fdopen(out, "rb") as pipe:
            right = int(pipe.read())
        os.waitpid(child, 0)
        return right

    def fork_and_die(self) -> None:
        """A child that keeps every descriptor stays behind for 2 s while this process dies."""
        if os.fork() == 0:
            time.sleep(2)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    # ---- groups of ranks

    def join_group(self, group: str, rank: int, size: int, timeout: float, wait: float = 20.0, name: str = "s") -> None:
        self.groups[group] = self.sessions[name].join_group(group, rank, size, timeout, wait=wait)

    def agree(self, group: str, question: int, length: int) -> int:
        return self.groups[group].agree(question, length)

    def agree_many(self, group: str, first: int, count: int) -> list[list[int]]:
        """All at once, and what came, in the order of the questions."""
        own = self.groups[group]
        questions = list(range(first, first + count))
        got: dict[int, int] = {}
        for at in range(0, count, 500):
            some = questions[at : at + 500]
            own.agree_start(some, [length_of(question, own.rank) for question in some])
            while len(got) < at + len(some):
                got |= own.agree_poll(1.0)
        return [[question, got[question]] for question in questions]

    def start_asking(self, group: str, first: int = 0) -> None:
        self.asker = Asker(self.groups[group], first)
        self.asker.start()

    def asker_report(self) -> dict[str, Any]:
        """Of start_asking(), so far."""
        return self.asker.report()

    def hold_asking(self) -> int:
        return int(self.asker.hold())

    def end_asking_with(self, last: int) -> None:
        self.asker.end_with(last)

    def end_asking(self, wait: float = 60.0) -> dict[str, Any]:
        """Behind the last question that it was given, or the group's loss."""
        self.asker.join(wait)
        assert not self.asker.is_alive(), "a question hangs"
        return dict(self.asker.report())

    def stop_asking(self, wait: float = 60.0) -> dict[str, Any]:
        self.asker.stopping.set()
        self.asker.join(wait)
        assert not self.asker.is_alive(), "a question hangs"
        return self.asker.report()

    def leave_group(self, group: str) -> None:
        self.groups.pop(group).leave()

    def break_sockets(self) -> int:
        """Shuts down every connection to a node that this process has; how many."""
        broken = 0
        for entry in Path("/proc/self/fd").iterdir():
            try:
                is_socket = os.readlink(entry).startswith("socket:")
            except OSError:
                continue
            if not is_socket:
                continue
            copy = socket.socket(fileno=os.dup(int(entry.name)))
            with copy:
                if copy.family != socket.AF_UNIX or copy.type != socket.SOCK_SEQPACKET:
                    continue
                if Path(os.fsdecode(copy.getpeername())).name == "cenote.sock":  # a GPU's driver has some of its own
                    copy.shutdown(socket.SHUT_RDWR)
                    broken += 1
        return broken

    def timed(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Another command, with how long it took and what it raised."""
        begin = time.monotonic()
        code = "ok"
        value = None
        try:
            value = getattr(self, what)(**arguments)
        except cenote.CenoteError as why:
            code = why.code
        return {"seconds": time.monotonic() - begin, "code": code, "value": value}


def main() -> None:
    agent = Agent(sys.argv[1] if len(sys.argv) > 1 else None)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # nothing else may print into the answers
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply: dict[str, Any] = {"value": getattr(agent, request["command"])(**request["arguments"])}
        except cenote.CenoteError as why:
            reply = {"error": type(why).__name__, "code": why.code, "message": str(why), "stored": why.stored}
        except Exception as why:
            reply = {"error": type(why).__name__, "code": "python", "message": repr(why), "stored": None}
        answers.write(json.dumps(reply) + "\n")
    os._exit(0)  # as an engine that ends without a word: the node has to notice


if __name__ == "__main__":
    main()
