"""vLLM's own code while it stores: no step waits for a store, and the engine has every block back in the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import StartEngine, StartNode
from node import Node, until
from tiny_models import prompt
from vllm_engine import Engine, connector

BLOCK = 32  # tokens; the tiny Llama has 128 KiB of KV for them
PROMPTS = [prompt(300, 1), prompt(300, 1)[:200] + prompt(80, 2), prompt(320, 3), prompt(150, 4)]
TOKENS = 40


@pytest.fixture(scope="module")
def reference(vllm_python: str, llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine without connector: its tokens are right."""
    engine = Engine(vllm_python, llama, tmp_path_factory.mktemp("reference") / "engine.log")
    yield engine
    engine.stop()


def check_blocks(engine: Engine) -> None:
    free, every = engine.call("drain")
    assert free == every, "blocks of the engine's pool are kept for good"


def check_found(engine: Engine, expected: list[list[int]]) -> None:
    """Each prompt comes from the node as far as it can, and is continued right."""

    def is_found() -> bool:
        answers = []
        for each in PROMPTS:
            assert engine.call("forget")
            answers += engine.generate([each], TOKENS)
        assert [answer["tokens"] for answer in answers] == expected
        return all(
            answer["cached"] == (len(each) - 1) // BLOCK * BLOCK for each, answer in zip(PROMPTS, answers, strict=True)
        )

    until("the prompts are found", is_found)


@pytest.mark.parametrize("device", [None, "sim:0"])
def test_no_step_waits_for_a_store_and_no_block_is_lost_whatever_becomes_of_it(
    start_node: StartNode, reference: Engine, llama: Path, start_engine: StartEngine, device: str | None
) -> None:
    node = start_node()
    settings = connector(node.socket, **({} if device is None else {"device": device}))
    engine = start_engine(llama, kv_transfer_config=settings)
    expected = reference.tokens(PROMPTS, TOKENS)
    engine.call("withhold_room", withhold=True)
    assert engine.tokens(PROMPTS, TOKENS) == expected
    check_blocks(engine)  # also of stores that got no room
    metrics = engine.metrics()
    assert metrics["cenote_blocks_dropped"] > 0 and metrics.get("cenote_blocks_stored", 0) == 0
    engine.call("withhold_room", withhold=False)
    assert engine.call("drain") and engine.call("forget")
    assert engine.tokens(PROMPTS, TOKENS) == expected
    check_blocks(engine)
    metrics = engine.metrics()
    assert metrics["cenote_blocks_stored"] > 0 and metrics.get("cenote_store_waits", 0) == 0
    check_found(engine, expected)
    # a worker that dies takes what was being stored with it
    engine.call("withhold_room", withhold=True)
    other = prompt(400, 9)
    engine.start_call("generate", prompts=[other], tokens=TOKENS)
    node.worker_dies()
    (answer,) = engine.finish_call()
    engine.call("withhold_room", withhold=False)
    assert [answer["tokens"]] == reference.tokens([other], TOKENS)
    check_blocks(engine)
    check_found(engine, expected)
    assert engine.call("engine_waits") == 0


def test_a_device_that_fails_while_it_saves_keeps_none_of_the_engine_s_blocks(
    start_node: StartNode, reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    node = start_node()
    engine = start_engine(llama, kv_transfer_config=connector(node.socket, device="sim:0,fail=9"))
    assert engine.tokens(PROMPTS, TOKENS) == reference.tokens(PROMPTS, TOKENS)
    until("it is noticed", lambda: "the device failed, and this engine goes on without its cache" in engine.log_text())
    check_blocks(engine)


def test_a_reset_succeeds_while_stores_keep_blocks_and_requests_go_on(
    start_node: StartNode, reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    node = start_node()
    engine = start_engine(llama, kv_transfer_config=connector(node.socket), async_scheduling=False)
    expected = reference.tokens(PROMPTS, TOKENS)
    for withhold in (True, False):
        engine.call("withhold_room", withhold=withhold)
        for running in (False, True):
            answer = engine.call("interrupt", prompt=PROMPTS[0], tokens=TOKENS, running=running)
            assert answer["tokens"] == expected[0]
            assert answer["stores"] > 0 or not withhold
            assert engine.call("forget")
            assert engine.tokens(PROMPTS[1:], TOKENS) == expected[1:]
    check_blocks(engine)
    check_found(engine, expected)


def test_an_engine_whose_pool_is_small_computes_right_while_stores_keep_much_of_it(
    start_node: StartNode, reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    node = start_node()
    small = {"kv_cache_memory_bytes": 4 << 20, "max_model_len": 640}  # 31 blocks for four prompts of 5 to 10
    engine = start_engine(llama, kv_transfer_config=connector(node.socket), **small)
    expected = reference.tokens(PROMPTS, 100)
    for withhold in (True, False):
        engine.call("withhold_room", withhold=withhold)
        assert engine.tokens(PROMPTS, 100) == expected
        check_blocks(engine)
    until("they are stored", lambda: node.blocks()["present"] >= 20)
    reader = start_engine(llama, kv_transfer_config=connector(node.socket))
    answers = reader.generate(PROMPTS, 100)
    assert [each["tokens"] for each in answers] == expected
    assert sum(each["cached"] for each in answers) > 0


def test_ranks_attach_before_the_first_request(node: Node, llama: Path, start_engine: StartEngine) -> None:
    start_engine(
        llama, kv_transfer_config=connector(node.socket), environ={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    ).wait_until_ready()
    sides = {"vllm-scheduler", "vllm-worker-0"}
    until("both sides are attached", lambda: sides <= {each["client"] for each in node.status()["sessions"]})
