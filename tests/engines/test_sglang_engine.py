"""SGLang's radix tree and controller over a node: what an engine stored comes back, byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest
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
