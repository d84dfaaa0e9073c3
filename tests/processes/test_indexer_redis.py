"""`cenote indexer` with its index on a Redis server, shared with other indexers and with llm-d."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import llmd_cases
import pytest
from certificates import self_signed
from indexer import BLOCK, MODEL, EnginePublisher, Herd, Indexer, prompt, settings_of, until_right
from node import run_cenote, until
from redis import Redis, SecuredRedis

A, B, C = prompt(1, 8), prompt(2, 8), prompt(3, 8)
SEED = "42"
OTHER_MODEL = "other/model"


@pytest.fixture
def server() -> Iterator[Redis]:
    made = Redis()
    yield made
    made.close()


def shared(server: Redis, *sets: str) -> tuple[str, ...]:
    return (
        "index.backend=redis",
        f"index.url={server.url}",
        "index.key=fnv64_cbor",
        f"index.seed={SEED}",
        *sets,
    )


def one_pod(herd: Herd, server: Redis, *sets: str) -> tuple[Indexer, EnginePublisher]:
    engine = herd.publisher("a")
    indexer = herd.indexer(*settings_of(engine), *shared(server, *sets))
    engine.store(A)
    until_right(indexer, [engine], [A, B], exact=True)
    return indexer, engine


def entry(pod: str, tier: str = "gpu", *, speculative: bool = False, group: int | None = None) -> str:
    """A field as Go's encoding/json writes llm-d's PodEntry."""
    return (
        f'{{"PodIdentifier":"{pod}","DeviceTier":"{tier}","Speculative":{str(speculative).lower()},'
        f'"HasGroup":{str(group is not None).lower()},"GroupIdx":{group or 0}}}'
    )


def fields(server: Redis, key: str | int) -> list[str]:
    return re.findall(r"\{[^}]*\}", server.ask("HKEYS", str(key)).decode())


def keys_of(indexer: Indexer, tokens: Sequence[int], model: str = MODEL) -> list[str]:
    found = indexer.ask("POST", "/v1/keys", {"model_name": model, "token_ids": list(tokens)}).json
    return [str(each) for each in found["keys"]]


def names(server: Redis) -> set[str]:
    """All keys of the server."""
    found: set[str] = set()
    cursor = "0"
    while True:
        words = re.findall(r"\$\d+\r\n([^\r]*)\r\n", server.ask("SCAN", cursor, "COUNT", "500").decode())
        cursor, more = words[0], words[1:]
        found.update(more)
        if cursor == "0":
            return found


def blocks(server: Redis) -> set[str]:
    return {each for each in names(server) if each.isdecimal()}


# ---------------------------------------------------------------------------------------------- scores


@pytest.mark.parametrize("hashes", ["int", "signed", "bytes"])
def test_a_publisher_is_scored_exactly(herd: Herd, server: Redis, hashes: str) -> None:
    engine = herd.publisher("a", hashes=hashes)
    engine.store(A)
    indexer = herd.indexer(*settings_of(engine), *shared(server))
    until_right(indexer, [engine], [A, B], exact=True)
    assert indexer.scores(A).score("a") == 8
    assert indexer.binary_scores(A).score("a") == 8
    engine.store(A[:BLOCK] + B)  # it shares the first block
    engine.cut(A, 5)
    until_right(indexer, [engine], [A, A[:BLOCK] + B, B], exact=True)
    engine.evict([A[: 2 * BLOCK]])  # a hole
    until_right(indexer, [engine], [A], exact=True)
    assert indexer.scores(A).score("a") == 1
    engine.clear()
    until_right(indexer, [engine], [A, A[:BLOCK] + B], exact=True)
    assert blocks(server) == set()


def test_the_best_tier_of_a_block_counts(herd: Herd, server: Redis) -> None:
    indexer, engine = one_pod(herd, server)
    known = [engine.hash_of(each) for each in engine.prefixes(A)]
    event = {"type": "BlockStored", "block_hashes": known, "parent_block_hash": None, "token_ids": [], "block_size": 4}
    engine.publish({**event, "medium": "CPU"})
    for each in engine.prefixes(A):
        engine.blocks[each].add("cpu")
    engine.evict(engine.prefixes(A)[4:])
    until_right(indexer, [engine], [A], exact=True)
    assert indexer.scores(A).score("a") == pytest.approx(4 + 4 * 0.8)
    assert indexer.scores(A).pods["a"]["tiers"] == {"gpu": 4, "cpu": 4}
    engine.evict(engine.prefixes(A), medium="CPU")
    until_right(indexer, [engine], [A], exact=True)
    assert indexer.scores(A).score("a") == 4


def test_every_kind_of_question_is_answered(herd: Herd, server: Redis) -> None:
    indexer, _ = one_pod(herd, server)
    keys = keys_of(indexer, A)
    assert len(keys) == 8
    found = indexer.scores(block_keys=keys)
    assert found.score("a") == 8 and found.block_tokens == BLOCK
    assert indexer.scores(A, pod_identifiers=["b"]).pods == {}
    assert indexer.scores(A, pod_identifiers=["a", "b"]).score("a") == 8
    holders = indexer.ask("POST", "/v1/lookup", {"block_keys": [*keys, "1"]}).json
    assert json.dumps(holders).count('"gpu"') == 8
    assert indexer.scores(A, model="unknown").pods == {}
    assert indexer.scores(A[:2]).pods == {}
    assert indexer.ask("GET", "/v1/dump", query={"pod": "a"}).status == 503
    speculation = {"model_name": MODEL, "token_ids": list(A), "pod_identifiers": ["a"]}
    assert indexer.ask("POST", "/v1/speculative", speculation).status == 503


def test_a_pod_that_is_cleared_by_an_operator_is_empty(herd: Herd, server: Redis) -> None:
    indexer, _ = one_pod(herd, server)
    assert indexer.ask("POST", "/v1/clear", {"pod": "a", "medium": "cpu"}).status == 200
    assert indexer.scores(A).score("a") == 8
    assert indexer.ask("POST", "/v1/clear", {"pod": "a"}).status == 200
    until("the pod is empty", lambda: indexer.scores(A).pods == {})
    assert blocks(server) == set()


def test_a_publisher_that_is_removed_takes_its_entries_with_it(herd: Herd, server: Redis) -> None:
    one, other = herd.publisher("a"), herd.publisher("b")
    indexer = herd.indexer(*shared(server))
    for each in (one, other):
        indexer.add(each)
        each.store(A)
    until_right(indexer, [one, other], [A], exact=True)
    assert indexer.remove("a") in (200, 204)
    until("its entries are gone", lambda: set(indexer.scores(A).pods) == {"b"})
    assert indexer.scores(A).score("b") == 8


# ---------------------------------------------------------------------------------------------- llm-d's format


def test_entries_are_llmds_byte_for_byte(herd: Herd, server: Redis) -> None:
    indexer, engine = one_pod(herd, server)
    keys = keys_of(indexer, A)
    assert [fields(server, key) for key in keys] == [[entry("a")]] * 8
    for prefix, key in zip(engine.prefixes(A), keys, strict=True):
        assert key.encode() in server.ask("ZRANGE", f"engine:{engine.hash_of(prefix)}", "0", "-1")
    engine.publish(engine.stored(engine.prefixes(B)[:1], group_idx=3, kv_cache_spec_kind="full_attention"))
    first = keys_of(indexer, B)[0]
    until("the group is written", lambda: fields(server, first) == [entry("a", group=3)])
    assert {each for each in names(server) if not each.isdecimal()} > {
        f"engine:{engine.hash_of(engine.prefixes(A)[0])}"
    }
    # llm-d looks at all keys but those of engines when it clears a pod.
    assert all(each.isdecimal() or each.startswith("engine:") for each in names(server))
    engine.evict(reversed(engine.prefixes(A)))
    until("keys without pods are gone", lambda: blocks(server) == {first})
    own = {f"engine:{engine.hash_of(each)}" for each in engine.prefixes(A)}
    until("so are their names", lambda: not own & names(server))


def test_entries_that_llmd_has_written_are_answered(herd: Herd, server: Redis) -> None:
    indexer, _ = one_pod(herd, server, "index.block_tokens=4")
    for i, key in enumerate(keys_of(indexer, A)):
        server.ask("HSET", key, entry("go-1"), "")
        server.ask("HSET", key, entry("go-2", "cpu", speculative=True, group=1), "")
        if i < 3:
            server.ask("HSET", key, entry("go-2"), "")
    found = indexer.scores(A)
    assert found.score("a") == found.score("go-1") == 8
    assert found.score("go-2") == pytest.approx(3 + 5 * 0.8)
    # A model whose events came to llm-d alone: its blocks have the configured size.
    for key in keys_of(indexer, C, OTHER_MODEL):
        server.ask("HSET", key, entry("go-3"), "")
    assert indexer.scores(C, OTHER_MODEL).score("go-3") == 8
    # A clear finds them, too.
    assert indexer.ask("POST", "/v1/clear", {"pod": "go-3"}).status == 200
    until("they are gone", lambda: indexer.scores(C, OTHER_MODEL).pods == {})
    assert indexer.scores(A).score("go-1") == 8


def test_a_parent_that_llmd_has_written_is_known(herd: Herd, server: Redis) -> None:
    engine = herd.publisher("a")
    indexer = herd.indexer(*settings_of(engine), *shared(server, "index.block_tokens=4"))
    keys = keys_of(indexer, A)
    for prefix, key in list(zip(engine.prefixes(A), keys, strict=True))[:3]:
        server.ask("ZADD", f"engine:{engine.hash_of(prefix)}", "0", key)
        server.ask("HSET", key, entry("a"), "")
        engine.blocks[prefix] = {"gpu"}
    engine.publish(engine.stored(engine.prefixes(A)[3:]))
    for prefix in engine.prefixes(A):
        engine.blocks[prefix] = {"gpu"}
    until_right(indexer, [engine], [A], exact=True)


def test_garbage_is_passed_and_harms_no_other_pod(herd: Herd, server: Redis) -> None:
    indexer, engine = one_pod(herd, server)
    keys = keys_of(indexer, A)
    wrong = [
        "{}", "[]", "", "a@gpu", "\x00\xff", '{"PodIdentifier":"b"}', '{"PodIdentifier":1,"DeviceTier":"gpu"}',
        '{"PodIdentifier":"b","DeviceTier":"gpu"', '{"PodIdentifier":"' + "x" * 300 + '","DeviceTier":"gpu"}',
        "{" * 5000, '{"PodIdentifier":"\\ud800x","DeviceTier":',
    ]  # fmt: skip
    for key in keys:
        for field in wrong:
            server.ask("HSET", key, field.encode("utf-8", "surrogateescape"), "")
    server.ask("HSET", keys[0], '{ "Other": [1], "PodIdentifier": "odd" }', "")
    server.ask("HSET", keys[0], ' {"DeviceTier":"cpu", "Extra":"x", "PodIdentifier":"c\\u003cd"} ', "")
    found = indexer.scores(A)
    assert set(found.pods) == {"a", "c<d"} and found.score("a") == 8 and found.score("c<d") == pytest.approx(0.8)
    first = keys_of(indexer, B)[0]
    server.ask("SET", first, "a string")
    assert indexer.scores(B).pods == {}
    server.ask("SET", f"engine:{engine.hash_of(engine.prefixes(C)[0])}", "another string")
    engine.store(B)
    engine.store(C)
    engine.evict([C[:BLOCK]])
    until("other events are written", lambda: len(fields(server, keys_of(indexer, C)[1])) == 1)
    assert indexer.scores(A).score("a") == 8
    server.ask("DEL", first)
    assert indexer.counter("redis_strange_entries_total") > 0
    assert indexer.ask("POST", "/v1/clear", {"pod": "a"}).status == 200
    until("the pod is empty", lambda: "a" not in indexer.scores(A).pods)
    assert indexer.scores(A).score("c<d") > 0


# ---------------------------------------------------------------------------------------------- llm-d's answers

RECORDED = llmd_cases.recorded()
CASES = [*RECORDED["cases"], *llmd_cases.cut_cases()]
Entries = dict[str, list[str]]


def words_of(reply: bytes) -> list[str]:
    return re.findall(r"\$\d+\r\n([^\r]*)\r\n", reply.decode())


def full_field(brief: str) -> str:
    pod, tier, *group = brief.split()
    return entry(pod, tier, group=int(group[0]) if group else None)


def entries_of(server: Redis) -> Entries:
    """All keys of llm-d's kinds: fields of blocks, scores and members of engines' names."""
    found: Entries = {}
    for key in names(server):
        if key.isdecimal():
            found[key] = sorted(fields(server, key))
        elif re.fullmatch(r"engine:\d+", key):
            flat = words_of(server.ask("ZRANGE", key, "0", "-1", "WITHSCORES"))
            found[key] = [f"{score} {member}" for member, score in zip(flat[::2], flat[1::2], strict=True)]
    return found


def full_entries(brief: Entries) -> Entries:
    return {key: rows if ":" in key else sorted(map(full_field, rows)) for key, rows in brief.items()}


def recorded_scores(indexer: Indexer, question: llmd_cases.Facts) -> dict[str, float]:
    found = indexer.ask("POST", "/v1/scores", llmd_cases.question_of(question)).json
    return {each["pod"]: each["score"] for each in found["scores"]}


def until_recorded(indexer: Indexer, server: Redis, step: llmd_cases.Facts) -> None:
    """Waits until a step's entries, or its scores, are those that it has."""
    if "entries" in step:
        wanted = full_entries(step["entries"])
        until("entries are llm-d's", lambda: entries_of(server) == wanted)
    else:
        scores = pytest.approx(step["expect"])
        until(f"scores are llm-d's: {step}", lambda: recorded_scores(indexer, step["score"]) == scores)


