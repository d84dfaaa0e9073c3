"""Folders of kustomize, rendered: by `kustomize` or `kubectl` where one is installed, and else by what is here.

That knows the part which packaging/kubernetes uses, and refuses the rest: resources, components, configMapGenerator
with files (names without a hash), patches by path, namespace, images. A patch is merged as Kubernetes merges it: lists
of named things by their names; other lists are replaced."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

Resource = dict[str, Any]

KNOWN = {"apiVersion", "kind", "resources", "components", "configMapGenerator", "patches", "namespace", "images"}
MERGED_BY = {"volumeMounts": "mountPath", "ports": "containerPort"}  # others: by their names
WITHOUT_NAMESPACE = {"Namespace"}


def render(folder: Path) -> list[Resource]:
    for command in (["kustomize", "build"], ["kubectl", "kustomize"]):
        if shutil.which(command[0]):
            made = subprocess.run([*command, str(folder)], capture_output=True, text=True, check=True).stdout
            return [each for each in yaml.safe_load_all(made) if each]
    return accumulate(folder, [])


def accumulate(folder: Path, present: list[Resource]) -> list[Resource]:
    """`present` and the resources that the folder adds, with its changes."""
    rules = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert set(rules) <= KNOWN, f"{folder}: {set(rules) - KNOWN} is not known to the tests: install kustomize"
    for name in rules.get("resources", []):
        present = accumulate(folder / name, present) if (folder / name).is_dir() else present + documents(folder / name)
    for each in rules.get("configMapGenerator", []):
        data = {name: (folder / name).read_text() for name in each["files"]}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": each["name"]}, "data": data}
        present = [*present, made]
    for name in rules.get("components", []):
        present = accumulate(folder / name, present)
    for each in rules.get("patches", []):
        for change in documents(folder / each["path"]):
            (place,) = [i for i, one in enumerate(present) if identity(one) == identity(change)]
            present[place] = merged(present[place], change)
    for one in present:
        if "namespace" in rules and one["kind"] not in WITHOUT_NAMESPACE:
            one["metadata"]["namespace"] = rules["namespace"]
        for image in rules.get("images", []):
            set_image(one, image)
    return present


def documents(path: Path) -> list[Resource]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def identity(resource: Resource) -> tuple[str, str]:
    return resource["kind"], resource["metadata"]["name"]


def merged(old: Any, new: Any, field: str = "") -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return {
            **old,
            **{name: merged(old[name], value, name) if name in old else value for name, value in new.items()},
        }
    key = MERGED_BY.get(field, "name")
    if (
        isinstance(old, list)
        and isinstance(new, list)
        and all(isinstance(each, dict) and key in each for each in old + new)
    ):
        fresh = {each[key]: each for each in new}
        kept = [merged(each, fresh.pop(each[key])) if each[key] in fresh else each for each in old]
        return [*fresh.values(), *kept]
    return new


def set_image(part: Any, image: dict[str, str]) -> None:
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        set_image(each, image)
    if isinstance(part, dict) and str(part.get("image", "")).partition(":")[0] == image["name"]:
        part["image"] = f"{image['newName']}:{image['newTag']}"
