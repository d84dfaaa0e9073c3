"""A node's session for vLLM's scheduler, which must never wait for a node."""

from __future__ import annotations

import threading

from .._attachment import Attachment
from ..errors import CenoteError
from ..session import InstanceSpec, Session
from .settings import Settings

_LOOK = 1.0  # seconds between two looks for a node that is away


class Connection:
    """Attaches in a thread of its own, but for the first time. One thread may call it."""

    def __init__(self, spec: InstanceSpec, settings: Settings, *, max_pins: int, deadline: float, name: str) -> None:
        """`deadline`: seconds, of calls that need the node."""
        self._attachment = Attachment(
            spec,
            socket=settings.socket,
            token=settings.token,
            deadline=deadline,
            max_pins=max_pins,
            client_name=name,
            retry=_LOOK,
        )
        self._session = self._attachment.session()
        self._ended = threading.Event()
        self._wanted = threading.Event()
        if self._session is None:
            self._wanted.set()
        threading.Thread(target=self._attach, name="cenote-attach", daemon=True).start()

    def session(self) -> Session | None:
        """None while there is no node; never waits."""
        return self._session

    def failed(self, why: CenoteError) -> None:
        """A call on the session failed."""
        self._attachment.failed(why)
        self._session = self._attachment.session()  # does not attach yet: the next attempt is a moment away
        if self._session is None:
            self._wanted.set()

    def close(self) -> None:
        self._ended.set()
        self._wanted.set()
        self._session = None
        self._attachment.close()

    def _attach(self) -> None:
        while not self._ended.is_set():
            self._wanted.wait()
            if self._ended.wait(_LOOK / 4):
                return
            session = self._attachment.session()
            if session is not None:
                self._wanted.clear()
                self._session = session
