"""Checks identifiers, comments and names of types against the rule of CONTRIBUTING.md; older files may only improve.

scripts/check_names.py             prints the faults of files and folders that exceed their limits; status 1 if any does
scripts/check_names.py PATH ...    prints every fault in these files and folders
scripts/check_names.py --update    writes figures that have fallen to scripts/names.csv; refuses to raise one

scripts/names.csv lists the faults of files that are older than the rule. A folder may have as many as its listed files
have together, so code can move between them. A file that is not listed may have none. A file that git sees as renamed
keeps its figures with --update.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = "scripts/names.csv"
CPP = (".c", ".cpp", ".cu", ".h", ".hpp")
TAGGED = ("parameter", "tparam", "member", "function", "prototype", "class", "struct", "union", "enum", "typedef")
TYPES = ("class", "struct", "union", "enum", "typedef")

# Prepositions, pronouns, conjunctions, adverbs of place and time, participles and past forms of everyday verbs.
# Participles of the field's verbs (evicted, pinned, written) are states and counters; `all`, `done`, `next`, `now`,
# `other`, `out`, `then` and `used` are names that libraries use.
NOT_NAMES = """
    about above across after again against ahead alone along already although always among another anybody anyone
    anything anyway apart around as asked asking at awaited away because before begun behind below beneath beside
    besides between beyond born both brought but by came chosen come coming despite down during each either else
    elsewhere ended ever every everybody everyone everything everywhere except few for forgot forgotten found from
    gave getting given giving goes going gone got gotten had handed handing having he heard hearing held her here hers
    him his hosted how however if in inside instead into it its itself kept knew knowing known landed late later
    leaving left lent like lost made making many me meant met mine more most much my near neither never no nobody none
    nor nothing of off often on once only onto opening or others otherwise our ours over owed own parting per putting
    said saw saying seeing seen she shown since so some somebody someone something sometimes somewhere soon sought
    spoken standing still such taken taking telling than that theirs them themselves there these they this those
    though through throughout till to together told too took toward towards tried trying under undropped unheard
    unless unlike unreleased until up upon us wanted wanting was we went were what whatever when whenever where
    whereas wherever whether which whichever while who whoever whom whomever whose why with within without yet you
    your yours
"""
PERSONS = "anybody anyone everybody everyone he her him his nobody she somebody someone who whoever whom whomever"
SPEECH = "hear heard hearing hears said say saying says tell telling tells told"
NO_SUBJECTS = "how i they we what whatever which whichever whose why you"  # of the first sentence of a comment
COMMON_TYPES = "const_iterator difference_type hash impl iterator key_type pointer type value_type"

FORBIDDEN_NAMES = frozenset(NOT_NAMES.split())
FORBIDDEN_WORDS = frozenset(f"{PERSONS} {SPEECH}".split())
FORBIDDEN_SUBJECTS = frozenset(NO_SUBJECTS.split())

CPP_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/)"""
    r"""|R"(?P<end>[^\s()\\]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|\b\d[\w.']*|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)
WORD = re.compile(r"(?<![\w`])[A-Za-z]+(?:['’/-][A-Za-z]+)*(?![\w`])")
QUOTED_CODE = re.compile(r"`[^`\n]*`")
HELP = """\
The rule is in CONTRIBUTING.md, "Names and comments". scripts/check_names.py PATH prints every fault of a file or
folder; --update moves the figures of files that were moved with git mv."""


class Fault(NamedTuple):
    """A thing that the rule forbids: an "identifier" or a word of a "comment"."""

    path: str
    line: int
    kind: str
    text: str


class Comment(NamedTuple):
    """A comment or docstring. One behind code on its line is a phrase: its first word need not be a subject."""

    line: int
    text: str
    is_phrase: bool = False


class Counts(NamedTuple):
    identifiers: int
    comments: int


NONE = Counts(0, 0)
HEADING = """\
# Faults that are older than the rule, written by scripts/check_names.py --update:
# file,identifiers,words of comments; type,namespaces"""


@dataclass
class Findings:
    """The faults of sources, the words of their comments, and the namespaces of each C++ type outside of tests."""

    faults: list[Fault] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)
    namespaces: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def counts(self) -> dict[str, Counts]:
        """Per file with faults. One word of a comment per 1,000 is no fault."""
        kinds = Counter((fault.path, fault.kind) for fault in self.faults)
        found = {}
        for path in {path for path, _ in kinds}:
            comments = kinds[path, "comment"]
            found[path] = Counts(kinds[path, "identifier"], comments if comments * 1000 > self.words[path] else 0)
        return {path: counts for path, counts in found.items() if counts != NONE}


def is_no_name(identifier: str) -> bool:
    is_special = identifier.startswith("__") and identifier.endswith("__")  # the language names it: __or__
    return not is_special and identifier.strip("_~").lower() in FORBIDDEN_NAMES


