"""`scripts/sbom`: the parts of a packed folder as CycloneDX, each with a licence; the same bytes twice."""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cenote
import pytest
from node import BINARY, ROOT
from test_examples import run
from test_pack import PACK, elf_files, skip_without_parts

SBOM = ROOT / "scripts" / "sbom"


def packed_folder(folder: Path, umask: int) -> Path:
    environment = {"CENOTE_BINARY": str(BINARY)}
    packed = subprocess.run(
        [PACK, folder], env=os.environ | environment, capture_output=True, text=True, check=False, umask=umask
    )
    assert packed.returncode == 0, packed.stderr
    return folder


@pytest.fixture(scope="module")
def packed() -> Iterator[Path]:
    skip_without_parts(SBOM)
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        yield packed_folder(Path(place) / "packed", 0o022)


@pytest.fixture(scope="module")
def bill(packed: Path) -> dict[str, Any]:
    """scripts/sbom ends with an error where what it made is not valid by the schema."""
    found = json.loads(run(SBOM, packed))
    assert isinstance(found, dict)
    return found


def owners(packed: Path) -> dict[str, str]:
    """Debian packages by the names of the packed libraries."""
    lines = (packed / "share" / "libraries.txt").read_text().splitlines()
    return dict(line.split() for line in lines)


def test_each_packed_library_is_of_a_package_whose_licence_is_there(packed: Path) -> None:
    listed = owners(packed)
    files = {(packed / name).resolve(): package for name, package in listed.items()}
    strangers = [each for each in elf_files(packed / "lib") if not each.name.startswith("libcenote")]
    assert len(strangers) > 20
    for each in strangers:
        package = files.get(each)
        assert package is not None, f"{each} is of no package"
        text = (packed / "share" / "licenses" / package / "copyright").read_text(errors="replace")
        assert len(text) > 200, package
        for common in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])", text):
            known = Path("/usr/share/common-licenses") / common
            assert not known.exists() or (packed / "share" / "licenses" / "common-licenses" / common).exists(), common


def test_each_packed_file_is_listed_with_its_package_its_licences_and_its_digest(
    packed: Path, bill: dict[str, Any]
) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == ("cenote", cenote.__version__)
    files = {each["name"]: each for each in bill["components"] if each["type"] == "file"}
    packages = {each["name"]: each for each in bill["components"] if each["type"] == "library"}
    assert {"bin/cenote", "bin/cenote-services", "bin/cenote-bench", "lib/libcenote.so.1"} <= set(files)
    for package in packages.values():
        names = {each["name"] for each in package["properties"]}
        assert {"cenote:source_package", "cenote:licence_file"} <= names
        assert package["licenses"] and package["version"] and package["purl"].startswith("pkg:deb/debian/")
        files |= {each["name"]: each for each in package.get("components", [])}
    for name, package in owners(packed).items():
        assert name in {each["name"] for each in packages[package]["components"]}
    for name, file in files.items():
        (found,) = file["hashes"]
        assert found["content"] == hashlib.sha256((packed / name).read_bytes()).hexdigest(), name
    headers = (ROOT / "packaging" / "header-packages").read_text().split()
    assert headers and set(headers) <= set(packages)


def test_the_licences_have_the_names_of_spdx(bill: dict[str, Any]) -> None:
    licences = {
        each["name"]: {one["license"].get("id") for one in each["licenses"]}
        for each in bill["components"]
        if each["type"] == "library"
    }
    assert licences["zlib1g"] == {"Zlib"}
    assert "BSD-3-Clause" in licences["libucx0"]
    assert "MIT" in licences["nlohmann-json3-dev"]


def test_a_library_of_another_version_than_the_packed_one_is_refused(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "share").mkdir()
    shutil.copy(packed / "share" / "libraries.txt", tmp_path / "share")
    lines = (packed / "share" / "packages.txt").read_text()
    (tmp_path / "share" / "packages.txt").write_text(re.sub(r"^libucx0 .*$", "libucx0 0.1", lines, flags=re.MULTILINE))
    for name in ("licenses", "../lib"):
        (tmp_path / "share" / name).symlink_to(packed / "share" / name)
    refused = subprocess.run([SBOM, tmp_path], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "libucx0 is of version 0.1" in refused.stderr


def test_something_else_is_refused(tmp_path: Path) -> None:
    if not SBOM.exists():
        pytest.skip(f"there is no {SBOM}")
    (tmp_path / "file.txt").touch()
    refused = subprocess.run([SBOM, tmp_path / "file.txt"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "neither a folder of scripts/pack nor a wheel" in refused.stderr


def entries(folder: Path) -> dict[str, tuple[int, str]]:
    """Modes, and where links lead, by path."""
    return {
        str(each.relative_to(folder)): (each.lstat().st_mode, os.readlink(each) if each.is_symlink() else "")
        for each in folder.rglob("*")
    }


def test_the_same_build_makes_the_same_folder_and_the_same_bill_whatever_the_umask_is(
    packed: Path, bill: dict[str, Any], tmp_path: Path
) -> None:
    again = packed_folder(tmp_path / "packed", 0o077)
    assert entries(again) == entries(packed)
    names = [name for name in entries(packed) if (packed / name).is_file()]
    same, different, unread = filecmp.cmpfiles(packed, again, names, shallow=False)
    assert (different, unread, len(same)) == ([], [], len(names))
    assert json.loads(run(SBOM, again)) == bill
