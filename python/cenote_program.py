"""The command `cenote` of a wheel: the packed program takes the place of this process."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn


def program() -> Path | None:
    """$CENOTE_BINARY, the packed program, or that of a checkout's build; the package itself is not loaded."""
    given = os.environ.get("CENOTE_BINARY")
    if given:
        return Path(given)
    spec = find_spec("cenote")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).resolve().parent
    places = (package / "_program" / "bin" / "cenote", package.parent.parent / "build" / "cenote")
    return next((place for place in places if place.is_file()), None)


def main() -> NoReturn:
    found = program()
    if found is None:
        sys.exit("cenote: this package holds the client alone; build a wheel with the program by scripts/wheel")
    try:
        os.execv(found, ["cenote", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"cenote: {found}: {error.strerror}")
