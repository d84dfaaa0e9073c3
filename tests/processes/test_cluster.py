"""Nodes find each other, know who is alive, and heal, whatever becomes of any of them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import StartNode
from node import (
    BINARY,
    FULL,
    LIMIT,
    ROOT,
    SANITIZED,
    Node,
    free_ports,
    is_alive,
    open_files,
    run_cenote,
    stop_process,
    until,
)

from cluster import Cluster, becomes, cluster_of, kill_node, live, peers, state

pytestmark = pytest.mark.sanitizer


@pytest.fixture
def cluster(start_node: StartNode) -> Cluster:
    return Cluster(start_node)


def secret_file(folder: Path, text: str = "0123456789abcdef0123456789abcdef") -> Path:
    path = folder / f"secret-{len(list(folder.glob('secret-*')))}"
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


def listening_ports(pid: int) -> set[tuple[str, int]]:
    """Of a process: address as the kernel shows it, and port."""
    inodes = {each[8:-1] for each in open_files(pid) if each.startswith("socket:[")}
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                found.add((address, int(port, 16)))
    return found


def test_three_nodes_find_each_other_and_say_so(cluster: Cluster) -> None:
    a, b, _ = cluster.form()
    seen = peers(a)
    assert {name: each["state"] for name, each in seen.items()} == {"b": "live", "c": "live"}
    assert seen["b"]["address"] == f"127.0.0.1:{cluster.ports[1]}" and seen["b"]["weight"] == 16 << 20
    until("round trips are known", lambda: all(each["round_trip_s"] > 0 for each in peers(b).values()))
    said = run_cenote("peers", "--socket", a.socket).stdout
    assert "3 nodes live" in said and "live" in said.splitlines()[2]
    assert "cluster" in run_cenote("status", "--socket", a.socket).stdout
    assert "cluster a: 3 nodes live" in run_cenote("top", "--once", "--socket", a.socket).stdout


def test_a_node_that_is_alone_says_so(start_node: StartNode) -> None:
    alone = start_node()
    said = run_cenote("peers", "--socket", alone.socket)
    assert said.returncode != 0 and "cluster.name" in said.stderr
    assert "cluster" not in alone.status()


def test_a_killed_node_is_missed_and_welcome_when_it_comes_back(cluster: Cluster) -> None:
    a, b, c = cluster.form()
    kill_node(c)
    becomes(a, "c", "gone", "dialling")
    assert live(a) == live(b) == 2
    c.start()
    cluster.all_live()


def test_a_worker_that_is_killed_comes_back_as_a_new_one_on_every_link(cluster: Cluster) -> None:
    a, b, c = cluster.form()
    before = {name: peers(node)["c"]["incarnation"] for name, node in (("a", a), ("b", b))}
    for _ in range(20 if FULL else 3):
        c.restart_worker()
        cluster.all_live()
    for name, node in (("a", a), ("b", b)):
        assert int(peers(node)["c"]["incarnation"]) > int(before[name])
        assert cluster_of(node)["counters"]["bad_frames"] == 0


def test_a_node_that_stands_still_is_suspect_then_gone_then_back(cluster: Cluster) -> None:
    a, _, c = cluster.form()
    with c.worker_stopped():
        becomes(a, "c", "suspect")
        becomes(a, "c", "gone", "dialling", "greeting")
        assert state(a, "b") == "live"
    cluster.all_live()
    assert cluster_of(a)["counters"]["suspected"] >= 1


def test_a_node_that_slept_blames_nobody(cluster: Cluster) -> None:
    """It was late itself: the others' silence is its own."""
    a, _, c = cluster.form()
    with c.worker_stopped():
        becomes(a, "c", "gone", "dialling", "greeting")
        time.sleep(6 if FULL else 0)  # with the above, ten seconds
    cluster.all_live()
    assert cluster_of(c)["counters"]["suspected"] == 0


def test_a_node_that_stops_in_order_is_not_missed(cluster: Cluster) -> None:
    a, _, c = cluster.form()
    assert c.stop() == 0
    becomes(a, "c", "left")
    assert not [line for line in a.logged("a node is gone") if line.get("node") == "c"]
    c.start()
    cluster.all_live()


