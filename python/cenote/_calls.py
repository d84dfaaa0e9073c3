"""Calls in threads that a process does not wait for when it ends: the node may not answer."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Calls:
    """As an executor of concurrent.futures, whose threads Python joins before any hook of an exit runs. Thread-safe."""

    def __init__(self, threads: int, name: str) -> None:
        self._thread_limit = threads
        self._name = name
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        """Cancelled at once, once this is closed."""
        answer: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                answer.cancel()
                return answer
            self._queue.put((answer, lambda: call(*arguments)))
            if len(self._threads) < self._thread_limit:
                name = f"{self._name}-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return answer

    def close(self) -> None:
        """Cancels what has not begun, and waits for nothing."""
        with self._lock:
            self._is_closed = True
            with contextlib.suppress(queue.Empty):  # its threads take from it, too
                while (job := self._queue.get_nowait()) is not None:
                    job[0].cancel()
            for _ in self._threads:
                self._queue.put(None)

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            answer, call = job
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(call())
            except BaseException as why:  # of the caller, as an executor's
                answer.set_exception(why)
            del job, answer, call  # nothing is kept while the next one is waited for
