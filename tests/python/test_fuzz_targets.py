"""Every decoder of what other nodes send is fuzzed."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_decoder_of_frames_between_nodes_has_a_fuzz_target() -> None:
    declared: set[str] = set()
    for header in (ROOT / "transport" / "peer").glob("*.hpp"):
        declared |= set(re.findall(r"\b(decode_\w+)\(std::span<const std::byte>", header.read_text()))
    fuzzed = set(re.findall(r"\bdecode_\w+\b", (ROOT / "tests" / "fuzz" / "peer_target.cpp").read_text()))
    assert len(declared) > 20
    assert not declared - fuzzed
