"""A subscriber of a node's KV events, and a list that is kept from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import zmq
from indexer import open_socket

END = 0xFFFF_FFFF_FFFF_FFFF
SUB, DEALER = zmq.SUB, zmq.DEALER


class Event(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["BlockStored", "BlockRemoved", "AllBlocksCleared"]
    medium: Literal["CPU", "DISK"]
    block_hashes: list[bytes] = []
    group_idx: int | None = None


class Socket:
    """Of one thread."""

    def __init__(self, kind: int, endpoint: str) -> None:
        self._socket = open_socket(kind, endpoint, connect=True)
        if kind == SUB:
            self._socket.subscribe(b"kv@")

    def send(self, *frames: bytes) -> None:
        self._socket.send_multipart(frames)

    def receive(self, limit: float) -> list[bytes] | None:
        """The frames of the next message; None: there is none within `limit` seconds."""
        return self._socket.recv_multipart() if self._socket.poll(int(limit * 1000)) else None

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def answers(endpoint: str, request: bytes, limit: float, topic: bytes = b"") -> Iterator[tuple[bytes, int, bytes]]:
    """(topic, number, payload) of each frame that answers a request, the end with an empty payload included."""
    with Socket(DEALER, endpoint) as socket:
        socket.send(b"", request, *([topic] if topic else []))
        while True:
            frames = socket.receive(limit)
            assert frames is not None, "no answer"
            empty, of, number, payload = frames
            assert empty == b""
            yield of, int.from_bytes(number, "big"), payload
            if payload == b"":
                return


class Mirror:
    """Blocks of one model on a node, kept from its events; `wrong` has what cannot be."""

    def __init__(self) -> None:
        self.blocks: dict[str, set[bytes]] = {"CPU": set(), "DISK": set()}
        self.clears = 0
        self.next = 0  # the number of the next batch
        self.wrong: list[str] = []

    def take(self, payload: bytes) -> None:
        stamp, events, rank = msgspec.msgpack.decode(payload, type=tuple[float, list[Event], int])
        assert stamp > 1.7e9 and rank == 0
        for event in events:
            here = self.blocks[event.medium]
            keys = event.block_hashes
            if event.type == "BlockStored":
                self.wrong += [f"stored twice: {key.hex()}" for key in keys if key in here]
                here.update(keys)
            elif event.type == "BlockRemoved":
                self.wrong += [f"removed, but not there: {key.hex()}" for key in keys if key not in here]
                here.difference_update(keys)
            else:
                assert event.type == "AllBlocksCleared"
                here.clear()
                self.clears += 1

    @classmethod
    def snapshot(cls, endpoint: str, limit: float) -> Mirror:
        made = cls()
        for _, number, payload in answers(endpoint, b"snapshot", limit):
            if payload:
                made.take(payload)
            else:
                made.next = number
        return made

    @classmethod
    def replay(cls, endpoint: str, limit: float) -> Mirror:
        made = cls()
        for _, number, payload in answers(endpoint, bytes(8), limit):
            if payload:
                assert number == made.next
                made.next += 1
                made.take(payload)
            else:
                assert number == END
        return made

    def follow(self, live: Socket) -> None:
        """Takes what has come live; numbers follow each other."""
        while frames := live.receive(0):
            self.take_live(frames)

    def take_live(self, frames: list[bytes]) -> None:
        _, number, payload = frames
        seq = int.from_bytes(number, "big")
        if seq < self.next:
            return
        assert seq == self.next, "a batch is missing"
        self.next += 1
        self.take(payload)
