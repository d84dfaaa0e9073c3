"""The pod with the longest prefix of a prompt: the indexer within this process. See docs/indexer.md, "In a program".

    index = Indexer(memory=2 << 30)
    fed = index.feed("kv@10.0.0.7:8000@Qwen/Qwen3-32B", seq, payload)  # frames of an engine's PUB socket
    best = next(iter(index.score(tokens, "Qwen/Qwen3-32B")), None)     # pods, best first

No server, no socket, no thread of its own. Questions and events run without the GIL.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import c_uint32, c_void_p
from types import TracebackType
from typing import Any, NamedTuple

from . import _buffers, errors
from . import _indexer_library as lib

__all__ = ["Ask", "FeedResult", "Figures", "Holder", "Indexer", "PodScore", "PodState", "Scores"]

_ROW = struct.Struct(lib.ROW)
_WORDS = {4: "I", 8: "Q"}


class Ask(NamedTuple):
    """Batches that a topic's publisher is to be asked for, at its replay socket; see Indexer.replay()."""

    topic: str
    number: int
    start: int  # the first batch that is wanted; the answer goes on to the newest
    snapshot: bool  # all that the publisher has, in place of batches by number


class FeedResult(NamedTuple):
    """The fate of a batch."""

    fate: str
    """"applied"; "repeated": it was there already; "waiting": batches before it are missing; "unreadable": it made no
    sense, and its publisher's blocks went; "dropped": over 16 MiB, or without room to wait; "late": of an answer that
    is over."""
    applied: int  # batches that went into the index, those that had waited among them
    cleared: str | None  # all blocks of the publisher went: "restart", "loss" or "renewal"
    missing: range  # numbers between this batch and the one before
    ask: Ask | None  # a new question; each is given once, here or by Indexer.asks()
    state: str  # of the publisher: "connecting", "replaying", "live", "degraded", "silent"


class PodScore(NamedTuple):
    """The longest prefix that a pod's best rank has."""

    score: float  # sum of the weights of its blocks, in blocks of the model's smallest size
    blocks: int
    tokens: int
    dp_rank: int
    tiers: dict[str, int]  # blocks by their best medium: {"gpu": 12, "cpu": 4}


class Scores(dict[str, PodScore]):
    """Pods, best first, then by name."""

    blocks: int = 0
    """Whole blocks of the prompt."""
    block_tokens: int = 0
    """Tokens of the model's smallest blocks; 0: the model is unknown."""
    degraded: frozenset[str] = frozenset()
    """Pods of the model that have lost events for good, and may have more than is known."""


class Holder(NamedTuple):
    """A rank of a pod that has a block."""

    pod: str
    dp_rank: int
    medium: str


class PodState(NamedTuple):
    """A rank of a pod, and the publisher of its blocks."""

    pod: str
    dp_rank: int
    model: str
    topic: str
    state: str
    last_seq: int | None  # None: no batch was applied
    blocks: dict[str, int]  # by medium
    applied: int  # batches
    gaps: int
    replayed: int  # batches
    restarts: int
    lost_batches: int  # batches that cannot be had


class Figures(NamedTuple):
    """Sums since the index was opened, and what there is now."""

    publishers: int  # topics that are open
    memory: int  # bytes, the bound
    memory_in_use: int  # bytes
    batches: int  # that were decoded
    bad_batches: int  # that could not be
    stored: int  # blocks
    removed: int  # blocks
    clears: int  # events
    refused: int  # blocks that were passed over
    bad_events: int
    evicted: int  # blocks that made room for others
    evicted_held: int  # of these, blocks that a pod has


class _Handle:
    """A handle of the library, as an argument of its functions; freed with the last reference. A call that runs
    beside that keeps it."""

    def __init__(self, handle: c_void_p, free: str) -> None:
        self._as_parameter_ = handle
        weakref.finalize(self, getattr(lib.library, free), handle)


class _Reader(_Handle):
    """A reader, and the structs of its questions: one thread at a time."""

    def __init__(self, index: _Handle) -> None:
        handle = c_void_p()
        lib.check(lib.library.cenote_indexer_reader_open(index, handle))
        super().__init__(handle, "cenote_indexer_reader_free")
        self.question = lib.Question(struct_size=ctypes.sizeof(lib.Question))
        self.names: tuple[str, str | None, str | None] = ("", None, None)  # that the question has
        self.answer = lib.Answer(struct_size=ctypes.sizeof(lib.Answer))


