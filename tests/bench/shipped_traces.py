"""The recorded traces of tests/data, for benches that read them whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 512  # of a block


def unpacked(name: str) -> str:
    """`conversation` or `synthetic`, in Mooncake's form."""
    packed = ROOT / "tests/data/traces" / f"{name}.txt"
    command = [sys.executable, str(ROOT / "scripts/unpack_trace.py"), str(packed), "1000000"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def full_blocks(text: str) -> list[list[int]]:
    """Of each request, as engines hand them over."""
    lines = [json.loads(line) for line in text.splitlines()]
    return [line["hash_ids"][: line["input_length"] // TOKENS] for line in lines]
