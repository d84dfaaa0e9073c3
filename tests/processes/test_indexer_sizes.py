"""`index.block_tokens`: one size of blocks for engines whose own are longer or shorter."""

from __future__ import annotations

import random

from indexer import MODEL, EnginePublisher, Herd, Tokens, prompt, settings_of, until_right
from node import until
from redis import Redis

WHOLE = 4
SIZES = (1, 2, 4, 8, 16)
LONGEST = 16
TRUNK = prompt(1, 24)
CANONICAL = f"index.block_tokens={WHOLE}"


def engines_of(herd: Herd, *, seeds: bool = False) -> list[EnginePublisher]:
    """`seeds`: engines of different sizes give the same tokens different names, as chains over blocks do."""
    return [herd.publisher(f"b{size}", block=size, whole=WHOLE, seed=str(size) if seeds else "") for size in SIZES]


def branches(step: int) -> list[Tokens]:
    """Prompts that leave the trunk behind a multiple of `step` tokens."""
    return [TRUNK[: step * end] + prompt(end + 2, 8) for end in range(1, len(TRUNK) // step)]


def live(engine: EnginePublisher, prompts: list[Tokens], chance: random.Random) -> None:
    """Some of an engine's life: what is stored has its beginning there, what is evicted goes from the tail."""
    for _ in range(30):
        tokens = chance.choice(prompts)
        kind = chance.random()
        if kind < 0.6:
            engine.store(tokens[: chance.randint(1, len(tokens))])
        elif kind < 0.8:
            engine.store(tokens[: chance.randint(1, len(tokens))], "CPU")
        elif kind < 0.97:
            engine.cut(tokens, chance.randint(0, len(engine.prefixes(tokens))))
        else:
            engine.clear()


def test_engines_of_all_sizes_answer_in_blocks_of_one(herd: Herd) -> None:
    engines = engines_of(herd)
    indexer = herd.indexer(*settings_of(*engines), CANONICAL)
    prompts = branches(2)
    chance = random.Random(20261128)
    for _ in range(4):
        for engine in engines:
            live(engine, prompts, chance)
        until_right(indexer, engines, prompts, exact=True)
    engines[0].store(TRUNK)
    until_right(indexer, engines, [TRUNK], exact=True)
    found = indexer.scores(TRUNK)
    assert (found.block_tokens, found.blocks) == (WHOLE, len(TRUNK) // WHOLE)
    assert found.pods["b1"]["tokens"] == len(TRUNK)
    indexer.kill()
    indexer.start()
    until_right(indexer, engines, prompts, exact=True)


def test_keys_of_one_size_ask_engines_of_all_sizes(herd: Herd) -> None:
    engines = engines_of(herd)
    indexer = herd.indexer(*settings_of(*engines), CANONICAL)
    for engine in engines:
        engine.store(TRUNK)
    until_right(indexer, engines, [TRUNK], exact=True)
    keys = indexer.ask("POST", "/v1/keys", {"model_name": MODEL, "token_ids": list(TRUNK)}).json["keys"]
    assert len(keys) == len(TRUNK) // WHOLE
    found = indexer.scores(model=MODEL, block_keys=keys)
    assert {engine.pod: found.score(engine.pod) for engine in engines} == {
        engine.pod: engine.truth(TRUNK) for engine in engines
    }


def test_sizes_that_are_no_multiples_are_counted_and_left_out(herd: Herd) -> None:
    odd = herd.publisher("odd", block=6, whole=6)
    even = herd.publisher("even", block=8, whole=WHOLE)
    indexer = herd.indexer(*settings_of(odd, even), CANONICAL)
    odd.store(TRUNK)
    even.store(TRUNK)
    odd.blocks.clear()
    until_right(indexer, [odd, even], [TRUNK], exact=True)
    line = f'cenote_indexer_blocks_refused_total{{reason="size"}} {len(TRUNK) // 6}\n'
    until("they are counted", lambda: line in indexer.ask("GET", "/metrics").text)


def test_a_shared_index_has_blocks_of_one_size(herd: Herd) -> None:
    server = Redis()
    herd.callback(server.close)
    shared = ("index.backend=redis", f"index.url={server.url}", "index.key=fnv64_cbor", "index.seed=7", CANONICAL)
    engines = engines_of(herd, seeds=True)
    indexers = [herd.indexer(*settings_of(*some), *shared) for some in (engines[:2], engines[2:])]
    prompts = branches(LONGEST)
    chance = random.Random(20261129)
    for engine in engines:
        live(engine, prompts, chance)
    for indexer in indexers:
        until_right(indexer, engines, prompts, exact=True)
    indexers[0].kill()
    engines[0].cut(TRUNK, 3)
    until_right(indexers[0].start(), engines, prompts, exact=True)
