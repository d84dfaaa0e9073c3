"""A real indexer for a test, and publishers that behave as vLLM's ZmqEventPublisher and know the truth."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import zmq
from node import BINARY, LIMIT, Agent, free_ports, node_environment, until

MODEL = "Qwen/Qwen3-32B"
BLOCK = 4  # tokens
END = b"\xff" * 8  # the number of an answer's last message
WEIGHTS = {"gpu": 1.0, "cpu": 0.8, "disk": 0.6, "shared_storage": 0.4, "object_store": 0.2}

Tokens = tuple[int, ...]
Event = list[Any] | dict[str, Any]


# ---------------------------------------------------------------------------------------------- the indexer


@dataclass
class Answer:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Scores:
    """An answer of /v1/scores."""

    pods: dict[str, dict[str, Any]]
    degraded: set[str]
    blocks: int
    block_tokens: int

    def score(self, pod: str) -> float:
        return float(self.pods.get(pod, {}).get("score", 0.0))


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Indexer:
    """`cenote indexer` with a folder of its own. It listens on a port that the kernel chooses, or on a Unix socket."""

    def __init__(
        self, folder: Path, *sets: str, config: str | None = None, unix: bool = False, threads: int = 2
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = folder / "log"
        self.config = folder / "indexer.toml"
        self.socket = folder / "http.sock"
        self.unix = unix
        self.command = [str(BINARY), "indexer"]
        if config is not None:
            self.config.write_text(config)
            self.command += ["--config", str(self.config)]
        where = ("indexer.listen=off", f"indexer.socket={self.socket}") if unix else ("indexer.listen=127.0.0.1:0",)
        for each in ("log.format=json", f"indexer.threads={threads}", "indexer.grpc=off", *where, *sets):
            self.command += ["--set", each]
        self.headers: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self.allowed_warnings: list[str] = []
        self._mark = 0
        self._local = threading.local()

    # ---- life

    def launch(self) -> Indexer:
        assert not self.running
        with self.log.open("ab") as log:
            self._mark = log.tell()
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=node_environment()
            )
        self._local = threading.local()
        return self

    def start(self) -> Indexer:
        """Starts, and waits until it answers."""
        self.launch()
        until("the indexer answers", self._answers, pause=0.02)
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the indexer ended with {self.process.returncode}:\n{self.log_text()}")
        if self.unix:
            return self.socket.exists() and self._is_healthy()
        return bool(self.logged("answers")) and self._is_healthy()

    def _is_healthy(self) -> bool:
        try:
            return self.ask("GET", "/healthz").status == 200
        except OSError:
            return False

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def reload(self) -> None:
        """SIGHUP, and back when it is through."""
        count = len(self.logged("reloaded"))
        os.kill(self.pid, signal.SIGHUP)
        until("the configuration is reloaded", lambda: len(self.logged("reloaded")) > count)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(LIMIT)

    def stop(self, limit: float = LIMIT) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        os.kill(self.pid, signal.SIGTERM)
        return self.process.wait(limit)

    def finish(self) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
            try:
                code = self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"the indexer did not end on SIGTERM:\n{self.log_text()[-4000:]}") from None
            assert code == 0, f"the indexer ended with {code}:\n{self.log_text()[-4000:]}"
        text = self.log_text()
        assert not re.search(r"Sanitizer|runtime error:|terminate called", text), text[-8000:]
        errors = [each for each in self.log_lines() if each.get("level") == "error"]
        assert not errors, f"errors in the log: {errors}"

    # ---- its log

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_lines(self) -> list[dict[str, Any]]:
        """Of the present process."""
        found = []
        for line in self.log.read_bytes()[self._mark :].decode(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict):
                    found.append(entry)
        return found

    def logged(self, message: str) -> list[dict[str, Any]]:
        return [entry for entry in self.log_lines() if message in str(entry.get("message", ""))]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = str(self.logged("answers")[0]["address"]).rpartition(":")
        return host, int(port)

    # ---- questions

    def connect(self, timeout: float = LIMIT) -> http.client.HTTPConnection:
        return (
            UnixConnection(self.socket, timeout)
            if self.unix
            else http.client.HTTPConnection(*self.address, timeout=timeout)
        )

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One call, on a connection that the thread keeps. A body that is no bytes is sent as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        target = path + (f"?{urlencode(query)}" if query else "")
        for attempt in (1, 2):
            connection = getattr(self._local, "connection", None) or self.connect()
            self._local.connection = connection
            try:
                connection.request(method, target, data, {**self.headers, **(headers or {})})
                reply = connection.getresponse()
                return Answer(reply.status, reply.read())
            except (OSError, http.client.HTTPException):
                connection.close()
                self._local.connection = None
                if attempt == 2:
                    raise
        raise AssertionError

    def scores(self, tokens: Sequence[int] = (), model: str = MODEL, **fields: Any) -> Scores:
        body = {"model_name": model, **fields}
        if "block_keys" not in fields:
            body["token_ids"] = list(tokens)
        return self.scores_of(self.ask("POST", "/v1/scores", body))

    @staticmethod
    def scores_of(answer: Answer) -> Scores:
        assert answer.status == 200, answer
        found = answer.json
        return Scores(
            {each["pod"]: each for each in found["scores"]},
            set(found["degraded"]),
            found["blocks"],
            found["block_tokens"],
        )

    def binary_scores(self, tokens: Sequence[int], model: str = MODEL, **query: str) -> Scores:
        answer = self.ask(
            "POST",
            "/v1/scores",
            struct.pack(f"<{len(tokens)}I", *tokens),
            query={"model_name": model, **query},
            headers={"Content-Type": "application/octet-stream"},
        )
        return self.scores_of(answer)

    def pods(self) -> list[dict[str, Any]]:
        found = self.ask("GET", "/v1/pods").json["pods"]
        assert isinstance(found, list)
        return found

    def pod(self, name: str) -> dict[str, Any]:
        """The first row of a pod; empty: none."""
        return next((each for each in self.pods() if each["pod"] == name), {})

    def state(self, pod: str) -> str:
        return str(self.pod(pod).get("state", ""))

    def is_ready(self) -> bool:
        return self.ask("GET", "/readyz").status == 200

    def metrics(self) -> dict[str, float]:
        """Sums over labels, by name."""
        sums: dict[str, float] = {}
        for line in self.ask("GET", "/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                key = name.partition("{")[0]
                sums[key] = sums.get(key, 0.0) + float(value)
        return sums

    def counter(self, name: str) -> float:
        return self.metrics().get(f"cenote_indexer_{name}", 0.0)

    def add(self, publisher: EnginePublisher, name: str = "", **fields: str) -> None:
        body = {"name": name or publisher.pod, "endpoint": publisher.endpoint, "replay": publisher.replay, **fields}
        answer = self.ask("POST", "/v1/publishers", body)
        assert answer.status == 201, answer

    def remove(self, name: str) -> int:
        return self.ask("DELETE", f"/v1/publishers/{quote(name, safe='')}").status

    def resident_bytes(self) -> int:
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


# ---------------------------------------------------------------------------------------------- publishers

_context: zmq.Context[zmq.Socket[bytes]] | None = None


def zmq_context() -> zmq.Context[zmq.Socket[bytes]]:
    global _context
    if _context is None:
        _context = zmq.Context()
        _context.set(zmq.MAX_SOCKETS, 4096)
    return _context


def open_socket(kind: int, endpoint: str, *, connect: bool = False) -> zmq.Socket[bytes]:
    """A socket that is bound, on a port that a closed one may just be leaving, or connected."""
    made = zmq_context().socket(kind)
    made.linger = 0
    made.sndhwm = made.rcvhwm = 200_000
    if connect:
        made.connect(endpoint)
        return made

    def bound() -> bool:
        try:
            made.bind(endpoint)
        except zmq.ZMQError as why:
            assert why.errno == zmq.EADDRINUSE, why
            return False
        return True

    until(f"{endpoint} is free", bound)
    return made


@dataclass
class Router:
    """The behaviour of the replay socket."""

    answers: bool = True  # False: it reads requests and sends nothing
    pause: float = 0.0  # s, before each batch of an answer
    topic_frame: bool = True  # False: as before 2026
    hangs_up_after: int | None = None  # batches, behind which an answer just stops
    extra: Callable[[zmq.Socket[bytes], bytes], None] | None = None  # instead of an answer
    requests: list[int] = field(default_factory=list)


class EnginePublisher:
    """Publishes as vLLM does: PUB and a ROUTER that keeps the last `ring` batches. Numbers begin with 0.

    `blocks` is the truth: the prefix of tokens of each block → media that have it. Calls come from one thread; the
    ROUTER has its own.
    """

    def __init__(
        self,
        pod: str,
        model: str = MODEL,
        *,
        block: int = BLOCK,
        whole: int | None = None,
        ring: int = 10_000,
        seed: str = "",
        form: str = "map",
        hashes: str = "int",
        topic: str | None = None,
        has_replay: bool = True,
        connect: str | None = None,
        bind: str | None = None,
        replay_at: str | None = None,
        rank: int | None = None,
        router: Router | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.pod, self.model, self.block, self.seed = pod, model, block, seed
        self.whole = whole or block  # tokens of the index's blocks
        self.form, self.hashes, self.rank = form, hashes, rank
        self.topic = f"kv@{pod}@{model}" if topic is None else topic
        self.router = router or Router()
        ports = free_ports(2)
        self.connects = connect is not None
        self.endpoint = connect or bind or f"tcp://{host}:{ports[0]}"
        self.replay = replay_at or (f"tcp://{host}:{ports[1]}" if has_replay else "")
        self.ring_size = ring
        self.next = 0
        self.ring: deque[tuple[int, bytes]] = deque(maxlen=ring)
        self.blocks: dict[Tokens, set[str]] = {}
        self.names: dict[Tokens, Any] = {}
        self._lock = threading.Lock()
        self._counter = 0
        self._open()

    # ---- sockets

    def _open(self) -> None:
        self.pub = open_socket(zmq.XPUB if not self.connects else zmq.PUB, self.endpoint, connect=self.connects)
        self._subscribers = 0
        self._thread: threading.Thread | None = None
        if self.replay:
            served = open_socket(zmq.ROUTER, self.replay)
            inner = f"inproc://{id(self)}-{time.monotonic_ns()}"
            self._wake = open_socket(zmq.PAIR, inner)
            self._thread = threading.Thread(target=self._serve, args=(served, inner), daemon=True)
            self._thread.start()

    def _serve(self, served: zmq.Socket[bytes], inner: str) -> None:
        wake_end = open_socket(zmq.PAIR, inner, connect=True)
        poller = zmq.Poller()
        poller.register(served, zmq.POLLIN)
        poller.register(wake_end, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if wake_end in ready:
                break
            frames = served.recv_multipart()
            if len(frames) == 3 and len(frames[2]) == 8:
                self._answer(served, wake_end, frames[0], int.from_bytes(frames[2], "big"))
            elif len(frames) == 3:  # a snapshot: engines have none
                self._send(served, frames[0], END, b"")
        served.close()
        wake_end.close()

    def _send(self, served: zmq.Socket[bytes], client: bytes, number: bytes, payload: bytes) -> None:
        topic = [self.topic.encode()] if self.router.topic_frame else []
        served.send_multipart([client, b"", *topic, number, payload])

    def _answer(self, served: zmq.Socket[bytes], wake_end: zmq.Socket[bytes], client: bytes, start: int) -> None:
        router = self.router
        router.requests.append(start)
        if router.extra is not None:
            return router.extra(served, client)
        if not router.answers:
            return None
        with self._lock:
            batches = [each for each in self.ring if each[0] >= start]
        for count, (number, payload) in enumerate(batches):
            if count == router.hangs_up_after:
                return None
            if router.pause and wake_end.poll(int(router.pause * 1000)):
                return None
            self._send(served, client, number.to_bytes(8, "big"), payload)
        if router.hangs_up_after is None:
            self._send(served, client, END, b"")
        return None

    def close(self) -> None:
        """As if it were killed."""
        if self.pub.closed:
            return
        self.pub.close(linger=0)
        if self._thread is not None:
            self._wake.send(b"")
            self._thread.join(LIMIT)
            assert not self._thread.is_alive()
            self._wake.close()

    def restart(self, *, seed: str | None = None) -> None:
        """Another life on the same ports: numbers from 0, nothing held."""
        self.close()
        self.seed = self.seed if seed is None else seed
        self.next = self._counter = 0
        self.ring.clear()
        self.blocks.clear()
        self.names.clear()
        self._open()

    def until_subscribed(self) -> None:
        """Waits for a subscription, so that the next batch arrives."""
        while self.pub.poll(0) or self._subscribers == 0:
            assert self.pub.poll(int(LIMIT * 1000)), "nobody subscribes"
            self._subscribers += 1 if self.pub.recv()[:1] == b"\1" else -1

    # ---- events

    def hash_of(self, prefix: Tokens) -> Any:
        if prefix not in self.names:
            self._counter += 1
            digest = hashlib.sha256(repr((self.seed, prefix)).encode()).digest()
            self.names[prefix] = {
                "int": int.from_bytes(digest[:8], "big"),
                "signed": int.from_bytes(digest[:8], "big", signed=True),
                "bytes": digest,
                "counter": self._counter,
            }[self.hashes]
        return self.names[prefix]

    def prefixes(self, tokens: Sequence[int]) -> list[Tokens]:
        whole = tuple(tokens)
        return [whole[:end] for end in range(self.block, len(whole) + 1, self.block)]

    def stored(self, prefixes: Sequence[Tokens], medium: str | None = "GPU", **fields: Any) -> Event:
        """The event; `prefixes` follow one another."""
        first = prefixes[0][: -self.block]
        tokens = list(prefixes[-1][len(first) :])
        parent = self.hash_of(first) if first else None
        hashes = [self.hash_of(each) for each in prefixes]
        if self.form == "array":
            return ["BlockStored", hashes, parent, tokens, self.block, None, medium]
        return {
            "type": "BlockStored",
            "block_hashes": hashes,
            "parent_block_hash": parent,
            "token_ids": tokens,
            "block_size": self.block,
            "lora_id": None,
            "medium": medium,
            "lora_name": None,
            **fields,
        }

    def removed(self, prefixes: Iterable[Tokens], medium: str | None = "GPU") -> Event:
        hashes = [self.hash_of(each) for each in prefixes]
        if self.form == "array":
            return ["BlockRemoved", hashes, medium]
        return {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium}

    def cleared(self) -> Event:
        return ["AllBlocksCleared"] if self.form == "array" else {"type": "AllBlocksCleared"}

    def encode(self, events: Sequence[Event], rank: int | None = None) -> bytes:
        chosen = self.rank if rank is None else rank
        return msgspec.msgpack.encode([time.time(), list(events), chosen])

    def publish(self, *events: Event, **options: Any) -> int:
        """A batch of events; its number."""
        rank = options.pop("rank", None)
        return self.publish_payload(self.encode(events, rank), **options)

    def publish_payload(self, payload: bytes, *, live: bool = True, is_kept: bool = True) -> int:
        """`live`: it is sent; `is_kept`: the ring has it."""
        number = self.next
        self.next += 1
        if is_kept:
            with self._lock:
                self.ring.append((number, payload))
        if live:
            self.send(number, payload)
        return number

    def send(self, number: int, payload: bytes) -> None:
        self.pub.send_multipart([self.topic.encode(), number.to_bytes(8, "big"), payload])

    # ---- an engine's life

    def store(self, tokens: Sequence[int], medium: str = "GPU", **options: Any) -> None:
        """All blocks of the prompt that it does not have yet, an event for each row of them."""
        name = medium.lower()
        events, row = [], []
        for prefix in self.prefixes(tokens):
            if name not in self.blocks.get(prefix, ()):
                row.append(prefix)
                self.blocks.setdefault(prefix, set()).add(name)
            elif row:
                events.append(self.stored(row, medium))
                row = []
        if row:
            events.append(self.stored(row, medium))
        if events:
            self.publish(*events, **options)

    def evict(self, prefixes: Iterable[Tokens], medium: str = "GPU", **options: Any) -> None:
        chosen = [each for each in prefixes if medium.lower() in self.blocks.get(each, ())]
        for each in chosen:
            self.blocks[each].discard(medium.lower())
            if not self.blocks[each]:
                del self.blocks[each]
        if chosen:
            self.publish(self.removed(chosen, medium), **options)

    def cut(self, tokens: Sequence[int], keep: int, **options: Any) -> None:
        """Evicts a prompt's blocks behind the first `keep`, from the tail."""
        self.evict(reversed(self.prefixes(tokens)[keep:]), **options)

    def clear(self, **options: Any) -> None:
        """AllBlocksCleared, of the GPU."""
        for each in list(self.blocks):
            self.blocks[each].discard("gpu")
            if not self.blocks[each]:
                del self.blocks[each]
        self.publish(self.cleared(), **options)

    def truth(self, tokens: Sequence[int], weights: Mapping[str, float] = WEIGHTS) -> float:
        """The score that the pod has for this prompt."""
        score = 0.0
        prefixes = self.prefixes(tokens)
        parts = max(self.whole // self.block, 1)  # of a block of the index
        for first in range(0, len(prefixes) - parts + 1, parts):
            media = set.intersection(*(self.blocks.get(each, set()) for each in prefixes[first : first + parts]))
            if not media:
                break
            score += max(weights.get(each, 0.0) for each in media) * max(self.block // self.whole, 1)
        return score


class PublisherProcess:
    """An EnginePublisher in a process of its own, which can be killed and stopped; the next one has the same ports."""

    def __init__(self, pod: str, **options: Any) -> None:
        ports = free_ports(2)
        self.pod = pod
        self.endpoint, self.replay = (f"tcp://127.0.0.1:{port}" for port in ports)
        self.options = {"pod": pod, "bind": self.endpoint, "replay_at": self.replay, **options}
        self.agent = self._start()

    def _start(self) -> Agent:
        made = Agent(Path("/"), script="engine_publisher.py")
        made.call("open", **self.options)
        return made

    def call(self, command: str, **arguments: Any) -> Any:
        return self.agent.call(command, **arguments)

    def store(self, tokens: Sequence[int], **options: Any) -> None:
        self.call("store", tokens=list(tokens), **options)

    def cut(self, tokens: Sequence[int], keep: int, **options: Any) -> None:
        self.call("cut", tokens=list(tokens), keep=keep, **options)

    def truth(self, tokens: Sequence[int]) -> float:
        return float(self.call("truth", tokens=list(tokens)))

    def kill(self) -> None:
        self.agent.kill()

    def restart(self) -> None:
        """Kills it, if it lives; another life on the same ports."""
        self.agent.kill()
        self.agent.finish()
        self.agent = self._start()

    def close(self) -> None:
        self.agent.finish()


Publisher = EnginePublisher | PublisherProcess


def wrong_scores(
    indexer: Indexer, publishers: Sequence[Publisher], prompts: Sequence[Sequence[int]], model: str = MODEL
) -> list[str]:
    """Scores that are neither the truth nor, for pods that are `degraded`, at most that."""
    faults = []
    for tokens in prompts:
        found = indexer.scores(tokens, model)
        for each in publishers:
            truth, score = each.truth(tokens), found.score(each.pod)
            is_close = abs(truth - score) < 1e-9
            if not is_close and not (each.pod in found.degraded and score < truth):
                faults.append(f"{each.pod}: {score} instead of {truth} for {list(tokens)[:12]}…")
        strangers = set(found.pods) - {each.pod for each in publishers}
        faults += [f"{each} is in the answer" for each in strangers]
    return faults


def until_right(
    indexer: Indexer,
    publishers: Sequence[Publisher],
    prompts: Sequence[Sequence[int]],
    *,
    exact: bool = False,
    limit: float = LIMIT,
) -> None:
    """Waits until all scores are right. `exact`: and no pod is degraded."""
    faults: list[str] = []

    def right() -> bool:
        nonlocal faults
        faults = wrong_scores(indexer, publishers, prompts)
        if exact and not faults:
            faults = [f"{each} is degraded" for each in indexer.scores(prompts[0]).degraded]
        return not faults

    try:
        until("scores are right", right, limit, pause=0.02)
    except AssertionError:
        raise AssertionError(f"after {limit:g} s: {faults[:8]}; pods: {indexer.pods()}") from None


def prompt(number: int, blocks: int, block: int = BLOCK) -> Tokens:
    """Prompts of equal `number` are prefixes of each other."""
    return tuple((number * 1_000_003 + 7 * i) % 150_000 for i in range(blocks * block))


class Herd(contextlib.ExitStack):
    """Publishers and indexers that end with a test."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.count = 0

    def publisher(self, pod: str, **options: Any) -> EnginePublisher:
        made = EnginePublisher(pod, **options)
        self.callback(made.close)
        return made

    def process(self, pod: str, **options: Any) -> PublisherProcess:
        made = PublisherProcess(pod, **options)
        self.callback(made.close)
        return made

    def indexer(self, *sets: str, launch_only: bool = False, **options: Any) -> Indexer:
        self.count += 1
        made = Indexer(self.folder / f"indexer{self.count}", *sets, **options)
        self.callback(made.finish)
        return made.launch() if launch_only else made.start()


def settings_of(*publishers: Publisher, **fields: str) -> list[str]:
    """`--set` for configured publishers, by the names of their pods."""
    found = []
    for each in publishers:
        found.append(f"publishers.{each.pod}.endpoint={each.endpoint}")
        if each.replay:
            found.append(f"publishers.{each.pod}.replay={each.replay}")
        found += [f"publishers.{each.pod}.{key}={value}" for key, value in fields.items()]
    return found


def table_of(*publishers: Publisher) -> str:
    """The same as TOML."""
    return "".join(
        f'[publishers."{each.pod}"]\nendpoint = "{each.endpoint}"\nreplay = "{each.replay}"\n' for each in publishers
    )