def fill(server: Redis, brief: Entries) -> None:
    """In place of all entries that are there."""
    for key in entries_of(server):
        server.ask("DEL", key)
    for key, rows in brief.items():
        for row in rows:
            words = ("ZADD", key, *row.split()) if ":" in key else ("HSET", key, full_field(row), "")
            server.ask(*words)


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_entries_and_scores_are_those_that_llmd_has_from_the_same_events(
    herd: Herd, server: Redis, case: Mapping[str, Any]
) -> None:
    engines, sets = {}, []
    for pod, facts in case["publishers"].items():
        engines[pod] = herd.publisher(pod, model=facts.get("model", llmd_cases.MODEL))
        sets += settings_of(engines[pod], clear=facts.get("clear", "auto"))
    indexer = herd.indexer(*sets, *shared(server, f"index.seed={RECORDED['seed']}", "index.block_tokens=16"))
    for each in engines.values():
        each.until_subscribed()
    batches = 0
    for step in case["steps"]:
        if "publish" in step:
            pod = step["publish"]
            engines[pod].publish_payload(llmd_cases.payload_of(step["events"], case["publishers"][pod]))
            batches += 1
            # The order counts, and the sockets of two pods have none.
            until("it is read", lambda count=batches: indexer.counter("batches_total") == count)
        else:
            until_recorded(indexer, server, step)


