"""The service behind its socket: threads, bounds, and its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from .. import _calls
from . import messages
from .calls import MOST_INPUT, Calls

_FRAME = 1 << 20  # bytes of a request besides its text
_GRACE = 2.0  # seconds for requests that are under way
_PARENT_PAUSE = 500  # milliseconds between looks at the parent where the kernel does not watch it for us


class SocketTaken(Exception):
    """Another process answers at the socket, or the path is none for a socket."""


class Server:
    """Answers at a Unix socket that only its user may use.

    Parameters
    ----------
    path : Path
        A socket that was left there is replaced; any other file is not. Raises SocketTaken.
    calls : Calls
    workers : int
        Requests that are worked on at once.
    waiting : int
        Further requests that wait; others get RESOURCE_EXHAUSTED at once.
    """

    def __init__(self, path: Path, calls: Calls, *, workers: int, waiting: int) -> None:
        _check_free(path)
        self._workers = _calls.Calls(workers, "tokenizer")
        self._server = grpc.server(
            self._workers,
            maximum_concurrent_rpcs=workers + waiting,
            options=[("grpc.max_receive_message_length", MOST_INPUT + _FRAME), ("grpc.max_send_message_length", -1)],
        )
        self._server.add_generic_rpc_handlers((_handler(calls),))
        self._path = path
        with _narrow_umask():
            try:
                self._server.add_insecure_port(f"unix:{path}")
            except RuntimeError as why:
                raise SocketTaken(f"{path} cannot be a socket: {why}") from why
        self._mark = path.stat().st_ino
        self._server.start()

    def stop(self) -> None:
        """Finishes what is under way, for a moment."""
        self._server.stop(_GRACE).wait()
        self._workers.close()
        with contextlib.suppress(OSError):
            if self._path.stat().st_ino == self._mark:
                self._path.unlink()


def _handler(calls: Calls) -> Any:
    def method_of(name: str) -> Any:
        def answer(request: Any, context: Any) -> Any:
            if not context.is_active():  # its deadline passed while it waited
                return messages.CLASSES[f"{name}Response"]()
            return calls.answer(name, request)

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=messages.CLASSES[f"{name}Request"].FromString,
            response_serializer=messages.CLASSES[f"{name}Response"].SerializeToString,
        )

    return grpc.method_handlers_generic_handler(messages.SERVICE, {name: method_of(name) for name in messages.METHODS})


def _check_free(path: Path) -> None:
    if path.exists() and not path.is_socket():
        raise SocketTaken(f"{path} is there and no socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise SocketTaken(f"a process answers at {path} already")


@contextlib.contextmanager
def _narrow_umask() -> Iterator[None]:
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def _parent_descriptor(parent: int) -> int | None:
    """A descriptor that can be read when the process has ended. None: this system has none."""
    with contextlib.suppress(AttributeError, OSError):
        return os.pidfd_open(parent)
    return None


def wait_for_end(parent: int | None, *, ready: Callable[[], None] = lambda: None) -> None:
    """Returns on SIGTERM or SIGINT, or when the process `parent` is not this one's parent any more.

    For the main thread. `ready` is called when a signal cannot be missed any more.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: None)
    signal.set_wakeup_fd(write_end)
    ready()
    watched = select.poll()
    watched.register(read_end, select.POLLIN)
    descriptor = None if parent is None else _parent_descriptor(parent)
    if descriptor is not None:
        watched.register(descriptor, select.POLLIN)
    pause = None if parent is None else _PARENT_PAUSE
    while parent is None or os.getppid() == parent:
        if watched.poll(pause):
            break
