"""Runs clang-tidy over the sources of compile_commands.json, and only over those that changed.

tidy.py BUILD          all checks but the static analyzer's and COVERED, a dozen sources of a target at a time:
                       their headers, which take most of the time, are read once
tidy.py BUILD --deep   all checks, each source alone
tidy.py BUILD FILE…    all checks of these
What passed is remembered by a hash of itself, of every header of this project that it reaches, of its flags and of
.clang-tidy; the memory lies outside the tree, so that a second checkout profits too.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cenote" / "tidy"
# clang 16 claims fewer concepts than libstdc++ 12 asks for before it shows std::expected; without -U clang-tidy
# reports the redefinition whatever the -Wno flags say.
EXTRA = [
    "-std=c++2b",
    "-U__cpp_concepts",
    "-D__cpp_concepts=202002L",
    "-Wno-builtin-macro-redefined",
    "-Wno-unknown-warning-option",
    # The analyzer's budget a function, of 225,000: what actors' templates unfold to takes all of it, two thirds of the
    # whole time.
    *("-Xclang", "-analyzer-config", "-Xclang", "max-nodes=40000"),
]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


# A quarter of the time of all checks, for what the compiler's warnings, C++23 (no view of a null pointer)
# or the rules of names find as well.
COVERED = (
    "bugprone-assert-side-effect",
    "bugprone-multiple-statement-macro",
    "bugprone-reserved-identifier",
    "bugprone-standalone-empty",
    "bugprone-stringview-nullptr",
    "bugprone-suspicious-semicolon",
    "modernize-redundant-void-arg",
    "modernize-use-using",
)
# Sources are included in place of being compiled alone.
LEFT_OUT = ("clang-analyzer-*", "bugprone-suspicious-include", *COVERED)
LIGHT = ["--checks=" + ",".join(f"-{each}" for each in LEFT_OUT)]
BATCH = 12  # sources read together, as in a build with CENOTE_UNITY


@dataclass(frozen=True)
class Job:
    """Sources of one target with the same flags, checked by one process."""

    sources: tuple[Path, ...]
    command: str
    options: tuple[str, ...]
    mark: Path


def reached(sources: tuple[Path, ...]) -> list[Path]:
    """The sources and all headers of the project that they include, directly or not."""
    seen: dict[Path, None] = {}
    waiting = list(sources)
    while waiting:
        file = waiting.pop()
        if file in seen or not file.is_file():
            continue
        seen[file] = None
        for name in INCLUDE.findall(file.read_text(errors="replace")):
            waiting += [ROOT / name, file.parent / name]
    return sorted(seen)


def fingerprint(sources: tuple[Path, ...], command: str, options: tuple[str, ...], version: str) -> str:
    digest = hashlib.sha256()
    flags = " ".join(compiler_flags(command))
    texts = (version, " ".join([*EXTRA, *options]), flags.replace(str(ROOT), "."), (ROOT / ".clang-tidy").read_text())
    for text in texts:
        digest.update(text.encode() + b"\0")
    for file in reached(sources):
        digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def compiler_flags(command: str) -> list[str]:
    words = shlex.split(command)
    flags = [word for word in words if word.startswith(("-D", "-std", "-I", "-isystem", "-m"))]
    folders = [words[at + 1] for at, word in enumerate(words[:-1]) if word == "-isystem"]
    return [word for word in flags if word != "-isystem"] + [f"-isystem{folder}" for folder in folders]


def batches(commands: dict[Path, str]) -> Iterator[tuple[Path, ...]]:
    """Sources of one folder with the same flags, about BATCH at a time."""
    together: dict[tuple[Path, str], list[Path]] = {}
    for source, command in sorted(commands.items()):
        if source.suffix == ".c":
            yield (source,)
        else:
            together.setdefault((source.parent, " ".join(compiler_flags(command))), []).append(source)
    for sources in together.values():
        pieces = max(1, round(len(sources) / BATCH))
        for piece in range(pieces):
            yield tuple(sources[len(sources) * piece // pieces : len(sources) * (piece + 1) // pieces])


def read_commands(build: Path) -> dict[Path, str]:
    """The product's sources. Tests are left out: Boost.Test's macros take minutes and find little; warnings hold."""
    commands: dict[Path, str] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"]).resolve()
        if source.suffix not in (".cpp", ".c") or not source.is_relative_to(ROOT):
            continue
        if source.is_relative_to(build) or source.is_relative_to(ROOT / "tests"):
            continue
        commands[source] = entry["command"]
    return commands


def plan(commands: dict[Path, str], files: list[Path], deep: bool, version: str) -> list[Job]:
    groups: Iterable[tuple[Path, ...]]
    if deep or files:
        groups = [(source,) for source in sorted(commands) if not files or source in files]
        options: tuple[str, ...] = ()
    else:
        groups = batches(commands)
        options = tuple(LIGHT)
    jobs = []
    for sources in groups:
        command = commands[sources[0]]
        jobs.append(Job(sources, command, options, CACHE / fingerprint(sources, command, options, version)))
    return [job for job in jobs if not job.mark.exists()]


def run(tidy: str, job: Job) -> bool:
    """Checks the sources of a job as one translation unit; prints the findings."""
    cpp = job.sources[0].suffix == ".cpp"
    with tempfile.TemporaryDirectory() as folder:
        unit = job.sources[0]
        if len(job.sources) > 1:
            unit = Path(folder) / "unit.cpp"
            unit.write_text("".join(f'#include "{source}"\n' for source in job.sources))
        options = [*job.options, f"--config-file={ROOT / '.clang-tidy'}", f"--header-filter={filter_of(job)}"]
        arguments = [tidy, "--quiet", *options, str(unit), "--"]
        arguments += compiler_flags(job.command) + (EXTRA if cpp else [])
        done = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode == 0:
        job.mark.touch()
        return True
    errors = "\n".join(line for line in (done.stdout + done.stderr).splitlines() if "warnings generated" not in line)
    print(f"{', '.join(str(source.relative_to(ROOT)) for source in job.sources)}:\n{errors}", flush=True)
    return False


def filter_of(job: Job) -> str:
    """The headers that .clang-tidy names, and sources that are read as parts of a unit."""
    found = re.search(r"^HeaderFilterRegex: '(.*)'$", (ROOT / ".clang-tidy").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit("tidy.py: .clang-tidy has no HeaderFilterRegex in quotes")
    return found[1].replace(r"\.hpp$", r"\.[hc]pp$") if len(job.sources) > 1 else found[1]


def main() -> int:
    words = sys.argv[1:]
    deep = "--deep" in words
    build, *names = [word for word in words if not word.startswith("--")]
    tidy = shutil.which("clang-tidy-16") or shutil.which("clang-tidy")
    if tidy is None:
        print("clang-tidy-16 is not installed: run scripts/setup")
        return 1
    version = subprocess.run([tidy, "--version"], capture_output=True, text=True, check=True).stdout
    CACHE.mkdir(parents=True, exist_ok=True)
    commands = read_commands(ROOT / build)
    jobs = plan(commands, [(ROOT / name).resolve() for name in names], deep, version)
    with ThreadPoolExecutor(int(os.environ.get("CENOTE_JOBS") or os.cpu_count() or 2)) as pool:
        results = list(pool.map(lambda job: run(tidy, job), jobs))
    checked = sum(len(job.sources) for job in jobs)
    print(f"clang-tidy: {checked} of {len(commands)} files checked, {results.count(False)} groups with findings")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
