"""Lines of an engine's log about a node that takes no blocks: one a minute, not one for each block."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_PAUSE = 60.0  # seconds between two lines


class FullNode:
    """Counts refusals and logs the first one, and later ones once a minute. Thread-safe."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._unsaid = 0
        self._next = float("-inf")

    def refused(self, blocks: int, reason: BaseException) -> None:
        with self._lock:
            self._unsaid += blocks
            now = self._clock()
            if now < self._next:
                return
            self._next = now + _PAUSE
            count, self._unsaid = self._unsaid, 0
        self._logger.warning("the node has no room: %d blocks are not stored, and computed again: %s", count, reason)
