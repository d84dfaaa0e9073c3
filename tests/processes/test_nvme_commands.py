"""`cenote nvme inspect` and `verify` on what a real node has left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import blocks
import pytest
from node import Node, run_cenote, until

Attach = Callable[..., Any]
StartNode = Callable[..., Node]

SIZE = 64 << 10
COUNT = 40
DATA_OFFSET = 1 << 20
KEYS = blocks.keys_of("stored", 0, COUNT)


def start_with_tier(start_node: StartNode, directory: Path) -> Node:
    """A node whose path serves: what is stored before is not written through."""
    node = start_node(f"nvme.paths=[{directory}]", "nvme.capacity=128MiB", "nvme.ingest=all")
    until("the path serves", lambda: node.status()["nvme"]["paths"][0]["state"] == "serving")
    return node


def fill(node: Node, attach: Attach, instance: str = "kept") -> None:
    attach(node, instance, block=SIZE).put(KEYS, blocks.contents_of(KEYS, SIZE))
    until("all is written down", lambda: node.status()["nvme"]["counters"]["written"] >= COUNT)


def look(what: str, directory: Path, code: int = 0) -> dict[str, Any]:
    ended = run_cenote("nvme", what, directory, "--json")
    assert ended.returncode == code, ended.stderr
    found = json.loads(ended.stdout)
    assert isinstance(found, dict)
    return found


def refusal(what: str, directory: Path) -> str:
    ended = run_cenote("nvme", what, directory)
    assert ended.returncode == 1
    assert ended.stdout == ""
    return ended.stderr


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    files = (each for each in sorted(directory.rglob("*")) if each.is_file())
    return {str(each): (each.stat().st_mtime_ns, each.read_bytes()) for each in files}


@pytest.fixture
def store(start_node: StartNode, attach: Attach, tmp_path: Path) -> Iterator[Path]:
    """What a node has left that was stopped in order: COUNT blocks of the instance "kept"."""
    directory = tmp_path / "store"
    node = start_with_tier(start_node, directory)
    fill(node, attach)
    assert node.stop() == 0
    yield directory


def test_inspect_says_what_a_stopped_node_has_left(store: Path) -> None:
    found = look("inspect", store)
    assert (found["blocks"], found["bytes"], found["damaged"]) == (COUNT, COUNT * SIZE, 0)
    assert found["format"] == 1
    assert found["data_bytes"] == (store / "data").stat().st_size
    assert 0 < found["metadata_bytes"] < 8 << 20
    assert 0 < found["oldest"] <= found["newest"]
    (kept,) = found["instances"]
    assert (kept["id"], kept["model"], kept["groups"]) == ("kept", "llama-3-8b", ["full"])
    assert (kept["blocks"], kept["bytes"]) == (COUNT, COUNT * SIZE)
    assert "kept" in run_cenote("nvme", "inspect", store).stdout


def test_verify_finds_all_blocks_right(store: Path) -> None:
    found = look("verify", store)
    assert (found["blocks"], found["bytes"], found["wrong"], found["damaged"]) == (COUNT, COUNT * SIZE, 0, 0)
    assert found["wrong_blocks"] == []
    assert found["store_id"] == look("inspect", store)["store_id"]


def test_a_look_changes_nothing(store: Path) -> None:
    before = contents(store)
    look("inspect", store)
    look("verify", store)
    assert contents(store) == before


def test_verify_names_a_block_with_a_flipped_byte(store: Path) -> None:
    data = bytearray((store / "data").read_bytes())
    at = data.find(blocks.content_of(KEYS[7], SIZE).tobytes())
    assert at >= DATA_OFFSET
    with (store / "data").open("r+b") as file:
        file.seek(at + 1000)
        file.write(bytes([data[at + 1000] ^ 1]))
    found = look("verify", store, code=1)
    assert (found["blocks"], found["wrong"]) == (COUNT, 1)
    (wrong,) = found["wrong_blocks"]
    assert (wrong["instance"], wrong["key"], wrong["offset"]) == ("kept", KEYS[7].hex(), at)
    assert KEYS[7].hex() in run_cenote("nvme", "verify", store).stdout


def test_a_node_serves_a_store_after_the_look(store: Path, start_node: StartNode) -> None:
    look("verify", store)
    node = start_with_tier(start_node, store)
    assert node.status()["nvme"]["blocks"] == COUNT


@pytest.mark.parametrize("what", ["inspect", "verify"])
def test_a_store_that_a_node_has_open_is_refused(
    what: str, start_node: StartNode, attach: Attach, tmp_path: Path
) -> None:
    directory = tmp_path / "store"
    node = start_with_tier(start_node, directory)
    fill(node, attach)
    said = refusal(what, directory)
    assert "is in use by the node" in said
    assert f"(pid {node.worker_pid})" in said
    assert node.status()["nvme"]["paths"][0]["state"] == "serving"


@pytest.mark.parametrize("what", ["inspect", "verify"])
def test_nothing_is_made_where_no_store_is(what: str, tmp_path: Path) -> None:
    assert "holds no store" in refusal(what, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert "holds no store" in refusal(what, tmp_path / "missing")
    assert not (tmp_path / "missing").exists()
