"""A proxy between nodes and a Redis server that delays, cuts, holds and falls silent as a test says."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# What a node asks for a block with; an epoch is asked for by a GET, too.
EXISTS = re.compile(rb"\r\nEXISTS\r\n")
GET_OF_BLOCK = re.compile(rb"\r\nGET\r\n\$\d+\r\n[^\r]*:[0-9a-f]{32}\r\n")


@dataclass(frozen=True)
class Behaviour:
    """What happens in one direction of each connection."""

    piece: int = 1 << 16  # bytes that are handed on at once
    pause: float = 0.0  # seconds before each piece
    whole: int | None = None  # bytes that are handed on before the connection is cut, or nothing more comes
    cuts: bool = False
    silent_from: re.Pattern[bytes] | None = None  # what matches, and all behind it, is handed on to nobody


class Proxy:
    """Listens on a port of the loopback for a server on a Unix socket or a port. `up` is what nodes send, `down` what
    they get.

    A change of `up` and `down` is for connections that are made afterwards, too, and for those that are open; what was
    swallowed stays swallowed, so that a connection that fell silent is of no use any more.
    """

    def __init__(self, server: Path | int) -> None:
        self._server = server
        self.up = Behaviour()
        self.down = Behaviour()
        self.connections = 0  # that were taken
        self.cuts = 0  # connections that were cut, or fell silent, as was said
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._start(self._accept)

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def behaves(self) -> None:
        self.up = self.down = Behaviour()

    def close(self) -> None:
        self._ends.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads.pop(0).join(10)  # which accepts, and starts others
        with self._lock:
            for each in self._open:
                _shut(each)
        while self._threads:
            self._threads.pop().join(10)
        self._listening.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while not self._ends.is_set():
            try:
                node, _ = self._listening.accept()
            except OSError:
                return
            is_local = isinstance(self._server, Path)
            server = socket.socket(socket.AF_UNIX if is_local else socket.AF_INET)
            try:
                server.connect(str(self._server) if is_local else ("127.0.0.1", self._server))
            except OSError:
                node.close()
                server.close()
                continue
            node.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.connections += 1
                self._open |= {node, server}
            done = threading.Semaphore(0)
            self._start(self._pump, node, server, "up", done)
            self._start(self._pump, server, node, "down", done)
            self._start(self._close_when, done, node, server)

    def _pump(self, giver: socket.socket, taker: socket.socket, direction: str, done: threading.Semaphore) -> None:
        with contextlib.suppress(OSError):  # a side is gone, and so is the connection
            self._hand_on(giver, taker, direction)
        _shut(giver)
        _shut(taker)
        done.release()

    def _close_when(self, done: threading.Semaphore, *sockets: socket.socket) -> None:
        """Closes them when both directions are done: before, their numbers could be somebody else's."""
        for _ in sockets:
            done.acquire()
        with self._lock:
            self._open.difference_update(sockets)
        for each in sockets:
            each.close()

    def _hand_on(self, giver: socket.socket, taker: socket.socket, direction: str) -> None:
        done, seen, is_silent = 0, b"", False
        while some := giver.recv(1 << 16):
            now: Behaviour = getattr(self, direction)
            if now.silent_from is not None and not is_silent:
                seen = (seen + some)[-len(some) - 256 :]
                if found := now.silent_from.search(seen):
                    is_silent = self._note()
                    some = some[: max(0, found.start() - (len(seen) - len(some)))]
                    taker.sendall(some)
            if is_silent:
                continue
            while some:
                now = getattr(self, direction)
                if now.whole is not None and done >= now.whole:
                    self._note()
                    if now.cuts:
                        return
                    if not self._wait_until_it_may_go_on(direction):
                        return
                piece = some[: min(now.piece, len(some) if now.whole is None else max(1, now.whole - done))]
                if now.pause > 0 and self._ends.wait(now.pause):
                    return
                taker.sendall(piece)
                done += len(piece)
                some = some[len(piece) :]

    def _wait_until_it_may_go_on(self, direction: str) -> bool:
        while getattr(self, direction).whole is not None:
            if self._ends.wait(0.005):
                return False
        return True

    def _note(self) -> bool:
        with self._lock:
            self.cuts += 1
        return True


def _shut(which: socket.socket) -> None:
    with contextlib.suppress(OSError):
        which.shutdown(socket.SHUT_RDWR)
