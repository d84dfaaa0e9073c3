"""`cenote debug corrupt`: wrong bytes on purpose, and only where they were allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import numpy as np
import pytest
from conftest import StartNode
from node import LIMIT, KiB, run_cenote
from test_nvme import filled, serving, settled

Attach = Callable[..., Any]
BLOCK = 64 * KiB


@pytest.mark.sanitizer
def test_every_word_of_every_block_is_altered_and_altering_twice_brings_it_back(
    start_node: StartNode, attach: Attach
) -> None:
    node = start_node("debug.enabled=true")
    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 50)
    session.put(keys, blocks.contents_of(keys, BLOCK))
    done = run_cenote("debug", "corrupt", "--all", "--socket", node.socket)
    assert done.returncode == 0, done.stderr
    assert "altered 50 blocks" in done.stdout
    with session.acquire(keys) as held:
        for key, block in zip(keys, held, strict=True):
            right = blocks.content_of(key, BLOCK).view(np.uint16)
            assert np.array_equal(np.frombuffer(bytes(block.view()), dtype=np.uint16), right ^ 0x8040)
    assert run_cenote("debug", "corrupt", "--all", "--socket", node.socket).returncode == 0
    with session.acquire(keys) as held:
        assert not blocks.wrong_blocks(keys, [bytes(block.view()) for block in held], BLOCK)


def test_a_node_without_the_setting_refuses_and_names_it(start_node: StartNode, attach: Attach) -> None:
    node = start_node()
    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 5)
    session.put(keys, blocks.contents_of(keys, BLOCK))
    refused = run_cenote("debug", "corrupt", "--all", "--socket", node.socket)
    assert refused.returncode != 0
    assert "debug.enabled=true" in refused.stderr
    assert "--all" in run_cenote("debug", "corrupt", "--socket", node.socket).stderr
    with session.acquire(keys) as held:
        assert not blocks.wrong_blocks(keys, [bytes(block.view()) for block in held], BLOCK)


def test_no_right_byte_comes_back_from_nvme_afterwards(tmp_path: Path, start_node: StartNode, attach: Attach) -> None:
    disk = (f"nvme.paths=[{tmp_path / 'store'}]", "nvme.capacity=256MiB", "prefetch.threshold_tokens=0")
    node = start_node(*disk, "debug.enabled=true", capacity="32MiB")
    serving(node)
    session = attach(node, "i", block=BLOCK)
    keys = filled(session, "a", 1_000, BLOCK, pace=node)
    settled(node)
    assert session.match(keys).resident < 1_000 <= session.match(keys).reachable
    assert run_cenote("debug", "corrupt", "--all", "--socket", node.socket).returncode == 0
    for first in range(0, 1_000, 100):
        some = keys[first : first + 100]
        ticket = session.prefetch(some, policy="wait_complete")
        ticket.wait(LIMIT)
        for key in some:
            with session.acquire([key]) as held:
                assert not held or not blocks.is_content_of(key, bytes(held[0].view()), BLOCK)
        ticket.release()
