"""Selects the tests that a change can break, for `scripts/test --changed`.

changed_tests.py REF prints a line `key=value` for each of:
  presets   presets of scripts/test that have anything to do, in order
  units     a regular expression over the names of test programs (ctest -R)
  asan      the same, of those that the address sanitizer sees
  tsan      the same for the thread sanitizer
  processes files for pytest, without a node (tests/python) and with one (tests/processes)
  engines   of vllm and sglang those whose tests to run
A program is concerned by a change in any folder that it links, by the DEPENDS of the CMakeLists.txt. A change of the
build itself concerns everything; one of documents what checks documents.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
CALL = re.compile(r"cenote_(library|test)\(\s*(\S+)([^)]*)\)")
KEYWORDS = {
    "SOURCES",
    "DEPENDS",
    "PRIVATE_DEPENDS",
    "PCH",
    "TIMEOUT",
    "TSAN",
    "TSAN_SUPPRESS",
    "COMPUTES",
    "NO_ASAN",
}
ENGINES = ("vllm", "sglang")
FUZZED = re.findall(r"[a-z_0-9]+/[a-z_0-9/]+\.cpp", (ROOT / "tests/fuzz/CMakeLists.txt").read_text())
# Generated pages and the programs that compare them.
GENERATED = {
    "docs/configuration.md": "unit_config",
    "docs/metrics.md": "unit_worker",
    "docs/policies.md": "unit_eviction",
}
# Pages and data that no program reads, and the tests that do.
READERS = {
    "docs/service-metrics.md": ("tests/processes/test_service_metrics.py", "tests/python/test_boards.py"),
    "docs/operations.md": ("tests/python/test_alerts.py",),
    "packaging/grafana": ("tests/python/test_boards.py", "tests/processes/test_metrics.py"),
    "packaging/prometheus": ("tests/python/test_alerts.py", "tests/processes/test_metrics.py"),
    "packaging/Containerfile": ("tests/processes/test_container.py", "tests/python/test_version.py"),
    "packaging/seccomp": ("tests/processes/test_container.py",),
    "packaging/kubernetes": ("tests/processes/test_kubernetes.py", "tests/python/test_version.py"),
    "packaging/helm": ("tests/processes/test_kubernetes.py", "tests/python/test_version.py"),
    "setup.py": ("tests/processes/test_packed_wheel.py", "tests/processes/test_release.py"),
    "docs/how-to": ("tests/processes/test_pages.py", "tests/python/test_version.py"),
    "docs/tutorials": ("tests/processes/test_pages.py",),
    "CHANGELOG.md": ("tests/processes/test_earlier_release.py", "tests/processes/test_release.py"),
    ".github/workflows": ("tests/python/test_workflows.py",),
}
ALL_PROCESSES = ("tests/processes", "tests/python")


@dataclass
class Target:
    """A library or a test program, as its folder's CMakeLists.txt declares it."""

    name: str
    folder: PurePosixPath
    is_test: bool
    sources: set[PurePosixPath]
    depends: set[str]
    words: set[str]


@dataclass
class Selection:
    """The tests to run. `is_whole` overrides the rest."""

    is_whole: bool = False
    lint: bool = False
    fuzz: bool = False
    units: set[str] = field(default_factory=set)
    processes: set[str] = field(default_factory=set)
    engines: set[str] = field(default_factory=set)


def read_targets(root: Path) -> dict[str, Target]:
    targets: dict[str, Target] = {}
    for page in root.rglob("CMakeLists.txt"):
        folder = PurePosixPath(page.relative_to(root).parent.as_posix())
        if folder.parts and folder.parts[0].startswith(("build", ".")):
            continue
        for kind, name, body in CALL.findall(re.sub(r"#.*", "", page.read_text())):
            lists: dict[str, list[str]] = {"": []}
            keyword = ""
            for word in body.replace("${PROJECT_SOURCE_DIR}", "/").split():
                if word in KEYWORDS:
                    keyword = word
                    lists.setdefault(keyword, [])
                else:
                    lists[keyword].append(word)
            targets[name] = Target(
                name,
                folder,
                kind == "test",
                {normal(folder, source) for source in lists.get("SOURCES", [])},
                set(lists.get("DEPENDS", [])) | set(lists.get("PRIVATE_DEPENDS", [])),
                set(lists),
            )
    return targets


def normal(folder: PurePosixPath, source: str) -> PurePosixPath:
    """The path of a source from the root, without `..`."""
    parts: list[str] = [] if source.startswith("/") else list(folder.parts)
    for part in source.split("/"):
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return PurePosixPath(*parts)


