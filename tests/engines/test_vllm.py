"""vLLM's own code on a real node: the right tokens, from the node's blocks, whatever goes wrong."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import StartEngine, StartNode
from node import MiB, Node, run_cenote, until
from tiny_models import prompt
from vllm_engine import Engine, connector

BLOCK = 32  # tokens
BLOCK_BYTES = 64 << 10  # of the tiny Llama: 4 layers, 2 KV heads of 64, keys and values in bf16
SHARED = prompt(300, 1)
PROMPTS = {
    "exact": SHARED,
    "shared prefix": SHARED[:200] + prompt(80, 2),
    "longer": SHARED + prompt(100, 3),
    "a block and no token more": prompt(320, 4),
    "another": prompt(150, 5),
    "shorter than a block": prompt(20, 6),
}


def full_blocks(tokens: int) -> int:
    """Tokens that a request may find: whole blocks, and not the last token."""
    return (tokens - 1) // BLOCK * BLOCK


def corrupt(node: Node) -> None:
    done = run_cenote("debug", "corrupt", "--all", "--socket", node.socket)
    assert done.returncode == 0, done.stderr


def clear(node: Node) -> None:
    done = run_cenote("clear", "--all", "--socket", node.socket)
    assert done.returncode == 0, done.stderr


def stored(node: Node, blocks: int) -> None:
    """Waits until the node holds at least this many blocks."""
    until(f"{blocks} blocks are stored", lambda: node.blocks()["present"] >= blocks)


@pytest.fixture(scope="module")
def reference(
    vllm_python: str, llama: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """An engine without connector: what it says is right."""
    engine = Engine(vllm_python, llama, tmp_path_factory.mktemp("reference") / "engine.log")
    yield engine
    engine.stop()


def test_a_fresh_process_takes_prompts_and_continuations_from_the_node_and_says_the_same(
    node: Node, reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    prompts = list(PROMPTS.values())
    cold = start_engine(llama, kv_transfer_config=connector(node.socket))
    expected = reference.tokens(prompts, 48)
    assert cold.tokens(prompts, 48) == expected
    assert cold.metrics()["cenote_blocks_stored"] > 0
    cold.stop()  # also what is on its way is stored then

    warm = start_engine(llama, kv_transfer_config=connector(node.socket))
    for number, (name, each) in enumerate(PROMPTS.items()):
        (answer,) = warm.generate([each], 48)
        assert answer["tokens"] == expected[number], name
        assert answer["cached"] == full_blocks(len(each)), name
    # what was generated is found as well: 300 + 48 tokens make 10 blocks
    continued = SHARED + expected[0]
    assert warm.call("forget")
    (answer,) = warm.generate([continued], 16)
    assert answer["cached"] == full_blocks(len(continued))
    assert [answer["tokens"]] == reference.tokens([continued], 16)

    # with every stored byte altered other tokens come: the right ones above came out of these bytes
    assert warm.call("forget")
    corrupt(node)
    (answer,) = warm.generate([SHARED], 48)
    assert answer["cached"] == full_blocks(len(SHARED))
    assert answer["tokens"] != expected[0]
    # and without them, the right ones again
    clear(node)
    assert warm.call("forget")
    (answer,) = warm.generate([SHARED], 48)
    assert (answer["tokens"], answer["cached"]) == (expected[0], 0)
    assert warm.metrics()["external_prefix_cache_hits"] > 0


def test_a_salt_separates_tenants(node: Node, reference: Engine, llama: Path, start_engine: StartEngine) -> None:
    engine = start_engine(llama, kv_transfer_config=connector(node.socket))
    expected = reference.tokens([SHARED], 8)
    asked = [("one", 0), ("one", full_blocks(300)), ("two", 0), (None, 0), ("two", full_blocks(300))]
    for salt, cached in asked:
        assert engine.call("forget")
        (answer,) = engine.generate([SHARED], 8, salts=[salt])
        assert (answer["cached"], [answer["tokens"]]) == (cached, expected), salt
        stored(node, full_blocks(300) // BLOCK)
