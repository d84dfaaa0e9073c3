"""Cenote, Mooncake and Redis side by side: an adapter for kvbench.py, and a table of its rows.

    python kvbench_cenote.py --kvbench PATH/kvbench.py [--backends …] [--sizes 64K,2M] [any other option of kvbench]
    python kvbench_cenote.py --table results.jsonl [--json]

kvbench.py is not part of this repository: name it with --kvbench or $CENOTE_KVBENCH. The Python that runs this needs
numpy, and for the peers redis (with redis-server) and mooncake-transfer-engine-non-cuda.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures import Report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "python")]

KEY_WIDTH = 32  # keys of one call have one width
PEERS = ("mc-local", "mc-tcp", "mc-dummy", "redis-tcp", "redis-unix")
ROWS = ("exist", "bexist", "get_into", "bget_into", "put_from", "bput_from")


def option(name: str) -> str | None:
    """Takes `name VALUE` out of the command line."""
    if name not in sys.argv:
        return None
    at = sys.argv.index(name)
    if at + 1 == len(sys.argv):
        sys.exit(f"{name} wants a value")
    value = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    return value


def load_kvbench() -> Any:
    place = option("--kvbench")
    if place is not None:
        os.environ["CENOTE_KVBENCH"] = str(Path(place).resolve())  # for the processes that kvbench spawns
    known = os.environ.get("CENOTE_KVBENCH")
    if not known:
        sys.exit("where is kvbench.py? say --kvbench PATH, or set CENOTE_KVBENCH")
    sys.path.append(str(Path(known).parent))
    return importlib.import_module(Path(known).stem)


# ---------------------------------------------------------------------------------------------- the table


def best_peer(rows: dict[tuple[str, int, str], float], size: int, op: str) -> tuple[str, float] | None:
    found = [(rows[name, size, op], name) for name in PEERS if (name, size, op) in rows]
    return (min(found)[1], min(found)[0]) if found else None


def read_rows(path: str) -> dict[tuple[str, int, str], float]:
    """Medians in microseconds, by store, size and call."""
    rows: dict[tuple[str, int, str], float] = {}
    for line in Path(path).read_text().splitlines():
        row = json.loads(line)
        rows[row["backend"], row["size"], row["op"]] = row["p50_us"]
    return rows


def report_rows(rows: dict[tuple[str, int, str], float]) -> None:
    """Cenote's medians; the limit is the best peer's."""
    report = Report("kvbench", as_json=True)
    for (name, size, op), median in rows.items():
        best = best_peer(rows, size, op)
        if name == "cenote" and best:
            report.add(f"{op}, {size >> 10} KiB", median, "us", best[1], note=best[0])


def table(rows: dict[tuple[str, int, str], float]) -> None:
    """Medians in microseconds; the last column is by how much Cenote is faster than the best peer."""
    backends = [name for name in ("shm", "cenote", *PEERS) if any(key[0] == name for key in rows)]
    print(f"| row | {' | '.join(backends)} | best peer / cenote |")
    print("| --- " * (len(backends) + 2) + "|")
    for size in sorted({key[1] for key in rows}):
        for op in ROWS:
            if not any(key[1:] == (size, op) for key in rows):
                continue
            cells = [f"{rows[name, size, op]:.1f}" if (name, size, op) in rows else "" for name in backends]
            best = best_peer(rows, size, op)
            mine = rows.get(("cenote", size, op))
            won = f"{best[1] / mine:.1f} × ({best[0]})" if best and mine else ""
            print(f"| {op}, {size >> 10} KiB | {' | '.join(cells)} | {won} |")


if __name__ == "__main__" and "--table" in sys.argv:
    found = read_rows(option("--table") or "")
    (report_rows if "--json" in sys.argv else table)(found)
    sys.exit()

# ---------------------------------------------------------------------------------------------- the adapter

kvbench = load_kvbench()


def padded(key: str) -> bytes:
    return key.encode().ljust(KEY_WIDTH, b"\0")


class CenoteAdapter(kvbench.Adapter):  # type: ignore[name-defined, misc]
    """A session an instance; blocks of another size are another instance."""

    name = "cenote"

    @classmethod
    def start_servers(cls, cfg: dict[str, Any]) -> list[subprocess.Popen[bytes]]:
        binary = os.environ.get("CENOTE_BINARY", str(ROOT / "build" / "cenote"))
        place = tempfile.mkdtemp(prefix="cenote-kvbench-")
        os.environ["CENOTE_SOCKET"] = f"{place}/cenote.sock"
        # Room for eviction ahead of need, which the peers do not have.
        capacity = cfg["server_store_bytes"] // 8 * 9 + (256 << 20)
        command = [binary, "node"]
        for each in (f"node.runtime_dir={place}", f"dram.capacity={capacity}", "log.level=warn"):
            command += ["--set", each]
        with open(f"{kvbench.LOGS}/cenote.log", "w") as log:
            node = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + 20
        while subprocess.run([binary, "status"], capture_output=True, check=False).returncode != 0:
            if node.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the node did not start; see cenote.log")
            time.sleep(0.05)
        return [node]

    def open(self) -> None:
        import cenote

        self.cenote = cenote
        self.session: Any = None
        self.size = 0

    def close(self) -> None:
        if self.session is not None:
            self.session.close()

    def of_size(self, size: int) -> Any:
        """The session for blocks of `size`."""
        if size != self.size:
            if self.session is not None:
                self.session.clear()
                self.session.close()
            spec = self.cenote.InstanceSpec(
                id=f"kvbench-{size}",
                model="kvbench",
                dtype="bytes",
                layout="flat",
                tokens_per_block=16,
                groups={"default": {"parts": {"kv": size}}},
                hash_scheme="kvbench",
                fingerprint=None,
                instance_group=None,
            )
            self.session = self.cenote.attach(spec)
            self.size = size
        return self.session

    def put(self, key: str, view: Any) -> None:
        assert self.of_size(len(view)).put([padded(key)], [view]) == 1

    def get(self, key: str) -> bytes | None:
        with self.session.acquire([padded(key)]) as held:
            return bytes(held[0].view()) if len(held) else None

    def batch_put_from(self, keys: Sequence[str], addrs: Sequence[int], views: Sequence[Any], size: int) -> None:
        assert self.of_size(size).put([padded(key) for key in keys], views[: len(keys)]) == len(keys)

    def batch_get_into(self, keys: Sequence[str], addrs: Sequence[int], views: Sequence[Any], size: int) -> None:
        assert self.session.get_into([padded(key) for key in keys], views[: len(keys)]) == len(keys)

    def exists(self, key: str) -> bool:
        return bool(self.session.exists([padded(key)])[0])

    def batch_exists(self, keys: Sequence[str]) -> list[bool]:
        return list(self.session.exists([padded(key) for key in keys]))

    def remove(self, keys: Sequence[str]) -> None:
        self.session.remove([padded(key) for key in keys])


kvbench.ADAPTERS["cenote"] = CenoteAdapter

if __name__ == "__main__":
    os.makedirs(kvbench.LOGS, exist_ok=True)
    given = " ".join(sys.argv)
    for name, value in (
        ("--backends", ",".join(("shm", "cenote", *PEERS))),
        ("--sizes", "64K,2M"),
        ("--procs", "1"),
        ("--secs", "1"),
    ):
        if name not in given:
            sys.argv += [name, value]
    kvbench.main()
