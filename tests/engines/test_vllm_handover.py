"""One vLLM engine prefills at one node, another one decodes at another: the blocks go from the one to the other."""

from __future__ import annotations

from pathlib import Path

from conftest import StartEngine, StartNode
from node import Node, free_ports, until
from test_vllm import corrupt, full_blocks
from tiny_models import prompt
from vllm_engine import connector

TOKENS = 24


def pair(start_node: StartNode) -> tuple[Node, Node]:
    """Nodes a and b, which ask each other, and offer each other nothing: what b has of a it was handed over."""
    ports = free_ports(2)
    seeds = ",".join(f'"127.0.0.1:{port}"' for port in ports)
    nodes = [
        start_node(
            f"cluster.name={name}",
            f"cluster.listen=127.0.0.1:{port}",
            f"cluster.seeds=[{seeds}]",
            'remote.backends=["peers"]',
            "remote.ingest=none",
            "debug.enabled=true",
        )
        for name, port in zip("ab", ports, strict=True)
    ]
    until(
        "the nodes ask each other",
        lambda: all(
            each.status()["cluster"]["askable"] == 1 and each.status()["remote"]["serving"] == 1 for each in nodes
        ),
    )
    return nodes[0], nodes[1]


def test_a_request_that_one_engine_prefills_is_decoded_by_another_from_its_bytes(
    start_node: StartNode, llama: Path, start_engine: StartEngine
) -> None:
    a, b = pair(start_node)
    plain = start_engine(llama)
    prefills = start_engine(llama, kv_transfer_config=connector(a.socket, role="kv_producer", node="a"))
    decodes = start_engine(llama, kv_transfer_config=connector(b.socket, role="kv_consumer", handover_deadline=60))
    asked = [prompt(400, 71), prompt(300, 72)]
    expected = plain.tokens(asked, TOKENS)

    # the producer answers with what the consumer needs
    first = prefills.generate(asked[:1], 1)[0]
    assert first["cached"] == 0
    assert first["transfer"]["cenote_node"] == "a"
    (answer,) = decodes.generate(asked[:1], TOKENS, transfer=[first["transfer"]])
    assert (answer["tokens"], answer["cached"]) == (expected[0], full_blocks(400))

    # a common name given beforehand: the consumer is there first, and takes the blocks as they are computed
    named = {"cenote_request": "both know it"}
    waiting = decodes.start_call("generate", prompts=asked[1:], tokens=TOKENS, transfer=[{**named, "cenote_node": "a"}])
    until("it follows", lambda: a.status()["handover"]["followers"] >= 1)
    prefills.generate(asked[1:], 1, transfer=[named])
    (answer,) = waiting.finish_call()
    assert (answer["tokens"], answer["cached"]) == (expected[1], full_blocks(300))
    metrics = decodes.metrics()
    assert metrics["cenote_requests_followed"] == 2
    assert metrics["cenote_blocks_followed"] >= (full_blocks(400) + full_blocks(300)) // 32
    assert metrics["cenote_blocks_from_remote"] == (full_blocks(400) + full_blocks(300)) // 32
    assert metrics.get("cenote_blocks_stored", 0) == 0
    assert prefills.metrics()["cenote_requests_published"] == 2
    assert prefills.metrics().get("cenote_blocks_loaded", 0) == 0

    # with every byte altered where it came other tokens come: the right ones came out of these bytes
    assert decodes.call("forget")
    corrupt(b)
    (altered,) = decodes.generate(asked[:1], TOKENS)
    assert altered["cached"] == full_blocks(400)
    assert altered["tokens"] != expected[0]


def test_what_the_producer_has_is_what_the_consumer_decodes_from_and_what_nobody_has_is_computed(
    start_node: StartNode, llama: Path, start_engine: StartEngine
) -> None:
    a, b = pair(start_node)
    plain = start_engine(llama)
    prefills = start_engine(llama, kv_transfer_config=connector(a.socket, role="kv_producer", node="a"))
    decodes = start_engine(llama, kv_transfer_config=connector(b.socket, role="kv_consumer", handover_deadline=1))
    asked = prompt(400, 73)
    (expected,) = plain.tokens([asked], TOKENS)
    # a request that nobody prefills, at a node that there is and at one that there is not
    for node in ("a", "nowhere"):
        (answer,) = decodes.generate([asked], TOKENS, transfer=[{"cenote_request": "nothing", "cenote_node": node}])
        assert (answer["tokens"], answer["cached"]) == (expected, 0)
        assert decodes.call("forget")
    # every byte is altered where it was made, and its sum with it: other tokens
    (made,) = prefills.generate([asked], 1)
    assert prefills.call("forget")  # all is stored then
    corrupt(a)
    (answer,) = decodes.generate([asked], TOKENS, transfer=[made["transfer"]])
    assert answer["cached"] == full_blocks(400)
    assert answer["tokens"] != expected
    until("nothing is left", lambda: b.status()["prefetch"]["waiting"] == 0 and b.status()["prefetch"]["held"] == 0)
