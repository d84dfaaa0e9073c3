"""`cenote manager` over gRPC, with messages from the numbers of their fields: the answers of HTTP, and bad bytes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from manager import Answer, FilePart, Manager, code_of, instance_message, uris_of
from manager_wire import ADMIN_SERVICE, META_SERVICE, WireClient
from node import LIMIT, MiB, until

SPECS = (("tp0", 512), ("tp1", 256))
KEYS = [11, -7, (1 << 63) - 1, -(1 << 63), 5]
LONGEST_MESSAGE = 16 * MiB

Call = Callable[..., Answer]


@pytest.fixture(scope="module")
def running_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with Manager(tmp_path_factory.mktemp("manager"), "manager.read_choice=first") as made:
        made.add_instance("first", specs=SPECS)
        yield made


@pytest.fixture
def wire(manager: Manager) -> Iterator[WireClient]:
    client = WireClient(manager.meta_rpc, manager.admin_rpc)
    yield client
    client.close()


def http_call(manager: Manager) -> Call:
    """Calls over HTTP by the names that gRPC has for them."""

    def call(method: str, **fields: Any) -> Answer:
        return manager.call(method[0].lower() + method[1:], **fields)

    return call


def normal(value: Any, name: str = "") -> Any:
    """An answer without what differs from one call, instance or session to the next."""
    if isinstance(value, dict):
        return {key: normal(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [normal(each, name) for each in value]
    if name in ("request_id", "write_session_id", "id", "create_time"):
        return re.sub(r"[0-9a-f]", "0", str(value)) if name != "create_time" else bool(int(value))
    if isinstance(value, str):
        return re.sub(r"life-\w+|[0-9a-f]{16}", "#", value)
    return value


def play_life(call: Call, instance: str, settle: Callable[[], None]) -> list[Answer]:
    """A whole life of an instance's blocks, and every answer in it. `settle` waits until what goes is gone."""
    answers: list[Answer] = []

    def ask(method: str, **fields: Any) -> Answer:
        answers.append(call(method, **{"instance_id": instance, **fields}))
        return answers[-1]

    ask("RegisterInstance", **{**instance_message(instance, SPECS, "g-first"), "trace_id": "t"})
    ask("RegisterInstance", **instance_message(instance, (("tp0", 512),), "g-first"))
    ask("GetInstanceInfo")
    ask("GetCacheLocation", query_type="QT_BATCH_GET", block_keys=KEYS)
    granted = ask("StartWriteCache", block_keys=[*KEYS, KEYS[0]], write_timeout_seconds=300)
    for uri in (uri for uris in uris_of(granted) for uri in uris):
        part = FilePart.parse(uri)
        part.write(b"\x05" * part.size)
    ask("GetCacheMeta", block_keys=KEYS)
    ask("StartWriteCache", block_keys=KEYS[:2])
    session = granted["write_session_id"]
    ask("FinishWriteCache", write_session_id=session, success_blocks={"offset": 6})
    mask = {"bool_masks": {"values": [True, True, True, False, True]}}
    ask("FinishWriteCache", write_session_id=session, success_blocks=mask)
    ask("FinishWriteCache", write_session_id="1" * 32, success_blocks=mask)
    settle()
    ask("GetCacheMeta", block_keys=[*KEYS, 3])
    for query in ("QT_UNSPECIFIED", "QT_BATCH_GET", "QT_PREFIX_MATCH", "QT_PREFIX_MATCH_WITH_MAMBA"):
        ask("GetCacheLocation", query_type=query, block_keys=KEYS)
        ask("GetCacheLocationLen", query_type=query, block_keys=KEYS)
    ask("GetCacheLocation", query_type="QT_REVERSE_ROLL_SW_MATCH", block_keys=KEYS, sw_size=2)
    ask("GetCacheLocation", query_type="QT_REVERSE_ROLL_SW_MATCH", block_keys=KEYS, sw_size=0)
    ask("GetCacheLocation", block_keys=KEYS, block_mask={"offset": 4}, location_spec_names=["tp1"])
    ask("GetCacheLocation", block_keys=KEYS, block_mask={"bool_masks": {"values": [True, False]}})
    ask("GetCacheLocation", token_ids=list(range(200)))
    ask("GetCacheLocation")
    ask("GetCacheLocationsByBackend", block_keys=KEYS, backend_selectors=[{"backend_type": "ST_NFS"}])
    ask("StartWriteCache", block_keys=[KEYS[0], 100, KEYS[1]])
    ask("RemoveCache", block_keys=KEYS, block_mask={"offset": 1})
    settle()
    ask("GetCacheLocation", query_type="QT_BATCH_GET", block_keys=KEYS)
    ask("TrimCache", strategy="TS_REMOVE_ALL_CACHE")
    ask("TrimCache", strategy="TS_UNSPECIFIED")
    settle()
    ask("GetCacheMeta", block_keys=KEYS)
    return answers


