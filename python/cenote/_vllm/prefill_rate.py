"""How fast the engine computes prompts, as seen by its scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable

_MIN_TOKENS = 128  # of a step that says something about the rate
_WEIGHT = 0.3  # of the newest step


class PrefillRate:
    """`fixed`: what the user says, in tokens/s; None: measured, and unknown until a long enough step was seen."""

    def __init__(self, fixed: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._fixed = fixed
        self._clock = clock
        self._measured: float | None = None
        self._tokens = 0
        self._began = 0.0

    @property
    def tokens_per_s(self) -> float | None:
        """None: unknown."""
        return self._fixed if self._fixed is not None else self._measured

    def step_begins(self, tokens: int) -> None:
        """`tokens` of prompts are computed in this step."""
        self._tokens, self._began = tokens, self._clock()

    def step_ended(self) -> None:
        tokens, self._tokens = self._tokens, 0
        took = self._clock() - self._began
        if tokens < _MIN_TOKENS or took <= 0:
            return
        rate = tokens / took
        self._measured = rate if self._measured is None else _WEIGHT * rate + (1 - _WEIGHT) * self._measured