class _Words:
    """Unsigned integers of one width where they lie: an array that has them so is not copied."""

    def __init__(self, things: Any, width: int, subject: str) -> None:
        if type(things) is array and things.typecode == _WORDS[width]:
            self._memory: object = memoryview(things)  # an array that is looked at does not move
            self.address, self.count = things.buffer_info()
            return
        view = _fitting_view(things, width, subject)
        if view is not None:
            self._memory = view
            self.count = view.nbytes // width
            self.address = _buffers.address_of(view) if self.count else 0
            return
        items = things.tolist() if hasattr(things, "tolist") else things
        try:
            words = array(_WORDS[width], items)
        except OverflowError:
            raise errors.InvalidArgument(f"{subject} are integers of 0 to 2^{8 * width} - 1") from None
        self._memory = words
        self.address, self.count = words.buffer_info()


def _fitting_view(things: Any, width: int, subject: str) -> memoryview | None:
    """A view of an array that can be passed as it is; None: it has to be converted."""
    if isinstance(things, (list, tuple)):
        return None
    try:
        view = memoryview(things)
    except TypeError:
        if not isinstance(things, Iterable):
            raise TypeError(f"{subject} are a sequence or an array of integers, not {type(things).__name__}") from None
        return None
    kind = view.format.lstrip("@=<")
    if view.ndim != 1 or view.itemsize == 1 or kind not in ("I", "L", "Q", "H", "i", "l", "q", "h"):
        raise errors.InvalidArgument(
            f"{subject} are an array of {view.ndim} dimensions with items of `{view.format}`; "
            f"want one dimension of integers of {8 * width} bits"
        )
    fits = view.itemsize == width and kind in ("I", "L", "Q") and view.c_contiguous
    return view if fits else None


def _in_word(number: int) -> int:
    if not 0 <= number < 1 << 32:
        raise errors.InvalidArgument(f"block_tokens is {number}; right is 0 to 65536")
    return number


def _number_of(name: str, names: Sequence[str], subject: str) -> int:
    try:
        return names.index(name)
    except ValueError:
        raise errors.InvalidArgument(f"{subject} is `{name}`; it has to be one of {', '.join(names)}") from None


