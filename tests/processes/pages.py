"""Pages of the book whose commands run as they stand.

A fenced block of a page is one of these:
- ```console: lines `$ command`, each with what it prints below it; `…` stands for anything, alone also for lines;
- ``` and ```sh: commands;
- ```LANGUAGE NAME: a file, which the commands behind it find under that name;
- ```LANGUAGE: something else to read.
Commands run, in the order of the page and in one shell, unless `<!-- not run: REASON -->` stands above the block. After
one that leaves a node in the background, the next waits until that node answers. Pages run side by side: ports of
127.0.0.1 are free ones, and /tmp/ is a folder of the page's own."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from node import BINARY, LIMIT, ROOT, free_ports, node_environment, until

OMITTED = "…"
COMMANDS = ("", "sh", "console")
MARK = re.compile(r"<!-- not run: (.*) -->")
END = "=== end of command "  # and its number
READY = """socket="$(cenote config check {} 2>&1 | sed -n "s/^the configuration is valid; the node's socket is //p")"
timeout {} bash -c 'until cenote status --socket "$0" >/dev/null 2>&1; do sleep 0.05; done' "$socket"
"""


@dataclass(frozen=True)
class Block:
    """A fenced block, and the lines of the page on which it begins and ends."""

    language: str
    name: str  # of a file
    text: str
    reason: str | None  # why its commands do not run
    line: int

    @property
    def is_run(self) -> bool:
        return self.language in COMMANDS and self.reason is None


@dataclass
class Command:
    text: str
    output: list[str]  # what the page has below it


def blocks_of(page: str) -> list[Block]:
    """All blocks. A mark that is above none of them, or above one without commands, is an error."""
    found: list[Block] = []
    lines = page.splitlines()
    marks: dict[int, str] = {}
    number = 0
    while number < len(lines):
        mark = MARK.fullmatch(lines[number].strip())
        if mark:
            marks[number] = mark[1]
        fence = re.fullmatch(r"```(\S*) *(\S*)", lines[number])
        if fence:
            end = lines.index("```", number + 1)
            text = "".join(f"{line}\n" for line in lines[number + 1 : end])
            found.append(Block(fence[1], fence[2], text, marks.pop(number - 1, None), number + 1))
            if found[-1].reason and fence[1] not in COMMANDS:
                raise ValueError(f"line {number}: a mark above a block without commands")
            number = end
        number += 1
    if marks:
        raise ValueError(f"line {min(marks) + 1}: a mark that is above no block")
    return found


def commands_of(block: Block) -> list[Command]:
    if block.language != "console":
        return [Command(block.text, [])]
    found: list[Command] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], []))
        else:
            found[-1].output.append(line)
    return found


def expression(lines: list[str]) -> str:
    """Matches output that has these lines in a row; any lines may stand where some are omitted."""
    return "".join(
        r"(?:.*\n)*?" if line == OMITTED else re.escape(line).replace(OMITTED, ".*") + r" *\n" for line in lines
    )


def node_options(command: str) -> str | None:
    """The options of a node that the command leaves in the background."""
    found = re.search(r"^cenote node\b([^>&|#]*)(?:>.*)?&\s*(?:#.*)?$", command, re.MULTILINE)
    return found[1] if found else None


def isolated(page: str, folder: Path) -> str:
    """The page with free ports in the place of those of 127.0.0.1, wherever they stand, and `folder` for /tmp."""
    ports = sorted(set(re.findall(r"\b127\.0\.0\.1:(\d+)", page)))
    for port, free in zip(ports, free_ports(len(ports)), strict=False):
        page = re.sub(rf"\b{port}\b", str(free), page)
    return page.replace("/tmp/", f"{folder}/")


def script_of(page: str) -> tuple[str, list[Command]]:
    """A shell script that runs what can run, and its commands in order."""
    lines, commands = ["set -eu"], []
    for block in blocks_of(page):
        if block.language not in COMMANDS and block.name:
            lines.append(f"cat > {shlex.quote(block.name)} <<'END OF {block.name}'\n{block.text}END OF {block.name}")
        for each in commands_of(block) if block.is_run else []:
            lines.append(each.text)
            lines.append(f'echo; echo "{END}{len(commands)}"')
            if (options := node_options(each.text)) is not None:
                lines.append(READY.format(options, LIMIT))
            commands.append(each)
    return "\n".join(lines) + "\n", commands


def make_place(place: Path) -> dict[str, str]:
    """A working folder like a checkout, where `cenote` and `python3` are those of the tests."""
    for name in ("home", "run", "bin", "work"):
        (place / name).mkdir(mode=0o700)
    for each in ("scripts", "packaging", "docs", "tests", "examples"):
        (place / "work" / each).symlink_to(ROOT / each)
    (place / "bin" / "cenote").symlink_to(BINARY)
    (place / "bin" / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (place / "bin" / "python3").chmod(0o755)
    return node_environment() | {
        "HOME": str(place / "home"),
        "XDG_RUNTIME_DIR": str(place / "run"),
        "STATE_DIRECTORY": str(place / "home"),
        "TMPDIR": str(place / "run"),
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
    }


def is_gone(group: int) -> bool:
    """Whether no process of the group lives; zombies do not."""
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_process = each.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of_process) == group and state != "Z":
            return False
    return True


def end_group(group: int) -> None:
    """Ends what a page left in the background, in order."""
    if is_gone(group):
        return
    os.killpg(group, signal.SIGTERM)
    try:
        until("what the page began has ended", lambda: is_gone(group))
    except AssertionError:
        os.killpg(group, signal.SIGKILL)
        raise


def run_page(page: str, place: Path) -> None:
    """Runs it in the folder, which is empty. Fails by the first command that fails, or prints something else."""
    environment = make_place(place)
    script, commands = script_of(isolated(page, place / "run"))
    (place / "script").write_text(script)
    with (place / "output").open("wb") as output:
        shell = subprocess.Popen(
            ["bash", str(place / "script")], cwd=place / "work", env=environment, stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            with contextlib.suppress(
                subprocess.TimeoutExpired
            ):  # the command that hangs has not ended, as one that fails
                shell.wait(2 * LIMIT)
        finally:
            shell.kill()
            shell.wait()
            end_group(shell.pid)
    printed = (place / "output").read_text(errors="replace")
    pieces = re.split(rf"\n?^{END}\d+\n", printed, flags=re.MULTILINE)
    for number, command in enumerate(commands):
        assert number + 1 < len(pieces), f"{command.text}\nfails, or hangs:\n{pieces[number]}"
        assert re.search(expression(command.output), pieces[number] + "\n"), f"{command.text}\nprints\n{pieces[number]}"
