"""Commands of tutorials and how-to pages: each runs as the page has it, or a mark above it has the reason."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from node import ROOT
from pages import COMMANDS, blocks_of, run_page

PAGES = sorted(each for folder in ("tutorials", "how-to") for each in (ROOT / "docs" / folder).glob("*.md"))
DATA = ("c", "cpp", "json", "python", "text", "toml", "yaml")  # what a block may hold beside commands


def runs(page: Path) -> bool:
    return any(block.is_run for block in blocks_of(page.read_text()))


@pytest.mark.parametrize("page", [each for each in PAGES if runs(each)], ids=lambda each: each.stem)
def test_commands_of_a_page_do_what_it_says(page: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="cp-") as place:  # short: a socket's path is bounded
        run_page(page.read_text(), Path(place))


def test_each_tutorial_runs_something() -> None:
    tutorials = [each for each in PAGES if each.parent.name == "tutorials"]
    assert len(tutorials) >= 4
    assert [each.name for each in tutorials if not runs(each)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda each: each.stem)
def test_what_does_not_run_has_a_reason_and_names_no_test_that_is_not_there(page: Path) -> None:
    for block in blocks_of(page.read_text()):
        assert block.language in (*COMMANDS, *DATA), f"line {block.line}: {block.language}"
        assert block.reason is None or len(block.reason.split()) >= 3, f"line {block.line}: {block.reason}"
        tests = [word.rstrip(",;.") for word in (block.reason or "").split() if word.startswith("tests/")]
        assert [name for name in tests if not (ROOT / name).exists()] == []


def fails(page: str, place: Path, match: str) -> None:
    with pytest.raises(AssertionError, match=match):
        run_page(page, place)


@pytest.mark.parametrize("language", COMMANDS)
def test_a_command_that_fails_is_found(language: str, tmp_path: Path) -> None:
    prompt = "$ " if language == "console" else ""
    fails(f"```{language}\n{prompt}true\n{prompt}false\n{prompt}true\n```\n", tmp_path, "fails")


def test_output_that_differs_from_the_page_is_found(tmp_path: Path) -> None:
    fails("```console\n$ echo one; echo two\none\nthree\n```\n", tmp_path, "prints")


def test_a_page_runs_in_one_shell_with_the_files_that_it_shows_and_without_what_is_marked(tmp_path: Path) -> None:
    run_page(
        "```text a.txt\nfirst\nsecond 'quoted' $HOME\n```\n"
        "```console\n$ export WORD=here\n$ cat a.txt\n…\nsecond 'quoted' $HOME\n```\n"
        "<!-- not run: it would fail -->\n```\nfalse\n```\n"
        "```\ntest $WORD = here &&\n  cd /\n```\n"
        "```console\n$ pwd\n/\n$ printf 'x=%s\\n' \\\n    12\nx=…\n```\n",
        tmp_path,
    )


@pytest.mark.parametrize(
    "page", ["<!-- not run: of no block -->\n\n```\ntrue\n```\n", "<!-- not run: of data -->\n```json\n{}\n```\n"]
)
def test_a_mark_that_marks_nothing_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match="mark"):
        blocks_of(page)


def test_a_block_without_an_end_is_an_error() -> None:
    with pytest.raises(ValueError, match="```"):
        blocks_of("```\ntrue\n")
