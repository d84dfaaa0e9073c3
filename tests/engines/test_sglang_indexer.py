"""`cenote indexer` beside SGLang's radix trees: a pod's score is what its tree then finds."""

from __future__ import annotations

import contextlib
import random
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from node import free_ports, until
from scored_pods import LIVE_LIMIT, MODEL, Indexer
from sglang.srt.disaggregation.kv_events import KVEventBatch, ZmqEventPublisher
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
from sglang_support import FULL, PAGE, Engine, device_pool

pytest_plugins = ["sglang_support"]

POOL = 1024  # tokens of a pod's device
ROUNDS = 60 if FULL else 15
PROMPTS = 10  # asked in each round

Pod = dict[str, Any]


class Tree:
    """A pod: a tree of SGLang, its pool of pages, and its publisher."""

    def __init__(self, name: str, page: int, cache: Any, allocator: Any) -> None:
        self.name, self.page, self.cache, self.allocator = name, page, cache, allocator
        ports = free_ports(2)
        self.endpoint, self.replay = (f"tcp://127.0.0.1:{port}" for port in ports)
        self._publisher = ZmqEventPublisher(
            0, endpoint=self.endpoint, replay_endpoint=self.replay, topic=f"kv@{name}@{MODEL}", bind=True
        )
        self.batches = 0

    def settings(self) -> list[str]:
        facts = {"endpoint": self.endpoint, "replay": self.replay, "engine": "sglang"}
        return [f"publishers.{self.name}.{key}={value}" for key, value in facts.items()]

    def match(self, tokens: list[int]) -> Any:
        return self.cache.match_prefix(MatchPrefixParams(key=RadixKey(array("q", tokens))))

    def match_lengths(self, tokens: list[int]) -> tuple[int, int]:
        """Tokens that the tree finds, and how many of them are on the device."""
        match = self.match(tokens)
        device = int(match.device_prefix_len)
        return device + int(getattr(match, "host_hit_length", 0) or 0), device

    def compute(self, tokens: list[int]) -> None:
        """Prefill, as a scheduler does it: pages that are missing on the device get places, others give theirs up."""
        whole = tokens[: len(tokens) // self.page * self.page]
        present = self.cache.path_device_indices(self.match(whole).last_device_node)
        missing = len(whole) - len(present)
        if missing == 0:
            return
        if self.allocator.available_size() < missing:
            self.evict(missing)
            present = self.cache.path_device_indices(self.match(whole).last_device_node)
            missing = len(whole) - len(present)
        places = self.allocator.alloc(missing)
        if places is None:
            return
        value = torch.cat([present.to(torch.int64), places.to(torch.int64)])
        self.cache.insert(InsertParams(key=RadixKey(array("q", whole)), value=value, priority=0))

    def evict(self, tokens: int) -> None:
        self.cache.evict(EvictParams(num_tokens=tokens))

    def reset(self) -> None:
        self.cache.reset()
        self.allocator.clear()

    def publish(self) -> None:
        events = self.cache.take_events()
        if events:
            self._publisher.publish(KVEventBatch(ts=time.time(), events=events))
            self.batches += 1

    def close(self) -> None:
        self._publisher.shutdown()


def device_tree(name: str, page: int) -> Tree:
    pool = device_pool(False, tokens=POOL, page=page)
    allocator = TokenToKVPoolAllocator(size=POOL, dtype=pool.dtype, device="cpu", kvcache=pool, need_sort=False)
    parameters = CacheInitParams(
        disable=False,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=allocator,
        page_size=page,
        enable_kv_cache_events=True,
    )
    return Tree(name, page, RadixCache(parameters), allocator)


@pytest.fixture
def end() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


def prompts_of(chance: random.Random) -> list[list[int]]:
    """Documents with what is asked about them, at lengths that are no multiples of pages."""
    documents = [chance.choices(range(50_000), k=chance.randrange(40, 260)) for _ in range(4)]
    prompts = []
    for _ in range(40):
        document = chance.choice(documents)
        cut = chance.randrange(1, len(document))
        prompts.append(document[:cut] + chance.choices(range(50_000), k=chance.randrange(90)))
    return documents + prompts


def live(tree: Tree, prompts: list[list[int]], chance: random.Random) -> None:
    for _ in range(6):
        tree.compute(chance.choice(prompts))
    if chance.random() < 0.4:
        tree.evict(chance.randrange(1, POOL // 2))
    if chance.random() < 0.1:
        tree.reset()


def await_tree(indexer: Indexer, tree: Tree) -> None:
    def is_known() -> bool:
        status = indexer.status(tree.name)
        return status.get("state") == "live" and status.get("last_seq") == tree.batches - 1

    until(f"all events of {tree.name} are known", is_known, LIVE_LIMIT, pause=0.02)


def compare(indexer: Indexer, trees: list[Tree], prompts: list[list[int]], chance: random.Random, block: int) -> int:
    """Tokens that were found."""
    sum_of_found = 0
    for prompt in chance.sample(prompts, PROMPTS):
        scores: dict[str, Pod] = indexer.scores(prompt)
        for tree in trees:
            size = block or tree.page
            found, device = tree.match_lengths(prompt)
            tokens = int(scores.get(tree.name, {}).get("tokens", 0))
            assert tokens == found // size * size, f"{tree.name} finds {found} of {len(prompt)}: {scores}"
            on_device = int(scores.get(tree.name, {}).get("tiers", {}).get("gpu", 0))
            assert on_device == device // size, f"{tree.name} has {device} of {found} on the device: {scores}"
            sum_of_found += found
    return sum_of_found


def run(indexer: Indexer, trees: list[Tree], seed: int, block: int = 0) -> None:
    chance = random.Random(seed)
    prompts = prompts_of(chance)
    found = 0
    for number in range(ROUNDS):
        for tree in trees:
            live(tree, prompts, chance)
            tree.publish()
        for tree in trees:
            await_tree(indexer, tree)
        found += compare(indexer, trees, prompts, chance, block)
        if number == ROUNDS // 2:
            indexer.kill()
            indexer.start()
    assert found > ROUNDS * PROMPTS, "hardly anything was found: the prompts are not alike"


def test_scores_are_what_the_trees_then_find(tmp_path: Path, end: contextlib.ExitStack) -> None:
    trees = [device_tree(name, PAGE) for name in ("a", "b")]
    for tree in trees:
        end.callback(tree.close)
    indexer = Indexer(tmp_path, *trees[0].settings(), *trees[1].settings())
    end.callback(indexer.kill)
    run(indexer, trees, seed=1)


def test_pages_of_one_token_and_of_many_are_blocks_of_one_size(tmp_path: Path, end: contextlib.ExitStack) -> None:
    trees = [device_tree("single", 1), device_tree("some", 4), device_tree("many", 2 * PAGE)]
    for tree in trees:
        end.callback(tree.close)
    settings = [each for tree in trees for each in tree.settings()]
    indexer = Indexer(tmp_path, f"index.block_tokens={PAGE}", *settings)
    end.callback(indexer.kill)
    run(indexer, trees, seed=2, block=PAGE)


def test_pages_in_host_memory_count_as_such(
    tmp_path: Path, end: contextlib.ExitStack, engine_of: Callable[..., Engine]
) -> None:
    engine = engine_of(None, tokens=POOL, attach=False, events=True)
    tree = Tree("tiered", PAGE, engine.cache, engine.allocator)
    end.callback(tree.close)
    indexer = Indexer(tmp_path, *tree.settings())
    end.callback(indexer.kill)
    chance = random.Random(3)
    prompts = prompts_of(chance)
    for _ in range(ROUNDS):
        live(tree, prompts, chance)
        engine.backed_up()
        tree.publish()
        await_tree(indexer, tree)
        compare(indexer, [tree], prompts, chance, 0)
