"""The body of scripts/run-indexer: two vLLM engines behind a router that asks `cenote indexer`, and what kills cost."""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from demo_node import until
from demo_vllm import ENVIRONMENT, WORDS, make_model
from prefix_router import PrefixRouter

MODEL, PODS, BLOCK = "tiny", ("a", "b"), 32  # names, and tokens of a block
DOCUMENTS, QUESTIONS, BURST = 10, 4, 4  # prompts of one document each; prompts that are under way together
DOCUMENT_TOKENS, QUESTION_TOKENS, ANSWER_TOKENS = 400, 48, 4
CHECKS = 10  # prompts after each event, whose scores are compared with what the engine finds
START_LIMIT = 300.0  # seconds


def serve(orders: Any, model: str, settings: dict[str, Any], log: str) -> None:
    """An engine, in a process of its own: answers orders, one after the other."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    from vllm import LLM, SamplingParams
    from vllm.config import KVEventsConfig
    from vllm.distributed.kv_events import ZmqEventPublisher

    batches = 0
    plain = ZmqEventPublisher.publish

    def publish(self: Any, events: Any) -> None:
        nonlocal batches
        plain(self, events)
        batches += 1

    ZmqEventPublisher.publish = publish
    engine = LLM(
        model=model,
        dtype="float32",
        enforce_eager=True,
        block_size=BLOCK,
        max_model_len=1024,
        kv_cache_memory_bytes=128 << 20,
        kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="zmq", **settings),
    )
    greedy = SamplingParams(max_tokens=ANSWER_TOKENS, temperature=0, ignore_eos=True, detokenize=False)

    def complete(prompts: list[list[int]]) -> list[int]:
        """Of each prompt, the tokens that were found."""
        answers = engine.generate([{"prompt_token_ids": each} for each in prompts], greedy, use_tqdm=False)
        return [each.num_cached_tokens for each in answers]

    calls: dict[str, Callable[..., Any]] = {
        "complete": complete,
        "reset": engine.reset_prefix_cache,
        "last_batch": lambda: batches - 1,
    }
    orders.send("ready")
    while True:
        name, *values = orders.recv()
        orders.send(calls[name](*values))


class DemoEngine:
    """serve() in a process that may be killed and started again. Imports of vLLM are made once for all of them."""

    def __init__(self, name: str, model: Path, folder: Path, ports: Iterator[int]) -> None:
        self.endpoint, self.replay = (f"tcp://127.0.0.1:{next(ports)}" for _ in range(2))
        self._log = folder / f"{name}.log"
        settings = {
            "endpoint": self.endpoint.replace("127.0.0.1", "*"),
            "replay_endpoint": self.replay,
            "topic": f"kv@{name}@{MODEL}",
        }
        self._arguments = str(model), settings, str(self._log)

    def start(self) -> None:
        processes = multiprocessing.get_context("forkserver")
        self._orders, theirs = processes.Pipe()
        self._process = processes.Process(target=serve, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()

    def await_ready(self) -> None:
        self.receive(START_LIMIT)

    def send(self, *order: Any) -> None:
        self._orders.send(order)

    def receive(self, limit: float = 60.0) -> Any:
        try:
            if self._orders.poll(limit):
                return self._orders.recv()
        except EOFError:
            pass
        sys.exit(f"an engine does not answer; its log ends with:\n{self._log.read_text(errors='replace')[-4000:]}")

    def call(self, *order: Any) -> Any:
        self.send(*order)
        return self.receive()

    def kill(self) -> None:
        self._process.kill()
        self._process.join(30)
        self._orders.close()


class DemoIndexer:
    """`cenote indexer` that follows some engines."""

    def __init__(self, engines: dict[str, DemoEngine], folder: Path, ports: Iterator[int]) -> None:
        self.address = f"127.0.0.1:{next(ports)}"
        self._log = folder / "indexer.log"
        settings = [f"indexer.listen={self.address}", "indexer.grpc=off"]
        for name, engine in engines.items():
            settings += [f"publishers.{name}.endpoint={engine.endpoint}", f"publishers.{name}.replay={engine.replay}"]
        self._command = [os.environ["CENOTE_BINARY"], "indexer"]
        self._command += [word for each in settings for word in ("--set", each)]

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        until("the indexer is ready", self._is_ready)

    def _is_ready(self) -> bool:
        if self._process.poll() is not None:
            sys.exit(f"the indexer ended:\n{self._log.read_text(errors='replace')}")
        with contextlib.suppress(OSError):
            self.ask("readyz")
            return True
        return False

    def ask(self, path: str, body: dict[str, Any] | None = None) -> str:
        data = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(f"http://{self.address}/{path}", data, timeout=30) as reply:
            return str(reply.read().decode())

    def status(self, pod: str) -> dict[str, Any]:
        """Empty: the pod is not known yet."""
        return next((dict(each) for each in json.loads(self.ask("v1/pods"))["pods"] if each["pod"] == pod), {})

    def tokens(self, pod: str, prompt: list[int]) -> int:
        """Of the prompt's beginning, those that the pod has."""
        answer = json.loads(self.ask("v1/scores", {"model_name": MODEL, "token_ids": prompt}))
        return next((int(each["tokens"]) for each in answer["scores"] if each["pod"] == pod), 0)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)


def free_ports() -> Iterator[int]:
    """Different ones, outside of those that the kernel gives away: vLLM takes some of these."""
    least_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(10_000, max(least_given, 20_000)), 1_000):
        with contextlib.suppress(OSError):
            socket.create_server(("127.0.0.1", port)).close()
            yield port


