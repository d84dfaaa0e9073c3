"""The indexer within a process, from Python: events in, scores out; its C ABI, threads and forks."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cenote.errors as errors
import msgspec
import pytest
from cenote import _indexer_library as lib
from cenote.indexer import Ask, Indexer

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "services" / "indexer" / "library" / "cenote_indexer.h"
TEXT = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
MODEL, BLOCK = "m", 4
PROMPT = list(range(1000, 1064))  # 16 blocks


def stored(tokens: list[int], first: int = 0, last: int | None = None, medium: str = "GPU", **fields: Any) -> Any:
    """Blocks [first, last) of the tokens, as vLLM publishes them."""
    count = len(tokens) // BLOCK
    last = count if last is None else last
    names = [zlib.crc32(repr(tokens[: BLOCK * (i + 1)]).encode()) for i in range(count)]
    return {
        "type": "BlockStored",
        "block_hashes": names[first:last],
        "parent_block_hash": names[first - 1] if first else None,
        "token_ids": tokens[BLOCK * first : BLOCK * last],
        "block_size": BLOCK,
        "medium": medium,
        **fields,
    }


def removed(tokens: list[int], first: int, last: int, medium: str = "GPU") -> Any:
    event = stored(tokens, first, last)
    return {"type": "BlockRemoved", "block_hashes": event["block_hashes"], "medium": medium}


def batch(*events: Any, rank: int = 0) -> bytes:
    return msgspec.msgpack.encode([1.5, list(events), rank])


def blocks(index: Indexer, tokens: Any = None, model: str = MODEL) -> dict[str, int]:
    return {pod: score.blocks for pod, score in index.score(PROMPT if tokens is None else tokens, model).items()}


@pytest.fixture
def index() -> Iterator[Indexer]:
    with Indexer(memory=32 << 20, seed="test") as made:
        yield made


# ---------------------------------------------------------------------------------------------- events


def test_events_of_two_pods_become_scores_best_first(index: Indexer) -> None:
    assert index.feed("kv@b@m", 0, batch(stored(PROMPT, 0, 12))).fate == "applied"
    assert (
        index.feed(b"kv@a@m", 0, bytearray(batch(stored(PROMPT, 0, 4), stored(PROMPT, 4, 8, "CPU")))).fate == "applied"
    )
    scores = index.score(PROMPT, MODEL)
    assert list(scores) == ["b", "a"]
    assert scores["b"] == (12.0, 12, 48, 0, {"gpu": 12})
    assert scores["a"].score == pytest.approx(4 + 0.8 * 4)
    assert scores["a"].tiers == {"gpu": 4, "cpu": 4}
    assert (scores.blocks, scores.block_tokens, scores.degraded) == (16, BLOCK, frozenset())


def test_a_gap_is_closed_by_the_answer_to_its_question(index: Indexer) -> None:
    batches = [batch(stored(PROMPT, 4 * i, 4 * i + 4)) for i in range(4)]
    asked = index.feed("kv@a@m", 3, batches[3])
    assert (asked.fate, asked.missing, asked.state) == ("waiting", range(0, 3), "replaying")
    assert asked.ask == Ask("kv@a@m", asked.ask.number if asked.ask else 0, 0, False)
    done = index.replay(asked.ask, enumerate(batches))
    assert (done.applied, done.state, done.ask) == (4, "live", None)
    assert blocks(index) == {"a": 16}
    assert index.replay(asked.ask, enumerate(batches)).fate == "late"
    assert index.feed("kv@a@m", 3, batches[3]).fate == "repeated"


def test_a_question_without_an_answer_does_not_stop_other_pods(index: Indexer) -> None:
    asked = index.feed("kv@a@m", 5, batch(stored(PROMPT)))
    assert asked.ask is not None
    assert index.replay(asked.ask, None).state == "replaying"
    assert index.feed("kv@b@m", 0, batch(stored(PROMPT))).fate == "applied"
    assert blocks(index) == {"b": 16}


def test_without_replays_a_gap_costs_the_pods_blocks() -> None:
    with Indexer(memory=32 << 20, replays="none") as index:
        index.feed("kv@a@m", 0, batch(stored(PROMPT)))
        lost = index.feed("kv@a@m", 2, batch(stored(PROMPT, 0, 2)))
        assert (lost.fate, lost.cleared, lost.missing, lost.state) == ("applied", "loss", range(1, 2), "degraded")
        scores = index.score(PROMPT, MODEL)
        assert scores["a"].blocks == 2
        assert scores.degraded == {"a"}


def test_an_engine_that_begins_anew_loses_what_it_had(index: Indexer) -> None:
    for seq in range(3):
        index.feed("kv@a@m", seq, batch(stored(PROMPT, 4 * seq, 4 * seq + 4)))
    assert blocks(index) == {"a": 12}
    again = batch(stored(PROMPT, 0, 1))
    anew = index.feed("kv@a@m", 0, again)
    assert anew.cleared is not None
    if anew.fate == "waiting":  # questions to one publisher are a tenth of a second apart
        limit = time.monotonic() + 30
        while not (asks := index.asks()) and time.monotonic() < limit:
            index.advance()
        index.replay(asks[0], [(0, again)])
    assert blocks(index) == {"a": 1}
    assert index.asks() == []


def test_topics_have_settings_pods_are_cleared_and_closed(index: Indexer) -> None:
    index.open_topic("events", pod="a", model=MODEL, node="n1")
    index.open_topic("events", pod="a", model=MODEL, node="n1")
    with pytest.raises(errors.SpecMismatch):
        index.open_topic("events", pod="b", model=MODEL)
    index.feed("events", 0, batch(stored(PROMPT), stored(PROMPT, 0, 4, "CPU")))
    assert blocks(index) == {"a": 16}
    assert index.clear("a", "gpu")
    assert blocks(index) == {"a": 4}
    assert index.clear("a") and not index.clear("nowhere")
    assert blocks(index) == {}
    with pytest.raises(errors.InvalidArgument, match="paper"):
        index.clear("a", "paper")
    assert index.close_topic("events") and not index.close_topic("events")
    assert index.pods() == []


def test_pods_and_figures_show_the_state(index: Indexer) -> None:
    index.feed("kv@a@m", 0, batch(stored(PROMPT)))
    index.feed("kv@a@m", 1, b"\xc1")
    index.feed("kv@a@m", 2, batch(stored(PROMPT, 0, 4, "CPU")))
    index.advance()
    (state,) = index.pods()
    assert (state.pod, state.model, state.topic, state.last_seq, state.applied) == ("a", "m", "kv@a@m", 2, 3)
    assert state.blocks == {"cpu": 4}
    figures = index.figures()
    assert (figures.publishers, figures.stored, figures.bad_batches) == (1, 20, 1)
    assert 0 < figures.memory_in_use <= figures.memory == 32 << 20


# ---------------------------------------------------------------------------------------------- questions


def test_tokens_may_be_anything_that_has_integers(index: Indexer) -> None:
    index.feed("kv@a@m", 0, batch(stored(PROMPT)))

    class Tensor:
        def tolist(self) -> list[int]:
            return PROMPT

        def __iter__(self) -> Iterator[int]:
            return iter(PROMPT)

    read_only = memoryview(array("I", PROMPT)).toreadonly()
    holed = memoryview(array("I", [each for token in PROMPT for each in (token, 0)]))[::2]
    kinds = [PROMPT, tuple(PROMPT), iter(PROMPT), array("I", PROMPT), array("q", PROMPT), read_only, holed, Tensor()]
    for tokens in kinds:
        assert blocks(index, tokens) == {"a": 16}, type(tokens)
    with pytest.raises(errors.InvalidArgument, match="2\\^32"):
        index.score([-1] * 16, MODEL)
    with pytest.raises(errors.InvalidArgument, match="integers of 32 bits"):
        index.score(bytes(64), MODEL)
    with pytest.raises(errors.InvalidArgument):
        index.score(array("d", [1.0]), MODEL)
    with pytest.raises(TypeError):
        index.score(17, MODEL)


def test_numpy_arrays_are_read_where_they_lie(index: Indexer) -> None:
    numpy = pytest.importorskip("numpy")
    index.feed("kv@a@m", 0, batch(stored(PROMPT)))
    for kind in ("uint32", "int64"):
        assert blocks(index, numpy.array(PROMPT, dtype=kind)) == {"a": 16}


def test_unknown_models_and_short_prompts_have_no_scores(index: Indexer) -> None:
    index.feed("kv@a@m", 0, batch(stored(PROMPT)))
    assert index.score(PROMPT, "another") == {}
    assert index.score(PROMPT[:3], MODEL) == {}
    assert index.score([], MODEL) == {}
    assert index.score(PROMPT, MODEL, pods=["b"]) == {} == index.score(PROMPT, MODEL, pods=[])
    assert list(index.score(PROMPT, MODEL, pods=["b", "a"])) == ["a"]


def test_adapters_and_salts_have_prefixes_of_their_own(index: Indexer) -> None:
    salted = [["salt"], *([None] * 15)]
    index.feed("kv@a@m", 0, batch(stored(PROMPT, lora_name="tuned")))
    index.feed("kv@b@m", 0, batch(stored(PROMPT, extra_keys=salted)))
    assert list(index.score(PROMPT, MODEL, lora_name="tuned")) == ["a"] == list(index.score(PROMPT, "tuned"))
    assert list(index.score(PROMPT, MODEL, cache_salt="salt")) == ["b"]
    assert index.score(PROMPT, MODEL) == {}


def test_keys_of_a_prompt_answer_as_its_tokens_do(index: Indexer) -> None:
    index.feed("kv@a@m", 0, batch(stored(PROMPT, 0, 12), rank=3))
    keys = index.keys(PROMPT, MODEL)
    assert keys.typecode == "Q" and len(keys) == 16
    assert index.score_keys(keys, MODEL) == index.score_keys(list(keys), MODEL) == index.score(PROMPT, MODEL)
    assert index.lookup(keys) == [[("a", 3, "gpu")]] * 12
    assert index.lookup([]) == [] and len(index.keys(PROMPT, "another")) == 0


def test_options_that_can_never_work_are_refused() -> None:
    with pytest.raises(errors.InvalidArgument, match="xxh3, fnv64_cbor"):
        Indexer(key="md5")
    with pytest.raises(errors.InvalidArgument, match="engine"):
        Indexer(engine="another")
    with pytest.raises(errors.InvalidArgument, match="too small"):
        Indexer(memory=1000)
    with pytest.raises(errors.InvalidArgument, match="weight"):
        Indexer(memory=32 << 20, weights={"gpu": -1.0})
    for tokens in (-1, 65_537, 1 << 32):
        with pytest.raises(errors.InvalidArgument, match="block_tokens"):
            Indexer(memory=32 << 20, block_tokens=tokens)


def test_weights_and_keys_are_as_the_options_say() -> None:
    with Indexer(memory=32 << 20, key="fnv64_cbor", seed="7", weights={"gpu": 2.0}) as one:
        one.feed("kv@a@m", 0, batch(stored(PROMPT, 0, 4), stored(PROMPT, 4, 8, "CPU")))
        assert one.score(PROMPT, MODEL)["a"].score == 8.0
        with Indexer(memory=32 << 20, key="fnv64_cbor", seed="7") as other:
            other.feed("kv@a@m", 0, batch(stored(PROMPT, 0, 1)))
            assert one.keys(PROMPT, MODEL) == other.keys(PROMPT, MODEL)


@pytest.mark.parametrize("whole", [BLOCK // 2, 2 * BLOCK])
def test_blocks_have_one_size_where_the_options_say_so(whole: int) -> None:
    with Indexer(memory=32 << 20, block_tokens=whole) as index:
        index.feed("kv@a@m", 0, batch(stored(PROMPT, 0, 5)))
        scores = index.score(PROMPT, MODEL)
        assert (scores["a"].tokens, scores.block_tokens) == (5 * BLOCK // whole * whole, whole)
        index.feed("kv@a@m", 1, batch(removed(PROMPT, 1, 2)))
        assert index.score(PROMPT[: 3 * BLOCK], MODEL).get("a") == (
            None if whole > BLOCK else (2.0, 2, BLOCK, 0, {"gpu": 2})
        )


# ---------------------------------------------------------------------------------------------- life and threads


def test_a_closed_indexer_says_so() -> None:
    index = Indexer(memory=32 << 20)
    index.feed("kv@a@m", 0, batch(stored(PROMPT)))
    index.close()
    index.close()
    for call in (lambda: index.score(PROMPT, MODEL), lambda: index.feed("kv@a@m", 1, b""), index.figures, index.pods):
        with pytest.raises(errors.Closed):
            call()


def test_a_child_of_a_fork_is_told_to_make_another() -> None:
    program = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from cenote import errors
from cenote.indexer import Indexer
index = Indexer(memory=32 << 20)
index._turn.acquire()  # as another thread would have it at the time
child = os.fork()
if child == 0:
    for call in (lambda: index.score([1] * 16, "m"), lambda: index.feed("kv@a@m", 0, b""), index.figures):
        try:
            call()
        except errors.Forked:
            continue
        os._exit(1)
    with Indexer(memory=32 << 20) as other:
        other.figures()
    os._exit(0)
index._turn.release()
assert os.waitpid(child, 0)[1] == 0
index.figures()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_threads_ask_while_one_feeds(index: Indexer) -> None:
    tokens = array("I", PROMPT)
    index.feed("kv@a@m", 0, batch(stored(PROMPT)))
    is_over = threading.Event()
    wrong: list[object] = []
    counts: list[int] = []

    def ask() -> None:
        count = 0
        while not is_over.is_set() or count == 0:
            found = blocks(index, tokens)
            if found not in ({"a": 8}, {"a": 16}):
                wrong.append(found)
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for seq in range(1, 501):
        event = removed(PROMPT, 8, 16) if seq % 2 else stored(PROMPT, 8, 16)
        if index.feed("kv@a@m", seq, batch(event)).fate != "applied":
            wrong.append(seq)
    is_over.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(counts) == 4


def test_threads_that_feed_take_turns(index: Indexer) -> None:
    def feed(pod: int) -> None:
        for seq in range(100):
            index.feed(f"kv@pod{pod}@m", seq, batch(stored(PROMPT)))

    threads = [threading.Thread(target=feed, args=(pod,)) for pod in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert blocks(index) == {f"pod{pod}": 16 for pod in range(4)}
    assert {state.applied for state in index.pods()} == {100}


def test_a_reader_is_used_again_and_questions_leave_nothing_behind(index: Indexer) -> None:
    index.feed("kv@a@m", 0, batch(stored(PROMPT)))
    tokens = array("I", PROMPT)
    for _ in range(10):
        index.score(tokens, MODEL)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(1000):
        index.score(tokens, MODEL)
    gc.collect()
    assert len(gc.get_objects()) <= before + 10
    assert len(index._readers) == 1


# ---------------------------------------------------------------------------------------------- the C ABI


def test_the_library_needs_nothing_but_the_c_library() -> None:
    if os.environ.get("LD_PRELOAD"):
        pytest.skip("a sanitizer's library needs its run-time libraries")
    shown = subprocess.run(["ldd", lib.library._name], capture_output=True, text=True, check=True).stdout
    needed = {line.split()[0].split("/")[-1].split(".so")[0] for line in shown.splitlines()}
    assert needed <= {"linux-vdso", "libm", "libc", "ld-linux-x86-64", "ld-linux-aarch64", "libpthread", "libdl"}


def functions_in_header() -> dict[str, int]:
    """Name -> how many parameters it has."""
    found = re.findall(r"CENOTE_INDEXER_API [\w ]+?\**\s*\b(cenote_indexer_\w+)\(([^)]*)\);", TEXT)
    return {name: 0 if parameters.strip() == "void" else parameters.count(",") + 1 for name, parameters in found}


def test_every_function_of_the_header_is_declared() -> None:
    declared = {name: len(arguments) for name, arguments in lib.SIGNATURES.items()} | dict.fromkeys(lib.FREEING, 1)
    others = {"cenote_indexer_last_error": 0, "cenote_indexer_abi_version": 0}
    assert functions_in_header() == declared | others


def test_structures_and_enumerations_are_as_the_compiler_has_them(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    structures: dict[str, type[ctypes.Structure]] = {
        "cenote_indexer_answer": lib.Answer,
        "cenote_indexer_ask": lib.Ask,
        "cenote_indexer_figures": lib.Figures,
        "cenote_indexer_holder": lib.Holder,
        "cenote_indexer_holders": lib.Holders,
        "cenote_indexer_keys": lib.Keys,
        "cenote_indexer_options": lib.Options,
        "cenote_indexer_outcome": lib.Outcome,
        "cenote_indexer_pod": lib.Pod,
        "cenote_indexer_pods": lib.Pods,
        "cenote_indexer_question": lib.Question,
        "cenote_indexer_text": lib.Text,
        "cenote_indexer_topic": lib.Topic,
        "cenote_indexer_weight": lib.Weight,
    }
    in_header = set(re.findall(r"typedef struct \w+ \{.*?\} (\w+);", TEXT, flags=re.DOTALL))
    assert in_header == set(structures) | {"cenote_indexer_score_row"}
    wanted = {"cenote_indexer_score_row": lib.ROW_BYTES}
    for name, here in structures.items():
        wanted[name] = ctypes.sizeof(here)
        wanted |= {f"{name}.{field[0]}": getattr(here, field[0]).offset for field in here._fields_}
    for names, constants in (
        (lib.KEYS, ("XXH3", "FNV64_CBOR")),
        (lib.ENGINES, ("AUTO", "VLLM", "SGLANG", "CENOTE")),
        (lib.REPLAYS, ("REPLAYS", "NO_REPLAYS", "SNAPSHOTS_TOO")),
        (lib.FATES, [each.upper() for each in lib.FATES]),
        (lib.CLEARED, ("NOT_CLEARED", "RESTART", "LOSS", "RENEWAL")),
        (lib.STATES, [each.upper() for each in lib.STATES]),
    ):
        assert len(names) == len(constants)
        wanted |= {f"CENOTE_INDEXER_{constant}": number for number, constant in enumerate(constants)}
    lines = []
    for name in wanted:
        structure, _, field = name.partition(".")
        value = f"offsetof({structure}, {field})" if field else f"sizeof({name})" if name.islower() else name
        lines.append(f'printf("%s %lld\\n", "{name}", (long long){value});')
    source = tmp_path / "abi.c"
    source.write_text(
        f'#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{\n' + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    subprocess.run([compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", source, "-o", tmp_path / "abi"], check=True)
    shown = subprocess.run([tmp_path / "abi"], capture_output=True, text=True, check=True).stdout
    assert {name: int(value) for name, value in (line.split() for line in shown.splitlines())} == wanted


# ---------------------------------------------------------------------------------------------- cases as data


def tokens_of(description: str) -> list[int]:
    """Tokens "A:0:64+B:0:32": token i of sequence S is crc32("S:i") mod 120,000."""
    parts = [part.split(":") for part in description.split("+")]
    return [zlib.crc32(f"{name}:{i}".encode()) % 120_000 for name, a, b in parts for i in range(int(a), int(b))]


def event_of(step: dict[str, Any], facts: dict[str, Any]) -> Any:
    if "of" not in step:
        return [step["type"]] if facts.get("encoding") == "array" else step
    size = facts.get("block", 16)
    tokens = tokens_of(step["of"])
    first, last = step.get("blocks", (0, len(tokens) // size))
    extra = step.get("extra", {})
    seed = f"{facts.get('seed', 7)} {sorted(extra.items())}"
    names: list[Any] = [zlib.crc32(f"{seed} {tokens[: size * (i + 1)]}".encode()) for i in range(len(tokens) // size)]
    if facts.get("hashes", "int") == "bytes":
        names = [b"\xab" * 24 + name.to_bytes(8, "big") for name in names]
    common = {
        "block_hashes": names[first:last],
        "medium": step.get("medium", "GPU"),
        "group_idx": step.get("group_idx"),
    }
    if step["type"] == "BlockRemoved":
        return {"type": "BlockRemoved", **common}
    known = step.get("tokenless", False)
    event = {
        "type": "BlockStored",
        "parent_block_hash": names[first - 1] if first and not known else None,
        "token_ids": [] if known else tokens[size * first : size * last],
        "block_size": size,
        "lora_name": step.get("lora_name"),
        "extra_keys": [extra.get(str(i)) for i in range(first, last)] if extra else None,
    }
    return event | common | {name: step[name] for name in step if name.startswith("kv_cache_spec")}


def case_files() -> list[Path]:
    places = (ROOT / "tests/data/indexer/scores.json", ROOT.parent / "shared/cases/indexer/scores.json")
    return [place for place in places if place.exists()]


def cases() -> list[Any]:
    """Those without extra keys in questions, for which Python has no argument."""
    found = [case for place in case_files() for case in json.loads(place.read_text())["cases"]]
    return [pytest.param(case, id=case["name"]) for case in found if "extra" not in json.dumps(case)]


@pytest.mark.parametrize("case", cases())
def test_a_case_has_its_scores(case: dict[str, Any]) -> None:
    with Indexer(memory=32 << 20, replays="none", weights=case.get("weights")) as index:
        facts, numbers = case["publishers"], dict.fromkeys(case["publishers"], 0)
        pods = {key: one.get("pod", "10.0.0.1:8000") for key, one in facts.items()}
        for key, one in facts.items():
            index.open_topic(f"topic {key}", pod=pods[key], model=one.get("model", "m"), node=one.get("node", ""))
        for step in case["steps"]:
            if "publish" in step:
                key = step["publish"]
                events = [event_of(event, facts[key]) for event in step["events"]]
                index.feed(f"topic {key}", numbers[key], batch(*events, rank=step.get("dp_rank", 0)))
                numbers[key] += 1
            elif "restart" in step:
                index.clear(pods[step["restart"]])
            elif "close" in step:
                index.close_topic(f"topic {step['close']}")
            else:
                index.advance()
                asked = step["score"]
                found = index.score(
                    tokens_of(asked["of"]),
                    asked.get("model_name", "m"),
                    lora_name=asked.get("lora_name"),
                    pods=asked.get("pod_identifiers"),
                )
                assert {pod: each.score for pod, each in found.items()} == pytest.approx(step["expect"]), step
