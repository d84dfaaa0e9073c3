"""cenote._attachment: an engine's log tells a node that is absent from one that refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import cenote
import pytest
from cenote import _attachment
from cenote.errors import CenoteError, DeadlineExceeded, NotRunning, PermissionDenied, SpecMismatch

SPEC = cenote.InstanceSpec(id="i", tokens_per_block=16, parts={"kv": 4096})


def refusing(why: CenoteError) -> Callable[..., Any]:
    def attach(*_: Any, **__: Any) -> Any:
        raise why

    return attach


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (NotRunning("no node at /run/cenote.sock"), "no node, running on without it: no node at /run/cenote.sock"),
        (DeadlineExceeded("too late"), "no node, running on without it: too late"),
        (
            PermissionDenied("the token is wrong"),
            "the node refuses this engine, running on without it: the token is wrong",
        ),
        (SpecMismatch("other layout"), "the node refuses this engine, running on without it: other layout"),
    ],
)
def test_a_refusal_is_not_called_an_absent_node(
    why: CenoteError, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_attachment, "attach", refusing(why))
    caplog.set_level(logging.INFO, "cenote")
    assert _attachment.Attachment(SPEC).session() is None
    assert words in caplog.text
