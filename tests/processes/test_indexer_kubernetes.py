"""`cenote indexer` and pods of Kubernetes: found by label, followed through the API server's faults."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from certificates import self_signed
from indexer import EnginePublisher, Herd, Indexer, prompt, until_right
from kubernetes import ApiServer
from node import free_ports, node_environment, run_cenote, until

A, B = prompt(1, 8), prompt(2, 8)
SELECTOR = "discovery.kubernetes.selector=serves=yes"


class Cluster:
    """Engines of pods: each has an address of this machine's loopback, all have the same ports."""

    def __init__(self, herd: Herd, api: ApiServer) -> None:
        self.herd, self.api = herd, api
        self.ports = free_ports(2)

    def settings(self, *sets: str) -> list[str]:
        ports = [f"discovery.kubernetes.port={self.ports[0]}", f"discovery.kubernetes.replay_port={self.ports[1]}"]
        return [SELECTOR, f"discovery.kubernetes.server={self.api.url}", *ports, *sets]

    def engine(self, name: str, number: int) -> EnginePublisher:
        host = f"127.0.0.{number}"
        made = self.herd.publisher(
            name, bind=f"tcp://{host}:{self.ports[0]}", replay_at=f"tcp://{host}:{self.ports[1]}"
        )
        made.store(A[: 4 * number])
        return made

    def pod(self, name: str, number: int, **fields: object) -> EnginePublisher:
        made = self.engine(name, number)
        self.api.put(name, f"127.0.0.{number}", **fields)  # type: ignore[arg-type]
        return made


def followed(indexer: Indexer) -> set[str]:
    return {str(row["publisher"]) for row in indexer.pods()}


def test_pods_of_a_label_are_followed_as_they_come_and_go(herd: Herd, api: ApiServer) -> None:
    cluster = Cluster(herd, api)
    first = [cluster.pod(f"p{i}", 2 + i) for i in range(5)]  # three pages
    api.put("other", "127.0.0.9", labels={"serves": "no"})
    api.put("pending", "127.0.0.10", phase="Pending")
    indexer = herd.indexer(*cluster.settings())
    until_right(indexer, first, [A, B], exact=True)
    until("all are shown", lambda: followed(indexer) == {f"team/p{i}" for i in range(5)})
    assert indexer.counter("discovered_pods") == 5
    later = cluster.pod("later", 8)
    until_right(indexer, [*first, later], [A, B], exact=True)
    api.delete("p0")
    until("the pod is gone", lambda: "team/p0" not in followed(indexer))
    api.put("p1", "127.0.0.3", phase="Failed")
    api.put("p2", "127.0.0.4", ends=True)
    until("those that end are gone", lambda: followed(indexer) == {"team/p3", "team/p4", "team/later"})
    until_right(indexer, [first[3], first[4], later], [A, B], exact=True)
    assert indexer.counter("discovery_lists_total") == 1  # the rest came by the watch
    assert indexer.is_ready()


def test_a_pod_that_moves_is_followed_at_its_new_address(herd: Herd, api: ApiServer) -> None:
    cluster = Cluster(herd, api)
    engine = cluster.pod("a", 2)
    indexer = herd.indexer(*cluster.settings())
    until_right(indexer, [engine], [A], exact=True)
    engine.close()
    moved = cluster.engine("a", 3)
    api.put("a", "127.0.0.3")
    until_right(indexer, [moved], [A], exact=True)


def test_one_namespace_alone_is_asked_for_if_that_is_wanted(herd: Herd, api: ApiServer) -> None:
    cluster = Cluster(herd, api)
    cluster.pod("foreign", 2, namespace="other")
    engine = cluster.pod("a", 3, namespace="mine")
    indexer = herd.indexer(*cluster.settings("discovery.kubernetes.namespace=mine"))
    until_right(indexer, [engine], [A], exact=True)
    until("it is shown", lambda: followed(indexer) == {"mine/a"})
    assert all(path.startswith("/api/v1/namespaces/mine/pods?labelSelector=serves%3Dyes") for path in api.targets)


def test_ranks_of_a_pod_are_publishers_of_their_own(herd: Herd, api: ApiServer) -> None:
    cluster = Cluster(herd, api)
    api.put("a", "127.0.0.2")
    indexer = herd.indexer(*cluster.settings("events.ranks=3"))
    until("all ranks are followed", lambda: followed(indexer) == {"team/a", "team/a#1", "team/a#2"})


def test_the_last_pods_stay_while_the_server_is_away_and_it_heals(herd: Herd, api: ApiServer) -> None:
    cluster = Cluster(herd, api)
    engine = cluster.pod("a", 2)
    indexer = herd.indexer(*cluster.settings())
    until_right(indexer, [engine], [A], exact=True)
    api.stop()
    until("it is said", lambda: indexer.logged("pods cannot be followed"))
    until_right(indexer, [engine], [A], exact=True)
    assert indexer.is_ready()
    other = cluster.pod("b", 3)
    api.start()
    until_right(indexer, [engine, other], [A], exact=True)
    assert len(indexer.logged("pods cannot be followed")) == 1
    assert indexer.logged("answers again")
    assert indexer.counter("discovery_failures_total") >= 1


