"""What scripts/check_docs.py finds in documents."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_docs", ROOT / "scripts" / "check_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "code",
    [
        "`memory/index`",
        "`client/cenote.h`",
        "`tiers/nvme/`",
        "`client/session_write::put_whole`",
        "`cenote/session.py`",
        "`$XDG_CACHE_HOME/nothing/here`, `/etc/nothing`, `~/client/nothing`",
        "```\nscripts/test --preset release\n```",
    ],
)
def test_what_is_there_is_no_complaint(checker: ModuleType, code: str) -> None:
    assert checker.wrong_names(code, "README.md") == []


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("`memory/no_such_file`", "there is no memory/no_such_file"),
        ("`memory/index.py`", "there is no memory/index.py"),
        ("`client/session_write::no_such_function`", "say nothing of no_such_function"),
        ("```\nclient ──> client/no_such_file::push\n```", "there is no client/no_such_file"),
    ],
)
def test_names_of_what_is_not_there_are_complaints(checker: ModuleType, code: str, complaint: str) -> None:
    (found,) = checker.wrong_names(code, "README.md")
    assert complaint in found


def test_links_lead_to_files_and_headings_that_are_there(checker: ModuleType) -> None:
    text = "[a](architecture.md) [b](architecture.md#words) [c](../README.md) [d](https://example.org/x.md)"
    assert checker.wrong_links("docs/operations.md", text) == []
    assert len(checker.wrong_links("docs/operations.md", "[a](nothing.md) [b](architecture.md#no-such-heading)")) == 2
