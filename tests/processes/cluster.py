"""Nodes of a cluster on this machine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from node import Node, free_ports, run_cenote, stop_process, until

StartNode = Callable[..., Node]


class Cluster:
    """Starts nodes named a, b, c, … of which the first two are everybody's seeds."""

    def __init__(self, start_node: StartNode, most: int = 8) -> None:
        self._start_node = start_node
        self.ports = free_ports(most)
        self.nodes: list[Node] = []

    def settings(self, index: int, **changed: str) -> list[str]:
        seeds = ",".join(f'"127.0.0.1:{port}"' for port in self.ports[:2])
        settings = {
            "cluster.name": "abcdefgh"[index],
            "cluster.listen": f"127.0.0.1:{self.ports[index]}",
            "cluster.seeds": f"[{seeds}]",
            "node.threads": "2",
            "metrics.listen": "off",
            "debug.enabled": "true",
        } | {key if "." in key else f"cluster.{key}": value for key, value in changed.items()}
        return [f"{key}={value}" for key, value in settings.items()]

    def start(self, index: int, launch_only: bool = False, **changed: str) -> Node:
        made = self._start_node(*self.settings(index, **changed), capacity="16MiB", launch_only=launch_only)
        self.nodes.append(made)
        return made

    def form(self, count: int = 3) -> list[Node]:
        """Nodes that all see each other."""
        for index in range(count):
            self.start(index, launch_only=True)
        self.all_live()
        return self.nodes

    def all_live(self, nodes: Sequence[Node] = ()) -> None:
        those = nodes or self.nodes

        def see_each_other() -> bool:
            for each in those:
                assert each.running, f"a node ended:\n{each.log_text()[-2000:]}"
            return all(live(each) == len(those) for each in those)

        until("all nodes see each other", see_each_other)


def cluster_of(node: Node) -> dict[str, Any]:
    """What it says of its cluster; empty while it does not answer."""
    said = run_cenote("status", "--json", "--socket", node.socket)
    return dict(json.loads(said.stdout).get("cluster", {})) if said.returncode == 0 else {}


def live(node: Node) -> int:
    """Nodes that it can use, itself among them."""
    return int(cluster_of(node).get("live", 0))


def peers(node: Node) -> dict[str, dict[str, Any]]:
    """By name, or by address where no name is known."""
    return {each["name"] or each["address"]: each for each in cluster_of(node).get("peers", [])}


def state(node: Node, name: str) -> str:
    return str(peers(node).get(name, {}).get("state", ""))


def becomes(node: Node, name: str, *states: str) -> None:
    until(f"{name} is {' or '.join(states)}", lambda: state(node, name) in states)


def kill_node(node: Node) -> None:
    """Keeper and worker at once, as when its machine is lost: neither hears of the other's death."""
    worker = node.worker_pid
    stop_process(node.pid)
    os.kill(worker, signal.SIGKILL)
    node.send_signal(signal.SIGKILL)
    node.wait()
