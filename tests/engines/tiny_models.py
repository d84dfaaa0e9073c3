"""Tiny random models with a local tokenizer, for engines that want a folder of real weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS = 1000  # the vocabulary: "w0" … "w999"


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(WORDS)} | {"<unk>": WORDS, "<s>": WORDS + 1, "</s>": WORDS + 2}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)


def _shape(layers: int) -> dict[str, Any]:
    return {
        "vocab_size": 1024,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "bos_token_id": WORDS + 1,
        "eos_token_id": WORDS + 2,
        # large weights: tokens must depend on every position, or stored bytes could change unnoticed
        "initializer_range": 0.2,
        "tie_word_embeddings": False,
    }


def make_llama(folder: Path, *, seed: int = 0, layers: int = 4) -> Path:
    """A Llama of 4 layers; `seed` chooses the weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    LlamaForCausalLM(LlamaConfig(**_shape(layers))).to(torch.bfloat16).save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def make_sliding(folder: Path, *, seed: int = 0, window: int = 96) -> Path:
    """A Gemma 3: layers of a sliding window and of full attention in turns, which vLLM serves with two KV groups."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(seed)
    layers = ["sliding_attention", "full_attention"] * 2
    shape = _shape(len(layers)) | {"pad_token_id": 0, "head_dim": 64, "query_pre_attn_scalar": 64}
    config = Gemma3TextConfig(**shape, sliding_window=window, layer_types=layers)
    Gemma3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    _save_tokenizer(folder)
    return folder


def prompt(count: int, seed: int) -> list[int]:
    """`count` token ids, the same for the same seed."""
    import random

    return random.Random(f"{seed}").choices(range(WORDS), k=count)
