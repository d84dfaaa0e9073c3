"""Which vLLM engines share KV: told from vLLM's own configuration, without running an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import vllm_settings
from test_vllm_parts import run

# Makes instances as the scheduler does. Models are made by this very process: so its age says nothing about them.
INSTANCE = """
    import dataclasses, os, pathlib, shutil
    import torch, tiny_models
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from cenote import _weights
    from cenote._vllm import identity, model
    from cenote._vllm.layout import Unservable
    from cenote._vllm.messages import RankLayout
    from cenote._vllm.settings import Settings

    _weights.process_began = lambda: float("inf")

    def config_of(folder=llama, block=32, **arguments):
        arguments = dict(dtype="float32", enforce_eager=True, block_size=block, max_model_len=2048) | arguments
        return EngineArgs(model=str(folder), **arguments).create_engine_config()

    def instance_of(config, layout=("a", 100), settings=None, block=32, replicas=1, environ=None, share=None):
        spec = FullAttentionSpec(block_size=block, num_kv_heads=2, head_size=64, dtype=torch.float32)
        group = KVCacheGroupSpec(["layer"], spec)
        cache = KVCacheConfig(8, [], [group], kv_cache_layout="LBHNC", kv_tp_replicas=replicas)
        before = dict(os.environ)
        os.environ.update(environ or {})
        try:
            told = Settings(**(settings or {}))
            weights = identity.Weights(f"user:{told.fingerprint}") if told.fingerprint else identity.weights_of(config)
            return model.instance_of(config, cache, RankLayout((layout[1],), layout[0]), told, weights, "", share)
        finally:
            os.environ.clear()
            os.environ.update(before)

    def instance(folder=llama, layout=("a", 100), settings=None, block=32, replicas=1, environ=None, **arguments):
        config = config_of(folder, block, **arguments)
        return instance_of(config, layout, settings, block, replicas, environ)

    def copied(name, change=lambda folder: None):
        folder = pathlib.Path(place) / name
        if not folder.exists():
            shutil.copytree(llama, folder)
            change(folder)
        return folder

    def refused(config):
        try:
            return instance_of(config).id
        except Unservable as why:
            return str(why)
"""


def in_vllm(vllm_python: str, code: str, llama: Path, place: Path, **more: Any) -> Any:
    return run(vllm_python, INSTANCE.replace("\n    ", "\n") + code, llama=str(llama), place=str(place), **more)


def test_every_setting_of_vllm_was_looked_at(vllm_python: str) -> None:
    """A setting that vLLM adds counts, until somebody finds a reason to leave it out; but somebody has to look."""
    counted, variables, gone = run(
        vllm_python,
        """
import vllm.envs
from vllm.config import VllmConfig
from cenote._vllm.left_out import FIELDS, VARIABLES
from settings_walk import counted_fields, names_that_are_gone

