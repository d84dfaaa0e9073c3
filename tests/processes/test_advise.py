"""`cenote optimize advise` and the curves in a status, against the exact curve of the requests that a node served."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import StartNode
from node import BINARY, Node, node_environment, run_cenote
from test_replay_report import embedded

BLOCK_TOKENS = 512
REQUESTS = 2_500


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations with shared system prompts, one request after the other, in more blocks than a sample takes."""
    drawn = random.Random(3)
    path: Path = tmp_path_factory.mktemp("trace") / "chat.jsonl"
    talks: list[list[int]] = []
    fresh = 100
    lines = []
    for number in range(REQUESTS):
        if talks and drawn.random() < 0.7:
            talk = talks.pop(max(0, len(talks) - 1 - int(drawn.expovariate(1 / 60))))
        else:
            system = drawn.randrange(4)
            talk = [10 * system + i for i in range(4)]
        added = 1 + drawn.randrange(9)
        talk = [*talk, *range(fresh, fresh + added)]
        fresh += added
        talks.append(talk)
        lines.append({"timestamp": number, "input_length": len(talk) * BLOCK_TOKENS, "hash_ids": talk})
    path.write_text("".join(json.dumps({**line, "output_length": 1}) + "\n" for line in lines))
    return path


def answer(*arguments: str | Path) -> dict[str, Any]:
    ended = run_cenote(*arguments)
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


def replay(node: Node, trace: Path) -> None:
    answer("replay", trace, "--socket", node.socket, "--block-bytes", "4KiB", "--json", "--engines", "1")


def exact_misses(trace: Path, capacities: list[int]) -> dict[int, float]:
    said = answer("optimize", "curve", trace, "--json", "--capacities", ",".join(map(str, capacities)))
    return {each["capacity"]: 1 - each["hit_blocks"] / said["blocks"] for each in said["curves"][0]["points"]}


def test_the_curve_of_a_running_node_is_that_of_the_requests_that_it_served(start_node: StartNode, trace: Path) -> None:
    node = start_node("dram.policy=auto", capacity="16MiB")
    replay(node, trace)
    optimize = node.status()["optimize"]
    (group,) = optimize["groups"]
    assert (group["requests"], optimize["dropped"]) == (REQUESTS, 0)
    points = {each["capacity"]: each for each in group["points"]}
    assert len(points) > 8
    assert max(points) == pytest.approx(4 * group["capacity_now"], rel=0.01)  # all of what the table shows
    exact = exact_misses(trace, list(points))
    for capacity, point in points.items():
        apart = abs(point["miss_ratio"] - exact[capacity])
        assert apart <= max(3 * point["error"], 0.01), (capacity, point, exact[capacity])

    said = answer("optimize", "advise", "--json", "--socket", node.socket)
    (advised,) = said["groups"]
    assert advised["group"] == group["group"]
    assert [each["capacity"] for each in advised["points"]] == list(points)
    assert [each["hit_ratio"] for each in advised["points"]] == pytest.approx(
        [1 - each["miss_ratio"] for each in points.values()]
    )
    first, second = advised["points"][:2]
    more = (second["capacity"] - first["capacity"]) * advised["block_bytes"] / 2**30
    assert first["gain_per_gib"] == pytest.approx((second["hit_ratio"] - first["hit_ratio"]) / more)
    assert advised["capacity_for"] == group["capacity_for"]
    assert [each["share"] for each in advised["capacity_for"]][-3:] == [0.95, 0.99, 0.995]
    reachable = 1 - points[max(points)]["miss_ratio"]
    for each in advised["capacity_for"]:
        hits = 1 - exact_misses(trace, [each["capacity"]])[each["capacity"]]
        assert hits == pytest.approx(each["share"] * reachable, abs=0.02)
    (gain,) = advised["gains"]
    assert (gain, gain["tier"]) == (group["gains"][0], "dram")
    assert gain["gain_per_gib"] > 3 * gain["error"]
    text = run_cenote("optimize", "advise", "--socket", node.socket)
    assert text.returncode == 0
    assert "99.50 %" in text.stdout
    assert "a GiB more of dram" in text.stdout
    page = trace.parent / "advise.html"
    reported = answer("optimize", "advise", "--json", "--report", page, "--socket", node.socket)
    assert embedded(page) == reported
    assert "Hit ratio by capacity" in page.read_text()
    refused = run_cenote("optimize", "advise", "--watch", "--report", page, "--socket", node.socket)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"{REQUESTS} requests" in text.stdout
    assert "1.00" in text.stdout
    assert "4.00" in text.stdout


@pytest.mark.parametrize(("mode", "groups"), [("watch", 0), ("watch_all", 1)])
def test_a_policy_that_follows_no_requests_is_watched_where_all_are(
    start_node: StartNode, trace: Path, mode: str, groups: int
) -> None:
    node = start_node("dram.policy=lru", f"optimize.mode={mode}", capacity="16MiB")
    replay(node, trace)
    found = node.status()["optimize"]["groups"]
    assert [each["requests"] for each in found] == [REQUESTS] * groups
    text = run_cenote("optimize", "advise", "--socket", node.socket)
    assert ("dram.policy follows no requests" in text.stdout) == (groups == 0)


def test_a_node_that_is_not_to_watch_has_no_curve(start_node: StartNode, trace: Path) -> None:
    node = start_node("optimize.mode=off", capacity="16MiB")
    replay(node, trace)
    assert node.status()["optimize"]["groups"] == []
    text = run_cenote("optimize", "advise", "--socket", node.socket)
    assert (text.returncode, text.stdout.count("\n")) == (0, 1)
    assert "optimize.mode is off" in text.stdout


def test_with_watch_it_is_printed_again_until_it_is_interrupted(start_node: StartNode) -> None:
    node = start_node(capacity="16MiB")
    words = [str(BINARY), "optimize", "advise", "--watch", "--json", "--socket", str(node.socket)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=node_environment()) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() == 0
    assert [json.loads(line) for line in lines] == [{"groups": []}] * 2


def watched(node: Node, stdout: int) -> subprocess.Popen[bytes]:
    words = [str(BINARY), "optimize", "advise", "--watch", "--socket", str(node.socket)]
    return subprocess.Popen(words, stdout=stdout, env=node_environment())


def test_only_a_terminal_is_cleared_between_two_looks(start_node: StartNode) -> None:
    node = start_node(capacity="16MiB")
    reader, writer = os.pipe()
    leader, terminal = pty.openpty()
    with watched(node, writer) as piped, watched(node, terminal) as shown:
        os.close(writer)
        os.close(terminal)
        assert os.read(reader, 9) == b"no instan"
        assert os.read(leader, 9).startswith(b"\x1b[H\x1b[2J")
        for process in (piped, shown):
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0
    os.close(reader)
    os.close(leader)


@pytest.mark.parametrize("flags", [(), ("--watch",)])
def test_without_a_node_there_is_one_line(tmp_path: Path, flags: tuple[str, ...]) -> None:
    ended = run_cenote("optimize", "advise", *flags, "--socket", tmp_path / "none.sock")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
