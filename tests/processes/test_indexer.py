"""`cenote indexer` as a process: publishers of every kind, its calls, its configuration and its end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import msgspec
import pytest
import zmq
from indexer import (
    BLOCK,
    LIMIT,
    MODEL,
    EnginePublisher,
    Herd,
    Indexer,
    Router,
    prompt,
    settings_of,
    table_of,
    until_right,
)
from node import BINARY, free_port, free_ports, run_cenote, until

A, B, C = prompt(1, 8), prompt(2, 8), prompt(3, 8)


def one_pod(herd: Herd, *sets: str, **options: object) -> tuple[Indexer, EnginePublisher]:
    engine = herd.publisher("a")
    indexer = herd.indexer(*settings_of(engine), *sets, **options)
    engine.store(A)
    until_right(indexer, [engine], [A, B], exact=True)
    return indexer, engine


# ---------------------------------------------------------------------------------------------- publishers


@pytest.mark.parametrize("form", ["map", "array"])
@pytest.mark.parametrize("hashes", ["int", "signed", "bytes"])
def test_a_configured_publisher_is_scored_exactly(herd: Herd, form: str, hashes: str) -> None:
    engine = herd.publisher("a", form=form, hashes=hashes)
    engine.store(A)
    indexer = herd.indexer(*settings_of(engine))
    until_right(indexer, [engine], [A, B], exact=True)
    assert indexer.scores(A).score("a") == 8
    engine.store(A[:BLOCK] + B)  # it shares the first block
    engine.cut(A, 5)
    until_right(indexer, [engine], [A, A[:BLOCK] + B, B], exact=True)
    engine.evict([A[: 2 * BLOCK]])  # a hole
    until_right(indexer, [engine], [A], exact=True)
    assert indexer.scores(A).score("a") == 1
    engine.clear()
    until_right(indexer, [engine], [A, A[:BLOCK] + B], exact=True)
    assert indexer.scores(A).pods == {}


def test_topics_name_pod_and_model_and_settings_replace_them(herd: Herd) -> None:
    first, second = herd.publisher("a", topic="kv@other@Other"), herd.publisher("b", topic="no-model")
    indexer = herd.indexer(*settings_of(first, pod="a", model=MODEL), *settings_of(second))
    first.store(A)
    second.store(A)
    until("both are there", lambda: len(indexer.pods()) == 2)
    until("the first is scored", lambda: indexer.scores(A).score("a") == 8)
    until("topics are read", lambda: {"a", "no-model"} == {each["pod"] for each in indexer.pods()})
    rows = {each["pod"]: each for each in indexer.pods()}
    assert rows["a"]["model"] == MODEL
    assert rows["no-model"]["model"] == "" and rows["no-model"]["publisher"] == "b"


def test_bound_endpoints_take_publishers_and_ask_them_for_what_was_missed(herd: Herd) -> None:
    bound, replay = free_ports(2)
    # Pods are named by their addresses: that is where their replays are.
    engines = [
        herd.publisher(f"127.0.0.{i}", connect=f"tcp://127.0.0.1:{bound}", replay_at=f"tcp://127.0.0.{i}:{replay}")
        for i in (2, 3)
    ]
    for each in engines:
        each.store(A, live=False)  # before there was an indexer
    indexer = herd.indexer(f'events.bind=["tcp://127.0.0.1:{bound}"]', f"events.replay_port={replay}")
    numbers = iter(range(100, 10_000))

    def is_heard() -> bool:  # a PUB that connects drops what it sends before the connection stands
        for each in engines:
            each.store(prompt(next(numbers), 1))
        return len(indexer.pods()) == 2

    until("both are heard", is_heard, pause=0.05)
    until_right(indexer, engines, [A, B], exact=True)
    engines[0].cut(A, 3)
    until_right(indexer, engines, [A, B], exact=True)


def test_data_parallel_ranks_of_a_pod_are_apart_and_the_best_one_answers(herd: Herd) -> None:
    ranks = [herd.publisher("a", rank=rank, topic=f"kv@pod@{MODEL}") for rank in (0, 1)]
    sets = []
    for i, each in enumerate(ranks):
        sets += [f"publishers.r{i}.endpoint={each.endpoint}", f"publishers.r{i}.replay={each.replay}"]
    indexer = herd.indexer(*sets)
    ranks[0].store(A[: 3 * BLOCK])
    ranks[1].store(A[: 6 * BLOCK])
    until("the better rank answers", lambda: indexer.scores(A).score("pod") == 6)
    assert indexer.scores(A).pods["pod"]["dp_rank"] == 1
    ranks[1].clear()
    until("the other rank answers", lambda: indexer.scores(A).score("pod") == 3)
    assert indexer.scores(A).pods["pod"]["dp_rank"] == 0
    until("both ranks are shown", lambda: {each["dp_rank"] for each in indexer.pods()} == {0, 1})


def test_ranks_connect_to_ports_of_their_own(herd: Herd) -> None:
    bound, replay = free_ports(2)
    with contextlib.suppress(OSError):
        while True:  # two pairs of neighbours
            for port in (bound + 1, replay + 1):
                socket.create_server(("127.0.0.1", port)).close()
            break
    engines = [
        herd.publisher(
            "127.0.0.2",
            rank=rank,
            connect=f"tcp://127.0.0.1:{bound + rank}",
            replay_at=f"tcp://127.0.0.2:{replay + rank}",
        )
        for rank in (0, 1)
    ]
    for rank, each in enumerate(engines):
        each.store(A[: (3 + 3 * rank) * BLOCK], live=False)
    indexer = herd.indexer(f'events.bind=["tcp://127.0.0.1:{bound}"]', f"events.replay_port={replay}", "events.ranks=2")

    def is_heard() -> bool:
        for each in engines:
            each.publish()
        return indexer.scores(A).score("127.0.0.2") == 6

    until("both ranks are replayed", is_heard, pause=0.05)
    assert indexer.scores(A).pods["127.0.0.2"]["dp_rank"] == 1


def test_a_file_of_discovery_is_followed(herd: Herd, tmp_path: Path) -> None:
    first, second = herd.publisher("a"), herd.publisher("b")
    first.store(A)
    second.store(A)
    found = tmp_path / "found.toml"

    def replace(text: str) -> None:
        new = tmp_path / "found.new"
        new.write_text(text)
        new.rename(found)

    indexer = herd.indexer(f"discovery.file={found}")
    assert indexer.pods() == []  # the file is not there yet
    replace(table_of(first))
    until_right(indexer, [first], [A], exact=True)
    replace(table_of(first, second))
    until_right(indexer, [first, second], [A], exact=True)
    replace("[publishers.a]\nendpoint = ")
    until("a broken file is named in the log", lambda: indexer.logged("file of discovery"))
    assert set(indexer.scores(A).pods) == {"a", "b"}
    replace(table_of(second))
    until_right(indexer, [second], [A], exact=True)
    until("one publisher is left", lambda: indexer.counter("publishers") == 1)
    found.unlink()
    second.cut(A, 2)
    until_right(indexer, [second], [A], exact=True)


def test_a_reload_takes_weights_and_publishers(herd: Herd) -> None:
    first, second = herd.publisher("a"), herd.publisher("b")
    first.store(A)
    second.store(A)
    first.publish(first.stored(first.prefixes(B)[:3], "CPU"))
    indexer = herd.indexer(config=table_of(first))
    until_right(indexer, [first], [A], exact=True)
    until("the CPU's blocks are there", lambda: abs(indexer.scores(B).score("a") - 2.4) < 1e-9)
    indexer.config.write_text(table_of(first, second) + "[scoring.weights]\ncpu = 0.5\ngpu = 2.0\n")
    indexer.reload()
    until("the new weights hold", lambda: indexer.scores(A).score("a") == 16)
    assert abs(indexer.scores(B).score("a") - 1.5) < 1e-9
    until("the new publisher is there", lambda: indexer.scores(A).score("b") == 16)
    indexer.config.write_text(table_of(second) + "[scoring.weights]\ngpu = 1.0\n")
    indexer.reload()
    until_right(indexer, [second], [A, B], exact=True)
    indexer.config.write_text("[publishers.a]\nendpoint = 7\n")
    os.kill(indexer.pid, signal.SIGHUP)
    until("a broken configuration is refused", lambda: indexer.logged("not reloaded"))
    assert indexer.scores(A).score("b") == 8


def test_publishers_come_and_go_over_http(herd: Herd) -> None:
    first, second = herd.publisher("a"), herd.publisher("b")
    first.store(A)
    second.store(A)
    indexer = herd.indexer()
    indexer.add(first)
    indexer.add(second, name="second one/%")
    until_right(indexer, [first, second], [A], exact=True)
    again = indexer.ask("POST", "/v1/publishers", {"name": "a", "endpoint": first.endpoint})
    assert again.status in (400, 409) and "remove it before" in again.json["error"]
    assert indexer.remove("second one/%") == 200
    until_right(indexer, [first], [A], exact=True)
    assert indexer.remove("second one/%") == 404
    indexer.add(second)
    until_right(indexer, [first, second], [A], exact=True)
    for body, word in (
        ({"name": "x"}, "endpoint"),
        ({"endpoint": "tcp://127.0.0.1:1"}, "name"),
        ({"name": "x", "endpoint": "foo"}, "tcp://"),
        ({"name": "x", "endpoint": "tcp://127.0.0.1:1", "engine": "trt"}, "vllm"),
    ):
        refused = indexer.ask("POST", "/v1/publishers", body)
        assert refused.status == 400 and word in refused.json["error"], refused


# ---------------------------------------------------------------------------------------------- calls


def test_keys_are_questions_as_tokens_are(herd: Herd) -> None:
    indexer, engine = one_pod(herd)
    engine.store(A[: 2 * BLOCK] + B)
    engine.cut(A, 6)
    until_right(indexer, [engine], [A, A[: 2 * BLOCK] + B])
    for tokens in (A, A[: 2 * BLOCK] + B, B, A[:BLOCK], A[:3], ()):
        keys = indexer.ask("POST", "/v1/keys", {"model_name": MODEL, "token_ids": list(tokens)}).json
        assert keys["block_tokens"] == BLOCK and len(keys["keys"]) == len(tokens) // BLOCK
        by_tokens = indexer.scores(tokens)
        assert indexer.scores(block_keys=keys["keys"]).pods == by_tokens.pods
        assert indexer.scores(block_keys=[int(each) for each in keys["keys"]]).pods == by_tokens.pods
        assert indexer.binary_scores(tokens).pods == by_tokens.pods
        short = indexer.ask("POST", "/v1/lookup", {"block_keys": keys["keys"]}).json["blocks"]
        assert len(short) == engine.truth(tokens)
        assert all(each["holders"] == [{"pod": "a", "dp_rank": 0, "tier": "gpu"}] for each in short)


def test_a_lookup_with_too_many_holders_is_refused(herd: Herd) -> None:
    bound = free_port()
    indexer = herd.indexer(f'events.bind=["tcp://127.0.0.1:{bound}"]', "events.replay_port=0")
    tokens, pods = [7] * (17_000 * BLOCK), 16
    stored = ["BlockStored", list(range(1, 17_001)), None, tokens, BLOCK]
    payload = msgspec.msgpack.encode([0.0, [stored], 0])
    with zmq.Context() as context, context.socket(zmq.PUB) as publisher:
        publisher.connect(f"tcp://127.0.0.1:{bound}")

        def is_heard() -> bool:  # sent again until the connection stands
            for pod in range(pods):
                publisher.send_multipart([f"kv@p{pod}@{MODEL}".encode(), b"\0" * 8, payload])
            return len(indexer.scores(tokens[: 8 * BLOCK]).pods) == pods

        until("all have it", is_heard, pause=0.2)
        keys = indexer.ask("POST", "/v1/keys", {"model_name": MODEL, "token_ids": tokens}).json["keys"]
        refused = indexer.ask("POST", "/v1/lookup", {"block_keys": keys})
        assert refused.status == 429 and "272000 holders" in refused.text and "fewer keys" in refused.text
        answer = indexer.ask("POST", "/v1/lookup", {"block_keys": keys[:1_000]}).json["blocks"]
        assert len(answer) == 1_000 and all(len(each["holders"]) == pods for each in answer)


def test_only_the_pods_that_were_asked_for_answer(herd: Herd) -> None:
    engines = [herd.publisher(name) for name in "abc"]
    indexer = herd.indexer(*settings_of(*engines))
    for each in engines:
        each.store(A)
    until_right(indexer, engines, [A], exact=True)
    assert list(indexer.scores(A).pods) == ["a", "b", "c"]  # best first, then by name
    assert set(indexer.scores(A, pod_identifiers=["c", "a", "unknown"]).pods) == {"a", "c"}
    assert indexer.scores(A, "another model").pods == {}
    found = indexer.ask("POST", "/v1/GetPodScores", {"prompt": "text", "model_name": MODEL, "pod_identifiers": ["a"]})
    assert found.status == 503 and "token_ids" in found.json["error"]
    found = indexer.ask(
        "POST", "/v1/GetPodScores", {"token_ids": list(A), "model_name": MODEL, "pod_identifiers": ["a"]}
    )
    assert found.json == {"scores": [{"pod": "a", "score": 8.0}]}


def test_salts_and_extra_keys_are_parts_of_a_block(herd: Herd) -> None:
    engine = herd.publisher("a")
    prefixes = engine.prefixes(A)
    engine.publish(engine.stored(prefixes, extra_keys=[["salt"]] + [None] * 7))
    indexer = herd.indexer(*settings_of(engine))
    until("the salted blocks are there", lambda: indexer.scores(A, cache_salt="salt").score("a") == 8)
    assert indexer.scores(A).pods == {}
    assert indexer.scores(A, cache_salt="pepper").pods == {}
    assert indexer.scores(A, extra_keys=[["salt"]]).score("a") == 8
    refused = indexer.ask("POST", "/v1/scores", {"model_name": MODEL, "token_ids": list(A), "extra_keys": [None] * 9})
    assert refused.status == 400 and "9" in refused.json["error"]


def test_adapters_have_blocks_of_their_own(herd: Herd) -> None:
    engine = herd.publisher("a")
    engine.publish(engine.stored(engine.prefixes(A), lora_name="sql", lora_id=1))
    indexer = herd.indexer(*settings_of(engine))
    until("the adapter's blocks are there", lambda: indexer.scores(A, lora_name="sql").score("a") == 8)
    assert indexer.scores(A).pods == {}
    assert indexer.scores(A, "sql").score("a") == 8  # vLLM serves adapters as models


def test_an_expected_prompt_counts_until_its_time_ends(herd: Herd) -> None:
    indexer, engine = one_pod(herd, "scoring.speculative_ttl=12s")
    sent = {"model_name": MODEL, "token_ids": list(B), "pod_identifiers": ["a"]}
    assert indexer.ask("POST", "/v1/speculative", sent).json == {"blocks": 8}
    until("it counts", lambda: indexer.scores(B).score("a") == 8)
    short = {**sent, "token_ids": list(C), "ttl_s": 0.01}
    assert indexer.ask("POST", "/v1/speculative", short).status == 200
    until("a shorter time ends", lambda: indexer.scores(C).score("a") == 0)
    assert indexer.scores(B).score("a") == 8
    engine.store(B)  # the event that was expected
    engine.cut(B, 0)
    until("the event ended the expectation", lambda: indexer.scores(B).score("a") == 0)
    refused = indexer.ask("POST", "/v1/speculative", {"model_name": MODEL, "token_ids": list(B)})
    assert refused.status == 400 and "pod_identifiers" in refused.json["error"]


def test_a_speculative_entry_ends_by_its_configured_time(herd: Herd) -> None:
    indexer, _ = one_pod(herd, "scoring.speculative_ttl=300ms")
    sent = {"model_name": MODEL, "token_ids": list(B), "pod_identifiers": ["a"], "ttl_s": 3600}
    assert indexer.ask("POST", "/v1/speculative", sent).status == 200
    until("the configured time is the longest", lambda: indexer.scores(B).score("a") == 0)


def test_a_clear_empties_a_pod(herd: Herd) -> None:
    indexer, engine = one_pod(herd)
    engine.publish(engine.stored(engine.prefixes(B), "CPU"))
    until("the CPU has blocks", lambda: indexer.scores(B).score("a") > 0)
    until("the pod is in the table", lambda: indexer.pod("a"))
    assert indexer.ask("POST", "/v1/clear", {"pod": "a", "medium": "gpu"}).status == 200
    until("the GPU's blocks are gone", lambda: indexer.scores(A).score("a") == 0)
    assert indexer.scores(B).score("a") > 0
    assert indexer.ask("POST", "/v1/clear", {"pod": "a"}).status == 200
    until("all are gone", lambda: indexer.scores(B).score("a") == 0)
    engine.blocks.clear()
    engine.store(A)
    until_right(indexer, [engine], [A, B])
    assert indexer.ask("POST", "/v1/clear", {"pod": "nobody"}).status == 404
    assert indexer.ask("POST", "/v1/clear", {"pod": "a", "medium": "tape"}).status == 400
    assert indexer.ask("POST", "/v1/clear", {}).status == 400


def test_a_dump_has_all_blocks_of_a_pod(herd: Herd) -> None:
    indexer, engine = one_pod(herd)
    engine.store(A[: 2 * BLOCK] + B)
    engine.evict([A[: 5 * BLOCK]])
    until_right(indexer, [engine], [A, A[: 2 * BLOCK] + B])
    until("the pod is in the table", lambda: indexer.pod("a"))
    answer = indexer.ask("GET", "/v1/dump", query={"pod": "a"})
    lines = [json.loads(each) for each in answer.text.splitlines()]
    hashes = [int(each) for line in lines for each in line["block_hashes"]]
    assert sorted(hashes) == sorted(engine.hash_of(each) for each in engine.blocks)
    assert {(each["pod"], each["medium"], each["model"], each["block_size"]) for each in lines} == {
        ("a", "gpu", MODEL, BLOCK)
    }
    keys = indexer.ask("POST", "/v1/keys", {"model_name": MODEL, "token_ids": list(A)}).json["keys"]
    dumped = {each for line in lines for each in line["block_keys"]}
    assert set(keys[:4]) <= dumped and keys[4] not in dumped
    parents = {each["parent_block_key"] for each in lines}
    assert keys[4] in parents  # of what lies behind the hole
    assert indexer.ask("GET", "/v1/dump", query={"pod": "nobody"}).status == 404
    assert indexer.ask("GET", "/v1/dump").status == 400


def test_blocks_of_several_media_count_by_the_best(herd: Herd) -> None:
    engine = herd.publisher("a")
    engine.store(A)
    prefixes = engine.prefixes(A)
    # As offloading connectors announce them: without tokens.
    tier = {"type": "BlockStored", "parent_block_hash": None, "token_ids": [], "block_size": 0, "medium": "CPU"}
    engine.publish({**tier, "block_hashes": [engine.hash_of(each) for each in prefixes]})
    for each in prefixes:
        engine.blocks[each].add("cpu")
    indexer = herd.indexer(*settings_of(engine))
    until_right(indexer, [engine], [A], exact=True)
    assert indexer.scores(A).pods["a"]["tiers"] == {"gpu": 8}
    engine.cut(A, 3)
    until_right(indexer, [engine], [A], exact=True)
    assert indexer.scores(A).pods["a"]["tiers"] == {"gpu": 3, "cpu": 5}
    engine.clear()  # of the GPU alone
    until_right(indexer, [engine], [A], exact=True)
    assert abs(indexer.scores(A).score("a") - 8 * 0.8) < 1e-9


def test_bad_questions_are_refused_with_what_would_be_right(herd: Herd) -> None:
    indexer, _ = one_pod(herd)
    for body, word in (
        (b"", "empty"),
        (b"[]", "object"),
        (b'{"model_name": "m"', "JSON"),
        ({"model_name": MODEL}, "exactly one"),
        ({"model_name": MODEL, "token_ids": [1], "block_keys": [1]}, "exactly one"),
        ({"model_name": MODEL, "token_ids": [-1]}, "4294967295"),
        ({"model_name": MODEL, "token_ids": "abc"}, "list"),
        ({"token_ids": [1, 2, 3, 4]}, "model_name"),
        ({"model_name": MODEL, "block_keys": ["x"]}, "decimal"),
    ):
        refused = indexer.ask("POST", "/v1/scores", body)
        assert refused.status == 400 and word in refused.json["error"], (body, refused)
    assert indexer.ask("GET", "/v1/scores").status == 405
    assert indexer.ask("GET", "/v1/nothing").status == 404
    odd = indexer.ask("POST", "/v1/scores", b"123", headers={"Content-Type": "application/octet-stream"})
    assert odd.status == 400
    assert indexer.scores(A).score("a") == 8


# ---------------------------------------------------------------------------------------------- the process


def test_a_unix_socket_answers(herd: Herd) -> None:
    indexer, _ = one_pod(herd, unix=True)
    assert indexer.scores(A).score("a") == 8
    assert indexer.stop() == 0
    assert not indexer.socket.exists()


def test_a_unix_socket_is_taken_from_the_dead_only(herd: Herd) -> None:
    indexer, engine = one_pod(herd, unix=True)
    second = run_cenote("indexer", "--set", "indexer.listen=off", "--set", f"indexer.socket={indexer.socket}")
    assert second.returncode in (1, 2) and str(indexer.socket) in second.stderr, second
    assert indexer.scores(A).score("a") == 8
    indexer.kill()
    assert indexer.socket.exists()
    indexer.start()
    until_right(indexer, [engine], [A], exact=True)


def test_an_endpoint_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        refused = run_cenote("indexer", "--set", "indexer.listen=127.0.0.1:0", "--set", f'events.bind=["{endpoint}"]')
    assert refused.returncode in (1, 2) and endpoint in refused.stderr, refused


def test_a_token_is_asked_for(herd: Herd, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret-s3cret-s3cret\n")
    secret.chmod(0o600)
    indexer = herd.indexer(f"indexer.token_file={secret}")
    assert indexer.ask("GET", "/healthz").status == 200
    assert indexer.ask("GET", "/readyz").status == 200
    for path in ("/v1/pods", "/metrics"):
        assert indexer.ask("GET", path).status == 401
        assert indexer.ask("GET", path, headers={"Authorization": "Bearer s3cret-s3cret-s3creT"}).status == 401
        assert indexer.ask("GET", path, headers={"Authorization": "Bearer s3cret-s3cret-s3cret"}).status == 200


def test_metrics_count_questions_blocks_by_tier_and_answers(herd: Herd) -> None:
    indexer, _ = one_pod(herd)  # has asked for A already
    before = indexer.metrics()
    indexer.scores(A)
    indexer.scores(B)
    after = indexer.metrics()

    def grown(name: str) -> float:
        return after[f"cenote_indexer_{name}"] - before[f"cenote_indexer_{name}"]

    assert grown("question_seconds_count") == 2 and grown("questions_found_total") == 1
    assert grown("question_blocks_total") == 16 and grown("question_found_blocks_total") == 8
    assert grown("http_answers_total") == 3  # and the page before
    row = f'cenote_indexer_blocks{{pod="a",model="{MODEL}",dp_rank="0",tier="gpu"}} 8'
    assert row in indexer.ask("GET", "/metrics").text
    assert not any(name.startswith("kvcache_") for name in after)


def test_metrics_have_llmd_names_too_if_that_is_wanted(herd: Herd) -> None:
    indexer, _ = one_pod(herd, "indexer.metric_aliases=true")
    indexer.scores(A)
    figures = indexer.metrics()
    for alias, name in (
        ("admissions_total", "blocks_stored_total"),
        ("evictions_total", "blocks_removed_total"),
        ("lookup_requests_total", "question_seconds_count"),
        ("lookup_hits_total", "question_found_blocks_total"),
        ("max_pod_hit_count_total", "question_found_blocks_total"),
        ("lookup_latency_seconds_count", "question_seconds_count"),
    ):
        assert figures[f"kvcache_index_{alias}"] == figures[f"cenote_indexer_{name}"], alias
    assert figures["kvcache_index_lookup_hits_total"] >= 8


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["indexer.listen=0.0.0.0:8790"], ["not for loopback", "token_file", "trusted_network"]),
        (["indexer.listen=192.0.2.1:8790"], ["not for loopback"]),
        (["indexer.listen=[::]:8790"], ["not for loopback"]),
        (["indexer.tls_cert=/nowhere"], ["indexer.tls_cert", "both"]),
        (["publishers.a.pod=x"], ["publisher `a` needs an endpoint"]),
        (['scoring.weights={"gpu": -1}'], ["scoring.weights"]),
        (["events.ranks=0"], ["events.ranks"]),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_reason(sets: list[str], words: list[str]) -> None:
    arguments = [part for each in sets for part in ("--set", each)]
    for command in (["indexer"], ["indexer", "check"]):
        refused = run_cenote(*command, *arguments)
        assert refused.returncode == 2, refused
        assert all(each in refused.stderr for each in words), refused.stderr


def test_a_good_configuration_is_checked_without_a_start(tmp_path: Path) -> None:
    file = tmp_path / "indexer.toml"
    file.write_text('[publishers.a]\nendpoint = "tcp://127.0.0.1:1"\n')
    port = free_port()
    checked = run_cenote("indexer", "check", "--config", file, "--set", f"indexer.listen=127.0.0.1:{port}")
    assert checked.returncode == 0 and "1 publishers" in checked.stdout
    with socket.create_server(("127.0.0.1", port)):
        taken = run_cenote("indexer", "--set", f"indexer.listen=127.0.0.1:{port}")
    assert taken.returncode in (1, 2) and str(port) in taken.stderr


def test_a_node_loads_no_library_that_only_services_use() -> None:
    needed = subprocess.run(["ldd", str(BINARY)], capture_output=True, text=True, check=True).stdout
    assert "libzmq" in needed  # the list is one
    assert not [name for name in ("libgrpc", "libprotobuf", "libabsl", "libcares") if name in needed]


def test_the_services_take_no_connection_for_that_of_a_node() -> None:
    """In a node `send` and `socket` are those of UCX's connections; a TLS client of a service would speak them, too."""
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(BINARY.with_name("cenote-services"))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    defined = {line.split()[-1] for line in symbols.splitlines() if line}
    assert not defined & {"accept", "socket", "listen", "send"}


