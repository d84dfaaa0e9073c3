"""`cenote trace` as a user runs it: `.ctrace` files answer as the logs that they were made of."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from node import ROOT, run_cenote

TRACES = ROOT / "tests/data/optimizer"
NAMES = ("mooncake", "bailian", "tair-log", "tair-schema")
SIZE = ("--block-tokens", "16")


def answer_of(*arguments: str | Path) -> dict[str, Any]:
    ended = run_cenote(*arguments, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def curve(trace: Path, *arguments: str) -> dict[str, Any]:
    answer = answer_of("optimize", "curve", trace, *arguments)
    del answer["format"]
    return answer


def convert(name: str, folder: Path, *arguments: str, command: str = "convert") -> Path:
    out = folder / f"{name}.ctrace"
    answer_of("trace", command, TRACES / f"{name}.jsonl", "--out", out, *SIZE, *arguments)
    return out


def refused(code: int, *arguments: str | Path) -> str:
    ended: subprocess.CompletedProcess[str] = run_cenote(*arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert ended.stderr.startswith("cenote: ")
    return ended.stderr


@pytest.mark.parametrize("order", ["fwd", "rev"])
@pytest.mark.parametrize("name", NAMES)
def test_the_curve_of_a_converted_trace_is_that_of_the_log(name: str, order: str, tmp_path: Path) -> None:
    arguments = ("--order", order, "--policies", "lru,arc,tblru,auto")
    wanted = curve(TRACES / f"{name}.jsonl", *arguments, *SIZE)
    assert curve(convert(name, tmp_path), *arguments) == wanted
    full = convert(name, tmp_path, "--full-blocks", "--force")
    assert curve(full, *arguments) == wanted
    assert answer_of("trace", "info", full)["full_blocks"]


@pytest.mark.parametrize("name", NAMES)
def test_an_anonymised_trace_has_the_same_curve_and_other_identities(name: str, tmp_path: Path) -> None:
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
    one, other = (convert(name, tmp_path / folder, command="anonymise") for folder in ("one", "other"))
    wanted = curve(TRACES / f"{name}.jsonl", *SIZE)
    assert curve(one) == curve(other) == wanted
    assert one.read_bytes() != other.read_bytes()
    facts = answer_of("trace", "info", one)
    assert (facts["anonymised"], facts["first_ms"]) == (True, 0)
    again = tmp_path / "again.ctrace"
    answer_of("trace", "convert", one, "--out", again)
    assert answer_of("trace", "info", again) == facts


def test_anonymised_times_begin_at_zero_and_identities_are_gone(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    ids = [[0x1234567890ABCDEF, 0x0FEDCBA098765432], [0x1234567890ABCDEF]]
    rows = [{"timestamp": 5_000 + i, "input_length": 512 * len(each), "hash_ids": each} for i, each in enumerate(ids)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    kept, hidden = tmp_path / "kept.ctrace", tmp_path / "hidden.ctrace"
    assert answer_of("trace", "convert", log, "--out", kept)["first_ms"] == 5_000
    facts = answer_of("trace", "anonymise", log, "--out", hidden)
    assert (facts["first_ms"], facts["last_ms"], facts["distinct"]) == (0, 1, 2)
    assert ids[0][0].to_bytes(8, "little") in kept.read_bytes()
    assert ids[0][0].to_bytes(8, "little") not in hidden.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_info_says_of_a_converted_trace_what_it_says_of_the_log(name: str, tmp_path: Path) -> None:
    log = TRACES / f"{name}.jsonl"
    wanted = answer_of("trace", "info", log, *SIZE)
    out = convert(name, tmp_path)
    facts = answer_of("trace", "info", out)
    assert (wanted.pop("format"), facts.pop("format")) == (name, "cenote")
    assert (wanted.pop("bytes"), facts.pop("bytes")) == (log.stat().st_size, out.stat().st_size)
    assert facts.pop("bytes_per_reference") < 2 < wanted.pop("bytes_per_reference")
    assert facts == wanted
    text = run_cenote("trace", "info", out).stdout
    for member in ("requests", "tokens", "references", "distinct", "longest", "block_tokens", "lines"):
        assert str(facts[member]) in text.split() or f"{facts[member]}," in text


def test_a_converted_trace_is_replayed_as_the_log_is(tmp_path: Path) -> None:
    log = TRACES / "mooncake.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for row in rows:  # a replay's blocks have 512 tokens
        row["input_length"] *= 32
    wide = tmp_path / "wide.jsonl"
    wide.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "wide.ctrace"
    answer_of("trace", "convert", wide, "--out", out)
    options = ("--simulate", "--capacity-sweep", "10:100:2x", "--policies", "lru,arc", "--json")
    answers = [run_cenote("replay", trace, *options) for trace in (wide, out)]
    assert [each.returncode for each in answers] == [0, 0]
    assert answers[0].stdout == answers[1].stdout


def test_options_that_say_something_else_than_the_file_are_refused(tmp_path: Path) -> None:
    out = convert("bailian", tmp_path)
    assert "has blocks of 16 tokens" in refused(2, "optimize", "curve", out, "--block-tokens", "32")
    assert "leave --time-unit out" in refused(2, "optimize", "curve", out, "--time-unit", "s")
    assert "numbers in place of keys" in refused(2, "optimize", "curve", out, "--merge-instances")
    assert "--format bailian cannot read it" in refused(2, "optimize", "curve", out, "--format", "bailian")
    assert curve(out, "--format", "cenote", *SIZE) == curve(out)
    log = TRACES / "bailian.jsonl"
    assert "is no .ctrace file" in refused(1, "optimize", "curve", log, "--format", "cenote")


def test_a_file_is_only_replaced_when_that_is_wanted(tmp_path: Path) -> None:
    out = convert("mooncake", tmp_path)
    before = out.read_bytes()
    arguments = ("trace", "convert", TRACES / "bailian.jsonl", "--out", out, *SIZE)
    assert "--force replaces it" in refused(2, *arguments)
    assert out.read_bytes() == before
    answer_of(*arguments, "--force")
    assert answer_of("trace", "info", out)["sessions"] > 1
    assert "is no plain file" in refused(2, "trace", "convert", out, "--out", tmp_path, "--force")
    assert sorted(each.name for each in tmp_path.iterdir()) == [out.name]


def test_a_damaged_file_is_refused_with_the_place(tmp_path: Path) -> None:
    out = convert("mooncake", tmp_path)
    whole = out.read_bytes()
    out.write_bytes(whole[:-1])
    assert f"{out}: the end is cut off or damaged" in refused(1, "trace", "info", out)
    out.write_bytes(whole[:140] + bytes([whole[140] ^ 1]) + whole[141:])
    assert f"{out}: frame 0, at byte 96: it is damaged" in refused(1, "optimize", "curve", out)
    again = tmp_path / "again.ctrace"
    refused(1, "trace", "convert", out, "--out", again)
    assert not again.exists()


@pytest.mark.parametrize(
    "line",
    [
        {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": [1]},
        {"ts": 1.5, "events": [["BlockRemoved", [1]]]},
        [1.5, [{"type": "AllBlocksCleared"}], 0],
    ],
)
def test_events_of_a_cache_are_no_requests(line: object, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text(json.dumps(line) + "\n")
    assert "only show what was cached, not what was asked" in refused(1, "trace", "info", events)


@pytest.mark.parametrize("tokens", ["prompt_tokens", "input_length", "isl"])
def test_requests_with_hashes_of_blocks_are_no_events(tokens: str, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    lines = [{"created_time": time, tokens: 32, "block_hashes": ["a", "b"]} for time in range(3)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = run_cenote("trace", "info", log, "--block-tokens", "16")
    assert shown.returncode == 0, shown.stderr
    assert "3 requests" in shown.stdout


@pytest.mark.parametrize("arguments", [("convert",), ("anonymise", "in.jsonl"), ("info",), ("merge",), ()])
def test_a_wrong_command_line_ends_with_2(arguments: tuple[str, ...]) -> None:
    refused(2, "trace", *arguments)
