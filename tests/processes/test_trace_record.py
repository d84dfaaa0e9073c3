"""`cenote trace record`: a file of what a running node was asked for answers as the log that was played to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blocks
import cenote
import pytest
from conftest import StartNode, make_spec
from node import BINARY, Node, is_alive, node_environment, run_cenote, until

BLOCK_TOKENS = 512


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty conversations that take turns, each longer in each turn."""
    path: Path = tmp_path_factory.mktemp("log") / "chat.jsonl"
    rows = []
    for turn in range(1, 6):
        for talk in range(60):
            ids = [1, 2, *(1000 * talk + i for i in range(10, 10 + 3 * turn))]
            rows.append({"timestamp": len(rows), "input_length": len(ids) * BLOCK_TOKENS, "hash_ids": ids})
    path.write_text("".join(json.dumps({**row, "output_length": 1}) + "\n" for row in rows))
    return path


def answer(*arguments: str | Path) -> dict[str, Any]:
    ended = run_cenote(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def replay(node: Node, log: Path) -> None:
    answer("replay", log, "--socket", node.socket, "--block-bytes", "4KiB", "--engines", "1")


class Recorder:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def wait_for_questions(self) -> None:
        """Until it has asked the node several times more: it sleeps once or twice for each."""
        before = self.sleeps()
        until("the node is asked", lambda: self.sleeps() > before + 20)

    def sleeps(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(each for each in lines if each.startswith("voluntary")).split()[1])

    def end(self) -> tuple[int, str, str]:
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@contextlib.contextmanager
def recording(node: Node, out: Path, *arguments: str) -> Iterator[Recorder]:
    words = [BINARY, "trace", "record", "--socket", node.socket, "--out", out, "--json", *arguments]
    with subprocess.Popen(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=node_environment(),
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        if not first.startswith("recording"):
            raise AssertionError(first + process.stderr.read())
        try:
            yield Recorder(process)
        finally:
            process.kill()


def curve(trace: Path) -> dict[str, Any]:
    found = answer("optimize", "curve", trace, "--policies", "lru,arc")
    del found["format"]
    return found


@pytest.mark.parametrize("policy", ["auto", "lru"])
def test_a_recording_has_the_curves_of_the_log_that_was_played(
    start_node: StartNode, log: Path, tmp_path: Path, policy: str
) -> None:
    node = start_node(f"dram.policy={policy}", capacity="16MiB")
    out = tmp_path / "node.ctrace"
    with recording(node, out) as recorder:
        replay(node, log)
        code, text, errors = recorder.end()
    assert (code, errors) == (0, "")
    facts = json.loads(text)
    assert (facts["requests"], facts["writes"], facts["block_tokens"]) == (300, 0, BLOCK_TOKENS)
    assert (facts["first_ms"], facts["left_out"], facts["anonymised"], facts["full_blocks"]) == (0, 0, True, True)
    assert curve(out) == curve(log)


def test_two_recordings_share_identities_only_where_these_are_kept(
    start_node: StartNode, log: Path, tmp_path: Path
) -> None:
    node = start_node(capacity="16MiB")
    files: dict[str, list[bytes]] = {"": [], "--identities": []}
    for option, contents in files.items():
        for number in range(2):
            out = tmp_path / f"{option}{number}.ctrace"
            with recording(node, out, *([option] if option else [])) as recorder:
                replay(node, log)
                assert recorder.end()[0] == 0
            info = answer("trace", "info", out)
            assert info["anonymised"] == (not option)
            packed = out.read_bytes()
            contents.append(packed[80:88])  # the seed that identities are made of
    assert len({*files[""], bytes(8)}) == 3
    assert files["--identities"] == [bytes(8)] * 2


def test_a_second_recording_waits_for_the_first_one_s_end(start_node: StartNode, log: Path, tmp_path: Path) -> None:
    node = start_node(capacity="16MiB")
    with recording(node, tmp_path / "one.ctrace") as recorder:
        refused = run_cenote("trace", "record", "--socket", node.socket, "--out", tmp_path / "other.ctrace")
        assert refused.returncode == 1
        assert "being recorded already" in refused.stderr
        code, text, errors = recorder.end()
    assert (code, text) == (1, "")
    assert "no request came" in errors
    assert not list(tmp_path.glob("*.ctrace"))
    with recording(node, tmp_path / "two.ctrace") as recorder:
        replay(node, log)
        assert recorder.end()[0] == 0


def test_after_a_worker_s_death_a_recording_goes_on_and_says_that_there_is_a_gap(
    start_node: StartNode, log: Path, tmp_path: Path
) -> None:
    node = start_node(capacity="16MiB")
    out = tmp_path / "node.ctrace"
    with recording(node, out) as recorder:
        replay(node, log)
        node.announced_deaths += 1
        worker = node.status()["node"]["worker_pid"]
        epoch = node.status()["node"]["epoch"]
        os.kill(worker, signal.SIGKILL)
        until("the worker is dead", lambda: not is_alive(worker))
        until("another serves", lambda: node.status()["node"]["epoch"] > epoch)
        assert recorder.process.stderr is not None
        assert "requests are missing" in recorder.process.stderr.readline()
        replay(node, log)
        code, text, errors = recorder.end()
    assert (code, errors) == (0, "")
    assert json.loads(text)["requests"] >= 300


def test_a_node_that_watches_nothing_refuses_to_be_recorded(start_node: StartNode, tmp_path: Path) -> None:
    node = start_node("optimize.mode=off", capacity="16MiB")
    ended = run_cenote("trace", "record", "--socket", node.socket, "--out", tmp_path / "t.ctrace", "--for", "1s")
    assert ended.returncode == 2
    assert "optimize.mode is off" in ended.stderr


def test_a_node_that_ends_leaves_what_came_before(start_node: StartNode, log: Path, tmp_path: Path) -> None:
    node = start_node(capacity="16MiB")
    out = tmp_path / "node.ctrace"
    with recording(node, out) as recorder:
        replay(node, log)
        recorder.wait_for_questions()
        node.stop()
        code, text, errors = recorder.end()
    assert code == 1
    assert json.loads(text)["requests"] == 300
    assert "ended early" in errors


def test_all_instances_are_recorded_also_those_without_a_curve(start_node: StartNode, tmp_path: Path) -> None:
    node = start_node("optimize.mode=watch_all", capacity="64MiB")
    out = tmp_path / "node.ctrace"
    with recording(node, out) as recorder:
        for number in range(20):
            with cenote.attach(make_spec(f"i{number}"), socket=str(node.socket)) as session:
                keys = blocks.keys_of("a", 0, 2)
                session.put(keys, blocks.contents_of(keys, 4096))
        code, text, errors = recorder.end()
    assert (code, errors) == (0, "")
    facts = json.loads(text)
    assert (facts["instances"], facts["requests"], facts["distinct"]) == (20, 20, 40)
    assert len(node.status()["optimize"]["groups"]) == 16


def test_requests_of_another_size_are_named_at_once(start_node: StartNode, log: Path, tmp_path: Path) -> None:
    node = start_node(capacity="16MiB")
    with recording(node, tmp_path / "node.ctrace", "--block-tokens", "16") as recorder:
        replay(node, log)
        assert recorder.process.stderr is not None
        assert f"with blocks of {BLOCK_TOKENS} tokens" in recorder.process.stderr.readline()
        recorder.process.send_signal(signal.SIGHUP)
        assert recorder.process.wait() == 1
        assert "no request came" in recorder.process.stderr.read()


def test_a_folder_that_is_not_there_is_refused_before_the_work(start_node: StartNode, tmp_path: Path) -> None:
    node = start_node(capacity="16MiB")
    ended = run_cenote("trace", "record", "--socket", node.socket, "--out", tmp_path / "none" / "t.ctrace")
    assert ended.returncode == 1
    assert "--out" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--for", "soon"), "--for"),
        (("--for", "0s"), "longer than zero"),
        (("--block-tokens", "0"), "--block-tokens"),
    ],
)
def test_options_without_a_meaning_are_refused(tmp_path: Path, arguments: tuple[str, str], part: str) -> None:
    ended = run_cenote("trace", "record", "--socket", tmp_path / "no.sock", "--out", tmp_path / "t.ctrace", *arguments)
    assert ended.returncode != 0
    assert part in ended.stderr
