"""The plug-ins of a manager: lines in, lines out, and no name that leads out of a directory."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cenote.manager_plugins import Address, Outcome, Plugin, Room, Storage, _protocol
from cenote.manager_plugins.directory import Directory
from cenote.manager_plugins.mooncake_store import MooncakeStore

PROGRAM = "cenote.manager_plugins."


class Recorder(Plugin):
    """Answers what a test sets."""

    def __init__(self, room: Room | None = None) -> None:
        self.room = room
        self.calls: list[tuple[str, str, list[str]]] = []

    def probe(self, storage: Storage) -> Room | None:
        self.calls.append(("probe", storage.name, []))
        return self.room

    def remove(self, storage: Storage, uris: Sequence[str]) -> list[Outcome]:
        self.calls.append(("remove", storage.name, list(uris)))
        return [True, "in use"]

    def exist(self, storage: Storage, uris: Sequence[str]) -> list[Outcome]:
        raise OSError("gone")


def question(op: str, uris: Sequence[str] = (), **spec: Any) -> bytes:
    storage = {"type": "dummy", "global_unique_name": "s", "storage_spec": spec}
    return json.dumps({"id": 7, "op": op, "storage": storage, "uris": uris}).encode() + b"\n"


def ask(plugin: Plugin, op: str, uris: Sequence[str] = (), **spec: Any) -> Any:
    answer = json.loads(_protocol.answer(plugin, question(op, uris, **spec)))
    assert answer.pop("id") == 7
    return answer


def test_each_question_has_an_answer_with_its_number() -> None:
    plugin = Recorder()
    assert ask(plugin, "probe") == {"results": [True]}
    assert ask(Recorder(Room(3, 9)), "probe") == {"results": [{"free_bytes": 3, "total_bytes": 9}]}
    assert ask(plugin, "remove", ["a", "b"]) == {"results": [True, "in use"]}
    assert ask(plugin, "exist", ["a"]) == {"error": "OSError: gone"}
    assert "error" in ask(plugin, "paint")
    assert plugin.calls == [("probe", "s", []), ("remove", "s", ["a", "b"])]


def test_lines_are_answered_until_there_are_none() -> None:
    out: list[bytes] = []
    _protocol.serve_lines(Recorder(), io.BytesIO(question("probe") * 3), out.append)
    assert len(out) == 3 and all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in out)


HOSTILE = [
    "",
    "dummy://s",
    "dummy://s/",
    "dummy://s/i/tp0",
    "dummy://s/i/tp0/",
    "dummy://s/i/tp0/a/b",
    "dummy://s/../tp0/a",
    "dummy://s/i/./a",
    "dummy://s/i/tp0/..",
    "dummy://s//tp0/a",
    "/i/tp0/a",
    "dummy://s/i/tp0/a\0b",
]


def test_addresses_are_three_names() -> None:
    assert Address.parse("dummy://s/a%2Fb/tp0/ab-01?size=5") == Address("a%2Fb", "tp0", "ab-01")
    for uri in HOSTILE:
        with pytest.raises(ValueError, match="no address"):
            Address.parse(uri)


class World:
    """A root with a block in it, and a file beside it that no plug-in may touch."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.block = self.root / "i" / "tp0" / "ab-01"
        self.block.parent.mkdir(parents=True)
        self.block.write_bytes(b"x")
        self.foreign = folder / "foreign" / "ab-01"
        self.foreign.parent.mkdir()
        self.foreign.write_bytes(b"x")

    def ask(self, op: str, *uris: str) -> Any:
        return ask(Directory(), op, uris, root_path=str(self.root))


def test_a_directory_deletes_blocks_and_empty_folders(tmp_path: Path) -> None:
    world = World(tmp_path)
    other = world.block.with_name("ac-01")
    other.write_bytes(b"x")
    uris = ("dummy://s/i/tp0/ab-01?size=1", "dummy://s/i/tp0/ad-01?size=1", "dummy://s/j/tp0/ab-01?size=1")
    assert world.ask("exist", *uris) == {"results": [True, False, False]}
    assert world.ask("remove", *uris) == {"results": [True, True, True]}
    assert world.ask("remove", *uris) == {"results": [True, True, True]}
    assert not world.block.exists() and other.exists()
    assert world.ask("remove", "dummy://s/i/tp0/ac-01?size=1") == {"results": [True]}
    assert list(world.root.iterdir()) == []