def test_a_missing_program_of_services_is_named(tmp_path: Path) -> None:
    alone = tmp_path / "cenote"
    alone.symlink_to(BINARY)
    copy = tmp_path / "copy" / "cenote"
    copy.parent.mkdir()
    shutil.copy(BINARY, copy)
    assert run_cenote("indexer", "check").returncode == 0
    assert subprocess.run([alone, "indexer", "check"], capture_output=True, check=False).returncode == 0
    refused = subprocess.run([copy, "indexer", "check"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"{copy.with_name('cenote-services')} (a program of its own" in refused.stderr


def test_the_end_is_orderly_while_replays_and_requests_are_under_way(herd: Herd) -> None:
    slow = [herd.publisher(f"slow{i}", router=Router(pause=0.05)) for i in range(3)]
    mute = herd.publisher("mute", router=Router(answers=False))
    for each in slow:
        for i in range(200):
            each.store(prompt(i, 2), live=False)
    indexer = herd.indexer(*settings_of(*slow, mute))
    until("replays are under way", lambda: indexer.counter("replays") >= 4)
    stop = threading.Event()
    answers: list[int] = []

    def ask() -> None:
        with contextlib.suppress(OSError, AssertionError):
            while not stop.is_set():
                answers.append(indexer.ask("POST", "/v1/scores", {"model_name": MODEL, "token_ids": list(A)}).status)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for each in askers:
        each.start()
    unread = indexer.connect()
    unread.request("GET", "/v1/dump?pod=slow0")
    half = indexer.connect()
    half.connect()
    half.sock.sendall(b"POST /v1/scores HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    until("questions are answered", lambda: len(answers) > 20)
    begin = time.monotonic()
    code = indexer.stop()
    seconds = time.monotonic() - begin
    stop.set()
    for each in askers:
        each.join(LIMIT)
    half.close()
    unread.close()
    assert code == 0
    assert seconds < 5, f"it took {seconds:.1f} s"
    assert set(answers) == {200}
