"""Times to the first token of vLLM on the processor, beside those that `cenote optimize cost` computes.

Runs in vLLM's environment: "$(scripts/engine-venv vllm --path | tail -1)" tests/bench/vllm_cost.py
Prefills of known lengths are measured and given to `cenote optimize calibrate`; its figures, a trace and the number of
the engine's blocks go to `cenote optimize cost`. vLLM gets the same trace, with a cache in which all of it fits and
with one that evicts: one request after the other, then at random times, so that requests wait. The engine serves one
request at a time, as a replica of the model does.

Prefills and requests are measured in turn, `--rounds` times; a request's time is the median of its rounds. The figure
of a row is the optimizer's, the limit vLLM's. With `--clock processor` times are those that the engine's thread
computes, for a machine that others use. The times of `--tiny` have no bounds. Ends with 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import support
from figures import Bound, Report

sys.path.insert(0, str(support.ROOT / "tests" / "engines"))

from node import run_cenote
from tiny_models import WORDS, prompt
from vllm_engine import Engine

BLOCK = 32  # tokens: vLLM's smallest block on the processor
NULL_BLOCK = 1  # of vLLM's blocks one never has tokens
UTILISATION = 0.6
POINT_INTERVAL = 2  # requests
GAP_MS = 10**6  # of requests that do not wait for each other
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 1536,
    "vocab_size": 1024,
    "dtype": "float32",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": WORDS + 1,
    "eos_token_id": WORDS + 2,
}


@dataclass(frozen=True)
class Scale:
    shape: dict[str, Any]
    longest: int  # tokens of a request
    caches: dict[str, int]  # blocks
    points: list[tuple[int, int]]  # input and cached tokens, of lengths that the requests have
    bound: str = ""  # of percents


LARGE = Scale(
    SHAPE,
    2048,
    {"all fits": 1600, "evictions": 200},
    [
        *((length, 0) for length in (64, 128, 256, 384, 512, 768, 1024, 1536, 2048)),
        *((16 + cached, cached) for cached in (256, 1024)),
        *((64 + cached, cached) for cached in (256, 1024, 1920)),
        *((256 + cached, cached) for cached in (512, 1024, 1792)),
        *((512 + cached, cached) for cached in (512, 1024, 1536)),
    ],
    "<= 10 %",
)
TINY = Scale(
    SHAPE | {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2},
    1024,
    {"all fits": 200, "evictions": 48},
    [(64, 0), (256, 0), (1024, 0), (512, 256), (1024, 768)],
)

Measured = list[dict[str, Any]]  # by request: "seconds" and "cached"
Point = tuple[int, int]  # input and cached tokens
PointTimes = dict[Point, list[float]]  # seconds


# ---------------------------------------------------------------------------------------------- the trace


def make_requests(sessions: int, longest: int, seed: int = 7) -> list[list[int]]:
    """Prompts of sessions that go on by turns, eight at a time, behind one system prompt. Some turns fill their last
    block, and one in ten requests comes a second time."""
    draw = random.Random(seed)
    system = prompt(9 * BLOCK, seed)
    waiting = [[*system] for _ in range(sessions)]
    active = {number: draw.randint(2, 6) for number in range(min(8, sessions))}  # turns that are left
    following = len(active)
    requests: list[list[int]] = []
    while active:
        number = draw.choice(sorted(active))
        text = waiting[number]
        length = min(longest - 1, len(text) + draw.randint(48, 480))
        if draw.random() < 0.2:
            length = length // BLOCK * BLOCK
        text.extend(draw.choices(range(WORDS), k=max(0, length - len(text))))
        requests.extend([[*text]] * (2 if draw.random() < 0.1 else 1))
        active[number] -= 1
        if active[number] == 0:
            del active[number]
            if following < sessions:
                active[following] = draw.randint(2, 6)
                following += 1
    return requests


def write_trace(file: Path, requests: Sequence[list[int]], times_ms: Sequence[int]) -> Path:
    """In Mooncake's form: an id stands for its block and all before it."""
    ids: dict[tuple[int, ...], int] = {}
    with file.open("w") as lines:
        for request, time_ms in zip(requests, times_ms, strict=True):
            starts = range(0, len(request), BLOCK)
            chain = [ids.setdefault(tuple(request[: start + BLOCK]), len(ids)) for start in starts]
            lines.write(json.dumps({"timestamp": time_ms, "input_length": len(request), "hash_ids": chain}) + "\n")
    return file


# ---------------------------------------------------------------------------------------------- the optimizer


def optimize(command: str, *arguments: str | Path) -> dict[str, Any]:
    ended = run_cenote("optimize", command, *arguments, "--json")
    if ended.returncode != 0:
        raise RuntimeError(f"cenote optimize {command}: {ended.stderr}")
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


