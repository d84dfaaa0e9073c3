"""The benches of the time to the first token, with a small model on the processor."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from node import BINARY, LIMIT, ROOT

BENCH = ROOT / "tests" / "bench" / "vllm_first_token.py"
COST = ROOT / "tests" / "bench" / "vllm_cost.py"


def bench_rows(vllm_python: str, bench: Path, *arguments: str) -> list[dict[str, Any]]:
    ended = subprocess.run(
        [vllm_python, bench, "--tiny", "--json", "--rounds", "1", *arguments],
        env=os.environ | {"CENOTE_BINARY": str(BINARY)},
        capture_output=True,
        text=True,
        timeout=10 * LIMIT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_the_bench_of_the_first_token_stores_and_loads_what_an_engine_alone_computes(vllm_python: str) -> None:
    found = bench_rows(vllm_python, BENCH, "--tokens", "128", "--limit", str(5 * LIMIT))
    rows = {row["case"].split(": ")[-1]: row for row in found}
    assert {"stored, new memory", "stored, used memory", "loaded again"} <= set(rows)
    assert rows["tokens loaded, least"]["value"] == 96  # whole blocks, and not the last token
    assert rows["outputs equal to computed ones"]["kept"]
    assert rows["log-probabilities apart, most"]["kept"]


def test_hits_that_cost_computes_are_those_of_an_engine_and_its_times_stand_beside_the_measured_ones(
    vllm_python: str,
) -> None:
    """With room for all and with evictions. Times depend on the machine: only the rows are looked at."""
    found = bench_rows(vllm_python, COST, "--sessions", "4", "--clock", "processor")
    rows = {row["case"]: row for row in found}
    for name in ("all fits, processor time", "evictions, processor time"):
        assert rows[f"{name}: calibrate, rate"]["value"] > 0
        assert rows[f"{name}: hits of a request apart, most"]["kept"], rows
        for case in ("no queue", "queue"):
            assert {f"{name}: {case}, TTFT {figure}" for figure in ("p50", "p90", "p99", "p50 apart")} <= set(rows)
            assert rows[f"{name}: {case}, TTFT p50"]["ratio"] is not None
    hits = {title.partition(",")[0]: row["limit"] for title, row in rows.items() if title.endswith(": hits")}
    assert hits["evictions"] < hits["all fits"]  # blocks were evicted
