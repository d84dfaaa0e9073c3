"""How an engine's adapter holds on to a node that comes and goes."""

from __future__ import annotations

import logging
import signal

import cenote
import pytest
from cenote._attachment import Attachment
from conftest import StartNode, make_spec
from node import Node, until


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def attachment(node: Node, clock: Clock, group: str | None = None, **more: object) -> Attachment:
    return Attachment(make_spec("i", instance_group=group), socket=node.socket, clock=clock, **more)  # type: ignore[arg-type]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_an_absent_node_is_told_once_and_sought_again_after_each_pause(
    start_node: StartNode, caplog: pytest.LogCaptureFixture
) -> None:
    node = start_node(launch_only=True)
    node.stop()
    clock = Clock()
    kept = attachment(node, clock)
    for _ in range(5):
        assert kept.session() is None
        clock.now += 2
    assert len(warnings(caplog)) == 1 and "no node" in warnings(caplog)[0]
    assert kept.session() is None
    node.start()
    assert kept.session() is None  # the pause is not over
    clock.now += 2
    session = kept.session()
    assert session is not None and kept.session() is session
    kept.close()
    assert kept.session() is None
    with pytest.raises(cenote.Closed):
        session.barrier()


def test_a_node_that_was_killed_and_comes_back_is_used_again(
    start_node: StartNode, caplog: pytest.LogCaptureFixture
) -> None:
    node = start_node()
    clock = Clock()
    kept = attachment(node, clock, deadline=2.0)
    first = kept.session()
    assert first is not None
    node.send_signal(signal.SIGTERM)
    until("the node ended", lambda: node.process is not None and node.process.poll() is not None)
    with pytest.raises(cenote.CenoteError) as caught:
        first.barrier()
    kept.failed(caught.value, first)
    assert kept.session() is None
    assert "lost the node" in warnings(caplog)[0]
    node.start()
    clock.now += 2
    second = kept.session()
    assert second is not None and second is not first
    kept.failed(cenote.Closed("late news of the first one"), first)
    assert kept.session() is second
    kept.failed(cenote.NoSpace("full"), second)
    assert kept.session() is second
    kept.close()


def test_a_refusal_is_tried_less_and_less_often(start_node: StartNode, caplog: pytest.LogCaptureFixture) -> None:
    node = start_node("groups.g.token=right")
    clock = Clock()
    kept = attachment(node, clock, "g", token="wrong")
    attempts = 0
    for _ in range(60):
        before = kept._next_attempt
        assert kept.session() is None
        attempts += kept._next_attempt != before
        clock.now += 1
    assert attempts <= 7
    assert len(warnings(caplog)) == 1


def test_sessions_that_the_node_ended_are_told_once_and_come_less_and_less_often(
    start_node: StartNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    node = start_node()
    clock = Clock()
    kept = attachment(node, clock)
    ended = cenote.SessionKilled("the node ended this session: 4 blocks")
    pauses = []
    for _ in range(9):
        session = kept.session()
        assert session is not None
        kept.failed(ended, session)
        begun = clock.now
        while kept.session() is None:
            clock.now += 30
        pauses.append(clock.now - begun)
        kept.failed(ended, session)  # late news of the one before
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert len(warnings(caplog)) == 1 and "the node ended this engine's session" in warnings(caplog)[0]
    assert len(caplog.records) == 2  # attached, and that
    clock.now += 3600
    kept.failed(ended)
    assert len(warnings(caplog)) == 1  # the same words
    clock.now += 60
    assert kept.session() is not None
    kept.close()
