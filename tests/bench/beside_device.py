"""What a device's tier costs those who do not use it: the benches of DRAM, and promotion from NVMe, on a node with
`gpu.capacity` above 0 beside a node without, in turn.

    python beside_device.py [--device sim:0] [--rounds N] [--path DIRECTORY] [--json]

The device holds blocks, and a session of it is attached. Figures are medians of the rounds; the limit is the other
node's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import support
from node import BINARY
from nvme_tier import BATCH, BLOCK, prefetched, write_down
from support import GiB, KiB, MiB, Node, Report, cenote, until

BENCHES = ("get", "put", "acquire", "wake", "commits")
ON_DEVICE = 64 * KiB  # bytes of a block there


def start(stack: ExitStack, device: str | None, capacity: int, *sets: str) -> Node:
    """A node all of whose memory is touched; with a device, one that has blocks there."""
    more = (f'gpu.devices=["{device}"]', "gpu.capacity=256MiB") if device else ()
    node = stack.enter_context(support.node(capacity, *sets, *more))
    node.until_populated()
    if device:
        until("the device serves", lambda: node.status()["gpu"]["devices"][0]["state"] == "ready", limit=30)
        spec = support.spec("beside", ON_DEVICE)
        session = stack.enter_context(cenote.attach(spec, socket=str(node.socket), device=device))
        names = support.keys("beside", 0, 1000)
        session.put(names, [bytes(ON_DEVICE)] * len(names))
    return node


def figures_of(bench: str, node: Node) -> dict[str, tuple[float, str]]:
    """Its figures by case, and their units."""
    command = [str(BINARY), "bench", bench, "--json", "--socket", str(node.socket)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return {str(each["case"]): (float(each["value"]), str(each["unit"])) for each in lines}


def in_memory(device: str, rounds: int, report: Report) -> None:
    with ExitStack() as stack:
        plain, beside = (start(stack, each, 3 * GiB) for each in (None, device))
        for bench in BENCHES:
            taken: dict[str, tuple[list[float], list[float], str]] = {}
            for _ in range(rounds):
                for place, node in enumerate((plain, beside)):
                    for case, (value, unit) in figures_of(bench, node).items():
                        taken.setdefault(case, ([], [], unit))[place].append(value)
            for case, (without, with_device, unit) in taken.items():
                report.add(f"{bench}: {case}", statistics.median(with_device), unit, statistics.median(without))


def from_disk(device: str, rounds: int, place: Path, report: Report) -> None:
    """Two chains of which DRAM holds one, as in nvme_tier."""
    blocks = 128
    size = blocks * BLOCK
    spec = support.spec("beside-disk", BLOCK)
    chains = [support.keys(name, 0, blocks) for name in ("even", "odd")]
    taken: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        sessions = []
        for number, each in enumerate((None, device)):
            below = (f"nvme.paths=[{place / str(number)}]", f"nvme.capacity={3 * size + GiB}", "nvme.ingest=all")
            ungated = (f"prefetch.total_bytes={2 * size}", "prefetch.assumed_tokens_per_s=0")
            node = start(stack, each, size * 5 // 4 + 128 * MiB, *below, *ungated)
            session = stack.enter_context(cenote.attach(spec, socket=str(node.socket), max_pins=blocks))
            for names in chains:
                write_down(node, session, names, BLOCK, BATCH)
            sessions.append(session)
        for turn in range(2 * rounds):
            for kept, session in zip(taken, sessions, strict=True):
                kept.append(prefetched(session, chains[turn % 2]))
    without, with_device = taken
    report.add("promotion from NVMe", statistics.median(with_device), "GiB/s", statistics.median(without))


def main() -> None:
    parser = support.arguments(__doc__)
    parser.add_argument("--device", default="sim:0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--path", type=Path, default=Path(), help="a directory with 3 GiB; the present one")
    options = parser.parse_args()
    report = Report("beside_device", options.json)
    in_memory(options.device, options.rounds, report)
    with tempfile.TemporaryDirectory(dir=options.path, prefix="cenote-bench-") as place:
        from_disk(options.device, options.rounds, Path(place), report)


if __name__ == "__main__":
    main()
