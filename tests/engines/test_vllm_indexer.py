"""`cenote indexer` beside real vLLM engines: a pod's score is what its engine then finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import StartEngine, StartNode
from node import FULL, free_ports, run_cenote, until
from scored_pods import BLOCK, LIVE_LIMIT, MODEL, Indexer, Pod, await_pods
from tiny_models import WORDS
from vllm_engine import connector

POOL = 128  # blocks of an engine's pool: some prompts
ROUND = 100 if FULL else 12  # prompts between two events of the test
BLOCK_BYTES = BLOCK * 2 * 2 * 64 * 4  # of a layer: keys and values of 2 heads of 64 floats


class Prompts:
    """Prompts as users send them: documents with questions, repeats, conversations that go on, and short ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._documents = [self._words(self._random.randrange(2, 12) * BLOCK) for _ in range(8)]
        self._sent: list[list[int]] = []

    def _words(self, count: int) -> list[int]:
        return self._random.choices(range(WORDS), k=count)

    def draw(self) -> list[int]:
        kind = self._random.randrange(10)
        if kind == 0:
            return self._words(self._random.randrange(1, 3 * BLOCK))
        if kind <= 3 and self._sent:
            return self._random.choice(self._sent[-12:])
        document = self._random.choice(self._documents)
        cut = self._random.choice([len(document), self._random.randrange(1, len(document))])
        return document[:cut] + self._words(self._random.choice([0, 1, BLOCK, self._random.randrange(1, 4 * BLOCK)]))

    def note(self, prompt: list[int], answer: list[int]) -> None:
        """Both may come again, as a conversation that goes on."""
        self._sent.append(prompt)
        if len(prompt) + len(answer) < 640:
            self._sent.append(prompt + answer + self._words(self._random.choice([0, 1, 20])))

    def answer_length(self) -> int:
        return self._random.choice([1, 1, 2, BLOCK, 20])

    def sample(self, pods: list[Pod]) -> list[Pod]:
        return self._random.sample(pods, self._random.randint(1, len(pods)))


class Comparison:
    """Prompts sent to pods, each when the indexer knows all that came before.

    One difference is vLLM's: where it finds all whole blocks of a prompt, it computes the last one again, and keeps it
    twice. When it drops one of the two, its event is that the block is gone. So a score may end in front of such a
    block, but it is never too high."""

    def __init__(self, indexer: Indexer, pods: list[Pod], seed: int, has_windows: bool = False) -> None:
        self._has_windows = has_windows
        self._indexer = indexer
        self._pods = pods
        self._prompts = Prompts(seed)
        self._doubles: set[tuple[str, tuple[int, ...]]] = set()  # pods, and prefixes whose last block is there twice
        self.cached = 0  # tokens
        self.prompts = 0
        self.differences = 0  # by blocks that were there twice

    def _note_doubles(self, pod: Pod, prompt: list[int], cached: int) -> None:
        """With windows, vLLM finds less than the blocks that full attention has, and computes the others again."""
        if self._has_windows or len(prompt) == cached + BLOCK:
            ends = range(cached + BLOCK, len(prompt) + 1, BLOCK)
            self._doubles.update((pod.name, tuple(prompt[:end])) for end in ends)

    def _has_double(self, pod: Pod, prompt: list[int], first: int, last: int) -> bool:
        return any((pod.name, tuple(prompt[:end])) in self._doubles for end in range(first + BLOCK, last + 1, BLOCK))

    def run(self, count: int) -> None:
        wrong = []
        for _ in range(count):
            prompt = self._prompts.draw()
            await_pods(self._indexer, self._pods)
            tokens = self._indexer.tokens(prompt)
            for pod in self._prompts.sample(self._pods):
                expected = tokens.get(pod.name, 0)
                found, answer = pod.complete(prompt, self._prompts.answer_length())
                self._prompts.note(prompt, answer)
                self.cached += found
                self.prompts += 1
                self.differences += found != expected
                if found < expected or (found > expected and not self._has_double(pod, prompt, expected, found)):
                    wrong.append(f"{pod.name}: {len(prompt)} tokens, {found} found, the score was {expected}")
                self._note_doubles(pod, prompt, found)
        assert wrong == [], "\n".join(wrong)


@pytest.fixture
def start_pod(llama: Path, start_engine: StartEngine) -> Any:
    """start_pod(name, endpoint, replay): a pod of the Llama with a pool of POOL blocks."""

    def start(name: str, endpoint: str, replay: str, model: Path = llama, **arguments: Any) -> Pod:
        arguments = {"max_model_len": 1024, "kv_cache_memory_bytes": POOL * BLOCK_BYTES * 4, **arguments}
        return Pod(name, lambda **more: start_engine(model, **more), endpoint, replay, **arguments)

    return start


@pytest.fixture
def start_indexer(tmp_path: Path) -> Iterator[Any]:
    """start_indexer(*settings): an indexer that ends with the test."""
    indexers: list[Indexer] = []

    def start(*sets: str) -> Indexer:
        indexers.append(Indexer(tmp_path, *sets))
        return indexers[-1]

    yield start
    for each in indexers:
        each.stop()


def reset(pod: Pod) -> None:
    """Empties the engine's cache. vLLM publishes that with its next batch of events, which one new block makes."""
    batches = pod.engine.call("batches")
    assert pod.engine.call("forget")
    make_block(pod)
    assert pod.engine.call("batches") > batches


def make_block(pod: Pod) -> None:
    """A block that is new to all pods, so that the engine publishes something."""
    pod.complete(random.choices(range(WORDS), k=BLOCK), 1)


