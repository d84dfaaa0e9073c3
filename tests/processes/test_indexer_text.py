"""Prompts as texts: a real indexer that starts the real tokenizer, or has the socket of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from indexer import BLOCK, LIMIT, MODEL, EnginePublisher, Herd, Indexer, settings_of, until_right
from node import BINARY, ROOT, until
from redis import Redis

tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("grpc")
pytest.importorskip("jinja2")

COMMAND = f"{sys.executable} -m cenote.tokenizer"
WORDS = ["<s>", *(f"w{i}" for i in range(200))]
FIRST, SECOND = (" ".join(f"w{(start + i) % 200}" for i in range(8 * BLOCK - 1)) for start in (0, 77))


def tokens_of(text: str) -> tuple[int, ...]:
    """As the model's tokenizer has them: `<s>` comes first."""
    return (0, *(WORDS.index(word) for word in text.split()))


@pytest.fixture(scope="module", autouse=True)
def has_grpc() -> None:
    libraries = subprocess.run(
        ["ldd", str(BINARY.with_name("cenote-services"))], capture_output=True, text=True, check=False
    ).stdout
    if "libgrpc++" not in libraries:
        pytest.skip("this build has no gRPC")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one model, in the layout of the hub's cache."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<s>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    folder = tmp_path / "models" / f"models--{MODEL.replace('/', '--')}" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    made.save(str(folder / "tokenizer.json"))
    return tmp_path / "models"


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """While this file is there, a tokenizer that is started begins."""
    made = tmp_path / "gate"
    made.touch()
    return made


def with_text(
    herd: Herd, models: Path, command: str = COMMAND, *, path: Path | None = None
) -> tuple[Indexer, EnginePublisher]:
    """An indexer with a tokenizer of its own, or the socket of another, and an engine that has the first prompt."""
    engine = herd.publisher("a")
    own = (f"tokenizer.command={command}", f'tokenizer.directories=["{models}"]')
    indexer = herd.indexer(*settings_of(engine), *(own if path is None else (f"tokenizer.socket={path}",)))
    engine.store(tokens_of(FIRST))
    until_right(indexer, [engine], [tokens_of(FIRST)], exact=True)
    return indexer, engine


def status(indexer: Indexer, text: str = FIRST, model: str = MODEL) -> int:
    return indexer.ask("POST", "/v1/scores", {"model_name": model, "prompt": text}).status


def until_answered(indexer: Indexer) -> None:
    until("texts are answered", lambda: status(indexer) == 200, pause=0.05)


def child_of(indexer: Indexer) -> int:
    children = Path(f"/proc/{indexer.pid}/task/{indexer.pid}/children").read_text().split()
    assert len(children) == 1, children
    return int(children[0])


def test_a_text_is_scored_as_its_tokens_are(herd: Herd, models: Path) -> None:
    indexer, _ = with_text(herd, models)
    until_answered(indexer)
    for text in (FIRST, SECOND, FIRST + " w5 w6 w7", "", "w9"):
        by_text = indexer.ask("POST", "/v1/scores", {"model_name": MODEL, "prompt": text})
        by_tokens = indexer.ask("POST", "/v1/scores", {"model_name": MODEL, "token_ids": tokens_of(text)})
        assert by_text.status == by_tokens.status == 200
        assert by_text.json == by_tokens.json
    assert indexer.scores_of(indexer.ask("POST", "/v1/scores", {"model_name": MODEL, "prompt": FIRST})).score("a") == 8
    found = indexer.ask("POST", "/v1/GetPodScores", {"model_name": MODEL, "prompt": FIRST}).json
    assert found == {"scores": [{"pod": "a", "score": 8}]}
    keys = {"model_name": MODEL, "token_ids": tokens_of(FIRST)}
    assert (
        indexer.ask("POST", "/v1/keys", {"model_name": MODEL, "prompt": FIRST}).json
        == indexer.ask("POST", "/v1/keys", keys).json
    )


def test_a_text_is_scored_by_an_index_on_a_redis_server(herd: Herd, models: Path) -> None:
    server = Redis()
    try:
        engine = herd.publisher("a")
        shared = ("index.backend=redis", f"index.url={server.url}", "index.key=fnv64_cbor")
        own = (f"tokenizer.command={COMMAND}", f'tokenizer.directories=["{models}"]')
        indexer = herd.indexer(*settings_of(engine), *own, *shared)
        engine.store(tokens_of(FIRST))
        until_right(indexer, [engine], [tokens_of(FIRST)], exact=True)
        until_answered(indexer)
        found = indexer.ask("POST", "/v1/GetPodScores", {"model_name": MODEL, "prompt": FIRST}).json
        assert found == {"scores": [{"pod": "a", "score": 8}]}
        server.kill()
        until("it is away", lambda: not indexer.is_ready())
        assert indexer.ask("POST", "/v1/GetPodScores", {"model_name": MODEL, "prompt": FIRST}).json == {"scores": []}
    finally:
        server.close()