def test_entries_of_llmd_are_answered_as_it_answers(herd: Herd, server: Redis) -> None:
    indexer = herd.indexer(*shared(server, f"index.seed={RECORDED['seed']}", "index.block_tokens=16"))
    until("it is ready", indexer.is_ready)
    for case in RECORDED["cases"]:
        questions: list[Any] = []  # since the last event
        for step in case["steps"]:
            if "publish" in step:
                questions = []
            elif "score" in step:
                questions.append(step)
            else:
                fill(server, step["entries"])
                for each in questions:
                    found = recorded_scores(indexer, each["score"])
                    assert found == pytest.approx(each["expect"]), (case["name"], each)


# ---------------------------------------------------------------------------------------------- replicas


def test_two_indexers_on_one_server_agree(herd: Herd, server: Redis) -> None:
    engines = [herd.publisher("a"), herd.publisher("b")]
    one = herd.indexer(*settings_of(*engines), *shared(server))
    other = herd.indexer(*settings_of(*engines), *shared(server))
    questions = [A, B, A[:BLOCK] + B, C]
    engines[0].store(A)
    engines[1].store(A[: 3 * BLOCK])
    engines[1].store(A[:BLOCK] + B)
    for each in (one, other):
        until_right(each, engines, questions, exact=True)
    engines[0].cut(A, 2)
    engines[1].clear()
    engines[1].store(C)
    for each in (one, other):
        until_right(each, engines, questions, exact=True)
    assert keys_of(one, A) == keys_of(other, A)