def read_tags(root: Path, files: list[str]) -> list[dict[str, Any]]:
    """The definitions and parameters of C++ files, by Universal Ctags."""
    command = ["ctags", "--quiet", "--options=NONE", "--output-format=json", "--languages=C,C++", "--sort=no"]
    command += ["--langmap=C++:.cpp.cu.h.hpp,C:.c", "--kinds-C++=+pzZ", "--kinds-C=+pz", "--fields=+enKsZ"]
    try:
        output = subprocess.check_output([*command, "-o-", "-L-"], input="\n".join(files), text=True, cwd=root)
        tags = [json.loads(line) for line in output.splitlines()]
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit(f"check_names: no Universal Ctags with JSON, which scripts/setup installs: {error}")
    return [tag for tag in tags if tag["_type"] == "tag"]


def full_name(tag: dict[str, Any]) -> str:
    return f"{tag.get('scope', '')}::{tag['name']}".removeprefix("::")


def cpp_identifiers(tags: list[dict[str, Any]]) -> Iterator[Fault]:
    short_lambdas = {
        (tag["path"], full_name(tag))
        for tag in tags
        if tag["kind"] == "function" and tag["name"].startswith("__anon") and tag.get("end", 0) - tag["line"] < 3
    }
    for tag in tags:
        name, kind, scope = tag["name"], tag["kind"], tag.get("scope", "")
        is_constructor = tag.get("scopeKind") in TYPES and scope.split("::")[-1] == name.strip("~")
        if kind not in TAGGED or not is_no_name(name) or is_constructor or (tag["path"], scope) in short_lambdas:
            continue
        yield Fault(tag["path"], tag["line"], "identifier", f"{kind} {name}")


def type_namespaces(tags: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Each type with its named namespace. An alias that only repeats a type's own name is none of its own."""
    named = [tag for tag in tags if tag["kind"] == "namespace" and not tag["name"].startswith("__anon")]
    namespaces = {full_name(tag) for tag in named}
    for tag in tags:
        name, scope = tag["name"], tag.get("scope", "")
        is_named = tag["kind"] in TYPES and not name.startswith("__anon") and name not in COMMON_TYPES.split()
        is_repeated = re.search(rf"\b{name}(<.*>)?$", tag.get("typeref", "")) if tag["kind"] == "typedef" else None
        if not is_named or is_repeated or tag.get("scopeKind") == "function" or tag["path"].startswith("tests/"):
            continue
        while scope and scope not in namespaces:
            scope = scope.rpartition("::")[0]
        yield name, scope


def python_identifiers(tree: ast.Module) -> Iterator[tuple[int, str]]:
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    short_lambdas = [node for node in lambdas if (node.end_lineno or node.lineno) - node.lineno < 3]
    free = {id(arg) for node in short_lambdas for arg in ast.walk(node.args)}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and id(node) not in free:
            yield node.lineno, f"parameter {node.arg}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, f"function {node.name}"
        elif isinstance(node, ast.ClassDef):
            yield node.lineno, f"class {node.name}"
            yield from ((line, f"attribute {name}") for name, line in attributes(node).items())


def attributes(owner: ast.ClassDef) -> dict[str, int]:
    """The attributes of a class by their first lines; members of an Enum are states and free."""
    found: dict[str, int] = {}
    targets = [node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)] for node in owner.body]
    fields = [target for group in targets for target in group if isinstance(target, ast.Name)]
    if not any("Enum" in ast.unparse(base) or "Flag" in ast.unparse(base) for base in owner.bases):
        for name in fields:
            found.setdefault(name.id, name.lineno)
    for node in ast.walk(owner):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            found.setdefault(node.attr, node.lineno)
    return found


def cpp_comments(text: str) -> Iterator[Comment]:
    for token in CPP_TOKEN.finditer(text):
        if comment := token["comment"]:
            line_start = text.rfind("\n", 0, token.start()) + 1
            is_phrase = bool(text[line_start : token.start()].strip())
            yield Comment(text.count("\n", 0, token.start()) + 1, comment, is_phrase)


