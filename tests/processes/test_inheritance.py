"""Inheritance of a node: standard streams that the parent has closed, signals that it ignores."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import pytest
from conftest import StartNode
from node import KiB, is_alive, until

Attach = Callable[..., Any]
BLOCK = 64 * KiB


def parent(*actions: str) -> list[str]:
    """Words before a node's command: a process that does this and becomes the node."""
    program = ["import os, signal, sys", *actions, "os.execv(sys.argv[1], sys.argv[1:])"]
    return [sys.executable, "-c", "\n".join(program)]


def ignored_signals(process: int) -> int:
    """A bit for each, from number 1 on."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)], ids=str)
def test_a_log_without_a_stream_is_written_into_no_file_of_the_node(
    start_node: StartNode, attach: Attach, closed: tuple[int, ...]
) -> None:
    node = start_node(prefix=parent(*(f"os.close({each})" for each in closed)))
    worker = node.worker_pid
    for process in (node.pid, worker):
        for stream in closed:
            assert os.readlink(f"/proc/{process}/fd/{stream}") == "/dev/null"
    session = attach(node, "model", block=BLOCK)
    keys = blocks.keys_of("prompt", 0, 100)
    session.put(keys, blocks.contents_of(keys, BLOCK))
    os.kill(worker, signal.SIGKILL)  # the log has no line of it
    until("the worker is dead", lambda: not is_alive(worker))
    assert node.worker_pid != worker
    with session.acquire(keys) as held:
        assert len(held) == len(keys)
        assert blocks.wrong_blocks(keys, [each.view() for each in held], BLOCK) == []
    assert attach(node, "other", block=BLOCK).match(keys).resident == 0


def test_a_log_that_nobody_reads_stops_nothing(start_node: StartNode, attach: Attach) -> None:
    full = parent(
        "import fcntl",
        "reads, writes = os.pipe()",
        "fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)",
        "os.set_inheritable(reads, True)",
        "os.dup2(writes, 2)",
    )
    node = start_node("log.level=debug", prefix=full)
    session = attach(node, "model", block=BLOCK)
    keys = blocks.keys_of("prompt", 0, 10)
    session.put(keys, blocks.contents_of(keys, BLOCK))

    def is_full() -> bool:
        attach(node).close()
        return int(node.status()["node"]["log_dropped"]) > 0

    until("the pipe is full", is_full)
    worker = node.worker_pid
    os.kill(worker, signal.SIGKILL)
    until("the worker is dead", lambda: not is_alive(worker))
    assert node.worker_pid != worker, "the keeper has started the next one"
    assert session.match(keys).resident == len(keys)


@pytest.mark.parametrize("limit", ["fsize", "as"])
def test_a_limit_that_no_worker_could_live_with_is_refused_with_what_is_needed(
    start_node: StartNode, limit: str
) -> None:
    node = start_node(launch_only=True, prefix=("prlimit", f"--{limit}={1 << 30}"))
    assert node.wait(30) == 1
    name = {"fsize": "file size", "as": "address space"}[limit]
    assert f"the limit of {name} is 1.0 GiB" in node.log_text()
    assert not node.logged("worker died")


def test_a_soft_limit_is_raised(start_node: StartNode) -> None:
    node = start_node(prefix=("prlimit", f"--fsize={1 << 20}:unlimited"))
    assert "unlimited" in Path(f"/proc/{node.worker_pid}/limits").read_text().splitlines()[2]


def test_a_socket_whose_file_was_deleted_is_made_again(start_node: StartNode, attach: Attach) -> None:
    node = start_node()
    session = attach(node, "model", block=BLOCK)
    keys = blocks.keys_of("prompt", 0, 10)
    session.put(keys, blocks.contents_of(keys, BLOCK))
    worker = node.worker_pid
    node.socket.unlink()
    node.send_signal(signal.SIGHUP)
    until("the file is there", node.socket.exists)
    assert node.worker_pid == worker
    assert attach(node, "model", block=BLOCK).match(keys).resident == len(keys)
    node.socket.unlink()
    os.kill(worker, signal.SIGKILL)
    node.announced_deaths = 1
    until("the file is there", node.socket.exists)
    until("the session came back", lambda: session.match(keys).resident == len(keys))
    assert node.worker_pid != worker
    node.allowed_errors = ["opening the listening socket again"]


def test_a_worker_is_replaced_where_the_parent_ignores_the_end_of_children(start_node: StartNode) -> None:
    node = start_node(prefix=parent("signal.signal(signal.SIGCHLD, signal.SIG_IGN)"))
    node.restart_worker()
    assert node.epoch == 2


def test_signals_that_nobody_expects_end_nothing(start_node: StartNode) -> None:
    node = start_node()
    worker = node.worker_pid
    for process in (node.pid, worker):
        for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGQUIT):
            assert ignored_signals(process) >> (number - 1) & 1
            os.kill(process, number)
    assert node.worker_pid == worker