def test_a_whole_life_has_the_answers_of_http(manager: Manager, wire: WireClient) -> None:
    def settle(instance: str) -> None:
        def is_settled() -> bool:
            return set(manager.states(instance, KEYS)) <= {"CLS_SERVING", "CLS_NOT_FOUND"}

        until("what goes is gone", is_settled)

    over_http = play_life(http_call(manager), "life-http", lambda: settle("life-http"))
    over_grpc = play_life(wire.call, "life-grpc", lambda: settle("life-grpc"))
    codes = [code_of(each) for each in over_grpc]
    assert codes.count("OK") > 20 and {"DUPLICATE_ENTITY", "INVALID_ARGUMENT", "SESSION_NOT_FOUND"} <= set(codes)
    for number, (first, second) in enumerate(zip(over_http, over_grpc, strict=True)):
        assert normal(second) == normal(first), f"answer {number}"


def test_what_one_face_writes_the_other_one_reads(manager: Manager, wire: WireClient) -> None:
    manager.register("both", SPECS, "g-first")
    granted = wire.call("StartWriteCache", instance_id="both", block_keys=[1, 2], write_timeout_seconds=300)
    assert code_of(granted) == "OK" and len(granted["locations"]) == 2
    session, success = granted["write_session_id"], {"offset": 2}
    manager.do("finishWriteCache", instance_id="both", write_session_id=session, success_blocks=success)
    assert manager.locations("both", [1, 2]) == uris_of(granted)
    ask = http_call(manager)
    for method, fields in (
        ("GetCacheLocation", {"query_type": "QT_BATCH_GET", "block_keys": [1, 2, 3]}),
        ("GetCacheLocation", {"query_type": "QT_PREFIX_MATCH", "block_keys": [1, 2, 3]}),
        ("GetCacheMeta", {"block_keys": [1, 3]}),
        ("GetInstanceInfo", {}),
    ):
        answers = [call(method, instance_id="both", **fields) for call in (ask, wire.call)]
        for each in answers:
            del each["header"]["request_id"]
        assert answers[0] == answers[1]
    byte_keys = [number.to_bytes(16, "little") for number in (1, 2, 3)]
    request = wire.classes["GetCacheLocationRequest"](instance_id="both", query_type=1, byte_keys=byte_keys)
    answer = wire.parse("GetCacheLocation", wire.raw("GetCacheLocation", request.SerializeToString()))
    assert uris_of(answer) == [*uris_of(granted), ["", ""]]


def test_checksums_of_a_finish_are_answered_with_their_specs(manager: Manager, wire: WireClient) -> None:
    manager.register("sums", SPECS, "g-first")
    for call, key in ((http_call(manager), 1), (wire.call, 2)):
        granted = call("StartWriteCache", instance_id="sums", block_keys=[key], write_timeout_seconds=300)
        sums = ["18446744073709551615", "7"]  # one a spec
        fields = {"write_session_id": granted["write_session_id"], "success_blocks": {"offset": 1}, "checksums": sums}
        short = call("FinishWriteCache", instance_id="sums", **(fields | {"checksums": sums[:1]}))
        assert code_of(short) == "INVALID_ARGUMENT", short
        for _ in range(2):
            assert code_of(call("FinishWriteCache", instance_id="sums", **fields)) == "OK"
        other = call("FinishWriteCache", instance_id="sums", **(fields | {"checksums": ["1", "2"]}))
        assert code_of(other) == "INVALID_ARGUMENT", other

    def sums_of(locations: list[Any]) -> list[list[str]]:
        return [[str(spec.get("checksum", 0)) for spec in each["location_specs"]] for each in locations]

    for call in (http_call(manager), wire.call):
        plain = {"instance_id": "sums", "block_keys": [1, 2]}
        read = call("GetCacheLocation", query_type=1, **plain)
        assert sums_of(read["locations"]) == [sums, sums], read
        assert sums_of(call("GetCacheMeta", **plain)["locations"]) == [sums, sums]
        by_type = call("GetCacheLocationsByBackend", **plain)["key_locations"]
        assert [sums_of(each["locations"]) for each in by_type] == [[sums], [sums]]


def test_the_admin_port_answers(manager: Manager, wire: WireClient) -> None:
    health = wire.call("CheckHealth")
    assert health["is_leader"] and health["is_health"]
    listed = wire.call("ListInstanceInfo", instance_group_name="g-first")
    expected = manager.do("listInstanceInfo", instance_group_name="g-first")
    assert listed["instance_info"] == expected["instance_info"] != []


