"""A real manager for a test: `cenote manager` with a folder of its own, its calls over HTTP, and file parts."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import select
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from node import BINARY, LIMIT, free_ports, node_environment, until

# Calls of AdminService; all others are those of MetaService. Some are of both: these are asked at the meta port.
ADMIN_CALLS = frozenset(
    [
        "addStorage",
        "updateStorage",
        "enableStorage",
        "disableStorage",
        "removeStorage",
        "listStorage",
        "createInstanceGroup",
        "updateInstanceGroup",
        "removeInstanceGroup",
        "getInstanceGroup",
        "listInstanceGroup",
        "removeInstance",
        "listInstanceInfo",
        "addAccount",
        "deleteAccount",
        "listAccount",
        "genConfigSnapshot",
        "loadConfigSnapshot",
        "getMetrics",
        "checkHealth",
        "getManagerClusterInfo",
        "leaderDemote",
        "getLeaderElectorConfig",
        "updateLeaderElectorConfig",
        "updateLogger",
        "migrateCache",
        "injectFault",
        "removeFault",
        "clearFaults",
    ]
)
UNREACHABLE = (OSError, http.client.HTTPException)  # of a call whose manager goes away

Answer = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """An answer of HTTP."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def code_of(answer: Answer) -> str:
    """The code in an answer's header; empty: it has none."""
    try:
        return str(answer["header"]["status"]["code"])
    except (KeyError, TypeError):
        return ""


def message_of(answer: Answer) -> str:
    try:
        return str(answer["header"]["status"]["message"])
    except (KeyError, TypeError):
        return ""


def mask_of(answer: Answer, count: int) -> list[bool]:
    """The mask of a start's answer, one value for each of `count` keys. True: there is nothing to write."""
    mask = answer.get("block_mask") or {}
    if "bool_masks" in mask:
        return [bool(value) for value in mask["bool_masks"].get("values", [])]
    return [position < int(mask.get("offset", 0)) for position in range(count)]


def uris_of(answer: Answer) -> list[list[str]]:
    """The addresses of each location."""
    return [[spec.get("uri", "") for spec in each.get("location_specs", [])] for each in answer.get("locations", [])]


def write_parts(uris: Sequence[Sequence[str]], byte: int) -> None:
    """Fills the files at the addresses of blocks."""
    for uri in (one for location in uris for one in location):
        part = FilePart.parse(uri)
        part.write(bytes([byte]) * part.size)


def states_of(answer: Answer) -> list[str]:
    """The states in an answer of getCacheMeta, one a key."""
    return [str(json.loads(each).get("status")) for each in answer.get("metas", [])]


@dataclass(frozen=True)
class FilePart:
    """The bytes that a URI names."""

    path: Path
    offset: int
    size: int

    @staticmethod
    def parse(uri: str) -> FilePart:
        parts = urlsplit(uri)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        size = int(query["size"])
        return FilePart(Path(parts.path), int(query.get("blkid", 0)) * size, size)

    def write(self, data: bytes) -> None:
        """As an engine does: folders and the file are made where they are not there."""
        assert len(data) == self.size
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            assert os.pwrite(file, data, self.offset) == self.size
        finally:
            os.close(file)

    def read(self) -> bytes:
        """Its bytes; fewer where the file is shorter or absent."""
        try:
            with self.path.open("rb") as file:
                return os.pread(file.fileno(), self.size, self.offset)
        except FileNotFoundError:
            return b""


