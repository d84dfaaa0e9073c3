"""The node's socket and session memory without libcenote: for clients that break the rules.

Frames are those of transport/local/frame.hpp, session memory is that of memory/session_memory.hpp.
"""

from __future__ import annotations

import array
import json
import mmap
import os
import socket
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FRAME = struct.Struct("<IHHHHIII")  # magic, major, minor, type, flags, size, request, spare
MAGIC = 0x50544E43
MAJOR, MINOR = 1, 9
FAILURE, ATTACH, ATTACH_REPLY, REATTACH, REATTACH_REPLY, SLABS, SLABS_REPLY, DETACH, DONE, ADMIN, ADMIN_REPLY = range(
    1, 12
)
UNCONFIRMED = 12
FLAG_MORE = 1

# session memory
HEADER_BYTES = 4096
SUBMISSIONS, SUBMISSION_BYTES = 2048, 128
COMPLETIONS, COMPLETION_BYTES = 8192, 32
GRANTS, GRANT_BYTES = 1024, 16
SUBMISSIONS_AT = HEADER_BYTES
COMPLETIONS_AT = SUBMISSIONS_AT + SUBMISSIONS * SUBMISSION_BYTES
GRANTS_AT = COMPLETIONS_AT + COMPLETIONS * COMPLETION_BYTES
PINS_AT = GRANTS_AT + GRANTS * GRANT_BYTES
# words of the header; each group has a cache line of its own
WORKER_EPOCH, PHASE = 128, 136
SUBMIT_TAIL, CLIENT_SLEEPS = 192, 200
SUBMIT_HEAD, WORKER_SLEEPS = 256, 264
COMPLETE_TAIL, COMPLETE_HEAD, PIN_HIGH_WATER = 320, 384, 448

# operations of a submission
GRANT, COMMIT, RESERVE, FINISH, RELEASE, REMOVE, CLEAR, TOUCH, BARRIER = range(1, 10)
JOIN, AGREE, LEAVE, PUBLISH, FOLLOW = range(16, 21)
PARENT_AT = 112  # of a submission
FLAG_LAST = 1
FLAG_CHECKSUM = 2
SUBMISSION = struct.Struct("<BBHIIIQQQB7x64s16x")
COMPLETION = struct.Struct("<IHHIIQQ")
assert SUBMISSION.size == SUBMISSION_BYTES
assert COMPLETION.size == COMPLETION_BYTES

MAX_SLABS_A_QUERY = 64


class Refused(Exception):
    """A failure frame of the node."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass
class Frame:
    type: int
    major: int
    minor: int
    flags: int
    request: int
    payload: bytes
    fds: list[int]

    def failure(self) -> Refused:
        code, size = struct.unpack_from("<HI", self.payload)
        return Refused(code, self.payload[6 : 6 + size].decode())


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(raw)) + raw


def encode_spec(
    instance: str, groups: dict[str, dict[str, int]], *, model: str = "m", instance_group: str = "", tokens: int = 16
) -> bytes:
    out = b"".join(text(t) for t in (instance, model, "bf16", "page_first", "sha256", "", instance_group))
    out += struct.pack("<II", tokens, len(groups))
    for name, parts in groups.items():
        out += text(name) + struct.pack("<I", len(parts))
        for part, size in parts.items():
            out += text(part) + struct.pack("<Q", size)
    return out


def encode_attach(
    spec: bytes,
    pins: int = 8,
    token: str = "",
    name: str | bytes = "raw",
    call: int = 0,
    *,
    device: str = "",
    part: int = 0,
    minor: int = MINOR,
) -> bytes:
    """`spec`: of encode_spec()."""
    out = spec + struct.pack("<I", pins) + text(token)
    if minor >= 1:
        out += text(name)
    if minor >= 4:
        out += struct.pack("<Q", call)
    return out + (text(device) + struct.pack("<I", part) if minor >= 8 else b"")


def encode_reattach(
    number: int, secret: int, *, listed_in: int = 0, held: list[tuple[int, int, int]] | None = None, minor: int = MINOR
) -> bytes:
    """`held`: (block, grant version, parts). Clients before 1.3 say neither parts nor the worker's epoch."""
    blocks = held or []
    out = struct.pack("<QQ", number, secret)
    if minor >= 3:
        return out + struct.pack("<QI", listed_in, len(blocks)) + b"".join(struct.pack("<QIQ", *b) for b in blocks)
    return out + struct.pack("<I", len(blocks)) + b"".join(struct.pack("<QI", *b[:2]) for b in blocks)


