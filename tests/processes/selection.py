"""Which of the collected tests run: a hook of pytest that the conftest files of tests with nodes share."""

from __future__ import annotations

import pytest
from node import BINARY, FULL


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not BINARY.exists():
        pytest.exit(f"{BINARY} is missing: build it first (scripts/build), or set CENOTE_BINARY", returncode=2)
    if not FULL:
        for item in items:
            if item.get_closest_marker("full"):
                item.add_marker(pytest.mark.skip(reason="only with scripts/test --full"))
