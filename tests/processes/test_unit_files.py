"""systemd's units beside the schema, and what systemd thinks of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from node import BINARY, ROOT, run_cenote

UNITS = sorted((ROOT / "scripts").glob("*.service"))


def setting(unit: str, name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", (ROOT / "scripts" / unit).read_text(), re.MULTILINE)
    return str(found)


def seconds(key: str) -> float:
    section, _, name = key.partition(".")
    shown = run_cenote("config", "show").stdout
    (table,) = re.findall(rf"^\[{section}\]\n((?:.+\n)*)", shown, re.MULTILINE)
    (value,) = re.findall(rf'^{name} = "([\d.]+)s"', table, re.MULTILINE)
    return float(value)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    made = tmp_path / unit.name
    made.write_text(unit.read_text().replace("/usr/bin/cenote", str(BINARY)))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", made], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


def test_systemd_waits_for_a_stop_in_order_longer_than_the_node_takes_by_its_defaults() -> None:
    needed = seconds("node.drain_timeout") + seconds("node.flush_timeout") + 2
    assert float(setting("cenote.service", "TimeoutStopSec")) >= needed


def test_the_nodes_unit_has_a_place_for_what_outlives_it_and_reads_the_machines_file() -> None:
    assert setting("cenote.service", "StateDirectory") == "cenote"
    assert setting("cenote.service", "ConfigurationDirectory") == "cenote"
    assert "--config" not in setting("cenote.service", "ExecStart")
