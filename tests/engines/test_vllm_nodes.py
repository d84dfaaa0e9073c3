"""A vLLM engine whose ranks use two nodes, as if they were on two machines: what these hold differs, and one dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import StartEngine, StartNode
from node import Node, run_cenote, until
from tiny_models import prompt
from vllm_engine import Engine, connector

from cluster import Cluster, kill_node

BLOCK = 32  # tokens
TOKENS = 8  # that are generated
PROMPTS = [prompt(300, seed) for seed in range(80, 84)] + [prompt(300, 80)[:200] + prompt(80, 85)]


def full_blocks(tokens: int) -> int:
    return (tokens - 1) // BLOCK * BLOCK


def corrupt(node: Node) -> None:
    done = run_cenote("debug", "corrupt", "--all", "--socket", node.socket)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def nodes(start_node: StartNode) -> list[Node]:
    """Two, of one cluster."""
    return Cluster(start_node).form(2)


def over(nodes: list[Node], **more: object) -> dict[str, object]:
    """An engine's arguments."""
    sockets = [str(each.socket) for each in nodes]
    # However slowly it computes beside its tests: what there is, is worth waiting for.
    told = connector(sockets[0], sockets=sockets, prefill_tokens_per_s=1, **more)
    return {
        "kv_transfer_config": told,
        "tensor_parallel_size": 2,
        "distributed_executor_backend": "mp",
    }


@pytest.fixture
def reference(vllm_python: str, llama: Path, tmp_path: Path) -> Iterator[Engine]:
    """An engine without connector: what it says is right."""
    engine = Engine(vllm_python, llama, tmp_path / "reference.log")
    yield engine
    engine.stop()


def test_ranks_on_two_nodes_take_what_both_have_and_go_on_when_one_is_lost(
    nodes: list[Node], reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    engine = start_engine(llama, **over(nodes))
    expected = reference.tokens(PROMPTS, TOKENS)
    reference.stop()

    def cached() -> list[int]:
        """Prompt tokens that the nodes gave; what is said is right, whatever they are."""
        found = []
        for each, right in zip(PROMPTS, expected, strict=True):
            assert engine.call("forget")
            (answer,) = engine.generate([each], TOKENS)
            assert answer["tokens"] == right
            found.append(int(answer["cached"]))
        return found

    everything = [full_blocks(len(each)) for each in PROMPTS]
    assert engine.tokens(PROMPTS, TOKENS) == expected
    until("the nodes have met", lambda: engine.log_text().count("have met") == 2)
    for node in nodes:
        until("each has its part of all blocks", lambda node=node: node.blocks()["present"] >= 4 * 9 + 2)
    assert cached() == everything

    # nothing is handed over: a node's name says nothing of where the other parts are
    for terms in ({"cenote_request": "made here"}, {"cenote_request": "made there", "cenote_node": "elsewhere"}):
        (answer,) = engine.generate(PROMPTS[:1], TOKENS, transfer=[terms])
        assert (answer["tokens"], answer["transfer"]) == (expected[0], None)
    assert engine.log_text().count("ranks are on several nodes are not handed over") == 1
    metrics = engine.metrics()
    assert metrics.get("cenote_requests_published", 0) == metrics.get("cenote_requests_followed", 0) == 0

    # what one of them loses is not taken from the other either, and it is stored there again
    for seed in range(3):
        assert engine.call("lose", rank=1, seed=seed, share=0.3) > 0
        less = cached()
        assert sum(less) < sum(everything)
        assert all(got <= most for got, most in zip(less, everything, strict=True))
        until("it has them again", lambda: cached() == everything)
    metrics = engine.metrics()
    assert metrics["cenote_blocks_not_everywhere"] > 0
    assert metrics.get("cenote_blocks_failed", 0) == 0

    # the bytes of both count
    for node in nodes:
        corrupt(node)
        assert engine.call("forget")
        (answer,) = engine.generate([PROMPTS[0]], TOKENS)
        assert answer["cached"] == everything[0]
        assert answer["tokens"] != expected[0]
        done = run_cenote("clear", "--all", "--socket", node.socket)
        assert done.returncode == 0, done.stderr
        until("it is stored again", lambda: cached() == everything)

    # one is lost while a request is computed: no cache until it comes back
    assert engine.call("forget")
    engine.start_call("generate", prompts=PROMPTS, tokens=60)
    kill_node(nodes[1])
    long = engine.finish_call()
    assert [each["tokens"][:TOKENS] for each in long] == expected
    until("that is said", lambda: "lost each other" in engine.log_text())
    assert cached() == [0] * len(PROMPTS)
    assert engine.log_text().count("lost each other") <= 2, "once by each side"
    nodes[1].kill_everything()
    nodes[1].start()
    until("both are used again", lambda: cached() == everything)

    # the worker of rank 0's node is replaced: the other node, which asks nothing, hears of it by the scheduler
    nodes[0].worker_dies()
    until("both are used again", lambda: cached() == everything)