class Optimizer:
    """`cenote optimize cost` with the figures that `cenote optimize calibrate` finds in measured points."""

    def __init__(self, folder: Path, model: Path, times: PointTimes) -> None:
        """Of each point, the median of its times."""
        self.folder = folder
        self.model = model
        table = folder / "measured.csv"
        rows = [f"{length},{cached},{statistics.median(seconds):.6f}" for (length, cached), seconds in times.items()]
        table.write_text("\n".join(["input,cached,ttft", *rows, ""]))
        self.fit = optimize("calibrate", table, "--model", model)

    def cost(self, requests: Sequence[list[int]], times_ms: Sequence[int], blocks: int) -> dict[str, Any]:
        """The point of the engine's own cache of so many blocks, whose tokens need no load."""
        pivot = self.fit["pivot"]
        answer = optimize(
            "cost",
            write_trace(self.folder / "trace.jsonl", requests, times_ms),
            *("--block-tokens", str(BLOCK), "--model", self.model, "--prefill", repr(self.fit["rate"])),
            *("--attention-pivot", "off" if pivot is None else repr(pivot)),
            *("--constant", f"{round(self.fit['constant'] * 1e9)}ns"),
            *("--tier", f"gpu:0s:1000TB/s:{blocks}"),
        )
        (point,) = answer["points"]
        assert isinstance(point, dict)
        return point

    def by_request(self, requests: Sequence[list[int]], blocks: int) -> Measured:
        """Without waiting: what the trace up to a request has more than the one up to the request before."""
        sums = [{"gpu_s": 0.0, "hit_tokens": 0}]
        for count in range(1, len(requests) + 1):
            sums.append(self.cost(requests[:count], distant_times(count), blocks))
        return [
            {"seconds": whole["gpu_s"] - part["gpu_s"], "cached": whole["hit_tokens"] - part["hit_tokens"]}
            for part, whole in itertools.pairwise(sums)
        ]


# ---------------------------------------------------------------------------------------------- the engine


@dataclass
class Round:
    """Of one engine. Points are measured among requests that do not wait, and in front of and behind a queue."""

    single: Measured
    single_points: PointTimes
    times_ms: list[int]  # at which requests come
    queued: Measured
    queue_points: PointTimes


@dataclass
class Variant:
    """An engine with a cache of its own size, and what was measured there."""

    name: str
    blocks: int
    engine: Engine
    clock: str
    rounds: list[Round] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Of its rows: those of both clocks stand in one table."""
        return self.name if self.clock == "wall" else f"{self.name}, {self.clock} time"

    @property
    def cached_blocks(self) -> int:
        """That are left for whole blocks: the last, partial one of the request that runs has one, too."""
        return self.blocks - NULL_BLOCK - 1

    def replay(self, requests: Sequence[list[int]], times_ms: Sequence[int]) -> Measured:
        arrivals = [time_ms / 1000 for time_ms in times_ms]
        answers = self.engine.call("replay", prompts=requests, arrivals=arrivals, clock=self.clock)
        assert isinstance(answers, list)
        return answers

    def forget(self) -> None:
        """The engine's cache is empty then."""
        if not self.engine.call("forget"):
            raise RuntimeError("vLLM does not forget its own cache")

    def measure(self, requests: Sequence[list[int]], gauge: Gauge) -> None:
        """One round."""
        self.forget()
        single_points = gauge.measure_all({})
        single: Measured = []
        points = itertools.cycle(gauge.points)
        for number, request in enumerate(requests):
            if number % POINT_INTERVAL == 0:
                gauge.measure(next(points), single_points)
            single.extend(self.replay([request], [0]))
        self.forget()
        queue_points = gauge.measure_all({})
        times_ms = random_times(sum(answer["seconds"] for answer in single), len(single))
        queued = self.replay(requests, times_ms)
        self.rounds.append(Round(single, single_points, times_ms, queued, gauge.measure_all(queue_points)))


@dataclass
class Gauge:
    """Measures points on an engine whose cache nothing else needs meanwhile."""

    variant: Variant
    points: Sequence[Point]
    seeds: Iterator[int]

    def measure(self, point: Point, times: PointTimes) -> None:
        """With a prompt of its own, whose cached part comes first."""
        length, cached = point
        words = prompt(length, next(self.seeds))
        if cached:
            self.variant.replay([words[:cached]], [0])
        (answer,) = self.variant.replay([words], [0])
        if answer["cached"] != cached:
            raise RuntimeError(f"vLLM has {answer['cached']} of {length} tokens, not {cached}")
        times.setdefault(point, []).append(answer["seconds"])

    def measure_all(self, times: PointTimes) -> PointTimes:
        for point in self.points:
            self.measure(point, times)
        return times


