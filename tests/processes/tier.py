"""The tier that a test is about: DRAM, or memory of a device with DRAM below.

A test with `@both_tiers` runs on each. `start_node` gives the tier the capacity that the test asks for, clients of the
node attach to it, and the node's figures of instances, groups and blocks are the tier's. The device is the simulated
one, or $CENOTE_TEST_DEVICE: `pytest -m on_device` then runs all that a real one can be asked for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cenote import copying

DEVICE = os.environ.get("CENOTE_TEST_DEVICE", "sim:0").replace("GPU-", "cuda:GPU-").replace("cuda:cuda:", "cuda:")

both_tiers = pytest.mark.parametrize(
    "tier",
    [pytest.param(None, id="dram"), pytest.param(DEVICE, id="device", marks=pytest.mark.on_device)],
    indirect=True,
)


def sets_of(device: str | None, capacity: str) -> tuple[str, ...]:
    """A tier of that capacity; what leaves a device finds room in DRAM."""
    if device is None:
        return (f"dram.capacity={capacity}",)
    below = f"{2 * int(capacity[:-3])}{capacity[-3:]}"
    return (
        f'gpu.devices=["{device}"]',
        f"gpu.capacity={capacity}",
        f"dram.capacity={below}",
        "dram.populate=false",
        "gpu.quarantine=1s",  # the least: what a dead client was writing is free behind it
    )


def seen(session: Any, held: Any) -> list[Any]:
    """The bytes of pinned blocks: of DRAM in place, of a device as it copies them now."""
    if session.device is None:
        return [block.view() for block in held]
    copies = [np.empty(len(block), np.uint8) for block in held]
    copy_on(session, [each.ctypes.data for each in copies], held.addresses(), [each.size for each in copies])
    return copies


def write(session: Any, slot: Any, data: Any, part: str | None = None) -> None:
    """Writes the first bytes of a reserved block, or of a part of it."""
    if session.device is None:
        slot.view(part)[: data.size] = data.data
    else:
        copy_on(session, [slot.address(part)], [data.ctypes.data], [data.size])


def copy_on(session: Any, targets: Sequence[int], sources: Sequence[int], sizes: Sequence[int]) -> None:
    stream = session.device.stream()
    copying.copy(targets, sources, sizes, stream=stream)
    stream.record().settle()
