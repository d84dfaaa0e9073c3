"""Refuses documents that name what is not there, for scripts/lint.

scripts/check_docs.py [FILE.md …]    all that git tracks, without arguments

In code (`like this`, and in blocks) it looks at
- paths that begin with a folder of this tree: `memory/index`, `memory/index.hpp`, `tiers/nvme/` (an extension may be
  left out);
- functions and types in them: `client/session_write::put_whole`;
and in the text at links to other files and to their headings. Each must exist. Python modules may be named from the
package on (`cenote/session.py`), neighbours of a document from its folder on.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTENSIONS = ("", ".hpp", ".cpp", ".h", ".py", ".md")
SOURCES = (".hpp", ".cpp", ".h", ".c", ".py")

BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
NAMED = re.compile(r"(?<![\w./$~{<>-])((?:[\w.-]+/)+[\w.-]*)(?:::([A-Za-z_]\w*(?:::\w+)*))?")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


@cache
def tracked() -> frozenset[str]:
    """Files that git knows or would add, and their folders."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    present = {name for name in files if name and (ROOT / name).exists()}
    return frozenset(present | {str(folder) for name in present for folder in Path(name).parents} - {"."})


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(errors="replace")


def resolve(path: str, document: str) -> list[str]:
    """The files, or the folder, that a document means by `path`."""
    path = path.rstrip("/.")
    for start in (path, f"python/{path}", str(Path(document).parent / path)):
        found = [start + extension for extension in EXTENSIONS if start + extension in tracked()]
        if found:
            return found
    return []


def is_ours(path: str) -> bool:
    top, _, rest = path.partition("/")
    return bool(rest.strip("/.")) and (top in tracked() or (top == "cenote" and rest.endswith(".py")))


def wrong_names(code: str, document: str) -> list[str]:
    found = []
    for path, member in NAMED.findall(code):
        if not is_ours(path):
            continue
        files = resolve(path, document)
        if not files:
            found.append(f"there is no {path}")
        elif member:
            word = re.compile(rf"\b{re.escape(member.split('::')[-1])}\b")
            if not any(word.search(text_of(each)) for each in files if each.endswith(SOURCES)):
                found.append(f"{' and '.join(files)} say nothing of {member}")
    return found


def anchors(name: str) -> set[str]:
    """Of headings, as forges make them."""
    text = BLOCK.sub("", text_of(name))
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in HEADING.findall(text)}


def wrong_links(document: str, text: str) -> list[str]:
    found = []
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / document).parent.joinpath(path).resolve() if path else ROOT / document
        name = str(there.relative_to(ROOT)) if there.is_relative_to(ROOT) else ""
        if name not in tracked():
            found.append(f"a link leads to {target}, which is not there")
        elif anchor and anchor not in anchors(name):
            found.append(f"a link leads to {target}, but there is no such heading")
    return found


def complaints(document: str) -> list[str]:
    text = text_of(document)
    prose = BLOCK.sub("", text)
    code = [*BLOCK.findall(text), *INLINE.findall(prose)]
    return [
        *wrong_links(document, INLINE.sub("", prose)),
        *(wrong for each in code for wrong in wrong_names(each, document)),
    ]


def main() -> int:
    documents = sys.argv[1:] or sorted(name for name in tracked() if name.endswith(".md"))
    wrong = [f"{document}: {each}" for document in documents for each in complaints(document)]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