@pytest.mark.parametrize("direction", ["both", "one"])
def test_two_nodes_that_are_cut_off_from_each_other_heal(cluster: Cluster, direction: str) -> None:
    a, b, c = cluster.form()
    cut = run_cenote("debug", "partition", "a", "b", direction, "--socket", a.socket)
    assert cut.returncode == 0, cut.stderr
    becomes(b, "a", "suspect", "gone", "dialling", "greeting")
    becomes(a, "b", "suspect", "gone", "dialling", "greeting")
    assert live(c) == 3
    assert run_cenote("debug", "heal", "--socket", a.socket).returncode == 0
    cluster.all_live()
    assert cluster_of(a)["counters"]["cut"] > 0


def test_a_partition_needs_debug_and_names_of_this_node(cluster: Cluster) -> None:
    a = cluster.start(0)
    said = run_cenote("debug", "partition", "x", "y", "--socket", a.socket)
    assert said.returncode != 0 and "one of them this one's: a" in said.stderr


def test_eight_nodes_join_at_once(cluster: Cluster) -> None:
    nodes = cluster.form(8)
    for node in nodes:
        assert cluster_of(node)["counters"]["bad_frames"] == 0


def test_nodes_without_the_secret_or_of_another_cluster_stay_out(cluster: Cluster, tmp_path: Path) -> None:
    right, wrong = secret_file(tmp_path), secret_file(tmp_path, "f" * 32)
    a = cluster.start(0, secret_file=str(right))
    b = cluster.start(1, secret_file=str(right))
    other = cluster.start(2, secret_file=str(wrong))
    none = cluster.start(3)
    foreign = cluster.start(4, secret_file=str(right), id="other")
    cluster.all_live([a, b])
    seeds = [f"127.0.0.1:{port}" for port in cluster.ports[:2]]
    for node, why in ((other, "another secret"), (none, "another secret"), (foreign, "cluster.id")):
        until(f"it says {why}", lambda n=node, w=why: any(w in each["why"] for each in peers(n).values()))
        assert live(node) == 1
        assert {state(node, each) for each in seeds} <= {"refused", "dialling", "greeting"}
    assert live(a) == live(b) == 2
    counters = cluster_of(a)["counters"]
    assert counters["greetings_refused"] > 0 and counters["strangers"] > 0


NETWORK_PEER = BINARY.parent / "tests" / "bin" / "network_peer"


