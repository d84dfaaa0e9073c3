"""Loaded tokenizers: the ones that were used last, each loaded once however many threads ask for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path

import tokenizers

from .places import CHAT_FILES, Mark, Places, mark_of
from .templates import ChatTemplate

_Key = tuple[Mark | None, ...]
MOST_BYTES = 256 << 20  # of a tokenizer.json


class BadTokenizer(Exception):
    """A file that is no tokenizer; the message may go to a client."""


class Loaded:
    """A model's tokenizer and its chat template. Any thread may use it."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        if path.stat().st_size > MOST_BYTES:
            raise BadTokenizer(f"{path.name} has more than {MOST_BYTES} bytes")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as why:  # the library has no class of its own
            raise BadTokenizer(f"{path.name} makes no sense: {why}") from why
        self._tokenizer.no_truncation()  # files may ask for both; engines do neither
        self._tokenizer.no_padding()

    @cached_property
    def template(self) -> ChatTemplate:
        """Raises BadTemplate."""
        return ChatTemplate(self._folder)

    def encode(self, text: str, *, add_special_tokens: bool) -> tokenizers.Encoding:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)


class LoadedTokenizers:
    """Tokenizers by the names of their models; `capacity` of them stay, and go least recently used first.

    A file that has changed is loaded anew. One that makes no sense fails without being read again until it changes.
    """

    def __init__(self, places: Places, capacity: int) -> None:
        self._places = places
        self._capacity = capacity
        self._lock = threading.Lock()
        self._entries: OrderedDict[_Key, Future[Loaded | str]] = OrderedDict()  # or why there is none
        self.loads = 0

    def find(self, name: str) -> Loaded:
        """Raises UnknownModel, BadTokenizer."""
        path = self._places.tokenizer_of(name)
        key = (mark_of(path), *(mark_of(path.parent / each) for each in CHAT_FILES))
        entry, is_new = self._entry(key)
        if is_new:
            self._load(key, entry, path)
        found = entry.result()
        if isinstance(found, str):
            raise BadTokenizer(found)
        return found

    def _entry(self, key: _Key) -> tuple[Future[Loaded | str], bool]:
        with self._lock:
            entry = self._entries.get(key)
            is_new = entry is None
            if entry is None:
                entry = self._entries[key] = Future()
                self.loads += 1
            self._entries.move_to_end(key)
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
        return entry, is_new

    def _load(self, key: _Key, entry: Future[Loaded | str], path: Path) -> None:
        try:
            entry.set_result(Loaded(path))
        except BadTokenizer as why:
            entry.set_result(str(why))
        except BaseException as why:  # of this moment, maybe: the next request tries again
            with self._lock:
                self._entries.pop(key, None)
            entry.set_exception(why)