def test_an_indexer_without_a_list_is_not_ready(herd: Herd, api: ApiServer) -> None:
    cluster = Cluster(herd, api)
    api.failure = 403
    indexer = herd.indexer(*cluster.settings())
    until("the refusal is said", lambda: indexer.logged("pods cannot be followed"))
    assert "403: as the test wants it" in str(indexer.logged("pods cannot be followed")[0]["reason"])
    answer = indexer.ask("GET", "/readyz")
    assert (answer.status, "have not been listed" in answer.text) == (503, True)
    engine = cluster.pod("a", 2)
    api.failure = None
    until_right(indexer, [engine], [A], exact=True)
    until("it is ready", indexer.is_ready)


def test_a_version_that_is_too_old_leads_to_a_new_list(herd: Herd, api: ApiServer) -> None:
    cluster = Cluster(herd, api)
    engine = cluster.pod("a", 2)
    indexer = herd.indexer(*cluster.settings())
    until_right(indexer, [engine], [A], exact=True)
    lists = indexer.counter("discovery_lists_total")
    other = cluster.engine("b", 3)
    with api._news:
        api.pods[("team", "b")] = {
            "metadata": {"name": "b", "namespace": "team", "labels": {"serves": "yes"}},
            "status": {"phase": "Running", "podIP": "127.0.0.3"},
        }
    api.forget()
    until_right(indexer, [engine, other], [A], exact=True)
    assert indexer.counter("discovery_lists_total") > lists


@pytest.mark.parametrize("garbage", [b"\x00\xff{]\n", b'{"type":"ADDED","object":[]}\n' * 100, b"x" * (5 << 20)])
def test_a_server_that_sends_garbage_costs_nothing_but_itself(herd: Herd, api: ApiServer, garbage: bytes) -> None:
    api.garbage = garbage
    cluster = Cluster(herd, api)
    engine = cluster.pod("a", 2)
    indexer = herd.indexer(*cluster.settings())
    until_right(indexer, [engine], [A], exact=True)

    def noticed() -> bool:
        return indexer.counter("discovery_refused_total") + indexer.counter("discovery_failures_total") > 0

    until("it is counted", noticed)
    api.garbage = b""
    other = cluster.pod("b", 3)
    until_right(indexer, [engine, other], [A], exact=True)


def test_the_account_and_its_authority_are_used_and_the_token_is_read_anew(herd: Herd, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    account = tmp_path / "account"
    account.mkdir()
    api = ApiServer(token="first", certificate=(certificate, key))
    try:
        (account / "token").write_text("first\n")
        (account / "ca.crt").write_bytes(certificate.read_bytes())
        cluster = Cluster(herd, api)
        engine = cluster.pod("a", 2)
        indexer = herd.indexer(*cluster.settings(f"discovery.kubernetes.account={account}"))
        until_right(indexer, [engine], [A], exact=True)
        api.token = "second"
        (account / "token").write_text("second")
        api.forget()  # a new list, with the new token
        other = cluster.pod("b", 3)
        until_right(indexer, [engine, other], [A], exact=True)
        assert "second" not in indexer.log_text()
        (account / "ca.crt").write_text("none")
        stranger = herd.indexer(*cluster.settings(f"discovery.kubernetes.account={account}"))
        until("it trusts nobody", lambda: stranger.logged("pods cannot be followed"))
        assert stranger.counter("discovery_lists_total") == 0
    finally:
        api.stop()


def test_an_indexer_ends_at_once_beside_a_server_that_says_nothing(herd: Herd, api: ApiServer) -> None:
    api.bookmark_s = 600
    cluster = Cluster(herd, api)
    indexer = herd.indexer(*cluster.settings())
    until("it watches", lambda: any("watch=1" in path for path in api.targets))
    begin = time.monotonic()
    assert indexer.stop() == 0
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("10.0.0.1:6443", "https://HOST:PORT"),
        ("http://10.0.0.1:8001", "needs https"),
        ("https://10.0.0.1", "10.0.0.1"),
    ],
)
def test_a_wrong_server_is_refused_with_its_reason(server: str, words: str) -> None:
    refused = run_cenote("indexer", "check", "--set", SELECTOR, "--set", f"discovery.kubernetes.server={server}")
    assert refused.returncode == 2
    assert words in refused.stderr


def test_outside_of_a_cluster_a_server_has_to_be_named() -> None:
    outside = {name: value for name, value in node_environment().items() if not name.startswith("KUBERNETES_")}
    refused = run_cenote("indexer", "--set", SELECTOR, "--set", "indexer.listen=127.0.0.1:0", env=outside)
    assert refused.returncode != 0
    assert "discovery.kubernetes.server" in refused.stderr