@contextlib.contextmanager
def of_the_next_version(state: Path, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Where it is, and the process: see tests/support/network_peer.cpp. `state`: of the nodes that it speaks to."""
    pipe = subprocess.PIPE
    environment = os.environ | {"STATE_DIRECTORY": str(state)}
    command = [NETWORK_PEER, "later", *words]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as other:
        assert other.stdout is not None
        try:
            yield other.stdout.readline().split()[0], other
        finally:
            other.kill()


@pytest.mark.skipif(not NETWORK_PEER.exists(), reason="network_peer is not built")
def test_nodes_of_two_versions_of_the_protocol_tell_each_other_so(cluster: Cluster, folder: Path) -> None:
    both = "speaks version 4 of the protocol between nodes, this one 3"
    with of_the_next_version(folder.parent / "state") as (address, _):
        a = cluster.start(0, seeds=f'["{address}"]')
        until("it says why", lambda: both in str(peers(a).get(address, {}).get("why")))
    with of_the_next_version(folder.parent / "state", f"127.0.0.1:{cluster.ports[0]}") as (_, other):
        assert other.stdout is not None
        assert both in other.stdout.readline()
    until("it is counted", lambda: cluster_of(a)["counters"]["greetings_refused"] > 0)
    cluster.start(1)
    cluster.all_live()


def test_of_two_nodes_with_one_name_the_later_one_ends_and_says_why(cluster: Cluster) -> None:
    a, b = cluster.form(2)
    twin = cluster.start(2, name="b", launch_only=True)
    assert twin.wait(LIMIT) == 2
    twin.announced_deaths = 1
    twin.allowed_errors = ["name is taken", "cannot be of the cluster"]
    twin.late_refusal = "another node named `b`"
    assert "another node named `b` is alive" in twin.log_text()
    assert live(a) == live(b) == 2
    b.allowed_errors = a.allowed_errors = ["name is taken"]


def test_an_address_in_use_ends_the_node_and_names_it(cluster: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        node = cluster.start(0, listen=address, launch_only=True)
        assert node.wait() == 2
        node.announced_deaths = 1
        node.allowed_errors = ["did not start"]
        node.late_refusal = address
        assert address in node.log_text()


def test_a_later_worker_whose_address_is_taken_serves_its_engines_and_comes_back(
    cluster: Cluster, attach: Callable[..., Any]
) -> None:
    a, b = cluster.form(2)
    b.allowed_errors = ["other nodes do not reach this one"]
    stop_process(b.pid)  # so that nobody starts the next worker yet
    b.worker_dies()
    with until("its address is free", lambda: listener_at(cluster.ports[1])):
        b.send_signal(signal.SIGCONT)
        until("it says why others do not reach it", lambda: "nowhere yet" in str(cluster_of(b).get("address")))
        session = attach(b, "while-alone", block=4096)
        assert session.match([b"k" * 32]).resident == 0
        assert live(a) == 1
    cluster.all_live()


@contextlib.contextmanager
def thread_stopped(pid: int, name: str) -> Iterator[None]:
    """One thread of a process stands still meanwhile: whoever traces it holds it."""
    seize, interrupt, wait_all = 0x4206, 0x4207, 0x40000000  # PTRACE_SEIZE, PTRACE_INTERRUPT, __WALL
    tasks = Path(f"/proc/{pid}/task").iterdir()
    thread = next(int(each.name) for each in tasks if (each / "comm").read_text().strip() == name)
    call = ctypes.CDLL(None, use_errno=True).ptrace
    if call(seize, thread, None, None) != 0 or call(interrupt, thread, None, None) != 0:
        pytest.skip(f"no thread may be traced here: {os.strerror(ctypes.get_errno())}")
    os.waitpid(thread, wait_all)  # it stands

    def is_gone() -> bool:
        with contextlib.suppress(ChildProcessError):  # nobody else can collect it
            os.waitpid(thread, wait_all | os.WNOHANG)
        return not is_alive(pid)

    yield
    until(f"process {pid} has ended", is_gone)


def test_a_worker_whose_networks_thread_hangs_is_replaced(cluster: Cluster, start_node: StartNode) -> None:
    a = cluster.start(0)
    b = start_node(*cluster.settings(1), "node.hang_timeout=2s", capacity="16MiB")
    cluster.nodes.append(b)
    cluster.all_live()
    b.allowed_errors = ["killing the worker"]
    b.announced_deaths += 1
    with thread_stopped(b.worker_pid, "cenote-net"):
        until("the keeper kills it", lambda: b.logged("killing the worker"))
    assert "the network's thread" in b.logged("killing the worker")[0]["reason"]
    cluster.all_live()
    assert cluster_of(a)["counters"]["bad_frames"] == 0


def listener_at(port: int) -> socket.socket | None:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None


def test_off_loopback_a_node_refuses_to_start_without_a_secret_and_a_trusted_network(cluster: Cluster) -> None:
    node = cluster.start(0, listen="10.255.255.1:7000", launch_only=True)
    assert node.wait() == 2
    assert "cluster.secret_file" in node.log_text() and "cluster.trusted_network" in node.log_text()


def test_a_worker_listens_on_its_own_device_and_ports_alone(cluster: Cluster) -> None:
    first = next(port for port in free_ports(20) if all(abs(port - other) > 40 for other in cluster.ports))
    a = cluster.start(0, ports=f"{first}-{first + 40}")
    cluster.start(1)
    cluster.all_live()
    loopback = "0100007F"
    found = listening_ports(a.worker_pid)
    assert {address for address, _ in found} == {loopback}
    ports = {port for _, port in found}
    assert cluster.ports[0] in ports
    assert all(first <= port <= first + 40 for port in ports - {cluster.ports[0]}), ports
    assert len(ports) >= 3  # links, blocks, and UCX's own


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as made:
        yield made


def listen_keys() -> set[str]:
    """Keys of a node's configuration whose value is an address to listen at, by their sentence in the documentation."""
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = re.findall(r"^\| `([a-z_.]+)` \| string \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    keys = {key for key, text in rows if re.match(r"(Address and port|HOST:PORT|(ZeroMQ e|E)ndpoint) ", text)}
    return {key for key in keys if not key.startswith("indexer.")}  # another command's


def port_of(node: Node, key: str) -> int:
    """The port of a key, by where `cenote status` shows it, or as it was given: a key that is added needs its line."""
    status = node.status()
    shown = {"cluster.listen": status["cluster"]["address"], "metrics.listen": status["node"]["metrics"]}
    given = dict(word.split("=", 1) for word in node.command if word.startswith("publish."))
    return int((shown | given)[key].rsplit(":", 1)[1])


def test_garbage_on_its_ports_and_connections_that_say_nothing_harm_no_node(cluster: Cluster) -> None:
    sets = {"metrics.listen": "127.0.0.1:0"}
    endpoint, replay = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
    a = cluster.start(0, **sets, **{"publish.endpoint": endpoint, "publish.replay": replay})
    b = cluster.start(1, **sets)
    cluster.all_live()
    ports = sorted({port for pid in (a.worker_pid, a.pid) for _, port in listening_ports(pid)})
    assert {port_of(a, key) for key in listen_keys()} <= set(ports)
    worker, used = a.worker_pid, len(list(Path(f"/proc/{a.worker_pid}/fd").iterdir()))
    silent = [socket.create_connection(("127.0.0.1", cluster.ports[0])) for _ in range(100)]
    assert len(list(Path(f"/proc/{worker}/fd").iterdir())) < used + len(silent) // 2  # they wait in the kernel
    random.seed(1)
    garbage = [random.randbytes(random.randrange(1, 4096)) for _ in range(200 if FULL else 5)]
    for port in ports:
        for text in (bytes(9), bytes(4096), b"\xff" * 4096, struct.pack("<QQ", 200, 0) + bytes(300), *garbage):
            with connected(port) as strange, contextlib.suppress(OSError):
                strange.sendall(text)
    assert a.worker_pid == worker and len(ports) >= 3
    cluster.all_live()
    for each in silent:
        each.close()
    assert live(a) == live(b) == 2
    others = {port_of(a, key) for key in listen_keys() - {"cluster.listen"}}  # HTTP answers each, ZeroMQ closes
    assert cluster_of(a)["counters"]["strangers"] >= len(set(ports) - others) * len(garbage)


def test_kills_at_any_moment_leave_the_others_alone(cluster: Cluster) -> None:
    """Nodes that are killed while they dial, greet, and beat: no other worker dies."""
    a, b, c = cluster.form()
    workers = a.worker_pid, b.worker_pid
    random.seed(2)
    for _ in range(300 if FULL else 12):
        kill_node(c)
        c.launch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert c.process is not None
            c.process.wait(random.random() * 0.15)
        until("it has a worker", lambda: has_worker(c))
    cluster.all_live()
    assert (a.worker_pid, b.worker_pid) == workers


def has_worker(node: Node) -> bool:
    return bool(cluster_of(node))


@pytest.mark.skipif(SANITIZED, reason="it forks, which sanitizers take for a leak, and its figures mean nothing there")
def test_the_bench_puts_every_figure_beside_a_limit() -> None:
    said = run_cenote("bench", "peer", "--quick", "--json", limit=120)
    assert said.returncode == 0, said.stderr
    figures = {each["case"]: each for each in map(json.loads, said.stdout.splitlines())}
    sizes = ("64.0 KiB", "512.0 KiB", "2.0 MiB", "8.0 MiB")
    wanted = {f"{what}{size}" for what in ("blocks of ", "processor time, ", "with the checksum, ") for size in sizes}
    assert wanted | {"request between actors, 64 bytes", "the same by the network alone"} <= set(figures)
    assert all(figures[name]["value"] > 0 and figures[name]["limit"] > 0 for name in wanted)
    assert figures["until a killed node is not used"]["value"] > 0
