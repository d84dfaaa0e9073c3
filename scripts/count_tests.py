"""Counts test cases in the JUnit files that the test programs left, for scripts/test.

count_tests.py ctest <ctest's own report> <folder of the programs' reports>
count_tests.py pytest <report> <exit status of pytest>
Prints "passed failed skipped"; what failed goes to stderr.
"""

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def cases(report: Path) -> tuple[int, int, int]:
    passed = failed = skipped = 0
    for case in ET.parse(report).getroot().iter("testcase"):
        why = next((found for kind in ("failure", "error") if (found := case.find(kind)) is not None), None)
        if why is not None:
            failed += 1
            said = " ".join((why.get("message") or why.text or "").split())[:400]
            print(f"  failed: {case.get('classname')} {case.get('name')}: {said}", file=sys.stderr)
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def count_ctest(report: Path, folder: Path) -> tuple[int, int, int]:
    """The cases of each program; a program that failed without saying where counts as one failure more."""
    total = [0, 0, 0]
    for program in ET.parse(report).getroot().iter("testcase"):
        name = program.get("name") or ""
        good = program.get("status") == "run"
        try:
            numbers = cases(folder / f"{name}.xml")
        except (OSError, ET.ParseError):
            numbers = (1, 0, 0) if good else (0, 0, 0)
        if not good and numbers[1] == 0:
            print(f"  failed: {name} as a whole ({program.get('status')}): {last_words(program)}", file=sys.stderr)
            numbers = (numbers[0], 1, numbers[2])
        total = [a + b for a, b in zip(total, numbers, strict=True)]
    return total[0], total[1], total[2]


def last_words(program: ET.Element) -> str:
    """What the sanitizers found and where, else how the output ends."""
    output = program.findtext("system-out") or ""
    found = [
        line.strip()
        for line in output.splitlines()
        if re.search(r"ERROR: |WARNING: Thread|SUMMARY: |runtime error", line)
    ]
    return " | ".join(found[:6])[:600] or " ".join(output.split())[-400:]


def count_pytest(report: Path, status: int) -> tuple[int, int, int]:
    try:
        passed, failed, skipped = cases(report)
    except (OSError, ET.ParseError):
        passed = failed = skipped = 0
    if status not in (0, 5) and failed == 0:
        failed = 1  # it crashed, ran out of time, or could not collect
    return passed, failed, skipped


def main() -> None:
    kind, first, second = sys.argv[1:]
    if kind == "ctest":
        print(*count_ctest(Path(first), Path(second)))
    else:
        print(*count_pytest(Path(first), int(second)))


if __name__ == "__main__":
    main()
