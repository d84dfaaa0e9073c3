"""Puts what is built into the wheel: with $CENOTE_PACKED, a folder of scripts/pack, the programs and their libraries;
else the client's libraries, which are $CENOTE_LIBRARY and $CENOTE_INDEXER_LIBRARY if they are given (without the
second, what lies beside the first), or what scripts/build makes of this checkout. Makes the archive of the sources,
too, with all files of the commit, so that whatever is built of a checkout is built of the archive."""

from __future__ import annotations

import gzip
import io
import os
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
PACKED = os.environ.get("CENOTE_PACKED")


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


def packed_files(folder: Path) -> list[Path]:
    """Those of the programs and their libraries. A wheel has no links, so a library comes under one name: the one that
    programs ask for, and of UCX's modules the one that UCX asks for."""
    found = []
    for file in sorted(folder.glob("bin/*")) + sorted(folder.glob("lib/**/*")) + sorted(folder.glob("share/**/*")):
        is_module = file.parent.name == "ucx"
        if file.is_file() and (file.name.endswith(".so.0") if is_module else not file.is_symlink()):
            found.append(file)
    return found


class WithLibrary(build_py):
    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)  # what an earlier build left there may be gone by now
        super().run()
        if self.editable_mode:  # there, the package finds the checkout's own build
            return
        package = Path(self.build_lib) / "cenote"
        if PACKED:
            for file in packed_files(Path(PACKED)):
                target = package / "_program" / file.relative_to(PACKED)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, target)
            return
        for name, built in built_libraries().items():
            shutil.copyfile(built, package / name)


class OneForAllPythons(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        """The library is loaded by ctypes: any Python 3 of this platform. What a packed folder leaves out is glibc."""
        if not PACKED:
            return "py3", "none", super().get_tag()[2]
        _, version = platform.libc_ver()
        return "py3", "none", f"manylinux_{version.replace('.', '_')}_{platform.machine()}"


class SourceArchive(sdist):
    """The same commit makes the same bytes: names are sorted; times, owners and modes are not those of the checkout."""

    def make_distribution(self) -> None:
        base = self.distribution.get_fullname()
        target = Path(self.dist_dir or "dist") / f"{base}.tar.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        time = int(subprocess.run([ROOT / "scripts" / "commit-time"], check=True, capture_output=True).stdout)
        with (
            target.open("wb") as file,
            gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=time) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name, (content, is_program) in sorted(self.contents().items()):
                entry = tarfile.TarInfo(f"{base}/{name}")
                entry.size, entry.mtime, entry.mode = len(content), time, 0o755 if is_program else 0o644
                archive.addfile(entry, io.BytesIO(content))
        self.archive_files = [str(target)]
        self.distribution.dist_files.append(("sdist", "", str(target)))

    def contents(self) -> dict[str, tuple[bytes, bool]]:
        """By name: the bytes, and whether it is a program."""
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
        if not (ROOT / ".git").exists() or listed.returncode != 0:
            raise SystemExit("an archive of the sources is made of a git checkout")
        names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
        found = {name: ((ROOT / name).read_bytes(), os.access(ROOT / name, os.X_OK)) for name in names}
        description = Path(self.get_finalized_command("egg_info").egg_info) / "PKG-INFO"
        return found | {"PKG-INFO": (description.read_bytes(), False)}


class Binary(Distribution):
    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=Binary,
    cmdclass={"build_py": WithLibrary, "bdist_wheel": OneForAllPythons, "sdist": SourceArchive},
    options={"build": {"build_base": str(ROOT / "build" / "wheel")}},
)
