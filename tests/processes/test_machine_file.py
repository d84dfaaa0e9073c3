"""The configuration that a node reads without an option, and `cenote init`, which writes one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import StartNode
from node import BINARY, ROOT, node_environment, run_cenote

# A machine with another /etc/cenote: $0 is the folder that stands there.
OTHER_MACHINE = 'mount -t tmpfs none /etc && mkdir /etc/cenote && mount --bind "$0" /etc/cenote && exec "$@"'


def unset_environment() -> dict[str, str]:
    return {name: value for name, value in node_environment().items() if name != "CENOTE_CONFIG"}


def on_machine(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A run of the binary where `folder` is /etc/cenote; skips the test where the machine has no mounts for tests."""
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    inside = ["unshare", "--mount", *rights, "sh", "-c", OTHER_MACHINE, str(folder)]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts of its own for a test")
    command = [*inside, str(BINARY), *map(str, arguments)]
    return subprocess.run(command, env=unset_environment(), capture_output=True, text=True, check=False)


def test_commands_of_a_node_read_the_file_of_the_machine_unless_another_is_named(tmp_path: Path) -> None:
    machine, other = tmp_path / "cenote.toml", tmp_path / "other.toml"
    machine.write_text("[dram]\ncapacity = '48MiB'\n")
    other.write_text("[dram]\ncapacity = '24MiB'\n")
    shown = on_machine(tmp_path, "config", "show").stdout
    assert shown.startswith("# file: /etc/cenote/cenote.toml\n")
    assert 'capacity = "48MiB"' in shown
    assert "dram.capacity 48.0 MiB" in on_machine(tmp_path, "doctor").stdout
    named = on_machine(tmp_path, "config", "show", "--config", other).stdout
    assert named.startswith(f"# file: {other}\n")
    assert 'capacity = "24MiB"' in named
    for none in ("config", "show", "--config", ""), ("config", "show", "--config", "/dev/null"):
        assert 'capacity = "1GiB"' in on_machine(tmp_path, *none).stdout
    assert on_machine(tmp_path, "config", "show", "--config", "").stdout.startswith("# file: none\n")


def test_a_machine_without_a_file_has_the_defaults(tmp_path: Path) -> None:
    shown = on_machine(tmp_path, "config", "show")
    assert shown.stdout.startswith("# file: none\n"), shown.stderr


def test_a_file_of_the_machine_that_cannot_be_read_is_an_error_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "cenote.toml"
    for make in (lambda: file.write_text("[dram\n"), lambda: file.symlink_to("nowhere"), file.mkdir):
        make()
        for command in (["node"], ["config", "check"], ["config", "show"], ["doctor"]):
            refused = on_machine(tmp_path, *command)
            assert refused.returncode == 2, command
            assert "/etc/cenote/cenote.toml" in refused.stderr
            assert refused.stdout == ""
        if not file.is_dir():
            file.unlink()


def test_a_private_node_takes_nothing_of_the_machines_file(tmp_path: Path) -> None:
    (tmp_path / "cenote.toml").write_text("[auth]\nallow_uids = [4242]\n[nvme]\npaths = ['/nowhere/at/all']\n")
    ran = on_machine(tmp_path, "quickstart", "--json")
    assert ran.returncode == 0, ran.stderr


def test_a_variable_names_the_file_and_an_empty_one_names_none(tmp_path: Path) -> None:
    file = tmp_path / "cenote.toml"
    file.write_text("[dram]\ncapacity = '48MiB'\n")
    named = run_cenote("config", "show", env=node_environment() | {"CENOTE_CONFIG": str(file)})
    assert named.stdout.startswith(f"# file: {file}\n")
    assert named.stderr == ""
    over = run_cenote("config", "show", "--config", "", env=node_environment() | {"CENOTE_CONFIG": str(file)})
    assert over.stdout.startswith("# file: none\n")
    missing = run_cenote("config", "check", env=node_environment() | {"CENOTE_CONFIG": str(tmp_path / "none.toml")})
    assert missing.returncode == 2
    assert f"CENOTE_CONFIG: {tmp_path / 'none.toml'}" in missing.stderr


def test_what_init_writes_is_valid_and_a_node_starts_with_it(start_node: StartNode, tmp_path: Path) -> None:
    file = tmp_path / "cenote.toml"
    assert run_cenote("init", "--out", file).returncode == 0
    checked = run_cenote("config", "check", "--config", file)
    assert checked.returncode == 0, checked.stderr
    text = file.read_text()
    assert run_cenote("init").stdout.count("\n") == text.count("\n")
    node = start_node(config=file, capacity="64MiB")  # half of the machine would take long to touch
    assert node.status()["dram"]["capacity"] == 64 << 20
    node.finish()
    node.command = [each for each in node.command if each != "dram.capacity=64MiB"]
    node.command = [*node.command[: node.command.index("--config") + 2], "--set", f"node.runtime_dir={node.folder}"]
    node.command += ["--set", "log.format=json", "--set", "dram.populate=false"]
    node.start()
    assert node.status()["dram"]["capacity"] >= 64 << 20
    node.finish()


def test_init_replaces_a_file_only_by_force(tmp_path: Path) -> None:
    file = tmp_path / "cenote.toml"
    file.write_text("mine")
    refused = run_cenote("init", "--out", file)
    assert refused.returncode == 2
    assert str(file) in refused.stderr
    assert "--force" in refused.stderr
    assert file.read_text() == "mine"
    file.chmod(0o640)
    assert run_cenote("init", "--out", file, "--force").returncode == 0
    assert "capacity" in file.read_text()
    assert file.stat().st_mode & 0o7777 == 0o640
    assert run_cenote("init", "--out", tmp_path / "none" / "cenote.toml").returncode == 1


def test_the_packages_file_is_valid_as_it_is_and_with_all_that_it_proposes(tmp_path: Path) -> None:
    text = (ROOT / "packaging" / "debian" / "cenote.toml").read_text()
    file = tmp_path / "cenote.toml"
    proposed = text.replace("\n# capacity", "\ncapacity").replace("\n# paths", "\npaths")
    proposed = proposed.replace("\n# listen", "\nlisten")
    here = proposed.replace("/var/lib/cenote", str(tmp_path)).replace("100GiB", "64MiB")  # this machine's disk
    assert here.count(str(tmp_path)) == 2
    for each in (text, here):
        file.write_text(each)
        checked = run_cenote("config", "check", "--config", file)
        assert checked.returncode == 0, checked.stderr
