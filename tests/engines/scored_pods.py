"""An indexer that a test kills and starts again, and pods: real vLLM engines that publish to it."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from node import BINARY, free_port, node_environment, until
from vllm_engine import Engine

MODEL = "tiny"
BLOCK = 32  # tokens: what attention on processors takes
LIVE_LIMIT = 120.0  # seconds that an indexer may take on a busy machine to know what a pod has


class Indexer:
    """`cenote indexer` with its log in `folder`; started by its maker."""

    def __init__(self, folder: Path, *sets: str) -> None:
        self._port = free_port()
        self._log = folder / "indexer.log"
        self._command = [str(BINARY), "indexer"]
        for each in (f"indexer.listen=127.0.0.1:{self._port}", "indexer.grpc=off", *sets):
            self._command += ["--set", each]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=node_environment())
        until("the indexer answers", self._is_up)

    def _is_up(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.log_text()
        try:
            return bool(self.ask("/healthz", answer=str) == "ok\n")
        except OSError:
            return False

    def is_ready(self) -> bool:
        """The first replays are done."""
        try:
            return bool(self.ask("/readyz", answer=str) == "ready\n")
        except urllib.error.HTTPError:
            return False

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    def ask(self, path: str, body: Any = None, answer: Callable[[str], Any] = json.loads) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", data, timeout=30) as reply:
            return answer(reply.read().decode())

    def tokens(self, prompt: list[int]) -> dict[str, int]:
        """Of the prompt's beginning, by pod: those that an engine finds there. It computes at least the last token of
        each prompt, and so does not look for the block in which that lies."""
        return {pod: int(each["tokens"]) for pod, each in self.scores(prompt[:-1]).items()}

    def scores(self, tokens: list[int]) -> dict[str, dict[str, Any]]:
        """By pod."""
        answer = self.ask("/v1/scores", {"model_name": MODEL, "token_ids": tokens})
        assert answer["degraded"] == [], answer
        return {each["pod"]: each for each in answer["scores"]}

    def status(self, pod: str) -> dict[str, Any]:
        """Of one pod's publisher; empty: it is not known."""
        rows = [each for each in self.ask("/v1/pods")["pods"] if each["pod"] == pod]
        assert len(rows) <= 1, rows
        return dict(rows[0]) if rows else {}

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def stop(self) -> None:
        """An orderly end."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(10) == 0, self.log_text()


class Pod:
    """A vLLM engine with a small pool, whose process may be killed and started again."""

    def __init__(self, name: str, start: Callable[..., Engine], endpoint: str, replay: str, **arguments: Any) -> None:
        self.name = name
        self._start = start
        self._arguments = arguments | {
            "block_size": BLOCK,
            "kv_events": {"endpoint": endpoint, "replay_endpoint": replay, "topic": f"kv@{name}@{MODEL}"},
        }
        self.start()

    def start(self) -> None:
        self.engine = self._start(**self._arguments)

    def kill(self) -> None:
        self.engine.kill()

    def is_current(self, indexer: Indexer) -> bool:
        """The indexer has applied every batch that the engine has published."""
        status = indexer.status(self.name)
        last = self.engine.call("batches") - 1
        return bool(status) and status["state"] == "live" and (status["last_seq"] or 0) == max(last, 0)

    def complete(self, tokens: list[int], count: int) -> tuple[int, list[int]]:
        """Tokens of the prompt that the engine found, and those that it generated."""
        (answer,) = self.engine.generate([tokens], count)
        return answer["cached"], answer["tokens"]


def await_pods(indexer: Indexer, pods: Iterable[Pod]) -> None:
    for each in pods:
        until(f"{each.name} is known", lambda pod=each: pod.is_current(indexer), limit=LIVE_LIMIT)  # type: ignore[misc]
