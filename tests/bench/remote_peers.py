"""Cenote's remote tier beside LMCache's Redis connectors: the same blocks, one real server, in turn, over TCP.

put         batches from host memory until the server has all of them. Cenote: from put(), with the copy into shared
            memory, until the server counts all of them. LMCache: from its own pool, where the blocks lie already.
get         batch after batch into host memory that the caller can read. Cenote: a second node that never had them, from
            prefetch() until the client holds the blocks. LMCache: into its pool.
backend     what `cenote bench remote` says of the tier's backend alone, in the same rounds and on the same server: no
            node, no client. `bare loop`, the limit, is its pipelined hiredis loop, which checks nothing.

cenote      one thread, a connection for each direction. A checksum in each value's header, bound to its name, compared
            at each get; the other node asks first (EXISTS) what is there. The write window holds all of the data.
redis://    LMCache's RedisConnector: Python, redis-py on asyncio, up to 150 connections; a block is two values.
resp://     LMCache's RESPConnector: C++, 8 threads with a connection each, its default. No checksum, no metadata.

Both by LMCache's own RemoteBackend, as its storage manager calls it, from scripts/peers, without a GPU.
Contents are compared after every get and removed from the server after every turn, outside the time.
All memory was touched before: some rounds warm up.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import support
from node import free_port
from redis import Redis
from support import GiB, KiB, MiB, Node, Report, cenote, until

SHAPES = ((512 * KiB, 64), (2 * MiB, 32))  # a block, blocks a batch
PATIENCE = 60.0
WARM = 3  # rounds before the first that counts: by then all pools are full, and touched
EMPTY = "for _, k in ipairs(redis.call('KEYS', '*')) do if k:sub(-6) ~= ':epoch' then redis.call('DEL', k) end end"
Seconds = dict[str, float]


class Work:
    """What each system puts and gets back."""

    def __init__(self, block: int, batch: int, total: int) -> None:
        self.block, self.batch = block, batch
        self.batches = max(1, total // (block * batch))
        self.blocks = batch * self.batches
        self.size = self.blocks * block
        self.memory = bytearray(os.urandom(block) * self.blocks)
        self.rows = [memoryview(self.memory)[at : at + block] for at in range(0, self.size, block)]
        for number, row in enumerate(self.rows):
            row[:8] = row[-8:] = number.to_bytes(8, "little")

    @property
    def cuts(self) -> list[slice]:
        return [slice(at, at + self.batch) for at in range(0, self.blocks, self.batch)]

    @property
    def size_text(self) -> str:
        return f"{self.block // MiB} MiB" if self.block >= MiB else f"{self.block // KiB} KiB"


class Cenote:
    """Two nodes over one server; what is put at one is got at the other."""

    def __init__(self, stack: ExitStack, url: str, redis: Redis, work: Work) -> None:
        self.redis, self.work = redis, work
        self.number = 0
        spec = support.spec("remote-peers", work.block)
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cenote-bench-")))
        self.nodes: list[Node] = []
        self.sessions: list[cenote.Session] = []
        for name, ingest in (("writer", "all"), ("reader", "none")):
            sets = [f'remote.backends=["{url}"]', f"remote.state_dir={state / name}", f"remote.ingest={ingest}"]
            sets += [f"remote.write_window={2 * work.size}", "remote.timeout=8s", "remote.lookup_timeout=2s"]
            sets += ["prefetch.threshold_tokens=0", f"prefetch.total_bytes={work.size}"]
            node = stack.enter_context(support.node(2 * work.size + 64 * MiB, *sets))
            until("the server answers", lambda node=node: node.status()["remote"]["serving"] == 1, limit=PATIENCE)  # type: ignore[misc]
            self.nodes.append(node.until_populated())
            attached = cenote.attach(spec, socket=str(node.socket), max_pins=work.blocks)
            self.sessions.append(stack.enter_context(attached))

    def __call__(self) -> Seconds:
        (writer, reader), work = self.sessions, self.work
        keys = support.keys("remote-peers", self.number * work.blocks, work.blocks)
        self.number += 1
        wanted = self.redis.size() + work.blocks
        begin = time.perf_counter()
        for cut in work.cuts:
            writer.put(keys[cut], work.rows[cut])
        until("the server has all", lambda: self.redis.size() >= wanted, limit=PATIENCE, pause=0.001)
        took = {"put": time.perf_counter() - begin}
        until("the node knows", self._all_put, limit=PATIENCE)
        begin = time.perf_counter()
        tickets, held = [], []
        for cut in work.cuts:
            ticket = reader.prefetch(keys[cut], "wait_complete", prefill_tokens_per_s=0)
            found = ticket.wait(PATIENCE)
            assert found == work.batch, f"{found} of {work.batch} blocks were found"
            tickets.append(ticket)
            held.append(ticket.held())
        took["get"] = time.perf_counter() - begin
        for blocks, cut in zip(held, work.cuts, strict=True):
            with blocks:
                assert all(each.view() == row for each, row in zip(blocks, work.rows[cut], strict=True)), "other bytes"
        for ticket in tickets:
            ticket.release()
        return took

    def _all_put(self) -> bool:
        remote = self.nodes[0].status()["remote"]
        assert remote["counters"]["dropped"] == 0, remote["counters"]
        return bool(remote["counters"]["put"] == self.number * self.work.blocks and remote["putting"] == 0)


@contextmanager
def lmcache(peers: Path, url: str, work: Work) -> Iterator[Callable[[], Seconds]]:
    """LMCache in a process that lives for all rounds."""
    words = [peers / "bin/python", support.HERE / "remote_peer.py", url, work.block, work.batch, work.batches]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(peers / "stand-ins")}
    environment.pop("PYTHONPATH", None)
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            [str(word) for word in words],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None

        def once() -> Seconds:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            line = process.stdout.readline()
            log.seek(0)
            assert line, log.read()
            return dict(json.loads(line))

        yield once
        process.stdin.close()
        if process.wait(PATIENCE) != 0:
            log.seek(0)
            raise AssertionError(log.read())


def bench_remote(url: str, work: Work) -> dict[str, Seconds]:
    """The backend alone and the bare loop, in GiB/s; they alternate three times."""
    binary = os.environ.get("CENOTE_BINARY", str(support.ROOT / "build/cenote"))
    command = [binary, "bench", "remote", "--url", url, "--rounds", "3", "--json"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # its bounds are not asked here
    said = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    rates: dict[str, Seconds] = defaultdict(dict)
    for direction in ("put", "get"):
        name = f"{direction} {work.size_text} x {work.batch}"
        found = next(each for each in said if each["case"] == name)
        rates["backend"][direction] = work.size / GiB / found["value"]
        rates["bare loop"][direction] = work.size / GiB / found["limit"]
    return rates


def measure(work: Work, rounds: int, peers: Path, report: Report) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        redis = Redis("--port", str(port))
        stack.callback(redis.close)
        systems: dict[str, Callable[[], Seconds]] = {"cenote": Cenote(stack, f"redis://{address}", redis, work)}
        for scheme in ("redis", "resp"):
            systems[f"lmcache {scheme}://"] = stack.enter_context(lmcache(peers, f"{scheme}://{address}", work))
        for number in range(-WARM, rounds):
            turn = number % len(systems)  # nobody always follows the same neighbour
            took: dict[str, Seconds] = {}
            for name in [*systems][turn:] + [*systems][:turn]:
                took[name] = systems[name]()
                redis.ask("EVAL", EMPTY, "0")
            if number < 0:
                continue
            took |= bench_remote(f"redis://{address}", work)
            for name, by_direction in took.items():
                for direction, seconds in by_direction.items():
                    figures[name][direction].append(seconds)
    tell(report, work, figures)


def tell(report: Report, work: Work, figures: dict[str, dict[str, list[float]]]) -> None:
    """Rates beside the bare loop's, then how many times as fast Cenote is: medians of the rounds' own ratios."""
    size = f"{work.size_text} x {work.batch}"
    for direction in ("put", "get"):
        rate = {name: work.size / GiB / statistics.median(of[direction]) for name, of in figures.items()}
        report.add(f"bare loop {direction} {size}", rate["bare loop"], "GiB/s")
        for name in ("backend", "cenote", "lmcache redis://", "lmcache resp://"):
            report.add(f"{name} {direction} {size}", rate[name], "GiB/s", rate["bare loop"])
        for ours in ("cenote", "backend"):
            for peer in ("lmcache redis://", "lmcache resp://"):
                pairs = zip(figures[ours][direction], figures[peer][direction], strict=True)
                ratio = statistics.median(theirs / mine for mine, theirs in pairs)
                report.add(f"  {ours} / {peer} {direction} {size}", ratio, "times")


def peers_folder() -> Path:
    ran = subprocess.run([support.ROOT / "scripts/peers"], stdout=subprocess.PIPE, text=True, check=True)
    return Path(ran.stdout.strip())


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--total", type=int, default=256 * MiB, help="bytes a round, in whole batches")
    parser.add_argument("--peers", type=Path, help="what scripts/peers made; default: ask it")
    options = parser.parse_args()
    peers = options.peers or peers_folder()
    report = Report("remote_peers", options.json)
    for block, batch in SHAPES:
        measure(Work(block, batch, options.total), options.rounds, peers, report)


if __name__ == "__main__":
    main()
