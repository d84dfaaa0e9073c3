"""`cenote replay` against real nodes: engine processes, what they verify, and every way in which it may end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import policies
import pytest
import wire
from node import BINARY, LIMIT, Node, is_alive, node_environment, processes_naming, run_cenote, until
from redis import Redis

BLOCK = "64KiB"
DRAM_ONLY = ("--dram", "64MiB", "--nvme", "0")
OWN_NODE = (*DRAM_ONLY, "--block-bytes", BLOCK)
WriteTrace = Callable[..., Path]


@pytest.fixture
def write_trace(tmp_path: Path) -> WriteTrace:
    """write_trace(turns, talks=…, gap_ms=…): conversations that share a system prompt and take turns."""

    def write(turns: int, talks: int = 4, gap_ms: int = 0, first: int = 3) -> Path:
        lines = []
        for turn in range(turns):
            for talk in range(talks):
                ids = [1, 2, *(1000 * (talk + 1) + block for block in range(first + turn))]
                time = (turn * talks + talk) * gap_ms
                lines.append({"timestamp": time, "input_length": 512 * len(ids), "output_length": 1, "hash_ids": ids})
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


@pytest.fixture
def home() -> Iterator[Path]:
    """Where a replay's own node makes its directories; nothing may be left there."""
    with tempfile.TemporaryDirectory(prefix="cr-") as place:
        yield Path(place)
        assert list(Path(place).iterdir()) == []
        until("no process of the replay is left", lambda: not processes_naming(f"runtime_dir={place}/"))


def environment(home: Path, **more: str) -> dict[str, str]:
    return node_environment() | {"TMPDIR": str(home)} | more


def run_json(trace: Path | None, *arguments: str | Path, code: int = 0, **more: Any) -> dict[str, Any]:
    first = [] if trace is None else [trace]
    ended = run_cenote("replay", *first, "--json", *arguments, **more)
    assert ended.returncode == code, ended.stderr
    return dict(json.loads(ended.stdout))


