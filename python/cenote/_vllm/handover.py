"""Prefill at one engine, decoding at another: one publishes its request's blocks, the other follows them.

Whoever sends requests to both agrees with them in vLLM's own `kv_transfer_params`: `cenote_request`, a name that both
requests get, and for the engine that decodes `cenote_node`, the node of the one that prefills.
"""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._calls import Calls
from ..errors import CenoteError
from ..prefetch import Follow
from ..session import Session

logger = logging.getLogger("cenote")

_LONGEST_NAME = 64  # bytes
REQUEST, NODE = "cenote_request", "cenote_node"


class Terms(NamedTuple):
    """What a request says of its hand-over. `node` empty: this engine makes the blocks."""

    request: str
    node: str


def terms_of(request: Any, may_store: bool, may_load: bool, node: str | None) -> Terms | None:
    """None: nothing is handed over. `node`: this engine's. An engine that only prefills publishes whatever it gets, if
    it can say where."""
    given = request.kv_transfer_params or {}
    name, where = given.get(REQUEST), given.get(NODE) or ""
    if name is None and may_store and not may_load and node:
        name = request.request_id
    if name is None:
        return None
    if not isinstance(name, str) or not isinstance(where, str) or not 0 < len(name.encode()) <= _LONGEST_NAME:
        logger.warning("kv_transfer_params: `%s` is a text of 1 to 64 bytes, `%s` a node's name", REQUEST, NODE)
        return None
    if where and may_load:
        return Terms(name, where)
    return Terms(name, "") if may_store else None


class Publisher:
    """Publishes in a thread: the scheduler's never waits for a node."""

    def __init__(self) -> None:
        self._thread: Calls | None = None

    def publish(
        self, session: Session, terms: Terms, keys: Sequence[bytes], groups: Sequence[str]
    ) -> concurrent.futures.Future[bool]:
        """All blocks of the prompt at once, before they are stored. Returns whether they were published, later."""
        if self._thread is None:
            self._thread = Calls(1, "cenote-publish")
        return self._thread.submit(_publish, session, terms.request, [bytes(key) for key in keys], list(groups))

    def close(self) -> None:
        if self._thread is not None:
            self._thread.close()


def _publish(session: Session, request: str, keys: Sequence[bytes], groups: Sequence[str]) -> bool:
    try:
        for group in groups:
            session.publish(request, keys, first=0, end=True, group=group)
    except CenoteError as why:
        logger.warning("the blocks of request %s are not handed over: %s", request, str(why))
        return False
    return True


def has_failed(publication: concurrent.futures.Future[bool] | None) -> bool:
    """What is under way may come to pass."""
    if publication is None or not publication.done():
        return False
    return publication.cancelled() or publication.exception() is not None or not publication.result()


class Following:
    """A request whose blocks come from another engine, of each group."""

    def __init__(self, session: Session, terms: Terms, groups: Sequence[str], deadline: float) -> None:
        """CenoteError: see Session.follow()."""
        self._parts: list[Follow] = []
        try:
            for group in groups:
                self._parts.append(session.follow(terms.request, terms.node, deadline=deadline, group=group))
        except CenoteError:
            self.end()
            raise

    def is_open(self) -> bool:
        """Whether more may come. What came is pinned until end()."""
        return not all([each.done for each in self._parts])  # asked all: that pins what came

    @property
    def length(self) -> int:
        """Blocks that came, of every group."""
        return min((each.length for each in self._parts), default=0)

    def end(self) -> None:
        for each in self._parts:
            try:
                each.release()
            except CenoteError as why:
                logger.debug("a hand-over ended: %s", str(why))
        self._parts.clear()