def test_an_indexer_without_publishers_answers_what_another_one_writes(herd: Herd, server: Redis) -> None:
    engine = herd.publisher("a")
    writing = herd.indexer(*settings_of(engine), *shared(server))
    reading = herd.indexer(*shared(server))
    engine.store(A)
    until_right(writing, [engine], [A], exact=True)
    until("the other one learns the size of blocks", lambda: reading.scores(A).score("a") == 8)
    assert reading.scores(A).block_tokens == BLOCK
    writing.kill()
    assert reading.scores(A).score("a") == 8


def test_an_indexer_that_was_killed_is_warm_and_exact_again(herd: Herd, server: Redis) -> None:
    indexer, engine = one_pod(herd, server)
    indexer.kill()
    engine.cut(A, 6)
    indexer.start()
    until("it is warm", lambda: indexer.scores(A).score("a") in (6, 8))
    until_right(indexer, [engine], [A, B], exact=True)


def test_an_engine_that_began_anew_while_no_indexer_ran_loses_its_old_blocks(herd: Herd, server: Redis) -> None:
    indexer, engine = one_pod(herd, server)
    indexer.kill()
    engine.restart(seed="another")
    engine.store(B)
    indexer.start()
    until_right(indexer, [engine], [A, B], exact=True)
    assert indexer.scores(A).pods == {}