def random_times(busy: float, count: int, seed: int = 7) -> list[int]:
    """Of requests that keep one engine busy for so many seconds, which are UTILISATION of the time; in milliseconds."""
    draw = random.Random(seed)
    mean = busy / count / UTILISATION
    return [round(1000 * time) for time in itertools.accumulate(draw.expovariate(1 / mean) for _ in range(count))]


def distant_times(count: int) -> list[int]:
    """Of requests that do not wait for each other."""
    return [number * GAP_MS for number in range(count)]


@contextlib.contextmanager
def engine_of(folder: Path, blocks: int, longest: int, threads: int) -> Iterator[Engine]:
    process = {"environ": {"OMP_NUM_THREADS": str(threads)}} if threads > 1 else {}
    engine = Engine(
        sys.executable,
        folder,
        folder / f"{blocks}.log",
        skip_tokenizer_init=True,
        load_format="dummy",
        generation_config="vllm",
        block_size=BLOCK,
        num_gpu_blocks_override=blocks,
        max_model_len=longest + BLOCK,
        max_num_batched_tokens=longest + BLOCK,
        max_num_seqs=1,
        **process,
    )
    try:
        yield engine  # it waits with its first call: both start at the same time
        engine.stop()
    finally:
        engine.abort()


# ---------------------------------------------------------------------------------------------- the comparison


def medians(passes: Sequence[Measured]) -> list[float]:
    """Of each request's seconds."""
    return [statistics.median(answer["seconds"] for answer in answers) for answers in zip(*passes, strict=True)]


def joined(parts: Sequence[PointTimes]) -> PointTimes:
    return {point: [seconds for part in parts for seconds in part[point]] for point in parts[0]}


def nearest_rank(values: Sequence[float], percent: float) -> float:
    return sorted(values)[max(0, math.ceil(percent * len(values) / 100) - 1)]


def percent_apart(ratio: float) -> float:
    return 100 * abs(ratio - 1)


