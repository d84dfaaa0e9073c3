"""Groups of ranks that agree, in one process and without a node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cenote.errors import DeadlineExceeded, GroupLost

PATIENCE = 60.0


def until(what: str, holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < end, what
        time.sleep(0.001)
    return found


class Meeting:
    """The groups of some nodes. `silent`: ranks whose proposals get lost."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._waiting: dict[str, dict[int, InGroup]] = {}
        self.formed: list[list[InGroup]] = []
        self.silent: set[int] = set()

    def join(self, name: str, rank: int, size: int, wait: float) -> InGroup:
        mine = InGroup(self, rank)
        with self._change:
            waiting = self._waiting.setdefault(name, {})
            waiting[rank] = mine
            if len(waiting) == size:
                epoch = list(self._waiting.pop(name).values())
                self.formed.append(epoch)
                for each in epoch:
                    each.all = epoch
                self._change.notify_all()
            if not self._change.wait_for(lambda: mine.all, wait):
                del waiting[rank]
                raise DeadlineExceeded("not all ranks have joined in time")
        return mine

    def lose(self) -> None:
        for each in self.formed[-1]:
            each.lost = True


class InGroup:
    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting = meeting
        self.rank = rank
        self.all: list[InGroup] = []
        self.lost = False
        self.is_over = False  # which this rank hears of with its next question
        self.open: dict[int, int] = {}

    def agree_start(self, questions: Sequence[int], lengths: Sequence[int]) -> None:
        self.lost |= self.is_over
        self._check()
        if self.rank not in self._meeting.silent:
            self.open.update(zip(questions, lengths, strict=True))

    def agree_poll(self, timeout: float = 0.0) -> dict[int, int]:
        self.lost |= self.is_over and bool(self.open.keys() - self.told)
        self._check()
        whole = [each for each in list(self.open) if all(each in other.open for other in self.all)]
        fresh = [each for each in whole if each not in self.told]
        self.told.update(fresh)
        return {each: min(other.open[each] for other in self.all) for each in fresh}

    def leave(self) -> None:
        for each in self.all:
            each.is_over = True

    def _check(self) -> None:
        if self.lost:
            raise GroupLost("a node with ranks of the group is gone")

    @property
    def told(self) -> set[int]:
        return self.__dict__.setdefault("_told", set())
