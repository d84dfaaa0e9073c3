"""SGLang's radix tree and controller over a node: what an engine stored comes back, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from node import until
from redis import Redis
from sglang_support import EVERY_LAYOUT, Engine, Node, SlidingEngine, sequence

pytest_plugins = ["sglang_support"]

EngineOf = Callable[..., Engine]


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "generic"])
@pytest.mark.parametrize(("mla", "layout"), EVERY_LAYOUT)
def test_a_prompt_comes_back_after_the_engine_forgot_it(
    sglang_node: Node, engine_of: EngineOf, mla: bool, layout: str, v1: bool
) -> None:
    engine = engine_of(sglang_node, mla=mla, layout=layout, v1=v1)
    tokens = sequence(12)
    engine.compute(tokens)
    engine.backed_up()
    engine.forget()
    assert engine.load_back(tokens) == 0
    assert engine.prefetch(tokens) == len(tokens)
    assert engine.load_back(tokens) == len(tokens)


@pytest.mark.parametrize("layout", ["layer_first", "page_first", "page_first_direct"])
@pytest.mark.parametrize("v1", [True, False], ids=["v1", "generic"])
def test_a_sliding_window_comes_back_with_its_prompt(
    sglang_node: Node, engine_of: EngineOf, layout: str, v1: bool
) -> None:
    engine = engine_of(sglang_node, kind=SlidingEngine, layout=layout, v1=v1)
    tokens = sequence(12)
    engine.compute(tokens)
    engine.backed_up()
    engine.forget()
    assert engine.prefetch(tokens) == len(tokens)
    assert engine.load_back(tokens) == len(tokens)


def test_a_prompt_ends_where_a_window_was_stored(sglang_node: Node, engine_of: EngineOf) -> None:
    """Two prompts that part after six pages: the windows are stored where the two were computed to."""
    engine = engine_of(sglang_node, kind=SlidingEngine)
    start = sequence(6)
    for end in (sequence(5), sequence(4)):
        engine.compute(start + end)
        engine.backed_up()
        engine.forget()
    third = start + sequence(3)
    loaded = engine.prefetch(third)
    assert loaded == len(start)
    assert engine.load_back(third) == loaded


def test_a_sliding_window_that_another_node_stored_comes_with_its_prompt(
    start_sglang_node: Callable[..., Node], redis: Redis, engine_of: EngineOf, tmp_path: Path
) -> None:
    def start(name: str) -> Node:
        elsewhere = (f'remote.backends=["{redis.url}"]', f"remote.state_dir={tmp_path / name}")
        node = start_sglang_node(*elsewhere, "dram.capacity=64MiB", "remote.lookup_timeout=2s")
        until("the server serves", lambda: node.status()["remote"]["serving"] == 1)
        return node

    here, there = start("a"), start("b")
    writer = engine_of(here, kind=SlidingEngine)
    start_of_all = sequence(6)
    for end in (sequence(5), sequence(4)):  # part after six pages: windows are stored where the two were computed to
        tokens = start_of_all + end
        writer.compute(tokens)
        writer.backed_up()
        writer.forget()
    stored = here.blocks()["present"]
    until("all is on the server", lambda: here.status()["remote"]["counters"]["put"] >= stored)
    writer.close()

    reader = engine_of(there, kind=SlidingEngine)
    third = start_of_all + sequence(3)
    for asked, found in ((tokens, len(tokens)), (third, len(start_of_all))):

        def finds(asked: list[int] = asked, found: int = found) -> bool:  # an answer that came too late is none
            reader.forget()
            return reader.prefetch(asked) == found

        until("it is found", finds)
        assert reader.load_back(asked) == found
