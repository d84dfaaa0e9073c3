"""`cenote indexer` over gRPC, asked by the official client: the answers of HTTP, its bounds, streams, and its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import self_signed
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from indexer import LIMIT, MODEL, EnginePublisher, Herd, Indexer, prompt, settings_of, until_right
from node import ROOT, free_port, run_cenote, until
from redis import Redis

PROTO = ROOT / "services" / "indexer" / "grpc" / "indexer.proto"
SERVICE = "/indexer.v1.IndexerService/"
A, B = prompt(1, 8), prompt(2, 8)
WATCHERS = 64  # that there may be
MESSAGE = 16 << 20  # bytes of a request

pytestmark = pytest.mark.skipif(
    shutil.which("protoc") is None or not PROTO.exists(), reason="needs protoc and the sources"
)


@pytest.fixture(scope="session")
def messages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Classes of messages by name, from the file itself."""
    described = tmp_path_factory.mktemp("proto") / "indexer.bin"
    subprocess.run(
        ["protoc", f"--proto_path={PROTO.parent}", f"--descriptor_set_out={described}", PROTO.name], check=True
    )
    files = descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for each in files.file:
        pool.Add(each)
    return {
        each.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"indexer.v1.{each.name}"))
        for file in files.file
        for each in file.message_type
    }


class Client:
    def __init__(self, channel: grpc.Channel, messages: dict[str, Any]) -> None:
        self.channel, self.messages = channel, messages

    def ask(self, method: str, metadata: tuple[tuple[str, str], ...] = (), **fields: Any) -> Any:
        names = self.messages[f"{method}Request"], self.messages[f"{method}Response"]
        call = self.channel.unary_unary(SERVICE + method, names[0].SerializeToString, names[1].FromString)
        return call(names[0](**fields), timeout=LIMIT, metadata=metadata)

    def raw(self, method: str, message: bytes) -> bytes:
        answer = self.channel.unary_unary(SERVICE + method)(message, timeout=LIMIT)
        assert isinstance(answer, bytes)
        return answer

    def watch(self) -> Any:
        names = self.messages["WatchPodsRequest"], self.messages["WatchPodsResponse"]
        call = self.channel.unary_stream(SERVICE + "WatchPods", names[0].SerializeToString, names[1].FromString)
        return call(names[0]())


def refusal(call: Callable[[], Any]) -> tuple[str, str]:
    """The name of the status, and its text."""
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return refused.value.code().name, str(refused.value.details())


def address_of(indexer: Indexer) -> str:
    until("it speaks gRPC", lambda: indexer.logged("speaks gRPC"))
    return str(indexer.logged("speaks gRPC")[0]["address"])


@contextlib.contextmanager
def connected(indexer: Indexer, messages: dict[str, Any], credentials: Any = None) -> Iterator[Client]:
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    where = address_of(indexer)
    made = (
        grpc.secure_channel(where, credentials, [*options, ("grpc.ssl_target_name_override", "localhost")])
        if credentials
        else grpc.insecure_channel(where, options)
    )
    with made as channel:
        yield Client(channel, messages)


def one_pod(herd: Herd, *sets: str) -> tuple[Indexer, EnginePublisher]:
    engine = herd.publisher("a")
    indexer = herd.indexer(*settings_of(engine), "indexer.grpc=127.0.0.1:0", *sets)
    engine.store(A)
    until_right(indexer, [engine], [A, B], exact=True)
    until("the pod is shown", lambda: indexer.state("a") == "live")
    return indexer, engine


# ---------------------------------------------------------------------------------------------- answers


def test_an_index_on_a_redis_server_answers_and_says_nothing_of_its_absence(
    herd: Herd, messages: dict[str, Any]
) -> None:
    server = Redis()
    try:
        indexer, _ = one_pod(herd, "index.backend=redis", f"index.url={server.url}", "index.key=fnv64_cbor")
        with connected(indexer, messages) as client:
            found = client.ask("ScoreTokens", model_name=MODEL, token_ids=A)
            assert [(each.pod, each.score) for each in found.scores] == [("a", 8.0)]
            keys = indexer.ask("POST", "/v1/keys", {"model_name": MODEL, "token_ids": list(A)}).json["keys"]
            holders = client.ask("Lookup", block_keys=[int(each) for each in keys])
            assert len(holders.SerializeToString()) > 0
            server.kill()
            until("it is away", lambda: not indexer.is_ready())
            assert not client.ask("ScoreTokens", model_name=MODEL, token_ids=A).scores
    finally:
        server.close()