def test_ranks_are_one_pod_and_where_one_begins_anew_the_other_is_asked_again(herd: Herd, server: Redis) -> None:
    ranks = [herd.publisher("pod", rank=rank) for rank in (0, 1)]
    sets = []
    for i, each in enumerate(ranks):
        sets += [f"publishers.r{i}.endpoint={each.endpoint}", f"publishers.r{i}.replay={each.replay}"]
    indexer = herd.indexer(*sets, *shared(server))
    ranks[0].store(A[: 3 * BLOCK])
    ranks[1].store(B)
    until("both are there", lambda: (indexer.scores(A).score("pod"), indexer.scores(B).score("pod")) == (3, 8))
    ranks[1].restart(seed="another")
    ranks[1].store(C)
    until("the new life is scored", lambda: indexer.scores(C).score("pod") == 8)
    until("the other one is back", lambda: indexer.scores(A).score("pod") == 3)
    until("the pod is not degraded", lambda: indexer.scores(A).degraded == set())
    assert indexer.scores(B).pods == {}
    ranks[1].clear()
    until("one is cleared, and so are all", lambda: indexer.scores(A).pods == indexer.scores(C).pods == {})
    ranks[0].store(B)
    until("what is stored counts", lambda: indexer.scores(B).score("pod") == 8)


