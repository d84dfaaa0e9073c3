"""`optimize.mode = "apply"`: quotas of a running node go to groups that they bring more hits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import blocks
import numpy as np
import pytest
from conftest import StartNode
from node import FULL, KiB, MiB, Node, run_cenote

Attach = Callable[..., Any]
SIZE = 64 * KiB
LIMITS = (
    "optimize.mode=apply",
    "optimize.interval=1s",
    "groups.little.quota=40MiB",
    "groups.little.quota_min=8MiB",
    "groups.little.quota_max=48MiB",
    "groups.much.quota=16MiB",
    "groups.much.quota_min=8MiB",
    "groups.much.quota_max=48MiB",
)


def ask_for(session: Any, label: str, number: int, target: np.ndarray[Any, Any]) -> None:
    """A request for one block, which is stored where it is not there."""
    key = blocks.keys_of(label, number, 1)
    if session.match(key).resident == 1 and session.get_into(key, target) == 1:
        return
    session.put(key, blocks.contents_of(key, SIZE))


def quotas(node: Node) -> Iterator[int]:
    accounts = {each["name"]: each["quota"] for each in node.status()["groups"]}
    return (accounts[name] for name in ("little", "much"))


@pytest.mark.skipif(not FULL, reason="half a minute: a move takes twelve intervals of a second")
def test_quota_goes_from_a_group_that_needs_little_to_one_that_needs_much(
    start_node: StartNode, attach: Attach
) -> None:
    node = start_node(*LIMITS, capacity="80MiB")
    little = attach(node, "l", block=SIZE, instance_group="little")
    much = attach(node, "m", block=SIZE, instance_group="much")
    drawn = random.Random(1)
    target = np.zeros((1, SIZE), np.uint8)
    end = time.monotonic() + 120
    while sum(quotas(node)) == 56 * MiB and next(quotas(node)) > 36 * MiB and time.monotonic() < end:
        for _ in range(200):
            ask_for(little, "l", drawn.randrange(100), target)
            ask_for(much, "m", drawn.randrange(700), target)
    first, second = quotas(node)
    assert first <= 36 * MiB
    assert first + second == 56 * MiB
    assert node.logged("quota is moved: the whole move would find more tokens in an interval")


@pytest.mark.parametrize(
    ("sets", "part"),
    [
        (("optimize.mode=apply",), "at least two need quota, quota_min and quota_max"),
        ((*LIMITS[:2], *LIMITS[2:5]), "at least two"),
        ((*LIMITS, "groups.much.quota=4MiB"), "must not be below groups.much.quota_min"),
        ((*LIMITS, "groups.much.quota=1GiB"), "must not be above groups.much.quota_max"),
        ((*LIMITS, "groups.much.quota_max=0"), "needs quota_max"),
        (("groups.g.quota_max=1MiB",), "needs quota_min"),
        (("groups.g.quota_max=2MiB", "groups.g.quota_min=1MiB"), "needs quota"),
        ((*LIMITS, "optimize.interval=1ms"), "optimize.interval"),
    ],
)
def test_limits_that_make_no_sense_together_are_refused(sets: tuple[str, ...], part: str) -> None:
    words = [word for each in sets for word in ("--set", each)]
    ended = run_cenote("config", "check", *words)
    assert ended.returncode != 0
    assert part in ended.stderr
