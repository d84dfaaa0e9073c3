"""Pages in headless Chromium."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from node import LIMIT

CHROMIUM = shutil.which("chromium")


def browse(address: str, home: Path, *options: str) -> str:
    """The page as a browser made it, as text."""
    if CHROMIUM is None:
        pytest.skip("no chromium here: Debian's package `chromium` has it, scripts/setup installs it where it can")
    ended = subprocess.run(
        [
            CHROMIUM,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", f"--user-data-dir={home / 'profile'}"),
            *options,
            *("--dump-dom", address),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert "</html>" in ended.stdout, f"chromium ended with {ended.returncode}: {ended.stderr[-2000:]}"
    return ended.stdout


def measured(page: str, script: str, home: Path, *options: str) -> dict[str, Any]:
    """The object that `script`, which ends the page's body, leaves in its element `measured`."""
    copy = home / "measured.html"
    copy.write_text(page.replace("</body>", script))
    made = browse(copy.as_uri(), home, "--virtual-time-budget=3000", *options)
    found = re.search(r'<pre id="measured">(.*?)</pre>', made, re.DOTALL)
    assert found, "the page drew nothing"
    text = found.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return dict(json.loads(text))
