"""SGLang's radix tree and controller over a node: what an engine stored comes back, byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sglang_support import EVERY_LAYOUT, Engine, Node, sequence

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
