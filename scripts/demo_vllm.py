"""What scripts/demo-vllm runs."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "engines"), str(ROOT / "tests" / "processes")]

import tiny_models  # noqa: E402
from node import Node, until  # noqa: E402
from vllm_engine import Engine, connector  # noqa: E402

PROMPTS, OUTPUT, BLOCK = 8, 16, 32


def run(title: str, model: Path, folder: Path, node: Node, prompts: list[list[int]]) -> dict[str, Any]:
    """One engine in a process of its own, which answers the prompts one after the other."""
    print(f"{title}: starting vLLM …", flush=True)
    engine = Engine(
        sys.executable,
        model,
        folder / f"{title}.log",
        kv_transfer_config=connector(node.socket),
        kv_cache_memory_bytes=512 << 20,
        max_model_len=4096,
    )
    try:
        engine.generate([tiny_models.prompt(BLOCK - 1, 99)], 1)  # first calls are slow, whoever computes
        answers = [engine.generate([each], OUTPUT)[0] for each in prompts]
        metrics = engine.metrics()
    finally:
        engine.stop()
    return {
        "tokens": [each["tokens"] for each in answers],
        "seconds per prompt": sum(each["seconds"] for each in answers) / len(answers),
        "prompt tokens computed": sum(map(len, prompts)) - sum(each["cached"] for each in answers),
        "prompt tokens from the node": sum(each["cached"] for each in answers),
        "blocks stored": int(metrics.get("cenote_blocks_stored", 0)),
        "blocks loaded": int(metrics.get("cenote_blocks_loaded", 0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2000, help="of each prompt")
    tokens = parser.parse_args().tokens
    with tempfile.TemporaryDirectory(prefix="cenote-demo-") as place:
        folder = Path(place)
        model = tiny_models.make_llama(folder / "model")
        prompts = [tiny_models.prompt(tokens, seed) for seed in range(PROMPTS)]
        node = Node(folder / "run", "dram.capacity=256MiB").start()
        try:
            cold = run("cold", model, folder, node, prompts)
            until("the node has it all", lambda: node.blocks()["present"] >= PROMPTS * (tokens // BLOCK), limit=20)
            warm = run("warm", model, folder, node, prompts)
        finally:
            node.stop()
            node.kill_everything()
    same = cold.pop("tokens") == warm.pop("tokens")
    print(f"\n{PROMPTS} prompts of {tokens} tokens, {OUTPUT} generated for each")
    print(f"{'':<30}{'cold':>12}{'warm':>12}")
    for name, value in cold.items():
        shown = [f"{each:.3f}" if isinstance(each, float) else str(each) for each in (value, warm[name])]
        print(f"{name:<30}{shown[0]:>12}{shown[1]:>12}")
    print("generated tokens are the same" if same else "GENERATED TOKENS DIFFER")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
