"""Output of `cenote optimize … --json` and `cenote trace info --json`, against a schema of each command.

The schemas are JSON Schema. A member that they do not name is an error, so one that is renamed, comes or goes is found.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from node import ROOT, run_cenote

TRACES = ROOT / "tests/data/optimizer"
MOONCAKE, BAILIAN, TAIR_LOG, TAIR = (
    str(TRACES / f"{name}.jsonl") for name in ("mooncake", "bailian", "tair-log", "tair-schema")
)
NAMES = ("curve", "analyze", "model", "cost", "calibrate", "plan", "rank", "info")
OF_A_NODE = ("advise",)  # test_optimize_python
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
KEYWORDS = {"type", "required", "properties", "additionalProperties", "items", "minItems", "enum", "definitions"}


def schema_of(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((TRACES / "schemas" / f"{name}.json").read_text())
    return schema


def is_of(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name != "boolean":
        return False
    return isinstance(value, TYPES[name]) and not (isinstance(value, float) and not math.isfinite(value))


def complaints(value: Any, schema: dict[str, Any], root: dict[str, Any], place: str = "$") -> list[str]:
    """Each way in which a value differs from a schema, which may use only these keywords of JSON Schema."""
    if "$ref" in schema:
        schema = root["definitions"][schema["$ref"].removeprefix("#/definitions/")]
    assert schema.keys() <= KEYWORDS, f"{place}: {schema.keys() - KEYWORDS} in a schema"
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(is_of(value, name) for name in types):
        return [f"{place}: {value!r} is not of type {types}"]
    wrong = [] if value in schema.get("enum", [value]) else [f"{place}: {value!r} is none of {schema['enum']}"]
    if isinstance(value, list):
        if len(value) < schema["minItems"]:
            wrong.append(f"{place}: {len(value)} items")
        for i, item in enumerate(value):
            wrong += complaints(item, schema["items"], root, f"{place}[{i}]")
    if isinstance(value, dict):
        wrong += [f"{place}: no {name}" for name in schema["required"] if name not in value]
        for name, member in value.items():
            rule = schema["properties"].get(name, schema["additionalProperties"])
            wrong += complaints(member, rule, root, f"{place}.{name}") if rule else [f"{place}: {name} has no schema"]
    return wrong


ENGINE = ("--model", "llama-3-8b", "--prefill", "8000@4096")
DRAM, NVME = ("--tier", "dram:0.5ms:20GB/s"), ("--tier", "nvme:2ms:3GB/s")
PRICE = ("--price", "replica=98/h,dram=0.004/GiB/h")
PRICES = ("--price", "replica=98/h,dram=0.004/GiB/h,nvme=0.0001/GiB/h")
SLO = ("--speed", "100x", "--slo", "ttft_p90=500ms")
UNMET = ("--speed", "100x", "--slo", "ttft_p90=1ms")
COST = (*ENGINE, *DRAM, *SLO, *PRICE)
# A command, and the members that it has beside those that its answers always have.
CASES: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "curve": (("curve", MOONCAKE), set()),
    "curve of all policies": (("curve", MOONCAKE, "--policies", "lru,arc,tblru,auto,belady"), set()),
    "curve --quota": (("curve", TAIR, "--quota", "rag=60,chat=60,code=40"), {"by_instance"}),
    "curve --by-instance": (("curve", TAIR, "--by-instance"), {"by_instance"}),
    "curve --warm-up": (("curve", BAILIAN, "--warm-up", "10%"), {"warm_up"}),
    "curve --ttl": (("curve", BAILIAN, "--ttl", "10s", "--policies", "lru,random"), {"ttl_ms", "ttl_from"}),
    "curve --water-levels": (("curve", BAILIAN, "--water-levels", "97%:94%:2"), {"water_levels"}),
    "curve --sample": (("curve", MOONCAKE, "--sample"), {"sample"}),
    "curve --sample of policies": (("curve", MOONCAKE, "--sample", "--policies", "lru,arc,tblru"), {"sample"}),
    "analyze": (("analyze", MOONCAKE), set()),
    "analyze of sessions": (("analyze", BAILIAN), set()),
    "analyze --merge-instances": (("analyze", TAIR, "--merge-instances"), set()),
    "analyze --by-instance": (("analyze", TAIR, "--by-instance"), {"by_instance"}),
    "analyze --over-time": (("analyze", MOONCAKE, "--over-time", "10s", "--bytes-per-token", "9"), {"over_time"}),
    "analyze of reads without writes": (("analyze", "apart.jsonl", "--over-time", "1s"), {"over_time"}),
    "model": (("model", *ENGINE, *DRAM, "--times", "0:64000,32000:64000"), set()),
    "model --decode": (("model", "--model", "deepseek-v3", "--gpu", "h800", "--decode", "1:1000,8:64000"), set()),
    "model without a rate": (("model", "--bytes-per-token", "9"), set()),
    "model of a slow tier": (("model", *ENGINE, "--tier", "disk:1s:1KB/s"), set()),
    "cost": (("cost", MOONCAKE, *COST), set()),
    "cost without a bound": (("cost", MOONCAKE, *ENGINE, *DRAM), set()),
    "cost of two tiers": (("cost", MOONCAKE, *ENGINE, "--tier", "dram:0.5ms:20GB/s:100", *NVME, *UNMET), set()),
    "cost --water-levels": (("cost", MOONCAKE, *COST, "--water-levels", "dram=97%:94%"), set()),
    "cost --warm-up and --ttl": (
        ("cost", BAILIAN, *COST, "--warm-up", "10%", "--ttl", "10s"),
        {"warm_up", "ttl_ms", "ttl_from"},
    ),
    "cost --quota": (("cost", TAIR, *ENGINE, *DRAM, "--quota", "rag=60,chat=60,code=40"), {"by_instance"}),
    "calibrate": (("calibrate", "measured.csv", "--model", "llama-3-8b", "--gpu", "h100", "--gpus", "8"), set()),
    "calibrate without a model": (("calibrate", "measured.csv"), set()),
    "plan": (("plan", MOONCAKE, *COST), {"why"}),
    "plan of two tiers": (("plan", MOONCAKE, *ENGINE, *SLO, *DRAM, *NVME, *PRICES, "--capacities", "0,100"), {"why"}),
    "plan --objective": (("plan", MOONCAKE, *COST, "--objective", "cost,ttft"), {"why", "pareto"}),
    "plan --water-levels": (("plan", MOONCAKE, *COST, "--water-levels", "dram=97%:94%"), {"why"}),
    "plan --warm-up and --ttl": (
        ("plan", BAILIAN, *COST, "--warm-up", "10%", "--ttl", "10s"),
        {"why", "warm_up", "ttl_ms", "ttl_from"},
    ),
    "plan --endurance": (
        ("plan", MOONCAKE, *ENGINE, *SLO, *DRAM, *NVME, *PRICES, "--capacities", "0,100", "--endurance", "7PB"),
        {"why"},
    ),
    "plan unmet": (("plan", MOONCAKE, *ENGINE, *DRAM, *UNMET, *PRICE), {"nearest"}),
    "plan --verify": (
        ("plan", MOONCAKE, *COST, "--capacities", "200", "--verify", "--verify-runs", "1"),
        {"why", "verify"},
    ),
    "rank": (("rank", MOONCAKE, TAIR, *ENGINE, *DRAM), set()),
    "rank --budget": (("rank", MOONCAKE, TAIR, *ENGINE, *DRAM, "--budget", "64MiB"), set()),
    "rank --price": (("rank", MOONCAKE, TAIR, *ENGINE, *DRAM, *PRICE), {"saved_hour"}),
    "info": (("info", TAIR_LOG), set()),
    "info of a file": (("info", "t.ctrace"), set()),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = ("input,cached,ttft", "500,0,68ms", "1000,0,131ms", "4000,0,544ms", "8000,4000,608ms")
    (tmp_path / "measured.csv").write_text("\n".join(rows))
    events = [
        {"type": "GetCacheLocation", "source": "a", "trigger_time_us": time, "keys": keys, "query_type": "prefix_match"}
        for time, keys in ((1, [1, 2]), (2, [1, 3]), (3, [1, 2]))
    ]
    (tmp_path / "apart.jsonl").write_text("\n".join(map(json.dumps, events)))
    assert run_cenote("trace", "convert", BAILIAN, "--out", tmp_path / "t.ctrace").returncode == 0
    return tmp_path


def answer_of(command: tuple[str, ...], folder: Path) -> Any:
    program = "trace" if command[0] == "info" else "optimize"
    ended = run_cenote(program, *command, "--json", cwd=folder)
    assert ended.returncode == (1 if UNMET[-1] in command and command[0] == "plan" else 0), ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("case", CASES)
def test_an_answer_has_the_members_of_its_schema_and_no_others(case: str, folder: Path) -> None:
    command, more = CASES[case]
    schema = schema_of(command[0])
    answer = answer_of(command, folder)
    assert complaints(answer, schema, schema) == []
    assert set(answer) == set(schema["required"]) | more


def renamed(value: Any) -> list[Any]:
    """The value once for each member anywhere in it, with that one's name changed; of a list, its first item only."""
    made: list[Any] = []
    if isinstance(value, list):
        made = [[item, *value[1:]] for item in renamed(value[0])] if value else []
    elif isinstance(value, dict):
        for name, member in value.items():
            rest = {other: value[other] for other in value if other != name}
            made += [{**rest, f"{name}_": member}, *({**rest, name: item} for item in renamed(member))]
    return made


