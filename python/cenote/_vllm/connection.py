"""A node's session that is looked after in a thread: whoever asks for it never waits for a node.

Lookups and reads need no answer from the node, so they alone would never tell that it is gone, and another one there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from .._attachment import Attachment
from ..device import Device
from ..errors import CenoteError
from ..session import InstanceSpec, Session
from .settings import Settings

_LOOK = 0.5  # seconds between two looks after the node


class Connection:
    """Attaches at once when it is made, later in its thread. Threads may share it."""

    def __init__(
        self,
        spec: InstanceSpec,
        settings: Settings,
        *,
        max_pins: int,
        deadline: float,
        name: str,
        device: Device | None = None,
        node: int = 0,
        prepare: Callable[[Session], None] = lambda session: None,
        pool: str | None = None,
        part: int = 0,
        tells: bool = True,
    ) -> None:
        """`deadline`: seconds, of calls that need the node. `device`: works on the session's blocks. `node`: which of
        the nodes that the engine's ranks use. `prepare`: called with each new session, before anybody has it. `pool`:
        the device that the session's blocks lie on, with their part of number `part`; None: they are in DRAM.
        `tells`: as of Attachment."""

        def prepare_all(session: Session) -> None:
            if device is not None:
                session.use_device(device)
            prepare(session)

        self._attachment = Attachment(
            spec,
            socket=settings.socket_of(node),
            token=settings.token,
            deadline=deadline,
            max_pins=max_pins,
            client_name=name,
            retry=_LOOK,
            prepare=prepare_all,
            device=pool,
            part=part,
            tells=tells,
        )
        self._session = self._attachment.session()
        self._ended = False
        self._wake = threading.Event()
        threading.Thread(target=self._look_after, name="cenote-look", daemon=True).start()

    def session(self) -> Session | None:
        """None while there is no node."""
        return self._session

    def failed(self, why: CenoteError, session: Session | None = None) -> None:
        """A call on `session` (None: the present one) failed."""
        self._attachment.failed(why, session)
        self.doubt()

    def doubt(self) -> None:
        """Something looks as if the node were another one: look at once."""
        self._wake.set()

    def close(self) -> None:
        self._ended = True
        self._wake.set()
        self._session = None
        self._attachment.close()

    def _look_after(self) -> None:
        while not self._ended:
            self._wake.wait(_LOOK)
            self._wake.clear()
            session = self._attachment.session()
            if session is not None and not self._ended:
                try:
                    session.barrier()
                except CenoteError as why:  # one that is slow or restarts is still the same
                    self._attachment.failed(why, session)
                    session = self._attachment.session()
            self._session = None if self._ended else session
