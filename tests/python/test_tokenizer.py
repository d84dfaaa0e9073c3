"""The tokenizer process: where it finds models, what its answers hold, and what it refuses. No network."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

grpc = pytest.importorskip("grpc")
pytest.importorskip("jinja2")
tokenizers = pytest.importorskip("tokenizers")

from cenote._tokenizer import loaded, messages, places, server, templates  # noqa: E402
from cenote._tokenizer.calls import MOST_INPUT, Calls  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("hello", "world", "block", "cache", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "user", "assistant", "system")
LIMIT = 30.0  # seconds

TEMPLATE = (
    "{% for message in messages %}\n"
    "{{ '<|im_start|>' + message.role }} {{ message.content }} {{ '<|im_end|>' }}\n"
    "{% endfor %}\n"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}"
)


def make_tokenizer(folder: Path, first: str = "", *, template: str | None = None, truncation: bool = False) -> Path:
    """A tokenizer of whole words, numbered as in WORDS behind `first`; it puts <s> before a text."""
    words = [*([first] if first else []), *WORDS]
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<s>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", words.index("<s>"))]
    )
    if truncation:
        made.enable_truncation(2)
        made.enable_padding(length=8)
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    if template is not None:
        config = {"chat_template": template, "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def numbers(*words: str) -> list[int]:
    return [WORDS.index(word) for word in words]


def calls_of(
    *directories: Path, models: dict[str, Path] | None = None, capacity: int = 16, trust: bool = False
) -> tuple[Calls, loaded.LoadedTokenizers]:
    kept = loaded.LoadedTokenizers(places.Places(models or {}, directories, hub=False), capacity)
    return Calls(kept, trust_request_templates=trust), kept


def tokenize(calls: Calls, model: str, text: str, add_special_tokens: bool = False) -> Any:
    request = messages.TokenizeRequest(input=text, model_name=model, add_special_tokens=add_special_tokens)
    return calls.answer("Tokenize", request)


def chat(calls: Calls, model: str, *turns: tuple[str, str], **fields: Any) -> Any:
    request = messages.RenderChatCompletionRequest(model_name=model, **fields)
    for role, content in turns:
        request.messages.add(role=role, content=content)
    return calls.answer("RenderChatCompletion", request)


# ---------------------------------------------------------------------------------------------- the wire


@pytest.mark.skipif(shutil.which("protoc") is None, reason="there is no protoc")
def test_messages_are_those_of_the_proto_file(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    folder = ROOT / "services" / "indexer" / "text"
    output = tmp_path / "set"
    subprocess.run(
        ["protoc", f"--proto_path={folder}", f"--descriptor_set_out={output}", "tokenization.proto"], check=True
    )
    described = descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes()).file[0]
    assert described == messages.file_descriptor()


def test_fields_that_are_not_known_are_skipped() -> None:
    unknown = b"\x1a\x02\x08\x01"  # field 3: `features` of llm-d
    assert list(messages.RenderChatCompletionResponse.FromString(b"\x12\x02\x01\x02" + unknown).token_ids) == [1, 2]


# ---------------------------------------------------------------------------------------------- where models are


def test_a_model_is_found_in_the_map_in_folders_and_in_the_layout_of_the_hub(tmp_path: Path) -> None:
    plain, hub, apart = tmp_path / "models", tmp_path / "hub", tmp_path / "apart"
    make_tokenizer(plain / "org" / "model")
    make_tokenizer(plain / "single")
    make_tokenizer(hub / "models--Qwen--Qwen3-0.6B" / "snapshots" / "abc")
    make_tokenizer(apart)
    calls, _ = calls_of(plain, hub, models={"/srv/m": apart, "file": apart / "tokenizer.json"})
    for name in ("org/model", "single", "Qwen/Qwen3-0.6B", "/srv/m", "file"):
        reply = tokenize(calls, name, "hello world")
        assert reply.success and list(reply.input_ids) == numbers("hello", "world"), (name, reply.error_message)


def test_the_snapshot_that_main_names_counts_else_the_newest(tmp_path: Path) -> None:
    cached = tmp_path / "models--org--model"
    for age, name in enumerate(("new", "main", "old")):
        blob = make_tokenizer(tmp_path / "blobs" / name, f"first-{name}") / "tokenizer.json"
        folder = cached / "snapshots" / name
        folder.mkdir(parents=True)
        (folder / "tokenizer.json").symlink_to(blob)  # as the hub's cache has it
        os.utime(folder, (1_000 - age, 1_000 - age))
    calls, _ = calls_of(tmp_path)

    def snapshot() -> str:
        return next(
            name
            for name in ("new", "main", "old")
            if list(tokenize(calls, "org/model", f"first-{name}").input_ids) == [0]
        )

    assert snapshot() == "new"
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("main")
    assert snapshot() == "main"
    (cached / "refs" / "main").write_text("gone")
    assert snapshot() == "new"
    (cached / "refs" / "main").write_text("../../../blobs/old")
    assert snapshot() == "new"


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "org/../../secret",
        "..",
        "/etc",
        "",
        "org//model",
        "org/",
        "a\0b",
        "~",
        "org\\..",
        "x" * 300,
        "./secret",
    ],
)
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    make_tokenizer(tmp_path / "secret")
    (tmp_path / "models" / "org").mkdir(parents=True)
    calls, kept = calls_of(tmp_path / "models")
    reply = tokenize(calls, name, "hello")
    assert not reply.success and "is no name of a model" in reply.error_message
    assert kept.loads == 0


def test_an_unknown_model_is_refused_without_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_download", lambda name: pytest.fail("the hub is asked"))
    calls, _ = calls_of(tmp_path)
    reply = tokenize(calls, "org/model", "hello")
    assert not reply.success
    assert "there is no tokenizer for model `org/model`" in reply.error_message
    assert "the hub is not allowed" in reply.error_message


def test_the_hub_is_asked_once_for_what_it_has_not_and_its_cache_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    requests: list[str] = []

    def download(name: str) -> Path:
        requests.append(name)
        if name != "org/there":
            raise OSError("away")
        return make_tokenizer(tmp_path / "models--org--there" / "snapshots" / "abc") / "tokenizer.json"

    monkeypatch.setattr(places, "_download", download)
    calls = Calls(loaded.LoadedTokenizers(places.Places({}, [], hub=True), 16), trust_request_templates=False)
    for _ in range(2):
        assert tokenize(calls, "org/there", "hello").success
        assert "the hub" in tokenize(calls, "org/gone", "hello").error_message
    assert requests == ["org/there", "org/gone"]


# ---------------------------------------------------------------------------------------------- tokens


def test_special_tokens_come_on_demand_and_offsets_are_pairs(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m")
    calls, _ = calls_of(tmp_path)
    reply = tokenize(calls, "m", "hello  world")
    assert list(reply.input_ids) == numbers("hello", "world")
    assert list(reply.offset_pairs) == [0, 5, 7, 12]
    assert list(tokenize(calls, "m", "hello", True).input_ids) == numbers("<s>", "hello")
    assert list(tokenize(calls, "m", "", False).input_ids) == []


def test_a_file_that_asks_for_truncation_and_padding_gets_neither(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m", truncation=True)
    calls, _ = calls_of(tmp_path)
    assert len(tokenize(calls, "m", "hello world block cache hello").input_ids) == 5
    assert len(tokenize(calls, "m", "hello").input_ids) == 1


def test_a_completion_has_special_tokens(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m")
    calls, _ = calls_of(tmp_path)
    request = messages.RenderCompletionRequest(model_name="m", prompt="hello")
    first, second = (calls.answer("RenderCompletion", request) for _ in range(2))
    assert first.success and list(first.token_ids) == numbers("<s>", "hello")
    assert first.request_id and first.request_id != second.request_id


def test_texts_above_the_bound_are_refused(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m")
    calls, _ = calls_of(tmp_path)
    for text in ("a" * (MOST_INPUT + 1), "ä" * (MOST_INPUT // 2 + 1)):
        reply = tokenize(calls, "m", text)
        assert not reply.success and "at most 16777216 bytes" in reply.error_message


# ---------------------------------------------------------------------------------------------- loaded ones


def test_the_tokenizers_that_were_used_last_stay_loaded(tmp_path: Path) -> None:
    for name in "abc":
        make_tokenizer(tmp_path / name)
    calls, kept = calls_of(tmp_path, capacity=2)
    for name in "ababcacb":  # c drives out a, a drives out b, b drives out a
        assert tokenize(calls, name, "hello").success
    assert kept.loads == 5


def test_a_tokenizer_that_is_replaced_is_loaded_anew(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m")
    calls, _ = calls_of(tmp_path)
    assert list(tokenize(calls, "m", "hello").input_ids) == [0]
    make_tokenizer(tmp_path / "other", "first")
    (tmp_path / "other" / "tokenizer.json").replace(tmp_path / "m" / "tokenizer.json")
    assert list(tokenize(calls, "m", "hello").input_ids) == [1]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model": 1}', "\0" * 64])
def test_a_bad_file_fails_its_model_alone_and_is_read_once(tmp_path: Path, content: str) -> None:
    make_tokenizer(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "tokenizer.json").write_text(content)
    calls, kept = calls_of(tmp_path)
    for _ in range(2):
        reply = tokenize(calls, "bad", "hello")
        assert not reply.success and "tokenizer.json makes no sense" in reply.error_message
        assert tokenize(calls, "good", "hello").success
    assert kept.loads == 2
    make_tokenizer(tmp_path / "bad")
    assert tokenize(calls, "bad", "hello").success


def test_a_file_is_loaded_once_however_many_threads_ask(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m")
    calls, kept = calls_of(tmp_path)
    barrier = threading.Barrier(8)

    def ask(number: int) -> list[int]:
        barrier.wait(LIMIT)
        return [len(tokenize(calls, "m", "hello " * (number + i)).input_ids) - number for i in range(50)]

    with ThreadPoolExecutor(8) as pool:
        assert all(each == list(range(50)) for each in pool.map(ask, range(8)))
    assert kept.loads == 1


def test_a_model_is_loaded_before_it_is_asked_for(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m")
    calls, kept = calls_of(tmp_path)
    assert calls.answer("InitializeTokenizer", messages.InitializeTokenizerRequest(model_name="m")).success
    assert kept.loads == 1
    assert not calls.answer("InitializeTokenizer", messages.InitializeTokenizerRequest(model_name="n")).success


# ---------------------------------------------------------------------------------------------- chat templates


def test_a_conversation_is_rendered_by_the_models_template(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m", template=TEMPLATE)
    calls, _ = calls_of(tmp_path)
    reply = chat(calls, "m", ("system", "cache"), ("user", "hello world"), add_generation_prompt=True)
    assert reply.success, reply.error_message
    # `<|im_start|>system` is one word, unknown, and so is each role's.
    assert len(reply.token_ids) == 3 + 4 + 1
    assert list(reply.token_ids)[4:6] == numbers("hello", "world")
    assert list(chat(calls, "m", ("user", "hello")).token_ids) == numbers("<s>", "hello", "<|im_end|>")


def render(folder: Path, source: str, *turns: tuple[str, str], **options: Any) -> str:
    make_tokenizer(folder, template=source)
    conversation = [{"role": role, "content": content} for role, content in turns]
    names = {name: options.pop(name) for name in list(options) if name not in _OPTIONS}
    return templates.ChatTemplate(folder).render(conversation, options.pop("tools", None), names, **options)


_OPTIONS = ("tools", "source", "add_generation_prompt", "continue_final_message")


@pytest.mark.parametrize(
    ("source", "prompt"),
    [
        ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
        ("{% generation %}{{ 'x' }}{% endgeneration %}", "x"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ {'a': '<ä>'} | tojson }}", '{"a": "<ä>"}'),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("  {% if true %}\n  x\n  {% endif %}\n", "  x\n"),
        ("{{ unknown }}", ""),
        ("{{ tools is none }}{{ documents is none }}", "TrueTrue"),
    ],
)
def test_templates_have_what_transformers_gives_them(tmp_path: Path, source: str, prompt: str) -> None:
    assert render(tmp_path, source) == prompt


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% if %}",
        "{{ 1 / 0 }}",
        "{{ messages[7].role.x }}",
    ],
)
def test_a_template_that_fails_is_an_error_with_its_words(tmp_path: Path, source: str) -> None:
    make_tokenizer(tmp_path / "m", template=source)
    calls, _ = calls_of(tmp_path)
    reply = chat(calls, "m", ("user", "hello"))
    assert not reply.success and "chat template" in reply.error_message
    assert "roles must alternate" in reply.error_message or "raise" not in source
    assert tokenize(calls, "m", "hello").success


def test_a_template_of_its_own_file_counts_before_the_configuration(tmp_path: Path) -> None:
    make_tokenizer(tmp_path, template="old")
    (tmp_path / "chat_template.jinja").write_text("new")
    assert templates.ChatTemplate(tmp_path).render([], None, {}) == "new"


def test_of_several_templates_the_default_is_taken(tmp_path: Path) -> None:
    make_tokenizer(tmp_path)
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert templates.ChatTemplate(tmp_path).render([], None, {}) == "plain"


@pytest.mark.parametrize("name", ["tokenizer_config.json", "chat_template.json", "special_tokens_map.json"])
def test_bad_files_beside_the_tokenizer_cost_conversations_alone(tmp_path: Path, name: str) -> None:
    make_tokenizer(tmp_path / "m", template=TEMPLATE)
    (tmp_path / "m" / name).write_text("[" * 100_000)
    calls, _ = calls_of(tmp_path)
    assert name in chat(calls, "m", ("user", "hello")).error_message
    assert tokenize(calls, "m", "hello").success


def test_the_final_message_is_continued_and_not_closed(tmp_path: Path) -> None:
    source = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}"
    turns = (("user", "a"), ("assistant", " b c "))
    assert render(tmp_path, source, *turns, continue_final_message=True) == "[a][b c"
    assert render(tmp_path, source.replace(" | trim", ""), *turns, continue_final_message=True) == "[a][ b c "
    with pytest.raises(templates.BadTemplate, match="cannot be continued"):
        render(tmp_path, "nothing", *turns, continue_final_message=True)
    with pytest.raises(templates.BadTemplate, match="exclude"):
        render(tmp_path, source, *turns, continue_final_message=True, add_generation_prompt=True)


def test_options_of_a_request_reach_the_template_and_tools_are_as_vllm_shows_them(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m", template="{{ enable_thinking }} {{ tools | tojson }}")
    calls, kept = calls_of(tmp_path)
    prompts: list[str] = []
    found = kept.find("m")
    encode = found.encode
    found.encode = lambda text, **options: prompts.append(text) or encode(text, **options)  # type: ignore[method-assign, func-returns-value]
    request = messages.RenderChatCompletionRequest(model_name="m", chat_template_kwargs='{"enable_thinking": false}')
    tool = request.tools.add(type="function")
    tool.function.name = "look"
    tool.function.parameters_json = '{"type": "object"}'
    assert calls.answer("RenderChatCompletion", request).success
    flag, _, rest = prompts[0].partition(" ")
    assert flag == "False"
    expected = {"name": "look", "description": None, "parameters": {"type": "object"}}
    assert json.loads(rest) == [{"type": "function", "function": expected}]


@pytest.mark.parametrize("options", ["[1]", "{", "[" * 100_000])
def test_options_that_are_no_object_are_refused(tmp_path: Path, options: str) -> None:
    make_tokenizer(tmp_path / "m", template=TEMPLATE)
    calls, _ = calls_of(tmp_path)
    assert "chat_template_kwargs" in chat(calls, "m", ("user", "hello"), chat_template_kwargs=options).error_message


def test_parts_of_text_are_joined_and_images_are_refused(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m", template="{{ messages[0].content }}")
    calls, _ = calls_of(tmp_path)
    request = messages.RenderChatCompletionRequest(model_name="m")
    message = request.messages.add(role="user")
    message.content_parts.add(type="text", text="hello")
    message.content_parts.add(type="text", text="world")
    assert list(calls.answer("RenderChatCompletion", request).token_ids) == numbers("hello", "world")
    message.content_parts.add(type="image_url")
    assert "`image_url`" in calls.answer("RenderChatCompletion", request).error_message


def test_templates_of_requests_need_trust(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m")
    refused, _ = calls_of(tmp_path)
    trusted, _ = calls_of(tmp_path, trust=True)
    assert "is not allowed" in chat(refused, "m", chat_template="hello").error_message
    assert list(chat(trusted, "m", chat_template="hello").token_ids) == numbers("hello")
    assert "no chat template" in chat(trusted, "m").error_message


# ---------------------------------------------------------------------------------------------- the process


class Process:
    """`python -m cenote.tokenizer`."""

    def __init__(self, folder: Path, *arguments: str, stdin: Any = subprocess.DEVNULL) -> None:
        self.socket = folder / "tokenizer.sock"
        self.log = folder / "tokenizer.log"
        command = [sys.executable, "-m", "cenote.tokenizer", "--socket", str(self.socket), *arguments]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=stdin, stdout=log, stderr=log)
        self.channel = grpc.insecure_channel(f"unix:{self.socket}", [("grpc.max_send_message_length", -1)])

    def ask(self, method: str, request: Any, timeout: float = LIMIT) -> Any:
        return self.call(method)(request, timeout=timeout, wait_for_ready=True)

    def call(self, method: str) -> Any:
        return self.channel.unary_unary(
            f"/{messages.SERVICE}/{method}",
            request_serializer=messages.CLASSES[f"{method}Request"].SerializeToString,
            response_deserializer=messages.CLASSES[f"{method}Response"].FromString,
        )

    def tokens(self, text: str, model: str = "m") -> Any:
        return self.ask("Tokenize", messages.TokenizeRequest(input=text, model_name=model))

    def until_ready(self) -> None:
        await_condition(lambda: "answers at" in self.log.read_text() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()

    def finish(self) -> None:
        self.channel.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT)


def await_condition(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []
    make_tokenizer(tmp_path / "models" / "m", template=TEMPLATE)

    def begin(*arguments: str, folder: Path = tmp_path, **options: Any) -> Process:
        made.append(Process(folder, "--directory", str(tmp_path / "models"), *arguments, **options))
        return made[-1]

    yield begin
    for each in made:
        each.finish()


def test_the_process_answers_at_a_socket_of_its_user_and_ends_on_sigterm(start: Callable[..., Process]) -> None:
    process = start()
    process.until_ready()
    assert process.socket.stat().st_mode & 0o777 == 0o600
    assert list(process.tokens("hello world").input_ids) == numbers("hello", "world")
    reply = process.tokens("hello", "org/gone")
    assert not reply.success and "org/gone" in reply.error_message
    request = messages.RenderChatCompletionRequest(model_name="m")
    request.messages.add(role="user", content="hello")
    assert process.ask("RenderChatCompletion", request).success
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(LIMIT) == 0
    assert not process.socket.exists()


def test_a_socket_that_a_killed_process_left_is_replaced_and_one_that_answers_is_not(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    first = start()
    first.until_ready()
    second = start()
    assert second.process.wait(LIMIT) == 1
    assert "answers at" in second.log.read_text()
    first.process.kill()
    first.process.wait(LIMIT)
    assert first.socket.exists()
    third = start()
    third.until_ready()
    assert third.tokens("hello").success
    third.finish()
    third.socket.unlink()
    third.socket.write_text("a file")
    fourth = start()
    assert fourth.process.wait(LIMIT) == 1
    assert "no socket" in fourth.log.read_text() and third.socket.read_text() == "a file"


def test_texts_above_the_bound_are_refused_by_the_process_and_it_goes_on(start: Callable[..., Process]) -> None:
    process = start()
    assert "at most" in process.tokens("a" * (MOST_INPUT + 1)).error_message
    with pytest.raises(grpc.RpcError) as caught:
        process.tokens("a" * (MOST_INPUT + (2 << 20)))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert process.tokens("hello").success


def test_requests_above_the_bound_of_waiting_ones_are_refused_at_once(tmp_path: Path) -> None:
    allowed = threading.Event()

    class Blocked(Calls):
        def answer(self, method: str, request: Any) -> Any:
            assert allowed.wait(LIMIT)
            return super().answer(method, request)

    make_tokenizer(tmp_path / "m")
    kept = loaded.LoadedTokenizers(places.Places({}, [tmp_path], hub=False), 16)
    path = tmp_path / "sock"
    blocked = server.Server(path, Blocked(kept, trust_request_templates=False), workers=1, waiting=2)
    with grpc.insecure_channel(f"unix:{path}") as channel:
        ask = channel.unary_unary(
            f"/{messages.SERVICE}/Tokenize",
            request_serializer=messages.TokenizeRequest.SerializeToString,
            response_deserializer=messages.TokenizeResponse.FromString,
        )
        request = messages.TokenizeRequest(input="hello", model_name="m")
        answers = [ask.future(request, timeout=LIMIT, wait_for_ready=True) for _ in range(8)]
        await_condition(lambda: sum(each.done() for each in answers) == 5)
        refused = [each for each in answers if each.done()]
        assert all(each.code() == grpc.StatusCode.RESOURCE_EXHAUSTED for each in refused)
        allowed.set()
        assert all(each.result().success for each in answers if each not in refused)
    blocked.stop()


def test_many_clients_get_their_own_tokens(start: Callable[..., Process]) -> None:
    process = start("--workers", "4", "--waiting", "128")

    def ask(count: int) -> bool:
        return list(process.tokens("hello " * count).input_ids) == numbers("hello") * count

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(200)))


def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "m")
    script = (
        "import os, subprocess, sys\n"
        "command = [sys.executable, '-m', 'cenote.tokenizer', *sys.argv[1:], '--parent-pid', str(os.getpid())]\n"
        "print(subprocess.Popen(command).pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    path = tmp_path / "sock"
    command = [sys.executable, "-c", script, "--socket", str(path), "--directory", str(tmp_path)]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    await_condition(path.exists)
    parent.kill()
    parent.wait(LIMIT)
    await_condition(lambda: not path.exists())
    await_condition(
        lambda: not Path(f"/proc/{child}").exists() or "(zombie)" in Path(f"/proc/{child}/status").read_text()
    )
    parent.communicate()


@pytest.mark.parametrize(
    "arguments", [["--model", "x"], ["--cache", "0"], ["--workers", "-1"], ["--waiting", "many"], ["--model", "=p"]]
)
def test_arguments_that_make_no_sense_are_refused(start: Callable[..., Process], arguments: list[str]) -> None:
    process = start(*arguments)
    assert process.process.wait(LIMIT) == 2
    assert "error: argument" in process.log.read_text()