class Running:
    """A replay under way, and what it said at its end."""

    def __init__(self, *arguments: str | Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [str(BINARY), "replay", "--json", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        self.errors = ""

    def children(self, word: str) -> list[int]:
        """Living children whose command line has `word`, the oldest first."""
        found = []
        for pid in sorted(processes_naming(f" {word} ")):
            try:
                stat = Path(f"/proc/{pid}/stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == self.process.pid:
                found.append(pid)
        return found

    def end(self, code: int) -> dict[str, Any]:
        out, self.errors = self.process.communicate(timeout=LIMIT)
        assert self.process.returncode == code, self.errors
        return dict(json.loads(out))


@pytest.fixture
def start_replay() -> Iterator[Callable[..., Running]]:
    """start_replay(…): a replay that does not outlive the test."""
    started: list[Running] = []

    def start(*arguments: str | Path, env: dict[str, str] | None = None) -> Running:
        started.append(Running(*arguments, env=env or node_environment()))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def stored_blocks(status: dict[str, Any]) -> int:
    return sum(int(each["blocks"]) for each in status["instances"])


def stores_blocks(home: Path) -> bool:
    """True when the replay whose node lives in `home` is under way."""
    try:
        return any(stored_blocks(wire.ask_node(each, "status")) > 0 for each in home.glob("*/cenote.sock"))
    except OSError:  # it does not listen yet
        return False


# ---- it works


@pytest.mark.sanitizer
def test_two_engines_verify_all_that_they_read(write_trace: WriteTrace, home: Path) -> None:
    said = run_json(write_trace(8), *OWN_NODE, "--verify", "all", env=environment(home))
    assert said["requests"] == said["planned"] == 32
    assert (said["wrong_blocks"], said["failed_requests"], said["failures"]) == (0, 0, [])
    assert [each["served"] for each in said["engine_ends"]] == [16, 16]
    assert said["prefix_hits"] > 0
    assert said["verified_bytes"] == said["bytes"]["dram_to_engines"] == said["prefix_hits"] * 65536
    assert said["stored"] * 65536 == said["bytes"]["engines_to_dram"]
    assert said["latency_us"]["match"]["count"] == 32
    assert said["cpu"]["node_s"] >= 0


@pytest.mark.parametrize("access", ["copy", "in-place"])
def test_one_engine_hits_what_the_simulation_hits(access: str, home: Path) -> None:
    made = ("--generate", "chat", "--limit", "200")
    said = run_json(
        None, *made, *DRAM_ONLY, "--block-bytes", "4KiB", "--engines", "1", "--access", access, env=environment(home)
    )
    ended = run_cenote("replay", *made, "--simulate", "--json", "--capacity-sweep", "1M", "--policies", "lru")
    simulated = json.loads(ended.stdout)
    assert said["wrong_blocks"] == 0
    for name in ("prefix_hits", "prefix_tokens", "blocks", "tokens"):
        assert said[name] == simulated[name], name
    assert said["stored"] == simulated["inserts"]


@pytest.mark.parametrize("access", ["copy", "in-place"])
def test_a_chain_longer_than_the_tier_is_no_failure(access: str, write_trace: WriteTrace, home: Path) -> None:
    trace = write_trace(3, first=40)
    said = run_json(
        trace, "--dram", "1MiB", "--nvme", "0", "--block-bytes", BLOCK, "--access", access, env=environment(home)
    )
    assert said["requests"] == said["planned"]
    assert (said["wrong_blocks"], said["failures"]) == (0, [])
    assert said["node"]["evicted"] > 0


def test_what_left_dram_is_read_from_nvme(write_trace: WriteTrace, home: Path) -> None:
    trace = write_trace(6, talks=6, first=20, gap_ms=20)  # or a busy disk may have taken nothing when it is asked
    two_tiers = ("--dram", "4MiB", "--nvme", "64MiB", "--block-bytes", BLOCK)
    said = run_json(trace, *two_tiers, "--speed", "1x", env=environment(home))
    assert said["prefix_hits_nvme"] > 0
    assert said["bytes"]["dram_to_nvme"] > 0
    assert said["bytes"]["nvme_to_dram"] > 0
    assert (said["wrong_blocks"], said["failures"]) == (0, [])


def test_table_and_report_say_the_same(write_trace: WriteTrace, home: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    ended = run_cenote("replay", write_trace(4), *OWN_NODE, "--report", page, env=environment(home))
    assert ended.returncode == 0, ended.stderr
    assert "requests              16 of 16" in ended.stdout
    assert str(page) in ended.stdout
    html = page.read_text()
    assert html.count("<svg") == html.count("</svg>") == html.count("<details>") == 6
    assert "16 of 16" in html
    assert "offline bound" in html
    for outside in ("http:", "https:", "<script>", "src=", "@import"):
        assert outside not in html


def test_bad_lines_are_named_and_the_rest_runs(write_trace: WriteTrace, home: Path) -> None:
    trace = write_trace(5)
    trace.write_text("{broken\n" + trace.read_text() + '{"timestamp": 1, "input_length": 5}\n')
    ended = run_cenote("replay", trace, "--json", *OWN_NODE, env=environment(home))
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert (said["requests"], said["lines"], said["left_out"]) == (20, 22, 2)
    assert f"{trace}:1: this is no JSON" in ended.stderr
    assert f"{trace}:22: `hash_ids` is missing" in ended.stderr


def test_a_node_of_somebody_else_is_left_as_it_was(node: Node, write_trace: WriteTrace) -> None:
    said = run_json(write_trace(6), "--socket", node.socket, "--block-bytes", BLOCK)
    assert said["requests"] == 24
    until("the engines' sessions are gone", lambda: node.status()["sessions"] == [])
    assert stored_blocks(node.status()) == 0


# ---- it finds what is wrong


def test_a_wrong_byte_is_found(write_trace: WriteTrace, home: Path) -> None:
    ended = run_cenote(
        "replay", write_trace(8), "--json", *OWN_NODE, env=environment(home, CENOTE_REPLAY_TEST_CORRUPT="3")
    )
    assert ended.returncode == 1
    said = json.loads(ended.stdout)
    assert said["wrong_blocks"] > 0
    assert "wrong bytes" in ended.stderr
    assert "of the trace, from byte 32768 on" in ended.stderr


def test_a_killed_engine_is_named_and_the_others_finish(
    node: Node, write_trace: WriteTrace, start_replay: Callable[..., Running]
) -> None:
    trace = write_trace(6, gap_ms=100)
    replay = start_replay(trace, "--socket", node.socket, "--block-bytes", BLOCK, "--speed", "1x", "--engines", "3")
    until("the replay stores blocks", lambda: stored_blocks(node.status()) > 0)
    victim = replay.children("replay-engine")[1]
    os.kill(victim, signal.SIGKILL)
    said = replay.end(code=1)
    ends = said["engine_ends"]
    assert "engine 2 ended with signal 9" in replay.errors
    assert [each["orderly"] for each in ends] == [True, False, True]
    assert ends[0]["served"] == ends[0]["planned"]
    assert ends[2]["served"] == ends[2]["planned"]
    assert ends[1]["served"] < ends[1]["planned"]
    assert said["wrong_blocks"] == 0


def test_a_killed_worker_costs_nothing_but_time(
    node: Node, write_trace: WriteTrace, start_replay: Callable[..., Running]
) -> None:
    trace = write_trace(6, gap_ms=100)
    replay = start_replay(trace, "--socket", node.socket, "--block-bytes", BLOCK, "--speed", "1x")
    until("the replay stores blocks", lambda: stored_blocks(node.status()) > 0)
    node.worker_dies()
    said = replay.end(code=0)
    assert said["requests"] == said["planned"] == 24
    assert (said["wrong_blocks"], said["failed_requests"], said["node"]["restarts"]) == (0, 0, 1)
    assert said["prefix_hits"] > 0


def test_a_killed_node_ends_the_replay_and_leaves_nothing(
    write_trace: WriteTrace, home: Path, start_replay: Callable[..., Running]
) -> None:
    trace = write_trace(50, gap_ms=10_000)
    replay = start_replay(trace, *OWN_NODE, "--speed", "1x", env=environment(home))
    until("the replay stores blocks", lambda: stores_blocks(home))
    (keeper,) = replay.children("node")
    engines = replay.children("replay-engine")
    os.kill(keeper, signal.SIGKILL)
    said = replay.end(code=1)
    assert "the node ended with signal 9" in replay.errors
    assert said["requests"] < said["planned"]
    assert not any(map(is_alive, engines))


def test_an_interrupted_replay_tells_what_was_done(
    write_trace: WriteTrace, home: Path, start_replay: Callable[..., Running]
) -> None:
    trace = write_trace(50, gap_ms=10_000)
    replay = start_replay(trace, *OWN_NODE, "--speed", "1x", env=environment(home))
    until("the replay stores blocks", lambda: stores_blocks(home))
    replay.process.send_signal(signal.SIGINT)
    said = replay.end(code=130)
    assert said["interrupted"]
    assert said["requests"] < said["planned"]
    assert (said["wrong_blocks"], said["failures"]) == (0, [])
    assert said["simulated"]["prefix_hits"] <= said["blocks"], "what was not served is not simulated"


# ---- it refuses


def test_refusals_say_what_would_be_right(write_trace: WriteTrace, home: Path, tmp_path: Path) -> None:
    trace = write_trace(1)

    def refusal(*arguments: str | Path, code: int = 2) -> str:
        ended = run_cenote("replay", *arguments, env=environment(home))
        assert ended.returncode == code, ended.stderr
        return ended.stderr

    assert "--generate" in refusal()
    assert "either a trace or" in refusal(trace, "--generate", "chat")
    assert "20x" in refusal(trace, "--speed", "fast")
    assert "leave out --nvme 0" in refusal(trace, "--nvme", "0", "--nvme-path", "/tmp")
    assert "leave out --nvme 0" in refusal(trace, "--nvme", "0B", "--prefetch-wait", "2s")
    assert "leave out --engines 1" in refusal(trace, "--engines", "1", "--deal", "round-robin")
    assert "leave out --socket" in refusal(trace, "--socket", "/nowhere", "--dram", "1GiB")
    assert "leave out --socket" in refusal(trace, "--socket", "/nowhere", "--remote", "redis://there")
    assert "redis://" in refusal(trace, *OWN_NODE, "--remote", "http://there")
    assert "no-policy" in refusal(trace, *OWN_NODE, "--policy", "no-policy", code=1)
    assert "/nowhere" in refusal(trace, "--socket", "/nowhere", code=1)
    assert "missing/report.html" in refusal(trace, "--report", tmp_path / "missing" / "report.html", code=1)


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first requests of the conversation trace, with the partial tails that most of them have."""
    packed = Path(__file__).parents[1] / "data" / "traces" / "conversation.txt"
    path = tmp_path_factory.mktemp("conversations") / "trace.jsonl"
    lines = []
    for line in packed.read_text().splitlines()[:2_000]:
        time, tokens, ranges = line.split()
        ids: list[int] = []
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            ids.extend(range(int(first), int(last or first) + 1))
        lines.append({"timestamp": int(time), "input_length": int(tokens), "hash_ids": ids})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("policy", policies.of_requests())
def test_node_and_simulation_agree_for_each_policy(policy: str, conversations: Path, home: Path) -> None:
    said = run_json(
        conversations,
        *("--engines=1", "--speed=max", f"--policy={policy}", "--block-bytes=4KiB", "--dram=8000KiB", "--nvme=0"),
        *("--set=dram.grants_in_capacity=false", "--set=dram.high_water=1", "--set=dram.low_water=1"),
        env=environment(home),
    )
    assert said["node"]["evicted"] > 0
    assert said["simulated"]["dram_blocks"] == 2_000
    # A switch of `auto` comes some requests sooner or later, as its miniatures follow the room that others leave. One
    # that does not come may leave the node better off than the simulation, and must not leave it worse off.
    if policy == "auto":
        assert said["hit_ratio"] >= said["simulated"]["hit_ratio"] - 0.015
    else:
        # `tblru` counts tenths of a second, of which this replay has ten: where a request meets the next one differs.
        tolerance = 0.015 if policy == "tblru" else 0.005
        assert said["hit_ratio"] == pytest.approx(said["simulated"]["hit_ratio"], abs=tolerance)


def test_a_request_stores_and_looks_up_full_blocks_only(tmp_path: Path, home: Path) -> None:
    lines = [
        {"timestamp": 0, "input_length": 512 * 2 + 1, "hash_ids": [1, 2, 3]},
        {"timestamp": 0, "input_length": 511, "hash_ids": [4]},
        {"timestamp": 0, "input_length": 512 * 2 + 1, "hash_ids": [1, 2, 3]},
        {"timestamp": 0, "input_length": 512 * 3, "hash_ids": [1, 2, 5]},
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    said = run_json(trace, *OWN_NODE, "--engines=1", env=environment(home))
    assert said["requests"] == 4
    assert (said["blocks"], said["stored"], said["prefix_hits"]) == (7, 3, 4)
    assert (said["tokens"], said["prefix_tokens"]) == (512 * 7 + 2 + 511, 512 * 4)
    cut, kept = (
        run_json(trace, "--simulate", "--capacity-sweep=100", "--policies=lru", f"--tails={tails}")
        for tails in ("cut", "keep")
    )
    assert (cut["blocks"], cut["prefix_hits"], kept["blocks"], kept["prefix_hits"]) == (7, 4, 10, 5)


@pytest.mark.parametrize("capacity", [1_000, 4_000])
def test_lru_in_a_real_node_hits_what_the_simulation_does_block_for_block(home: Path, capacity: int) -> None:
    requests = ("--generate", "chat:requests=1200,seed=3")
    simulated = run_json(
        None, *requests, "--simulate", "--capacity-sweep", str(capacity), "--policies", "lru", "--order", "rev"
    )
    real = run_json(
        None,
        *requests,
        "--engines=1",
        "--speed=max",
        "--policy=lru",
        "--block-bytes=4KiB",
        f"--dram={capacity * 4}KiB",
        "--nvme=0",
        "--set=dram.grants_in_capacity=false",
        "--set=dram.high_water=1",
        "--set=dram.low_water=1",
        env=environment(home),
    )
    assert real["blocks"] == simulated["blocks"]
    assert real["prefix_hits"] == simulated["prefix_hits"] > 0
    assert real["prefix_tokens"] == simulated["prefix_tokens"]
    assert real["stored"] == simulated["inserts"]
    assert simulated["evictions"] > 0


# ---- over a remote tier


def hits_by_tier(said: dict[str, Any]) -> dict[str, int]:
    tiers = {name: said[f"prefix_hits_{name}"] for name in ("dram", "nvme", "remote")}
    assert sum(tiers.values()) == said["prefix_hits"]
    assert sum(said[f"prefix_tokens_{name}"] for name in tiers) == said["prefix_tokens"]
    return tiers


def test_each_hit_over_three_tiers_is_of_one_of_them(home: Path) -> None:
    redis = Redis()
    try:
        below = ("--dram", "16MiB", "--nvme", "64MiB", "--block-bytes", BLOCK, "--policy", "lru", "--remote", redis.url)
        run = ("--generate", "chat:requests=300", *below)
        said = run_json(None, *run, env=environment(home))
        tiers = hits_by_tier(said)
        assert tiers["dram"] > 0 and tiers["nvme"] > 0 and tiers["remote"] > 0
        assert said["wrong_blocks"] == 0 and said["bytes"]["nvme_to_dram"] > 0
        node = said["node"]
        lost = node["remote_not_put"] + node["remote_unreachable"] + node["demotions_dropped"]
        there = said["bytes"]["dram_to_remote"] // (64 * 1024)
        assert there + lost >= 0.9 * said["stored"]  # the last ones may be on their way
    finally:
        redis.close()


def test_a_replay_whose_server_is_killed_goes_on_without_it(home: Path, start_replay: Callable[..., Running]) -> None:
    redis = Redis()
    run = ("--generate", "chat:requests=300", "--speed", "100x", "--dram", "16MiB", "--nvme", "0")
    replay = start_replay(*run, "--block-bytes", BLOCK, "--remote", redis.url, env=environment(home))
    try:
        until("the server has blocks", lambda: redis.size() > 100)
        redis.kill()
        said = replay.end(0)
        assert said["requests"] == 300 and said["failed_requests"] == 0 and said["wrong_blocks"] == 0
        assert 0 < said["bytes"]["dram_to_remote"] < said["stored"] * 64 * 1024
        hits_by_tier(said)
    finally:
        redis.close()


def test_a_replay_does_not_begin_without_its_server(home: Path, tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/redis.sock"
    ended = run_cenote(
        "replay", "--generate", "chat:requests=5", *DRAM_ONLY, "--remote", nowhere, env=environment(home)
    )
    assert ended.returncode == 1
    assert "redis.sock" in ended.stderr and "does not answer" in ended.stderr


def test_nothing_of_a_replay_is_found_in_the_server_by_the_next_one(home: Path) -> None:
    redis = Redis()
    try:
        run = ("--generate", "loop:requests=40", *OWN_NODE, "--remote", redis.url)
        first, second = (run_json(None, *run, env=environment(home)) for _ in range(2))
        assert first["prefix_hits"] == second["prefix_hits"]
        assert second["stored"] == first["stored"] > 0
    finally:
        redis.close()
