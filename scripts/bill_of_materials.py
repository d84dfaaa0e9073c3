"""The bill of materials of what Cenote is handed out as, for scripts/sbom.

bill_of_materials.py PATH, of a folder of scripts/pack, a wheel or a Debian package, prints JSON of CycloneDX 1.6.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import uuid
import zipfile
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import NoReturn

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.spdx import fixup_id, is_supported_id
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parent.parent
ROOT_REFERENCE = "root-component"  # as cyclonedx-bom names it
# Debian's short names of licences that SPDX has another name for.
SPDX = {"Expat": "MIT", "Apache-2": "Apache-2.0", "CC0": "CC0-1.0", "zlib": "Zlib", "Python": "Python-2.0"}
GNU = re.compile(r"(L?GPL)-(\d)(\.\d)?(\+?)")


def refuse(reason: str) -> NoReturn:
    raise SystemExit(f"scripts/sbom: {reason}")


def text_of(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def digest(file: Path) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(file.read_bytes()).hexdigest())


@dataclass(frozen=True)
class Package:
    """A Debian package that is installed here."""

    name: str
    version: str
    source: str
    source_version: str
    architecture: str

    @staticmethod
    def find(name: str) -> Package:
        fields = "${Version}\t${source:Package}\t${source:Version}\t${Architecture}"
        version, source, source_version, architecture = text_of("dpkg-query", "-W", "-f", fields, name).split("\t")
        return Package(name, version, source, source_version, architecture)


def licences(copyright_file: Path) -> list[DisjunctiveLicense]:
    """All that the file names in the form of DEP 5; without that form it stands for itself."""
    content = copyright_file.read_bytes()
    text = (gzip.decompress(content) if copyright_file.suffix == ".gz" else content).decode(errors="replace")
    if not text.startswith("Format:"):
        named = {"as in its copyright file"}
    else:
        fields = re.findall(r"^License:[ \t]*(\S.*)$", text, re.MULTILINE)
        named = {name.strip() for field in fields for name in re.split(r"\s+(?:or|and)\s+|,", field)}
    return [licence(name.strip()) for name in sorted(named) if name.strip()]


def licence(name: str) -> DisjunctiveLicense:
    """By its name in SPDX's list where it has one, else by Debian's."""
    standard = SPDX.get(name) or fixup_id(name) or name
    if gnu := GNU.fullmatch(name):
        family, major, minor, later = gnu.groups()
        standard = f"{family}-{major}{minor or '.0'}-{'or-later' if later else 'only'}"
    return DisjunctiveLicense(id=standard) if is_supported_id(standard) else DisjunctiveLicense(name=name)


def library(
    package: Package, licence_file: Path, licence_place: str, files: list[tuple[str, Path]], use: str
) -> Component:
    """`licence_place`: in the artifact. `files`: their names there, and their paths here."""
    where = {"arch": package.architecture, "distro": f"debian-{debian_release()}"}
    return Component(
        type=ComponentType.LIBRARY,
        name=package.name,
        version=package.version,
        bom_ref=f"debian/{package.name}",
        purl=PackageURL("deb", "debian", package.name, package.version, where),
        licenses=licences(licence_file),
        properties=[
            Property(name="cenote:use", value=use),
            Property(name="cenote:licence_file", value=licence_place),
            Property(name="cenote:source_package", value=f"{package.source} {package.source_version}"),
        ],
        components=[file_component(name, file) for name, file in files],
    )


def file_component(name: str, file: Path) -> Component:
    return Component(type=ComponentType.FILE, name=name, bom_ref=f"file/{name}", hashes=[digest(file)])


def debian_release() -> str:
    return platform.freedesktop_os_release().get("VERSION_ID", "unknown")


def packed(folder: Path) -> list[Component]:
    """The contents of a folder of scripts/pack, or of `cenote/_program` in a wheel."""
    share = folder / "share"
    owners: dict[str, list[str]] = {}
    for line in (share / "libraries.txt").read_text().splitlines():
        name, package = line.split()
        owners.setdefault(package, []).append(name)
    found = []
    for line in (share / "packages.txt").read_text().splitlines():
        name, version = line.split()
        if name == "libc6":  # the machine's own
            continue
        package = Package.find(name)
        if package.version != version:
            refuse(f"{name} is of version {version} in {folder} and of {package.version} here")
        files = [(each, folder / each) for each in owners.get(name, [])]
        place = f"share/licenses/{name}/copyright"
        use = "library" if files else "headers that are compiled in"
        found.append(library(package, share / "licenses" / name / "copyright", place, files, use))
    own = sorted([*folder.glob("bin/*"), *folder.glob("lib/libcenote*.so.1")])
    return [*(file_component(each.relative_to(folder).as_posix(), each) for each in own), *found]


def of_debian_package(folder: Path, file: Path) -> list[Component]:
    """The libraries that it brings as headers, its own files, and the packages that it needs."""
    documents = folder / "usr" / "share" / "doc" / "cenote"
    found = []
    for each in sorted(documents.glob("licenses/*")):
        package = Package.find(each.name.removesuffix(".gz"))
        place = f"/{each.relative_to(folder).as_posix()}"
        found.append(library(package, each, place, [], "headers that are compiled in"))
    for word in text_of("dpkg-deb", "--field", file, "Depends").split(","):
        name = word.split()[0]
        if name.startswith("lib") and name != "libc6":
            name = provider(name)
            file_there = Path("/usr/share/doc") / name / "copyright"
            found.append(
                library(Package.find(name), file_there, str(file_there), [], "needed, not part of the package")
            )
    own = sorted(each for each in folder.rglob("*") if each.is_file() and not each.is_symlink())
    elf = [each for each in own if each.open("rb").read(4) == b"\x7fELF"]
    return [*(file_component(f"/{each.relative_to(folder).as_posix()}", each) for each in elf), *found]


def provider(name: str) -> str:
    """The installed package that stands for a name that is none."""
    listed = text_of("dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Provides}\n").splitlines()
    packages = {package: provided for package, version, provided in (line.split("\t") for line in listed) if version}
    if name in packages:
        return name
    found = [package for package, provided in packages.items() if re.search(rf"(^|\s){re.escape(name)}\b", provided)]
    return found[0] if found else refuse(f"{name} is not installed")


def python_environment(wheel: Path, folder: Path) -> Bom:
    """The components that cyclonedx-bom finds in an environment with the wheel and nothing else."""
    text_of(sys.executable, "-m", "venv", "--without-pip", folder)
    pip = (sys.executable, "-m", "pip", "--python", folder, "install", "--quiet", "--no-index", "--no-deps", wheel)
    text_of(*pip)
    program = Path(sys.executable).parent / "cyclonedx-py"
    options = ("--pyproject", ROOT / "pyproject.toml", "--sv", "1.6", "--output-reproducible")
    found = Bom.from_json(json.loads(text_of(program, "environment", folder, *options)))
    assert isinstance(found, Bom)
    return found


def bill(path: Path, work: Path) -> Bom:
    if path.is_dir():
        found, parts = Bom(), packed(path)
    elif path.suffix == ".whl":
        found = python_environment(path, work / "environment")
        zipfile.ZipFile(path).extractall(work / "files")
        parts = packed(work / "files" / "cenote" / "_program")
    elif path.suffix == ".deb":
        text_of("dpkg-deb", "--extract", path, work / "files")
        found, parts = Bom(), of_debian_package(work / "files", path)
    else:
        refuse(f"{path} is neither a folder of scripts/pack nor a wheel nor a package of Debian")
    found.metadata.component = root = Component(
        type=ComponentType.APPLICATION,
        name=path.name if path.suffix == ".deb" else "cenote",
        version=text_of(ROOT / "scripts" / "version").strip(),
        bom_ref=ROOT_REFERENCE,
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
        hashes=[] if path.is_dir() else [digest(path)],
    )
    for part in parts:
        found.components.add(part)
    found.register_dependency(root, found.components)
    found.metadata.timestamp = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    digests = sorted(
        each.content for part in parts for one in (part, *part.components) for each in one.hashes
    )  # the same content has the same number
    found.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, " ".join([path.name, *digests]))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="cenote-") as work:
        found = bill(Path(sys.argv[1]), Path(work))
    text = make_outputter(found, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if fault is not None:
        refuse(f"what was made is no CycloneDX: {fault}")
    print(text)


if __name__ == "__main__":
    main()
