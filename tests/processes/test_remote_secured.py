"""Nodes that speak TLS to a real Redis server: the right one, wrong ones, and lines that break."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cenote
import pytest
from certificates import Identity, self_signed
from node import LIMIT, Node
from redis import Redis, SecuredRedis
from redis_proxy import Behaviour, Proxy
from test_remote import BLOCK, all_put, counter, found, put, remote, start, until
from test_remote_faults import (
    COUNT,
    IN_A_VALUE,
    all_found,
    has_whole_values,
    is_idle,
    is_well,
    launch,
    says,
    standing,
    stays_away,
    works_alone,
)

__all__ = ["launch", "start"]  # fixtures: pytest finds them by their names here

Attach = Callable[..., Any]


@pytest.fixture
def identity(tmp_path: Path) -> Identity:
    return self_signed(tmp_path)


@pytest.fixture
def redis(identity: Identity) -> Iterator[SecuredRedis]:
    server = SecuredRedis(identity)
    yield server
    server.close()


@pytest.fixture
def proxy(redis: SecuredRedis) -> Iterator[Proxy]:
    made = Proxy(redis.port)
    yield made
    made.close()


def address_of(proxy: Proxy, identity: Identity) -> str:
    return f"rediss://127.0.0.1:{proxy.port}?ca={identity.certificate}"


def test_what_one_node_stores_another_finds_and_so_after_a_kill(
    launch: Callable[..., Node], attach: Attach, redis: SecuredRedis
) -> None:
    here, there = launch(), launch()
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    keys = put(writer, "shared", COUNT)
    all_put(here, COUNT)
    assert found(reader, keys) == COUNT
    assert remote(here)["backends"][0]["name"] == f"rediss://127.0.0.1:{redis.port}"
    redis.kill()
    until(lambda: remote(there)["serving"] == 0 and remote(here)["serving"] == 0)
    redis.start()
    until(lambda: is_well(here) and is_well(there))
    more = put(writer, "more", COUNT)
    until(lambda: all_found(reader, more))
    assert counter(there, "wrong") == 0


def test_password_and_client_certificate_open_the_server(
    launch: Callable[..., Node], attach: Attach, identity: Identity, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("hush-hush")
    with ExitStack() as ends:
        server = SecuredRedis(identity, clients="yes")
        ends.callback(server.close)
        server.ask("CONFIG", "SET", "requirepass", "hush-hush")
        sets = (f"remote.auth_file={secret}",)
        refused = launch(*sets, url=server.url, serves=False)
        says(refused, "this client's certificate")
        own = f"&cert={identity.certificate}&key={identity.key}"
        node = launch(*sets, url=server.url + own)
        put(attach(node, "model", block=BLOCK), "own", COUNT)
        all_put(node, COUNT)
        assert "hush-hush" not in node.log_text() + str(node.status())


def other_authority(proxy: Proxy, identity: Identity, folder: Path) -> tuple[str, str]:
    return address_of(proxy, self_signed(folder, "other")), "no signature of a trusted authority"


def system_authorities(proxy: Proxy, identity: Identity, folder: Path) -> tuple[str, str]:
    return f"rediss://127.0.0.1:{proxy.port}", "no signature of a trusted authority"


def other_name(proxy: Proxy, identity: Identity, folder: Path) -> tuple[str, str]:
    return f"{address_of(proxy, identity)}&name=redis.example", "its certificate is not for redis.example"


def no_tls_at_the_node(proxy: Proxy, identity: Identity, folder: Path) -> tuple[str, str]:
    return proxy.url, "its address begins with rediss://"


@pytest.mark.parametrize("case", [other_authority, system_authorities, other_name, no_tls_at_the_node])
def test_a_server_that_is_not_the_right_one_is_refused_with_the_reason_and_without_flapping(
    launch: Callable[..., Node],
    attach: Attach,
    redis: SecuredRedis,
    identity: Identity,
    proxy: Proxy,
    tmp_path: Path,
    case: Callable[[Proxy, Identity, Path], tuple[str, str]],
) -> None:
    url, reason = case(proxy, identity, tmp_path)
    node = launch(url=url, serves=False)
    says(node, reason)
    works_alone(node, attach)
    stays_away(node, proxy)
    assert redis.size() == 0


def test_a_server_without_tls_is_said_so(launch: Callable[..., Node], attach: Attach, identity: Identity) -> None:
    with ExitStack() as ends:
        server = Redis()
        ends.callback(server.close)
        proxy = Proxy(server.socket)
        ends.callback(proxy.close)
        node = launch("remote.timeout=500ms", url=address_of(proxy, identity), serves=False)
        says(node, "no handshake of TLS (redis://")
        works_alone(node, attach)
        assert server.size() == 0


def test_a_server_that_takes_connections_and_says_nothing_costs_the_timeout_alone(
    launch: Callable[..., Node], attach: Attach, identity: Identity
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"rediss://127.0.0.1:{silent.getsockname()[1]}?ca={identity.certificate}"
        node = launch("remote.timeout=500ms", url=url, serves=False)
        says(node, "no handshake of TLS")
        works_alone(node, attach)


def test_a_line_that_closes_after_the_handshake_began_is_said_and_tried_again(
    launch: Callable[..., Node], redis: SecuredRedis, identity: Identity, proxy: Proxy
) -> None:
    proxy.down = Behaviour(whole=100, cuts=True)  # in the first record
    node = launch(url=address_of(proxy, identity), serves=False)
    says(node, "in the handshake of TLS")
    proxy.behaves()
    until(lambda: is_well(node))
    assert redis.ask("EXISTS", "cenote:alive") == b":1\r\n"


def test_small_pieces_of_records_come_right(
    launch: Callable[..., Node], attach: Attach, identity: Identity, proxy: Proxy
) -> None:
    proxy.up = proxy.down = Behaviour(piece=997, pause=0.0001)
    url = address_of(proxy, identity)
    here, there = launch("remote.timeout=8s", url=url), launch("remote.timeout=8s", url=url)
    keys = put(attach(here, "model", block=BLOCK), "pieces", COUNT)
    all_put(here, COUNT)
    reader = attach(there, "model", block=BLOCK)
    assert found(reader, keys) == COUNT
    assert counter(there, "wrong") == 0


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("cuts", [True, False], ids=["cut", "stalled"])
def test_a_line_that_ends_in_the_middle_of_a_record_costs_hits_alone(
    launch: Callable[..., Node],
    attach: Attach,
    redis: SecuredRedis,
    identity: Identity,
    proxy: Proxy,
    direction: str,
    cuts: bool,
) -> None:
    url = address_of(proxy, identity)
    here, there = launch("remote.timeout=1s", url=url), launch("remote.timeout=1s", url=url)
    writer, reader = attach(here, "model", block=BLOCK), attach(there, "model", block=BLOCK)
    before = put(writer, "before", COUNT)
    all_put(here, COUNT)
    setattr(proxy, direction, Behaviour(whole=IN_A_VALUE, cuts=cuts))
    if direction == "up":
        put(writer, "cut", COUNT)
        until(lambda: counter(here, "unreachable") > 0 and is_idle(here))
    else:
        assert found(reader, before) == 0
        assert counter(there, "unreachable") > 0
    broken = here if direction == "up" else there
    until(lambda: proxy.cuts > 0 and not standing(broken)["serves"])
    proxy.behaves()
    until(lambda: is_well(here) and is_well(there))
    until(lambda: all_found(reader, before))
    assert has_whole_values(redis)
    assert counter(there, "wrong") == 0


def test_files_are_read_at_each_connection(
    launch: Callable[..., Node], redis: SecuredRedis, identity: Identity, tmp_path: Path
) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(self_signed(tmp_path, "other").certificate.read_bytes())
    node = launch(url=f"rediss://127.0.0.1:{redis.port}?ca={trusted}", serves=False)
    says(node, "no signature of a trusted authority")
    trusted.write_text("nonsense")
    says(node, f"{trusted} cannot be used")
    trusted.write_bytes(identity.certificate.read_bytes())
    until(lambda: is_well(node))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("rediss://host?ca=/no.ca", "/no.ca cannot be used"),
        ("rediss://host?ca=relative", "absolute paths"),
        ("rediss://host?cert=/c.pem", "its key"),
        ("redis://host?ca=/ca.pem", "are for TLS"),
    ],
)
def test_an_address_or_a_file_that_can_never_work_keeps_a_node_from_starting(
    launch: Callable[..., Node], url: str, reason: str
) -> None:
    node = launch(url=url, serves=False, launch_only=True)
    assert node.process is not None
    assert node.process.wait(LIMIT) != 0
    assert reason in node.log_text()


def test_a_stalled_handshake_keeps_no_other_server_waiting(
    launch: Callable[..., Node], attach: Attach, redis: SecuredRedis, identity: Identity
) -> None:
    """Of two servers one serves: the silent one has the blocks that are not found."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        taken: list[socket.socket] = []
        threading.Thread(target=lambda: taken.append(silent.accept()[0]), daemon=True).start()
        url = f"rediss://127.0.0.1:{redis.port},127.0.0.1:{silent.getsockname()[1]}?ca={identity.certificate}"
        node = launch("remote.timeout=4s", url=url)
        session = attach(node, "model", block=BLOCK)
        put(session, "some", COUNT)
        until(lambda: counter(node, "put") > 0)
        for each in taken:
            each.close()


def test_removals_wait_for_the_same_server_when_the_way_there_is_another(
    launch: Callable[..., Node], attach: Attach, redis: SecuredRedis, identity: Identity, tmp_path: Path
) -> None:
    node = launch()
    session = attach(node, "model", block=BLOCK)
    keys = put(session, "removed", COUNT)
    all_put(node, COUNT)
    redis.kill()
    until(lambda: remote(node)["serving"] == 0)
    with pytest.raises(cenote.RemovalPending):
        session.remove(keys)
    session.close()
    node.stop()
    copy = tmp_path / "moved.pem"
    copy.write_bytes(identity.certificate.read_bytes())
    node.command = [each.replace(str(identity.certificate), f"{copy}&name=127.0.0.1") for each in node.command]
    assert str(copy) in " ".join(node.command)
    node.start()
    assert remote(node)["backends"][0]["unconfirmed"] == 1
    redis.start()
    until(lambda: remote(node)["serving"] == 1 and remote(node)["backends"][0]["unconfirmed"] == 0)