known = set(vllm.envs.environment_variables)
gone = names_that_are_gone(VllmConfig, FIELDS) + sorted(set(VARIABLES) - known)
result = counted_fields(VllmConfig, FIELDS), sorted(known - set(VARIABLES)), gone
""",
    )
    looked_at = {kind: sorted(fields.split()) for kind, fields in vllm_settings.COUNTED.items()}
    assert counted == looked_at
    assert variables == sorted(vllm_settings.VARIABLES.split())
    assert gone == []


@pytest.fixture(scope="module")
def found(vllm_python: str, llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One process for all questions: making vLLM's first configuration takes long."""
    return in_vllm(
        vllm_python,
        """
def retrain(folder):
    tiny_models.make_llama(folder, seed=1)

def poke(folder):
    "A bit between all samples, and size and time of last change as before."
    file = folder / "model.safetensors"
    before = file.stat()
    with file.open("r+b") as opened:
        opened.seek(before.st_size // 2 + 7001)
        byte = opened.read(1)
        opened.seek(-1, 1)
        opened.write(bytes([byte[0] ^ 1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

def rescale(folder):
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))

def retokenize(folder):
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "README.md").write_text("the same model")

loud = lambda folder: (folder / "modeling_mine.py").write_text("# code of the model's own")
online = dict(quantization="online", dtype="bfloat16")
given = dict(settings={"fingerprint": "mine"})
ids = {
    "": instance(),
    "same": instance(),
    "longest sequence": instance(max_model_len=1024),
    "copied weights": instance(copied("copy")),
    "another tokenizer file": instance(copied("tokenizer", retokenize), skip_tokenizer_init=True),
    "weights": instance(copied("weights", retrain)),
    "a bit of a weight": instance(copied("bit", poke)),
    "configuration": instance(copied("config", rescale)),
    "code": instance(copied("code", loud)),
    "type": instance(dtype="bfloat16"),
    "cache type": instance(kv_cache_dtype="fp8"),
    "block size": instance(block=64),
    "layout": instance(layout=("b", 100)),
    "bytes of a block": instance(layout=("a", 200)),
    "hash algorithm": instance(prefix_caching_hash_algo="sha256_cbor"),
    "seed": instance(environ={"PYTHONHASHSEED": "1"}),
    "ranks": instance(tensor_parallel_size=2),
    "ranks that are copies": instance(tensor_parallel_size=2, replicas=2),
    "fingerprint": instance(**given),
    "same fingerprint, other weights": instance(copied("weights"), **given),
    "same fingerprint, another configuration": instance(copied("config"), **given),
    "override": instance(hf_overrides={"rms_norm_eps": 1e-05}),
    "quantized per tensor": instance(**online, quantization_config={"linear": "fp8_per_tensor"}),
    "quantized per block": instance(**online, quantization_config={"linear": "fp8_per_block"}),
    "loader": instance(model_loader_extra_config={"enable_multithread_load": True}),
    "variable": instance(environ={"VLLM_FLOAT32_MATMUL_PRECISION": "medium"}),
    "variable of a library": instance(environ={"NVIDIA_TF32_OVERRIDE": "1"}),
    "dummy weights": instance(load_format="dummy"),
    "dummy weights of another seed": instance(load_format="dummy", seed=7),
}
names = {change: spec.id for change, spec in ids.items()}
models = sorted({spec.model for spec in ids.values()})

from vllm.config import ECTransferConfig, LoRAConfig, MultiModalConfig
from vllm.config.quantization import QuantizationConfigArgs
base = config_of()
for owner, name, value in (
    (base.model_config, "multimodal_config", MultiModalConfig()),
    (base.model_config, "quantization_config", QuantizationConfigArgs(linear="fp8_per_tensor")),
    (base, "lora_config", LoRAConfig()),
    (base, "ec_transfer_config", ECTransferConfig()),
):
    object.__setattr__(owner, name, value)
facts = lambda: identity.settings_of(base, is_told=False)
before = facts()
kept, changed = [], []  # left out, though it counts; counts, though it is left out
from cenote._vllm.left_out import FIELDS

def walk(owner):
    for field in dataclasses.fields(owner):
        value = getattr(owner, field.name)
        counts = field.name not in FIELDS.get(type(owner).__name__, {})
        if hasattr(value, "to_json_string"):  # the model's own configuration
            continue
        if counts and dataclasses.is_dataclass(value):
            walk(value)
        if (owner, field.name) != (base, "model_config"):
            object.__setattr__(owner, field.name, "changed by a test")
            try:
                same = facts() == before
            except AttributeError:
                same = False  # it was needed
            (kept if same else changed).append(f"{type(owner).__name__}.{field.name}") if same == counts else None
            object.__setattr__(owner, field.name, value)

walk(base)

def with_(owner, name, value):
    made = config_of()
    object.__setattr__(getattr(made, owner), name, value)
    return made

class Opaque:
    pass

saying = {
    "format": refused(with_("load_config", "load_format", "tensorizer")),
    "remote": refused(with_("model_config", "model_weights", "s3://bucket/model")),
    "hub": refused(with_("model_config", "model", "nobody/has-this-model")),
    "opaque": refused(with_("load_config", "model_loader_extra_config", {"uri": Opaque()})),
    "lambda": refused(with_("model_config", "hf_overrides", lambda config: config)),
}
weights = pathlib.Path(place) / "copy" / "model.safetensors"
_weights.process_began = lambda: weights.stat().st_ctime - 1
late = identity.weights_of(config_of(weights.parent)).doubt
_weights.process_began = lambda: weights.stat().st_ctime + 1
early = identity.weights_of(config_of(weights.parent)).doubt
extended = identity.weights_of(config_of(weights.parent, worker_extension_cls="somebody.Pushes")).doubt
from cenote._vllm.places import Share
two = config_of(tensor_parallel_size=2)
specs = [instance_of(two, share=share) for share in (Share(0, 2, 2), Share(0, 1, 2), Share(1, 1, 2))]
shares = [[spec.id, list(spec.groups["full0"]["parts"])] for spec in specs]
fingerprints = len({(spec.fingerprint, spec.layout, spec.dtype, spec.model) for spec in specs})
result = {"shares": shares, "fingerprints": fingerprints, "doubts": [late, early, extended]}
result |= {"ids": names, "models": models, "kept": kept, "changed": changed, "saying": saying}
""",
        llama,
        tmp_path_factory.mktemp("variants"),
    )