def test_no_name_leads_out_of_a_directory(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in ("link", "../link"):
        (world.block.parent / name).symlink_to(world.foreign.parent)
    (world.block.parent / "file").symlink_to(world.foreign)
    uris = [*HOSTILE, "dummy://s/i/link/ab-01", "dummy://s/i/tp0/link/ab-01", "dummy://s/i/tp0/../../../foreign/ab-01"]
    for uri in uris:
        (removed,) = world.ask("remove", uri)["results"]
        (exists,) = world.ask("exist", uri)["results"]
        assert exists is not True, uri
        assert removed is not True or "link" in uri, uri
    assert world.ask("remove", "dummy://s/i/tp0/file") == {"results": [True]}  # the link itself
    assert world.foreign.exists() and world.block.exists()


def test_a_directory_that_is_not_there_is_made_by_a_probe_and_by_nothing_else(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.root.rename(tmp_path / "away")
    assert world.ask("remove", "dummy://s/i/tp0/ab-01") == {"results": ["the root is not there"]}
    (room,) = world.ask("probe")["results"]
    assert 0 < room["free_bytes"] <= room["total_bytes"]
    assert list(world.root.iterdir()) == []
    world.root.rmdir()
    world.root.write_text("a file")
    assert "error" in world.ask("probe")
    assert "error" in ask(Directory(), "probe", root_path="relative")
    assert ask(Directory(), "remove", ["dummy://s/i/tp0/a"])["results"] != [True]


def served(module: str, lines: bytes, *folders: Path) -> subprocess.CompletedProcess[bytes]:
    paths = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", ""), *filter(None, sys.path)])
    command = [sys.executable, "-m", PROGRAM + module]
    return subprocess.run(
        command, input=lines, capture_output=True, env={**os.environ, "PYTHONPATH": paths}, check=True
    )


FAKE = """
import os

class MooncakeDistributedStore:
    def setup(self, *arguments):
        os.write(1, b"noise of a library\\n")
        print("more noise", arguments)
        return 0 if arguments[6] == "master:1" else -1

    def health_check(self):
        return 0

    def is_exist(self, key):
        return 0

    def batch_is_exist(self, keys):
        return [1, 0, -1][: len(keys)]

    def batch_remove(self, keys):
        assert keys[0] == "a%2Fb/tp0/ab-01", keys
        return [0, -704, -706, -1][: len(keys)]
"""


def test_a_mooncake_store_is_asked_by_its_wheel(tmp_path: Path) -> None:
    package = tmp_path / "mooncake"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "store.py").write_text(FAKE)
    uris = [f"mooncake://m/a%2Fb/tp0/{name}-01?size=5" for name in ("ab", "ac", "ad", "ae")]
    sound = {"master_service_entry": "master:1", "local_hostname": "h"}
    lines = [question("probe", **sound), question("remove", uris, **sound), question("exist", uris[:3], **sound)]
    ended = served("mooncake_store", b"".join(lines), tmp_path)
    probe, removed, there = [json.loads(line) for line in ended.stdout.splitlines()]
    assert probe["results"] == [True]
    assert removed["results"][:2] == [True, True] and ["-706" in removed["results"][2], "-1" in removed["results"][3]]
    assert there["results"] == [True, False, "Mooncake answers -1"]
    assert b"noise of a library" in ended.stderr and b"more noise" in ended.stderr
    refused = served("mooncake_store", question("probe", master_service_entry="other:1"), tmp_path)
    assert "cannot be set up: -1" in json.loads(refused.stdout)["error"]


def test_a_wheel_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mooncake", None)
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    assert "pip install mooncake-transfer-engine" in ask(MooncakeStore(), "probe")["error"]


def test_a_directory_is_served_as_a_program(tmp_path: Path) -> None:
    world = World(tmp_path)
    lines = question("probe", root_path=str(world.root)) + question("remove", ["dummy://s/i/tp0/ab-01"])
    ended = served("directory", lines)
    assert [json.loads(line)["id"] for line in ended.stdout.splitlines()] == [7, 7]
    assert world.block.exists()
