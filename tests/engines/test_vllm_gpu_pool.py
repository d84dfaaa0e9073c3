"""vLLM's own code with blocks on its device: the right tokens, and from there, whatever becomes of the device."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import StartEngine, StartNode
from node import FULL, Node, run_cenote, until
from tiny_models import prompt
from vllm_engine import Engine, connector, environment

BLOCK = 32  # tokens; the tiny Llama has 128 KiB of KV for them
SHARED = prompt(300, 1)
PROMPTS = [SHARED, SHARED[:200] + prompt(80, 2), SHARED + prompt(100, 3), prompt(320, 4), prompt(20, 6)]
LOST = "lost the blocks on sim:0, running on with DRAM"
WHOLE = [(len(each) - 1) // BLOCK * BLOCK for each in PROMPTS]  # tokens that may be found


def gpu(devices: str = "sim:0", capacity: str = "32MiB") -> tuple[str, ...]:
    return (f'gpu.devices=["{devices}"]', f"gpu.capacity={capacity}", "debug.enabled=true")


def with_pool(node: Node, **more: Any) -> dict[str, Any]:
    return connector(node.socket, **{"device": "sim:0", "gpu_pool": True, **more})


def on_devices(node: Node) -> list[dict[str, Any]]:
    return list(node.status()["gpu"]["devices"])


def on_device(node: Node) -> dict[str, Any]:
    (found,) = on_devices(node)
    return found


def until_ready(node: Node) -> None:
    until("the device's tier is ready", lambda: on_device(node)["state"] == "ready")


@pytest.fixture(scope="module")
def expected(vllm_python: str, llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[list[int]]]:
    """What an engine without connector says."""
    engine = Engine(vllm_python, llama, tmp_path_factory.mktemp("reference") / "engine.log")
    yield engine.tokens(PROMPTS)
    engine.stop()


def check_warm(engine: Engine, expected: list[list[int]]) -> None:
    """Each prompt is found as far as it can be, and continued right."""
    for each, right, found in zip(PROMPTS, expected, WHOLE, strict=True):
        assert engine.call("forget")
        (answer,) = engine.generate([each])
        assert (answer["tokens"], answer["cached"]) == (right, found)


def loaded(engine: Engine) -> tuple[float, float]:
    """Blocks that were loaded, and those of them that lay on the device."""
    metrics = engine.metrics()
    return metrics.get("cenote_blocks_loaded", 0), metrics.get("cenote_blocks_loaded_from_device", 0)


def test_a_fresh_engine_takes_its_prompts_from_the_device_also_when_the_worker_was_killed(
    start_node: StartNode, start_engine: StartEngine, llama: Path, expected: list[list[int]]
) -> None:
    node = start_node(*gpu())
    until_ready(node)
    cold = start_engine(llama, kv_transfer_config=with_pool(node))
    assert cold.tokens(PROMPTS) == expected
    metrics = cold.metrics()
    assert metrics["cenote_blocks_stored_on_device"] == metrics["cenote_blocks_stored"] > 0
    cold.stop()
    until("DRAM has them, too", lambda: node.blocks()["present"] == metrics["cenote_blocks_stored"])

    warm = start_engine(llama, kv_transfer_config=with_pool(node))
    check_warm(warm, expected)
    every, near = loaded(warm)
    assert every == near == sum(WHOLE) / BLOCK
    node.worker_dies()
    until_ready(node)
    check_warm(warm, expected)
    assert loaded(warm)[1] > near, "the device's blocks are used again"
    near, refused = loaded(warm)[1], prompt(300, 8)
    warm.call("refuse_copies", refuses=True)
    assert warm.call("forget")
    (answer,) = warm.generate(PROMPTS[:1])
    assert (answer["tokens"], answer["cached"]) == (expected[0], WHOLE[0]), "DRAM has it, too"
    warm.call("refuse_copies", refuses=True)  # at once, not after a while
    (computed,) = warm.generate([refused])
    assert (loaded(warm)[1], warm.metrics()["cenote_copies_refused"]) == (near, 2)
    warm.call("refuse_copies", refuses=False)
    for found in (0, 288):  # it was not stored, and is now
        assert warm.call("forget")
        (answer,) = warm.generate([refused])
        assert (answer["tokens"], answer["cached"]) == (computed["tokens"], found)
    assert loaded(warm)[1] == near + 9, "the device is used again"
    # with the device's bytes altered other tokens come, though DRAM has the right ones: those above were the device's
    assert warm.call("alter_device") > 0
    assert warm.call("forget")
    assert warm.tokens(PROMPTS[:1]) != expected[:1]
    done = run_cenote("clear", "--all", "--socket", node.socket)
    assert done.returncode == 0, done.stderr
    assert warm.call("forget")
    (answer,) = warm.generate(PROMPTS[:1])
    assert (answer["tokens"], answer["cached"]) == (expected[0], 0)


def test_a_device_that_fails_in_the_node_costs_no_token_and_dram_serves(
    start_node: StartNode, start_engine: StartEngine, llama: Path, expected: list[list[int]]
) -> None:
    node = start_node(*gpu("sim:0,fail=3"))
    node.allowed_errors.append("a device failed")
    until_ready(node)
    engine = start_engine(llama, kv_transfer_config=with_pool(node))
    assert engine.tokens(PROMPTS) == expected
    until("the device is away", lambda: on_device(node)["state"] == "away")
    until("the engine noticed", lambda: LOST in engine.log_text())
    assert engine.call("forget")
    # What the device was writing to DRAM stays set aside there. All else is stored in DRAM now, and found there.
    assert engine.tokens(PROMPTS) == expected
    _, near = loaded(engine)
    another = prompt(300, 7)
    (computed,) = engine.generate([another])
    assert computed["cached"] == 0
    for each, right in ((another, computed["tokens"]), *zip(PROMPTS, expected, strict=True)):
        assert engine.call("forget")
        (answer,) = engine.generate([each])
        assert answer["tokens"] == right
        assert each is not another or answer["cached"] == 288
    every, still = loaded(engine)
    assert every >= still + 9 and still == near
    assert engine.log_text().count(LOST) == 1
    engine.stop()


def test_a_device_that_fails_in_the_engine_costs_no_token(
    start_node: StartNode, start_engine: StartEngine, llama: Path, expected: list[list[int]]
) -> None:
    node = start_node(*gpu())
    until_ready(node)
    engine = start_engine(llama, kv_transfer_config=with_pool(node, device="sim:0,fail=9"))
    for _ in range(2):
        assert engine.tokens(PROMPTS) == expected
        assert engine.call("forget")
    assert engine.log_text().count("the device's blocks are not used any more, DRAM has to do") == 1
    assert on_device(node)["state"] == "ready", "what fails in an engine is that engine's"


@pytest.mark.skipif(not FULL, reason="with CENOTE_TEST_FULL=1: two ranks take half a minute")
@pytest.mark.parametrize(("ingest", "devices"), [("all", 1), ("none", 1), ("all", 2)])
def test_each_of_two_ranks_keeps_its_part_on_its_device(
    start_node: StartNode,
    start_engine: StartEngine,
    llama: Path,
    monkeypatch: pytest.MonkeyPatch,
    ingest: str,
    devices: int,
) -> None:
    monkeypatch.delenv("CENOTE_TEST_DEVICE", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    node = start_node(*gpu('sim:0","sim:1' if devices == 2 else "sim:0"), f"gpu.ingest={ingest}")
    until("the devices' tiers are ready", lambda: all(each["state"] == "ready" for each in on_devices(node)))
    own = {"gpu_pool": True, "module": "vllm_own_devices"}  # each rank on one, and none is named
    engine = start_engine(
        llama,
        kv_transfer_config=connector(node.socket, **own) if devices == 2 else with_pool(node),
        tensor_parallel_size=2,
        distributed_executor_backend="mp",
    )
    (computed,) = engine.generate([SHARED], 6)  # rounded otherwise than by one rank
    if ingest == "none":  # nothing is offered, and what the devices have already is stored in DRAM, too
        assert engine.call("forget")
        (answer,) = engine.generate([SHARED], 6)
        assert (answer["tokens"], answer["cached"]) == (computed["tokens"], 0)
    until("DRAM has whole blocks", lambda: node.blocks()["present"] >= 9)
    assert engine.call("forget")
    (answer,) = engine.generate([SHARED], 6)
    assert (answer["tokens"], answer["cached"]) == (computed["tokens"], 288)
    assert loaded(engine) == (18, 18)  # of each rank
    assert [each["commits"] for each in on_devices(node)] == [18 // devices] * devices
    assert engine.call("alter_device") >= 18
    assert engine.call("forget")
    (answer,) = engine.generate([SHARED], 6)
    assert answer["tokens"] != computed["tokens"]


def test_an_option_that_cannot_be_used_is_refused_with_a_sentence(vllm_python: str) -> None:
    check = """
import cenote
from cenote._vllm.settings import Settings
assert Settings.read({"gpu_pool": True}).gpu_pool
try:
    Settings.read({"gpu_pool": 1, "device": "sim:0"})
except cenote.InvalidArgument as why:
    print(why)
"""
    done = subprocess.run([vllm_python, "-c", check], env=environment(), check=True, capture_output=True, text=True)
    assert "`gpu_pool` is 1; want bool" in done.stdout.splitlines()[-1]