class Manager:
    """`cenote manager` on ports that are free now, with a folder for its state and its log. Calls are thread-safe: each
    thread has connections of its own, which are kept. A call is never repeated."""

    def __init__(self, folder: Path, *sets: str, prefix: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = folder / "stderr"
        self.root = folder / "blocks"  # for storages of tests
        self.meta, self.admin, self.meta_rpc, self.admin_rpc = free_ports(4)
        self.command = [*prefix, str(BINARY), "manager"]
        for setting in (
            "log.format=json",
            f"manager.state_dir={folder / 'state'}",
            f"manager.meta_http_port={self.meta}",
            f"manager.admin_http_port={self.admin}",
            f"manager.meta_rpc_port={self.meta_rpc}",
            f"manager.admin_rpc_port={self.admin_rpc}",
            *sets,
        ):
            self.command += ["--set", setting]
        self.process: subprocess.Popen[bytes] | None = None
        self.allowed_errors: list[str] = []  # regular expressions on messages of error lines
        self._connections = threading.local()

    # ---- life

    def launch(self, *sets: str) -> None:
        """Starts it with further settings, and waits for nothing."""
        assert not self.running
        command = [*self.command, *(word for setting in sets for word in ("--set", setting))]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=node_environment()
            )
        self._connections = threading.local()

    def start(self) -> Manager:
        """Starts, and waits until it is healthy."""
        self.launch()
        until("the manager is healthy", self._is_healthy, pause=0.02)
        return self

    def _is_healthy(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the manager ended with {self.process.returncode}:\n{self.log_text()[-4000:]}")
        try:
            return bool(self.call("checkHealth").get("is_health"))
        except UNREACHABLE:
            return False

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL, and back when it is dead."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(LIMIT)

    def restart(self) -> None:
        """Kills it and starts it again, on the same ports and state."""
        self.kill()
        self.start()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        os.kill(self.pid, signal.SIGTERM)
        return self.process.wait(LIMIT)

    def finish(self) -> None:
        """Stops what still runs, and looks for errors in the log."""
        if self.running:
            try:
                code = self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"the manager did not end on SIGTERM:\n{self.log_text()[-4000:]}") from None
            assert code == 0, f"the manager ended with {code}:\n{self.log_text()[-4000:]}"
        text = self.log_text()
        assert not re.search(r"Sanitizer|runtime error:|terminate called", text), text[-8000:]
        errors = [
            entry
            for entry in self.log_lines()
            if entry.get("level") == "error"
            and not any(re.search(pattern, str(entry.get("message", ""))) for pattern in self.allowed_errors)
        ]
        assert not errors, f"errors in the log: {errors}"

    def __enter__(self) -> Manager:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            print(self.log_text()[-8000:])
        try:
            if kind is None:
                self.finish()
        finally:
            if self.running:
                self.kill()

    # ---- its log

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_lines(self) -> Iterator[dict[str, Any]]:
        for line in self.log_text().splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    yield entry

    # ---- calls

    def _connection(self, port: int) -> http.client.HTTPConnection:
        """The thread's connection to a port: the one before, unless the manager has closed it meanwhile."""
        table: dict[int, http.client.HTTPConnection] | None = getattr(self._connections, "table", None)
        if table is None:
            table = self._connections.table = {}
        connection = table.get(port)
        if connection is not None and connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()
        if connection is None:
            connection = table[port] = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        return connection

    def ask(
        self, port: int, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """One request, sent once. Errors: UNREACHABLE."""
        connection = self._connection(port)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            reply = connection.getresponse()
            return Reply(reply.status, reply.read())
        except UNREACHABLE:
            connection.close()
            raise

    def port_of(self, rpc: str) -> int:
        return self.admin if rpc in ADMIN_CALLS else self.meta

    def send(self, rpc: str, message: Any, port: int | None = None) -> Reply:
        """A call with a body that is encoded as JSON."""
        return self.ask(port or self.port_of(rpc), "POST", f"/api/{rpc}", json.dumps(message).encode())

    def call(self, rpc: str, **fields: Any) -> Answer:
        """A call's answer, whatever its code."""
        answer = self.send(rpc, fields).json
        assert isinstance(answer, dict), answer
        return answer

    def do(self, rpc: str, **fields: Any) -> Answer:
        """The answer of a call that must be OK."""
        answer = self.call(rpc, **fields)
        assert code_of(answer) == "OK", (rpc, fields, answer)
        return answer

    # ---- frequent needs of tests

    def add_instance(
        self,
        name: str,
        *,
        specs: Sequence[tuple[str, int]] = (("tp0", 1024),),
        blocks_per_file: int = 8,
        group: dict[str, Any] | None = None,
        storage: dict[str, Any] | None = None,
        quota: dict[str, Any] | None = None,
        max_keys: int = 1_000_000,
        delay_ms: int = 50,
    ) -> Path:
        """A file storage s-NAME below the root, group g-NAME and instance NAME. Nothing is evicted. `group` and
        `storage` are further fields of both. Returns the folder of the storage."""
        folder = self.root / name
        nfs = {"root_path": f"{folder}/", "key_count_per_file": blocks_per_file}
        self.do("addStorage", storage={"global_unique_name": f"s-{name}", "nfs": nfs} | (storage or {}))
        self.do("createInstanceGroup", instance_group=group_message(name, quota, max_keys, delay_ms) | (group or {}))
        self.register(name, specs)
        return folder

    def register(self, name: str, specs: Sequence[tuple[str, int]] = (("tp0", 1024),), group: str = "") -> Answer:
        return self.do("registerInstance", **instance_message(name, specs, group))

    def write(self, instance: str, keys: Sequence[int], byte: int = 1) -> list[list[str]]:
        """A whole session of keys that are new: real bytes, all well. Returns the addresses."""
        granted = self.do("startWriteCache", instance_id=instance, block_keys=list(keys), write_timeout_seconds=60)
        uris = uris_of(granted)
        assert len(uris) == len(keys), granted
        write_parts(uris, byte)
        session = granted["write_session_id"]
        success = {"offset": len(keys)}
        self.do("finishWriteCache", instance_id=instance, write_session_id=session, success_blocks=success)
        return uris

    def locations(self, instance: str, keys: Sequence[int]) -> list[list[str]]:
        """Addresses a key; an empty list: it is not served."""
        answer = self.do("getCacheLocation", instance_id=instance, query_type="QT_BATCH_GET", block_keys=list(keys))
        assert len(answer["locations"]) == len(keys), answer
        return [uris if uris and all(uris) else [] for uris in uris_of(answer)]

    def figure(self, name: str) -> int:
        """A figure without labels on the page of metrics, behind "cenote_manager_"."""
        page = self.ask(self.admin, "GET", "/metrics").body.decode()
        found = re.search(rf"^cenote_manager_{name} (\d+)$", page, re.MULTILINE)
        assert found, page
        return int(found[1])

    def states(self, instance: str, keys: Sequence[int]) -> list[str]:
        return states_of(self.do("getCacheMeta", instance_id=instance, block_keys=list(keys)))


def group_message(
    name: str, quota: dict[str, Any] | None = None, max_keys: int = 1_000_000, delay_ms: int = 50
) -> dict[str, Any]:
    """Group g-NAME over the storage s-NAME, with a level that is never reached."""
    strategy = {"reclaim_policy": "POLICY_LRU", "trigger_strategy": {"used_percentage": 3.0}}
    return {
        "name": f"g-{name}",
        "storage_candidates": [f"s-{name}"],
        "max_instance_count": 8,
        "version": 1,
        "quota": quota or {"capacity": 1 << 30},
        "cache_config": {
            "reclaim_strategy": {**strategy, "delay_before_delete_ms": delay_ms},
            "meta_indexer_config": {"max_key_count": max_keys},
        },
    }


def instance_message(name: str, specs: Sequence[tuple[str, int]] = (("tp0", 1024),), group: str = "") -> dict[str, Any]:
    """A registration of instance NAME in `group`; empty: in g-NAME."""
    return {
        "instance_group": group or f"g-{name}",
        "instance_id": name,
        "block_size": 64,
        "model_deployment": {"model_name": "m", "dtype": "bf16"},
        "location_spec_infos": [{"name": spec, "size": size} for spec, size in specs],
    }
