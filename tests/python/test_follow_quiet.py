"""cenote._vllm: the scheduler waits once for a node that does not answer, also with requests that are handed over."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from cenote.errors import DeadlineExceeded
from vllm_stand_ins import stand_ins

STUBS = {
    "vllm.v1.metrics.cache_hit_source": ["CacheHitSource"],
    "cenote._vllm.media": ["have_digests"],
}


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with stand_ins(monkeypatch):
        for name, members in STUBS.items():
            made = ModuleType(name)
            for each in members:
                setattr(made, each, SimpleNamespace)
            monkeypatch.setitem(sys.modules, name, made)
        yield importlib.import_module("cenote._vllm.scheduler")


class HungNode:
    """A session whose calls to the node end at their deadline."""

    def __init__(self) -> None:
        self.waits = 0

    def match(self, keys: Any, **_: Any) -> Any:
        return SimpleNamespace(resident=0, reachable=0)

    def follow(self, *_: Any, **__: Any) -> Any:
        self.waits += 1
        raise DeadlineExceeded("the node did not answer before the deadline")


def test_a_request_that_is_handed_over_does_not_wait_for_a_node_that_hangs(scheduler: Any) -> None:
    finder, model = (importlib.import_module(f"cenote._vllm.{each}") for each in ("finder", "model"))
    groups = [model.Group("full", 0)]
    session = HungNode()
    part = SimpleNamespace(
        _finder=finder.Finder(groups, 16, lambda *_: None),
        _groups=groups,
        _settings=SimpleNamespace(handover_deadline=1.0),
        stats=SimpleNamespace(add=lambda **_: None),
        failed=lambda *_: None,
    )
    follow = next(each for each in vars(scheduler).values() if hasattr(each, "_follow"))._follow
    for _ in range(3):
        tracked = SimpleNamespace(
            terms=SimpleNamespace(request="r", node="b"),
            request=SimpleNamespace(block_hashes=[b"k"]),
            search=SimpleNamespace(tiers=None),
            following=None,
        )
        follow(part, session, tracked)
        assert tracked.following is None
    assert session.waits == 1
