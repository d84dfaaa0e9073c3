"""Blocks from a device and from DRAM as one prefix, whatever the device's session does; the sessions are stand-ins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from cenote import CenoteError, Closed, DeadlineExceeded, NoSpace, PinLimit
from cenote import _near as near_module
from cenote._near import Near, acquire, exists, reachable, resident
from cenote.device import DeviceLost

KEYS = [bytes([i]) * 8 for i in range(10)]


class Pins:
    def __init__(self, session: FakeSession, keys: Sequence[bytes]) -> None:
        self.session = session
        self.keys = list(keys)

    def __len__(self) -> int:
        return len(self.keys)

    def release(self) -> None:
        if self.session.refuses is not None:
            raise self.session.refuses
        self.session.pinned -= len(self.keys)
        self.keys = []


class FakeSession:
    """Has `keys`, and below them `lower`. `refuses` everything with an error, if it is set."""

    device = object()

    def __init__(self, keys: Sequence[bytes], lower: Sequence[bytes] = ()) -> None:
        self.keys = set(keys)
        self.lower = set(lower)
        self.pinned = 0
        self.refuses: CenoteError | None = None
        self.evicts: Callable[[], None] = lambda: None  # between a lookup and a pin

    def _prefix(self, keys: Sequence[bytes], of: set[bytes]) -> int:
        return next((i for i, key in enumerate(keys) if key not in of), len(keys))

    def exists(self, keys: Sequence[bytes], group: str | None = None) -> list[bool]:
        if self.refuses is not None:
            raise self.refuses
        return [key in self.keys for key in keys]

    def acquire(self, keys: Sequence[bytes], group: str | None = None) -> Pins:
        self.evicts()
        if self.refuses is not None:
            raise self.refuses
        pins = Pins(self, keys[: self._prefix(keys, self.keys)])
        self.pinned += len(pins)
        return pins

    def match(self, keys: Sequence[bytes], group: str | None = None) -> Any:
        class Found:
            resident = self._prefix(keys, self.keys)
            reachable = self._prefix(keys, self.keys | self.lower)

        return Found


class Kept:
    """What keeps the session attached."""

    def __init__(self, session: FakeSession) -> None:
        self.kept: FakeSession | None = session

    def session(self) -> Any:
        return self.kept

    def failed(self, why: CenoteError, session: Any = None) -> None:
        if isinstance(why, Closed):
            self.kept = None

    def close(self) -> None:
        self.kept = None


def near_with(session: FakeSession) -> Near[str]:
    def source(prepare: Callable[[Any], None]) -> Kept:
        prepare(session)
        return Kept(session)

    return Near(source, lambda device: "streams")


def runs(taken: Any) -> list[tuple[int, int, bool]]:
    return [(run.first, len(run.held), run.is_near) for run in taken.runs]


def test_a_prefix_is_pinned_on_the_device_where_it_is_there_and_in_dram_else() -> None:
    here, host = FakeSession([*KEYS[:2], *KEYS[4:6]]), FakeSession([*KEYS[1:4], KEYS[7]])
    near = near_with(here)
    with acquire(near, host, KEYS) as taken:  # type: ignore[arg-type]
        assert runs(taken) == [(0, 2, True), (2, 2, False), (4, 2, True)]
        assert len(taken) == 6 and here.pinned == 4 and host.pinned == 2
        assert near.works_on(taken.runs[0].session) == "streams"
        assert near.works_on(taken.runs[1].session) is None
    assert here.pinned == host.pinned == 0


def test_lengths_count_both_and_lower_tiers_behind_them() -> None:
    near, host = near_with(FakeSession(KEYS[:3])), FakeSession(KEYS[3:5], KEYS[5:8])
    sessions: Any = (near, host)
    assert exists(*sessions, KEYS) == [True] * 5 + [False] * 5
    assert resident(*sessions, KEYS) == 5
    assert reachable(*sessions, KEYS) == 8
    assert reachable(None, host, KEYS) == 0  # type: ignore[arg-type]


def test_what_leaves_the_device_between_lookup_and_pin_comes_from_dram() -> None:
    here, host = FakeSession(KEYS[:6]), FakeSession(KEYS[:8])
    here.evicts = lambda: here.keys.discard(KEYS[2])
    taken = acquire(near_with(here), host, KEYS)  # type: ignore[arg-type]
    assert runs(taken) == [(0, 2, True), (2, 6, False)]
    taken.release()
    assert here.pinned == host.pinned == 0


@pytest.mark.parametrize("why", [Closed("away"), DeadlineExceeded("hangs"), PinLimit("full")])
@pytest.mark.parametrize("when", ["at the lookup", "at the pin"])
def test_a_session_on_a_device_that_fails_leaves_all_to_dram(why: CenoteError, when: str) -> None:
    here, host = FakeSession(KEYS[:4]), FakeSession(KEYS[:8])

    def fail() -> None:
        here.refuses = why

    if when == "at the lookup":
        fail()
    here.evicts = fail
    near = near_with(here)
    with acquire(near, host, KEYS) as taken:  # type: ignore[arg-type]
        assert runs(taken) == [(0, 8, False)]
    assert host.pinned == 0
    assert (near.session() is None) == (not isinstance(why, PinLimit))


def test_pins_of_a_session_that_is_over_end_without_a_word() -> None:
    here, host = FakeSession(KEYS[:4]), FakeSession(KEYS[4:6])
    taken = acquire(near_with(here), host, KEYS)  # type: ignore[arg-type]
    here.refuses = Closed("away")
    taken.release()
    assert host.pinned == 0


def test_a_failure_in_dram_ends_the_pins_on_the_device() -> None:
    here, host = FakeSession(KEYS[:4]), FakeSession(KEYS[4:6])
    host.refuses = Closed("gone")
    with pytest.raises(Closed):
        acquire(near_with(here), host, KEYS)  # type: ignore[arg-type]
    assert here.pinned == 0


def test_a_device_is_left_alone_for_a_while_or_for_good_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(near_module.time, "monotonic", lambda: now)
    near = near_with(FakeSession(KEYS))
    near.failed(NoSpace("full"))
    assert near.session() is not None and not caplog.records
    with caplog.at_level(logging.WARNING):
        near.failed(DeadlineExceeded("hangs"))
        near.failed(DeadlineExceeded("hangs"))
        assert near.session() is None
        now += 6
        assert near.session() is not None
        near.failed(DeviceLost("failed"))
        near.failed(DeviceLost("failed"))
        now += 1000
        assert near.session() is None
    assert [each.levelname for each in caplog.records] == ["WARNING", "ERROR"]