def test_answers_are_those_of_http(herd: Herd, messages: dict[str, Any]) -> None:
    first, second = herd.publisher("a"), herd.publisher("b")
    indexer = herd.indexer(*settings_of(first, second), "indexer.grpc=127.0.0.1:0")
    first.store(A)
    second.store(A[:12])
    until_right(indexer, [first, second], [A, B], exact=True)
    second.publish(second.stored(second.prefixes(B)[:3], "CPU"))
    until("the CPU's blocks are there", lambda: indexer.scores(B).score("b") > 2)
    with connected(indexer, messages) as client:
        for fields in (
            {"token_ids": A},
            {"token_ids": B},
            {"token_ids": A, "pod_identifiers": ["b", "absent"]},
            {"token_ids": A, "cache_salt": "salt"},
            {"token_ids": A[:3]},
            {"token_ids": A, "lora_name": "adapter"},
            {"token_ids": A, "model_name": "unknown"},
        ):
            asked: dict[str, Any] = {"model_name": MODEL, **fields}
            expected = indexer.ask("POST", "/v1/scores", {**asked, "token_ids": list(asked["token_ids"])}).json
            found = client.ask("ScoreTokens", **asked)
            shown = [
                {
                    "pod": each.pod,
                    "score": each.score,
                    "blocks": each.blocks,
                    "tokens": each.tokens,
                    "dp_rank": each.dp_rank,
                    "tiers": dict(each.tiers),
                }
                for each in found.scores
            ]
            assert shown == expected["scores"], fields
            assert (found.blocks, found.block_tokens) == (expected["blocks"], expected["block_tokens"])
            assert list(found.degraded) == expected["degraded"]
        assert client.ask("ScoreTokens", model_name=MODEL, token_ids=A).scores[0].pod == "a"
        keys = [
            int(each) for each in indexer.ask("POST", "/v1/keys", {"model_name": MODEL, "token_ids": A}).json["keys"]
        ]
        held = indexer.ask("POST", "/v1/lookup", {"block_keys": [*keys, 7]}).json["blocks"]
        answer = client.ask("Lookup", block_keys=[*keys, 7]).blocks
        assert len(answer) == len(keys) == 8
        assert [
            {
                "key": str(each.key),
                "holders": [{"pod": one.pod, "dp_rank": one.dp_rank, "tier": one.tier} for one in each.holders],
            }
            for each in answer
        ] == held


def test_the_numbers_of_fields_are_those_of_llm_d(herd: Herd, messages: dict[str, Any]) -> None:
    request = messages["GetPodScoresRequest"](prompt="p", model_name="m", pod_identifiers=["a", "b"])
    assert request.SerializeToString() == b"\x0a\x01p\x12\x01m\x1a\x01a\x1a\x01b"
    score = messages["PodScore"](pod="a", score=2.0)
    answer = messages["GetPodScoresResponse"](scores=[score])
    assert answer.SerializeToString() == b"\x0a\x0c\x0a\x01a\x11" + struct.pack("<d", 2.0)
    score.data_parallel_rank = 0  # which is there although it is 0
    assert score.SerializeToString().endswith(b"\x18\x00")
    indexer, _ = one_pod(herd)
    with connected(indexer, messages) as client:
        status, text = refusal(lambda: client.raw("GetPodScores", request.SerializeToString()))
        expected = indexer.ask("POST", "/v1/GetPodScores", {"model_name": "m", "prompt": "p"})
        assert expected.status == 503 and status == "UNAVAILABLE"
        assert text == expected.json["error"]


# ---------------------------------------------------------------------------------------------- refusals


def test_wrong_arguments_are_refused_with_the_field(herd: Herd, messages: dict[str, Any]) -> None:
    indexer, engine = one_pod(herd)
    with connected(indexer, messages) as client:
        for method, fields, word in (
            ("ScoreTokens", {"token_ids": A}, "model_name"),
            ("ScoreTokens", {"model_name": "m" * 257, "token_ids": A}, "model_name"),
            ("ScoreTokens", {"model_name": MODEL, "pod_identifiers": [""]}, "pod_identifiers[0]"),
            ("ScoreTokens", {"model_name": MODEL, "pod_identifiers": ["x" * 257]}, "at most 256"),
            ("ScoreTokens", {"model_name": MODEL, "lora_name": "x" * 257}, "lora_name"),
            ("ScoreTokens", {"model_name": MODEL, "cache_salt": "x" * 257}, "cache_salt"),
            ("ScoreTokens", {"model_name": MODEL, "token_ids": [1] * ((1 << 20) + 1)}, "token_ids"),
            ("GetPodScores", {"prompt": "p"}, "model_name"),
            ("Lookup", {}, "block_keys"),
        ):
            status, text = refusal(lambda method=method, fields=fields: client.ask(method, **fields))
            assert status == "INVALID_ARGUMENT" and word in text, (method, text)
        for message in (b"\xff\xff\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe"):
            status, text = refusal(lambda message=message: client.raw("ScoreTokens", message))
            assert status == "INVALID_ARGUMENT" and "indexer.v1.ScoreTokensRequest" in text
        assert refusal(lambda: client.raw("Nothing", b""))[0] == "UNIMPLEMENTED"
        packed = grpc.Compression.Gzip
        call = client.channel.unary_unary(SERVICE + "ScoreTokens")
        assert refusal(lambda: call(bytes(1 << 16), timeout=LIMIT, compression=packed))[0] == "UNIMPLEMENTED"
    until_right(indexer, [engine], [A], exact=True)


