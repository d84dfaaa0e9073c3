"""Runs clang-tidy over the files of compile_commands.json, and only over those that changed.

A file that passed is remembered by a hash of itself, of every header of this project that it reaches, of its
flags and of .clang-tidy; the memory lies outside the tree, so that a second checkout profits too.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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


def reached(source: Path) -> list[Path]:
    """The source and all headers of the project that it includes, directly or not."""
    seen: dict[Path, None] = {}
    waiting = [source]
    while waiting:
        file = waiting.pop()
        if file in seen or not file.is_file():
            continue
        seen[file] = None
        for name in INCLUDE.findall(file.read_text(errors="replace")):
            waiting += [ROOT / name, file.parent / name]
    return sorted(seen)


def fingerprint(source: Path, command: str, version: str) -> str:
    digest = hashlib.sha256()
    flags = " ".join(word for word in shlex.split(command) if word.startswith(("-D", "-std", "-I", "-isystem")))
    for text in (version, " ".join(EXTRA), flags.replace(str(ROOT), "."), (ROOT / ".clang-tidy").read_text()):
        digest.update(text.encode() + b"\0")
    for file in reached(source):
        digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def main() -> int:
    build = ROOT / sys.argv[1]
    wanted = [(ROOT / name).resolve() for name in sys.argv[2:]]
    tidy = shutil.which("clang-tidy-16") or shutil.which("clang-tidy")
    if tidy is None:
        print("clang-tidy-16 is not installed: run scripts/setup")
        return 1
    version = subprocess.run([tidy, "--version"], capture_output=True, text=True, check=True).stdout
    commands = {
        Path(entry["file"]).resolve(): entry["command"]
        for entry in json.loads((build / "compile_commands.json").read_text())
        if Path(entry["file"]).suffix in (".cpp", ".c")
    }
    CACHE.mkdir(parents=True, exist_ok=True)
    waiting = []
    for source, command in sorted(commands.items()):
        # Tests are left out: Boost.Test's macros take minutes there and find little; the compiler's warnings hold.
        if not source.is_relative_to(ROOT) or source.is_relative_to(build) or source.is_relative_to(ROOT / "tests"):
            continue
        if wanted and source not in wanted:
            continue
        mark = CACHE / fingerprint(source, command, version)
        if not mark.exists():
            waiting.append((source, mark))

    def check(job: tuple[Path, Path]) -> bool:
        source, mark = job
        arguments = [tidy, "--quiet", "-p", str(build)]
        if source.suffix == ".cpp":
            arguments += [f"--extra-arg={flag}" for flag in EXTRA]
        done = subprocess.run([*arguments, str(source)], capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode == 0:
            mark.touch()
            return True
        errors = "\n".join(
            line for line in (done.stdout + done.stderr).splitlines() if "warnings generated" not in line
        )
        print(f"{source.relative_to(ROOT)}:\n{errors}", flush=True)
        return False

    with ThreadPoolExecutor(int(os.environ.get("CENOTE_JOBS") or os.cpu_count() or 2)) as pool:
        results = list(pool.map(check, waiting))
    print(f"clang-tidy: {len(waiting)} of {len(commands)} files checked, {results.count(False)} with findings")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
