"""Wrong input, from the command line to the socket: each is refused, at once and in words."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import pytest
import wire
from conftest import StartAgent, StartNode, make_spec
from node import LIMIT, UNREACHED, MiB, Node, node_environment, open_files, run_cenote, until
from tier import both_tiers

Attach = Callable[..., Any]


# ---- specs


@both_tiers
@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "llama-3-70b"),
        ("dtype", "fp8"),
        ("layout", "layer_first"),
        ("tokens_per_block", 32),
        ("hash_scheme", "sha256"),
        ("fingerprint", "deadbeef"),
    ],
)
def test_a_spec_that_differs_is_refused_by_the_name_of_the_field(
    node: Node, attach: Attach, field: str, value: Any
) -> None:
    attach(node, "agreed")
    with pytest.raises(cenote.SpecMismatch) as why:
        cenote.attach(make_spec("agreed", **{field: value}), socket=str(node.socket), device=node.device)
    assert field in str(why.value)
    assert str(value) in str(why.value)


@both_tiers
@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("groups", "named"),
    [
        ({"full": {"parts": {"kv": 8192}}}, "groups.full.parts"),
        ({"full": {"parts": {"k": 2048, "v": 2048}}}, "groups.full.parts"),
        ({"other": {"parts": {"kv": 4096}}}, "groups"),
        ({"full": {"parts": {"kv": 4096}}, "more": {"parts": {"kv": 4096}}}, "groups"),
    ],
)
def test_groups_and_parts_that_differ_are_named(node: Node, attach: Attach, groups: dict[str, Any], named: str) -> None:
    attach(node, "agreed")
    with pytest.raises(cenote.SpecMismatch, match=named):
        attach(node, "agreed", groups=groups)


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": ""}, "id"),
        ({"name": "x" * 256}, "256 bytes"),
        ({"name": "null\0byte"}, "zero byte"),
        ({"name": "escape\x1b[31m"}, "instance id holds a control character: `escape\\x1b[31m`"),
        ({"model": "two\nlines"}, "model holds a control character"),
        ({"instance_group": "\x9b31m"}, "instance_group holds a control character"),
        ({"groups": {"\x07": {"parts": {"kv": 1}}}}, "group name holds a control character"),
        ({"block": 0}, "1 byte to 1 GiB"),
        ({"block": -1}, "1 byte to 1 GiB"),
        ({"block": (1 << 30) + 1}, "1 byte to 1 GiB"),
        ({"block": 1 << 62}, "1 byte to 1 GiB"),
        ({"block": 1 << 29}, "dram.capacity"),
        ({"tokens_per_block": 0}, "tokens_per_block"),
        ({"tokens_per_block": (1 << 20) + 1}, "tokens_per_block"),
        ({"groups": {"full": {"parts": {}}}}, "no parts"),
        ({"groups": {"": {"parts": {"kv": 1}}}}, "group name"),
        ({"groups": {"full": {"parts": {"": 1}}}}, "part name"),
        ({"groups": {"full": {"parts": {f"r{i}": 4096 for i in range(65)}}}}, "64"),
        ({"groups": {f"g{i}": {"parts": {"kv": 4096}} for i in range(17)}}, "16"),
        ({"groups": {"full": {"parts": {"a": 1 << 30, "b": 1}}}}, "1 GiB"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sizes_and_names_that_can_never_work_are_refused(shared_node: Node, fields: dict[str, Any], says: str) -> None:
    with pytest.raises(cenote.InvalidArgument) as why:
        cenote.attach(make_spec(**{"name": "absurd", **fields}), socket=str(shared_node.socket))
    assert says in str(why.value)


@pytest.mark.sanitizer
def test_the_node_checks_specs_itself(shared_node: Node) -> None:
    refused: list[tuple[dict[str, dict[str, int]], str]] = [
        ({}, "1 to 16 groups"),
        ({"full": {}}, "no parts"),
        ({"full": {"kv": 0}}, "0 bytes"),
        ({"full": {"kv": 1 << 63}}, "1 GiB"),
        ({"full": {"a": (1 << 30), "b": (1 << 30)}}, "1 GiB"),
    ]
    for groups, says in refused:
        with pytest.raises(wire.Refused, match=says):
            wire.RawSession.attach(shared_node.socket, "unchecked", groups)
    with pytest.raises(wire.Refused, match="tokens_per_block"):
        wire.RawSession.attach(shared_node.socket, "unchecked", {"full": {"kv": 4096}}, tokens=0)
    with pytest.raises(wire.Refused, match="max_pins"):
        wire.RawSession.attach(shared_node.socket, "unchecked", {"full": {"kv": 4096}}, pins=1 << 21)


@pytest.mark.sanitizer
@pytest.mark.parametrize("pins", [0, -1, 1 << 21, 1 << 32])
def test_an_absurd_number_of_pins_is_refused(shared_node: Node, pins: int) -> None:
    with pytest.raises((cenote.InvalidArgument, cenote.CenoteError), match="pins"):
        cenote.attach(make_spec("pins"), socket=str(shared_node.socket), max_pins=pins)


@pytest.mark.sanitizer
def test_a_share_of_pins_above_the_node_s_is_refused(start_node: StartNode) -> None:
    node = start_node("session.max_pins=100")
    with pytest.raises(cenote.CenoteError, match=r"session\.max_pins allows 100") as why:
        cenote.attach(make_spec("pins"), socket=str(node.socket), max_pins=101)
    assert why.value.code == "limit_exceeded"
    cenote.attach(make_spec("pins"), socket=str(node.socket), max_pins=100).close()


@pytest.mark.sanitizer
@pytest.mark.parametrize("name", [b"\xff", b"x" * 127 + b"\xc3", b"\xed\xa0\x80", b"\x1b]0;owned\x07", b"x" * 256])
def test_a_name_that_no_status_could_show_is_refused_by_the_node(shared_node: Node, name: bytes) -> None:
    worker = shared_node.worker_pid

    good, as_text = {"full": {"kv": 4096}}, struct.pack("<I", len(name)) + name
    spec = wire.encode_spec("ugly", good)
    attempts = {
        "client name": wire.encode_attach(spec, name=name),
        "instance id": wire.encode_attach(spec.replace(wire.text("ugly"), as_text)),
        "model": wire.encode_attach(spec.replace(wire.text("m"), as_text)),
        "group name": wire.encode_attach(spec.replace(wire.text("full"), as_text)),
        "part name": wire.encode_attach(spec.replace(wire.text("kv"), as_text)),
    }
    for what, request in attempts.items():
        with wire.Link(shared_node.socket) as link, pytest.raises(wire.Refused, match=f"{what} (is|holds|has) ") as why:
            link.ask(wire.ATTACH, request)
        assert why.value.code == 1
    assert all(each["id"] != "ugly" for each in shared_node.status()["instances"])
    assert shared_node.worker_pid == worker


@pytest.mark.sanitizer
def test_a_client_s_name_of_any_language_is_shown(shared_node: Node, attach: Attach) -> None:
    name = "x" * 127 + "é 漢字"
    attach(shared_node, "named", client_name=name)
    assert name in {each["client"] for each in shared_node.status()["sessions"]}
    with pytest.raises(cenote.InvalidArgument, match="client name has 256 bytes; at most 255"):
        attach(shared_node, "named", client_name="x" * 256)


# ---- keys


@pytest.mark.sanitizer
@pytest.mark.parametrize("width", [0, 1, 7, 65, 100])
def test_keys_too_short_or_too_long_are_refused(shared_node: Node, attach: Attach, width: int) -> None:
    session = attach(shared_node)
    calls: list[Callable[[], Any]] = [
        lambda: session.put([bytes(width)], [bytes(4096)]),
        lambda: session.match([bytes(width)]),
        lambda: session.exists([bytes(width)]),
        lambda: session.acquire([bytes(width)]),
        lambda: session.reserve([bytes(width)]),
        lambda: session.remove([bytes(width)]),
        lambda: session.get_into([bytes(width)], [bytearray(4096)]),
    ]
    for call in calls:
        with pytest.raises(cenote.InvalidArgument, match=rf"{width} bytes.*8 to 64"):
            call()


@pytest.mark.sanitizer
def test_keys_of_mixed_width_are_refused_and_the_first_odd_one_is_named(shared_node: Node, attach: Attach) -> None:
    session = attach(shared_node)
    keys = [bytes(16), bytes(16), bytes(17), bytes(18)]
    with pytest.raises(cenote.InvalidArgument, match="key 2 has 17 bytes"):
        session.match(keys)
    with pytest.raises(cenote.InvalidArgument, match="key 2 has 17 bytes"):
        session.put(keys, [bytes(4096)] * 4)


@pytest.mark.sanitizer
def test_the_node_refuses_bad_entries_one_by_one(shared_node: Node) -> None:
    raw = wire.RawSession.attach(shared_node.socket, "raw-entries", {"full": {"kv": 4096}})
    attempts: list[dict[str, Any]] = [
        {"operation": wire.COMMIT, "key": b"short"},
        {"operation": wire.COMMIT, "key": bytes(16), "block": 1 << 39, "grant_version": 7},
        {"operation": wire.COMMIT, "key": bytes(16), "group": 5},
        {"operation": wire.GRANT, "group": 77, "argument": 1},
        {"operation": wire.RESERVE, "key": bytes(16), "group": 9, "argument": 1},
        {"operation": wire.FINISH, "block": 1 << 18, "argument": 1},
        {"operation": wire.RELEASE, "block": (1 << 18) + 5, "grant_version": 3},
        {"operation": 0},
        {"operation": 200},
    ]
    for attempt in attempts:
        request = raw.submit(**attempt)
        until("an answer", raw.waiting_completions)
        answers = raw.take()
        assert [a.request for a in answers if a.kind == 1] == [request]
        assert answers[-1].code != 0, attempt
    request = raw.submit(wire.RESERVE, key=bytes(16), argument=0)
    until("an answer", lambda: raw.waiting_completions() >= 2)
    refused = raw.take()
    assert [a.kind for a in refused] == [5, 1]
    assert refused[0].code == 1
    raw.close()


# ---- the socket


@pytest.mark.sanitizer
def test_without_a_socket_the_error_says_how_to_start_a_node(tmp_path: Path) -> None:
    nowhere = tmp_path / "cenote.sock"
    with pytest.raises(cenote.NotRunning, match=r"no node at .*cenote\.sock.*cenote node"):
        cenote.attach(make_spec("x"), socket=str(nowhere))
    for command in (
        ["status"],
        ["clear", "--all"],
        ["session", "kill", "1"],
        ["node", "upgrade"],
        ["log-level", "info"],
    ):
        ran = run_cenote(*command, "--socket", nowhere)
        assert ran.returncode == 1, command
        assert "cenote node" in ran.stderr, command
        assert ran.stdout == ""
        assert ran.stderr.count("\n") == 1


def test_a_socket_left_over_from_a_dead_node_is_no_node_and_no_hindrance(start_node: StartNode) -> None:
    node = start_node()
    node.announced_deaths = 0
    node.allowed_errors.append("did not start")  # it answers before the keeper has heard that it is ready
    node.send_signal(signal.SIGKILL)
    node.wait()
    until("the worker went too", lambda: not is_answering(node.socket))
    assert node.socket.exists()
    with pytest.raises(cenote.NotRunning, match="cenote node"):
        cenote.attach(make_spec("x"), socket=str(node.socket), deadline=UNREACHED)
    node.start()
    cenote.attach(make_spec("x"), socket=str(node.socket)).close()


def is_answering(place: Path) -> bool:
    try:
        wire.Link(place, 1.0).close()
    except OSError:
        return False
    return True


def test_a_plain_file_in_the_socket_s_place_is_not_deleted(folder: Path, start_node: StartNode) -> None:
    folder.mkdir()
    (folder / "cenote.sock").write_text("precious")
    node = start_node(launch_only=True)
    assert node.wait() == 2
    assert "not a socket" in node.log_text()
    assert (folder / "cenote.sock").read_text() == "precious"
    (folder / "cenote.sock").unlink()


def test_another_program_at_the_socket_is_told_apart(tmp_path: Path) -> None:
    place = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(place))
        other.listen()
        with pytest.raises(cenote.NotRunning, match="another program"):
            cenote.attach(make_spec("x"), socket=str(place))


def test_a_socket_that_accepts_nobody_ends_in_a_deadline(tmp_path: Path) -> None:
    place = tmp_path / "mute.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mute:
        mute.bind(str(place))
        mute.listen(8)
        begin = time.monotonic()
        with pytest.raises(cenote.DeadlineExceeded):
            cenote.attach(make_spec("x"), socket=str(place), deadline=0.5)
        assert time.monotonic() - begin > 0.4


def test_a_path_too_long_for_a_socket_is_refused_with_the_limit(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 200)
    with pytest.raises(cenote.InvalidArgument, match="107"):
        cenote.attach(make_spec("x"), socket=str(long))
    ran = run_cenote("node", "--set", f"node.runtime_dir={long}")
    assert ran.returncode == 2
    assert "107" in ran.stderr


def test_a_second_node_in_the_same_directory_is_refused(node: Node, attach: Attach) -> None:
    session = attach(node)
    ran = run_cenote("node", "--set", f"node.runtime_dir={node.folder}", "--set", "dram.capacity=1MiB")
    assert ran.returncode == 3
    assert f"pid {node.pid}" in ran.stderr
    assert str(node.folder) in ran.stderr
    other = node.folder.with_name("elsewhere")
    ran = run_cenote("node", "--set", f"node.runtime_dir={other}", "--set", f"node.socket={node.socket}")
    assert ran.returncode == 3
    assert str(node.socket) in ran.stderr
    assert session.put(*one()) == 1, "the first one is unharmed"


def one() -> tuple[list[bytes], list[bytes]]:
    key = blocks.key_of("one", 0)
    return [key], [bytes(4096)]


# ---- the protocol

ATTACH = wire.encode_attach(wire.encode_spec("wire", {"full": {"kv": 4096}}), minor=0)


@pytest.mark.sanitizer
@pytest.mark.parametrize(("major", "minor"), [(0, 1), (2, 0), (2, 1), (65535, 65535), (1, 10)])
def test_another_protocol_version_is_refused_with_both_versions(shared_node: Node, major: int, minor: int) -> None:
    with wire.Link(shared_node.socket) as link, pytest.raises(wire.Refused) as why:
        link.ask(wire.ATTACH, ATTACH, major=major, minor=minor)
    assert why.value.code == 6
    assert f"{major}.{minor}" in why.value.message
    assert "1.9" in why.value.message
    assert "update" in why.value.message


@pytest.mark.sanitizer
def test_a_client_of_the_previous_minor_version_attaches(shared_node: Node, attach: Attach) -> None:
    raw = wire.RawSession.attach(shared_node.socket, "older", {"full": {"kv": 4096}}, minor=0)
    raw.submit(wire.GRANT, argument=4)
    until("an answer", raw.waiting_completions)
    assert [(a.kind, a.code) for a in raw.take()] == [(1, 0)]
    with wire.Link(shared_node.socket) as link:
        payload = wire.encode_attach(wire.encode_spec("older", {"full": {"kv": 4096}}), minor=0)
        assert link.ask(wire.ATTACH, payload, minor=0).minor == 0, "answers are in the client's version"
    raw.close()


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "frame",
    [
        b"x",
        b"\0" * 24,
        wire.FRAME.pack(0x12345678, 1, 1, wire.ATTACH, 0, 0, 1, 0),
        wire.FRAME.pack(wire.MAGIC, 1, 1, wire.ATTACH, 0, 100, 1, 0),
        wire.FRAME.pack(wire.MAGIC, 1, 1, wire.ATTACH, 0, 0xFFFFFFFF, 1, 0),
        wire.FRAME.pack(wire.MAGIC, 1, 1, wire.ATTACH, 0, len(ATTACH) - 20, 1, 0) + ATTACH[:-20],
        wire.FRAME.pack(wire.MAGIC, 1, 1, wire.ATTACH, 0, 4, 1, 0) + b"\xff\xff\xff\xff",
        wire.FRAME.pack(wire.MAGIC, 1, 1, wire.SLABS, 0, 8, 1, 0) + bytes(8),
        wire.FRAME.pack(wire.MAGIC, 1, 1, wire.DETACH, 0, 0, 1, 0),
        wire.FRAME.pack(wire.MAGIC, 1, 9, wire.UNCONFIRMED, 0, 0, 1, 0),
        wire.FRAME.pack(wire.MAGIC, 1, 1, wire.REATTACH, 0, 20, 1, 0) + bytes(20),
        wire.FRAME.pack(wire.MAGIC, 1, 1, wire.REATTACH, 0, 20, 1, 0) + bytes(16) + b"\xff\xff\xff\xff",
        wire.FRAME.pack(wire.MAGIC, 1, 1, wire.ADMIN, 0, 3, 1, 0) + b"{]}",
        wire.FRAME.pack(wire.MAGIC, 1, 1, wire.ADMIN, 0, 20, 1, 0) + b'{"command": [1,2,3]}',
        wire.FRAME.pack(wire.MAGIC, 1, 1, 4711, 0, 0, 1, 0),
        wire.FRAME.pack(wire.MAGIC, 1, 1, wire.ATTACH_REPLY, 0, 0, 1, 0),
    ],
    ids=[
        "one byte", "zeros", "magic", "size", "huge size", "cut short", "string length", "slabs first", "detach first",
        "removals first", "unknown session", "huge count", "broken JSON", "odd command", "unknown type", "an answer",
    ],
)  # fmt: skip
def test_a_frame_that_makes_no_sense_is_refused_and_harms_nobody(
    shared_node: Node, attach: Attach, frame: bytes
) -> None:
    worker = shared_node.worker_pid
    session = attach(shared_node)
    with wire.Link(shared_node.socket) as link:
        link.socket.send(frame)
        answer = link.receive()
        assert answer.type == wire.FAILURE
        assert len(answer.failure().message) > 10
    assert session.put(*one()) == 1
    assert shared_node.worker_pid == worker


@pytest.mark.sanitizer
def test_descriptors_that_a_client_sends_along_are_closed(shared_node: Node, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.touch()
    for _ in range(50):
        with wire.Link(shared_node.socket) as link, sent.open() as file:
            frame = wire.FRAME.pack(wire.MAGIC, 1, 1, wire.SLABS, 0, 0, 1, 0)
            socket.send_fds(link.socket, [frame], [file.fileno()] * 60)
            assert link.receive().type == wire.FAILURE
    until("no descriptor is left", lambda: str(sent) not in open_files(shared_node.worker_pid))


@pytest.mark.sanitizer
def test_a_client_that_connects_and_says_nothing_blocks_nobody(shared_node: Node, attach: Attach) -> None:
    links = [wire.Link(shared_node.socket) for _ in range(100)]
    session = attach(shared_node)
    assert session.put(*one()) == 1
    for link in links:
        link.close()


def test_a_client_that_asks_and_never_reads_blocks_nobody(shared_node: Node, attach: Attach) -> None:
    link = wire.Link(shared_node.socket)
    link.socket.setblocking(False)
    try:
        for _ in range(20_000):
            link.send(wire.ADMIN, b'{"command": "status"}')
    except OSError:
        pass  # its queue is full, or it was cut off
    session = attach(shared_node)
    assert session.put(*one()) == 1
    link.close()


# ---- administration


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("request_text", "says"),
    [
        ('{"command": "clear", "instance": 5}', "`instance` must be a string"),
        ('{"command": "clear", "instance": null}', "`instance` must be a string"),
        ('{"command": "clear", "instance": ""}', "clear needs"),
        ('{"command": "clear", "all": true, "instance": "x"}', "clear needs"),
        ('{"command": "log_level", "level": 5}', "`level` must be a string"),
        ('{"command": "log_level"}', "needs a `level`"),
        ('{"command": "session_kill", "id": -1}', "`id` must be a whole number"),
        ('{"command": "status", "command": "clear", "all": true}', "twice"),
        ('{"command": "status", "nonsense": 1}', "unknown field `nonsense`"),
        ('{"command": ' + "[" * 60_000, "`command` must be a string"),
        ('{"command": "' + "x" * 60_000 + '"}', "at most 4096"),
        ('{"command": "\\u001b]0;owned\\u0007"}', r"`\x1b]0;owned\x07`"),
    ],
    ids=lambda text: text[:40],
)
def test_an_administrator_s_mistake_is_named_and_ends_nothing(shared_node: Node, request_text: str, says: str) -> None:
    worker = shared_node.worker_pid
    with wire.Link(shared_node.socket) as link, pytest.raises(wire.Refused) as why:
        link.ask(wire.ADMIN, request_text.encode())
    assert why.value.code == 1
    assert says in why.value.message
    assert shared_node.worker_pid == worker


def test_what_a_client_is_called_steers_no_terminal(shared_node: Node, attach: Attach) -> None:
    attach(shared_node, "plain", client_name="plain")
    for command in (["status"], ["status", "--json"], ["top", "--once"]):
        ran = run_cenote(*command, "--socket", shared_node.socket)
        assert ran.returncode == 0
        assert "\x1b" not in ran.stdout
    ran = run_cenote("clear", "--instance", "no\x1b]0;such\x07one", "--socket", shared_node.socket)
    assert ran.returncode == 2
    assert ran.stderr == ("cenote: no instance `no\\x1b]0;such\\x07one`; `cenote status` lists them\n")


@pytest.mark.parametrize("number", ["abc", "-1", "1.5", "1e300", "18446744073709551616", "7\x1b[31m"])
def test_a_session_s_number_is_checked_in_words(number: str) -> None:
    ran = run_cenote("session", "kill", "--", number)
    assert ran.returncode == 2
    assert "no session's number; `cenote status` lists them" in ran.stderr
    assert len(ran.stderr) < 200
    assert "\x1b" not in ran.stderr


# ---- tokens


@pytest.mark.sanitizer
def test_a_group_with_a_token_wants_exactly_that_token(start_node: StartNode) -> None:
    node = start_node("groups.paying.token=s3cret", 'groups."team b".token=other')
    where = str(node.socket)
    member = make_spec("m", instance_group="paying")
    for wrong in (None, "", "s3cre", "s3cret ", "S3CRET", "other"):
        with pytest.raises(cenote.PermissionDenied, match="`paying` needs a token"):
            cenote.attach(member, socket=where, token=wrong)
    cenote.attach(member, socket=where, token="s3cret").close()
    cenote.attach(make_spec("free"), socket=where).close()
    cenote.attach(make_spec("free"), socket=where, token="whatever").close()
    with pytest.raises(cenote.PermissionDenied, match="`paying`"):
        cenote.attach(make_spec("paying"), socket=where)  # an instance that names no group is its own
    with pytest.raises(cenote.PermissionDenied, match="team b"):
        cenote.attach(make_spec("b", instance_group="team b"), socket=where, token="s3cret")
    cenote.attach(make_spec("b", instance_group="team b"), socket=where, token="other").close()
    assert "s3cret" not in node.log_text()
    assert "s3cret" not in run_cenote("config", "show", "--set", "groups.paying.token=s3cret").stdout


# ---- configuration


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("dram.capactiy=1GiB", "did you mean `dram.capacity`"),
        ("dram.high_watre=0.9", "did you mean `dram.high_water`"),
        ("groups.a.qouta=1GiB", "did you mean `groups.a.quota`"),
        ("log.levle=info", "did you mean `log.level`"),
        ("nonsense=1", "unknown key `nonsense`"),
        ("dram.capacity=lots", "dram.capacity"),
        ("dram.capacity=-1", "1MiB to 1PiB"),
        ("dram.capacity=0", "1MiB to 1PiB"),
        ("dram.capacity=1KiB", "1MiB to 1PiB"),
        ("dram.capacity=2PiB", "1MiB to 1PiB"),
        ("dram.capacity=99999999TiB", "too large"),
        ("dram.capacity=[1]", "size"),
        ("dram.high_water=1.5", "0.1 to 1"),
        ("dram.low_water=0.99", "dram.high_water"),
        ("dram.policy=random", "lru"),
        ("dram.slab_size=2GiB", "1GiB"),
        ("dram.populate=perhaps", "true or false"),
        ("session.reserve_timeout=30", "duration"),
        ("session.max_pins=0", "1 to"),
        ("node.threads=-4", "0 to 1024"),
        ("auth.allow_uids=nobody", "list of integers"),
        ("auth.allow_uids=[-1]", "0 to"),
        ("log.level=loud", "log.level"),
        ("log.format=xml", "one of"),
        ("dram.capacity", "key=value"),
        ("=1", "key=value"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_would_be_right(setting: str, says: str, tmp_path: Path) -> None:
    for command in (["node"], ["config", "check"], ["config", "show"]):
        ran = run_cenote(*command, "--set", f"node.runtime_dir={tmp_path}", "--set", setting)
        assert ran.returncode == 2, (command, ran.stdout, ran.stderr)
        assert says in ran.stderr, ran.stderr
        assert ran.stderr.startswith("cenote: ")
        assert ran.stderr.count("\n") == 1


def test_a_wrong_key_in_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "cenote.toml"
    file.write_text("# a comment\n[dram]\ncapacity = '64MiB'\nhihg_water = 0.9\n")
    ran = run_cenote("node", "--config", file, "--set", f"node.runtime_dir={tmp_path}")
    assert ran.returncode == 2
    assert f"{file}:4" in ran.stderr
    assert "dram.high_water" in ran.stderr
    file.write_text("[dram\n")
    ran = run_cenote("config", "check", "--config", file)
    assert ran.returncode == 2
    assert f"{file}:1" in ran.stderr
    assert run_cenote("node", "--config", tmp_path / "missing.toml").returncode == 2
    assert run_cenote("node", "--config", tmp_path).returncode == 2


def test_the_environment_sets_keys_and_a_misspelt_variable_is_refused(start_node: StartNode, tmp_path: Path) -> None:
    surroundings = node_environment() | {"CENOTE_DRAM__CAPACITY": "32MiB", "CENOTE_LOG__LEVEL": "warn"}
    shown = run_cenote("config", "show", env=surroundings).stdout
    assert 'capacity = "32MiB"' in shown
    assert "CENOTE_DRAM__CAPACITY" in shown
    over = run_cenote("config", "show", "--set", "dram.capacity=16MiB", env=surroundings).stdout
    assert 'capacity = "16MiB"' in over
    ran = run_cenote("config", "check", env=node_environment() | {"CENOTE_DRAM__CAPACTIY": "32MiB"})
    assert ran.returncode == 2
    assert "CENOTE_DRAM__CAPACTIY" in ran.stderr
    assert "dram.capacity" in ran.stderr


def test_a_capacity_larger_than_memory_is_refused_with_both_figures(tmp_path: Path) -> None:
    for command in (["node"], ["config", "check"]):
        ran = run_cenote(*command, "--set", f"node.runtime_dir={tmp_path}", "--set", "dram.capacity=900TiB")
        assert ran.returncode == 2
        assert "900TiB" in ran.stderr
        assert "more than" in ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["status", "--nonsense"], ["clear"], ["clear", "--all", "--instance", "x"], ["session", "kill"],
     ["session", "kill", "abc"], ["session", "kill", "-3"], ["worker"], ["bench", "nonsense"], ["log-level"]],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str], tmp_path: Path) -> None:
    surroundings = node_environment() | {"CENOTE_SOCKET": str(tmp_path / "none.sock")}
    ran = run_cenote(*arguments, env=surroundings)
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.startswith("cenote: "), ran.stderr


def test_a_worker_that_nobody_keeps_ends_at_once() -> None:
    assert run_cenote("worker", "--keeper-fd", "99").returncode != 0


# ---- the operator


@pytest.mark.sanitizer
def test_status_json_is_what_the_node_answers(start_node: StartNode, attach: Attach) -> None:
    import json

    node = start_node("groups.payers.priority=normal")
    session = attach(node, "seen", instance_group="payers", client_name="the-client")
    keys = blocks.keys_of("a", 0, 10)
    session.put(keys, blocks.contents_of(keys, 4096))
    with session.acquire(keys[:3]):
        printed = json.loads(run_cenote("status", "--json", "--socket", node.socket).stdout)
        direct = node.status()
    for each in (printed, direct):
        each["node"].pop("uptime_s")
        assert 0 < each["dram"].pop("populate")["total"] <= 64 * MiB, "the rest goes on meanwhile"
        for one_session in each["sessions"]:
            one_session.pop("age_s")
            one_session.pop("oldest_pin_s", None)
    assert printed == direct
    assert printed["node"]["pid"] == node.pid
    assert printed["node"]["state"] == "serving"
    assert printed["node"]["socket"] == str(node.socket)
    assert printed["dram"]["capacity"] == 64 * MiB
    (instance,) = printed["instances"]
    assert (instance["id"], instance["group"], instance["blocks"], instance["sessions"]) == ("seen", "payers", 10, 1)
    assert instance["account"] == "payers"
    (one_session,) = printed["sessions"]
    assert (one_session["pid"], one_session["client"], one_session["pins"]) == (os.getpid(), "the-client", 3)
    (group,) = printed["groups"]
    assert group["name"] == "payers"
    assert group["used"] >= 10 * 4096
    words = run_cenote("status", "--socket", node.socket).stdout
    for expected in ("serving", "seen", "payers", "the-client", str(os.getpid())):
        assert expected in words


@pytest.mark.sanitizer
def test_the_age_of_the_oldest_pin_is_in_the_status(node: Node, attach: Attach) -> None:
    session = attach(node)
    session.put(*one())
    with session.acquire(one()[0]):
        found = node.session_of(os.getpid())
        assert found is not None
        assert found.get("oldest_pin_s", -1) >= 0
        before = found["oldest_pin_s"]
        until("it grows", lambda: (node.session_of(os.getpid()) or {})["oldest_pin_s"] > before + 0.2)


@pytest.mark.sanitizer
def test_clear_forgets_one_instance_or_all(node: Node, attach: Attach) -> None:
    one_instance, other = attach(node, "one"), attach(node, "other")
    keys = blocks.keys_of("a", 0, 10)
    data = blocks.contents_of(keys, 4096)
    one_instance.put(keys, data)
    other.put(keys, data)
    ran = run_cenote("clear", "--instance", "one", "--socket", node.socket)
    assert (ran.returncode, "10 blocks" in ran.stdout) == (0, True), ran
    assert (one_instance.match(keys).resident, other.match(keys).resident) == (0, 10)
    ran = run_cenote("clear", "--instance", "none", "--socket", node.socket)
    assert ran.returncode == 2
    assert "no instance `none`" in ran.stderr
    one_instance.put(keys, data)
    assert run_cenote("clear", "--all", "--socket", node.socket).returncode == 0
    assert (one_instance.match(keys).resident, other.match(keys).resident) == (0, 0)


@pytest.mark.sanitizer
def test_session_kill_ends_the_process_and_frees_what_it_held(node: Node, start_agent: StartAgent) -> None:
    agent = start_agent(node)
    number = agent.call("attach", instance="victim")
    agent.call("put", label="a", count=20)
    agent.call("pin", label="a", count=20)
    agent.call("reserve", label="b", count=5)
    ran = run_cenote("session", "kill", str(number), "--socket", node.socket)
    assert ran.returncode == 0, ran.stderr
    assert agent.process.wait(LIMIT) == -signal.SIGKILL
    until("the session is gone", lambda: not node.status()["sessions"])
    assert node.instance("victim")["pending"] == 0
    ran = run_cenote("session", "kill", str(number), "--socket", node.socket)
    assert ran.returncode == 2
    assert f"no session {number}" in ran.stderr


def test_log_level_is_changed_while_the_node_runs(node: Node, attach: Attach) -> None:
    def debug_lines() -> int:
        return sum(1 for line in node.log_lines() if line.get("level") == "debug")

    assert debug_lines() == 0
    ran = run_cenote("log-level", "info,server=debug", "--socket", node.socket)
    assert ran.returncode == 0, ran.stderr
    with pytest.raises(wire.Refused), wire.Link(node.socket) as link:
        link.ask(wire.DETACH)
    until("a debug line", debug_lines)
    ran = run_cenote("log-level", "loud", "--socket", node.socket)
    assert ran.returncode != 0
    assert "loud" in ran.stderr


def test_doctor_says_something_of_each_thing_it_checks() -> None:
    said = run_cenote("doctor").stdout.lower()
    for what in ("memlock", "open files", "memory", "huge", "numa", "namespace", "io_uring"):
        assert what in said, said


def test_version_and_help_are_no_errors() -> None:
    assert run_cenote("--version").returncode == 0
    assert "Usage" in run_cenote().stdout
    for command in ([], ["node"], ["status"], ["clear"], ["session"], ["config"], ["doctor"], ["bench"]):
        ran = subprocess.run([*run_cenote("--version").args[:1], *command, "--help"], capture_output=True, check=False)
        assert ran.returncode == 0, command