def test_everything_that_changes_bytes_changes_the_instance(found: Any) -> None:
    alike = [
        ["", "another tokenizer file", "copied weights", "longest sequence", "ranks that are copies", "same"],
        ["fingerprint", "same fingerprint, other weights"],
    ]
    names: dict[str, set[str]] = {}
    for change, name in found["ids"].items():
        names.setdefault(name, set()).add(change)
    together = sorted(sorted(each) for each in names.values() if len(each) > 1)
    assert together == alike
    assert found["models"] == ["LlamaForCausalLM"]


def test_a_node_that_has_some_ranks_has_an_instance_of_its_own_whose_name_says_which(found: Any) -> None:
    whole, *halves = found["shares"]
    assert whole == [found["ids"]["ranks"], ["tp0", "tp1"]]
    assert halves == [[f"{whole[0]}-tp0-1of2", ["tp0"]], [f"{whole[0]}-tp1-1of2", ["tp1"]]]
    # what ranks of a group compare before they agree: these mean the same tokens
    assert found["fingerprints"] == 1


def test_each_field_counts_or_is_left_out_as_the_table_says(found: Any) -> None:
    assert found["kept"] == []
    assert found["changed"] == []


def test_what_cannot_be_told_is_refused_with_the_key_that_settles_it(found: Any) -> None:
    parts = {
        "format": "weights of the format tensorizer cannot be told",
        "remote": "the weights come from s3://bucket/model",
        "hub": "its weights cannot be told from others: nobody/has-this-model is neither a folder nor",
        "opaque": "vllm_config.load_config.model_loader_extra_config.uri is a __main__.Opaque",
        "lambda": "vllm_config.model_config.hf_overrides is a builtins.function",
    }
    for name, says in found["saying"].items():
        assert says.startswith(parts[name]), name
        assert "set `fingerprint` in kv_connector_extra_config" in says, name


def test_weights_that_changed_since_the_process_began_are_not_taken_for_those_that_were_loaded(found: Any) -> None:
    late, early, extended = found["doubts"]
    assert late.startswith("files of the weights changed")
    assert early == ""
    assert "somebody.Pushes" in extended


def test_another_machine_and_another_purpose_make_no_other_instance(
    vllm_python: str, llama: Path, tmp_path: Path, found: Any
) -> None:
    """Other host, ports, paths, sizes, scheduling, placement, role, and time."""
    name = in_vllm(
        vllm_python,
        """
import socket, time
socket.gethostname = lambda: "elsewhere"
clock = time.time
time.time = lambda: clock() + 1e8
os.environ["HOME"] = os.environ["XDG_CACHE_HOME"] = place
os.environ["VLLM_CACHE_ROOT"] = os.path.join(place, "vllm")
os.environ["VLLM_HOST_IP"], os.environ["VLLM_PORT"] = "127.0.0.9", "23456"
os.environ["VLLM_LOGGING_LEVEL"] = "DEBUG"
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
os.chdir(place)
from vllm.config import KVTransferConfig, KVEventsConfig
transfer = KVTransferConfig(
    kv_connector="CenoteConnector", kv_connector_module_path="cenote.vllm", kv_role="kv_consumer", kv_port=7,
    kv_load_failure_policy="recompute", kv_connector_extra_config={"socket": "/elsewhere"},
)
result = instance(
    copied("elsewhere/under another name"),
    max_num_seqs=7, max_num_batched_tokens=512, long_prefill_token_threshold=64, scheduling_policy="priority",
    gpu_memory_utilization=0.3, kv_cache_memory_bytes=1 << 26, async_scheduling=False, max_model_len=1500,
    served_model_name="another", seed=11, max_logprobs=3, distributed_executor_backend="mp",
    master_port=29777, download_dir=place, tokenizer=llama, kv_transfer_config=transfer,
    kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
).id
""",
        llama,
        tmp_path,
    )
    assert name == found["ids"][""]
