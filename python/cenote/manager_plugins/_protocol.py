"""The lines between a manager and a plug-in."""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

Outcome = bool | str  # True: done, or there; a text: why it failed


@dataclass(frozen=True)
class Storage:
    """A storage as it was added to the manager."""

    name: str
    type: str  # the name of the plug-in
    spec: dict[str, Any]

    @staticmethod
    def parse(value: dict[str, Any]) -> Storage:
        return Storage(str(value["global_unique_name"]), str(value["type"]), dict(value.get("storage_spec") or {}))


@dataclass(frozen=True)
class Room:
    """The bytes of a storage. Below a twentieth free, the manager gives out no new addresses."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Address:
    """The parts of SCHEME://STORAGE/INSTANCE/SPEC/KEY-EXTENT?size=BYTES, percent signs as they stand there."""

    instance: str
    spec: str
    block: str  # KEY-EXTENT

    @staticmethod
    def parse(uri: str) -> Address:
        """Errors: ValueError for anything else, and for names that would lead elsewhere as parts of a path."""
        _, mark, rest = uri.partition("://")
        names = rest.partition("?")[0].split("/")[1:]
        if not mark or len(names) != 3 or any(name in ("", ".", "..") or "\0" in name for name in names):
            raise ValueError(f"no address of a block: {uri!r}")
        return Address(*names)

    @property
    def path(self) -> str:
        return f"{self.instance}/{self.spec}/{self.block}"


class Plugin(ABC):
    """The calls of a plug-in. An exception of any of them is answered as the failure of the whole call."""

    @abstractmethod
    def probe(self, storage: Storage) -> Room | None:
        """Tries whether the storage works. None: it works, and has room."""

    @abstractmethod
    def remove(self, storage: Storage, uris: Sequence[str]) -> list[Outcome]:
        """Deletes. What is not there counts as deleted: a deletion may come twice."""

    @abstractmethod
    def exist(self, storage: Storage, uris: Sequence[str]) -> list[Outcome]:
        """Whether each is there."""


def _results(plugin: Plugin, question: dict[str, Any]) -> list[Any]:
    storage = Storage.parse(question["storage"])
    uris = [str(uri) for uri in question.get("uris", [])]
    if question["op"] == "probe":
        room = plugin.probe(storage)
        return [True if room is None else {"free_bytes": room.free_bytes, "total_bytes": room.total_bytes}]
    if question["op"] == "remove":
        return list(plugin.remove(storage, uris))
    if question["op"] == "exist":
        return list(plugin.exist(storage, uris))
    raise ValueError(f"no such op: {question['op']!r}")


def answer(plugin: Plugin, line: bytes) -> bytes:
    """The line that answers a question."""
    question = json.loads(line)
    try:
        content: dict[str, Any] = {"results": _results(plugin, question)}
    except Exception as why:  # whatever a library throws
        content = {"error": f"{type(why).__name__}: {why}"}
    return json.dumps({"id": question["id"], **content}).encode() + b"\n"


def serve_lines(plugin: Plugin, questions: BinaryIO, write: Callable[[bytes], object]) -> None:
    """Answers until there are no more questions."""
    for line in iter(questions.readline, b""):
        write(answer(plugin, line))


def serve(plugin: Plugin) -> int:
    """Answers on stdin and stdout until the manager closes them; the exit status."""
    with os.fdopen(os.dup(1), "wb", buffering=0) as answers:
        os.dup2(2, 1)  # stdout is for answers alone
        try:
            serve_lines(plugin, sys.stdin.buffer, answers.write)
        except (BrokenPipeError, KeyboardInterrupt):
            return 1
    return 0