def test_an_unknown_model_is_refused_with_words(herd: Herd, models: Path) -> None:
    indexer, _ = with_text(herd, models)
    until_answered(indexer)
    for name in ("org/gone", "../secret"):
        answer = indexer.ask("POST", "/v1/scores", {"model_name": name, "prompt": FIRST})
        assert answer.status == 400 and f"`{name}`" in answer.json["error"], answer
    page = indexer.ask("GET", "/metrics").text
    assert 'cenote_indexer_texts_total{outcome="refused"} 2' in page
    assert 'cenote_indexer_texts_total{outcome="answered"}' in page


def test_a_tokenizer_that_is_killed_costs_texts_alone_and_comes_back(herd: Herd, models: Path, gate: Path) -> None:
    script = gate.with_name("begin")
    script.write_text(f'#!/bin/sh\nwhile [ ! -e {gate} ]; do sleep 0.02; done\nexec {COMMAND} "$@"\n')
    script.chmod(0o700)
    indexer, engine = with_text(herd, models, str(script))
    until_answered(indexer)
    killed = child_of(indexer)
    gate.unlink()
    os.kill(killed, signal.SIGKILL)
    until("texts are refused", lambda: status(indexer) == 503, pause=0.02)
    until("it is started again", lambda: bool(indexer.logged("the tokenizer has ended")))
    assert status(indexer) == 503
    until_right(indexer, [engine], [tokens_of(FIRST), tokens_of(SECOND)], exact=True)
    gate.touch()
    until_answered(indexer)
    assert child_of(indexer) != killed


def test_a_tokenizer_that_hangs_costs_its_texts_their_time_and_no_other_question_waits(
    herd: Herd, models: Path
) -> None:
    indexer, _ = with_text(herd, models)
    until_answered(indexer)
    child = child_of(indexer)
    os.kill(child, signal.SIGSTOP)
    answers: list[int] = []
    askers = [threading.Thread(target=lambda: answers.append(status(indexer))) for _ in range(4)]
    for each in askers:
        each.start()
    while any(each.is_alive() for each in askers):
        assert indexer.scores(tokens_of(FIRST)).score("a") == 8
        time.sleep(0.01)
    assert answers == [503] * 4
    assert 'cenote_indexer_texts_total{outcome="late"} 4' in indexer.ask("GET", "/metrics").text
    os.kill(child, signal.SIGCONT)
    until_answered(indexer)
    assert child_of(indexer) == child


def test_the_tokenizer_ends_with_its_indexer_even_if_that_is_killed(herd: Herd, models: Path) -> None:
    indexer, _ = with_text(herd, models)
    until_answered(indexer)
    child = child_of(indexer)
    indexer.kill()
    until("the tokenizer has ended", lambda: not Path(f"/proc/{child}").exists() or is_zombie(child))
    indexer.start()
    until_answered(indexer)
    child = child_of(indexer)
    assert indexer.stop() == 0
    assert not Path(f"/proc/{child}").exists()


def is_zombie(pid: int) -> bool:
    try:
        return "(zombie)" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def test_an_indexer_that_ends_does_not_wait_for_texts(herd: Herd, models: Path) -> None:
    indexer, _ = with_text(herd, models)
    until_answered(indexer)
    os.kill(child_of(indexer), signal.SIGSTOP)
    answers: list[int] = []
    asker = threading.Thread(target=lambda: answers.append(status(indexer)))
    asker.start()
    until("the text is under way", lambda: indexer.counter("texts_under_way") == 1)
    assert indexer.stop() == 0
    asker.join(LIMIT)
    assert not asker.is_alive()


def test_a_tokenizer_that_runs_already_is_asked_at_its_socket(herd: Herd, models: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.sock"
    indexer, _ = with_text(herd, models, path=path)
    answer = indexer.ask("POST", "/v1/scores", {"model_name": MODEL, "prompt": FIRST})
    assert answer.status == 503 and "the tokenizer is away" in answer.json["error"]
    command = [*COMMAND.split(), "--socket", str(path), "--directory", str(models)]
    with subprocess.Popen(command) as tokenizer:
        until_answered(indexer)
        tokenizer.send_signal(signal.SIGTERM)
        assert tokenizer.wait(LIMIT) == 0
    assert status(indexer) == 503


def test_without_a_tokenizer_texts_are_refused_with_words(herd: Herd) -> None:
    indexer = herd.indexer()
    answer = indexer.ask("POST", "/v1/scores", {"model_name": MODEL, "prompt": FIRST})
    assert answer.status == 503 and "tokenizer.command" in answer.json["error"]


def test_a_command_that_is_no_program_is_refused(herd: Herd) -> None:
    indexer = herd.indexer("tokenizer.command=no-such-program-here", launch_only=True)
    assert indexer.process is not None and indexer.process.wait(LIMIT) == 2
    assert "tokenizer.command" in indexer.log_text()
