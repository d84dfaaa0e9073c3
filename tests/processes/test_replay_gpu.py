"""`cenote replay --gpu`: four tiers in one table, the device being the simulated one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wire
from node import BINARY, LIMIT, node_environment, processes_naming, run_cenote, until
from redis import Redis

BLOCK = 4096
CHAT = ("--generate", "chat:seed=5", "--limit", "400", "--block-bytes", "4KiB")
TIERS = ("--gpu", "sim:1MiB", "--dram", "2MiB", "--nvme", "64MiB")


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Where a replay's own node makes its directories; nothing may be left there."""
    with tempfile.TemporaryDirectory(prefix="cr-") as place:
        yield Path(place)
        assert list(Path(place).iterdir()) == []
        until("no process of the replay is left", lambda: not processes_naming(f"runtime_dir={place}/"))


def run(home: Path, *arguments: str | Path, code: int = 0, **more: str) -> str:
    env = node_environment() | {"TMPDIR": str(home)} | more
    ended = run_cenote("replay", *arguments, env=env)
    assert ended.returncode == code, ended.stderr
    return ended.stdout if code == 0 else ended.stdout + ended.stderr


def run_json(home: Path, *arguments: str | Path) -> dict[str, Any]:
    return dict(json.loads(run(home, *arguments, "--json")))


def check_sums(said: dict[str, Any], block: int = BLOCK) -> None:
    """Each block of each request is a hit of one tier, or was computed and handed over."""
    assert (said["wrong_blocks"], said["failed_requests"], said["failures"]) == (0, 0, [])
    assert said["requests"] == said["planned"]
    hits = [said[f"prefix_hits_{tier}"] for tier in ("gpu", "dram", "nvme", "remote")]
    assert sum(hits) == said["prefix_hits"]
    assert said["prefix_hits"] + said["misses"] == said["blocks"]
    assert said["stored"] + said["present"] + said["refused"] == said["misses"]
    tokens = [said[f"prefix_tokens_{tier}"] for tier in ("gpu", "dram", "nvme", "remote")]
    assert sum(tokens) == said["prefix_tokens"] == 512 * said["prefix_hits"]
    assert said["verified_bytes"] == said["bytes"]["gpu_to_engines"] == said["prefix_hits"] * block
    assert said["bytes"]["engines_to_gpu"] == said["stored"] * block


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page") / "one.html"


@pytest.fixture(scope="module")
def outcome(home: Path, page: Path) -> dict[str, Any]:
    paced = ("--speed", "60x")  # or a busy disk may have taken nothing when it is asked
    return run_json(home, *CHAT, *TIERS, *paced, "--prefill-rate", "5000", "--report", page)


def test_hits_of_four_tiers_and_misses_are_the_blocks_of_all_requests(outcome: dict[str, Any]) -> None:
    check_sums(outcome)
    for tier in ("gpu", "dram", "nvme"):
        assert outcome[f"prefix_hits_{tier}"] > 0, tier
    assert outcome["node"]["gpu"] == "sim:0"
    assert outcome["node"]["gpu_capacity"] == 1 << 20
    assert outcome["node"]["gpu_evicted"] > 0
    assert outcome["bytes"]["gpu_to_dram"] > 0
    assert outcome["bytes"]["dram_to_gpu"] > 0
    last = outcome["timeline"][-1]
    assert last["hit_tokens_gpu"] == outcome["prefix_tokens_gpu"]
    assert last["hit_tokens_dram"] == outcome["prefix_tokens_dram"]


def test_the_device_is_a_tier_of_the_simulation_too(outcome: dict[str, Any]) -> None:
    simulated = outcome["simulated"]
    assert simulated["gpu_blocks"] == (1 << 20) // BLOCK
    assert len(simulated["by_tier"]) == 3
    assert sum(simulated["by_tier"]) == pytest.approx(simulated["hit_ratio"])
    on_device = outcome["prefix_tokens_gpu"] / outcome["tokens"]
    assert on_device == pytest.approx(simulated["by_tier"][0], abs=0.15)  # a busy machine brings up less


