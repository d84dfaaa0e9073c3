"""What the vLLM adapter is made of, in vLLM's environment but without an engine."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE
from vllm_engine import environment


def run(vllm_python: str, code: str, **values: Any) -> Any:
    """Runs `code` with `values` as globals; what it leaves in `result`."""
    script = f"import json\nglobals().update(json.loads({json.dumps(json.dumps(values))}))\n{textwrap.dedent(code)}\n"
    script += "print('result', json.dumps(result))"
    done = subprocess.run(
        [vllm_python, "-c", script], capture_output=True, text=True, cwd=HERE, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("result "))[7:])


def test_pieces_name_every_byte_of_a_block_once_whatever_the_strides(vllm_python: str) -> None:
    wrong = run(
        vllm_python,
        """
        import itertools, torch
        from cenote._vllm.layout import pieces_of

        def wrong_bytes(tensor, blocks):
            "How many blocks are not what their pieces show."
            count = 0
            split = tensor.shape[0] // blocks
            raw = bytes(tensor.untyped_storage())
            begin = tensor.untyped_storage().data_ptr()
            pieces = pieces_of(tensor, blocks)
            for i in range(blocks):
                shown = b"".join(
                    raw[p.base - begin + i * p.block_stride + run * p.run_stride :][: p.run_bytes]
                    for p in pieces for run in range(p.runs)
                )
                mine = tensor[i * split : (i + 1) * split]
                expected = sorted(mine.contiguous().view(torch.uint8).flatten().tolist())
                count += sorted(shown) != expected
            return count

        result = {}
        for order in itertools.permutations(range(4)):
            base = torch.randint(0, 1 << 15, (6, 2, 4, 8), dtype=torch.int16)
            tensor = torch.empty([base.shape[i] for i in order], dtype=torch.int16)
            back = [order.index(i) for i in range(4)]
            tensor = tensor.permute(back)  # logical [6, 2, 4, 8], any order in memory
            tensor.copy_(base)
            result[f"order {order}"] = wrong_bytes(tensor, 6)
            result[f"order {order}, kernel blocks of half the size"] = wrong_bytes(tensor, 3) if order[0] == 0 else 0
        padded = torch.randint(0, 255, (6, 100), dtype=torch.uint8)[:, :64].view(6, 2, 4, 8)
        result["padded"] = wrong_bytes(padded, 6)
        """,
    )
    assert {name: count for name, count in wrong.items() if count} == {}


def test_settings_that_nobody_knows_are_refused_by_name(vllm_python: str) -> None:
    code = """
        from cenote._vllm.settings import Settings
        from cenote.errors import InvalidArgument
        try:
            Settings.read(given)
            result = ""
        except InvalidArgument as why:
            result = str(why)
    """
    assert "no key `sokcet`" in run(vllm_python, code, given={"sokcet": "/x"})
    assert "`debug_fail_loads_from_block` is True" in run(
        vllm_python, code, given={"debug_fail_loads_from_block": True}
    )
    assert "negative" in run(vllm_python, code, given={"prefill_tokens_per_s": -1})
    assert run(vllm_python, code, given={"socket": "/x", "prefill_tokens_per_s": 1000}) == ""


def test_another_version_of_vllm_is_refused_with_a_sentence(vllm_python: str) -> None:
    message = run(
        vllm_python,
        """
        import vllm
        vllm.__version_tuple__, vllm.__version__ = (0, 99, 0), "0.99.0"
        try:
            import cenote.vllm
            result = ""
        except ImportError as why:
            result = str(why)
        """,
    )
    assert message.startswith("cenote.vllm is made for vLLM 0.32.x, but this is 0.99.0")


@pytest.fixture(scope="module")
def instances(vllm_python: str, llama: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name of the change -> id of the instance."""
    found = run(
        vllm_python,
        """
        import copy, os, pathlib, shutil, types
        import torch, tiny_models
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from cenote._vllm import model
        from cenote._vllm.layout import Unservable
        from cenote._vllm.messages import RankLayout
        from cenote._vllm.settings import Settings

        def instance(folder=llama, layout=("a", 100), settings=None, block=32, replicas=1, environ=None, **arguments):
            arguments = dict(dtype="float32", enforce_eager=True, block_size=block, max_model_len=2048) | arguments
            config = EngineArgs(model=folder, **arguments).create_engine_config()
            spec = FullAttentionSpec(block_size=block, num_kv_heads=2, head_size=64, dtype=torch.float32)
            group = KVCacheGroupSpec(["layer"], spec)
            cache = KVCacheConfig(8, [], [group], kv_cache_layout="LBHNC", kv_tp_replicas=replicas)
            before = dict(os.environ)
            os.environ.update(environ or {})
            try:
                ranks = RankLayout((layout[1],), layout[0])
                return model.instance_of(config, cache, ranks, Settings(**(settings or {}))).id
            finally:
                os.environ.clear()
                os.environ.update(before)

        def variant(name, change):
            folder = pathlib.Path(place) / name / pathlib.Path(llama).name
            shutil.copytree(llama, folder)
            change(folder)
            return str(folder)

        def retrain(folder):
            tiny_models.make_llama(folder, seed=1)

        def poke(folder):
            file = folder / "model.safetensors"
            with file.open("r+b") as opened:
                opened.seek(file.stat().st_size // 2)
                byte = opened.read(1)
                opened.seek(-1, 1)
                opened.write(bytes([byte[0] ^ 1]))

        def rescale(folder):
            config = folder / "config.json"
            config.write_text(config.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))

        def touch(folder):
            pass

        result = {
            "": instance(),
            "same": instance(),
            "longest sequence": instance(max_model_len=1024),
            "weights": instance(variant("weights", retrain)),
            "a bit of a weight": instance(variant("bit", poke)),
            "configuration": instance(variant("config", rescale)),
            "type": instance(dtype="bfloat16"),
            "cache type": instance(kv_cache_dtype="fp8"),
            "block size": instance(block=64),
            "layout": instance(layout=("b", 100)),
            "bytes of a block": instance(layout=("a", 200)),
            "hash algorithm": instance(prefix_caching_hash_algo="sha256_cbor"),
            "seed": instance(environ={"PYTHONHASHSEED": "1"}),
            "ranks": instance(tensor_parallel_size=2),
            "ranks that are copies": instance(tensor_parallel_size=2, replicas=2),
            "fingerprint": instance(settings={"fingerprint": "mine"}),
            "same fingerprint, copied weights": instance(variant("copy", touch), settings={"fingerprint": "mine"}),
        }
        """,
        llama=str(llama),
        place=str(tmp_path_factory.mktemp("variants")),
    )
    assert isinstance(found, dict)
    return found


def test_everything_that_changes_bytes_changes_the_instance(instances: dict[str, str]) -> None:
    alike = [
        ["", "longest sequence", "ranks that are copies", "same"],
        ["fingerprint", "same fingerprint, copied weights"],
    ]
    names: dict[str, set[str]] = {}
    for change, name in instances.items():
        names.setdefault(name, set()).add(change)
    together = sorted(sorted(each) for each in names.values() if len(each) > 1)
    assert together == alike
