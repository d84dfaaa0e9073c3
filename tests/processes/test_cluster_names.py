"""Nodes that find each other by one name for all of them, as a headless service of Kubernetes has it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import StartNode
from node import Node, until
from test_cluster import secret_file

from cluster import live, peers

OWN_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'
PORT = 7000
SEEDS = f'["pods.test:{PORT}"]'


class PodNetwork:
    """Network namespaces on one bridge, which nothing else reaches. Pod N has the address 10.77.0.N."""

    def __init__(self, hosts: Path) -> None:
        self.hosts = hosts
        self.label = f"cenote-{os.getpid()}"
        self.spaces: list[str] = []
        self.resolve()

    def ip(self, *words: str) -> None:
        done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"no network of its own for a test: {done.stderr}")

    def space(self, name: str) -> str:
        self.ip("netns", "add", f"{self.label}-{name}")
        self.spaces.append(f"{self.label}-{name}")
        return self.spaces[-1]

    def open(self) -> None:
        bridge = self.space("bridge")
        self.ip("-n", bridge, "link", "add", "pods", "type", "bridge")
        self.ip("-n", bridge, "link", "set", "pods", "up")

    def close(self) -> None:
        for each in self.spaces:
            with contextlib.suppress(subprocess.CalledProcessError):
                subprocess.run(["ip", "netns", "delete", each], check=True, capture_output=True)

    def resolve(self, *numbers: int) -> None:
        """The name has these pods' addresses from now on."""
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(f"10.77.0.{each} pods.test\n" for each in numbers))

    def pod(self, number: int) -> tuple[str, ...]:
        """The beginning of a command that runs in the pod."""
        bridge, space = self.spaces[0], self.space(str(number))
        self.ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", f"pod{number}", "netns", bridge)
        self.ip("-n", bridge, "link", "set", f"pod{number}", "master", "pods", "up")
        self.ip("-n", space, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self.ip("-n", space, "link", "set", device, "up")
        return ("ip", "netns", "exec", space, "sh", "-c", OWN_HOSTS, str(self.hosts))


@pytest.fixture
def pods(as_root: None, tmp_path: Path) -> Iterator[PodNetwork]:
    made = PodNetwork(tmp_path / "hosts")
    try:
        made.open()
        yield made
    finally:
        made.close()


@pytest.fixture
def start_pod(pods: PodNetwork, start_node: StartNode, tmp_path: Path) -> Callable[..., Node]:
    secret = secret_file(tmp_path)

    def start(number: int, seeds: str = SEEDS) -> Node:
        settings = [f"name=n{number}", f"listen=10.77.0.{number}:{PORT}", "ports=7001-7020", f"seeds={seeds}"]
        settings += [f"secret_file={secret}", "trusted_network=true"]
        words = [f"cluster.{each}" for each in settings]
        return start_node(*words, "metrics.listen=off", capacity="16MiB", launch_only=True, prefix=pods.pod(number))

    return start


def all_live(*nodes: Node) -> None:
    until("all nodes see each other", lambda: all(live(each) == len(nodes) for each in nodes))


def test_one_name_for_all_nodes_is_followed_when_its_addresses_change(
    pods: PodNetwork, start_pod: Callable[..., Node]
) -> None:
    pods.resolve(1, 2, 3)  # each is behind the name itself
    one, two, three = start_pod(1), start_pod(2), start_pod(3)
    all_live(one, two, three)
    assert all(len(peers(each)) == 2 for each in (one, two, three))
    assert three.stop() == 0
    pods.resolve(1, 2, 4)
    four = start_pod(4, "[]")  # has no seed itself: the others look it up
    all_live(one, two, four)


def test_a_name_without_an_address_is_shown_with_the_reason_and_is_used_once_it_has_one(
    pods: PodNetwork, start_pod: Callable[..., Node]
) -> None:
    one = start_pod(1)
    name = f"pods.test:{PORT}"
    until("the reason is shown", lambda: "pods.test" in str(peers(one).get(name, {}).get("why")))
    pods.resolve(1, 2)
    all_live(one, start_pod(2))
    until("the name is no riddle any more", lambda: name not in peers(one))
