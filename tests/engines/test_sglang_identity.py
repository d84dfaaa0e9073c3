"""Which SGLang engines share pages: told from SGLang's own server arguments and from the weights."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("sglang", reason="SGLang is not installed in this environment")

import sglang_settings
import torch
from cenote import _weights
from cenote._identity import fields_of
from cenote._sglang import engine as engine_module
from cenote._sglang.engine import _ELSEWHERE, UPDATES, Engine, Unshareable, engine_of, watch_updates
from cenote._sglang.identity import spec_of
from cenote._sglang.left_out import FIELDS, is_left_out
from cenote._sglang.pages import Pages
from cenote._sglang.settings import Settings
from settings_walk import names_that_are_gone
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
from sglang.srt.runtime_context import get_context
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang_support import Node, backend_of, config, host_pool, names, set_v1, sglang_node, until

__all__ = ["backend_of", "sglang_node"]  # fixtures


def make_model(folder: Path, weights: bytes = b"weights" * 99, **said: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **said}))
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def make_adapter(folder: Path, weights: bytes) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return folder


@pytest.fixture(autouse=True)
def _old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests make models in their own process: so its age says nothing about them."""
    set_global_server_args_for_scheduler(ServerArgs(model_path="dummy"))
    monkeypatch.setattr(_weights, "process_began", lambda process=None: float("inf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(UPDATES, "count", 0)
    yield
    set_global_server_args_for_scheduler(ServerArgs(model_path="dummy"))


def see(arguments: ServerArgs) -> None:
    """Makes them those of this process, as they were given: to resolve them takes a model and its device."""
    get_context()._server_args = arguments


def engine(model: Path | str, **arguments: Any) -> Engine:
    see(ServerArgs(model_path=str(model), **arguments))
    return engine_of(Settings())


def identity(model: Path | str, **arguments: Any) -> str:
    return json.dumps(engine(model, **arguments).facts, sort_keys=True)


def refusal(model: Path | str, **arguments: Any) -> str:
    with pytest.raises(Unshareable) as why:
        engine(model, **arguments)
    assert "set `fingerprint` in the extra config" in str(why.value)
    return str(why.value)


# ---- all that is said counts


def test_every_server_argument_was_looked_at() -> None:
    """An argument that SGLang adds counts, until somebody finds a reason to leave it out; but somebody has to look."""
    counted = [name for name in fields_of(ServerArgs) if name not in FIELDS["ServerArgs"]]
    assert sorted(counted) == sorted(sglang_settings.COUNTED.split())
    assert names_that_are_gone(ServerArgs, {"ServerArgs": FIELDS["ServerArgs"]}) == []


def test_each_argument_counts_or_is_left_out_as_the_table_says(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    before = identity(model)
    unlike = []
    for name in fields_of(ServerArgs):
        if name in ("model_path", "revision", "download_dir", *_ELSEWHERE):
            continue  # these decide what is read
        arguments = ServerArgs(model_path=str(model))
        setattr(arguments, name, ["changed/by/a/test"] if name == "lora_paths" else "changed by a test")
        try:
            see(arguments)
            same = json.dumps(engine_of(Settings()).facts, sort_keys=True) == before
        except Exception:
            same = False  # it was needed
        if same != (name in FIELDS["ServerArgs"]):
            unlike.append(name)
    # the one counts by what it names; the other differs from what SGLang runs with, so there was an update
    assert sorted(unlike) == ["speculative_draft_model_path", "weight_version"]


def test_other_weights_under_one_served_name_are_kept_apart(tmp_path: Path) -> None:
    base, instruct = make_model(tmp_path / "base"), make_model(tmp_path / "instruct", b"Weights" * 99)
    pages = Pages(host_pool(False, "page_first"))

    def spec(model: Path) -> str:
        return spec_of(config(None), "kv", pages, Settings(), engine(model, served_model_name="llm")).id

    assert spec(base) == spec(base)
    assert spec(base) != spec(instruct)


@pytest.mark.parametrize(
    "arguments",
    [
        {"quantization": "fp8"},
        {"json_model_override_args": '{"rope_theta": 1}'},
        {"kv_cache_dtype": "fp8_e4m3"},
        {"kv_cache_dtype": "fp8_e5m2"},
        {"attention_backend": "triton"},
        {"dtype": "float16"},
        {"trust_remote_code": True},
        {"load_format": "dummy"},
        {"load_format": "dummy", "random_seed": 3},
    ],
    ids=str,
)
def test_an_argument_that_changes_bytes_changes_the_identity(tmp_path: Path, arguments: dict[str, Any]) -> None:
    model = make_model(tmp_path / "model")
    others = [{}, {"kv_cache_dtype": "fp8_e4m3"}, {"kv_cache_dtype": "fp8_e5m2"}, {"load_format": "dummy"}]
    assert identity(model, **arguments) not in [identity(model, **each) for each in others if each != arguments]


@pytest.mark.parametrize("variable", ["SGLANG_INT4_WEIGHT", "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH", "SGLANG_OF_TOMORROW"])
def test_variables_count_whether_they_are_known_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    model = make_model(tmp_path / "model")
    before = identity(model)
    monkeypatch.setenv(variable, "1")
    assert identity(model) != before


def test_variables_of_places_and_logs_do_not_count() -> None:
    for name in ("SGLANG_CACHE_DIR", "SGLANG_LOG_LEVEL", "SGLANG_PORT_30000_TCP_ADDR", "SGLANG_SERVICE_HOST", "HOME"):
        assert is_left_out(name), name
    for name in ("SGLANG_DSV4_FP4_LOGITS_BUDGET_MB", "SGLANG_OPT_USE_MINIMAX_FP8_Q_EPILOGUE", "SGLANG_LOGITS"):
        assert not is_left_out(name), name


def test_another_machine_and_another_purpose_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other host, ports, paths, sizes, scheduling, placement, and role."""
    here = identity(make_model(tmp_path / "here"))
    model = make_model(tmp_path / "elsewhere" / "under another name")
    os.utime(model / "model.safetensors", (1, 1))
    (model / "README.md").write_text("the same model")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another cache"))
    monkeypatch.setenv("SGLANG_CACHE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    there = identity(
        model,
        host="0.0.0.0",
        port=31000,
        nccl_port=4242,
        dist_init_addr="10.0.0.7:5000",
        nnodes=2,
        node_rank=1,
        base_gpu_id=3,
        served_model_name="another name",
        tokenizer_path="elsewhere",
        mem_fraction_static=0.5,
        max_running_requests=3,
        max_total_tokens=4096,
        chunked_prefill_size=512,
        schedule_policy="lpm",
        disaggregation_mode="decode",
        hicache_ratio=3.0,
        hicache_write_policy="write_back",
        hicache_storage_backend="dynamic",
        hicache_storage_backend_extra_config='{"socket": "/elsewhere"}',
        log_level="debug",
        random_seed=11,
    )
    assert there == here


def test_arguments_count_as_sglang_resolved_them(tmp_path: Path) -> None:
    """Where they are published, as in a scheduler: what was not given has become what it means here."""
    shape = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1}
    models = [make_model(tmp_path / name, **shape) for name in ("here", "there")]
    found = []
    for number, model in enumerate(models):
        set_global_server_args_for_scheduler(
            ServerArgs(model_path=str(model), device="cpu", port=30000 + number, max_running_requests=number + 4)
        )
        found.append(engine_of(Settings()).facts)
    assert found[0] == found[1]
    assert found[0]["arguments"]["attention_backend"] is not None


# ---- what lies beside the weights, and what cannot be told


def test_adapters_and_drafts_count_by_their_content(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    one, same = make_adapter(tmp_path / "one", b"1"), make_adapter(tmp_path / "same", b"1")
    other = make_adapter(tmp_path / "other", b"2")

    def with_adapter(path: Path) -> str:
        return identity(model, lora_paths=[{"lora_name": "mine", "lora_path": str(path)}])

    assert with_adapter(one) == with_adapter(same)
    assert with_adapter(one) not in (with_adapter(other), identity(model))
    drafts = [make_model(tmp_path / f"draft{i}", bytes([i])) for i in (1, 2)]
    assert len({identity(model, speculative_draft_model_path=str(each)) for each in drafts}) == 2


def test_what_cannot_be_told_is_refused_with_the_key_that_settles_it(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    assert "neither a folder nor in the hub's cache" in refusal("nobody/has-this-model")
    assert "weights of the format remote_instance" in refusal(model, load_format="remote_instance")
    assert "--kt-weight-path is set" in refusal(model, kt_weight_path="/experts")
    assert "neither a folder" in refusal(model, lora_paths=[{"lora_name": "mine", "lora_path": "nobody/adapter"}])
    assert "the weights of org/tower" in refusal(make_model(tmp_path / "tower", audio_model_id="org/tower"))
    overridden = '{"mm_vision_tower": "org/clip"}'
    assert "the weights of org/clip" in refusal(model, json_model_override_args=overridden)
    identity(make_model(tmp_path / "inside", mm_vision_tower="./vit"))
    code = make_model(tmp_path / "code", auto_map={"AutoModel": "org/code--m.C"})
    assert "code of org/code" in refusal(code, trust_remote_code=True)
    (model / "model.safetensors").unlink()
    assert "no weight files" in refusal(model)
    get_context()._server_args = None
    with pytest.raises(Unshareable, match="arguments are not to be seen"):
        engine_of(Settings())
    assert engine_of(Settings(fingerprint="mine")) == engine_of(Settings(fingerprint="mine"))


def test_a_fingerprint_stands_for_the_weights_and_not_for_the_settings(tmp_path: Path) -> None:
    def told(name: str, **arguments: Any) -> Engine:
        see(ServerArgs(model_path="nobody/has-this", **arguments))
        return engine_of(Settings(fingerprint=name))

    assert told("mine") == told("mine")
    assert told("mine") != told("yours")
    assert told("mine") != told("mine", quantization="fp8")


def test_weights_that_changed_since_the_engine_began_are_shared_by_its_own_ranks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(tmp_path / "model")
    assert engine(model).launch == ""
    monkeypatch.setattr(_weights, "process_began", lambda process=None: 0.0)
    assert engine(model).launch == engine(model).launch != ""
    assert engine(model).launch != engine(model, port=31000).launch


# ---- updates in place


class Runner(WeightUpdater):  # type: ignore[misc]
    def __init__(self) -> None:
        pass


def test_after_an_update_in_place_nothing_is_cached_any_more(
    sglang_node: Node, backend_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    pool = host_pool(False, "page_first")
    backend = backend_of(sglang_node, pool, model="updated")
    keys = names(2)
    assert set_v1(backend, keys, [0, 1]) == [True] * 2
    with pytest.raises(AttributeError):  # it has no model: what counts is that it was asked
        Runner().update_weights_from_disk("elsewhere", "auto")
    assert backend.batch_exists(keys) == 0
    assert set_v1(backend, names(2), [0, 1]) == [False] * 2
    assert caplog.text.count("the weights were updated in place") == 1


@pytest.mark.parametrize(
    ("tags", "backup", "is_update"),
    [(None, False, True), (["weights"], False, True), (["kv_cache"], False, False), (["weights"], True, False)],
)
def test_memory_of_weights_that_is_released_is_an_update_unless_there_is_a_copy(
    monkeypatch: pytest.MonkeyPatch, tags: list[str] | None, backup: bool, is_update: bool
) -> None:
    arguments = {"enable_weights_cpu_backup": backup}
    monkeypatch.setattr(engine_module, "arguments_of", lambda: arguments)
    monkeypatch.setattr(engine_module, "value_of", lambda said, name: said[name])
    assert engine_module._loses_weights(SimpleNamespace(tags=tags)) is is_update


def test_weights_that_are_pushed_into_a_model_are_an_update() -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def load_weights(self, weights: Any) -> None:
            pass

    watch_updates()
    before = UPDATES.count
    Model().load_weights([])
    assert UPDATES.count == before + 1


def test_an_update_in_place_before_the_attach_is_refused(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    engine(model)
    get_context().override("test", weight_version="7")
    with pytest.raises(Unshareable, match="updated in place"):
        engine_of(Settings())
    set_global_server_args_for_scheduler(ServerArgs(model_path="dummy"))
    engine(model)
    UPDATES.count += 1
    with pytest.raises(Unshareable, match="updated in place"):
        engine_of(Settings())


# ---- until the weights are known


def test_nothing_is_shared_before_the_weights_are_read(
    sglang_node: Node, backend_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    import cenote.sglang

    may_go_on = threading.Event()
    real = cenote.sglang.engine_of

    def slow(settings: Settings) -> Engine:
        assert may_go_on.wait(60)
        return real(settings)

    monkeypatch.setattr(cenote.sglang, "engine_of", slow)
    monkeypatch.setattr(cenote.sglang, "_PATIENCE", 0.01)
    backend = backend_of(sglang_node, host_pool(False, "page_first"), model="slow")
    keys = names(2)
    assert set_v1(backend, keys, [0, 1]) == [False] * 2
    assert backend.batch_exists(keys) == 0
    may_go_on.set()
    until("it is known", lambda: set_v1(backend, keys, [0, 1]) == [True] * 2)
    assert backend.batch_exists(keys) == 2
    assert isinstance(backend._registered["kv"].pages, Pages)
