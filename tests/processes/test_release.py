"""`scripts/release`, `scripts/sdist`: all that a release is handed out as, of one commit, and the same bytes twice."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import cenote
import pytest
from node import BINARY, LIMIT, ROOT
from test_examples import run

RELEASE = "scripts/release"
VERSION = cenote.__version__
# Files of builds, packages and tests.
NEEDED = ("CMakeLists.txt", "CMakePresets.json", "setup.py", "pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md",
          "PKG-INFO", "core/version.cpp", "python/cenote/_version.py", "scripts/wheel", "packaging/debian/rules",
          "packaging/helm/cenote/Chart.yaml", "tests/processes/conftest.py", "docs/how-to/release.md")  # fmt: skip


def git(place: Path, *words: str) -> str:
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@packages.invalid", "-c", "commit.gpgsign=false")
    return run("git", "-C", place, *identity, *words).strip()


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    """A clone whose commit is this tree, committed or not: what is tested is what lies here."""
    if not (ROOT / ".git").exists() or not (ROOT / RELEASE).exists():
        pytest.skip("no checkout of git")
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        clone = Path(place) / "cenote"
        run("git", "clone", "--quiet", "--no-tags", ROOT, clone)
        changed = subprocess.run(
            ["git", "ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
        for name in filter(None, set(changed)):
            if (ROOT / name).exists():
                (clone / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, clone / name)
            else:
                (clone / name).unlink(missing_ok=True)
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", "--allow-empty", "--message", "What lies here")
        yield clone


def refusal(checkout: Path, *words: str | Path) -> str:
    """The words of scripts/release when it makes nothing."""
    environment = os.environ | {"CENOTE_BINARY": str(BINARY)}
    ended = subprocess.run(
        [checkout / RELEASE, *words], env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert ended.returncode == 1, ended.stdout
    return ended.stderr


# ---- the archive of the sources


def archive(checkout: Path, folder: Path) -> Path:
    run(checkout / "scripts" / "sdist", folder)
    (made,) = folder.iterdir()
    return made


def test_the_archive_has_all_files_of_the_commit_and_the_same_bytes_each_time(checkout: Path, tmp_path: Path) -> None:
    made = archive(checkout, tmp_path / "first")
    assert made.name == f"cenote-{VERSION}.tar.gz"
    with tarfile.open(made) as opened:
        members = opened.getmembers()
    names = {each.name.removeprefix(f"cenote-{VERSION}/") for each in members}
    assert names == set(git(checkout, "ls-files").split("\n")) | {"PKG-INFO"}
    assert set(NEEDED) <= names
    assert {(each.uid, each.gid, each.uname, each.mode) for each in members} == {(0, 0, "", 0o644), (0, 0, "", 0o755)}
    assert len({each.mtime for each in members}) == 1
    for each in (checkout / "README.md", checkout / "scripts" / "wheel"):
        os.utime(each)
    (checkout / "README.md").chmod(0o640)
    again = archive(checkout, tmp_path / "second")
    (checkout / "README.md").chmod(0o644)
    assert again.read_bytes() == made.read_bytes()


@pytest.mark.full
def test_the_archive_makes_the_wheel_that_the_checkout_makes(checkout: Path, tmp_path: Path) -> None:
    with tarfile.open(archive(checkout, tmp_path / "archive")) as opened:
        opened.extractall(tmp_path)
    wheels = []
    for root, name in ((checkout, "first"), (tmp_path / f"cenote-{VERSION}", "second")):
        run(root / "scripts" / "wheel", tmp_path / name, environment={"CENOTE_BINARY": str(BINARY)})
        wheels += (tmp_path / name).iterdir()
    assert wheels[0].name == wheels[1].name
    assert wheels[0].read_bytes() == wheels[1].read_bytes()


@pytest.mark.full
def test_the_archive_configures_and_pip_makes_the_client_of_it(checkout: Path, tmp_path: Path) -> None:
    made = archive(checkout, tmp_path / "archive")
    with tarfile.open(made) as opened:
        opened.extractall(tmp_path)
    root = tmp_path / f"cenote-{VERSION}"
    run("cmake", "--preset", "release", "-S", root, "-B", root / "build", "-Werror=dev")
    assert f"CMAKE_PROJECT_VERSION:STATIC={VERSION}" in (root / "build" / "CMakeCache.txt").read_text()
    library = os.environ.get("CENOTE_LIBRARY", str(BINARY.parent / "libcenote.so"))
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path / "wheels", made)
    run(*pip, environment={"CENOTE_LIBRARY": library})
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert "cenote/libcenote.so" in zipfile.ZipFile(wheel).namelist()


# ---- refusals


def test_a_tree_with_changes_is_refused(checkout: Path, tmp_path: Path) -> None:
    (checkout / "new").touch()
    try:
        assert "not committed" in refusal(checkout, tmp_path / "made")
    finally:
        (checkout / "new").unlink()
    assert not (tmp_path / "made").exists()


def test_a_tag_that_is_another_version_and_a_version_that_is_another_commit_are_refused(
    checkout: Path, tmp_path: Path
) -> None:
    git(checkout, "tag", "99.0.0")
    try:
        assert f"the tag 99.0.0, and its version is {VERSION}" in refusal(checkout, tmp_path / "made")
    finally:
        git(checkout, "tag", "--delete", "99.0.0")
    git(checkout, "tag", "--force", VERSION, "HEAD~1")
    try:
        assert f"the tag {VERSION} is on another commit" in refusal(checkout, tmp_path / "made")
        git(checkout, "tag", "--force", VERSION)
        assert f"the tag {VERSION} is there already" in refusal(checkout, tmp_path / "made", "--tag")
    finally:
        git(checkout, "tag", "--delete", VERSION)
    assert not (tmp_path / "made").exists()


def test_a_copy_of_another_version_a_missing_part_of_the_changelog_and_another_binary_are_refused(
    checkout: Path, tmp_path: Path
) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    try:
        run(checkout / "scripts" / "version", "98.7.6")
        git(checkout, "commit", "--quiet", "--all", "--message", "Another version")
        assert "no part '## 98.7.6'" in refusal(checkout, tmp_path / "made")
        changes = checkout / "CHANGELOG.md"
        changes.write_text(changes.read_text().replace(f"## {VERSION}\n", "## 98.7.6\n"))
        git(checkout, "commit", "--quiet", "--all", "--message", "Its changes")
        assert f"is of version {VERSION}, not 98.7.6" in refusal(checkout, tmp_path / "made")
        chart = checkout / "packaging" / "helm" / "cenote" / "Chart.yaml"
        chart.write_text(chart.read_text().replace("appVersion: 98.7.6", "appVersion: 98.7.5"))
        git(checkout, "commit", "--quiet", "--all", "--message", "A chart of another version")
        assert "packaging/helm/cenote/Chart.yaml" in refusal(checkout, tmp_path / "made")
    finally:
        git(checkout, "reset", "--quiet", "--hard", commit)
    assert not (tmp_path / "made").exists()


def test_the_notes_are_the_version_s_part_of_the_changelog(checkout: Path) -> None:
    notes = run(checkout / RELEASE, "--notes")
    changes = (checkout / "CHANGELOG.md").read_text()
    assert notes.strip() == changes.split(f"\n## {VERSION}\n")[1].split("\n## ")[0].strip()
    assert f"What {VERSION} refuses" in notes


# ---- the same bytes


@pytest.mark.full
@pytest.mark.parametrize("files", [["libcenote.so"], ["cenote", "cenote-services"]])
def test_a_build_in_another_folder_has_the_same_bytes(checkout: Path, tmp_path: Path, files: list[str]) -> None:
    builds = []
    for root in (tmp_path / "a", tmp_path / "another" / "folder"):
        run("git", "clone", "--quiet", checkout, root)
        builds.append(root / "build")
        configure = ["cmake", "--preset", "release", "-S", root, "-B", root / "build", "-DCENOTE_BUILD_TESTS=OFF"]
        compile_all = ["cmake", "--build", root / "build", "--target", *files]
        for command in (configure, compile_all):
            subprocess.run(command, cwd=root, env=os.environ | {"CCACHE_DISABLE": "1"}, capture_output=True, check=True)
    objects = [each.relative_to(builds[0]) for each in builds[0].rglob("*.o")]
    assert objects
    for name in (*objects, *map(Path, files)):
        assert (builds[0] / name).read_bytes() == (builds[1] / name).read_bytes(), name


# ---- all of it


@pytest.fixture(scope="module")
def artifacts(checkout: Path) -> Iterator[Path]:
    for program in ("patchelf", "dh"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        yield made_release(checkout, Path(place) / "made")


def made_release(checkout: Path, folder: Path, *words: str) -> Path:
    environment = os.environ | {"CENOTE_BINARY": str(BINARY)}  # minutes of work
    command = [checkout / RELEASE, folder, *words]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.mark.full
def test_a_release_is_all_of_it_with_sums_and_a_bill_of_materials_for_each(artifacts: Path) -> None:
    architecture = run("dpkg", "--print-architecture").strip()
    names = {each.name for each in artifacts.iterdir()}
    (wheel,) = (name for name in names if name.endswith(".whl"))
    folder = f"cenote-{VERSION}-linux-{os.uname().machine}.tar.xz"
    packages = {f"{name}_{VERSION}_{architecture}.deb" for name in ("cenote", "cenote-dev")}
    handed = {wheel, folder, *packages}
    bills = {f"{name}.cdx.json" for name in handed}
    assert names == handed | bills | {f"cenote-{VERSION}.tar.gz", "release-notes.md", "SHA256SUMS"}
    assert run("sh", "-c", f"cd {artifacts} && sha256sum --check --strict SHA256SUMS").count(": OK") == len(names) - 1
    for name in bills:
        assert json.loads((artifacts / name).read_text())["metadata"]["component"]["version"] == VERSION
    with tarfile.open(artifacts / folder) as opened:
        assert f"cenote-{VERSION}-linux-{os.uname().machine}/bin/cenote" in opened.getnames()


@pytest.mark.full
def test_the_same_commit_makes_the_same_release_and_the_tag_when_it_is_asked_for(
    checkout: Path, artifacts: Path, tmp_path: Path
) -> None:
    again = made_release(checkout, tmp_path / "made", "--tag")
    try:
        assert (again / "SHA256SUMS").read_text() == (artifacts / "SHA256SUMS").read_text()
        assert git(checkout, "cat-file", "-t", VERSION) == "tag"
        assert git(checkout, "rev-parse", f"{VERSION}^{{commit}}") == git(checkout, "rev-parse", "HEAD")
    finally:
        git(checkout, "tag", "--delete", VERSION)
