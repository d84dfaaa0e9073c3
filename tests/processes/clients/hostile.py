"""A client that breaks every rule of the client side: rings, session memory, frames, descriptors and their flags.

What it does follows from a seed alone. `gentle` leaves out what other sessions of the same instance may lose blocks
by (removals, writes to blocks that are not its own), so that those must read right bytes all the while.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import wire
from fuzzer import serve

GROUPS = {"full": {"a": 2048, "b": 2048}}
HARMFUL = (wire.REMOVE, wire.CLEAR)
OPERATIONS = range(1, 21)
MOST_SEEN = 256
PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
F_ADD_SEALS, F_SETLEASE, F_NOTIFY, F_SETSIG = 1033, 1024, 1026, 10


def mutated(dice: random.Random, data: bytes) -> bytes:
    """One to four places changed, cut or doubled."""
    out = bytearray(data)
    for _ in range(dice.randrange(1, 5)):
        if not out:
            break
        at = dice.randrange(len(out))
        match dice.randrange(5):
            case 0:
                out[at] = dice.randrange(256)
            case 1:
                out[at] ^= 1 << dice.randrange(8)
            case 2:
                width = min(dice.choice([2, 4, 8]), len(out) - at)
                value = dice.choice([0, 1, (1 << 8 * width) - 1, 1 << (8 * width - 1)])
                out[at : at + width] = value.to_bytes(width, "little")
            case 3:
                del out[at : at + dice.randrange(1, 9)]
            case 4:
                out[at:at] = out[at : at + dice.randrange(1, 65)]
    return bytes(out)


class Hostile:
    """One attached process of ill will. Keys come from a small set, so that its requests meet each other."""

    def __init__(self, dice: random.Random, instance: str, gentle: bool) -> None:
        self.dice = dice
        self.instance = instance
        self.gentle = gentle
        self.place = os.environ["CENOTE_SOCKET"]
        self.sessions: list[wire.RawSession] = []
        self.sent: list[bytes] = []
        self.blocks: list[tuple[int, int]] = []  # (block, grant version) of what the node once gave
        self.secrets: list[tuple[int, int]] = []

    # ---- sessions

    def session(self) -> wire.RawSession:
        if self.sessions and (len(self.sessions) >= 4 or self.dice.random() < 0.9):
            return self.dice.choice(self.sessions)
        raw = wire.RawSession.attach(
            self.place,
            self.instance,
            GROUPS,
            pins=self.dice.choice([1, 64, 4096]),
            minor=self.dice.choice([1, 2, wire.MINOR]),
            name=self.dice.choice(["h", "", "\x1b[31m", "x" * 100]),
        )
        self.sessions.append(raw)
        self.secrets.append((raw.number, raw.secret))
        return raw

    def leave(self) -> None:
        """Ends a session in one of the ways that there are, the orderly one among them."""
        if not self.sessions:
            return
        raw = self.sessions.pop(self.dice.randrange(len(self.sessions)))
        how = self.dice.randrange(3)
        if how == 0:
            with contextlib.suppress(wire.Refused, OSError):
                raw.close()
                return
        if how == 1:
            with contextlib.suppress(OSError):
                raw.link.socket.shutdown(socket.SHUT_RDWR)
        # The node keeps such a session until this process ends, or until it says goodbye: it does, in a new connection.
        with contextlib.suppress(wire.Refused, OSError), wire.Link(self.place, 5) as link:
            link.ask(wire.REATTACH, struct.pack("<QQI", raw.number, raw.secret, 0))
            link.ask(wire.DETACH)
        with contextlib.suppress(OSError):
            raw.close(detach=False)

    # ---- rings

    def key(self) -> bytes:
        width = self.dice.choice([32, 32, 32, 8, 64, self.dice.randrange(65)])
        return self.dice.randrange(40).to_bytes(1, "little") * width

    def entry(self, request: int, index: int, last: bool) -> bytes:
        dice = self.dice
        if self.sent and dice.random() < 0.25:
            made = dice.choice(self.sent)
            made = mutated(dice, made)[: wire.SUBMISSION_BYTES] if dice.random() < 0.5 else made
            made = made.ljust(wire.SUBMISSION_BYTES, b"\0")
        else:
            operation = dice.choice(OPERATIONS) if dice.random() < 0.95 else dice.randrange(256)
            key = self.key()
            block, version = dice.choice(self.blocks) if self.blocks else (dice.randrange(1 << 24), 1)
            made = wire.SUBMISSION.pack(
                operation,
                wire.FLAG_LAST if last else 0,
                dice.choice([0, 0, 0, 0, 1, dice.randrange(1 << 16)]),
                request,
                index,
                version + dice.choice([0, 0, 0, 1, -1]) & 0xFFFFFFFF,
                dice.choice([block, block, block + 1, dice.randrange(1 << 64)]),
                dice.choice([0, 1, 2, 3, 8, 64, 1 << 63, dice.randrange(1 << 64)]),
                dice.choice([0, 0, 8, 1024, dice.randrange(1 << 64)]),
                len(key),
                key if dice.random() < 0.8 else struct.pack("<8Q", *[self.run() for _ in range(8)]),
            )
            made = made[: wire.PARENT_AT] + struct.pack("<QQ", dice.choice([0, 1, 1, 1, dice.randrange(1 << 64)]), 0)
        if self.gentle and made[0] in HARMFUL:
            made = bytes([wire.BARRIER]) + made[1:]
        return made

    def run(self) -> int:
        """As a touch carries them: block (40 bits) and length (24)."""
        block = self.dice.choice(self.blocks)[0] if self.blocks else self.dice.randrange(1 << 40)
        return (block << 24 | self.dice.choice([1, 8, 1 << 12, (1 << 24) - 1])) & (1 << 64) - 1

    def ring_entries(self) -> None:
        raw = self.session()
        tail = raw.word(wire.SUBMIT_TAIL)
        room = wire.SUBMISSIONS - (tail - raw.word(wire.SUBMIT_HEAD))
        if not 0 < room <= wire.SUBMISSIONS:
            return self.leave()
        count = min(self.dice.choice([1, 1, 2, 8, 64, 512]), room)
        request = self.dice.choice([1, 2, self.dice.randrange(1 << 32)])
        entries = [self.entry(request, i, i + 1 == count or self.dice.random() < 0.3) for i in range(count)]
        self.push(raw, *entries)
        self.look_at_answers(raw)

    def push(self, raw: wire.RawSession, *entries: bytes) -> None:
        """Whole entries, shown at once."""
        tail = raw.word(wire.SUBMIT_TAIL)
        if tail + len(entries) - raw.word(wire.SUBMIT_HEAD) > wire.SUBMISSIONS:
            return
        for i, entry in enumerate(entries):
            at = wire.SUBMISSIONS_AT + (tail + i) % wire.SUBMISSIONS * wire.SUBMISSION_BYTES
            raw.memory[at : at + wire.SUBMISSION_BYTES] = entry
        raw.set_word(wire.SUBMIT_TAIL, tail + len(entries))
        raw.ring()
        self.sent += entries
        del self.sent[:-MOST_SEEN]

    def writes(self) -> None:
        """Reserves and grants as they should be used, then finished and committed twice, by halves, or by others."""
        dice, raw = self.dice, self.session()
        wanted = [(key := self.key(), len(key), dice.choice([1, 2, 3, 3])) for _ in range(8)]
        entry = wire.SUBMISSION.pack
        self.push(raw, *[entry(wire.RESERVE, 1, 0, 5, 0, 0, 0, part, 0, n, k) for k, n, part in wanted])
        self.push(raw, entry(wire.GRANT, 1, 0, 6, 0, 0, 0, 8, 0, 0, b""))
        time.sleep(0.002)
        self.look_at_answers(raw)
        for block, version in self.blocks[-16:]:
            by = raw if dice.random() < 0.9 else self.session()
            key = self.key()
            parts = dice.choice([1, 2, 3])
            made = dice.choice(
                [
                    entry(wire.FINISH, 1, 0, 7, 0, version, block, parts, 0, 0, b""),
                    entry(wire.RELEASE, 1, 0, 8, 0, version, block, dice.choice([0, parts]), 0, 0, b""),
                    entry(wire.COMMIT, 1, 0, 9, 0, version, block, 0, 8, len(key), key),
                ]
            )
            self.push(by, *[made] * dice.choice([1, 1, 2]))

    def look_at_answers(self, raw: wire.RawSession) -> None:
        """Learns the blocks that it was given, from answers and from grant slots."""
        if not 0 <= raw.waiting_completions() <= wire.COMPLETIONS:
            return
        if self.dice.random() < 0.9:
            self.blocks += [(c.block, c.grant_version) for c in raw.take() if c.block]
        for slot in self.dice.sample(range(wire.GRANTS), 8):
            word, block = struct.unpack_from("<QQ", raw.memory, wire.GRANTS_AT + slot * wire.GRANT_BYTES)
            if block:
                self.blocks.append((block, word >> 32))
        del self.blocks[:-MOST_SEEN]

    def ring_words(self) -> None:
        """Noise in shared memory while it is being read."""
        raw = self.session()
        begin = wire.GRANTS_AT if self.gentle else wire.WORKER_EPOCH
        for _ in range(self.dice.randrange(1, 20)):
            at = self.dice.randrange(begin, len(raw.memory) - 64)
            size = self.dice.choice([8, 8, 64])
            raw.memory[at : at + size] = self.dice.randbytes(size)
        raw.ring()

    def ring_indices(self) -> None:
        raw = self.session()
        word = self.dice.choice([wire.SUBMIT_TAIL, wire.COMPLETE_HEAD, wire.CLIENT_SLEEPS, wire.WORKER_SLEEPS])
        raw.set_word(word, self.dice.choice([0, 1, 1 << 63, (1 << 64) - 1, self.dice.randrange(1 << 64)]))
        raw.ring()
        self.leave()

    # ---- frames

    def spec(self) -> bytes:
        name = self.dice.choice([self.instance, self.instance + str(self.dice.randrange(8))])
        payload = wire.encode_attach(wire.encode_spec(name, GROUPS), call=self.dice.randrange(3))
        return mutated(self.dice, payload) if self.dice.random() < 0.8 else payload

    def admin(self) -> bytes:
        commands = ["status", "stats", "session_kill", "log_level", "unheard of", 7, None, ["status"]]
        request: dict[str, Any] = {"command": self.dice.choice(commands)}
        for field in ("instance", "id", "level", "all"):
            if self.dice.random() < 0.5:
                request[field] = self.dice.choice([1, -1, 1e300, "x", None, [], {}, True, "\x1b[2J"])
        request.pop("all", None)
        payload = json.dumps(request).encode()
        return self.dice.choice([payload, mutated(self.dice, payload), b"[" * 5000])

    def frame(self) -> tuple[int, bytes]:
        dice = self.dice
        number, secret = dice.choice(self.secrets) if self.secrets else (1, 1)
        held = b"".join(
            struct.pack("<QIQ", *dice.choice(self.blocks), 1) for _ in range(dice.randrange(4)) if self.blocks
        )
        choices: list[tuple[int, bytes]] = [
            (wire.ATTACH, self.spec()),
            (wire.SLABS, struct.pack("<I4I", dice.choice([4, 4, 1 << 31]), 0, 1, 2, dice.randrange(1 << 32))),
            (wire.REATTACH, struct.pack("<QQI", number, secret ^ dice.choice([0, 1]), len(held) // 20) + held),
            (wire.DETACH, b""),
            (wire.ADMIN, self.admin()),
            (dice.randrange(1 << 16), dice.randbytes(dice.randrange(200))),
        ]
        kind, payload = dice.choice(choices)
        return kind, mutated(dice, payload) if dice.random() < 0.3 else payload

    def frames(self) -> None:
        """A connection of its own that says much, reads little, and brings descriptors that nobody asked for."""
        with wire.Link(self.place, 2) as link:
            link.socket.setblocking(False)
            given = [os.memfd_create("unasked")]
            given += [given[0]] * self.dice.randrange(3)
            for _ in range(self.dice.randrange(1, 30)):
                kind, payload = self.frame()
                header = wire.FRAME.pack(
                    self.dice.choice([wire.MAGIC] * 9 + [0]),
                    self.dice.choice([wire.MAJOR] * 9 + [9]),
                    self.dice.choice([wire.MINOR] * 4 + [0, 99]),
                    kind,
                    self.dice.choice([0, 0, 0, 1, 0xFFFF]),
                    len(payload) if self.dice.random() < 0.95 else self.dice.randrange(1 << 32),
                    self.dice.randrange(1 << 32),
                    0,
                )
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", given))]
                with contextlib.suppress(OSError):
                    link.socket.sendmsg([header + payload], rights if self.dice.random() < 0.2 else [])
                if self.dice.random() < 0.5:
                    with contextlib.suppress(OSError, ValueError, AssertionError):
                        for fd in link.receive().fds:
                            os.close(fd)
            os.close(given[0])

    # ---- descriptors

    def flags(self) -> None:
        """Makes what it shares with the node blocking, full, shut down, leased, asynchronous."""
        raw = self.session()
        fds = [raw.submit_bell, raw.complete_bell, raw.link.socket.fileno(), raw.memory_fd, raw.index, raw.versions]
        fd = self.dice.choice(fds)
        actions: list[Callable[[], object]] = [
            lambda: fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) ^ os.O_NONBLOCK),
            lambda: fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) ^ os.O_APPEND),
            lambda: fcntl.fcntl(fd, F_SETLEASE, fcntl.F_WRLCK),
            lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB),
            lambda: fcntl.fcntl(fd, F_ADD_SEALS, self.dice.randrange(64)),
            lambda: os.ftruncate(fd, self.dice.choice([0, 4096, 1 << 40])),
            lambda: socket.socket(fileno=os.dup(fd)).shutdown(self.dice.randrange(3)),
        ]
        for _ in range(3):
            with contextlib.suppress(OSError):
                self.dice.choice(actions)()

    def fill_bells(self) -> None:
        """Both doorbells as full as they get; then it pretends to sleep, so that the node rings."""
        raw = self.session()
        for fd in (raw.submit_bell, raw.complete_bell):
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
            with contextlib.suppress(OSError):
                for _ in range(1000):
                    os.write(fd, (0xFFFFFFFFFFFFFFFE).to_bytes(8, "little"))
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
        for _ in range(4):
            raw.set_word(wire.CLIENT_SLEEPS, 1)
            if raw.word(wire.SUBMIT_TAIL) - raw.word(wire.SUBMIT_HEAD) < wire.SUBMISSIONS:
                tail = raw.word(wire.SUBMIT_TAIL)
                at = wire.SUBMISSIONS_AT + tail % wire.SUBMISSIONS * wire.SUBMISSION_BYTES
                raw.memory[at : at + wire.SUBMISSION_BYTES] = wire.SUBMISSION.pack(
                    wire.BARRIER, wire.FLAG_LAST, 0, 1, 0, 0, 0, 0, 0, 0, b""
                )
                raw.set_word(wire.SUBMIT_TAIL, tail + 1)
        # The node hears of it by a second session of this process, whose bell is sound.
        with contextlib.suppress(OSError):
            os.set_blocking(raw.submit_bell, False)
            os.read(raw.submit_bell, 8)
            raw.ring()

    def replies_unread(self) -> None:
        """Asks for descriptors on many connections, reads none."""
        links = []
        with contextlib.suppress(OSError):
            for _ in range(self.dice.randrange(1, 12)):
                link = wire.Link(self.place, 2)
                links.append(link)
                link.socket.setblocking(False)
                payload = wire.encode_attach(wire.encode_spec(self.instance, GROUPS))
                for _ in range(8):
                    link.send(wire.ATTACH, payload)
                    link.send(wire.SLABS, struct.pack("<I4I", 4, 0, 1, 2, 3))
        time.sleep(0.01)
        for link in links:
            with contextlib.suppress(OSError, wire.Refused, AssertionError, ValueError):
                link.socket.settimeout(0.1)
                link.send(wire.DETACH)  # its session ends with a word of its own
                while True:
                    frame = link.receive()
                    for fd in frame.fds:
                        os.close(fd)
                    if frame.type == wire.DONE:
                        break
            link.close()

    def step(self) -> str:
        actions = [self.ring_entries] * 12 + [self.writes] * 12 + [self.ring_words] * 3 + [self.frames] * 3
        actions += [self.ring_indices, self.flags, self.fill_bells, self.replies_unread, self.leave]
        action = self.dice.choice(actions)
        try:
            action()
        except wire.Refused:
            return "refused"
        except (OSError, ConnectionError):
            self.forget()
            return "cut off"
        return action.__name__

    def forget(self) -> None:
        while self.sessions:
            self.leave()


def campaign(seed: int, steps: int, instance: str, gentle: bool = False) -> dict[str, int]:
    """Takes so many steps, as several clients in turn; what it did, by name."""
    dice = random.Random(seed)
    done: Counter[str] = Counter()
    while done.total() < steps:
        client = Hostile(dice, instance, gentle)
        for _ in range(min(dice.randrange(20, 200), steps - done.total())):
            done[client.step()] += 1
        client.forget()
    return dict(done)


def become(uid: int) -> int:
    """Gives up root."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    return os.geteuid()


if __name__ == "__main__":
    serve({"campaign": campaign, "become": become})
