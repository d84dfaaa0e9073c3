"""`cenote manager` over HTTP: the cases of its contract, a race, random histories, and requests that are wrong."""

from __future__ import annotations

import contextlib
import json
import random
import select
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from manager import ADMIN_CALLS, Manager, code_of, message_of
from manager_cases import Case, CaseFile, Player, play_race
from manager_history import History, Step, shrunk
from node import LIMIT, MiB

CASES = CaseFile.load()
LONGEST_BODY = 16 * MiB


@pytest.fixture(scope="module")
def running_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with Manager(tmp_path_factory.mktemp("manager"), "manager.read_choice=first") as made:
        yield made


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A new one each time, which pytest shows where a test fails."""
    value = random.SystemRandom().randrange(1 << 30)
    print(f"seed {value} of {request.node.name}")
    return value


# ---------------------------------------------------------------------------------------------- cases


@pytest.mark.parametrize("case", CASES.playable(), ids=lambda case: f"{case['id']} {case['title']}")
def test_a_case_of_the_contract_is_answered(manager: Manager, tmp_path: Path, case: Case) -> None:
    Player(manager, tmp_path, CASES.macros).play(case)


def test_a_race_grants_each_key_once(manager: Manager, seed: int) -> None:
    play_race(manager, seed)


@pytest.mark.parametrize("steps", [1_500, pytest.param(100_000, marks=pytest.mark.full)])
def test_a_random_history_is_answered_as_by_its_model(manager: Manager, seed: int, steps: int) -> None:
    with History(manager, seed) as history:
        history.play(steps, special=max(400, steps // 50))


def test_a_random_history_goes_on_after_kills(manager: Manager, seed: int) -> None:
    with History(manager, seed) as history:
        for _ in range(10):
            history.play(150)
            history.restart()
        history.play(150)


def test_a_history_that_fails_is_shrunk_to_the_calls_that_matter() -> None:
    steps = [Step(number, "start", "one", "http") for number in range(200)]

    def is_failing(played: Sequence[Step]) -> bool:
        numbers = [step.number for step in played]
        return 17 in numbers and 150 in numbers[numbers.index(17) :]

    assert [step.number for step in shrunk(steps, is_failing, LIMIT)] == [17, 150]
    assert len(shrunk(steps, is_failing, 0)) == len(steps)


# ---------------------------------------------------------------------------------------------- wrong requests

META_CALLS = [
    "registerInstance",
    "getInstanceInfo",
    "getCacheLocation",
    "getCacheLocationLen",
    "getCacheLocationsByBackend",
    "getCacheMeta",
    "startWriteCache",
    "finishWriteCache",
    "removeCache",
    "trimCache",
]
WRONG_ADMIN_CALLS = [
    "addStorage",
    "updateStorage",
    "removeStorage",
    "createInstanceGroup",
    "updateInstanceGroup",
    "getInstanceGroup",
    "removeInstance",
    "addAccount",
    "loadConfigSnapshot",
]
NO_JSON = [
    b"",
    b" \n",
    b"{",
    b"}",
    b"nothing",
    b'{"instance_id": }',
    b"{'instance_id': 'i'}",
    b'{"instance_id": "i",}',
    b'{"instance_id": "i"} {}',
    b'{"block_keys": [1, 2',
    b'{"block_keys": [NaN]}',
    b'{"block_keys": [01]}',
    b'{"instance_id": "\xff\xfe"}',
    b'{"instance_id": "\x00"}',
    b"\x00" * 64,
    bytes(range(256)),
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
]
NO_OBJECTS = [b"[]", b"null", b"true", b"17", b'"text"', b"[{}]"]


def check_refusal(manager: Manager, rpc: str, body: bytes, statuses: set[int]) -> str:
    """Posts a body. Its answer has a header that refuses it as an argument; returns the message."""
    reply = manager.ask(manager.port_of(rpc), "POST", f"/api/{rpc}", body)
    shown = (rpc, body[:200], reply.status, reply.body[:500])
    assert reply.status in statuses, shown
    assert code_of(reply.json) == "INVALID_ARGUMENT", shown
    assert message_of(reply.json), shown
    return message_of(reply.json)


@pytest.mark.parametrize("rpc", META_CALLS + WRONG_ADMIN_CALLS)
def test_a_body_that_is_no_object_is_an_invalid_argument(manager: Manager, rpc: str) -> None:
    for body in NO_JSON:
        check_refusal(manager, rpc, body, {200, 400} if not body.strip() else {400})
    for body in NO_OBJECTS:
        check_refusal(manager, rpc, body, {200, 400})


WRONG_TYPES: list[tuple[str, dict[str, Any]]] = [
    ("instance_id", {"instance_id": 17}),
    ("instance_id", {"instance_id": ["i"]}),
    ("instance_id", {"instance_id": {"a": 1}}),
    ("block_keys", {"block_keys": 1}),
    ("block_keys", {"block_keys": {"1": 1}}),
    ("block_keys", {"block_keys": ["x"]}),
    ("block_keys", {"block_keys": [1.5]}),
    ("block_keys", {"block_keys": [True]}),
    ("block_keys", {"block_keys": [[1]]}),
    ("block_keys", {"block_keys": [None]}),
    ("block_keys", {"block_keys": [1 << 63]}),
    ("block_keys", {"block_keys": [-(1 << 63) - 1]}),
    ("block_keys", {"block_keys": [str(1 << 64)]}),
    ("block_keys", {"block_keys": [10**400]}),
    ("block_mask", {"block_mask": 3}),
    ("block_mask", {"block_mask": []}),
    ("block_mask", {"block_mask": {"offset": 1 << 31}}),
    ("block_mask", {"block_mask": {"offset": "x"}}),
    ("block_mask", {"block_mask": {"bool_masks": [True]}}),
    ("block_mask", {"block_mask": {"bool_masks": {"values": True}}}),
    ("block_mask", {"block_mask": {"bool_masks": {"values": [[True]]}}}),
    ("sw_size", {"sw_size": 1 << 31}),
    ("sw_size", {"sw_size": 0.5}),
    ("query_type", {"query_type": "QT_NOTHING"}),
    ("query_type", {"query_type": [2]}),
]


@pytest.mark.parametrize(("field", "fields"), WRONG_TYPES, ids=lambda value: json.dumps(value)[:60])
def test_a_field_of_a_wrong_type_is_named(manager: Manager, field: str, fields: dict[str, Any]) -> None:
    body = json.dumps({"instance_id": "i", "block_keys": [1], **fields}).encode()
    assert field in check_refusal(manager, "getCacheLocation", body, {400})


WRONG_VALUES: list[tuple[str, dict[str, Any]]] = [
    ("getCacheLocation", {"block_keys": []}),
    ("getCacheLocation", {"block_keys": [1], "query_type": 5}),
    ("getCacheLocation", {"block_keys": [1], "query_type": -1}),
    ("getCacheLocation", {"block_keys": [1], "block_mask": {"offset": -1}}),
    ("getCacheLocation", {"block_keys": [1], "block_mask": {"offset": 2}}),
    ("getCacheLocation", {"block_keys": [1], "block_mask": {"bool_masks": {"values": []}}}),
    ("getCacheLocation", {"block_keys": [1], "location_spec_names": ["nothing"]}),
    ("getCacheLocation", {"byte_keys": ["AAAA"]}),
    ("getCacheLocation", {"block_keys": list(range(65_537))}),
    ("getCacheMeta", {"block_keys": [1], "block_mask": {"offset": 2}}),
    ("startWriteCache", {"block_keys": []}),
    ("startWriteCache", {"block_keys": list(range(65_537))}),
    ("startWriteCache", {"block_keys": [1], "write_timeout_seconds": -1}),
    ("startWriteCache", {"block_keys": [1], "min_replica_count": -1}),
    ("startWriteCache", {"block_keys": [1], "location_spec_group_names": ["nothing"]}),
    ("removeCache", {"block_keys": [1], "block_mask": {"offset": 7}}),
    ("removeCache", {}),
    ("trimCache", {}),
    ("trimCache", {"strategy": 9}),
    ("trimCache", {"strategy": "TS_TIMESTAMP", "begin_timestamp": 2, "end_timestamp": 1}),
]


@pytest.mark.parametrize(("rpc", "fields"), WRONG_VALUES, ids=lambda value: json.dumps(value)[:60])
def test_a_value_that_cannot_be_right_is_an_invalid_argument(
    manager: Manager, plain_instance: str, rpc: str, fields: dict[str, Any]
) -> None:
    body = json.dumps({"instance_id": plain_instance, **fields}).encode()
    check_refusal(manager, rpc, body, {200})
    assert manager.states(plain_instance, [1]) == ["CLS_NOT_FOUND"]


@pytest.fixture(scope="module")
def plain_instance(running_manager: Manager) -> str:
    running_manager.add_instance("plain")
    return "plain"


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_id": ""},
        {"instance_id": "x" * 256},
        {"instance_id": "line\nbreak"},
        {"instance_id": "nul\0"},
        {"block_size": 0},
        {"block_size": -1},
        {"location_spec_infos": []},
        {"location_spec_infos": [{"name": "a", "size": 0}]},
        {"location_spec_infos": [{"name": "a", "size": -5}]},
        {"location_spec_infos": [{"name": "", "size": 5}]},
        {"location_spec_infos": [{"name": "a", "size": 5}, {"name": "a", "size": 5}]},
        {"location_spec_infos": [{"name": f"s{number}", "size": 5} for number in range(65)]},
        {"location_spec_groups": [{"name": "g", "spec_names": ["nothing"]}]},
        {"model_deployment": {"dtype": "bf16"}},
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_registration_that_cannot_be_right_is_an_invalid_argument(
    manager: Manager, plain_instance: str, fields: dict[str, Any]
) -> None:
    message = {
        "instance_group": "g-plain",
        "instance_id": "wrong",
        "block_size": 64,
        "location_spec_infos": [{"name": "a", "size": 5}],
        "model_deployment": {"model_name": "m", "dtype": "bf16"},
        **fields,
    }
    check_refusal(manager, "registerInstance", json.dumps(message).encode(), {200})
    listed = manager.do("listInstanceInfo", instance_group_name="g-plain")["instance_info"]
    assert [each["instance_id"] for each in listed] == [plain_instance]


def random_value(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.randrange(10 if depth < 4 else 7)
    if kind == 7:
        return [random_value(dice, depth + 1) for _ in range(dice.randrange(4))]
    if kind > 7:
        return {dice.choice(FIELDS): random_value(dice, depth + 1) for _ in range(dice.randrange(5))}
    return dice.choice(SCALARS)


FIELDS = [
    *("instance_id", "instance_group", "block_size", "location_spec_infos", "name", "size", "model_deployment"),
    *("block_keys", "byte_keys", "token_ids", "block_mask", "offset", "bool_masks", "values", "sw_size", "query_type"),
    *("write_session_id", "success_blocks", "write_timeout_seconds", "strategy", "storage", "nfs", "root_path"),
    *("global_unique_name", "quota", "capacity", "version", "current_version", "cache_config", "reclaim_strategy"),
    *("storage_candidates", "quota_config", "storage_type", "meta_indexer_config", "max_key_count", "checksums"),
    *("trigger_strategy", "used_percentage", "config_snapshot", "user_name", "password", "role", "unknown"),
]
SCALARS = [
    *(None, True, False, 0, 1, -1, 2, 64, 255, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 64, 1e308, -0.0),
    *("", "i", "g-i", "s-i", "\0", "../../etc", "\U0001f600", "a" * 300, "9" * 40, "-1", "QT_BATCH_GET", "{}"),
]
SPARED_CALLS = {"leaderDemote", "updateLogger", "addAccount"}  # they change accounts, the leader or the log


def test_random_bodies_are_never_errors_of_the_manager(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    calls = META_CALLS + sorted(ADMIN_CALLS - SPARED_CALLS)
    with Manager(tmp_path / "manager") as manager:
        manager.add_instance("i")
        for number in range(3_000):
            rpc = dice.choice(calls)
            message = {dice.choice(FIELDS): random_value(dice) for _ in range(dice.randrange(8))}
            if dice.random() < 0.7:
                message["instance_id"] = "i"
            reply = manager.send(rpc, message)
            shown = (seed, number, rpc, message, reply.status, reply.body[:500])
            assert reply.status in (200, 400), shown
            assert code_of(reply.json) not in ("", "UNSPECIFIED", "INTERNAL_ERROR", "UNKNOWN_ERROR"), shown
            assert reply.status == 200 or code_of(reply.json) == "INVALID_ARGUMENT", shown
        assert manager.call("checkHealth")["is_health"]


def test_unknown_paths_and_methods_are_refused(manager: Manager) -> None:
    for port in (manager.meta, manager.admin):
        for path in ("/", "/api", "/api/", "/api/nothing", "/api/GetCacheLocation", "/api/getCacheLocation/x", "/x"):
            assert manager.ask(port, "POST", path, b"{}").status == 404, path
    assert manager.ask(manager.meta, "POST", "/api/addStorage", b"{}").status == 404
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        assert manager.ask(manager.meta, method, "/api/getCacheLocation").status == 405, method
        assert manager.ask(manager.admin, method, "/api/listStorage").status == 405, method
    assert manager.ask(manager.admin, "POST", "/healthz", b"").status == 405
    assert manager.ask(manager.admin, "GET", "/healthz").status == 200
    assert b"cenote_manager_sessions " in manager.ask(manager.admin, "GET", "/metrics").body


def body_status(manager: Manager, length: int) -> int:
    """The status of a request whose head announces a body of `length` bytes, of which none is sent."""
    with socket.create_connection(("127.0.0.1", manager.meta), timeout=LIMIT) as connection:
        head = f"POST /api/getCacheLocation HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode())
        line = connection.makefile("rb").readline()
    return int(line.split()[1])


def chunked_status(manager: Manager, length: int) -> int:
    """The status of a request whose body comes in chunks of 1 MiB, up to `length` bytes or to the answer."""
    chunk = f"{MiB:x}\r\n".encode() + bytes(MiB) + b"\r\n"
    with socket.create_connection(("127.0.0.1", manager.meta), timeout=LIMIT) as connection:
        connection.sendall(b"POST /api/getCacheLocation HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(length // MiB):
            if select.select([connection], [], [], 0)[0]:
                break
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(chunk)
        line = connection.makefile("rb").readline()
    return int(line.split()[1])


def test_a_body_above_the_limit_is_refused_before_it_is_sent(manager: Manager) -> None:
    for length in (LONGEST_BODY + 1, 1 << 40):
        assert body_status(manager, length) == 413
    assert chunked_status(manager, LONGEST_BODY + MiB) == 413
    message = json.dumps({"instance_id": "absent", "block_keys": [1], "unknown": ""}).encode()
    longest = message.replace(b'""', b'"' + b"x" * (LONGEST_BODY - len(message)) + b'"')
    assert len(longest) == LONGEST_BODY
    reply = manager.ask(manager.meta, "POST", "/api/getCacheLocation", longest)
    assert (reply.status, code_of(reply.json)) == (200, "INSTANCE_NOT_EXIST")


def test_bodies_come_in_chunks_and_names_in_camel_case(manager: Manager, plain_instance: str) -> None:
    body = json.dumps({"instanceId": plain_instance, "blockKeys": ["1", 2], "queryType": 1, "unknown": {}}).encode()
    with socket.create_connection(("127.0.0.1", manager.meta), timeout=LIMIT) as connection:
        connection.sendall(b"POST /api/getCacheLocation HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n")
        connection.sendall(b"Connection: close\r\n\r\n")
        for position in range(0, len(body), 10):
            chunk = body[position : position + 10]
            connection.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        connection.sendall(b"0\r\n\r\n")
        reply = connection.makefile("rb").read()
    head, _, text = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    answer = manager.call("getCacheLocation", instance_id=plain_instance, block_keys=[1, 2], query_type="QT_BATCH_GET")
    assert code_of(answer) == "OK" and len(answer["locations"]) == 2
    if b"chunked" not in head.lower():
        assert json.loads(text)["locations"] == answer["locations"]
