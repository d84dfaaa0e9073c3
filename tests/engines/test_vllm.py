"""vLLM's own code on a real node: the right tokens, from the node's blocks, whatever goes wrong."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import StartEngine, StartNode
from node import Node, run_cenote, until
from redis import Redis
from tiny_models import prompt
from vllm_engine import Engine, connector

BLOCK = 32  # tokens; the tiny Llama has 128 KiB of KV for them
SHARED = prompt(300, 1)
PROMPTS = {
    "exact": SHARED,
    "shared prefix": SHARED[:200] + prompt(80, 2),
    "longer": SHARED + prompt(100, 3),
    "a block and no token more": prompt(320, 4),
    "another": prompt(150, 5),
    "shorter than a block": prompt(20, 6),
}


def full_blocks(tokens: int) -> int:
    """Tokens that a request may find: whole blocks, and not the last token."""
    return (tokens - 1) // BLOCK * BLOCK


def corrupt(node: Node) -> None:
    done = run_cenote("debug", "corrupt", "--all", "--socket", node.socket)
    assert done.returncode == 0, done.stderr


def clear(node: Node) -> None:
    done = run_cenote("clear", "--all", "--socket", node.socket)
    assert done.returncode == 0, done.stderr


def disk(folder: Path) -> tuple[str, ...]:
    """The settings of a small NVMe tier below `folder`."""
    return (f"nvme.paths=[{folder / 'store'}]", "nvme.capacity=64MiB", "nvme.engine=threads")


def stored(node: Node, blocks: int) -> None:
    """Waits until the node holds at least this many blocks."""
    until(f"{blocks} blocks are stored", lambda: node.blocks()["present"] >= blocks)


@pytest.fixture(scope="module")
def reference(vllm_python: str, llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine without connector: what it says is right."""
    engine = Engine(vllm_python, llama, tmp_path_factory.mktemp("reference") / "engine.log")
    yield engine
    engine.stop()


