"""Where the files of a model's tokenizer are: a given map, folders of models, and the hub if that is allowed."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger("cenote.tokenizer")

TOKENIZER = "tokenizer.json"
# Besides it: what a chat template needs. Any of them may be away.
CHAT_FILES = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json")
LONGEST_NAME = 256
_HUB_PAUSE = 60.0  # seconds for which the hub is not asked again for a model that it did not give
_MOST_MISSES = 1024

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class UnknownModel(Exception):
    """No tokenizer for this name; the message may go to a client."""


class Mark(NamedTuple):
    """Of a file: it changes when the file is replaced."""

    path: str
    inode: int
    size: int
    modified_ns: int


def mark_of(path: Path) -> Mark | None:
    """None: there is no such file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return Mark(str(path), status.st_ino, status.st_size, status.st_mtime_ns)


def is_plain(name: str) -> bool:
    """Whether a model's name stays a path below the folder to which it is added: `org/model`, `model`."""
    return len(name) <= LONGEST_NAME and all(_PART.fullmatch(part) for part in name.split("/"))


class Places:
    """Finds tokenizers by the names of their models. Any thread may ask.

    Parameters
    ----------
    models : mapping of str to Path
        Names and where they are: a folder, or a `tokenizer.json`. They count before all else, and may be any text.
    directories : sequence of Path
        Folders with `models--org--model/snapshots/REVISION/` as the hub's cache has them, or with `org/model/`.
    hub : bool
        Whether models that are nowhere may be downloaded.
    """

    def __init__(self, models: Mapping[str, Path], directories: Sequence[Path], hub: bool) -> None:
        self._models = dict(models)
        self._directories = list(directories)
        self._hub = hub
        self._misses: dict[str, float] = {}  # models that the hub did not give, and when to ask again
        if hub:
            self._directories.append(hub_cache())

    def tokenizer_of(self, name: str) -> Path:
        """The model's `tokenizer.json`. Raises UnknownModel."""
        given = self._models.get(name)
        if given is not None:
            path = given / TOKENIZER if given.is_dir() else given
            if not path.is_file():
                _log.warning("the tokenizer of %r is not at %s", name, path)
                raise UnknownModel(f"the tokenizer of model `{name}` is not where the map of models has it")
            return path
        if not is_plain(name):
            raise UnknownModel(f"`{name[:LONGEST_NAME]}` is no name of a model; right would be `org/model`")
        for directory in self._directories:
            if found := _in_directory(directory, name):
                return found
        if self._hub:
            return self._download(name)
        raise UnknownModel(
            f"there is no tokenizer for model `{name}`: it is not in the map of {len(self._models)} models, nor in "
            f"the {len(self._directories)} folders, and the hub is not allowed"
        )

    def _download(self, name: str) -> Path:
        if self._misses.get(name, 0.0) > time.monotonic():
            raise UnknownModel(f"the hub has not given the tokenizer of model `{name}`")
        try:
            return _download(name)
        except Exception as why:  # of any kind: network, rights, a name that is not there
            _log.warning("the hub does not give the tokenizer of %r: %s", name, why)
            if len(self._misses) >= _MOST_MISSES:
                self._misses.clear()
            self._misses[name] = time.monotonic() + _HUB_PAUSE
            raise UnknownModel(f"the hub does not give the tokenizer of model `{name}`") from why


def _in_directory(directory: Path, name: str) -> Path | None:
    cached = directory / ("models--" + name.replace("/", "--"))
    for folder in (*_snapshots(cached), directory / name):
        path = folder / TOKENIZER
        if path.is_file():
            return path
    return None


def _snapshots(cached: Path) -> list[Path]:
    """Snapshots of the hub's layout: the one that `refs/main` names, then the newest first."""
    folder = cached / "snapshots"
    try:
        found = sorted((each for each in folder.iterdir() if each.is_dir()), key=_age)
    except OSError:
        return []
    try:
        main = (cached / "refs" / "main").read_text()[:256].strip()
    except (OSError, UnicodeDecodeError):
        return found
    return [folder / main, *found] if _REVISION.fullmatch(main) else found


def _age(path: Path) -> int:
    mark = mark_of(path)
    return -mark.modified_ns if mark else 0


def hub_cache() -> Path:
    """Where huggingface_hub keeps what it downloads."""
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
    )
    return Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))


def _download(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    for each in CHAT_FILES:
        try:
            hf_hub_download(name, each, cache_dir=hub_cache())
        except EntryNotFoundError:
            continue
    return Path(hf_hub_download(name, TOKENIZER, cache_dir=hub_cache()))