def test_the_page_has_the_device_first(outcome: dict[str, Any], page: Path) -> None:
    text = page.read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found and json.loads(found.group(1)) == outcome
    table = text[text.index("<h2>Tiers</h2>") :]
    rows = re.findall(r"<tr><td>(GPU|DRAM|NVMe|remote)</td>", table)
    assert rows == ["GPU", "DRAM", "NVMe"]
    for series in ("GPU and DRAM", "GPU, DRAM and NVMe", "DRAM to GPU", "with the hits in GPU alone"):
        assert series in text, series


def test_a_remote_tier_is_the_fourth_one(home: Path) -> None:
    sizes = ("--block-bytes", "64KiB", "--gpu", "sim:16MiB", "--dram", "32MiB", "--nvme", "64MiB")
    server = Redis()
    try:
        said = run_json(home, *CHAT[:4], *sizes, "--speed", "60x", "--remote", server.url)
    finally:
        server.close()
    check_sums(said, 64 << 10)
    for tier in ("gpu", "dram", "nvme", "remote"):
        assert said[f"prefix_hits_{tier}"] > 0, tier
    assert said["bytes"]["remote_to_dram"] > 0
    assert len(said["simulated"]["by_tier"]) == 4


@pytest.mark.parametrize("engines", ["1", "3"])
def test_sums_hold_with_dram_alone_below(engines: str, home: Path) -> None:
    said = run_json(home, *CHAT, "--gpu", "sim:0:1MiB", "--dram", "16MiB", "--nvme", "0", "--engines", engines)
    check_sums(said)
    assert said["prefix_hits_gpu"] > 0 and said["prefix_hits_dram"] > 0
    assert said["prefix_hits_nvme"] == said["prefix_hits_remote"] == 0


def test_sums_hold_with_requests_side_by_side(home: Path) -> None:
    check_sums(run_json(home, *CHAT, *TIERS, "--engines", "2", "--concurrency", "4", "--deal", "round-robin"))


def test_all_is_on_a_device_that_is_large_enough(home: Path) -> None:
    said = run_json(home, *CHAT, "--gpu", "sim:64MiB", "--dram", "64MiB", "--nvme", "0", "--engines", "1")
    check_sums(said)
    assert said["prefix_hits_gpu"] == said["prefix_hits"]
    ended = run_cenote("replay", *CHAT[:4], "--simulate", "--json", "--capacity-sweep", "1M", "--policies", "lru")
    assert said["prefix_hits"] == json.loads(ended.stdout)["prefix_hits"]


def test_the_table_has_the_device_first(home: Path) -> None:
    text = run(home, *CHAT, *TIERS)
    assert re.search(r"hit ratio +[\d.]+ % of the tokens \(\d+ from the GPU, \d+ from DRAM, \d+ from NVMe\)", text)
    assert re.search(r"blocks by tier +\d+ GPU \+ \d+ DRAM \+ \d+ NVMe \+ \d+ computed", text)
    assert re.search(r"tiers +sim:0 1\.0 MiB, policy auto; DRAM 2\.0 MiB, policy auto; NVMe ", text)
    assert "GPU to engines" in text and "DRAM to GPU" in text and "DRAM to engines" not in text


def test_without_a_device_nothing_is_said_of_one(home: Path) -> None:
    tiers = ("--dram", "4MiB", "--nvme", "0", "--limit", "20")
    said = run_json(home, *CHAT[:2], *CHAT[4:], *tiers)
    assert "gpu" not in json.dumps({name: each for name, each in said.items() if name != "from"})
    assert "misses" not in said
    assert "GPU" not in run(home, *CHAT[:2], *CHAT[4:], *tiers)


