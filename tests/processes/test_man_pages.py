"""The manual pages beside the commands that they describe."""

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
    command = page.stem.removeprefix("cenote-")
    texts = [help_of(command)]
    for family in subcommands(command):
        texts.append(help_of(command, family))
        texts += [help_of(command, family, each) for each in subcommands(command, family)]
    options = re.findall(r"\bFl -([\w-]+)", page.read_text())
    assert options
    for option in options:
        assert any(f"--{option}" in text for text in texts), option
