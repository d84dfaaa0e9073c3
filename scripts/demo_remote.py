"""Two nodes and one Redis server: what is stored at A is found at B; the server is killed and comes back meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import cenote
from demo import conversation, spec_of
from demo_node import PATIENCE, DemoNode, until

BLOCK = 1 << 20
COUNT = 32  # blocks a conversation


class Server:
    """Debian's Redis server (in redis-tools as `redis-check-rdb`), on a Unix socket, without persistence."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("redis-server") or shutil.which("redis-check-rdb")
        if program is None:
            raise SystemExit("no Redis server: scripts/setup installs it (package redis-tools)")
        self._program, self._folder = program, folder
        self.socket = folder / "redis.sock"
        self.start()

    def start(self) -> None:
        arguments = ["--port", "0", "--unixsocket", str(self.socket), "--save", "", "--maxmemory", "256mb"]
        self._process = subprocess.Popen(
            ["redis-server", *arguments, "--maxmemory-policy", "allkeys-lru", "--dir", str(self._folder)],
            executable=self._program,
            stdout=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


class Node(DemoNode):
    """A node of this demonstration."""

    def __init__(self, name: str, folder: Path, server: Server) -> None:
        backends = f'remote.backends=["unix://{server.socket}"]'
        super().__init__(name, folder, ["dram.capacity=256MiB", backends, f"remote.state_dir={folder / 'remote'}"])

    def remote(self) -> dict[str, Any]:
        return dict(self.status().get("remote", {}))

    def serves(self) -> bool:
        return self.remote().get("serving") == 1


def store(session: cenote.Session, name: str) -> list[bytes]:
    keys, blocks = conversation(name, COUNT, BLOCK)
    assert session.put(keys, blocks) == COUNT
    return keys


def share(session: cenote.Session, reader: cenote.Session, name: str) -> list[bytes]:
    """Stores, and waits until the session of the other node finds it all at the server."""
    keys = store(session, name)
    until("the server has all blocks", lambda: reader.locate(keys, timeout=PATIENCE).reachable == COUNT)
    return keys


def hit(session: cenote.Session, name: str) -> int:
    """As an engine does: blocks that a prefetch brought up, each compared."""
    keys, blocks = conversation(name, COUNT, BLOCK)
    ticket = session.prefetch(keys, "wait_complete", prefill_tokens_per_s=0)  # this engine cannot compute them at all
    length = ticket.wait(PATIENCE)
    with ticket.held() as held:
        for block, expected in zip(held, blocks, strict=False):
            assert bytes(block.view()) == expected, "wrong bytes"
    ticket.release()
    return length


def show(here: Node, there: Node, server: Server) -> None:
    spec, socket_a, socket_b = spec_of(BLOCK), str(here.socket), str(there.socket)
    with cenote.attach(spec, socket=socket_a) as a, cenote.attach(spec, socket=socket_b) as b:
        print("-- an engine at A stores a conversation, and an engine at B begins with it")
        keys = share(a, b, "first")
        resident, located = b.match(keys).resident, b.locate(keys, timeout=PATIENCE).reachable
        print(f"at B: {resident} of {COUNT} blocks are resident, {located} lie elsewhere")
        begun = time.perf_counter()
        found = hit(b, "first")
        seconds = time.perf_counter() - begun
        print(f"prefetch at B: {found} blocks of {BLOCK >> 20} MiB in {seconds * 1000:.0f} ms, all bytes right")
        assert resident == 0 and located == found == COUNT

        print("-- the server is killed")
        server.kill()
        gone = until("B knows that it is away", lambda: not there.serves())
        print(f"B says so after {gone * 1000:.0f} ms; what it has it still serves: {hit(b, 'first')} blocks")
        store(a, "second")
        begun = time.perf_counter()
        found = hit(b, "second")
        print(
            f"what only A has is computed again at B: {found} blocks found, after {time.perf_counter() - begun:.3f} s"
        )
        assert found == 0 and hit(a, "second") == COUNT

        print("-- the server comes back, empty")
        server.start()
        back = until("both nodes use it again", lambda: here.serves() and there.serves())
        print(f"both nodes use it again after {back:.1f} s")
        share(a, b, "third")
        found = hit(b, "third")
        print(f"what is stored at A from now on is found at B: {found} of {COUNT} blocks")
        assert found == COUNT


@contextmanager
def running(folder: Path) -> Iterator[tuple[Node, Node, Server]]:
    with ExitStack() as ends:
        server = Server(folder)
        ends.callback(server.kill)
        nodes = []
        for name in ("A", "B"):
            place = folder / name
            place.mkdir()
            nodes.append(Node(name, place, server))
            ends.callback(nodes[-1].stop)
        for node in nodes:
            until(f"node {node.name} uses the server", node.serves)
        yield nodes[0], nodes[1], server


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="cenote-remote.", dir=os.environ.get("XDG_RUNTIME_DIR")) as name:
        print("-- a Redis server and two nodes, A and B")
        with running(Path(name)) as (here, there, server):
            show(here, there, server)
            print("-- what B says")
            sys.stdout.flush()
            command = [os.environ["CENOTE_BINARY"], "top", "--once", "--socket", str(there.socket)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