@pytest.mark.parametrize("case", ["curve --by-instance", "cost", "calibrate", "plan --objective", "rank", "info"])
def test_a_renamed_member_is_found_wherever_it_stands(case: str, folder: Path) -> None:
    command, _ = CASES[case]
    schema = schema_of(command[0])
    variants = renamed(answer_of(command, folder))
    assert len(variants) >= len(schema["required"])
    assert all(complaints(variant, schema, schema) for variant in variants)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, "integer"), (1, "boolean"), (1.5, "integer"), (math.nan, "number"), (None, "object"), ("1", "number")],
)
def test_a_value_of_another_type_is_found(value: Any, kind: str) -> None:
    assert complaints(value, {"type": kind}, {})


def names_in(schema: Any) -> set[str]:
    """Names of all members that a schema has."""
    if isinstance(schema, list):
        return set().union(*map(names_in, schema))
    if not isinstance(schema, dict):
        return set()
    here = set(schema.get("properties", {})) if "type" in schema else set()
    return here.union(*map(names_in, schema.values()))


@pytest.mark.parametrize("name", [*NAMES, *OF_A_NODE])
def test_each_member_stands_in_the_page(name: str) -> None:
    page = (ROOT / "docs/optimize.md").read_text()
    assert [member for member in sorted(names_in(schema_of(name))) if not re.search(rf"\b{member}\b", page)] == []


def test_each_schema_has_a_case_and_each_optional_member_too() -> None:
    assert {path.stem for path in (TRACES / "schemas").iterdir()} == {*NAMES, *OF_A_NODE}
    for name in NAMES:
        schema = schema_of(name)
        tried = set().union(*(more for command, more in CASES.values() if command[0] == name))
        assert tried == set(schema["properties"]) - set(schema["required"])
