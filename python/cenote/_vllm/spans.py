"""The trace of a request of vLLM, and the spans of its loads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import CenoteError
from ..session import Session

if TYPE_CHECKING:
    from .messages import Load


def traceparent_of(request: Any) -> str | None:
    """W3C trace context of the request, if its client sent one and vLLM traces (--otlp-traces-endpoint)."""
    headers = getattr(request, "trace_headers", None)
    found = headers.get("traceparent") if isinstance(headers, Mapping) else None
    return found if isinstance(found, str) else None


@dataclasses.dataclass(frozen=True)
class LoadSpan:
    """A load of one rank that has ended. Times are nanoseconds since 1970."""

    load: Load
    begin: int
    end: int
    loaded: int  # blocks
    size: int  # bytes

    def send(self, session: Session | None) -> None:
        """Waits for nothing, and nothing depends on it."""
        if session is None or self.load.traceparent is None:
            return
        asked = sum(len(keys) for _, keys, _ in self.load.groups)
        try:
            session.trace_load(self.load.traceparent, self.begin, self.end, asked, self.loaded, self.size)
        except CenoteError:  # of a session that is over, as its next lookup finds
            return
