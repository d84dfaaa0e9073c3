"""Memory that is touched ahead of slabs: how far it is, who keeps it, and how it ends."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import pytest
from conftest import StartNode
from node import KiB, MiB, Node, run_cenote, until

Attach = Callable[..., Any]
BLOCK = 64 * KiB


def populate(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = node.status()["dram"]["populate"]
    return found


def status_text(node: Node) -> str:
    return run_cenote("status", "--socket", node.socket).stdout


def slab_files(pid: int) -> dict[int, int]:
    """Memory files of slabs, and of what may be one: inode -> bytes that are touched."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # one that is just being closed
            if "cenote-slab" in os.readlink(entry):
                found[entry.stat().st_ino] = entry.stat().st_blocks * 512
    return found


def test_a_node_touches_all_its_memory_before_anybody_comes_and_says_so(start_node: StartNode) -> None:
    node = start_node(capacity="64MiB").until_populated()
    now = populate(node)
    assert now["bytes"] == now["total"] == now["ready"]
    assert 56 * MiB < now["total"] <= 64 * MiB
    assert sum(slab_files(node.pid).values()) == now["total"]
    until("its end stands in the log", lambda: node.logged("memory is populated"))  # a moment after status has it
    (begun,) = node.logged("populating memory")
    (ended,) = node.logged("memory is populated")
    assert begun["populated"] == 0
    assert (ended["populated"], ended["took_ms"] >= 0) == (now["total"], True)
    assert "populated (100.0 %)" in status_text(node)


def test_slabs_are_made_of_it_and_what_is_given_up_is_touched_anew(start_node: StartNode, attach: Attach) -> None:
    node = start_node("instances.idle=1s", capacity="32MiB").until_populated()
    before = slab_files(node.pid)
    total = populate(node)["total"]
    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("i", 0, 100)
    session.put(keys, blocks.contents_of(keys, BLOCK))
    assert all(session.exists(keys))
    until("the keeper holds the same files", lambda: slab_files(node.pid).keys() == before.keys())
    assert 0 < populate(node)["ready"] < total
    session.close()
    until("its memory is ready for others", lambda: populate(node)["ready"] == total)
    until("what was given up is closed", lambda: sum(slab_files(node.pid).values()) <= 32 * MiB)


def test_the_next_worker_has_what_was_touched(start_node: StartNode, attach: Attach) -> None:
    node = start_node(capacity="64MiB").until_populated()
    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("i", 0, 10)
    session.put(keys, blocks.contents_of(keys, BLOCK))
    before = slab_files(node.pid)
    node.restart_worker()
    node.until_populated()
    assert slab_files(node.pid) == before
    assert all(session.exists(keys))
    more = blocks.keys_of("more", 0, 10)
    assert session.put(more, blocks.contents_of(more, BLOCK)) == 10


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_node_ends_in_the_midst_of_it(start_node: StartNode, number: signal.Signals) -> None:
    node = start_node(capacity="8GiB")  # which takes seconds of a processor
    if number is signal.SIGKILL:
        node.restart_worker()
    assert node.stop() == 0
    assert node.logged("memory is populated") == []


def test_a_node_that_shall_not_populate_takes_memory_as_blocks_come(start_node: StartNode, attach: Attach) -> None:
    node = start_node("dram.populate=false", capacity="64MiB")
    session = attach(node, "i", block=BLOCK)
    assert session.put([bytes(16)], [bytes(BLOCK)]) == 1
    assert populate(node) == {"state": "off", "bytes": 0, "total": 0, "ready": 0}
    assert "populated" not in status_text(node)
    assert len(slab_files(node.pid)) == 1