# ---------------------------------------------------------------------------------------------- away


def test_a_server_that_was_emptied_is_filled_again(herd: Herd, server: Redis) -> None:
    indexer, engine = one_pod(herd, server)
    other = herd.indexer(*settings_of(engine), *shared(server))
    until_right(other, [engine], [A, B], exact=True)
    server.ask("FLUSHALL")
    for each in (indexer, other):
        until_right(each, [engine], [A, B], exact=True)
    until("it was noticed", lambda: indexer.counter("redis_rebuilt_publishers_total") > 0)


def test_a_server_that_is_killed_costs_answers_and_no_errors_and_all_heals(herd: Herd, server: Redis) -> None:
    indexer, engine = one_pod(herd, server)
    until("it is ready", indexer.is_ready)
    server.kill()
    until("it is not ready", lambda: not indexer.is_ready())
    assert indexer.scores(A).pods == {}
    keys = indexer.ask("POST", "/v1/keys", {"model_name": MODEL, "token_ids": list(A)})
    assert keys.status == 200 and len(keys.json["keys"]) == 8
    engine.store(B)
    engine.cut(A, 3)
    assert indexer.scores(B).pods == {}
    assert indexer.counter("redis_serving") == 0
    server.start()  # empty: it saves nothing
    until("it is ready again", indexer.is_ready)
    until_right(indexer, [engine], [A, B], exact=True)
    until("the pod is not degraded", lambda: indexer.scores(A).degraded == set())
    assert indexer.counter("redis_rebuilt_publishers_total") >= 1


def test_a_server_that_comes_back_with_older_data_brings_no_removed_block_back(herd: Herd, server: Redis) -> None:
    engine = herd.publisher("a")
    engine.store(A)
    indexer = herd.indexer(*settings_of(engine), *shared(server))
    until_right(indexer, [engine], [A], exact=True)
    assert server.ask("SAVE") == b"+OK\r\n"
    engine.cut(A, 3)
    until_right(indexer, [engine], [A], exact=True)
    server.kill()
    server.start()  # as SAVE left it: all of A
    until("the return is noticed", lambda: indexer.logged("the shared index has lost its data"))
    until_right(indexer, [engine], [A], exact=True)


def test_a_server_that_stands_still_hangs_no_question(herd: Herd, server: Redis) -> None:
    indexer, engine = one_pod(herd, server)
    server.stop()
    try:
        engine.store(B)
        for _ in range(10):
            found = indexer.scores(A)  # within the deadline of a question, or at once
            assert found.pods == {} or found.score("a") == 8
        until("it is not ready", lambda: not indexer.is_ready())
        assert indexer.scores(A).pods == {}
    finally:
        server.resume()
    until_right(indexer, [engine], [A, B], exact=True)
    until("it is ready again", indexer.is_ready)


def test_an_indexer_starts_without_its_server(herd: Herd, server: Redis) -> None:
    engine = herd.publisher("a")
    server.kill()
    engine.store(A)
    indexer = herd.indexer(*settings_of(engine), *shared(server))
    assert not indexer.is_ready()
    assert indexer.scores(A).pods == {}
    server.start()
    until_right(indexer, [engine], [A], exact=True)
    until("it is ready", indexer.is_ready)