def test_scores_are_what_engines_find(start_pod: Any, start_indexer: Any) -> None:
    """`a` has its endpoint in the configuration, `b` connects to the indexer and is named by its address."""
    at_a, replay_a, bound, replay_b = free_ports(4)
    a = start_pod("a", f"tcp://127.0.0.1:{at_a}".replace("127.0.0.1", "*"), f"tcp://127.0.0.1:{replay_a}")
    b = start_pod("127.0.0.2", f"tcp://127.0.0.1:{bound}", f"tcp://127.0.0.2:{replay_b}")
    indexer: Indexer = start_indexer(
        f"publishers.a.endpoint=tcp://127.0.0.1:{at_a}",
        f"publishers.a.replay=tcp://127.0.0.1:{replay_a}",
        f'events.bind=["tcp://127.0.0.1:{bound}"]',
        f"events.replay_port={replay_b}",
    )
    pods = [a, b]

    def announce(pod: Pod) -> None:
        """A pod that connects is known with its first batch; what it publishes before its connection stands is lost."""

        def is_known() -> bool:
            make_block(pod)
            return bool(indexer.status(pod.name))

        until(f"{pod.name} is known", is_known, limit=LIVE_LIMIT, pause=0.1)

    def warm(pod: Pod) -> None:
        pod.engine.wait_until_ready()
        make_block(pod)

    for each in pods:
        warm(each)
    announce(b)
    compared = Comparison(indexer, pods, seed=1)
    compared.run(2 * ROUND)
    reset(a)
    compared.run(ROUND)

    for each in pods:
        each.kill()
        each.start()
    a.engine.wait_until_ready()
    until("a has nothing", lambda: indexer.status("a").get("blocks") == {}, limit=LIVE_LIMIT)
    announce(b)
    compared.run(ROUND)

    indexer.kill()
    compared_blind(pods, 6)
    indexer.start()
    until("it is ready", indexer.is_ready, limit=LIVE_LIMIT)
    announce(b)
    compared.run(ROUND)
    reset(b)
    compared.run(ROUND // 2)
    assert compared.cached > compared.prompts * BLOCK, "hardly anything was found: the prompts are not alike"
    assert compared.differences <= compared.prompts // 10


def compared_blind(pods: list[Pod], count: int) -> None:
    """Prompts while there is no indexer."""
    prompts = Prompts(seed=2)
    for _ in range(count):
        for pod in pods:
            pod.complete(prompts.draw(), 4)


def test_blocks_that_an_engine_has_in_its_node_count_for_it(
    start_pod: Any, start_indexer: Any, start_node: StartNode
) -> None:
    at, replay, node_at, node_replay = (f"tcp://127.0.0.1:{port}" for port in free_ports(4))
    node = start_node(f"publish.endpoint={node_at}", f"publish.replay={node_replay}", "publish.name=n1")
    pod = start_pod("a", at.replace("127.0.0.1", "*"), replay, kv_transfer_config=connector(node.socket))
    indexer: Indexer = start_indexer(
        *(f"publishers.a.{key}={value}" for key, value in (("endpoint", at), ("replay", replay), ("node", "n1"))),
        *(f"publishers.n1.{key}={value}" for key, value in (("endpoint", node_at), ("replay", node_replay))),
        f"publishers.n1.model={MODEL}",
    )
    pod.engine.wait_until_ready()
    asked = random.Random(4).choices(range(WORDS), k=3 * BLOCK + 5)
    pod.complete(asked, 2)

    def tiers() -> dict[str, int]:
        return dict(indexer.scores(asked).get("a", {}).get("tiers", {}))

    until("all blocks are the engine's", lambda: tiers() == {"gpu": 3}, limit=LIVE_LIMIT)
    until("all are the node's", lambda: sum(each["blocks"] for each in node.status()["instances"]) >= 3)
    reset(pod)
    until("all are the node's alone", lambda: tiers() == {"cpu": 3}, limit=LIVE_LIMIT)
    assert pod.complete(asked, 2)[0] == indexer.tokens(asked)["a"] == 3 * BLOCK
    until("they are the engine's again", lambda: tiers() == {"gpu": 3}, limit=LIVE_LIMIT)
    assert run_cenote("clear", "--all", "--socket", node.socket).returncode == 0
    reset(pod)
    until("nothing is left", lambda: tiers() == {}, limit=LIVE_LIMIT)
    assert pod.complete(asked, 2)[0] == 0


@pytest.mark.skipif(not FULL, reason="a minute and more: with CENOTE_TEST_FULL=1")
def test_a_window_and_full_attention_together_are_what_an_engine_finds(
    sliding: Path, start_pod: Any, start_indexer: Any
) -> None:
    """A hybrid model: a prefix counts where its last blocks are in the window's cache, too."""
    at, replay = free_ports(2)
    pod = start_pod("hybrid", f"tcp://*:{at}", f"tcp://127.0.0.1:{replay}", model=sliding)
    indexer: Indexer = start_indexer(
        f"publishers.hybrid.endpoint=tcp://127.0.0.1:{at}", f"publishers.hybrid.replay=tcp://127.0.0.1:{replay}"
    )
    pod.engine.wait_until_ready()
    make_block(pod)
    compared = Comparison(indexer, [pod], seed=3, has_windows=True)
    compared.run(2 * ROUND)
    assert compared.cached > compared.prompts * BLOCK
    assert compared.differences <= compared.prompts // 10
    assert indexer.status("hybrid")["model"] == MODEL