def python_comments(text: str, tree: ast.Module) -> Iterator[Comment]:
    block: list[str] = []
    start = end = (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.line[: token.start[1]].strip():
            yield Comment(token.start[0], token.string, is_phrase=True)
            continue
        if block and token.start != (end[0] + 1, end[1]):
            yield Comment(start[0], "\n".join(block))
            block = []
        start, end = start if block else token.start, token.start
        block.append(token.string)
    if block:
        yield Comment(start[0], "\n".join(block))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if docstring := ast.get_docstring(node, clean=False):
            yield Comment(node.body[0].lineno, docstring)


def comment_faults(path: str, comment: Comment, words: list[re.Match[str]]) -> Iterator[Fault]:
    for match in words:
        word = match[0].lower()
        is_subject = match is words[0] and not comment.is_phrase
        if word in FORBIDDEN_WORDS or (is_subject and word in FORBIDDEN_SUBJECTS):
            yield Fault(path, comment.line + comment.text.count("\n", 0, match.start()), "comment", match[0])


def scan(root: Path, files: Iterable[str]) -> Findings:
    findings = Findings()
    paths = sorted(files)
    tags = read_tags(root, [path for path in paths if path.endswith(CPP)])
    findings.faults += cpp_identifiers(tags)
    for name, namespace in type_namespaces(tags):
        findings.namespaces[name].add(namespace)
    for path in paths:
        text = (root / path).read_text()
        if path.endswith(CPP):
            comments = cpp_comments(text)
        else:
            tree = ast.parse(text, path)
            comments = python_comments(text, tree)
            names = [(line, name) for line, name in python_identifiers(tree) if is_no_name(name.split()[1])]
            findings.faults += [Fault(path, line, "identifier", name) for line, name in names]
        for comment in comments:
            prose = QUOTED_CODE.sub(lambda code: " " * len(code[0]), comment.text)
            words = list(WORD.finditer(prose))
            findings.words[path] += len(words)
            findings.faults += comment_faults(path, comment, words)
    return findings


@dataclass
class Ratchet:
    """The figures of names.csv: the faults of listed files, and the namespaces that share the name of a type."""

    files: dict[str, Counts]
    types: dict[str, int]

    @staticmethod
    def parse(text: str) -> Ratchet:
        rows = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
        files = {row[0]: Counts(int(row[1]), int(row[2])) for row in rows if len(row) == 3}
        return Ratchet(files, {row[0]: int(row[1]) for row in rows if len(row) == 2})

    @staticmethod
    def measure(findings: Findings) -> Ratchet:
        shared = {name: len(namespaces) for name, namespaces in findings.namespaces.items() if len(namespaces) > 1}
        return Ratchet(findings.counts(), shared)

    def text(self) -> str:
        files = [f"{path},{counts.identifiers},{counts.comments}" for path, counts in sorted(self.files.items())]
        types = [f"{name},{number}" for name, number in sorted(self.types.items())]
        return "\n".join([HEADING, *files, *types, ""])

    def folder_sums(self) -> dict[str, Counts]:
        sums: dict[str, Counts] = defaultdict(lambda: NONE)
        for path, counts in self.files.items():
            folder = Path(path).parent.as_posix()
            sums[folder] = Counts(*map(sum, zip(sums[folder], counts, strict=True)))
        return sums

    def rename(self, new_paths: dict[str, str]) -> None:
        self.files = {new_paths.get(path, path): counts for path, counts in self.files.items()}


def complaints(findings: Findings, limits: Ratchet) -> list[str]:
    """A line per fault of new files, and of files whose count rose in a folder that exceeds its limit."""
    present = Ratchet.measure(findings)
    listed = Ratchet({path: counts for path, counts in present.files.items() if path in limits.files}, {})
    allowed, found = limits.folder_sums(), []
    for number, kind in enumerate(("identifier", "comment")):
        full = {folder for folder, counts in listed.folder_sums().items() if counts[number] > allowed[folder][number]}
        for path, counts in sorted(present.files.items()):
            limit = limits.files.get(path, NONE)[number]
            is_in_full_folder = path not in limits.files or Path(path).parent.as_posix() in full
            if counts[number] > limit and is_in_full_folder:
                found += [describe(fault) for fault in findings.faults if fault.path == path and fault.kind == kind]
                found.append(f"{path}: {counts[number]} faults ({kind}), {limit} allowed")
    for name, number in sorted(present.types.items()):
        if number > (limit := limits.types.get(name, 1)):
            namespaces = ", ".join(sorted(findings.namespaces[name]))
            found.append(f"type {name}: in {number} namespaces, {limit} allowed: {namespaces}")
    return found


def describe(fault: Fault) -> str:
    return f"{fault.path}:{fault.line}: {fault.kind}: {fault.text}"


def renamed_files(root: Path) -> dict[str, str]:
    """Old and new paths of files that git sees as renamed since the table was last written."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, text=True, capture_output=True, check=True).stdout.strip()

    base = git("log", "-1", "--format=%H", "--", TABLE)
    lines = git("diff", "-M", "--name-status", "--diff-filter=R", base).splitlines() if base else []
    return {old: new for _, old, new in (line.split("\t") for line in lines)}


def sources(root: Path) -> list[str]:
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, text=True, capture_output=True, check=True).stdout.splitlines()
    return [name for name in names if name.endswith((*CPP, ".py")) and (root / name).is_file()]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Checks identifiers, comments and names of types.")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="print every fault in these files and folders")
    parser.add_argument("--update", action="store_true", help="write figures that have fallen to scripts/names.csv")
    options = parser.parse_args(arguments)
    findings = scan(root, sources(root))
    if options.paths:
        folders = tuple(path.rstrip("/") + "/" for path in options.paths)
        chosen = [fault for fault in findings.faults if f"{fault.path}/".startswith(folders)]
        print("\n".join(map(describe, chosen)))
        return 0
    limits = Ratchet.parse((root / TABLE).read_text())
    if options.update:
        limits.rename(renamed_files(root))
    if found := complaints(findings, limits):
        print(*found, HELP, sep="\n")
        return 1
    present = Ratchet.measure(findings)
    if options.update:
        (root / TABLE).write_text(present.text())
    elif present != limits:
        print(f"check_names: {TABLE} allows more faults than there are; scripts/check_names.py --update lowers it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
