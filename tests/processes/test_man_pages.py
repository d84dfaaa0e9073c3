"""The manual pages and the completion beside the commands that they describe."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from node import BINARY

PAGES = Path(__file__).resolve().parents[2] / "packaging" / "man"


def help_of(*words: str) -> str:
    return subprocess.run(
        [str(BINARY), *words, "--help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def subcommands(*words: str) -> list[str]:
    listed = re.search(r"^Subcommands:\n((?:  .*\n?)+)", help_of(*words), re.MULTILINE)
    return re.findall(r"^  (\S+)", listed.group(1), re.MULTILINE) if listed else []


def test_the_page_of_admin_has_each_command() -> None:
    page = (PAGES / "cenote-admin.8").read_text()
    families = subcommands("admin")
    assert families
    for family in families:
        line = re.search(rf"^\.It Cm {family}\b(.*)$", page, re.MULTILINE)
        assert line, f"{family} is not in the page"
        words = re.findall(r"[\w-]+", line.group(1))
        assert [each for each in subcommands("admin", family) if each not in words] == []


@pytest.mark.parametrize("page", sorted(PAGES.iterdir()), ids=lambda page: page.stem)
def test_each_option_of_a_page_is_one_of_its_command(page: Path) -> None:
    command = page.stem.split("-")[1:]  # none: the page of the whole program
    texts = [help_of(*command)]
    for family in subcommands(*command) if command else ():
        texts.append(help_of(*command, family))
        texts += [help_of(*command, family, each) for each in subcommands(*command, family)]
    options = re.findall(r"\bFl -([\w-]+)", page.read_text())
    assert options
    for option in options:
        assert any(f"--{option}" in text for text in texts), option


def test_completion_offers_commands_options_and_keys(tmp_path: Path) -> None:
    script = PAGES.parent / "completion" / "cenote"

    def offered(*words: str) -> list[str]:
        line = (
            'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }; _cenote; echo "${COMPREPLY[*]}"'
        )
        command = ["bash", "-c", line, str(script), str(BINARY), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.split()

    assert {"node", "config", "init", "status"} <= set(offered(""))
    assert offered("sess") == ["session"]
    assert offered("config", "sh") == ["show"]
    assert offered("config", "show", "--set", "a=b", "--c") == ["--config"]
    assert {"--out", "--force", "--help"} <= set(offered("init", "--"))
    assert offered("node", "--set", "dram.cap") == ["dram.capacity="]
    assert offered("node", "--config", "x") == []
