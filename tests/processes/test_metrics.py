"""Metrics, health and status over HTTP: true, there after every restart, and never in anybody's way."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import blocks
import pytest
import yaml
from conftest import StartAgent, StartNode
from exposition import SAMPLE, Family, families_of
from node import LIMIT, ROOT, KiB, Node, free_port, until
from redis import Redis

Attach = Callable[..., Any]


def address(node: Node) -> str:
    return str(node.status()["node"]["metrics"])


def fetch(node: Node, page: str) -> str:
    with urllib.request.urlopen(f"http://{address(node)}{page}", timeout=LIMIT) as answer:
        return str(answer.read().decode())


def metrics(node: Node) -> dict[str, float]:
    """By name and labels; every sample stands behind the type and the help of its family."""
    found: dict[str, float] = {}
    described = kind = ""
    for line in fetch(node, "/metrics").splitlines():
        if line.startswith("# HELP "):
            assert len(line.split(" ", 3)) == 4, line
        elif line.startswith("# TYPE "):
            described, kind = line.split()[2:]
            assert kind in ("counter", "gauge", "histogram")
            assert described.endswith("_total") == (kind == "counter"), line
        else:
            sample = SAMPLE.match(line)
            assert sample is not None, line
            parts = [described + end for end in ("_bucket", "_sum", "_count")]
            assert sample[1] in (parts if kind == "histogram" else [described]), line
            key = f"{sample[1]}{{{sample[2]}}}" if sample[2] else sample[1]
            assert key not in found, line
            found[key] = float(sample[3])
    return found


@pytest.mark.sanitizer
def test_metrics_say_what_the_status_says(start_node: StartNode, attach: Attach, tmp_path: Path) -> None:
    node = start_node(f"nvme.paths=[{tmp_path}/store]", "nvme.capacity=64MiB", "nvme.ingest=all")
    until("the path serves", lambda: node.status()["nvme"]["paths"][0]["state"] == "serving")
    session = attach(node, 'a "quoted" name', block=64 * KiB)
    keys = blocks.keys_of("a", 0, 50)
    session.put(keys, blocks.contents_of(keys, 64 * KiB))
    until("all are written", lambda: node.status()["nvme"]["counters"]["written"] == 50)
    said, status = metrics(node), node.status()
    assert said["cenote_dram_commits_total"] == status["counters"]["commits"] == 50
    assert said["cenote_nvme_written_bytes_total"] == 50 * 64 * KiB
    assert said["cenote_dram_capacity_bytes"] == status["dram"]["capacity"]
    assert said['cenote_dram_blocks{state="present"}'] == 50
    assert said['cenote_instance_blocks{instance="a \\"quoted\\" name"}'] == 50
    assert said[f'cenote_nvme_path_serving{{path="{tmp_path}/store"}}'] == 1
    assert said["cenote_sessions"] == 1
    assert json.loads(fetch(node, "/status"))["counters"]["commits"] == 50
    assert fetch(node, "/healthz") == "ok\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(node, "/nothing")


def lookups(node: Node, instance: str) -> dict[str, float]:
    """Of an instance, what its lookups found: "found_blocks/match", "looked_up_tokens/read", "pinned_blocks"."""
    shape = re.compile(r'cenote_instance_(\w+?)(?:_total)?\{instance="(\w+)"(?:,call="(\w+)")?\}')
    wanted = ("looked_up_", "found_", "pinned_")
    samples = ((shape.fullmatch(name), value) for name, value in metrics(node).items())
    return {
        "/".join(filter(None, (name[1], name[3]))): value
        for name, value in samples
        if name and name[2] == instance and name[1].startswith(wanted)
    }


def shows(node: Node, instance: str, figures: dict[str, float]) -> None:
    """Waits for these figures: all pages of a fifth of a second are the same."""
    until(f"metrics say {figures}", lambda: lookups(node, instance) == figures)


def expected(looked_up: tuple[int, int], hits: tuple[int, int], pinned: int = 0) -> dict[str, float]:
    """Of calls that ask and calls that read; 16 tokens a block."""
    figures: dict[str, float] = {"found_lower_blocks": 0, "found_lower_tokens": 0, "pinned_blocks": pinned}
    for name, counts in (("looked_up", looked_up), ("found", hits)):
        for call, count in zip(("match", "read"), counts, strict=True):
            figures |= {f"{name}_blocks/{call}": count, f"{name}_tokens/{call}": 16 * count}
    return figures


@pytest.mark.sanitizer
def test_what_lookups_find_is_counted_also_of_sessions_that_have_ended(
    node: Node, attach: Attach, start_agent: StartAgent
) -> None:
    session = attach(node, "one", block=4 * KiB)
    keys = blocks.keys_of("a", 0, 30)
    session.put(keys[:20], blocks.contents_of(keys[:20], 4 * KiB))
    for _ in range(3):
        assert session.match(keys).resident == 20
    with session.acquire(keys[:20]):
        shows(node, "one", expected((90, 20), (60, 20), pinned=20))
    shows(node, "one", expected((90, 20), (60, 20)))
    (said,) = node.status()["sessions"]
    assert (said["looked_up"], said["found"]) == ({"match": 90, "read": 20}, {"match": 60, "read": 20})
    stats = session.stats()
    assert (stats["keys_looked_up"], stats["keys_found"]) == (110, 80)

    other = start_agent(node)
    other.call("attach", instance="one", block=4 * KiB)
    assert other.call("match", label="a", count=30) == 20
    other.kill()
    until("the dead process's session is over", lambda: len(node.status()["sessions"]) == 1)
    shows(node, "one", expected((120, 20), (80, 20)))
    session.close()
    until("no session is left", lambda: node.status()["sessions"] == [])
    shows(node, "one", expected((120, 20), (80, 20)))
    (group,) = node.status()["groups"]
    assert (group["looked_up"], group["found"]) == (120, {"dram": 80, "lower": 0})
    page = metrics(node)
    assert page['cenote_group_looked_up_tokens_total{group="default"}'] == 16 * 120
    assert page['cenote_group_found_tokens_total{group="default",tier="dram"}'] == 16 * 80


def test_lookups_are_counted_from_zero_by_the_next_worker(node: Node, attach: Attach) -> None:
    session = attach(node, "one", block=4 * KiB)
    keys = blocks.keys_of("a", 0, 10)
    session.put(keys, blocks.contents_of(keys, 4 * KiB))
    assert session.match(keys).resident == 10
    shows(node, "one", expected((10, 0), (10, 0)))
    node.restart_worker()
    until("the session is taken over", lambda: len(node.status()["sessions"]) == 1)
    shows(node, "one", expected((0, 0), (0, 0)))
    assert session.match(keys).resident == 10
    shows(node, "one", expected((10, 0), (10, 0)))
    assert session.stats()["keys_looked_up"] == 20


@pytest.mark.sanitizer
def test_the_next_worker_answers_at_the_same_address(start_node: StartNode) -> None:
    port = free_port()
    node = start_node(f"metrics.listen=127.0.0.1:{port}")
    assert metrics(node)["cenote_worker_restarts_total"] == 0
    assert metrics(node)["cenote_worker_exceptions_total"] == 0
    node.restart_worker()
    assert address(node) == f"127.0.0.1:{port}"
    assert metrics(node)["cenote_worker_restarts_total"] == 1


def test_a_taken_port_is_a_warning_and_is_tried_again(start_node: StartNode, attach: Attach) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        node = start_node(f"metrics.listen={where}")
        (said,) = node.logged("no metrics over HTTP")
        assert (said["level"], said["metrics.listen"]) == ("warn", where)
        assert "in use" in said["reason"]
        assert address(node) == ""
        assert "in use" in node.status()["node"]["metrics_problem"]
        session = attach(node, "i", block=4 * KiB)
        keys = blocks.keys_of("a", 0, 5)
        assert session.put(keys, blocks.contents_of(keys, 4 * KiB)) == 5
    until("the port is free", lambda: address(node) == where)
    assert fetch(node, "/healthz") == "ok\n"
    assert "metrics_problem" not in node.status()["node"]
    assert len(node.logged("no metrics over HTTP")) == 1


def test_nobody_listens_when_it_is_off(start_node: StartNode) -> None:
    node = start_node("metrics.listen=off")
    assert address(node) == ""
    sockets = []
    for entry in Path(f"/proc/{node.worker_pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            sockets.append(str(entry.readlink()))
    held = {each[8:-1] for each in sockets if each.startswith("socket:[")}
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert not [row for row in table if row[9] in held]


@pytest.mark.sanitizer
def test_clients_that_say_nothing_hold_up_neither_others_nor_the_end(start_node: StartNode) -> None:
    node = start_node()
    host, port = address(node).split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(4)]
    silent[0].sendall(b"GET /metr")
    silent[1].sendall(b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n")
    silent[2].sendall(b"\0" * 100_000)
    assert metrics(node)["cenote_sessions"] == 0
    for each in silent[:2]:
        each.close()
    assert node.stop() == 0
    for each in silent[2:]:
        each.close()


def test_a_worker_that_stands_still_is_not_healthy_and_is_again_when_it_goes_on(node: Node) -> None:
    where = address(node)
    with node.worker_stopped(), pytest.raises((TimeoutError, urllib.error.URLError)):
        urllib.request.urlopen(f"http://{where}/healthz", timeout=0.5)
    assert fetch(node, "/healthz") == "ok\n"


def test_slow_connections_and_many_of_them_do_not_keep_health_from_being_asked(start_node: StartNode) -> None:
    node = start_node().until_populated()
    host, port = address(node).split(":")
    descriptors = Path(f"/proc/{node.worker_pid}/fd")
    before = len(list(descriptors.iterdir()))
    slow = [socket.create_connection((host, int(port))) for _ in range(400)]
    for each in slow[-8:]:
        each.sendall(b"GET /healthz HTTP/1.1\r\nX: a")
    with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=LIMIT) as answer:
        assert answer.read() == b"ok\n"
    assert len(list(descriptors.iterdir())) <= before + 64 + 8
    until("those that drip are cut off", lambda: slow[-1].recv(1) == b"")
    for each in slow:
        each.close()


@pytest.fixture
def full_node(start_node: StartNode, attach: Attach, tmp_path: Path, redis: Redis) -> Iterator[Node]:
    """One that has everything that figures tell of."""
    elsewhere = (f'remote.backends=["{redis.url}"]', f"remote.state_dir={tmp_path}/state")
    others = ("cluster.name=a", 'cluster.seeds=["127.0.0.1:1"]')  # nobody is there, which makes it a known address
    device = ('gpu.devices=["sim:0"]', "gpu.capacity=4MiB")
    node = start_node(
        f"nvme.paths=[{tmp_path}/store]", "nvme.capacity=64MiB", "dram.policy=auto", *elsewhere, *others, *device
    )
    until("the path serves", lambda: node.status()["nvme"]["paths"][0]["state"] == "serving")
    until("the device's tier is ready", lambda: node.status()["gpu"]["devices"][0]["state"] == "ready")
    session = attach(node, "a", block=64 * KiB)
    session.put(blocks.keys_of("a", 0, 2), blocks.contents_of(blocks.keys_of("a", 0, 2), 64 * KiB))
    with session.join_group("g", 0, 1):
        yield node


def test_the_documentation_names_every_metric(full_node: Node) -> None:
    page = (ROOT / "docs/metrics.md").read_text().split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    documented = [Family(row[0].strip("` "), *(row[at].strip() for at in (1, 3, 5))) for row in cells]
    assert documented == families_of(fetch(full_node, "/metrics"))


OPERAND = re.compile(r"\b(cenote_[a-z_]+)(?:\{([^{}]*)\})?")
CHOICE = re.compile(r'([a-z_]+)="([^"$]*)"')


def expressions() -> list[str]:
    """Of the board of nodes, and of rules."""
    board = json.loads((ROOT / "packaging/grafana/cenote.json").read_text())
    panels = [panel for top in board["panels"] for panel in (top, *top.get("panels", ()))]
    groups = yaml.safe_load((ROOT / "packaging/prometheus/cenote.rules.yml").read_text())["groups"]
    queries = [query["expr"] for panel in panels for query in panel.get("targets", ())]
    return queries + [rule["expr"] for group in groups for rule in group["rules"]]


def choices_in(expression: str) -> Iterator[tuple[str, str]]:
    """Series of nodes, each with a label's value that it selects, or without."""
    for series, selector in OPERAND.findall(expression):
        if series.startswith(("cenote_manager_", "cenote_indexer_")):
            continue
        yield series, ""
        for label, value in CHOICE.findall(selector):
            yield series, f'{label}="{value}"'


def test_boards_and_rules_select_what_a_node_serves(full_node: Node) -> None:
    served = [(sample.partition("{")[0], sample) for sample in metrics(full_node)]
    wanted = {choice for each in expressions() for choice in choices_in(each)}
    assert {'call="match"', 'reason="cannot_win"', 'times="2"'} <= {label for _, label in wanted}
    absent = {
        (series, label) for series, label in wanted if not any(series == name and label in all for name, all in served)
    }
    assert absent == set()


def test_the_documentation_names_every_counter_of_the_status(full_node: Node) -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    status = full_node.status()
    counters = {
        "counters": status["counters"],
        "nvme.counters": status["nvme"]["counters"],
        "remote.counters": status["remote"]["counters"],
        "cluster.counters": status["cluster"]["counters"],
        "consensus.counters": status["consensus"]["counters"],
        "server": status["server"],
        "prefetch": {name: said for name, said in status["prefetch"].items() if not isinstance(said, list)},
    }
    paths = [f"{part}.{name}" for part, names in counters.items() for name in names]
    assert [path for path in paths if f"`{path}`" not in page] == []
