"""`cenote indexer` beside real nodes: what a node publishes counts for the pods of its machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import pytest
from conftest import StartNode
from indexer import MODEL, EnginePublisher, Herd, Indexer, prompt, settings_of
from node import KiB, Node, free_ports, run_cenote, until

BLOCK = 64 * KiB
A, B = prompt(1, 8), prompt(2, 8)
CPU, DISK = 0.8, 0.6  # weights of media

Attach = Callable[..., Any]


@pytest.fixture
def endpoints() -> list[str]:
    return [f"tcp://127.0.0.1:{port}" for port in free_ports(2)]


@pytest.fixture
def node(start_node: StartNode, tmp_path: Path, endpoints: list[str]) -> Node:
    return start_node(
        f"nvme.paths=[{tmp_path / 'store'}]",
        "nvme.capacity=64MiB",
        f"publish.endpoint={endpoints[0]}",
        f"publish.replay={endpoints[1]}",
        "publish.name=n1",
        capacity="8MiB",
    )


@pytest.fixture
def engine(herd: Herd) -> EnginePublisher:
    """Of the node's machine; its hashes are the node's keys."""
    return herd.publisher("a", hashes="bytes")


@pytest.fixture
def indexer(herd: Herd, engine: EnginePublisher, endpoints: list[str], node: Node) -> Indexer:
    return herd.indexer(
        *settings_of(engine, node="n1"),
        f"publishers.n1.endpoint={endpoints[0]}",
        f"publishers.n1.replay={endpoints[1]}",
    )


def keys_of(engine: EnginePublisher, tokens: list[int]) -> list[bytes]:
    return [engine.hash_of(each) for each in engine.prefixes(tokens)]


def scored(indexer: Indexer, tokens: list[int], score: float) -> None:
    until(f"the score is {score}", lambda: abs((indexer.scores(tokens).score("a") or 0) - score) < 1e-6)


def test_blocks_of_a_node_count_for_its_pods_until_they_are_removed(
    node: Node, attach: Attach, engine: EnginePublisher, indexer: Indexer
) -> None:
    session = attach(node, "i", block=BLOCK, spec={"model": MODEL})
    engine.store(A)
    scored(indexer, A, 8)
    keys = keys_of(engine, A)
    blocks.put(session, keys, BLOCK)
    engine.clear()
    scored(indexer, A, 8 * CPU)
    session.remove(keys[5:6])
    scored(indexer, A, 5 * CPU)
    node.restart_worker()
    scored(indexer, A, 5 * CPU)
    session.remove(keys[:1])
    scored(indexer, A, 0)


def test_blocks_that_went_down_to_disk_count_as_such_and_a_clear_empties_all(
    node: Node, attach: Attach, engine: EnginePublisher, indexer: Indexer
) -> None:
    session = attach(node, "i", block=BLOCK, spec={"model": MODEL})
    keys = keys_of(engine, A)
    engine.store(A)
    blocks.put(session, keys, BLOCK)
    engine.clear()
    fill = iter(range(100_000))

    def is_on_disk() -> bool:
        more = blocks.keys_of("fill", next(fill) * 16, 16)
        blocks.put(session, more, BLOCK)
        return abs((indexer.scores(A).score("a") or 0) - 8 * DISK) < 1e-6

    until("all went down", is_on_disk)
    assert run_cenote("clear", "--all", "--socket", node.socket).returncode == 0
    scored(indexer, A, 0)


def test_an_indexer_that_starts_later_takes_a_snapshot_of_the_node(
    node: Node, attach: Attach, engine: EnginePublisher, indexer: Indexer
) -> None:
    session = attach(node, "i", block=BLOCK, spec={"model": MODEL})
    engine.store(A)
    engine.store(B)
    blocks.put(session, keys_of(engine, A) + keys_of(engine, B), BLOCK)
    engine.evict(engine.prefixes(A)[3:])
    scored(indexer, A, 3 + 5 * CPU)
    indexer.kill()
    session.remove(keys_of(engine, B)[4:])
    indexer.start()
    scored(indexer, A, 3 + 5 * CPU)
    scored(indexer, B, 8)
    engine.evict(engine.prefixes(B))
    scored(indexer, B, 4 * CPU)
