"""Certificates of a test's own, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

LOOPBACK = "DNS:localhost,IP:127.0.0.1"


class Identity(NamedTuple):
    """Files in PEM."""

    certificate: Path
    key: Path


def self_signed(folder: Path, name: str = "cert", names: str = LOOPBACK) -> Identity:
    """A certificate for these names, which is its own authority, and its key."""
    made = Identity(folder / f"{name}.pem", folder / f"{name}.key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", f"subjectAltName={names}"),
            *("-keyout", made.key, "-out", made.certificate),
        ],
        check=True,
        capture_output=True,
    )
    return made
