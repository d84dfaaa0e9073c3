"""Nodes on this machine find each other; one is killed, one stands still, one is cut off from another: all heal."""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from demo_node import PATIENCE, DemoNode, until


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody has now, and that the kernel gives to nobody who asks for any."""
    least_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports: list[int] = []
    for port in random.sample(range(10_000, max(least_given, 20_000)), 1_000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
        if len(ports) == count:
            break
    return ports


class Node(DemoNode):
    """A node of this demonstration."""

    def __init__(self, name: str, folder: Path, port: int, seeds: list[int]) -> None:
        addresses = ",".join(f'"127.0.0.1:{seed}"' for seed in seeds)
        settings = [
            "node.threads=2",
            "dram.capacity=16MiB",
            "debug.enabled=true",
            f"cluster.name={name}",
            f"cluster.listen=127.0.0.1:{port}",
            f"cluster.seeds=[{addresses}]",
        ]
        super().__init__(name, folder, settings)

    def states(self) -> dict[str, str]:
        """Of the other nodes, by name."""
        peers = self.status().get("cluster", {}).get("peers", [])
        return {each["name"]: each["state"] for each in peers if each["name"]}

    def live(self) -> int:
        return int(self.status().get("cluster", {}).get("live", 0))

    def worker(self) -> int:
        return int(self.status()["node"]["worker_pid"])

    def kill(self) -> None:
        """Keeper and worker at once, as when a machine is lost: neither hears of the other's death."""
        worker = self.worker()
        self._process.send_signal(signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        self._process.kill()
        self._process.wait(PATIENCE)


def ms_until(what: str, condition: Callable[[], bool]) -> float:
    """Milliseconds until it was so."""
    return 1000 * until(what, condition, pause=0.01)


def all_live(nodes: list[Node]) -> bool:
    return all(each.live() == len(nodes) for each in nodes)


def not_live(at: Node, of: Node) -> bool:
    return at.states().get(of.name) != "live"


def show(nodes: list[Node]) -> None:
    first, second, last = nodes[0], nodes[1], nodes[-1]
    took = ms_until("all nodes see each other", lambda: all_live(nodes))
    print(f"{len(nodes)} nodes see each other after {took:.0f} ms")
    print(first.ask("peers"))

    print(f"-- the worker of {last.name} is killed; its keeper starts another")
    worker = last.worker()
    os.kill(worker, signal.SIGKILL)
    ms_until("it has another worker", lambda: last.status().get("node", {}).get("worker_pid", worker) != worker)
    took = ms_until("all nodes see each other", lambda: all_live(nodes))
    print(f"all see each other again, {took:.0f} ms after the new worker was there")

    print(f"-- node {last.name} is killed")
    last.kill()
    took = ms_until("it is missed", lambda: not_live(first, last))
    print(f"{first.name} knows after {took:.0f} ms: {first.states()[last.name]}")
    last.start()
    took = ms_until("all nodes see each other", lambda: all_live(nodes))
    print(f"it is started again: all see each other after {took:.0f} ms")

    print(f"-- the worker of {second.name} stands still for three seconds")
    worker = second.worker()
    os.kill(worker, signal.SIGSTOP)
    took = ms_until("it is missed", lambda: not_live(first, second))
    print(f"{first.name} knows after {took:.0f} ms: {first.states()[second.name]}")
    time.sleep(max(0.0, 3 - took / 1000))
    os.kill(worker, signal.SIGCONT)
    took = ms_until("all nodes see each other", lambda: all_live(nodes))
    print(f"it goes on: all see each other after {took:.0f} ms")

    print(f"-- {first.name} and {second.name} are cut off from each other")
    print(first.ask("debug", "partition", first.name, second.name), end="")
    took = ms_until("both know", lambda: not_live(first, second) and not_live(second, first))
    others = f"; {last.name} sees all {last.live()}" if len(nodes) > 2 else ""
    print(f"both know after {took:.0f} ms{others}")
    print(first.ask("debug", "heal"), end="")
    took = ms_until("all nodes see each other", lambda: all_live(nodes))
    print(f"all see each other after {took:.0f} ms")
    print(first.ask("peers"))


@contextmanager
def running(count: int, folder: Path) -> Iterator[list[Node]]:
    with ExitStack() as ends:
        ports = free_ports(count)
        nodes = []
        for name, port in zip("abcdefgh", ports, strict=False):
            place = folder / name
            place.mkdir()
            nodes.append(Node(name, place, port, ports[:2]))
            ends.callback(nodes[-1].stop)
        yield nodes


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("count", nargs="?", type=int, default=3, choices=range(2, 9))
    arguments.add_argument("--keep", action="store_true", help="the nodes go on until Ctrl-C")
    wanted = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="cenote-cluster.", dir=os.environ.get("XDG_RUNTIME_DIR")) as folder:
        print(f"-- {wanted.count} nodes")
        with running(wanted.count, Path(folder)) as nodes:
            show(nodes)
            if wanted.keep:
                for each in nodes:
                    print(f"build/cenote peers --watch --socket {each.socket}")
                sys.stdout.flush()
                signal.pause()


if __name__ == "__main__":
    main()
