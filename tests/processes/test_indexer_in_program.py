"""The indexer within a program gives the scores of `cenote indexer` for the same events."""

from __future__ import annotations

import random
from array import array

import cenote.indexer
import pytest
from indexer import BLOCK, MODEL, EnginePublisher, Herd, prompt, settings_of, until_right
from node import until


def test_both_say_the_same_of_the_same_events(herd: Herd) -> None:
    engines = [
        herd.publisher("a", form="map", hashes="int"),
        herd.publisher("b", form="array", hashes="bytes"),
        herd.publisher("c", form="map", hashes="signed"),
    ]
    shared = prompt(1, 40)
    prompts = [shared[: BLOCK * 10 * i] + prompt(i + 2, 20) for i in range(5)]
    served = herd.indexer(*settings_of(*engines))
    dice = random.Random(7)
    with cenote.indexer.Indexer(memory=64 << 20) as local:
        for _ in range(60):
            engine, tokens = dice.choice(engines), dice.choice(prompts)
            if dice.random() < 0.7:
                engine.store(tokens, medium=dice.choice(["GPU", "GPU", "CPU"]))
            else:
                engine.cut(tokens, dice.randrange(len(tokens) // BLOCK))
        until_right(served, engines, prompts, exact=True)
        for engine in engines:
            feed(local, engine)
        for tokens in prompts:
            theirs = served.scores(tokens)
            ours = local.score(array("I", tokens), MODEL)
            assert list(ours) == list(theirs.pods)
            for pod, score in ours.items():
                other = theirs.pods[pod]
                assert score.score == pytest.approx(other["score"])
                assert (score.blocks, score.tokens, score.dp_rank, score.tiers) == tuple(
                    other[name] for name in ("blocks", "tokens", "dp_rank", "tiers")
                )
            assert (ours.blocks, ours.block_tokens) == (theirs.blocks, theirs.block_tokens)


def feed(local: cenote.indexer.Indexer, engine: EnginePublisher) -> None:
    """All batches but some, which a program then asks the engine for."""
    batches = list(engine.ring)
    for number, payload in batches:
        if number % 5 == 3 and number != batches[-1][0]:
            continue
        fed = local.feed(engine.topic, number, payload)
        asks = [fed.ask] if fed.ask else local.asks()
        for ask in asks:
            known = [(seq, each) for seq, each in batches if ask.start <= seq <= number]
            local.replay(ask, known)

    def live() -> bool:
        local.advance()
        for ask in local.asks():
            local.replay(ask, [(seq, each) for seq, each in batches if seq >= ask.start])
        return state_of(local, engine).state == "live"

    until("questions are answered", live, pause=0.01)
    state = state_of(local, engine)
    assert state.last_seq == batches[-1][0] and state.gaps > 0


def state_of(local: cenote.indexer.Indexer, engine: EnginePublisher) -> cenote.indexer.PodState:
    (state,) = (each for each in local.pods() if each.pod == engine.pod)
    return state
