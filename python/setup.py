"""Puts the libraries into the wheel: $CENOTE_LIBRARY and $CENOTE_INDEXER_LIBRARY if they are given (without the second,
what lies beside the first), else what scripts/build makes of this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent


def built_libraries() -> dict[str, Path]:
    """Their names in the package, and where they are."""
    given = os.environ.get("CENOTE_LIBRARY")
    indexer = os.environ.get("CENOTE_INDEXER_LIBRARY")
    if given:
        beside = Path(given).resolve().parent / "libcenote_indexer.so"
        return {"libcenote.so": Path(given), "libcenote_indexer.so": Path(indexer) if indexer else beside}
    # pip's own environment must not decide which tools the build finds.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    subprocess.run(
        [str(ROOT / "scripts" / "build"), "release", "libcenote", "libcenote_indexer"], check=True, env=environment
    )
    return {name: ROOT / "build" / name for name in ("libcenote.so", "libcenote_indexer.so")}


class WithLibrary(build_py):
    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)  # what an earlier build left there may be gone by now
        super().run()
        if not self.editable_mode:  # there, the package finds the checkout's own build
            for name, built in built_libraries().items():
                shutil.copyfile(built, Path(self.build_lib) / "cenote" / name)


class OneForAllPythons(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        """The library is loaded by ctypes: any Python 3 of this platform."""
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=Binary,
    cmdclass={"build_py": WithLibrary, "bdist_wheel": OneForAllPythons},
    options={"build": {"build_base": str(ROOT / "build" / "wheel")}},
)
