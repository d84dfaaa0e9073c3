"""Recorded answers of llm-d's indexer (`tests/data/indexer`), and the payloads that they belong to."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

FOLDER = Path(__file__).resolve().parents[1] / "data" / "indexer"
MODEL = "m"
FIELDS = (  # of BlockStored, in vLLM's order
    *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
    *("extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"),
)

Facts = Mapping[str, Any]  # a publisher, an event or a question of the file


def recorded(name: str = "llmd.json") -> dict[str, Any]:
    found = json.loads((FOLDER / name).read_text())
    assert isinstance(found, dict)
    return found


def cut_cases() -> list[dict[str, Any]]:
    """Engines' blocks that are cut, in blocks of `canonical` tokens, up to an event without tokens.

    That event is about the last of the blocks into which an engine's is cut for llm-d, about all for Cenote. Shorter
    blocks differ, too: llm-d joins those of one event alone, and counts what lacks a part."""
    cases = []
    for case in recorded("llmd_canonical.json")["cases"]:
        steps = case["steps"]
        is_tokenless = [any(each.get("tokenless") for each in step.get("events", ())) for step in steps]
        sizes = {facts.get("block", 16) for facts in case["publishers"].values()}
        if all(size % case["canonical"] == 0 for size in sizes):
            end = is_tokenless.index(True) if True in is_tokenless else len(steps)
            cases.append({**case, "steps": steps[:end]})
    return cases


def tokens_of(description: str) -> list[int]:
    """Tokens "A:0:64+B:0:32": token i of sequence S is crc32("S:i") mod 120,000."""
    parts = [part.split(":") for part in description.split("+")]
    return [zlib.crc32(f"{name}:{i}".encode()) % 120_000 for name, a, b in parts for i in range(int(a), int(b))]


def extra_lists(facts: Facts, blocks: int) -> list[Any]:
    """`extra`, by number of the block, as a list."""
    extra = facts.get("extra", {})
    return [extra.get(str(i)) for i in range(blocks)]


def engine_hashes(event: Facts, publisher: Facts) -> list[Any]:
    """An engine's names for all blocks of the chain that an event belongs to."""
    tokens, size = tokens_of(event["of"]), publisher.get("block", 16)
    kind, names = publisher.get("hashes", "int"), []
    for i in range(len(tokens) // size):
        content = (publisher.get("seed", ""), event.get("lora_name"), event.get("extra"), tokens[: size * (i + 1)])
        digest = hashlib.sha256(repr(content).encode()).digest()
        number = int.from_bytes(digest[-8:], "big", signed=kind == "signed")
        names.append(digest if kind == "bytes" else number)
    return names


def event_of(event: Facts, publisher: Facts) -> list[Any]:
    """As vLLM writes it, without the last fields that have their defaults."""
    if event["type"] == "AllBlocksCleared":
        return ["AllBlocksCleared"]
    tokens, size = tokens_of(event["of"]), publisher.get("block", 16)
    hashes = engine_hashes(event, publisher)
    first, last = event.get("blocks", (0, len(hashes)))
    if event["type"] == "BlockRemoved":
        fields = [event["type"], hashes[first:last], event.get("medium"), event.get("group_idx")]
    else:
        is_known = event.get("tokenless", False)
        values = {
            **event,
            "block_hashes": hashes[first:last],
            "parent_block_hash": hashes[first - 1] if first and not is_known else None,
            "token_ids": [] if is_known else tokens[size * first : size * last],
            "block_size": size,
            "extra_keys": extra_lists(event, last)[first:] if "extra" in event else None,
        }
        fields = [event["type"], *(values.get(name) for name in FIELDS)]
    while fields[-1] is None:
        fields.pop()
    return fields


def payload_of(events: Sequence[Facts], publisher: Facts) -> bytes:
    return msgspec.msgpack.encode([1.5, [event_of(each, publisher) for each in events], 0])


def question_of(question: Facts) -> dict[str, Any]:
    """The body of /v1/scores."""
    tokens = tokens_of(question["of"])
    body = {"model_name": question.get("model_name", MODEL), "token_ids": tokens}
    if "extra" in question:
        body["extra_keys"] = extra_lists(question, len(tokens) // 16)
    if "pod_identifiers" in question:
        body["pod_identifiers"] = question["pod_identifiers"]
    return body