def test_a_message_that_is_too_large_is_refused(herd: Herd, messages: dict[str, Any]) -> None:
    indexer, _ = one_pod(herd)
    with connected(indexer, messages) as client:
        status, text = refusal(lambda: client.raw("ScoreTokens", bytes(MESSAGE + 1)))
        assert status == "RESOURCE_EXHAUSTED", text
        assert client.ask("ScoreTokens", model_name=MODEL, token_ids=A).scores[0].score == 8


def test_a_token_is_asked_for(herd: Herd, messages: dict[str, Any], tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret-s3cret-s3cret\n")
    secret.chmod(0o600)
    indexer = herd.indexer(f"indexer.token_file={secret}", "indexer.grpc=127.0.0.1:0")
    fields: dict[str, Any] = {"model_name": MODEL, "token_ids": A}
    with connected(indexer, messages) as client:
        for sent in ((), (("authorization", "Bearer s3cret-s3cret-s3creT"),), (("authorization", "s3cret"),)):
            status, text = refusal(lambda sent=sent: client.ask("ScoreTokens", sent, **fields))
            assert status == "UNAUTHENTICATED" and "Bearer" in text
            # The message of a stranger is not read, so that it cannot be too large.
            assert refusal(lambda: client.raw("ScoreTokens", bytes(MESSAGE + 1)))[0] == "UNAUTHENTICATED"
        token = (("authorization", "Bearer s3cret-s3cret-s3cret"),)
        assert list(client.ask("ScoreTokens", token, **fields).scores) == []


def test_an_operator_asks_over_tls(herd: Herd, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    files = [f"indexer.tls_{name}={path}" for name, path in (("cert", certificate), ("key", key), ("ca", certificate))]
    indexer = herd.indexer(*files, launch_only=True)
    until("it answers", lambda: indexer.logged("answers"))
    host, port = indexer.address
    call = ("indexer", "pods", "--json", "--address", f"{host}:{port}", "--ca", certificate)
    answer = run_cenote(*call, "--cert", certificate, "--key", key)
    assert (answer.returncode, answer.stdout.strip()) == (0, '{"pods":[]}'), answer.stderr
    assert run_cenote(*call).returncode == 1  # without a certificate of its own


def test_tls_and_certificates_of_clients(herd: Herd, messages: dict[str, Any], tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    files = (f"indexer.tls_cert={certificate}", f"indexer.tls_key={key}")
    fields: dict[str, Any] = {"model_name": MODEL, "token_ids": A}
    where = ("indexer.grpc=127.0.0.1:0", *files)
    known = certificate.read_bytes()
    plain = herd.indexer(*where, unix=True)
    with connected(plain, messages, grpc.ssl_channel_credentials(known)) as client:
        assert list(client.ask("ScoreTokens", **fields).scores) == []
    with connected(plain, messages) as client:  # without TLS
        assert refusal(lambda: client.ask("ScoreTokens", **fields))[0] == "UNAVAILABLE"
    mutual = herd.indexer(*where, f"indexer.tls_ca={certificate}", unix=True)
    with connected(mutual, messages, grpc.ssl_channel_credentials(known)) as client:
        assert refusal(lambda: client.ask("ScoreTokens", **fields))[0] == "UNAVAILABLE"
    with connected(mutual, messages, grpc.ssl_channel_credentials(known, key.read_bytes(), known)) as client:
        assert list(client.ask("ScoreTokens", **fields).scores) == []
    key.write_text("nothing")
    refused = run_cenote(
        "indexer",
        *[
            part
            for each in (*where, "indexer.listen=off", f"indexer.socket={tmp_path / 's'}")
            for part in ("--set", each)
        ],
    )
    assert refused.returncode in (1, 2) and str(key) in refused.stderr, refused


def test_an_address_that_is_taken_is_named_with_its_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = run_cenote("indexer", "--set", "indexer.listen=127.0.0.1:0", "--set", f"indexer.grpc={where}")
    assert refused.returncode in (1, 2) and where in refused.stderr and "indexer.grpc" in refused.stderr, refused
    refused = run_cenote("indexer", "check", "--set", f"indexer.grpc=0.0.0.0:{free_port()}")
    assert refused.returncode == 2 and "indexer.grpc" in refused.stderr and "not for loopback" in refused.stderr


def test_bytes_that_are_no_http_harm_nobody(herd: Herd, messages: dict[str, Any]) -> None:
    indexer, _ = one_pod(herd)
    host, _, port = address_of(indexer).rpartition(":")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    with connected(indexer, messages) as client:
        for garbage in (
            os.urandom(65536),
            b"GET / HTTP/1.1\r\n\r\n",
            preface + os.urandom(4096),
            preface + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(1024),
            preface + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x04\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff",
        ):
            with socket.create_connection((host, int(port)), timeout=LIMIT) as stranger:
                with contextlib.suppress(OSError):
                    stranger.sendall(garbage)
                assert client.ask("ScoreTokens", model_name=MODEL, token_ids=A).scores[0].score == 8
        idle = [socket.create_connection((host, int(port)), timeout=LIMIT) for _ in range(300)]
        assert client.ask("ScoreTokens", model_name=MODEL, token_ids=A).scores[0].score == 8
        for each in idle:
            each.close()

        def is_open() -> bool:  # their places are free again
            with connected(indexer, messages) as late:
                try:
                    return bool(late.ask("ScoreTokens", model_name=MODEL, token_ids=A).scores)
                except grpc.RpcError:
                    return False

        until("a new client is answered", is_open)


# ---------------------------------------------------------------------------------------------- streams and the end


def test_watchers_are_sent_all_and_then_what_changes(herd: Herd, messages: dict[str, Any]) -> None:
    indexer, engine = one_pod(herd)
    other = herd.publisher("b")
    with connected(indexer, messages) as client:
        states = client.watch()
        first = next(states)
        assert [each.pod for each in first.pods] == ["a"]
        row = indexer.pod("a")
        shown = first.pods[0]
        assert (shown.state, shown.model, shown.publisher) == (row["state"], row["model"], row["publisher"])
        assert dict(shown.blocks) == row["blocks"] == {"gpu": 8}
        assert shown.last_seq == row["last_seq"]
        engine.cut(A, 3)
        begin = time.monotonic()
        while dict(next(states).pods[0].blocks) != {"gpu": 3}:
            assert time.monotonic() - begin < LIMIT
        indexer.add(other)
        names: set[str] = set()
        while "b" not in names:
            names |= {each.pod for each in next(states).pods}
        assert indexer.remove("b") == 200
        gone: set[str] = set()
        while "b" not in gone:
            gone |= {each.publisher for each in next(states).removed}
        states.cancel()


def test_there_is_a_bound_of_watchers(herd: Herd, messages: dict[str, Any]) -> None:
    indexer, _ = one_pod(herd)
    with connected(indexer, messages) as client:
        watching = [client.watch() for _ in range(WATCHERS)]
        for each in watching:
            assert next(each).pods
        status, text = refusal(lambda: next(client.watch()))
        assert status == "RESOURCE_EXHAUSTED" and str(WATCHERS) in text
        assert client.ask("ScoreTokens", model_name=MODEL, token_ids=A).scores[0].score == 8
        watching.pop().cancel()

        def has_room() -> bool:
            try:
                return bool(next(client.watch()).pods)
            except grpc.RpcError:
                return False

        until("there is room for another one", has_room)


def test_the_end_is_in_time_with_an_open_watch(herd: Herd, messages: dict[str, Any]) -> None:
    indexer, _ = one_pod(herd)
    with connected(indexer, messages) as client:
        states = client.watch()
        assert next(states).pods
        host, _, port = address_of(indexer).rpartition(":")
        with socket.create_connection((host, int(port)), timeout=LIMIT):
            begin = time.monotonic()
            os.kill(indexer.pid, signal.SIGTERM)
            assert refusal(lambda: [each for each in states])[0] == "UNAVAILABLE"
            assert indexer.process is not None and indexer.process.wait(LIMIT) == 0
            assert time.monotonic() - begin < 5
