"""Pages that batch_exists() has promised: pinned, or on their way up from NVMe, until they are fetched or time is up.

Without this a page could be evicted between the answer and the fetch, and a whole prefetch of SGLang be in vain.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque

from .._near import Taken
from ..errors import CenoteError
from ..prefetch import Prefetch
from .keys import WIDTH, Keys


class Promise:
    """One answer of batch_exists()."""

    def __init__(self, keys: Keys, held: Taken | None, ticket: Prefetch | None) -> None:
        self.keys = keys
        self.until = 0.0
        self._held = held
        self._ticket = ticket
        self._lock = threading.Lock()  # a Prefetch is for one thread at a time

    @property
    def waits(self) -> bool:
        """Whether some of its pages may still be on their way."""
        return self._ticket is not None

    def wait(self, seconds: float) -> bool:
        """Whether pages are still on their way after at most `seconds`."""
        if self._ticket is None:
            return False
        with self._lock:
            ticket = self._ticket
            if ticket is None:
                return False
            try:
                ticket.wait(seconds)
                if not ticket.done:
                    return True
            except CenoteError:  # too few pins are left for all that came: then it is not pinned
                self._end_ticket()
            return False

    def release(self) -> None:
        with self._lock:
            self._end_ticket()
            held, self._held = self._held, None
            if held is not None:
                with contextlib.suppress(CenoteError, BufferError):
                    held.release()

    def _end_ticket(self) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            with contextlib.suppress(CenoteError, BufferError):
                ticket.release()


class Promises:
    """Those of one pool. Thread-safe. A thread of its own ends them in time, also when SGLang asks nothing more."""

    def __init__(self, hold: float, pages: int) -> None:
        """`hold`: seconds. `pages`: at most that many at one time, the latest."""
        self._hold = hold
        self._pages = pages
        self._queue: deque[Promise] = deque()  # by the time at which they end
        self._sum = 0
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def room(self) -> int:
        """Pages that one promise may have."""
        return 0 if self._hold == 0 else self._pages

    @property
    def pages(self) -> int:
        """Promised now."""
        return self._sum

    def add(self, promise: Promise) -> None:
        with self._change:
            promise.until = time.monotonic() + self._hold
            ended = []
            if self._closed:
                ended.append(promise)
            else:
                self._queue.append(promise)
                self._sum += len(promise.keys)
                while self._sum > self._pages and len(self._queue) > 1:
                    ended.append(self._pop())
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="cenote-promises", daemon=True)
                    self._thread.start()
                else:
                    self._change.notify()
        for each in ended:
            each.release()

    def take(self, key: bytes) -> Promise | None:
        """The latest promise of this page that still waits for something. The caller adds or releases it."""
        with self._change:
            for promise in reversed(self._queue):
                if promise.waits and promise.keys.find(key) >= 0:
                    self._queue.remove(promise)
                    self._sum -= len(promise.keys)
                    return promise
        return None

    def redeem(self, fetched: Keys) -> None:
        """These pages were fetched: a promise whose last page is among them is kept."""
        done = []
        with self._change:
            for promise in self._queue:
                if fetched.packed.endswith(promise.keys.packed[-WIDTH:]):
                    done.append(promise)
            for each in done:
                self._queue.remove(each)
                self._sum -= len(each.keys)
        for each in done:
            each.release()

    def clear(self) -> None:
        with self._change:
            ended = list(self._queue)
            self._queue.clear()
            self._sum = 0
        for each in ended:
            each.release()

    def close(self) -> None:
        with self._change:
            self._closed = True
            thread = self._thread
            self._change.notify()
        self.clear()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2)

    def _pop(self) -> Promise:
        promise = self._queue.popleft()
        self._sum -= len(promise.keys)
        return promise

    def _run(self) -> None:
        while True:
            with self._change:
                if self._closed:
                    return
                if not self._queue:
                    self._change.wait()
                    continue
                left = self._queue[0].until - time.monotonic()
                if left > 0:
                    self._change.wait(left)
                    continue
                promise = self._pop()
            promise.release()