class Comparison:
    """Rows of one variant; remembers whether a bound is missed."""

    def __init__(self, report: Report, variant: Variant, requests: Sequence[list[int]], bound: str) -> None:
        self.report = report
        self.variant = variant
        self.requests = requests
        self.bound = bound
        self.is_missed = False

    def add(self, case: str, value: float, unit: str, limit: float | None = None, note: str = "") -> None:
        self.report.add(f"{self.variant.title}: {case}", value, unit, limit, note=note)

    def add_bound(self, case: str, value: float, unit: str, bound: str, note: str = "") -> None:
        self.report.add(f"{self.variant.title}: {case}", value, unit, bound=bound, note=note)
        parsed = Bound.parse(bound)
        self.is_missed |= parsed is not None and not parsed.holds(value, None)

    def add_hits(self, computed: Measured) -> None:
        """Tokens of all requests, and the blocks by which a request's are apart, in any round, queue or not."""
        passes = [answers for each in self.variant.rounds for answers in (each.single, each.queued)]
        self.add("hits", sum(each["cached"] for each in computed), "tokens", sum(each["cached"] for each in passes[0]))
        apart = [
            max(abs(answer["cached"] - each["cached"]) for answer in answers) / BLOCK
            for each, *answers in zip(computed, *passes, strict=True)
        ]
        note = f"{sum(blocks > 0 for blocks in apart)} of {len(apart)} requests differ"
        self.add_bound("hits of a request apart, most", max(apart), "blocks", "<= 1 blocks", note)

    def add_fit(self, fit: dict[str, Any]) -> None:
        self.add("calibrate, rate", fit["rate"], "tokens/s")
        self.add("calibrate, constant", 1000 * fit["constant"], "ms")
        if fit["pivot"] is not None:
            self.add("calibrate, pivot", fit["pivot"], "tokens", fit["model_pivot"])
        note = f"p90 {100 * fit['error_p90']:.1f}; {fit['rows']} points"
        self.add("calibrate, points apart, p50", 100 * fit["error_median"], "%", note=note)

    def add_single(self, optimizer: Optimizer) -> None:
        """Requests that do not wait: medians of all rounds, by the points of all rounds."""
        self.add_fit(optimizer.fit)
        blocks = self.variant.cached_blocks
        computed = optimizer.by_request(self.requests, blocks)
        self.add_hits(computed)
        measured = medians([each.single for each in self.variant.rounds])
        point = optimizer.cost(self.requests, distant_times(len(self.requests)), blocks)
        self.add("GPU time", point["gpu_s"], "s", sum(measured))
        for percent in (50, 90, 99):
            limit = nearest_rank(measured, percent)
            self.add(f"no queue, TTFT p{percent}", 1000 * point[f"ttft_p{percent}"], "ms", 1000 * limit)
        ratio = point["ttft_p50"] / nearest_rank(measured, 50)
        self.add_bound("no queue, TTFT p50 apart", percent_apart(ratio), "%", self.bound)
        apart = [percent_apart(answer["seconds"] / limit) for answer, limit in zip(computed, measured, strict=True)]
        note = f"p90 {nearest_rank(apart, 90):.1f}"
        self.add_bound("no queue, a request's TTFT apart, p50", nearest_rank(apart, 50), "%", self.bound, note)

    def add_queued(self, optimizers: Sequence[Optimizer]) -> None:
        """Each round by its own points, as a queue makes more of what slows the machine meanwhile."""
        blocks = self.variant.cached_blocks
        pairs = [
            (optimizer.cost(self.requests, each.times_ms, blocks), [answer["seconds"] for answer in each.queued])
            for optimizer, each in zip(optimizers, self.variant.rounds, strict=True)
        ]
        self.add("queue, utilisation", statistics.median(point["utilisation"] for point, _ in pairs), "of the time")
        for percent in (50, 90, 99):
            computed = [point[f"ttft_p{percent}"] for point, _ in pairs]
            measured = [nearest_rank(seconds, percent) for _, seconds in pairs]
            value, limit = 1000 * statistics.median(computed), 1000 * statistics.median(measured)
            ratios = [one / other for one, other in zip(computed, measured, strict=True)]
            note = "rounds " + " ".join(f"{ratio:.2f}" for ratio in ratios)
            self.add(f"queue, TTFT p{percent}", value, "ms", limit, note)
            if percent == 50:
                self.add_bound("queue, TTFT p50 apart", percent_apart(statistics.median(ratios)), "%", self.bound)


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "config.json"
        self.scale = TINY if options.tiny else LARGE
        self.model.write_text(json.dumps(self.scale.shape))
        self.report = Report("vllm_cost", options.json)
        self.requests = make_requests(options.sessions, self.scale.longest)

    def measure(self, variants: Sequence[Variant], rounds: int) -> None:
        """Points of one engine on another one: they leave its cache alone."""
        seeds = itertools.count(1000)
        gauges = [Gauge(variant, self.scale.points, seeds) for variant in variants]
        for gauge in gauges:
            gauge.measure_all({})  # warms up
        for _ in range(rounds):
            for number, variant in enumerate(variants):
                variant.measure(self.requests, gauges[number - 1])

    def fitted(self, parts: Sequence[PointTimes]) -> Optimizer:
        return Optimizer(self.folder, self.model, joined(parts))

    def compare(self, variants: Sequence[Variant]) -> bool:
        """Whether all bounds hold."""
        holds = True
        for variant in variants:
            comparison = Comparison(self.report, variant, self.requests, self.scale.bound)
            comparison.add_single(self.fitted([each.single_points for each in variant.rounds]))
            comparison.add_queued([self.fitted([each.queue_points]) for each in variant.rounds])
            holds &= not comparison.is_missed
        return holds

    def write_measured(self, file: Path, variants: Sequence[Variant]) -> None:
        def plain(times: PointTimes) -> list[Any]:
            return [[length, cached, seconds] for (length, cached), seconds in times.items()]

        rounds = {
            variant.name: [
                vars(each) | {"single_points": plain(each.single_points), "queue_points": plain(each.queue_points)}
                for each in variant.rounds
            ]
            for variant in variants
        }
        file.write_text(json.dumps({"requests": self.requests, "rounds": rounds}))


def parse_options() -> argparse.Namespace:
    parser = support.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of all points and requests")
    parser.add_argument("--sessions", type=int, default=24, help="of the trace")
    parser.add_argument("--threads", type=int, default=1, help="of the engine")
    parser.add_argument("--clock", choices=("wall", "processor"), default="wall", help="processor: of one thread")
    parser.add_argument("--tiny", action="store_true", help="a model that has no figures")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="writes all measured times there, as JSON")
    options = parser.parse_args()
    if options.clock == "processor" and options.threads > 1:
        parser.error("--clock processor is the time of one thread")
    return options


def main() -> int:
    options = parse_options()
    with contextlib.ExitStack() as stack:
        bench = Bench(options, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cenote-bench-"))))
        variants = []
        for name, blocks in bench.scale.caches.items():
            engine = stack.enter_context(engine_of(bench.folder, blocks, bench.scale.longest, options.threads))
            variants.append(Variant(name, blocks, engine, options.clock))
        bench.measure(variants, options.rounds)
        if options.measured:
            bench.write_measured(options.measured, variants)
        return 0 if bench.compare(variants) else 1


if __name__ == "__main__":
    sys.exit(main())