def words(seed: str, count: int) -> list[int]:
    return random.Random(seed).choices(range(WORDS), k=count)


def make_prompts() -> list[list[int]]:
    """Some questions about each of some documents, as they come from many users."""
    prompts = [
        words(f"document {document}", DOCUMENT_TOKENS) + words(f"question {document} {question}", QUESTION_TOKENS)
        for document in range(DOCUMENTS)
        for question in range(QUESTIONS)
    ]
    random.Random(0).shuffle(prompts)
    return prompts


class Demonstration:
    def __init__(self, engines: dict[str, DemoEngine], indexer: DemoIndexer) -> None:
        self.engines = engines
        self.indexer = indexer
        self.router = PrefixRouter(indexer.address, MODEL, engines)
        self.wrong = 0
        self._news = 0

    def send(self, choose: Callable[[list[int]], str]) -> float:
        """The share of all prompts' tokens that were found. A burst's prompts are all sent before one is done."""
        prompts = make_prompts()
        found = 0
        for first in range(0, len(prompts), BURST):
            chosen: dict[str, list[list[int]]] = {}
            for prompt in prompts[first : first + BURST]:
                chosen.setdefault(choose(prompt), []).append(prompt)
            for pod, several in chosen.items():
                self.engines[pod].send("complete", several)
            found += sum(sum(self.engines[pod].receive()) for pod in chosen)
        return found / sum(map(len, prompts))

    def await_batches(self) -> None:
        """The indexer has all that the engines have published."""
        for pod, engine in self.engines.items():
            last = engine.call("last_batch")

            def is_known(pod: str = pod, last: int = last) -> bool:
                status = self.indexer.status(pod)
                return status.get("state") == "live" and (last < 0 or status["last_seq"] == last)

            until(f"all batches of {pod} are applied", is_known)

    def reset(self) -> None:
        """Empties the engines' caches. vLLM publishes that with its next batch of events, so each gets a new block."""
        for each in self.engines.values():
            if not each.call("reset"):
                sys.exit("an engine does not empty its cache")
            self._news += 1
            each.call("complete", [words(f"news {self._news}", BLOCK)])
        self.await_batches()

    def check(self, title: str) -> None:
        """Sends beginnings of the prompts with new questions, one by one: a score is what the engine then finds."""
        found_tokens = wrong = 0
        for number, prompt in enumerate(make_prompts()[:CHECKS]):
            question = prompt[: DOCUMENT_TOKENS - 20 * number] + words(f"{title} {number}", QUESTION_TOKENS)
            self.await_batches()
            scores = {pod: self.indexer.tokens(pod, question) for pod in self.engines}
            pod = self.router.choose(question)
            (found,) = self.engines[pod].call("complete", [question])
            found_tokens += found
            if scores[pod] != found:
                wrong += 1
                print(f"  {pod} found {found} tokens, its score was {scores[pod]}")
        print(f"{title:<28}{CHECKS} prompts, {found_tokens:>5} tokens found, {wrong} scores wrong", flush=True)
        self.wrong += wrong

    def restart_engine(self, pod: str) -> float:
        """Seconds that it took."""
        begin = time.monotonic()
        engine = self.engines[pod]
        engine.kill()
        engine.start()
        engine.await_ready()
        until(f"the indexer knows that {pod} began anew", lambda: self.indexer.status(pod).get("blocks") == {})
        return time.monotonic() - begin

    def restart_indexer(self) -> float:
        """Seconds until it has replayed what the engines kept."""
        begin = time.monotonic()
        self.indexer.kill()
        self.indexer.start()
        self.await_batches()
        return time.monotonic() - begin


def run(folder: Path) -> bool:
    """Whether all scores were what the engines found."""
    model = make_model(folder / "model")
    ports = free_ports()
    engines = {name: DemoEngine(name, model, folder, ports) for name in PODS}
    indexer = DemoIndexer(engines, folder, ports)
    print("starting two vLLM engines …", flush=True)
    for each in engines.values():
        each.start()
    for each in engines.values():
        each.await_ready()
    indexer.start()
    demonstration = Demonstration(engines, indexer)
    try:
        turns = itertools.cycle(PODS)
        shares = {"round robin": demonstration.send(lambda _: next(turns))}
        demonstration.reset()
        shares["by scores"] = demonstration.send(demonstration.router.choose)
        print(f"\n{DOCUMENTS * QUESTIONS} prompts, {QUESTIONS} about each document, {BURST} under way at a time")
        for name, share in shares.items():
            print(f"{name:<28}{share:.0%} of the tokens found")
        print()
        demonstration.check("as it is")
        print(f"kill -9 of engine b: back after {demonstration.restart_engine('b'):.1f} s, with nothing")
        demonstration.check("engine b began anew")
        print(f"kill -9 of the indexer: all scores are back after {demonstration.restart_indexer():.1f} s")
        demonstration.check("the indexer began anew")
    finally:
        indexer.kill()
        for each in engines.values():
            each.kill()
    if shares["by scores"] <= shares["round robin"]:
        print("NO MORE WAS FOUND THAN BY ROUND ROBIN")
    return demonstration.wrong == 0 and shares["by scores"] > shares["round robin"]


def main() -> None:
    os.environ.update(ENVIRONMENT)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["vllm.entrypoints.llm", "vllm.v1.engine.llm_engine", "vllm.v1.worker.cpu_worker"])
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cenote-indexer-") as folder:
        is_right = run(Path(folder))
    print(f"\n{'every score was what the engine found' if is_right else 'FAILED'}; {time.monotonic() - begin:.0f} s")
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