class Indexer:
    """An index in memory, fed by one thread at a time and asked by any number of threads meanwhile.

    Threads: all methods may be called from any thread. Those that change the index take turns; questions wait for none,
    up to 128 of them at one time. Forks: in a child process every call raises Forked; make another one there.
    """

    def __init__(
        self,
        memory: int = 2 << 30,
        key: str = "xxh3",
        seed: str = "",
        engine: str = "auto",
        weights: Mapping[str, float] | None = None,
        replays: str = "replays",
        block_tokens: int = 0,
    ) -> None:
        """
        memory: bytes, a hard bound; 1 MiB at least.
        key, seed: how blocks are hashed, "xxh3" (without a seed a random one) or "fnv64_cbor", llm-d's.
        engine: whose events come: "auto", "vllm", "sglang" or "cenote".
        weights: the worth of a block by its medium, 0 or more; media that are not named weigh 0. None: gpu 1.0,
            cpu 0.8, disk 0.6, shared_storage 0.4, object_store 0.2.
        replays: the questions of feed() that the program answers: "replays"; "snapshots" as well; or "none": what is
            missed is lost, so a gap costs the publisher's blocks and marks it.
        block_tokens: tokens of a block of the index, 65,536 at most; engines' longer blocks are cut, shorter ones are
            joined. 0: each publisher's own.

        Raises InvalidArgument; LimitExceeded where the machine has not the memory.
        """
        options = lib.Options(struct_size=ctypes.sizeof(lib.Options), memory=memory, seed=lib.Text.from_text(seed))
        options.key = _number_of(key, lib.KEYS, "key")
        options.block_tokens = _in_word(block_tokens)
        options.engine = _number_of(engine, lib.ENGINES, "engine")
        options.replays = _number_of(replays, lib.REPLAYS, "replays")
        if weights is not None:
            table = (lib.Weight * len(weights))(
                *[lib.Weight(lib.Text.from_text(name), weight) for name, weight in weights.items()]
            )
            options.weights, options.weight_count = table, len(weights)
        handle = c_void_p()
        lib.check(lib.library.cenote_indexer_open(options, handle))
        self._index: _Handle | None = _Handle(handle, "cenote_indexer_free")
        self._process = os.getpid()
        self._turn = threading.Lock()  # of those that change the index
        self._readers: list[_Reader] = []  # that no thread uses: one is taken and given back in one step
        self._media = [""] * lib.MEDIA

    # ---- life

    def close(self) -> None:
        """Frees the index when calls under way have ended. Later calls raise Closed; a second close does nothing."""
        self._index = None
        self._readers.clear()

    def __enter__(self) -> Indexer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _opened(self) -> _Handle:
        index = self._index
        if index is None:
            raise errors.Closed("the indexer was closed")
        if os.getpid() != self._process:  # the turn may be another thread's of the parent
            raise errors.Forked("this indexer belongs to the parent process; make another one in the child")
        return index

    # ---- events

    def feed(self, topic: str | bytes, seq: int, payload: Any) -> FeedResult:
        """A batch as its publisher's socket has it: topic (`kv@POD@MODEL`), number, MessagePack (bytes, or a buffer).

        Raises InvalidArgument: the topic; LimitExceeded: there is no room for another publisher.
        """
        return self._feed("cenote_indexer_feed", topic, seq, *_bytes_of(payload))

    def replay(self, ask: Ask, batches: Iterable[tuple[int, Any]] | None, next_seq: int = lib.END) -> FeedResult:
        """The answer to a question: (number, payload) of each batch from `ask.start` to the newest, in order.

        batches: None: there is no answer. It is asked for again, and after some in vain batches are taken as they come.
        next_seq: of a snapshot, the number of the batch with which live ones go on; without it the publisher has no
            snapshots. Of other answers it does not matter.

        The result is that of the answer's end; `applied` counts all of its batches. Raises InvalidArgument: the topic
        is not open.
        """
        if batches is None:
            return self._feed("cenote_indexer_replay_failed", ask.topic, ask.number)
        applied = 0
        for seq, payload in batches:
            applied += self._feed("cenote_indexer_replay", ask.topic, ask.number, seq, *_bytes_of(payload)).applied
        end = self._feed("cenote_indexer_replay_end", ask.topic, ask.number, next_seq)
        return end._replace(applied=applied + end.applied)

    def _feed(self, function: str, topic: str | bytes, *arguments: object) -> FeedResult:
        index = self._opened()
        out = lib.Outcome(struct_size=ctypes.sizeof(lib.Outcome))
        with self._turn:
            lib.check(getattr(lib.library, function)(index, lib.Text.from_text(topic), *arguments, out))
        name = topic if isinstance(topic, str) else topic.decode()
        ask = Ask(name, out.ask, out.ask_start, bool(out.ask_snapshot)) if out.ask else None
        missing = range(out.missing_first, out.missing_first + out.missing)
        return FeedResult(
            lib.FATES[out.fate], out.applied, lib.CLEARED[out.cleared], missing, ask, lib.STATES[out.state]
        )

    def asks(self) -> list[Ask]:
        """Questions that were not given yet, of all topics: those that came late, or again. To be called a few times a
        second where questions are answered."""
        index = self._opened()
        out = lib.Ask(struct_size=ctypes.sizeof(lib.Ask))
        found: list[Ask] = []
        with self._turn:
            while True:
                lib.check(lib.library.cenote_indexer_next_ask(index, out))
                if not out.number:
                    return found
                found.append(Ask(str(out.topic), out.number, out.start, bool(out.snapshot)))

    def open_topic(
        self, topic: str | bytes, *, pod: str = "", model: str = "", node: str = "", engine: str = "auto"
    ) -> None:
        """Opens a topic with what it does not name; nothing if it is open with the same.

        pod, model: empty: as the topic has them.
        node: the machine, of which a Cenote node's blocks are this pod's, too (its topic is `kv@node:NODE@MODEL`).
        engine: "auto": the index's.

        Raises InvalidArgument, LimitExceeded; SpecMismatch: it is open with other settings.
        """
        settings = lib.Topic(struct_size=ctypes.sizeof(lib.Topic), engine=_number_of(engine, lib.ENGINES, "engine"))
        settings.pod, settings.model, settings.node = (
            lib.Text.from_text(pod),
            lib.Text.from_text(model),
            lib.Text.from_text(node),
        )
        index = self._opened()
        with self._turn:
            lib.check(lib.library.cenote_indexer_topic_open(index, lib.Text.from_text(topic), settings))

    def close_topic(self, topic: str | bytes) -> bool:
        """The topic's publisher and its blocks go. False: there was none."""
        return self._change("cenote_indexer_topic_close", topic)

    def clear(self, pod: str, medium: str | None = None) -> bool:
        """Takes all blocks from a pod, in one medium or in all. False: there is no such pod. Raises InvalidArgument: no
        pod has blocks in the medium."""
        return self._change("cenote_indexer_clear", pod, lib.Text.from_text(medium or ""))

    def _change(self, function: str, name: str | bytes, *arguments: object) -> bool:
        index = self._opened()
        done = c_uint32()
        with self._turn:
            lib.check(getattr(lib.library, function)(index, lib.Text.from_text(name), *arguments, done))
        return bool(done.value)

    def advance(self) -> None:
        """Gives memory back. feed() does it about ten times a second: worth a call where nothing is fed for long."""
        index = self._opened()
        with self._turn:
            lib.check(lib.library.cenote_indexer_advance(index))

    # ---- questions

    def score(
        self,
        tokens: Any,
        model: str,
        lora_name: str | None = None,
        cache_salt: str | None = None,
        pods: Iterable[str] | None = None,
    ) -> Scores:
        """The pods that have a prefix of the prompt, best first, then by name.

        tokens: up to 2^20 token ids of the whole prompt, shape (n,): an array of unsigned 32 bits is read where it
            lies, anything else is converted.
        model: as in topics, or the name of an adapter.
        lora_name: the adapter. cache_salt: as the request has it. pods: only these are asked for; None: all.

        An unknown model and a prompt of less than a block have no scores. Raises InvalidArgument.
        """
        words = _Words(tokens, 4, "tokens")
        return self._score(words, None, model, lora_name, cache_salt, pods)

    def score_keys(self, keys: Any, model: str, pods: Iterable[str] | None = None) -> Scores:
        """The same by the keys of the prompt's blocks, see keys(): up to 2^20 integers of 64 bits, shape (n,)."""
        words = _Words(keys, 8, "keys")
        return self._score(None, words, model, None, None, pods)

    def keys(self, tokens: Any, model: str, lora_name: str | None = None, cache_salt: str | None = None) -> array[int]:
        """Keys of the prompt's whole blocks, of the model's smallest size, as an array of unsigned 64 bits; empty where
        the model is unknown."""
        words = _Words(tokens, 4, "tokens")
        reader = self._take()
        try:
            _ask_about(reader, words, None, (model, lora_name, cache_salt), None)
            out = lib.Keys(struct_size=ctypes.sizeof(lib.Keys))
            lib.check(lib.library.cenote_indexer_keys_of(reader, reader.question, out))
            found = array("Q")
            if out.key_count:
                found.frombytes(ctypes.string_at(out.keys, 8 * out.key_count))
            return found
        finally:
            self._give_back(reader)

    def lookup(self, keys: Any) -> list[list[Holder]]:
        """The holders of each block, up to the first that nothing holds. keys: integers of 64 bits, shape (n,).

        Raises LimitExceeded: they are more than 2^18.
        """
        words = _Words(keys, 8, "keys")
        reader = self._take()
        try:
            out = lib.Holders(struct_size=ctypes.sizeof(lib.Holders))
            lib.check(lib.library.cenote_indexer_lookup(reader, words.address, words.count, out))
            found, first = [], 0
            for end in out.ends[: out.block_count]:
                rows = (out.holders[i] for i in range(first, end))
                found.append([Holder(str(row.pod), row.dp_rank, self._medium(reader, row.medium)) for row in rows])
                first = end
            return found
        finally:
            self._give_back(reader)

    def _score(
        self,
        tokens: _Words | None,
        keys: _Words | None,
        model: str,
        lora_name: str | None,
        cache_salt: str | None,
        pods: Iterable[str] | None,
    ) -> Scores:
        reader = self._take()
        try:
            names = None if pods is None else [lib.Text.from_text(pod) for pod in pods]
            if names is not None and not names:
                return Scores()
            _ask_about(reader, tokens, keys, (model, lora_name, cache_salt), names)
            lib.check(lib.library.cenote_indexer_score(reader, reader.question, reader.answer))
            return self._scores(reader)
        finally:
            self._give_back(reader)

    def _scores(self, reader: _Reader) -> Scores:
        answer = reader.answer
        made = Scores()
        made.blocks, made.block_tokens = answer.blocks, answer.block_tokens
        if answer.row_count:
            for place, size, score, blocks, tokens, rank, *media in _ROW.iter_unpack(
                ctypes.string_at(answer.rows, lib.ROW_BYTES * answer.row_count)
            ):
                tiers = {self._medium(reader, number): count for number, count in enumerate(media) if count}
                made[ctypes.string_at(place, size).decode()] = PodScore(score, blocks, tokens, rank, tiers)
        if answer.degraded_count:
            made.degraded = frozenset(str(answer.degraded[i]) for i in range(answer.degraded_count))
        return made

    def _medium(self, reader: _Reader, number: int) -> str:
        """A medium's name, which never changes."""
        name = self._media[number]
        if not name:
            out = lib.TextPlace()
            lib.check(lib.library.cenote_indexer_medium(reader, number, out))
            name = self._media[number] = str(out)
        return name

    def _take(self) -> _Reader:
        index = self._opened()
        try:
            return self._readers.pop()
        except IndexError:
            return _Reader(index)

    def _give_back(self, reader: _Reader) -> None:
        if self._index is not None:
            self._readers.append(reader)

    # ---- the state

    def pods(self) -> list[PodState]:
        """All ranks of pods, and what is known about their publishers."""
        reader = self._take()
        try:
            out = lib.Pods(struct_size=ctypes.sizeof(lib.Pods))
            with self._turn:
                lib.check(lib.library.cenote_indexer_pods_of(reader, out))
            return list(self._states(reader, out))
        finally:
            self._give_back(reader)

    def _states(self, reader: _Reader, out: lib.Pods) -> Iterator[PodState]:
        for i in range(out.pod_count):
            row = out.pods[i]
            yield PodState(
                pod=str(row.pod),
                dp_rank=row.dp_rank,
                model=str(row.model),
                topic=str(row.topic),
                state=lib.STATES[row.state],
                last_seq=row.next_seq - 1 if row.next_seq else None,
                blocks={self._medium(reader, number): count for number, count in enumerate(row.blocks) if count},
                applied=row.applied,
                gaps=row.gaps,
                replayed=row.replayed,
                restarts=row.restarts,
                lost_batches=row.lost_batches,
            )

    def figures(self) -> Figures:
        """Sums since the index was opened, and its memory in bytes."""
        index = self._opened()
        out = lib.Figures(struct_size=ctypes.sizeof(lib.Figures))
        with self._turn:
            lib.check(lib.library.cenote_indexer_figures_of(index, out))
        return Figures(out.publishers, *(getattr(out, name) for name in lib.FIGURES))


def _bytes_of(payload: Any) -> tuple[bytes, int]:
    whole = payload if isinstance(payload, bytes) else bytes(memoryview(payload))
    return whole, len(whole)


def _ask_about(
    reader: _Reader,
    tokens: _Words | None,
    keys: _Words | None,
    names: tuple[str, str | None, str | None],
    pods: list[lib.Text] | None,
) -> None:
    """Fills a reader's question, which keeps all that it points at but the words. Names: model, adapter, salt."""
    question = reader.question
    if names != reader.names:
        reader.names = ("", None, None)
        question.model, question.lora_name, question.cache_salt = (lib.Text.from_text(name or "") for name in names)
        reader.names = names
    question.tokens, question.token_count = (tokens.address, tokens.count) if tokens else (None, 0)
    question.keys, question.key_count = (keys.address, keys.count) if keys else (None, 0)
    if pods:
        question.pods, question.pod_count = (lib.Text * len(pods))(*pods), len(pods)
    elif question.pod_count:
        question.pods, question.pod_count = None, 0
