"""Hits, size and worth of a cache, computed from recorded requests. See docs/optimize.md, "In Python".

    from cenote import optimize

    curve = optimize.curve("requests.jsonl", policies=["lru", "arc"], capacities=[10_000, "100k"])
    best = optimize.plan(
        "requests.jsonl",
        model="llama-3-8b",
        gpu="h100",
        tier=["dram:0.5ms:20GB/s", "nvme:2ms:3GB/s"],
        slo=["ttft_p90=2s"],
        price={"replica": "98/h", "dram": "0.004/GiB/h", "nvme": "0.0001/GiB/h"},
    )["best"]

Each function runs `cenote optimize` in a process of its own and returns the object of its `--json`, so the two never
differ, and a trace that is too large takes no memory here. Any thread may call them, several at a time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import cenote_program

from .errors import CenoteError, DeadlineExceeded, InvalidArgument

__all__ = [
    "Answer",
    "OptimizeError",
    "Option",
    "advise",
    "analyze",
    "calibrate",
    "cost",
    "curve",
    "model",
    "plan",
    "rank",
]

Answer: TypeAlias = dict[str, Any]
"""The object of `--json`, with the names of docs/optimize.md."""

_Item: TypeAlias = str | int | float | os.PathLike[str]
Option: TypeAlias = bool | _Item | Sequence[_Item] | Mapping[str, _Item] | None
"""True is a flag, None and False leave the option out. A sequence is a list, or repeats an option that names one thing
(`tier`). A mapping is NAME=VALUE of each."""

_REPEATED = frozenset({"tier", "capacities"})


class OptimizeError(CenoteError):
    """No answer, or one that does not keep what was asked for: a trace that cannot be read, a level that nothing keeps,
    a replay that does not bear the plan out. `answer` is the object, where there is one."""

    def __init__(self, message: str, answer: Answer | None = None) -> None:
        super().__init__(message)
        self.answer = answer


def _program() -> str:
    """That of the command `cenote`, or the one on the PATH."""
    found = cenote_program.program() or shutil.which("cenote")
    if found is None or not Path(found).is_file():
        raise FileNotFoundError(
            f"the program `cenote` was not found{f': {found}' if found else ' in the package, a build or the PATH'}. "
            "Set CENOTE_BINARY to its path."
        )
    return str(found)


def _arguments(options: Mapping[str, Option]) -> list[str]:
    arguments: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value is False:
            continue
        if value is True:
            arguments.append(flag)
            continue
        if isinstance(value, Mapping):
            items = [f"{key}={item}" for key, item in value.items()]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            items = [str(item) for item in value]
        else:
            items = [str(value)]
        is_repeated = name in _REPEATED and (isinstance(value, Mapping) or name == "tier")
        for item in items if is_repeated else [",".join(items)]:
            arguments += [flag, item]
    return arguments


def _answer(text: str) -> Answer | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _run(command: str, places: Iterable[_Item], timeout: float | None, options: Mapping[str, Option]) -> Answer:
    files = [os.fspath(place) if isinstance(place, os.PathLike) else str(place) for place in places]
    files = [f"./{file}" if file.startswith("-") else file for file in files]  # no option
    call = [_program(), "optimize", command, *files, *_arguments(options), "--json"]
    try:
        ended = subprocess.run(
            call, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise DeadlineExceeded(f"cenote optimize {command}: no answer within {timeout} s") from late
    answer = _answer(ended.stdout)
    if ended.returncode == 0 and answer is not None:
        return answer
    message = ended.stderr.strip() or f"cenote optimize {command} ended with {ended.returncode}"
    if ended.returncode == 2:
        raise InvalidArgument(message)
    raise OptimizeError(message, answer)


def curve(trace: _Item, *, timeout: float | None = None, **options: Option) -> Answer:
    """Hits by capacity, of each policy, and the capacities that shares of an endless cache's hits take.

    `options` are those of the command with `_` for `-`: policies, capacities (blocks), order, quota, by_instance,
    warm_up, block_tokens, format, … Raises InvalidArgument for options that the command refuses, OptimizeError for a
    trace that it cannot read, DeadlineExceeded after `timeout` seconds, FileNotFoundError without the program. So do
    the others.
    """
    return _run("curve", [trace], timeout, options)


def analyze(trace: _Item, *, timeout: float | None = None, **options: Option) -> Answer:
    """Reuse distances and times, uses of a block, the prefix tree and its hot paths, bytes over time, sharing."""
    return _run("analyze", [trace], timeout, options)


def model(config: _Item | None = None, *, timeout: float | None = None, **options: Option) -> Answer:
    """Bytes a token, prefill rate and break-even lengths of a model: a preset's name or the path of a `config.json`."""
    return _run("model", [] if config is None else [config], timeout, options)


def cost(trace: _Item, *, timeout: float | None = None, **options: Option) -> Answer:
    """Times to first token (seconds), replicas, seconds of GPU and money of each capacity."""
    return _run("cost", [trace], timeout, options)


def plan(trace: _Item, *, timeout: float | None = None, **options: Option) -> Answer:
    """The cheapest tiers that keep the levels of `slo`, why, what was tried, and the fragment of `cenote.toml`.

    An OptimizeError where nothing keeps them has the object with what comes nearest as its `answer`.
    """
    return _run("plan", [trace], timeout, options)


def rank(*traces: _Item, timeout: float | None = None, **options: Option) -> Answer:
    """The services that gain most from each GiB, and their parts of one budget of bytes.

    With `price`, of a replica and of the tier, the money that is saved decides.
    """
    return _run("rank", traces, timeout, options)


def calibrate(measured: _Item, *, timeout: float | None = None, **options: Option) -> Answer:
    """Rate, pivot and constant of a real engine from its times to first token, and how far off the model is."""
    return _run("calibrate", [measured], timeout, options)


def advise(socket: _Item | None = None, *, timeout: float | None = None, **options: Option) -> Answer:
    """Hits of a running node's instances at other capacities, each with its standard error, and what a GiB more brings.

    `socket` is that of the node; None: the one that `cenote` finds. No node is an OptimizeError.
    """
    return _run("advise", (), timeout, {"socket": socket, **options})