def test_a_fresh_process_takes_prompts_and_continuations_from_the_node_and_says_the_same(
    node: Node, reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    prompts = list(PROMPTS.values())
    cold = start_engine(llama, kv_transfer_config=connector(node.socket), fresh=True)
    expected = reference.tokens(prompts, 48)
    assert cold.tokens(prompts, 48) == expected
    assert cold.metrics()["cenote_blocks_stored"] > 0
    cold.stop()  # also what is on its way is stored then

    warm = start_engine(llama, kv_transfer_config=connector(node.socket), fresh=True)
    for number, (name, each) in enumerate(PROMPTS.items()):
        (answer,) = warm.generate([each], 48)
        assert answer["tokens"] == expected[number], name
        assert answer["cached"] == full_blocks(len(each)), name
    # what was generated is found as well: 300 + 48 tokens make 10 blocks
    continued = SHARED + expected[0]
    assert warm.call("forget")
    (answer,) = warm.generate([continued], 16)
    assert answer["cached"] == full_blocks(len(continued))
    assert [answer["tokens"]] == reference.tokens([continued], 16)

    # with every stored byte altered other tokens come: the right ones above came out of these bytes
    assert warm.call("forget")
    corrupt(node)
    (answer,) = warm.generate([SHARED], 48)
    assert answer["cached"] == full_blocks(len(SHARED))
    assert answer["tokens"] != expected[0]
    # and without them, the right ones again
    clear(node)
    assert warm.call("forget")
    (answer,) = warm.generate([SHARED], 48)
    assert (answer["tokens"], answer["cached"]) == (expected[0], 0)
    assert warm.metrics()["external_prefix_cache_hits"] > 0


def test_a_device_loads_and_saves_layer_by_layer_and_what_it_cannot_load_is_computed(
    node: Node, reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    prompts = list(PROMPTS.values())
    expected = reference.tokens(prompts, 16)
    cold = start_engine(llama, kv_transfer_config=connector(node.socket, device="sim:0"))
    assert cold.tokens(prompts, 16) == expected
    assert "sim:0 copies KV, layer by layer, while the step is computed" in cold.log_text()
    cold.stop()

    warm = start_engine(llama, kv_transfer_config=connector(node.socket))  # what a device stored, the processor reads
    for number, (name, each) in enumerate(PROMPTS.items()):
        (answer,) = warm.generate([each], 16)
        assert (answer["tokens"], answer["cached"]) == (expected[number], full_blocks(len(each))), name
    warm.stop()

    some = connector(node.socket, device="sim:0", debug_fail_loads_from_block=2)
    failing = start_engine(llama, kv_transfer_config=some)
    tail = SHARED[:200] + prompt(120, 9)  # behind what is stored: computed from blocks that were not loaded, at first
    assert failing.tokens([*prompts, tail], 16) == [*expected, *reference.tokens([tail], 16)]
    assert failing.metrics()["cenote_blocks_failed"] > 0
    reader = start_engine(llama, kv_transfer_config=connector(node.socket))
    assert reader.tokens([tail], 16) == reference.tokens([tail], 16)
    reader.stop()
    # with every byte altered other tokens come: the two blocks that were loaded are used
    assert failing.call("forget")
    corrupt(node)
    (answer,) = failing.generate([SHARED], 16)
    assert answer["tokens"] != expected[0]


def test_a_device_that_fails_costs_the_cache_and_no_token(
    node: Node, reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    prompts = list(PROMPTS.values())
    expected = reference.tokens(prompts, 16)
    writer = start_engine(llama, kv_transfer_config=connector(node.socket, device="sim:0,fail=9"))  # while it saves
    for each, right in zip(prompts, expected, strict=True):
        assert writer.tokens([each], 16) == [right]
    assert "the device failed, and this engine goes on without its cache" in writer.log_text()
    writer.stop()
    assert start_engine(llama, kv_transfer_config=connector(node.socket)).tokens(prompts, 16) == expected
    loader = start_engine(llama, kv_transfer_config=connector(node.socket, device="sim:0,fail=7"))  # while it loads
    for each, right in zip(prompts, expected, strict=True):
        assert loader.tokens([each], 16) == [right]
    assert "the device failed, and this engine goes on without its cache" in loader.log_text()


def test_an_engine_of_another_place_and_purpose_finds_the_same_blocks(
    node: Node, llama: Path, start_engine: StartEngine, tmp_path: Path
) -> None:
    """Another path to the same weights, other processes, sizes, scheduling, home and role: what is known of an engine
    only when it runs must not tell them apart either."""
    writer = start_engine(llama, kv_transfer_config=connector(node.socket))
    (computed,) = writer.generate([SHARED], 16)
    assert computed["cached"] == 0
    stored(node, full_blocks(300) // BLOCK)
    elsewhere = shutil.copytree(llama, tmp_path / "another name")
    reader = start_engine(
        elsewhere,
        kv_transfer_config={**connector(node.socket), "kv_role": "kv_consumer"},
        environ={"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "c")},
        kv_cache_memory_bytes=32 << 20,
        max_num_seqs=3,
        max_num_batched_tokens=512,
        max_model_len=1024,
        seed=5,
    )
    (answer,) = reader.generate([SHARED], 16)
    assert (answer["tokens"], answer["cached"]) == (computed["tokens"], full_blocks(300))
    assert len(node.status()["instances"]) == 1


def test_a_salt_separates_tenants(node: Node, reference: Engine, llama: Path, start_engine: StartEngine) -> None:
    engine = start_engine(llama, kv_transfer_config=connector(node.socket))
    expected = reference.tokens([SHARED], 8)
    asked = [("one", 0), ("one", full_blocks(300)), ("two", 0), (None, 0), ("two", full_blocks(300))]
    for salt, cached in asked:
        assert engine.call("forget")
        (answer,) = engine.generate([SHARED], 8, salts=[salt])
        assert (answer["cached"], [answer["tokens"]]) == (cached, expected), salt
        stored(node, full_blocks(300) // BLOCK)


def test_a_load_that_fails_is_computed_again_or_ends_the_request_as_the_policy_says(
    node: Node, reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    def engine(policy: str, first: int) -> Engine:
        settings = connector(node.socket, policy=policy, debug_fail_loads_from_block=first)
        return start_engine(llama, kv_transfer_config=settings)

    half_way, at_once, strict = engine("recompute", 4), engine("recompute", 0), engine("fail", 4)
    expected = reference.tokens([SHARED], 24)
    assert half_way.tokens([SHARED], 24) == expected
    stored(node, full_blocks(300) // BLOCK)
    for each, cached in ((half_way, 4 * BLOCK), (at_once, 0)):
        assert each.call("forget")
        # twice at once: the second one waits for the first one's load
        for answer in each.generate([SHARED, SHARED], 24):
            assert [answer["tokens"]] == expected
        metrics = each.metrics()
        assert metrics["cenote_blocks_loaded"] == cached // BLOCK
        assert metrics["cenote_blocks_failed"] == full_blocks(300) // BLOCK - cached // BLOCK
    (answer,) = strict.generate([SHARED], 24)
    assert answer["reason"] == "error"
    assert strict.tokens([prompt(100, 7)], 8) == reference.tokens([prompt(100, 7)], 8)  # it lives


def test_a_node_may_come_die_and_return_while_the_engine_runs(
    start_node: StartNode, reference: Engine, llama: Path, start_engine: StartEngine, tmp_path: Path
) -> None:
    first = prompt(300, 11)
    expected = reference.tokens([first], 100)
    engine = start_engine(llama, kv_transfer_config=connector(tmp_path / "run0" / "cenote.sock"))
    assert engine.tokens([first], 100) == expected
    assert engine.log_text().count("no node, running on without it") == 1

    def hits_again(node: Node) -> None:
        """What is stored from now on is found."""

        def hit() -> bool:
            assert engine.tokens([first], 8) == [expected[0][:8]]
            if not engine.call("forget"):  # blocks are still being stored, and the engine steps no more
                return False
            (answer,) = engine.generate([first], 8)
            assert answer["tokens"] == expected[0][:8]
            return bool(engine.call("forget") and answer["cached"] == full_blocks(300))

        until("blocks are taken from the node", hit)

    node = start_node()
    hits_again(node)
    # the worker dies in the middle of a generation, and its successor has the same blocks
    engine.start_call("generate", prompts=[first], tokens=100)
    node.worker_dies()
    (answer,) = engine.finish_call()
    assert answer["tokens"] == expected[0]
    hits_again(node)
    # all of the node dies, and an empty one comes
    engine.start_call("generate", prompts=[first], tokens=100)
    node.send_signal(signal.SIGKILL)
    (answer,) = engine.finish_call()
    assert answer["tokens"] == expected[0]
    node.kill_everything()
    assert engine.tokens([first], 8) == [expected[0][:8]]
    node.start()
    hits_again(node)
    # it hangs
    assert engine.call("forget")
    with node.worker_stopped():
        for seed in (12, 13):
            assert engine.tokens([prompt(300, seed)], 8) == reference.tokens([prompt(300, seed)], 8)
    hits_again(node)


def test_blocks_that_are_evicted_while_requests_want_them_are_computed_again(
    start_node: StartNode, reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    node = start_node(capacity="6MiB")  # 48 blocks, for 8 prompts of 10 to 15
    engine = start_engine(llama, kv_transfer_config=connector(node.socket))
    prompts = [prompt(300, seed) + prompt(100, seed) for seed in range(20, 28)]
    expected = reference.tokens(prompts, 12)
    for turn in range(4):
        order = random.Random(turn).sample(range(8), 8)
        for pair in (order[i : i + 2] for i in range(0, 8, 2)):  # more at once would leave nothing to evict
            assert engine.tokens([prompts[i] for i in pair], 12) == [expected[i] for i in pair], f"turn {turn}"
        assert engine.call("forget")
    metrics = engine.metrics()
    assert metrics["cenote_blocks_loaded"] > 0
    assert node.counter("evicted") + node.status()["dram"]["evicted"] > 0, node.status()


def test_prefixes_on_nvme_are_brought_up_while_the_request_waits(
    start_node: StartNode, reference: Engine, llama: Path, start_engine: StartEngine, tmp_path: Path
) -> None:
    # however slow the disk is today: there is no other limit to a prefetch, and no faster way to compute
    prefetch = ("prefetch.policy=wait_complete", "prefetch.threshold_tokens=32")
    node = start_node(*disk(tmp_path), *prefetch, "nvme.ingest=all", capacity="8MiB")
    engine = start_engine(llama, kv_transfer_config=connector(node.socket, prefill_tokens_per_s=1))
    prompts = [prompt(600, seed) for seed in range(30, 36)]  # 6 × 18 blocks, where 64 have room
    expected = reference.tokens(prompts, 16)
    for number, each in enumerate(prompts):
        assert engine.tokens([each], 16) == [expected[number]]
        until("it is on the disk", lambda n=number: node.status()["nvme"]["blocks"] >= 18 * (n + 1))
    assert engine.call("forget")
    answers = [engine.generate([each], 16)[0] for each in prompts]
    assert [each["tokens"] for each in answers] == expected
    cached = [each["cached"] for each in answers]  # less than all of it where memory was taken meanwhile
    assert min(cached) > 0
    assert max(cached) == full_blocks(600)
    metrics = engine.metrics()
    assert metrics["cenote_blocks_prefetched"] > metrics["cenote_blocks_from_remote"] == 0
    assert metrics["prompt_tokens_cached_by_source[disk]"] > 0


def test_a_hybrid_model_needs_only_the_window_of_its_window_groups(
    vllm_python: str, node: Node, sliding: Path, start_engine: StartEngine
) -> None:
    plain = start_engine(sliding, dtype="bfloat16")
    engine = start_engine(sliding, dtype="bfloat16", kv_transfer_config=connector(node.socket))
    prompts = [prompt(400, 41), prompt(400, 41)[:250] + prompt(50, 42), prompt(90, 43)]
    expected = [plain.tokens([each], 24)[0] for each in prompts]
    for turn, cached in enumerate(([0, 224, 0], [full_blocks(len(each)) for each in prompts])):
        for each, tokens, hit in zip(prompts, expected, cached, strict=True):
            assert engine.call("forget")
            (answer,) = engine.generate([each], 24)
            assert (answer["tokens"], answer["cached"]) == (tokens, hit), f"turn {turn}"
            stored(node, 2 * (len(each) // BLOCK))
    # 12 blocks of full attention, and the window's last 3: 96 tokens look back into at most 4 blocks
    before = engine.metrics()["cenote_blocks_loaded"]
    assert engine.call("forget")
    assert engine.tokens([prompts[0]], 24) == [expected[0]]
    loaded = engine.metrics()["cenote_blocks_loaded"] - before
    assert 12 + 3 <= loaded <= 12 + 4
    assert engine.call("forget")
    corrupt(node)
    (answer,) = engine.generate([prompts[0]], 24)
    assert answer["cached"] == full_blocks(400)
    assert answer["tokens"] != expected[0]


def test_a_hybrid_prefix_on_nvme_comes_up_with_its_window(
    start_node: StartNode, sliding: Path, start_engine: StartEngine, tmp_path: Path
) -> None:
    node = start_node(
        *disk(tmp_path), "nvme.ingest=all", "prefetch.policy=wait_complete"
    )  # its threshold is longer than the window
    engine = start_engine(sliding, dtype="bfloat16", kv_transfer_config=connector(node.socket, prefill_tokens_per_s=1))
    asked = prompt(400, 45)
    (computed,) = engine.generate([asked], 16)
    until("it is on the disk", lambda: node.status()["nvme"]["blocks"] >= 2 * 12)
    node.stop()
    node.start()
    until("the engine is there again", lambda: len(node.status()["sessions"]) >= 2)
    assert engine.call("forget")
    (answer,) = engine.generate([asked], 16)
    assert (answer["tokens"], answer["cached"]) == (computed["tokens"], full_blocks(400))
    # 12 blocks of full attention, and the last 3 or 4 of the window
    assert 12 + 3 <= node.status()["prefetch"]["blocks_loaded"] <= 12 + 4


def test_a_hybrid_prefix_that_another_node_stored_is_found_with_its_window_and_told_as_remote(
    start_node: StartNode, redis: Redis, sliding: Path, start_engine: StartEngine, tmp_path: Path
) -> None:
    def start(name: str) -> Node:
        remote = (f'remote.backends=["{redis.url}"]', f"remote.state_dir={tmp_path / name}", "remote.lookup_timeout=2s")
        node = start_node(*remote, "prefetch.policy=wait_complete", "debug.enabled=true")
        until("the server serves", lambda: node.status()["remote"]["serving"] == 1)
        return node

    here, there = start("a"), start("b")
    writer = start_engine(sliding, dtype="bfloat16", kv_transfer_config=connector(here.socket))
    settings = connector(there.socket, prefill_tokens_per_s=1)  # slow: however long the answer takes, it is worth it
    reader = start_engine(sliding, dtype="bfloat16", kv_transfer_config=settings)
    asked = prompt(400, 46)
    (computed,) = writer.generate([asked], 16)
    assert computed["cached"] == 0
    until("it is on the server", lambda: here.status()["remote"]["counters"]["put"] >= 2 * 12)

    (answer,) = reader.generate([asked], 16)
    assert (answer["tokens"], answer["cached"]) == (computed["tokens"], full_blocks(400))
    metrics = reader.metrics()
    assert metrics["cenote_blocks_from_remote"] == metrics["cenote_blocks_prefetched"] == 12
    assert metrics["prompt_tokens_cached_by_source[external_unspecified]"] == full_blocks(400)
    # 12 blocks of full attention, and the last 3 or 4 of the window
    assert 12 + 3 <= there.status()["prefetch"]["blocks_loaded"] <= 12 + 4

    # from DRAM now, and with every byte altered other tokens: the right ones came out of these bytes
    assert reader.call("forget")
    corrupt(there)
    (altered,) = reader.generate([asked], 16)
    assert altered["cached"] == full_blocks(400)
    assert altered["tokens"] != computed["tokens"]
    assert reader.metrics()["prompt_tokens_cached_by_source[host]"] == full_blocks(400)


def test_two_ranks_write_a_block_together_and_each_reads_its_part(
    node: Node, llama: Path, start_engine: StartEngine
) -> None:
    engine = start_engine(
        llama,
        kv_transfer_config=connector(node.socket),
        tensor_parallel_size=2,
        distributed_executor_backend="mp",
    )
    prompts = [SHARED, SHARED[:200] + prompt(80, 2)]
    computed = engine.generate([prompts[0]], 6)  # nothing is cached: these are the right tokens
    assert computed[0]["cached"] == 0
    # a step is slow where both ranks share few processors: what waits for one has its limit by that
    until("9 blocks are stored", lambda: node.blocks()["present"] >= 9)
    assert engine.call("forget")
    (answer,) = engine.generate([prompts[0]], 6)
    assert (answer["tokens"], answer["cached"]) == (computed[0]["tokens"], full_blocks(300))
    (answer,) = engine.generate([prompts[1]], 6)
    assert answer["cached"] == full_blocks(200)
    free, every = engine.call("drain")
    assert free == every, "both ranks have copied what was stored"
    metrics = engine.metrics()
    assert metrics["cenote_blocks_loaded"] == 2 * metrics["cenote_blocks_offered"]  # by both ranks
    assert engine.call("forget")
    corrupt(node)
    (answer,) = engine.generate([prompts[0]], 6)
    assert answer["tokens"] != computed[0]["tokens"]


def test_200_random_prompts_are_answered_right_twice_while_workers_die(
    start_node: StartNode, reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    chance = random.Random(7)
    prompts: list[list[int]] = []
    for i in range(200):
        before = chance.choice(prompts)[: chance.randrange(400)] if prompts and chance.random() < 0.7 else []
        prompts.append(before + prompt(chance.randrange(1, 150), 1000 + i))
    expected = reference.tokens(prompts, 4)
    node = start_node(capacity="16MiB")  # 128 blocks: less than all
    engine = start_engine(llama, kv_transfer_config=connector(node.socket))
    for turn in range(2):
        for start in range(0, 200, 20):
            engine.start_call("generate", prompts=prompts[start : start + 20], tokens=4)
            if start % 80 == 20 * turn:
                node.worker_dies()
            answers = [each["tokens"] for each in engine.finish_call()]
            assert answers == expected[start : start + 20], f"turn {turn}, from prompt {start}"
            if chance.random() < 0.5:
                assert engine.call("forget")
    assert engine.metrics()["cenote_blocks_loaded"] > 0


def test_a_reset_makes_an_instance_of_its_own(
    node: Node, reference: Engine, llama: Path, start_engine: StartEngine
) -> None:
    engine = start_engine(llama, kv_transfer_config=connector(node.socket))
    asked = prompt(100, 71)
    expected = reference.tokens([asked], 4)
    assert engine.tokens([asked], 4, salts=["mine"]) == expected
    stored(node, 3)

    # after a reset nothing that was stored before is found, by this engine or another
    names = {each["id"] for each in node.status()["instances"]}
    assert engine.call("reset")
    (answer,) = engine.generate([asked], 4, salts=["mine"])
    assert (answer["cached"], [answer["tokens"]]) == (0, expected)

    def blocks() -> list[tuple[bool, int]]:
        return sorted((each["id"] in names, each["blocks"]) for each in node.status()["instances"])

    until("they are in an instance of its own", lambda: (False, 3) in blocks() and (True, 3) not in blocks())
    assert engine.call("forget")
    (answer,) = engine.generate([asked], 4, salts=["mine"])
    assert (answer["cached"], [answer["tokens"]]) == (96, expected)


@pytest.mark.parametrize("way", ["reload", "push"])
def test_weights_that_are_changed_in_place_find_nothing_of_the_old_ones(
    node: Node, llama: Path, retrained: Path, start_engine: StartEngine, way: str
) -> None:
    """Though the user resets vLLM's own cache alone."""
    fresh = start_engine(retrained if way == "reload" else llama)
    engine = start_engine(llama, kv_transfer_config=connector(node.socket))
    change = {"folder": str(retrained)} if way == "reload" else {}
    if way == "push":
        fresh.call(way)
    expected = fresh.tokens([SHARED], 16)
    old = engine.tokens([SHARED], 16)
    assert old != expected
    stored(node, full_blocks(300) // BLOCK)
    engine.call(way, **change)

    def finds_new_ones() -> bool:
        assert engine.call("forget")
        (answer,) = engine.generate([SHARED], 16)
        assert [answer["tokens"]] == expected
        return bool(answer["cached"] == full_blocks(300) and engine.metrics()["cenote_blocks_loaded"])

    until("the new weights' blocks are found", finds_new_ones)
    assert len(node.status()["instances"]) == 2
    other = start_engine(llama, kv_transfer_config=connector(node.socket))
    (answer,) = other.generate([SHARED], 16)
    assert ([answer["tokens"]], answer["cached"]) == (old, full_blocks(300))  # the old ones' are what they were
