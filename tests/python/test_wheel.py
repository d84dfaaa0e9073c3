"""`pip install .`: a wheel with the client library in it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import cenote
from cenote import _library

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import cenote, cenote.indexer
for library in (cenote._library.library, cenote._indexer_library.library):
    print(library._name)
print(cenote.__file__)
"""


def test_the_wheel_holds_the_library_and_needs_neither_the_checkout_nor_a_compiler(tmp_path: Path) -> None:
    library = _library._places()[0]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), "."],
        cwd=ROOT,
        env=environment | {"CENOTE_LIBRARY": str(library)},
        check=True,
        timeout=300,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"cenote-{cenote.__version__}-py3-none-linux_")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    said = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={"PATH": "/nonexistent", "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == [
        str(site / "cenote" / name) for name in ("libcenote.so", "libcenote_indexer.so", "__init__.py")
    ]