def test_what_waits_for_a_server_that_is_away_is_bounded(herd: Herd, server: Redis) -> None:
    engine = herd.publisher("a", ring=100)
    indexer = herd.indexer(*settings_of(engine), *shared(server))
    engine.store(A)
    until_right(indexer, [engine], [A], exact=True)
    server.kill()
    until("it is away", lambda: not indexer.is_ready())
    before = indexer.resident_bytes()
    long = prompt(9, 20_000)
    event = {
        "type": "BlockStored",
        "block_hashes": list(range(1, 20_001)),
        "parent_block_hash": None,
        "token_ids": list(long),
        "block_size": BLOCK,
        "medium": "GPU",
    }
    payload = engine.encode([event])

    def is_full() -> bool:
        for _ in range(20):
            engine.publish_payload(payload)
        return indexer.counter("redis_dropped_batches_total") > 0

    until("batches are dropped", is_full, pause=0.02)
    assert indexer.counter("redis_waiting_bytes") <= 64 << 20
    assert indexer.resident_bytes() - before < 200 << 20
    until("the pod is degraded", lambda: indexer.scores(A).degraded == {"a"})
    until("its state says so", lambda: indexer.state("a") == "degraded")
    server.start()
    until("its publisher begins anew", lambda: indexer.counter("redis_rebuilt_publishers_total") > 0)
    begin = long[: 200 * BLOCK]  # all blocks may take longer than a question has
    until("it is scored", lambda: indexer.scores(begin).score("a") == 200)


# ---------------------------------------------------------------------------------------------- configuration


def refusal(*sets: str) -> str:
    words = [word for each in ("indexer.listen=127.0.0.1:0", "indexer.grpc=off", *sets) for word in ("--set", each)]
    done = run_cenote("indexer", *words)
    assert done.returncode != 0
    return done.stderr + done.stdout


def test_configurations_that_cannot_work_are_refused_with_their_reason(server: Redis, tmp_path: Path) -> None:
    redis = "index.backend=redis"
    key = "index.key=fnv64_cbor"
    assert "index.url" in refusal(redis, key)
    assert "random seed" in refusal(redis, f"index.url={server.url}")
    assert "/no.ca" in refusal(redis, key, "index.url=rediss://a:1?ca=/no.ca")
    assert "one server" in refusal(redis, key, "index.url=redis://a:1,b:2")
    assert "prefix" in refusal(redis, key, f"index.url={server.url}?prefix=x")
    assert "index.backend" in refusal(f"index.url={server.url}")
    assert "index.auth_file" in refusal(redis, key, f"index.url={server.url}", f"index.auth_file={tmp_path / 'none'}")
    secret = tmp_path / "secret"
    secret.write_text("hush")
    secret.chmod(0o644)
    text = refusal(redis, key, f"index.url={server.url}", f"index.auth_file={secret}")
    assert "index.auth_file" in text and "hush" not in text


def test_an_index_is_written_and_asked_through_tls(herd: Herd, tmp_path: Path) -> None:
    server = SecuredRedis(self_signed(tmp_path))
    try:
        engine = herd.publisher("a")
        engine.store(A)
        indexer = herd.indexer(*settings_of(engine), *shared(server))
        until_right(indexer, [engine], [A], exact=True)
        server.kill()
        server.start()  # and empty
        engine.store(A[:BLOCK] + B)
        until_right(indexer, [engine], [A, A[:BLOCK] + B], exact=True)
    finally:
        server.close()


def test_a_password_is_read_from_its_file_and_never_logged(herd: Herd, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush-hush\n")
    secret.chmod(0o600)
    server = Redis()
    try:
        server.ask("CONFIG", "SET", "requirepass", "hush-hush")
        engine = herd.publisher("a")
        engine.store(A)
        indexer = herd.indexer(*settings_of(engine), *shared(server, f"index.auth_file={secret}"))
        until_right(indexer, [engine], [A], exact=True)
        secret.write_text("wrong\n")
        assert "hush-hush" not in indexer.log_text()
    finally:
        server.close()


def test_an_indexer_ends_in_time_while_its_server_is_away(herd: Herd, server: Redis) -> None:
    indexer, engine = one_pod(herd, server)
    server.stop()
    try:
        engine.store(B)
        until("it is away", lambda: not indexer.is_ready())
        assert indexer.stop() == 0
    finally:
        server.resume()
