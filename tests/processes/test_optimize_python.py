"""`cenote.optimize`: the answers of the commands as plain objects, and errors as exceptions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cenote import errors, optimize
from conftest import StartNode
from lru_model import TRACES
from node import BINARY, run_cenote
from test_optimize_schema import complaints, schema_of

LOG = TRACES / "mooncake.jsonl"
PRICE = {"replica": "98/h", "dram": "0.004/GiB/h"}
TIERS = ["dram:0.5ms:20GB/s", "nvme:2ms:3GB/s"]


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CENOTE_BINARY", str(BINARY))


def test_a_curve_is_the_object_of_the_command() -> None:
    found = optimize.curve(LOG, policies=["lru", "arc"], capacities=[10, "1k"], by_instance=False)
    options = ("--policies", "lru,arc", "--capacities", "10,1k", "--json")
    assert found == json.loads(run_cenote("optimize", "curve", LOG, *options).stdout)
    assert [each["policy"] for each in found["curves"]] == ["lru", "arc"]


def test_a_plan_takes_lists_and_names_as_python_has_them() -> None:
    found = optimize.plan(
        LOG,
        model="llama-3-8b",
        gpu="h100",
        tier=TIERS,
        capacities={"dram": 20, "nvme": 100},
        price=PRICE | {"nvme": "0.0001/GiB/h"},
        slo=["ttft_p90=100s", "ttft_p99=200s"],
    )
    assert {each["capacity"]["dram"] for each in found["candidates"]} == {0, 20}
    assert found["best"]["replicas"] >= 1


def test_each_command_has_a_function() -> None:
    assert optimize.model("llama-3-8b", gpu="h100", tier=TIERS)["bytes_per_token"] == 131_072
    assert optimize.analyze(LOG, top=1)["tree"]["nodes"] > 0
    engine = {"prefill": "8000@4096", "bytes_per_token": 131_072}
    assert optimize.cost(LOG, tier=TIERS[:1], capacities=[10], **engine)["points"]
    assert optimize.rank(LOG, TRACES / "bailian.jsonl", tier=TIERS[:1], **engine)


def test_advice_of_a_running_node_is_the_object_of_the_command(start_node: StartNode) -> None:
    node = start_node("dram.policy=auto", capacity="16MiB")
    assert run_cenote("replay", LOG, "--socket", node.socket, "--block-bytes", "4KiB", "--engines", "1").returncode == 0
    found = optimize.advise(node.socket)
    assert found == json.loads(run_cenote("optimize", "advise", "--json", "--socket", node.socket).stdout)
    assert complaints(found, schema_of("advise"), {}) == []
    (group,) = found["groups"]
    assert group["requests"] > 0 and group["points"]
    with pytest.raises(optimize.OptimizeError):
        optimize.advise(node.folder / "nobody.sock")


def test_what_the_command_refuses_is_an_invalid_argument() -> None:
    with pytest.raises(errors.InvalidArgument, match="nosuch"):
        optimize.curve(LOG, policies="nosuch")
    with pytest.raises(errors.InvalidArgument, match="--nosuch"):
        optimize.curve(LOG, nosuch=1)


def test_a_trace_that_cannot_be_read_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(optimize.OptimizeError, match=r"gone\.jsonl") as caught:
        optimize.curve(tmp_path / "gone.jsonl")
    assert caught.value.answer is None


def test_a_level_that_nothing_keeps_is_an_error_with_the_object() -> None:
    with pytest.raises(optimize.OptimizeError, match="ttft_p90") as caught:
        optimize.plan(LOG, model="llama-3-8b", gpu="h100", tier=TIERS[:1], slo="ttft_p90=1us", price=PRICE)
    assert caught.value.answer is not None
    assert caught.value.answer["best"] is None


def test_a_name_that_begins_with_a_dash_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "--json.jsonl").write_bytes(LOG.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert optimize.curve("--json.jsonl") == optimize.curve(LOG)


def test_no_answer_in_time_is_said_and_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CENOTE_BINARY", str(slow))
    with pytest.raises(errors.DeadlineExceeded, match="no answer within"):
        optimize.curve(LOG, timeout=0.1)


def test_a_program_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CENOTE_BINARY", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        optimize.curve(LOG)
