"""A fuzzer of the whole client side: hostile clients beside ordinary ones, of other instances and of the same."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import numpy as np
import pytest
from conftest import StartAgent, StartNode
from footprint import Footprint
from node import FULL, LIMIT, SANITIZED, MiB, Node, until

Attach = Callable[..., Any]
STRANGERS = (65534, 65533)
STEPS = 25_000 if FULL else 400  # of a client; about 40 a second
BLOCK = 4096


class Ordinary(threading.Thread):
    """Puts, reads back, compares and removes, until told to stop. Each answer is counted."""

    def __init__(self, session: Any, label: str, *, attach: Callable[[], Any] | None = None) -> None:
        super().__init__(daemon=True)
        self.session, self.label, self.attach = session, label, attach
        self.stopping = threading.Event()
        self.answers = self.compared = self.attached = 0
        self.wrong: list[str] = []
        self.errors: list[str] = []
        self.longest = 0.0

    def run(self) -> None:
        number = 0
        target = [np.empty(BLOCK, np.uint8) for _ in range(16)]
        while not self.stopping.is_set() and len(self.errors) < 5 and not self.wrong:
            begin = time.monotonic()
            try:
                self.round(number, target)
            except cenote.CenoteError as why:
                self.errors.append(f"{why.code}: {why}")
            self.longest = max(self.longest, time.monotonic() - begin)
            number += 1

    def round(self, number: int, target: list[Any]) -> None:
        keys = blocks.keys_of(f"{self.label}{number}", 0, 16)
        self.session.put(keys, blocks.contents_of(keys, BLOCK))
        found = self.session.get_into(keys, target)
        self.wrong += [f"{self.label}{number}:{at}" for at in blocks.wrong_blocks(keys[:found], target, BLOCK)]
        self.compared += found
        self.session.remove(keys[:8])
        self.answers += 3
        if self.attach and number % 20 == 0 and os.geteuid() == 0:
            self.attach().close()
            self.attached += 1

    def finish(self) -> None:
        self.stopping.set()
        self.join(60)
        assert not self.is_alive(), f"{self.label} hangs"
        assert self.wrong == []
        assert self.errors == []


def settled(node: Node, before: Footprint) -> Footprint:
    """The footprint when what the hostile clients left is gone."""

    def left() -> bool:
        now = node.status()
        return len(now["sessions"]) <= before.sessions and len(now["instances"]) <= before.instances

    until("the sessions of dead clients are gone, and their instances", left)
    with contextlib.suppress(AssertionError):  # their segments go behind them; what stays is the caller's to judge
        until("descriptors are closed", lambda: not Footprint.of(node).descriptors_since(before))
    return Footprint.of(node)


def start(start_node: StartNode, public: Path, tmp_path: Path, *sets: str) -> Node:
    return start_node(
        f"nvme.paths=[{tmp_path / 'nvme'}]",
        "nvme.capacity=256MiB",
        f"auth.allow_uids=[{STRANGERS[0]},{STRANGERS[1]}]",
        "limits.sessions_per_uid=64",
        "session.reserve_timeout=1s",
        "instances.idle=2s",
        "gpu.quarantine=1s",  # noise in a session's memory may say that a device writes for it
        "groups.hostile.quota=16MiB",
        "limits.open_groups=true",
        *sets,
        folder=public / "run",
    )


@pytest.mark.sanitizer
def test_hostile_clients_of_another_instance_harm_nobody(
    public: Path, tmp_path: Path, start_node: StartNode, start_agent: StartAgent, attach: Attach
) -> None:
    node = start(start_node, public, tmp_path)
    worker = node.worker_pid
    kept = attach(node, "kept")
    keys = blocks.keys_of("kept", 0, 64)
    kept.put(keys, blocks.contents_of(keys, BLOCK))
    held = kept.acquire(keys)
    ordinary = [
        Ordinary(attach(node, "one"), "one", attach=lambda: attach(node, "visitor")),
        Ordinary(attach(node, "two"), "two"),
    ]
    attach(node, "visitor").close()
    before = Footprint.of(node)
    for each in ordinary:
        each.start()
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    agents = [start_agent(node, script="hostile.py") for _ in range(2)]
    if os.geteuid() == 0:  # else they share their user's limits with the ordinary ones
        for agent, uid in zip(agents, STRANGERS, strict=True):
            assert agent.call("become", uid=uid) == uid
    for number, agent in enumerate(agents):
        agent.send("campaign", seed=seed + number, steps=STEPS, instance="hostile")
    done = [agent.answer(limit=LIMIT + STEPS) for agent in agents]
    for agent in agents:
        agent.kill()
    for each in ordinary:
        each.finish()
    after = settled(node, before)
    print(f"done {done}; answers {[o.answers for o in ordinary]}, longest {[round(o.longest, 3) for o in ordinary]} s")
    print(f"before {before}\nafter  {after}")
    assert node.worker_pid == worker
    assert blocks.wrong_blocks(keys, [b.view() for b in held], BLOCK) == []
    held.release()
    assert all(sum(each.values()) > 10 for each in done), "the fuzzer was at work"
    assert all(each.answers > 0 for each in ordinary), "ordinary sessions were answered meanwhile"
    assert ordinary[0].attached > 0 or os.geteuid() != 0
    fresh = attach(node, "fresh")
    assert fresh.put(keys, blocks.contents_of(keys, BLOCK)) == len(keys)
    fresh.close()
    # The address sanitizer holds back 256 MiB of what was freed, and what its allocator loses between them.
    growth = after.growth(before, private=(768 if SANITIZED else 64) * MiB, address_space=2048 * MiB)
    assert [each for each in growth if not (SANITIZED and each.startswith("address_space"))] == []


@pytest.mark.sanitizer
def test_a_hostile_client_of_the_same_instance_does_not_reach_blocks_of_others(
    public: Path, tmp_path: Path, start_node: StartNode, start_agent: StartAgent, attach: Attach
) -> None:
    """It may take space and evict; it may not make anybody read bytes that were not committed under the key."""
    node = start(start_node, public, tmp_path)
    worker = node.worker_pid
    spec = {"model": "m", "dtype": "bf16", "layout": "page_first", "tokens_per_block": 16, "hash_scheme": "sha256"}
    groups = {"full": {"parts": {"a": BLOCK // 2, "b": BLOCK // 2}}}
    other = Ordinary(attach(node, "elsewhere"), "elsewhere")
    same = Ordinary(attach(node, "shared", groups=groups, spec=spec), "same")
    for each in (other, same):
        each.start()
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    agent = start_agent(node, script="hostile.py")
    done = agent.call("campaign", seed=seed, steps=STEPS // 2, instance="shared", gentle=True, limit=LIMIT + STEPS)
    agent.kill()
    other.finish()
    same.stopping.set()
    same.join(60)
    assert not same.is_alive()
    print(f"done {done}; answers {other.answers}, {same.answers}; errors of the same instance {same.errors}")
    assert same.wrong == []
    assert node.worker_pid == worker
    assert other.answers > 0
    assert same.compared > 0