class Link:
    """One connection. Not for several threads."""

    def __init__(self, path: str | Path, timeout: float = 60.0) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        kind: int,
        payload: bytes = b"",
        *,
        major: int = MAJOR,
        minor: int = MINOR,
        magic: int = MAGIC,
        size: int | None = None,
        request: int = 1,
        flags: int = 0,
    ) -> None:
        stated = len(payload) if size is None else size
        self.socket.send(FRAME.pack(magic, major, minor, kind, flags, stated, request, 0) + payload)

    def receive(self) -> Frame:
        """The next frame; ConnectionError at the end of the stream."""
        numbers = array.array("i")
        data, control, _, _ = self.socket.recvmsg(1 << 17, socket.CMSG_SPACE(64 * numbers.itemsize))
        for level, kind, raw in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers.frombytes(raw[: len(raw) - len(raw) % numbers.itemsize])
        if not data:
            raise ConnectionError("the node closed the connection")
        magic, major, minor, frame, flags, size, request, _ = FRAME.unpack_from(data)
        assert magic == MAGIC
        assert size == len(data) - FRAME.size
        return Frame(frame, major, minor, flags, request, data[FRAME.size :], list(numbers))

    def ask(self, kind: int, payload: bytes = b"", **header: int) -> Frame:
        """Sends and returns the answer; a failure frame is raised."""
        self.send(kind, payload, **header)
        answer = self.receive()
        if answer.type == FAILURE:
            raise answer.failure()
        return answer

    def admin(self, command: str, **arguments: Any) -> Any:
        answer = self.ask(ADMIN, json.dumps({"command": command, **arguments}).encode())
        whole = answer.payload
        while answer.flags & FLAG_MORE:
            answer = self.receive()
            whole += answer.payload
        return json.loads(whole)


def ask_node(path: str | Path, command: str, timeout: float = 60.0, **arguments: Any) -> Any:
    with Link(path, timeout) as link:
        return link.admin(command, **arguments)


@dataclass
class Completion:
    request: int
    kind: int
    code: int
    index: int
    grant_version: int
    block: int
    value: int


@dataclass
class RawSession:
    """An attached session whose memory is written by hand."""

    link: Link
    number: int
    secret: int
    epoch: int
    pin_slots: int
    memory: mmap.mmap
    submit_bell: int
    complete_bell: int
    index: int
    versions: int
    memory_fd: int
    next_request: int = field(default=1)
    # Copies eight bytes in one store. struct does not: it writes zeros first, which the worker may read.
    words: memoryview = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.words = memoryview(self.memory).cast("Q")

    @classmethod
    def attach(
        cls,
        path: str | Path,
        instance: str,
        groups: dict[str, dict[str, int]],
        *,
        pins: int = 64,
        minor: int = MINOR,
        token: str = "",
        name: str = "raw",
        call: int = 0,
        **spec: Any,
    ) -> RawSession:
        link = Link(path)
        payload = encode_attach(encode_spec(instance, groups, **spec), pins, token, name, call, minor=minor)
        answer = link.ask(ATTACH, payload, minor=minor)
        number, secret, epoch, slots = struct.unpack_from("<QQQI", answer.payload)
        memory_fd, submit, complete, index, versions = answer.fds
        memory = mmap.mmap(memory_fd, os.fstat(memory_fd).st_size)
        return cls(link, number, secret, epoch, slots, memory, submit, complete, index, versions, memory_fd)

    def close(self, *, detach: bool = True) -> None:
        if detach:
            self.link.ask(DETACH)
        self.link.close()
        self.words.release()
        self.memory.close()
        for fd in (self.submit_bell, self.complete_bell, self.index, self.versions, self.memory_fd):
            os.close(fd)

    def word(self, at: int) -> int:
        return int(self.words[at // 8])

    def set_word(self, at: int, value: int) -> None:
        self.words[at // 8] = value & 0xFFFFFFFFFFFFFFFF

    def ring(self) -> None:
        os.write(self.submit_bell, (1).to_bytes(8, "little"))

    def submit(
        self,
        operation: int,
        *,
        group: int = 0,
        key: bytes = b"",
        block: int = 0,
        grant_version: int = 0,
        argument: int = 0,
        want: int = 0,
        parent: int = 0,
        last: bool = True,
        index: int = 0,
        checksum: int | None = None,
    ) -> int:
        """One batch of one entry (unless last=False); returns its request number."""
        request = self.next_request
        self.next_request += 1 if last else 0
        tail = self.word(SUBMIT_TAIL)
        entry = SUBMISSION.pack(
            operation,
            (FLAG_LAST if last else 0) | (0 if checksum is None else FLAG_CHECKSUM),
            group,
            request,
            index,
            grant_version,
            block,
            argument,
            want,
            len(key),
            key,
        )
        entry = entry[:PARENT_AT] + struct.pack("<QQ", parent, checksum or 0)
        at = SUBMISSIONS_AT + tail % SUBMISSIONS * SUBMISSION_BYTES
        self.memory[at : at + SUBMISSION_BYTES] = entry
        self.set_word(SUBMIT_TAIL, tail + 1)
        self.ring()
        return request

    def waiting_completions(self) -> int:
        return self.word(COMPLETE_TAIL) - self.word(COMPLETE_HEAD)

    def take(self) -> list[Completion]:
        """What has arrived."""
        head, tail = self.word(COMPLETE_HEAD), self.word(COMPLETE_TAIL)
        out = []
        for place in range(head, tail):
            at = COMPLETIONS_AT + place % COMPLETIONS * COMPLETION_BYTES
            out.append(Completion(*COMPLETION.unpack_from(self.memory, at)))
        self.set_word(COMPLETE_HEAD, tail)
        return out

    def slabs(self, indices: list[int]) -> tuple[list[tuple[int, int]], list[int]]:
        """((index, bytes) of the slabs that the node gave, their descriptors)."""
        payload = struct.pack(f"<I{len(indices)}I", len(indices), *indices)
        answer = self.link.ask(SLABS, payload)
        (count,) = struct.unpack_from("<I", answer.payload)
        found = [struct.unpack_from("<IQ", answer.payload, 4 + 12 * i) for i in range(count)]
        return found, answer.fds
