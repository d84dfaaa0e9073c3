"""cenote._attachment: in an engine's log a node that is absent and one that refuses have words of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import cenote
import pytest
from cenote import _attachment
from cenote.errors import CenoteError, DeadlineExceeded, NotRunning, PermissionDenied, SpecMismatch

SPEC = cenote.InstanceSpec(id="i", tokens_per_block=16, parts={"kv": 4096})


def refusing(refusal: CenoteError) -> Callable[..., Any]:
    def attach(*_: Any, **__: Any) -> Any:
        raise refusal

    return attach


@pytest.mark.parametrize(
    ("refusal", "words"),
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
    refusal: CenoteError, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_attachment, "attach", refusing(refusal))
    caplog.set_level(logging.INFO, "cenote")
    assert _attachment.Attachment(SPEC).session() is None
    assert words in caplog.text
