"""What copies for SGLang: whatever becomes of a copy, nothing of it is under way when the call is over."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cenote import InvalidArgument, copying
from cenote._sglang.copier import Copier
from cenote.device import DeviceLost, Event, Stream

COUNT, SIZE = 64, 1 << 20  # long enough that a copy is seldom over when it was begun
REAL = copying.copy


class Pages:
    """Pages of host memory, and where each of them shall go."""

    def __init__(self) -> None:
        self.source = np.random.default_rng(1).integers(0, 256, (COUNT, SIZE), np.uint8)
        self.target = np.zeros((COUNT, SIZE), np.uint8)

    def copy(self, copier: Copier) -> None:
        offsets = np.arange(COUNT, dtype=np.uint64)[:, None] * np.uint64(SIZE)
        targets, sources = (offsets + np.uint64(each.ctypes.data) for each in (self.target, self.source))
        copier.copy("load", targets, sources, np.array([SIZE], np.uint64))

    @property
    def are_copied(self) -> bool:
        return bool((self.target == self.source).all())


class RefusesLater:
    """In the place of copying.copy: the device begins the first runs, and `refusal` comes instead of the others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refusal: BaseException) -> None:
        self.begun: Event | None = None
        self._refusal = refusal
        monkeypatch.setattr(copying, "copy", self)

    def __call__(
        self, targets: Sequence[int], sources: Sequence[int], sizes: array[int], threads: int, **more: Any
    ) -> None:
        stream: Stream | None = more.get("stream")
        if stream is None:
            REAL(targets, sources, sizes, threads)
            return
        REAL(targets[: COUNT // 2], sources[: COUNT // 2], sizes[: COUNT // 2], threads, stream=stream)
        self.begun = stream.record()
        raise self._refusal


@pytest.mark.parametrize("device", [None, "sim:0"])
def test_pages_are_there_when_the_call_is_over(device: str | None) -> None:
    pages = Pages()
    pages.copy(Copier(device, 1))
    assert pages.are_copied


def test_the_processor_copies_all_when_a_device_refuses_what_comes_after_its_first_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = RefusesLater(monkeypatch, InvalidArgument("this memory cannot be reached"))
    pages, copier = Pages(), Copier("sim:0", 1)
    pages.copy(copier)
    assert device.begun is not None and device.begun.is_done
    assert pages.are_copied
    device.begun = None
    pages.copy(copier)
    assert device.begun is None, "it is not asked again"


def test_an_interruption_comes_when_the_runs_that_began_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    device = RefusesLater(monkeypatch, KeyboardInterrupt())
    pages = Pages()
    with pytest.raises(KeyboardInterrupt):
        pages.copy(Copier("sim:0", 1))
    assert device.begun is not None and device.begun.is_done


def test_a_device_that_fails_after_it_refused_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody knows what it still writes: the processor must not copy to the same places."""
    device = RefusesLater(monkeypatch, InvalidArgument("this memory cannot be reached"))
    pages, copier = Pages(), Copier("sim:0,fail=1", 1)
    with pytest.raises(DeviceLost):
        pages.copy(copier)
    assert not pages.target[COUNT // 2 :].any()
    device.begun = None
    pages.copy(copier)
    assert device.begun is None and pages.are_copied


def test_a_device_that_fails_is_lost_and_the_processor_goes_on() -> None:
    pages, copier = Pages(), Copier("sim:0,fail=1", 1)
    with pytest.raises(DeviceLost):
        pages.copy(copier)
    pages.copy(copier)
    assert pages.are_copied
