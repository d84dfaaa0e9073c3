"""Notices that an engine's weights are changed in place: engines tell no cache of it, so their methods are wrapped."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any


class Updates:
    """How often it happened in this process."""

    def __init__(self) -> None:
        self.count = 0

    def watch(self, kind: Any, methods: Iterable[str]) -> None:
        """Counts calls of these methods of `kind`. Can be called any number of times."""
        for name in methods:
            method = getattr(kind, name)
            if getattr(method, "counted_by", None) is not self:
                setattr(kind, name, self._counting(method))

    def _counting(self, method: Any) -> Any:
        @functools.wraps(method)
        def update(*arguments: Any, **more: Any) -> Any:
            self.count += 1  # before: what is computed from now on is another model's
            return method(*arguments, **more)

        update.counted_by = self  # type: ignore[attr-defined]
        return update
