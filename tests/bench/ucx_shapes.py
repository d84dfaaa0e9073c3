"""How blocks can travel by UCX: pieces of a segment, whole active messages, tags, beside a blocking socket.

ucx_shapes.py [--rounds N] [--json] [--veth]    over loopback; --veth: also between two network namespaces (as root)

Builds tests/bench/ucx_shapes.cpp. Medians of alternating rounds; processor time is that of both processes. The limit is
the socket's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import Report

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "tests" / "bin" / "ucx_shapes"
SPACE = "cenote-shapes"  # of the serving side
HERE, THERE = "10.213.7.1", "10.213.7.2"


def environment(device: str) -> dict[str, str]:
    """As transport/ucx/environment.cpp has it."""
    return os.environ | {
        "UCX_TLS": "tcp",
        "UCX_NET_DEVICES": device,
        "UCX_TCP_TX_SEG_SIZE": "840k",
        "UCX_TCP_RX_SEG_SIZE": "840k",
        "UCX_TCP_CONN_NB": "y",
        "UCX_TCP_CM_REUSEADDR": "y",
        "UCX_MEM_EVENTS": "no",
        "UCX_WARN_UNUSED_ENV_VARS": "n",
        "UCX_LOG_LEVEL": "fatal",
    }


def measure(address: str, devices: tuple[str, str], prefix: list[str], rounds: int) -> list[dict[str, Any]]:
    serve = [*prefix, str(PROGRAM), "serve", address, "17511"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, env=environment(devices[0]), text=True) as server:
        assert server.stdout is not None
        if server.stdout.readline().strip() != "ready":
            raise SystemExit("ucx_shapes: the serving side did not start")
        run = [str(PROGRAM), "run", address, "17511", str(rounds)]
        try:
            said = subprocess.run(run, env=environment(devices[1]), stdout=subprocess.PIPE, text=True, check=True)
        finally:
            server.kill()
    return [json.loads(line) for line in said.stdout.splitlines()]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def namespaces() -> Iterator[None]:
    """A namespace for the serving side, and a pair of devices between it and this one."""
    ip("netns", "add", SPACE)
    try:
        ip("link", "add", "shapes0", "type", "veth", "peer", "name", "shapes1", "netns", SPACE)
        ip("addr", "add", f"{HERE}/24", "dev", "shapes0")
        ip("link", "set", "shapes0", "up")
        ip("-n", SPACE, "addr", "add", f"{THERE}/24", "dev", "shapes1")
        ip("-n", SPACE, "link", "set", "shapes1", "up")
        yield
    finally:
        ip("netns", "delete", SPACE)


def show(path: str, rows: list[dict[str, Any]], report: Report) -> None:
    for row in rows:
        limit = next(
            each
            for each in rows
            if (each["kib"], each["checksum"], each["shape"]) == (row["kib"], row["checksum"], "socket")
        )
        hashed = ", with checksum" if row["checksum"] else ""
        case = f"{path}, {row['kib']} KiB, {row['shape']}{hashed}"
        report.add(case, row["gib_s"], "GiB/s", limit["gib_s"])
        report.add(f"processor time, {case}", row["cpu_s_gib"], "s/GiB", limit["cpu_s_gib"])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--veth", action="store_true")
    wanted = arguments.parse_args()
    subprocess.run([str(ROOT / "scripts" / "build"), "release", "ucx_shapes"], check=True, stdout=subprocess.DEVNULL)
    report = Report("ucx_shapes", wanted.json)
    show("loopback", measure("127.0.0.1", ("lo", "lo"), [], wanted.rounds), report)
    if wanted.veth:
        with namespaces():
            inside = ["ip", "netns", "exec", SPACE]
            show("veth", measure(THERE, ("shapes1", "shapes0"), inside, wanted.rounds), report)


if __name__ == "__main__":
    main()
