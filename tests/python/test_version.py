"""`scripts/version`: one place of the version, and copies that equal it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import cenote
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "version"
# Where another number of the same digits means something else: releases of the past, data of tests, versions of tools.
APART = ("CHANGELOG.md", "tests/", "scripts/requirements-", "python/cenote/_version.py")


def sources() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("no checkout of git: what belongs to the sources is not known")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def run(script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script, *words], capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A tree with all that has the version."""
    for name in sources():
        if name.startswith(("docs/", "packaging/", "python/cenote/_version.py", "scripts/version", "README.md")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_no_file_has_the_version_but_its_place_and_the_copies_that_the_script_writes(copy: Path) -> None:
    assert run(SCRIPT).stdout == f"{cenote.__version__}\n"
    assert run(copy / "scripts" / "version", "98.76.54").returncode == 0
    pattern = re.compile(rf"(?<![\d.]){re.escape(cenote.__version__)}(?![\d.]\d)")
    for name in sources():
        if not name.startswith(APART):
            written = copy / name
            text = (written if written.exists() else ROOT / name).read_text(errors="replace")
            assert not pattern.search(text), f"{name} has a version that scripts/version does not write"


def test_a_copy_that_differs_is_named(copy: Path) -> None:
    script = copy / "scripts" / "version"
    assert (run(script, "--check").returncode, run(script, "--check").stdout) == (0, "")
    chart = copy / "packaging" / "helm" / "cenote" / "Chart.yaml"
    chart.write_text(chart.read_text().replace(f"appVersion: {cenote.__version__}", "appVersion: 98.76.54"))
    named = run(script, "--check")
    assert named.returncode == 1
    assert "packaging/helm/cenote/Chart.yaml" in named.stdout


def test_a_new_version_reaches_every_copy_and_a_word_that_is_none_reaches_nothing(copy: Path) -> None:
    script = copy / "scripts" / "version"
    assert run(script, "1.2").returncode == 2
    assert run(script).stdout == f"{cenote.__version__}\n"
    assert run(script, "98.76.54").returncode == 0
    assert (run(script).stdout, run(script, "--check").returncode) == ("98.76.54\n", 0)
    assert "ARG VERSION=98.76.54\n" in (copy / "packaging" / "Containerfile").read_text()
    assert "newTag: 98.76.54\n" in (copy / "packaging/kubernetes/overlays/production/kustomization.yaml").read_text()


def test_the_extras_name_the_engines_that_the_tests_install() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for engine in ("vllm", "sglang"):
        (extra,) = re.findall(rf'^{engine} = \["{engine}==(\S+)"\]$', project, re.MULTILINE)
        requirements = (ROOT / "scripts" / f"requirements-{engine}.txt").read_text()
        (tested,) = re.findall(rf"^(?:# no-deps: .*?)?{engine}(?:-cpu)?==(\d\S*)", requirements, re.MULTILINE)
        assert re.fullmatch(re.escape(extra).replace(r"\*", r"\d+\S*"), tested), (extra, tested)