def closure(targets: dict[str, Target], name: str) -> set[str]:
    """`name` and all targets that it links, directly or not."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in seen or current not in targets:
            continue
        seen.add(current)
        waiting += targets[current].depends
    return seen


def owners(targets: dict[str, Target], file: PurePosixPath) -> set[str]:
    """The targets that list a file, or for a header those of its folder."""
    listing = {target.name for target in targets.values() if file in target.sources}
    if listing or file.suffix not in (".hpp", ".h"):
        return listing
    return {
        target.name
        for target in targets.values()
        if target.folder == file.parent
        or file.with_suffix(".cpp") in target.sources
        or any(source.parent == file.parent for source in target.sources)
    }


def select_code(targets: dict[str, Target], file: PurePosixPath, selection: Selection) -> None:
    concerned = owners(targets, file)
    if not concerned:
        selection.is_whole = True  # a file that no list names: rather too much than too little
        return
    for target in targets.values():
        if target.is_test and closure(targets, target.name) & concerned:
            selection.units.add(target.name)
    if file.parts[0] == "tests":
        return
    selection.processes.update(ALL_PROCESSES)
    if closure(targets, "client") & concerned:
        selection.engines.update(ENGINES)


def select_python(file: PurePosixPath, selection: Selection) -> None:
    name = file.as_posix()
    if name.startswith("tests/engines/"):
        selection.engines.update([engine for engine in ENGINES if engine in file.name] or ENGINES)
    elif name.startswith("tests/bench/"):
        return
    elif name.startswith("tests/"):
        folder = "/".join(file.parts[:2])
        selection.processes.add(name if file.name.startswith("test_") else folder)
    elif name.startswith("python/"):
        selection.processes.update(ALL_PROCESSES)
        selection.engines.update([engine for engine in ENGINES if engine in name] or ENGINES)
    else:
        selection.processes.add("tests/python")


def is_fuzzed(file: PurePosixPath) -> bool:
    """Whether tests/fuzz is built from a source, or from the one of a header."""
    return file.parts[:2] == ("tests", "fuzz") or file.with_suffix(".cpp").as_posix() in FUZZED


def select(targets: dict[str, Target], files: list[PurePosixPath]) -> Selection:
    selection = Selection()
    for file in files:
        name = file.as_posix()
        selection.lint = True
        selection.fuzz = selection.fuzz or is_fuzzed(file)
        if name in GENERATED:
            selection.units.add(GENERATED[name])
        readers = next((READERS[each] for each in [name, *map(str, file.parents)] if each in READERS), ())
        selection.processes.update(readers)
        if file.suffix == ".py":
            select_python(file, selection)
        elif file.parts[:2] == ("tests", "fuzz"):
            continue
        elif file.suffix in (".cpp", ".hpp", ".c", ".h", ".cu"):
            select_code(targets, file, selection)
        elif file.suffix == ".md":
            selection.processes.add("tests/python/test_check_docs.py")
        elif file.parts[0] in ("docs", ".github", ".devcontainer") or readers:
            continue
        else:  # the build, the scripts, data that tests read
            selection.is_whole = True
    return selection


def changed_files(root: Path, reference: str) -> list[PurePosixPath]:
    """Files that differ from the commit where this branch left `reference`, committed or not, new ones included."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
        return [line for line in done.stdout.splitlines() if line]

    base = git("merge-base", reference, "HEAD")[0]
    names = set(git("diff", "--name-only", base)) | set(git("ls-files", "--others", "--exclude-standard"))
    return sorted(PurePosixPath(name) for name in names)


def default_reference(root: Path) -> str:
    """`main` from a branch; on `main` itself the commit before the last."""
    done = subprocess.run(
        ["git", "rev-parse", "--abbrev-ref", "HEAD"], cwd=root, capture_output=True, text=True, check=True
    )
    return "HEAD~1" if done.stdout.strip() in ("main", "HEAD") else "main"


def expression(names: set[str]) -> str:
    return f"^({'|'.join(sorted(names))})$" if names else ""


def lines(targets: dict[str, Target], selection: Selection) -> list[str]:
    if selection.is_whole:
        selection.units = {target.name for target in targets.values() if target.is_test}
        selection.processes = set(ALL_PROCESSES)
        selection.engines = set(ENGINES)
        selection.fuzz = True
    asan = {name for name in selection.units if "NO_ASAN" not in targets[name].words}
    tsan = {name for name in selection.units if targets[name].words & {"TSAN", "TSAN_SUPPRESS"}}
    presets = [
        name
        for name, any_work in (
            ("release", selection.units or selection.processes),
            ("asan", asan),
            ("tsan", tsan),
            ("fuzz", selection.fuzz),
            ("lint", selection.lint),
            ("engines", selection.engines),
        )
        if any_work
    ]
    kept = {name for name in selection.processes if str(PurePosixPath(name).parent) not in selection.processes}
    return [
        f"presets={' '.join(presets)}",
        f"units={expression(selection.units)}",
        f"asan={expression(asan)}",
        f"tsan={expression(tsan)}",
        f"processes={' '.join(sorted(kept))}",
        f"engines={' '.join(sorted(selection.engines))}",
    ]


def main() -> None:
    reference = sys.argv[1] if len(sys.argv) > 1 else default_reference(ROOT)
    targets = read_targets(ROOT)
    print("\n".join(lines(targets, select(targets, changed_files(ROOT, reference)))))


if __name__ == "__main__":
    main()
