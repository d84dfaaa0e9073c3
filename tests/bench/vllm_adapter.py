"""The vLLM adapter: the scheduler's lookup, copies between vLLM's KV tensors and blocks, time to the first token.

Runs in vLLM's environment: "$(scripts/engine-venv vllm --path | tail -1)" tests/bench/vllm_adapter.py
The copies' limit is memcpy by as many threads, of as many bytes, in the same run; that of the lookup is the session's
own `acquire` of the same keys, with the end of its pins. `--only lookup,copies,device,first_token`.
"""

from __future__ import annotations

import ctypes
import mmap
import statistics
import sys
import tempfile
import time
import types
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import support
from support import KiB, MiB, Report

sys.path.insert(0, str(support.ROOT / "tests" / "engines"))

import cenote
import tiny_models
from cenote import copying
from vllm_engine import Engine, connector

CHAIN = 1000  # blocks of the lookup
LAYERS = 32  # of the copies: an 8B Llama, 8 KV heads of 128, 128 KiB a token
TOKEN_BYTES = 128 * KiB
COPIED = 256 * MiB
PREFIX = 2000  # tokens


def seconds(step: Callable[[], object]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def lookup(report: Report, rounds: int) -> None:
    """Scheduler.match, and the end of its pins, straight from a request's hashes."""
    from cenote._vllm.model import Group
    from cenote._vllm.scheduler import Scheduler
    from cenote._vllm.settings import Settings

    block = 64 * KiB
    with (
        support.node(2 * CHAIN * block, "dram.populate=false") as node,
        cenote.attach(support.spec("lookup", block), socket=str(node.socket)) as session,
    ):
        names = support.keys("lookup", 0, CHAIN)
        support.commit_unwritten(session, names)
        config: Any = types.SimpleNamespace(
            kv_transfer_config=types.SimpleNamespace(is_kv_consumer=True, is_kv_producer=True),
            parallel_config=types.SimpleNamespace(world_size=1),
            kv_events_config=None,
        )
        scheduler = Scheduler(config, None, Settings())
        scheduler._connection = types.SimpleNamespace(session=lambda: session)  # type: ignore[assignment]
        scheduler.describe([Group("default", 0)], 16)
        request = types.SimpleNamespace(
            request_id="one",
            block_hashes=[bytes(each) for each in names],
            num_tokens=16 * CHAIN + 1,
            skip_reading_prefix_cache=False,
            lora_request=None,
            mm_features=[],
        )
        scheduler.added(request)

        def match() -> None:
            assert scheduler.match(request, 0) == (16 * CHAIN, True)

        def pin() -> None:
            with session.acquire(names) as held:
                assert len(held) == CHAIN

        both, alone, pinned = [], [], []
        for number in range(-20, rounds):
            matched, dropped, acquired = seconds(match), seconds(scheduler._drop_offers), seconds(pin)
            if number >= 0:
                alone.append(matched)
                both.append(matched + dropped)
                pinned.append(acquired)
        limit = statistics.median(pinned) * 1e6
        report.add("lookup of 1000 blocks, pinned", statistics.median(alone) * 1e6, "us", limit, "<= 1.5")
        report.add("the same, with the end of the pins", statistics.median(both) * 1e6, "us", limit)


def copies(report: Report, rounds: int) -> None:
    """Layer-first tensors, as vLLM on CPU has them, to and from blocks."""
    for tokens in (16, 128):
        block = tokens * TOKEN_BYTES
        count = COPIED // block
        run = block // LAYERS
        with (
            support.node(COPIED // 8 * 9) as node,
            cenote.attach(support.spec(f"copy{tokens}", block), socket=str(node.socket)) as session,
        ):
            memory = [mmap.mmap(-1, COPIED, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(2)]
            for each in memory:
                each.write(b"\1" * COPIED)
            bases = [ctypes.addressof(ctypes.c_char.from_buffer(each)) for each in memory]
            # one allocation, layer after layer; a layer has its block's bytes in one run
            pieces = [copying.Piece(bases[0] + layer * count * run, run, run) for layer in range(LAYERS)]
            strides = copying.Strides(pieces)
            indices = array("Q", range(count))
            names = support.keys(f"copy{tokens}", 0, count)
            slots = session.reserve(names)
            blocks = [slot for slot in slots if isinstance(slot, cenote.Block)]
            assert len(blocks) == count
            whole = [[base + i * block for i in range(count)] for base in bases]
            strides.gather(indices, blocks)

            def gather() -> None:
                strides.gather(indices, blocks)  # noqa: B023

            def memcpy() -> None:
                copying.copy(whole[1], whole[0], [block] * count)  # noqa: B023

            gathered, copied = support.median_time(rounds, gather, memcpy)
            rate = COPIED / 1e9
            report.add(f"gather, blocks of {tokens} tokens", rate / gathered, "GB/s", rate / copied, ">= 0.8")
            session.commit(slots)
            with session.acquire(names) as held:

                def scatter() -> None:
                    strides.scatter(indices, held)  # noqa: B023

                scattered, copied = support.median_time(rounds, scatter, memcpy)
            report.add(f"scatter, blocks of {tokens} tokens", rate / scattered, "GB/s", rate / copied, ">= 0.8")


def device(report: Report, rounds: int) -> None:
    """What the engine's thread pays for copies that a simulated device makes, layer by layer: to begin them all, and to
    wait for the last one. No figure of a GPU."""
    tokens = 16
    block = tokens * TOKEN_BYTES
    count, run = 64, block // LAYERS
    with (
        support.node(4 * count * block) as node,
        cenote.attach(support.spec("device", block), socket=str(node.socket)) as session,
    ):
        simulated = cenote.Device("sim:0")
        session.use_device(simulated)
        stream = simulated.stream()
        memory = mmap.mmap(-1, count * block, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.write(b"\1" * count * block)
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        pieces = [copying.Piece(base + layer * count * run, run, run) for layer in range(LAYERS)]
        strides = copying.Strides(pieces, [1] * LAYERS)
        indices = array("Q", range(count))
        names = support.keys("device", 0, count)
        slots = session.reserve(names)
        strides.gather(indices, [slot for slot in slots if isinstance(slot, cenote.Block)])
        session.commit(slots)
        begun, waited, at_once = [], [], []
        for _ in range(rounds):
            with session.acquire(names) as held:
                at_once.append(seconds(lambda: strides.scatter(indices, held)))  # noqa: B023
            held = session.acquire(names)
            began = time.perf_counter()
            for layer in range(LAYERS):
                strides.scatter(indices, held, stream=stream, layer=layer)
                event = stream.record()
            held.release_after(stream)
            begun.append(time.perf_counter() - began)
            event.wait(60)
            waited.append(time.perf_counter() - began)
        each = statistics.median(begun) / count * 1e6
        report.add(f"simulated device: beginning {LAYERS} layers of a block, of {count}", each, "us")
        report.add(
            f"simulated device: all layers of {count} blocks are there, beside the processor's copies",
            statistics.median(waited) * 1e3,
            "ms",
            statistics.median(at_once) * 1e3,
        )


def first_token(report: Report, rounds: int) -> None:
    """One token after a prompt of 2,000: computed, from the node, and from vLLM's own prefix cache."""
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as place, support.node(256 * MiB) as node:
        model = tiny_models.make_llama(Path(place) / "model")
        common = {"block_size": 32, "max_num_batched_tokens": 2048}
        engine = Engine(sys.executable, model, Path(place) / "log", kv_transfer_config=connector(node.socket), **common)
        plain = Engine(sys.executable, model, Path(place) / "plain", **common)
        warm = tiny_models.prompt(PREFIX, 1)
        try:
            for each in (engine, plain):
                each.generate([warm], 1)
            support.until("the prefix is stored", lambda: node.blocks()["present"] >= PREFIX // 32)
            times: dict[str, list[float]] = {"computed": [], "node": [], "own": []}

            def one(which: Engine, kind: str) -> None:
                (answer,) = which.generate([warm], 1)
                times[kind].append(answer["seconds"])
                assert (answer["cached"] == 0) == (kind == "computed"), answer

            for _ in range(rounds):
                plain.call("forget")
                one(plain, "computed")
                engine.call("forget")
                one(engine, "node")
                one(engine, "own")
            median = {kind: statistics.median(each) * 1e3 for kind, each in times.items()}
            about = f"first token, {PREFIX} tokens"
            report.add(f"{about}, computed", median["computed"], "ms")
            report.add(f"{about}, from the node", median["node"], "ms", median["computed"], "<= 1")
            report.add(f"{about}, vLLM's own cache", median["own"], "ms")
        finally:
            engine.stop()
            plain.stop()


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="lookup,copies,device,first_token")
    options = parser.parse_args()
    report = Report("vllm_adapter", options.json)
    for name in options.only.split(","):
        {"lookup": lookup, "copies": copies, "device": device, "first_token": first_token}[name](
            report, options.rounds * (20 if name == "lookup" else 1)
        )


if __name__ == "__main__":
    main()
