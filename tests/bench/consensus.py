#!/usr/bin/env python3
"""How long the ranks of a group take to agree: on one node, on two, question by question and in batches, beside the
round trips of the same run and gloo's all_reduce(min), which SGLang uses on the processor (torch comes with the
engines' environment, scripts/engine-venv vllm; without it that row says so).

Ranks are processes of their own, as engines' are: on a machine with fewer processors than ranks they take turns. So
there is a row, too, for ranks that are sessions of one process, whose one thread asks for each and then hears each.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RANKS = 8
LOCAL_BOUND, CLUSTER_BOUND, BATCH_BOUND = 8.0, 3.0, 5.0
BATCH = 500


def gloo_rank(rank: int, size: int, place: str, rounds: int) -> None:
    """One rank of torch.distributed; the first one prints the median of a call in seconds."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=size)
    value = torch.zeros(1, dtype=torch.int64)
    times = []
    for number in range(rounds):
        value[0] = 1000 + (number * 7 + rank * 13) % 50
        begin = time.perf_counter()
        dist.all_reduce(value, op=dist.ReduceOp.MIN)
        times.append(time.perf_counter() - begin)
    if rank == 0:
        print(json.dumps(statistics.median(times[rounds // 10 :])))
    dist.destroy_process_group()


if len(sys.argv) == 6 and sys.argv[1] == "--gloo":  # by the engines' Python, which has torch and not what is below
    gloo_rank(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    sys.exit(0)

import support  # noqa: E402
from support import MiB, Node, cenote, until  # noqa: E402


def median_of_barrier(session: cenote.Session, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        session.barrier()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[rounds // 10 :])


def run_rank(socket: str, rank: int, size: int, rounds: int, all_there: Barrier, out: Any) -> None:
    """One rank: medians of a question, and seconds of `rounds` batches."""
    with cenote.attach(support.spec("consensus", 4096), socket=socket) as session:
        group = session.join_group("bench", rank, size, timeout=30.0, wait=60.0)
        times = []
        all_there.wait()
        for question in range(rounds):
            begin = time.perf_counter()
            group.agree(question, 1000 + (question * 7 + rank * 13) % 50)
            times.append(time.perf_counter() - begin)
        first = 1_000_000
        batches = max(4, rounds // 20)
        all_there.wait()
        begin = time.perf_counter()
        sent = got = 0
        while got < batches * BATCH:  # two batches under way
            while sent < batches * BATCH and sent - got <= BATCH:
                questions = range(first + sent, first + sent + BATCH)
                group.agree_start(questions, [1000 + (each * 7 + rank * 13) % 50 for each in questions])
                sent += BATCH
            got += len(group.agree_poll(10.0))
        taken = time.perf_counter() - begin
        out.put((rank, statistics.median(times[rounds // 10 :]), batches * BATCH / taken))
        all_there.wait()
        group.leave()


def measure(sockets: Sequence[str], rounds: int) -> tuple[float, float]:
    """Medians over the ranks: seconds of a question; questions a second in batches."""
    context = multiprocessing.get_context("spawn")
    all_there = context.Barrier(len(sockets))
    out: Any = context.Queue()
    ranks = [
        context.Process(target=run_rank, args=(socket, rank, len(sockets), rounds, all_there, out))
        for rank, socket in enumerate(sockets)
    ]
    for each in ranks:
        each.start()
    results = [out.get(timeout=300) for _ in ranks]
    for each in ranks:
        each.join(60)
    return statistics.median(r[1] for r in results), statistics.median(r[2] for r in results)


def in_one_process(socket: str, rounds: int) -> float:
    """Seconds of a question, median, whose ranks are sessions of one thread: it asks for each, then hears each."""
    with contextlib.ExitStack() as stack:
        spec = support.spec("consensus", 4096)
        sessions = [stack.enter_context(cenote.attach(spec, socket=socket)) for _ in range(RANKS)]
        with concurrent.futures.ThreadPoolExecutor(RANKS) as pool:
            joins = [pool.submit(s.join_group, "bench-one", r, RANKS, 30.0, wait=60.0) for r, s in enumerate(sessions)]
            groups = [each.result() for each in joins]
        times = []
        for question in range(rounds):
            begin = time.perf_counter()
            for rank, group in enumerate(groups):
                group.agree_start([question], [1000 + (question * 7 + rank * 13) % 50])
            for group in groups:
                assert question in group.agree_poll(10.0)
            times.append(time.perf_counter() - begin)
        for group in groups:
            group.leave()
    return statistics.median(times[rounds // 10 :])


@contextlib.contextmanager
def two_nodes() -> Iterator[list[Node]]:
    from node import free_ports, run_cenote

    ports = free_ports(2)
    seeds = ",".join(f'"127.0.0.1:{port}"' for port in ports)
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as place:
        nodes = [
            Node(
                Path(place) / name,
                f"dram.capacity={16 * MiB}",
                f"cluster.name={name}",
                f"cluster.listen=127.0.0.1:{port}",
                f"cluster.seeds=[{seeds}]",
            )
            for name, port in zip("ab", ports, strict=True)
        ]
        try:
            for each in nodes:
                each.start()

            def see_each_other() -> bool:
                said = [run_cenote("status", "--json", "--socket", each.socket) for each in nodes]
                return all(json.loads(each.stdout)["cluster"]["live"] == 2 for each in said)

            until("the nodes see each other", see_each_other, limit=30)
            yield nodes
        finally:
            for each in nodes:
                if each.running:
                    each.stop()
                each.kill_everything()


def request_between_actors() -> float:
    """Seconds, as `cenote bench peer` has it."""
    binary = os.environ.get("CENOTE_BINARY", str(ROOT / "build" / "cenote"))
    ran = subprocess.run([binary, "bench", "peer", "--quick", "--json"], capture_output=True, text=True, check=True)
    for line in ran.stdout.splitlines():
        row = json.loads(line)
        if row["case"].startswith("request between actors"):
            return float(row["value"]) / 1e6
    raise SystemExit("cenote bench peer printed no request between actors")


def gloo(rounds: int) -> float | None:
    where = subprocess.run(
        [ROOT / "scripts" / "engine-venv", "vllm", "--where"], capture_output=True, text=True, check=False
    )
    if where.returncode != 0:
        return None
    with tempfile.TemporaryDirectory(prefix="cenote-bench-") as place:
        command = [where.stdout.strip().splitlines()[-1], __file__, "--gloo"]
        ranks = [
            subprocess.Popen(
                [*command, str(rank), str(RANKS), f"{place}/meet", str(rounds)],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for rank in range(RANKS)
        ]
        said = [each.communicate(timeout=300)[0] for each in ranks]
    return float(json.loads(said[0])) if all(each.returncode == 0 for each in ranks) else None


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=2000, help="questions of each median")
    options = parser.parse_args()
    report = support.Report("consensus", options.json)
    beside = gloo(options.rounds)
    with support.node(16 * MiB) as node:
        with cenote.attach(support.spec("consensus", 4096), socket=str(node.socket)) as session:
            barrier = median_of_barrier(session, options.rounds)
        report.add("a session's barrier", barrier * 1e6, "us")
        alone = in_one_process(str(node.socket), options.rounds)
        local, local_rate = measure([str(node.socket)] * RANKS, options.rounds)
    bound = f"<= {LOCAL_BOUND:g}"
    report.add(f"agree, {RANKS} ranks of one process", alone * 1e6, "us", barrier * 1e6, bound)
    report.add(f"agree, {RANKS} processes of one node", local * 1e6, "us", barrier * 1e6, bound)
    report.add("one node, in batches of 500", local_rate, "questions/s", 1 / local, f">= {BATCH_BOUND:g}")
    between = request_between_actors()
    report.add("a request between two nodes' actors", between * 1e6, "us")
    with two_nodes() as nodes:
        places = [str(each.socket) for each in nodes for _ in range(RANKS // 2)]
        far, far_rate = measure(places, options.rounds)
    report.add(f"agree, 2 nodes of {RANKS // 2} ranks", far * 1e6, "us", between * 1e6, f"<= {CLUSTER_BOUND:g}")
    report.add("two nodes, in batches of 500", far_rate, "questions/s", 1 / far, f">= {BATCH_BOUND:g}")
    if beside is None:
        print("gloo's all_reduce(min): torch is not installed (scripts/engine-venv vllm)", file=sys.stderr)
    else:
        report.add(f"gloo's all_reduce(min), {RANKS} processes", beside * 1e6, "us", far * 1e6)


if __name__ == "__main__":
    main()