def test_replays_with_and_without_a_device_are_compared(outcome: dict[str, Any], home: Path, tmp_path: Path) -> None:
    paths = []
    for name, said in (("gpu", outcome), ("host", run_json(home, *CHAT, "--dram", "4MiB", "--nvme", "0"))):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(said))
    rows = run(home, "compare", *paths)
    assert re.search(r"^of it on the GPU +[\d.]+ % +0\.00 %", rows, re.MULTILINE)
    assert "GPU" not in run(home, "compare", paths[1], paths[1])


def test_wrong_bytes_on_a_device_are_found(home: Path) -> None:
    text = run(home, *CHAT, *TIERS, "--engines", "1", code=1, CENOTE_REPLAY_TEST_CORRUPT="50")
    assert "were read with wrong bytes" in text


def served_by(home: Path) -> dict[str, Any] | None:
    """The status of the node that lives in `home`, once blocks were stored there."""
    for each in home.glob("*/cenote.sock"):
        with contextlib.suppress(OSError):  # it does not listen yet
            status = dict(wire.ask_node(each, "status"))
            if any(device.get("commits", 0) > 0 for device in status["gpu"]["devices"]):
                return status
    return None


def test_a_killed_worker_costs_nothing_but_time(home: Path) -> None:
    running = subprocess.Popen(
        [str(BINARY), "replay", *CHAT, *TIERS, "--speed", "60x", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=node_environment() | {"TMPDIR": str(home)},
    )
    try:
        until("the replay stores blocks", lambda: served_by(home) is not None)
        status = served_by(home)
        assert status
        os.kill(status["node"]["worker_pid"], signal.SIGKILL)
        out, errors = running.communicate(timeout=LIMIT)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0, errors
    said = json.loads(out)
    check_sums(said)
    assert said["node"]["restarts"] == 1


def test_a_device_that_fails_ends_its_engines_and_no_byte_is_wrong(home: Path) -> None:
    text = run(home, *CHAT, "--gpu", "sim:0,fail=100:1MiB", *TIERS[2:], code=1)
    assert re.search(r"engine 1 ended with exit status 1 .*the device of this session failed", text)
    assert ", 0 wrong blocks" in text


def test_a_device_that_does_not_open_is_said_at_once(home: Path) -> None:
    text = run(home, *CHAT, "--gpu", "GPU-99:1MiB", "--dram", "4MiB", "--nvme", "0", code=1)
    assert "the tier of cuda:GPU-99 is not ready: away" in text


def test_refusals_say_what_would_be_right(home: Path) -> None:
    def refusal(*arguments: str) -> str:
        return run(home, *CHAT, *arguments, code=2)

    assert "sim:1GiB and GPU-UUID:8GiB" in refusal("--gpu", "1GiB")
    assert "sim:NUMBER" in refusal("--gpu", "tpu:1GiB")
    assert "--gpu" in refusal("--gpu", "sim:much")
    assert "holds no block of 4KiB" in refusal("--gpu", "sim:1KiB")
    assert "leave out --nodes" in refusal("--gpu", "sim:1MiB", "--nodes", "2")
    assert "leave out --gpu" in refusal("--gpu", "sim:1MiB", "--access", "in-place")
    assert "leave out --socket" in refusal("--gpu", "sim:1MiB", "--socket", "/nowhere")
    assert "leave out --simulate" in refusal("--gpu", "sim:1MiB", "--simulate", "--capacity-sweep", "1k")
    assert "it stands first" in refusal("--simulate", "--tiers", "dram=10,gpu=10")


def test_four_tiers_are_simulated(home: Path) -> None:
    tiers = ("--tiers", "gpu=100,dram=300,nvme=1000,remote=1M", "--order", "rev", "--policies", "lru")
    said = run_json(home, *CHAT[:4], "--simulate", *tiers)
    ingest = {name: each["ingest"] for name, each in said["lower"].items()}
    assert ingest == {"dram": "all", "nvme": "evicted", "remote": "all"}
    parts = [said["upper_tokens"], *(each["prefix_tokens"] for each in said["lower"].values())]
    assert sum(parts) == said["prefix_tokens"]
    assert all(part > 0 for part in parts)
