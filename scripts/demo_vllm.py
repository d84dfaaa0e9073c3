"""What scripts/demo-vllm runs: a node, a tiny model with random weights, and vLLM on it, twice, in fresh processes."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROMPTS, OUTPUT, BLOCK = 8, 16, 32  # requests, tokens that each generates, tokens of a block
WORDS = 1000  # the vocabulary of the tiny model

# vLLM on CPU in one process, without looks at the network.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "PYTHONPATH": str(ROOT / "python"),
}


def make_model(folder: Path) -> Path:
    """A Llama of 4 layers. Tokens depend on every position, since its weights are large."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=1024,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.2,
        bos_token_id=WORDS,
        eos_token_id=WORDS + 1,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(shape).to(torch.bfloat16).save_pretrained(folder)
    words = {f"w{number}": number for number in range(WORDS)} | {"<s>": WORDS, "</s>": WORDS + 1, "<unk>": WORDS + 2}
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<unk>")),
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
    ).save_pretrained(folder)
    return folder


def prompt(length: int, seed: int) -> list[int]:
    """Token ids, the same for the same seed."""
    return random.Random(str(seed)).choices(range(WORDS), k=length)


def serve(model: str, socket: str, tokens: int) -> dict[str, Any]:
    """One engine, in this process: answers the prompts one after the other, and says what it had to compute."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=model,
        dtype="float32",
        enforce_eager=True,
        block_size=BLOCK,
        max_model_len=4096,
        kv_cache_memory_bytes=512 << 20,
        disable_log_stats=False,
        kv_transfer_config={
            "kv_connector": "CenoteConnector",
            "kv_connector_module_path": "cenote.vllm",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"socket": socket},
        },
    )
    greedy = SamplingParams(max_tokens=OUTPUT, temperature=0, ignore_eos=True, detokenize=False)
    first = SamplingParams(max_tokens=1, temperature=0, detokenize=False)
    engine.generate([{"prompt_token_ids": prompt(BLOCK - 1, 99)}], first, use_tqdm=False)  # first calls are slow
    begin = time.perf_counter()
    answers = [
        engine.generate([{"prompt_token_ids": prompt(tokens, seed)}], greedy, use_tqdm=False)[0]
        for seed in range(PROMPTS)
    ]
    seconds = time.perf_counter() - begin
    counted = {each.name: each.value for each in engine.get_metrics() if hasattr(each, "value")}
    engine.llm_engine.engine_core.shutdown()
    cached = sum(each.num_cached_tokens for each in answers)
    return {
        "tokens": [list(each.outputs[0].token_ids) for each in answers],
        "seconds per prompt": seconds / PROMPTS,
        "prompt tokens computed": PROMPTS * tokens - cached,
        "prompt tokens from the node": cached,
        "blocks stored": int(counted.get("vllm:cenote_blocks_stored", 0)),
        "blocks loaded": int(counted.get("vllm:cenote_blocks_loaded", 0)),
    }


def run(title: str, model: Path, folder: Path, socket: Path, tokens: int) -> dict[str, Any]:
    """serve() in a process of its own."""
    print(f"{title}: starting vLLM …", flush=True)
    result, log = folder / f"{title}.json", folder / f"{title}.log"
    command = [sys.executable, __file__, "--tokens", str(tokens), "--serve", str(model), str(socket), str(result)]
    with log.open("wb") as said:
        ended = subprocess.run(command, env=os.environ | ENVIRONMENT, stdout=said, stderr=said, check=False)
    if ended.returncode:
        sys.exit(f"vLLM ended with {ended.returncode}; its log ends with:\n{log.read_text(errors='replace')[-6000:]}")
    found: dict[str, Any] = json.loads(result.read_text())
    return found


@contextlib.contextmanager
def running_node(folder: Path) -> Iterator[Path]:
    """A node of its own; gives its socket."""
    binary, socket, log = os.environ["CENOTE_BINARY"], folder / "cenote.sock", folder.with_suffix(".log")
    command = [binary, "node", "--config", "", "--set", f"node.runtime_dir={folder}", "--set", "dram.capacity=256MiB"]
    with log.open("wb") as said:
        node = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        while subprocess.run([binary, "status", "--socket", str(socket)], capture_output=True, check=False).returncode:
            if node.poll() is not None:
                sys.exit(f"the node ended with {node.returncode}:\n{log.read_text(errors='replace')}")
            time.sleep(0.1)
        yield socket
    finally:
        node.terminate()
        node.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2000, help="of each prompt")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        model, socket, result = given.serve
        Path(result).write_text(json.dumps(serve(model, socket, given.tokens)))
        return
    with tempfile.TemporaryDirectory(prefix="cenote-demo-") as place:
        folder = Path(place)
        made = make_model(folder / "model")
        with running_node(folder / "run") as at:
            cold, warm = (run(title, made, folder, at, given.tokens) for title in ("cold", "warm"))
    same = cold.pop("tokens") == warm.pop("tokens")
    print(f"\n{PROMPTS} prompts of {given.tokens} tokens, {OUTPUT} generated for each")
    print(f"{'':<30}{'cold':>12}{'warm':>12}")
    for name, value in cold.items():
        shown = [f"{each:.3f}" if isinstance(each, float) else str(each) for each in (value, warm[name])]
        print(f"{name:<30}{shown[0]:>12}{shown[1]:>12}")
    print("generated tokens are the same" if same else "GENERATED TOKENS DIFFER")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