def test_the_cluster_is_described(manager: Manager, wire: WireClient) -> None:
    cluster = wire.call("GetClusterInfo")
    assert code_of(cluster) == "OK", cluster
    assert cluster["leader_endpoint"]["meta_rpc_port"] == manager.meta_rpc
    assert cluster["leader_endpoint"]["meta_http_port"] == manager.meta
    assert normal(cluster) == normal(manager.do("getClusterInfo"))


# ---------------------------------------------------------------------------------------------- bytes


def text(field: int, value: bytes) -> bytes:
    """A field with a length, below 128 bytes."""
    return bytes([field << 3 | 2, len(value)]) + value


def status_of(call: Callable[[], Any]) -> str:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    return str(refused.value.code().name)


def test_bytes_made_by_hand_are_understood(manager: Manager, wire: WireClient) -> None:
    manager.register("hand", SPECS, "g-first")
    name = text(2, b"hand")
    packed, single = text(3, b"\x07\x08"), b"\x18\x09\x18\x87\x01"  # keys 7, 8; keys 9, 135
    unknown = b"\xf8\x3f\x01" + text(15, b"unknown")
    start = text(1, b"trace") + name + packed + single + b"\x30\x3c" + unknown
    granted = wire.parse("StartWriteCache", wire.raw("StartWriteCache", start))
    assert code_of(granted) == "OK" and len(granted["locations"]) == 4
    success = text(4, text(2, text(1, b"\x01\x01\x00\x01")))
    finish = name + text(3, granted["write_session_id"].encode()) + success
    assert wire.raw("FinishWriteCache", finish).startswith(b"\x0a")
    found = wire.raw("GetCacheLocation", name + b"\x18\x01" + text(4, b"\x07\x08\x09\x87\x01"))
    uris = uris_of(wire.parse("GetCacheLocation", found))
    assert [bool(each[0]) for each in uris] == [True, True, False, True]
    removed = wire.raw("RemoveCache", name + packed)
    assert code_of(wire.parse("RemoveCache", removed)) == "OK"
    assert [bool(each) for each in manager.locations("hand", [7, 8, 9, 135])] == [False, False, False, True]


def test_bytes_that_are_no_message_are_refused(manager: Manager, wire: WireClient) -> None:
    for method in ("GetCacheLocation", "StartWriteCache", "FinishWriteCache", "RegisterInstance", "CheckHealth"):
        for message in (b"\xff\xff\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe", b"\x12", b"\x0b\x0b\x0b", b"\x0a" * 1000):
            try:
                answer = wire.parse(method, wire.raw(method, message))
                assert code_of(answer) == "INVALID_ARGUMENT", (method, message, answer)
            except grpc.RpcError as error:
                assert error.code().name == "INVALID_ARGUMENT", (method, message, error)
    assert manager.call("checkHealth")["is_health"]


def test_random_bytes_are_never_errors_of_the_manager(manager: Manager, wire: WireClient) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    methods = ("GetCacheLocation", "GetCacheMeta", "StartWriteCache", "FinishWriteCache", "RemoveCache", "TrimCache")
    manager.register("random", SPECS, "g-first")
    template = text(2, b"random") + text(3, bytes(range(8))) + b"\x20\x01" + text(4, text(2, b"\x0a\x02\x01\x00"))
    for _ in range(1_000):
        message = bytearray(template)
        for _ in range(dice.randrange(1, 6)):
            message[dice.randrange(len(message))] = dice.randrange(256)
        method = dice.choice(methods)
        try:
            answer = wire.parse(method, wire.raw(method, bytes(message)))
        except grpc.RpcError as error:
            assert error.code().name == "INVALID_ARGUMENT", (seed, method, message.hex(), error)
        else:
            codes = ("OK", "INVALID_ARGUMENT", "INSTANCE_NOT_EXIST", "SESSION_NOT_FOUND", "REACH_MAX_ENTITY_CAPACITY")
            assert code_of(answer) in codes, (seed, method, message.hex(), answer)
    assert manager.call("checkHealth")["is_health"]


def test_unknown_methods_and_messages_above_the_limit_are_refused(manager: Manager, wire: WireClient) -> None:
    def ask(channel: Any, path: str, message: bytes = b"") -> str:
        return status_of(lambda: channel.unary_unary(path)(message, timeout=LIMIT))

    assert ask(wire.meta, META_SERVICE + "Nothing") == "UNIMPLEMENTED"
    assert ask(wire.meta, ADMIN_SERVICE + "CheckHealth") == "UNIMPLEMENTED"
    assert ask(wire.admin, META_SERVICE + "StartWriteCache") == "UNIMPLEMENTED"
    assert ask(wire.meta, META_SERVICE + "GetCacheLocation", bytes(LONGEST_MESSAGE + 1)) == "RESOURCE_EXHAUSTED"
    assert manager.call("checkHealth")["is_health"]
