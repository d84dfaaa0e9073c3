"""libcenote_indexer through ctypes: where it is, its structs, its functions. CDLL releases the GIL in every call."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path

from . import _library, errors

ABI_MAJOR = 1
ABI_MINOR = 0  # the oldest that has all we call
MEDIA = 8
END = (1 << 64) - 1

KEYS = ("xxh3", "fnv64_cbor")
ENGINES = ("auto", "vllm", "sglang", "cenote")
REPLAYS = ("replays", "none", "snapshots")
FATES = ("applied", "repeated", "waiting", "unreadable", "dropped", "late")
CLEARED = (None, "restart", "loss", "renewal")
STATES = ("connecting", "replaying", "live", "degraded", "silent")


class Text(ctypes.Structure):
    _fields_ = (("data", c_char_p), ("bytes", c_size_t))

    @classmethod
    def from_text(cls, text: str | bytes) -> Text:
        encoded = text.encode() if isinstance(text, str) else text
        return cls(encoded, len(encoded))


class TextPlace(ctypes.Structure):
    """A text of the library's, which has no zero behind it."""

    _fields_ = (("data", c_void_p), ("bytes", c_size_t))

    def __str__(self) -> str:
        return ctypes.string_at(self.data, self.bytes).decode("utf-8", "replace") if self.bytes else ""


class Weight(ctypes.Structure):
    _fields_ = (("medium", Text), ("weight", c_double))


class Options(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("key", c_uint32),
        ("engine", c_uint32),
        ("replays", c_uint32),
        ("memory", c_uint64),
        ("seed", Text),
        ("weights", POINTER(Weight)),
        ("weight_count", c_size_t),
        ("block_tokens", c_uint32),
        ("reserved", c_uint32),
    )


class Outcome(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("fate", c_uint32),
        ("cleared", c_uint32),
        ("state", c_uint32),
        ("applied", c_uint64),
        ("missing_first", c_uint64),
        ("missing", c_uint64),
        ("ask", c_uint64),
        ("ask_start", c_uint64),
        ("ask_snapshot", c_uint32),
        ("reserved", c_uint32),
    )


class Ask(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("snapshot", c_uint32),
        ("number", c_uint64),
        ("start", c_uint64),
        ("topic", TextPlace),
    )


class Topic(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("engine", c_uint32),
        ("pod", Text),
        ("model", Text),
        ("node", Text),
    )


FIGURES = (
    "memory",
    "memory_in_use",
    "batches",
    "bad_batches",
    "stored",
    "removed",
    "clears",
    "refused",
    "bad_events",
    "evicted",
    "evicted_held",
)


class Figures(ctypes.Structure):
    _fields_ = (("struct_size", c_uint32), ("publishers", c_uint32), *((name, c_uint64) for name in FIGURES))


class Question(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("model", Text),
        ("tokens", c_void_p),
        ("token_count", c_size_t),
        ("keys", c_void_p),
        ("key_count", c_size_t),
        ("lora_name", Text),
        ("cache_salt", Text),
        ("pods", POINTER(Text)),
        ("pod_count", c_size_t),
    )


ROW = "@QQdIIIxxxx8I"  # struct cenote_indexer_score_row: pod, its bytes, score, blocks, tokens, dp_rank, by_medium
ROW_BYTES = 72


class Answer(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("block_tokens", c_uint32),
        ("blocks", c_uint64),
        ("rows", c_void_p),
        ("row_count", c_size_t),
        ("degraded", POINTER(TextPlace)),
        ("degraded_count", c_size_t),
    )


class Keys(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("keys", POINTER(c_uint64)),
        ("key_count", c_size_t),
    )


class Holder(ctypes.Structure):
    _fields_ = (("pod", TextPlace), ("dp_rank", c_uint32), ("medium", c_uint32))


class Holders(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("holders", POINTER(Holder)),
        ("ends", POINTER(c_uint64)),
        ("block_count", c_size_t),
    )


class Pod(ctypes.Structure):
    _fields_ = (
        ("pod", TextPlace),
        ("model", TextPlace),
        ("topic", TextPlace),
        ("dp_rank", c_uint32),
        ("state", c_uint32),
        ("next_seq", c_uint64),
        ("blocks", c_uint64 * MEDIA),
        ("applied", c_uint64),
        ("gaps", c_uint64),
        ("replayed", c_uint64),
        ("restarts", c_uint64),
        ("lost_batches", c_uint64),
    )


class Pods(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("pods", POINTER(Pod)),
        ("pod_count", c_size_t),
    )


SIGNATURES: dict[str, tuple[object, ...]] = {
    "cenote_indexer_open": (POINTER(Options), POINTER(c_void_p)),
    "cenote_indexer_feed": (c_void_p, Text, c_uint64, c_char_p, c_size_t, POINTER(Outcome)),
    "cenote_indexer_replay": (c_void_p, Text, c_uint64, c_uint64, c_char_p, c_size_t, POINTER(Outcome)),
    "cenote_indexer_replay_end": (c_void_p, Text, c_uint64, c_uint64, POINTER(Outcome)),
    "cenote_indexer_replay_failed": (c_void_p, Text, c_uint64, POINTER(Outcome)),
    "cenote_indexer_next_ask": (c_void_p, POINTER(Ask)),
    "cenote_indexer_topic_open": (c_void_p, Text, POINTER(Topic)),
    "cenote_indexer_topic_close": (c_void_p, Text, POINTER(c_uint32)),
    "cenote_indexer_clear": (c_void_p, Text, Text, POINTER(c_uint32)),
    "cenote_indexer_advance": (c_void_p,),
    "cenote_indexer_figures_of": (c_void_p, POINTER(Figures)),
    "cenote_indexer_reader_open": (c_void_p, POINTER(c_void_p)),
    "cenote_indexer_score": (c_void_p, POINTER(Question), POINTER(Answer)),
    "cenote_indexer_keys_of": (c_void_p, POINTER(Question), POINTER(Keys)),
    "cenote_indexer_lookup": (c_void_p, c_void_p, c_size_t, POINTER(Holders)),
    "cenote_indexer_medium": (c_void_p, c_uint32, POINTER(TextPlace)),
    "cenote_indexer_pods_of": (c_void_p, POINTER(Pods)),
}

FREEING = ("cenote_indexer_free", "cenote_indexer_reader_free")


def _load() -> ctypes.CDLL:
    """Beside the package, in the checkout's build, or beside libcenote."""
    name = "libcenote_indexer.so"
    calls = _library.LibraryCalls(
        name, "CENOTE_INDEXER_LIBRARY", "cenote_indexer", (ABI_MAJOR, ABI_MINOR), SIGNATURES, FREEING
    )
    beside = Path(_library.library._name).resolve().parent
    return _library.load(calls, _library.places_by(calls.variable, [*_library.places(name), beside / name]))


library = _load()


def check(code: int) -> None:
    """Raises what a failed call of the library means."""
    if code:
        message: bytes = library.cenote_indexer_last_error()
        raise errors.from_number(code, message.decode("utf-8", "replace"))
