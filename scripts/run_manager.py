"""A manager, and clients that write and read real files by its answers while it is killed and started again."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

BLOCK = 4096
BATCH = 16


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Manager:
    """The process, which can be killed and started again on the same ports."""

    def __init__(self, folder: Path) -> None:
        self.meta, self.admin = free_ports(2)
        settings = {
            "state_dir": folder / "state",
            "meta_rpc_port": 0,
            "admin_rpc_port": 0,
            "meta_http_port": self.meta,
            "admin_http_port": self.admin,
        }
        self.command = [os.environ["CENOTE_BINARY"], "manager"]
        for key, value in settings.items():
            self.command += ["--set", f"manager.{key}={value}"]
        self.log = open(folder / "manager.log", "wb")  # noqa: SIM115
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stderr=self.log)
        client = Client(self, "admin")
        end = time.monotonic() + 30
        while not client.call("checkHealth").get("is_health"):
            if time.monotonic() > end:
                raise TimeoutError("the manager does not become healthy")
            time.sleep(0.02)

    def kill(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait()


class Client:
    """Calls over HTTP on one connection; an empty answer where the manager is away."""

    def __init__(self, manager: Manager, face: str = "meta") -> None:
        self.port = manager.meta if face == "meta" else manager.admin
        self.connection: http.client.HTTPConnection | None = None

    def call(self, name: str, **fields: Any) -> dict[str, Any]:
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            self.connection.request("POST", f"/api/{name}", json.dumps(fields))
            answer: dict[str, Any] = json.loads(self.connection.getresponse().read())
            return answer
        except (OSError, http.client.HTTPException, ValueError):
            if self.connection is not None:
                self.connection.close()
            self.connection = None
            return {}


def code_of(answer: dict[str, Any]) -> str:
    return str(answer.get("header", {}).get("status", {}).get("code", "away"))


def place_of(uri: str) -> tuple[Path, int, int]:
    """Path, offset and size."""
    parts = urlsplit(uri)
    query = parse_qs(parts.query)
    size = int(query["size"][0])
    return Path(parts.path), int(query.get("blkid", ["0"])[0]) * size, size


def write_block(uri: str, key: int) -> None:
    path, offset, size = place_of(uri)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, content_of(key, size), offset)
    finally:
        os.close(descriptor)


def read_block(uri: str) -> bytes | None:
    path, offset, size = place_of(uri)
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)
    except OSError:
        return None


def content_of(key: int, size: int) -> bytes:
    return random.Random(key).randbytes(32) * (size // 32)


class Writer(threading.Thread):
    """Writes batches of blocks; keeps the keys whose finish was acknowledged."""

    def __init__(self, manager: Manager, number: int, end: float) -> None:
        super().__init__()
        self.client, self.number, self.end_time = Client(manager), number, end
        self.served: list[int] = []
        self.failures = self.wrong = 0

    def run(self) -> None:
        key = self.number << 32
        while time.monotonic() < self.end_time:
            keys = list(range(key, key + BATCH))
            key += BATCH
            self.write(keys)
            self.look()

    def write(self, keys: list[int]) -> None:
        started = self.client.call("startWriteCache", instance_id="demo", block_keys=keys)
        if code_of(started) != "OK":
            self.failures += 1
            time.sleep(0.02)
            return
        for key, location in zip(keys, started["locations"], strict=True):
            write_block(location["location_specs"][0]["uri"], key)
        for _ in range(200):  # the manager may be away for a moment: a finish works after it is back
            finished = self.client.call(
                "finishWriteCache",
                instance_id="demo",
                write_session_id=started["write_session_id"],
                success_blocks={"offset": len(keys)},
            )
            if code_of(finished) == "OK":
                self.served += keys
                return
            self.failures += 1
            time.sleep(0.05)

    def look(self) -> None:
        if self.served:
            self.wrong += wrong_blocks(self.client, random.sample(self.served, min(BATCH, len(self.served))))[1]


def wrong_blocks(client: Client, keys: list[int]) -> tuple[int, int]:
    """Of these keys, those that are not found, and those with wrong bytes; none of either while the manager is away."""
    found = client.call("getCacheLocation", instance_id="demo", query_type="QT_BATCH_GET", block_keys=keys)
    if code_of(found) != "OK":
        return 0, 0
    lost = wrong = 0
    for key, location in zip(keys, found["locations"], strict=True):
        uri = location["location_specs"][0]["uri"]
        if not uri:
            lost += 1
        elif read_block(uri) != content_of(key, BLOCK):
            wrong += 1
    return lost, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--kills", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="run-manager-") as folder:
        manager = Manager(Path(folder))
        manager.start()
        client = Client(manager)
        registered = client.call(
            "registerInstance",
            instance_group="default",
            instance_id="demo",
            block_size=16,
            model_deployment={"model_name": "demo", "dtype": "bf16"},
            location_spec_infos=[{"name": "tp0", "size": BLOCK}],
        )
        print(f"a manager, an instance ({code_of(registered)}), four clients; killed {options.kills} times meanwhile")
        begin = time.monotonic()
        writers = [Writer(manager, number + 1, begin + options.seconds) for number in range(4)]
        for writer in writers:
            writer.start()
        away = []
        for kill in range(options.kills):
            time.sleep(max(0.0, begin + options.seconds * (kill + 1) / (options.kills + 1) - time.monotonic()))
            manager.kill(signal.SIGKILL)
            killed = time.monotonic()
            manager.start()
            away.append(time.monotonic() - killed)
        for writer in writers:
            writer.join()
        served = [key for writer in writers for key in writer.served]
        lost = wrong = 0
        for place in range(0, len(served), 1000):
            missing, damaged = wrong_blocks(client, served[place : place + 1000])
            lost, wrong = lost + missing, wrong + damaged
        wrong += sum(writer.wrong for writer in writers)
        manager.kill(signal.SIGTERM)
        times = ", ".join(f"{each:.2f} s" for each in away)
        print(f"back after a kill in {times}; calls that met it away: {sum(writer.failures for writer in writers)}")
        print(f"{len(served)} blocks acknowledged, {lost} lost, {wrong} reads of wrong bytes")
        return 1 if lost or wrong or not served else 0


if __name__ == "__main__":
    sys.exit(main())
