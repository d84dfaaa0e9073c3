"""A subscriber of a node's KV events: ZeroMQ's C library by ctypes, MessagePack by hand, and a list that is
kept from them."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import struct
from collections.abc import Iterator
from typing import Any

END = 0xFFFF_FFFF_FFFF_FFFF
SUB, DEALER = 2, 5
_SUBSCRIBE, _RCVMORE, _RCVTIMEO, _LINGER, _RECONNECT_IVL, _RCVHWM = 6, 13, 27, 17, 18, 24
_SNDMORE, _DONTWAIT = 2, 1
_zmq = ctypes.CDLL(ctypes.util.find_library("zmq") or "libzmq.so.5", use_errno=True)
for _name in ("zmq_ctx_new", "zmq_socket"):
    getattr(_zmq, _name).restype = ctypes.c_void_p
_zmq.zmq_socket.argtypes = [ctypes.c_void_p, ctypes.c_int]
_zmq.zmq_setsockopt.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
_zmq.zmq_connect.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_zmq.zmq_send.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
_zmq.zmq_close.argtypes = [ctypes.c_void_p]
_zmq.zmq_msg_recv.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
_zmq.zmq_msg_init.argtypes = _zmq.zmq_msg_close.argtypes = _zmq.zmq_msg_more.argtypes = [ctypes.c_void_p]
_zmq.zmq_msg_data.argtypes = _zmq.zmq_msg_size.argtypes = [ctypes.c_void_p]
_zmq.zmq_msg_data.restype = ctypes.c_void_p
_zmq.zmq_msg_size.restype = ctypes.c_size_t
_context = ctypes.c_void_p(_zmq.zmq_ctx_new())


class Socket:
    """Of one thread."""

    def __init__(self, kind: int, endpoint: str) -> None:
        self._socket = ctypes.c_void_p(_zmq.zmq_socket(_context, kind))
        for option, value in ((_LINGER, 0), (_RECONNECT_IVL, 10), (_RCVHWM, 100_000)):
            self._set(option, struct.pack("i", value))
        if kind == SUB:
            self._set(_SUBSCRIBE, b"kv@")
        assert _zmq.zmq_connect(self._socket, endpoint.encode()) == 0

    def _set(self, option: int, value: bytes) -> None:
        assert _zmq.zmq_setsockopt(self._socket, option, value, len(value)) == 0, os.strerror(ctypes.get_errno())

    def send(self, *frames: bytes) -> None:
        for i, frame in enumerate(frames):
            more = _SNDMORE if i + 1 < len(frames) else 0
            assert _zmq.zmq_send(self._socket, frame, len(frame), more) >= 0

    def receive(self, limit: float) -> list[bytes] | None:
        """The frames of the next message; None: there is none within `limit` seconds."""
        self._set(_RCVTIMEO, struct.pack("i", int(limit * 1000)))
        frames: list[bytes] = []
        while True:
            message = ctypes.create_string_buffer(64)
            _zmq.zmq_msg_init(message)
            if _zmq.zmq_msg_recv(message, self._socket, 0) < 0:
                return None
            frames.append(ctypes.string_at(_zmq.zmq_msg_data(message), _zmq.zmq_msg_size(message)))
            more = _zmq.zmq_msg_more(message)
            _zmq.zmq_msg_close(message)
            if not more:
                return frames

    def close(self) -> None:
        _zmq.zmq_close(self._socket)

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unpack(data: bytes) -> Any:
    """Decodes the part of MessagePack that events of nodes use."""
    value, end = _unpack(data, 0)
    assert end == len(data)
    return value


def _unpack(data: bytes, place: int) -> tuple[Any, int]:
    head = data[place]
    place += 1
    if head < 0x80:
        return head, place
    if head < 0x90:
        return _map(data, place, head & 15)
    if head < 0xA0:
        return _array(data, place, head & 15)
    if head < 0xC0:
        return data[place : place + (head & 31)].decode(), place + (head & 31)
    if head == 0xC4:
        size = data[place]
        return data[place + 1 : place + 1 + size], place + 1 + size
    if head == 0xCB:
        return struct.unpack_from(">d", data, place)[0], place + 8
    if head == 0xDD:
        return _array(data, place + 4, struct.unpack_from(">I", data, place)[0])
    raise AssertionError(f"a byte that a node never writes: {head:#x}")


def _array(data: bytes, place: int, count: int) -> tuple[list[Any], int]:
    values = []
    for _ in range(count):
        value, place = _unpack(data, place)
        values.append(value)
    return values, place


def _map(data: bytes, place: int, count: int) -> tuple[dict[Any, Any], int]:
    flat, place = _array(data, place, 2 * count)
    return dict(zip(flat[::2], flat[1::2], strict=True)), place


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
        stamp, events, rank = unpack(payload)
        assert stamp > 1.7e9 and rank == 0
        for event in events:
            here = self.blocks[event["medium"]]
            keys = event.get("block_hashes", [])
            if event["type"] == "BlockStored":
                self.wrong += [f"stored twice: {key.hex()}" for key in keys if key in here]
                here.update(keys)
            elif event["type"] == "BlockRemoved":
                self.wrong += [f"removed, but not there: {key.hex()}" for key in keys if key not in here]
                here.difference_update(keys)
            else:
                assert event["type"] == "AllBlocksCleared"
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
