"""Attaching, and what a session can do."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from array import array
from collections.abc import Mapping, Sequence
from ctypes import byref, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p, sizeof
from types import TracebackType
from typing import Literal, NamedTuple, TypedDict, TypeVar, cast, overload

from . import _library as lib
from ._buffers import BufferLike, KeyBatch, Pinned, pack_keys
from .blocks import Block, BlockState, Core, Held, Layout
from .device import Device, Stream
from .errors import Closed, InvalidArgument
from .groups import Group, join
from .prefetch import Follow, Policy, Prefetch, as_traceparent, raw_options

Groups = Mapping[str, Mapping[str, Mapping[str, int]]]
Slot = Block | BlockState

_MAX_BLOCK_BYTES = 1 << 30
_MAX_TOKENS = 1 << 20  # of a block
_MAX_PINS = 1 << 20
_MAX_PARTS = 64
_LONGEST_LOCATE = 3600.0  # seconds


class Unconfirmed(NamedTuple):
    """Removals that other nodes or Redis servers have not confirmed.

    Attributes
    ----------
    removals : int
        Removals and clears of the instance, whichever session asked for them.
    nodes : int
        Nodes and servers that have not confirmed one of them.
    """

    removals: int
    nodes: int


class Match(NamedTuple):
    """What a lookup found.

    Attributes
    ----------
    resident : int
        Blocks of the prefix in DRAM; of a window, one past its last block.
    reachable : int
        At least `resident`: counts lower local tiers too. A hint, which may be wrong either way.
    """

    resident: int
    reachable: int


class Stats(TypedDict):
    """Counters of one client since its attach. Sizes are bytes."""

    session: int  # number, as in `cenote status`
    keys_looked_up: int
    keys_found: int
    blocks_pinned: int
    blocks_copied_out: int
    bytes_copied_out: int
    blocks_stored: int
    bytes_copied_in: int
    pins_in_use: int
    pin_slots: int
    reservations: int
    slabs_mapped: int
    touches_dropped: int
    reattaches: int  # times a new worker was met
    slabs_registered: int  # with the session's device, whole
    slabs_refused: int  # by it: copies of their blocks go through a stage
    waiting_for_device: int  # calls of Held.release_after() and commit_after()
    bytes_registered: int  # with the device so far, also those that were given back since
    registration_ns: int  # in the device's calls for them, and for those that it refused


@dataclasses.dataclass(frozen=True)
class InstanceSpec:
    """The agreement under which blocks are cached. Two instances never share a block.

    Parameters
    ----------
    id : str
        Name of the instance. Whoever attaches with the same id must say the same of everything below.
    model, dtype, layout, hash_scheme : str
        What makes bytes interchangeable, in the words of the engine; the node only compares them.
    tokens_per_block : int
        1 to 1,048,576.
    groups : mapping of str to {"parts": mapping of str to int}
        Kinds of state: name -> parts of a block, each with its size in bytes (1 to 2**30). Parts lie in a block in
        declared order.
    fingerprint : str, optional
        Of the weights.
    instance_group : str, optional
        Who pays, see `groups.<name>` of the node; without it the group is called like the instance.
    parts : mapping of str to int, optional
        In place of `groups`: the parts of one group, "default".
    """

    id: str
    model: str = ""
    dtype: str = ""
    layout: str = ""
    tokens_per_block: int = 0
    groups: Groups | None = None
    hash_scheme: str = ""
    fingerprint: str | None = None
    instance_group: str | None = None
    parts: Mapping[str, int] | None = None

    def layouts(self) -> dict[str, Layout]:
        """The groups in declared order, checked."""
        if (self.groups is None) == (self.parts is None):
            raise InvalidArgument("a spec has either groups or parts")
        groups = self.groups if self.groups is not None else {"default": {"parts": self.parts or {}}}
        found: dict[str, Layout] = {}
        for number, (name, group) in enumerate(groups.items()):
            if not isinstance(group, Mapping) or set(group) != {"parts"}:
                raise InvalidArgument(f'group `{name}` is {group!r}; want {{"parts": {{"name": bytes}}}}')
            for part, size in group["parts"].items():
                if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= _MAX_BLOCK_BYTES:
                    raise InvalidArgument(f"group `{name}`, part `{part}`: {size!r} bytes; a part has 1 byte to 1 GiB")
            found[name] = Layout(name, number, dict(group["parts"]))
        return found


def _name_of(request: bytes | str) -> bytes:
    return request.encode() if isinstance(request, str) else bytes(request)


_Number = TypeVar("_Number", int, float)


def _not_negative(value: _Number, what: str) -> _Number:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidArgument(f"{what} is {value!r}; it must be 0 or more")
    return value


def _text(value: str | None, what: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{what} is a {type(value).__name__}, not a str")
    raw = value.encode()
    if b"\0" in raw:
        raise InvalidArgument(f"{what} holds a zero byte")
    return raw


def _raw_spec(spec: InstanceSpec, layouts: Mapping[str, Layout]) -> lib.Spec:
    groups = (lib.Group * len(layouts))()
    for group, layout in zip(groups, layouts.values(), strict=True):
        parts = (lib.Part * len(layout.parts))()
        for part, (name, place) in zip(parts, layout.parts.items(), strict=True):
            part.name = _text(name, "a part's name")
            part.bytes = place[2]
        group.name = _text(layout.name, "a group's name")
        group.parts = parts
        group.part_count = len(parts)
    tokens = spec.tokens_per_block
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 0 < tokens <= _MAX_TOKENS:
        raise InvalidArgument(f"tokens_per_block is {tokens!r}; it must be 1 to {_MAX_TOKENS}")
    return lib.Spec(
        struct_size=ctypes.sizeof(lib.Spec),
        tokens_per_block=tokens,
        id=_text(spec.id, "id"),
        model=_text(spec.model, "model"),
        dtype=_text(spec.dtype, "dtype"),
        layout=_text(spec.layout, "layout"),
        hash_scheme=_text(spec.hash_scheme, "hash_scheme"),
        fingerprint=_text(spec.fingerprint, "fingerprint"),
        instance_group=_text(spec.instance_group, "instance_group"),
        groups=groups,
        group_count=len(groups),
    )


def attach(
    spec: InstanceSpec,
    socket: str | os.PathLike[str] | None = None,
    token: str | None = None,
    max_pins: int = 8192,
    *,
    deadline: float = 5.0,
    client_name: str | None = None,
    device: str | None = None,
    part: int = 0,
) -> Session:
    """Attaches to the node of this machine.

    Parameters
    ----------
    spec : InstanceSpec
    socket : path, optional
        The node's socket; None: $CENOTE_SOCKET, else the runtime directory's.
    token : str, optional
        What `groups.<name>.token` of the node asks for.
    max_pins : int
        Blocks that may be pinned at one time, 1 to 1,048,576.
    deadline : float
        Seconds, more than 0 and at most 86,400: of every call that needs the node.
    client_name : str, optional
        Shown in `cenote status`; None: the process's name.
    device : str, optional
        The device that the blocks lie on, one of the node's `gpu.devices`: "cuda:GPU-<uuid>", "GPU-<uuid>" or
        "sim:<number>". None: they are host memory. The spec is that of the whole instance all the same. Such blocks are
        read and written by streams of `Session.device` alone; `get` and `put` copy.
    part : int
        With a device: the rank whose part of each block lies there, counted from 0. A group with one part has it for
        all ranks.

    Returns
    -------
    Session

    Raises
    ------
    NotRunning
        No node answers at the socket.
    SpecMismatch
        The instance exists with another spec; the message names the field.
    PermissionDenied, LimitExceeded
        This user may not attach, or has too many sessions.
    Unsupported
        The node keeps no blocks on that device, or this process cannot open it.
    """
    layouts = spec.layouts()
    raw = _raw_spec(spec, layouts)
    if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part < _MAX_PARTS:
        raise InvalidArgument(f"part is {part!r}; it must be 0 to {_MAX_PARTS - 1}")
    if isinstance(max_pins, bool) or not isinstance(max_pins, int) or not 0 < max_pins <= _MAX_PINS:
        raise InvalidArgument(f"max_pins is {max_pins!r}; it must be 1 to {_MAX_PINS}")
    if not 0 < deadline <= 86400:
        raise InvalidArgument(f"deadline is {deadline!r} s; it must be more than 0 and at most 86400")
    options = lib.Options(
        struct_size=ctypes.sizeof(lib.Options),
        max_pins=max_pins,
        deadline_ns=max(1, int(deadline * 1e9)),
        socket=None if socket is None else os.fsencode(socket),
        token=_text(token, "token"),
        client_name=_text(client_name, "client_name"),
        device=_text(device or None, "device"),
        part=part,
    )
    handle = c_void_p()
    lib.check(lib.library.cenote_attach(byref(raw), byref(options), byref(handle)))
    if device:
        layouts = {name: layout.share_of(part) for name, layout in layouts.items()}
    return Session(spec, layouts, Core(handle.value or 0, device or None))


class Session:
    """One attachment. Threads may share it. Every call takes `group=`; it may be left out when there is one group."""

    def __init__(self, spec: InstanceSpec, layouts: dict[str, Layout], core: Core) -> None:
        self.spec = spec
        self._layouts = layouts
        self._open: Core | None = core
        self._device: Device | None = None

    # ---- reading

    @overload
    def match(
        self,
        keys: KeyBatch,
        kind: Literal["prefix", "window"] = "prefix",
        window: int | None = None,
        *,
        group: str | None = None,
    ) -> Match: ...
    @overload
    def match(
        self, keys: KeyBatch, kind: Literal["each"], window: int | None = None, *, group: str | None = None
    ) -> list[bool]: ...
    def match(
        self, keys: KeyBatch, kind: str = "prefix", window: int | None = None, *, group: str | None = None
    ) -> Match | list[bool]:
        """Looks up which blocks are in DRAM. No system call, and nothing is pinned by it.

        Parameters
        ----------
        keys : sequence of n byte strings, or uint8 array of shape (n, width)
            Of one width, 8 to 64 bytes.
        kind : {"prefix", "window", "each"}
            "prefix": how many of the first blocks are there. "window": one past the last block of the last run of
            `window` present blocks, 0 without one. "each": whether it is there, for each key.
        window : int, optional
            Blocks, at least 1.
        group : str, optional
            May be left out where the instance has one group.

        Returns
        -------
        Match, or for "each" a list of n bool
        """
        if kind == "each":
            return self.exists(keys, group=group)
        raw = lib.Match()
        if kind == "prefix":
            code = lib.library.cenote_match_prefix(self._core, pack_keys(keys), self._group(group).number, byref(raw))
        elif kind == "window":
            if isinstance(window, bool) or not isinstance(window, int) or window < 1:
                raise InvalidArgument(f"window is {window!r}; a window has at least 1 block")
            number = self._group(group).number
            code = lib.library.cenote_match_window(self._core, pack_keys(keys), number, window, byref(raw))
        else:
            raise InvalidArgument(f'kind is {kind!r}; it is "prefix", "window" or "each"')
        lib.check(code)
        return Match(raw.resident, raw.reachable)

    @property
    def asks_tiers(self) -> bool:
        """Whether a tier says what it holds only when it is asked: `match` knows nothing of it, and `locate` asks."""
        asks = c_uint32()
        lib.check(lib.library.cenote_asks_tiers(self._core, byref(asks)))
        return asks.value == 1

    def locate(self, keys: KeyBatch, group: str | None = None, timeout: float = 0.05) -> Match:
        """As `match`, with those tiers asked that do not say what they hold unless they are: Redis, for instance.

        Nothing is loaded; a prefetch asks by itself. Thread-safe, and the GIL is free meanwhile.

        Parameters
        ----------
        keys : sequence of n byte strings, or uint8 array of shape (n, width)
        group : str, optional
            May be left out where the instance has one group.
        timeout : float
            Seconds to wait for the node and those tiers. What is not known by then does not count, and is no error.

        Returns
        -------
        Match
            Without such a tier the same as that of `match`.
        """
        if not 0 <= timeout <= _LONGEST_LOCATE:
            raise InvalidArgument(f"timeout is {timeout!r} s; it must be 0 to {_LONGEST_LOCATE:g}")
        raw = lib.Match()
        number = self._group(group).number
        lib.check(lib.library.cenote_locate(self._core, pack_keys(keys), number, int(timeout * 1e9), byref(raw)))
        return Match(raw.resident, raw.reachable)

    def exists(self, keys: KeyBatch, *, group: str | None = None) -> list[bool]:
        """For each of n keys, whether its block is complete in DRAM: a list of n bool."""
        packed = pack_keys(keys)
        present = (c_uint8 * packed.count)()
        lib.check(lib.library.cenote_exists(self._core, packed, self._group(group).number, present))
        return [flag == 1 for flag in bytes(present)]

    def acquire(self, keys: KeyBatch, *, group: str | None = None) -> Held:
        """Pins the resident prefix of the keys, to be read in place; use it in a `with`.

        Parameters
        ----------
        keys : sequence of n byte strings, or uint8 array of shape (n, width)
        group : str, optional

        Returns
        -------
        Held
            At most n blocks: those before the first that is missing.

        Raises
        ------
        PinLimit
            The prefix is longer than the session's free pins; nothing is held then.
        """
        core = self._core
        core.sweep()
        layout = self._group(group)
        packed = pack_keys(keys)
        raw = array("Q", bytes(8 * lib.HELD_WORDS * packed.count))
        count = c_size_t()
        address = raw.buffer_info()[0] or None
        lib.check(lib.library.cenote_acquire(core, packed, layout.number, address, byref(count)))
        return Held(core, layout, raw, count.value, self)

    def prefetch(
        self,
        keys: KeyBatch,
        policy: Policy | None = None,
        *,
        base: float | None = None,
        per_ki_token: float | None = None,
        prefill_tokens_per_s: float | None = None,
        threshold_tokens: int | None = None,
        group: str | None = None,
        traceparent: str | None = None,
    ) -> Prefetch:
        """Asks the node to bring the chain up from its lower tiers, in order. Returns at once.

        Parameters
        ----------
        keys : sequence of n byte strings, or uint8 array of shape (n, width)
            The chain from its first block on.
        policy : {"best_effort", "wait_complete", "timeout"}, optional
            "best_effort" ends at Prefetch.stop(), "wait_complete" when all is there, "timeout" after `base` and
            `per_ki_token`. This and what follows: None is as the node's configuration says.
        base : float, optional
            Seconds.
        per_ki_token : float, optional
            Seconds for each 1,024 tokens that are not in DRAM.
        prefill_tokens_per_s : float, optional
            How fast the engine computes, in tokens per second: what recomputing would bring sooner is not loaded. 0: no
            comparison.
        threshold_tokens : int, optional
            Fewer tokens than these in lower tiers are not brought up.
        group : str, optional
        traceparent : str, optional
            The request's W3C trace context. Where it is sampled and the node has a collector (`trace.otlp`), the
            prefetch becomes a span of that trace. What is no trace context is ignored.

        Returns
        -------
        Prefetch

        Raises
        ------
        LimitExceeded
            From Prefetch.wait: the session has 256 prefetches that are not over.
        """
        core = self._core
        chain = [bytes(key) for key in keys]  # the caller may reuse an array of keys
        options = raw_options(policy, base, per_ki_token, prefill_tokens_per_s, threshold_tokens, traceparent)
        ticket = c_void_p()
        number = self._group(group).number
        start = lib.library.cenote_prefetch_start_with
        lib.check(start(core, pack_keys(chain), number, byref(options), byref(ticket)))
        return Prefetch(
            core,
            ticket,
            lambda _: self.match(chain, group=group).resident,
            lambda _: self.acquire(chain, group=group),
        )

    @property
    def wants_spans(self) -> bool:
        """Whether the node hands spans of sampled requests to a collector (`trace.otlp`)."""
        wants = c_uint32()
        lib.check(lib.library.cenote_wants_spans(self._core, byref(wants)))
        return wants.value == 1

    def trace_load(self, traceparent: str, begin: int, end: int, blocks: int, loaded: int, size: int) -> None:
        """Makes a span of a load into the engine, where its request is sampled and the node has a collector.

        Never waits: a span that the node does not take in time is dropped and counted there. Thread-safe.

        Parameters
        ----------
        traceparent : str
            The request's W3C trace context. What is none is ignored.
        begin, end : int
            Nanoseconds since 1970, as time.time_ns() has them.
        blocks, loaded : int
            How many were to be loaded, and how many were.
        size : int
            Bytes that were loaded.

        Raises
        ------
        InvalidArgument
            The load ends before it begins, or a number is negative.
        """
        for number in (begin, end, blocks, loaded, size):
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 63:
                raise InvalidArgument(f"{number!r} is no time, number of blocks or size")
        span = lib.LoadSpan(sizeof(lib.LoadSpan), 0, as_traceparent(traceparent), begin, end, blocks, loaded, size)
        lib.check(lib.library.cenote_trace_load(self._core, byref(span)))

    def join_group(self, name: str, rank: int, size: int, timeout: float = 0.5, *, wait: float | None = None) -> Group:
        """Joins a group of ranks, in which all use the same length for the same question. Waits for all ranks.

        Parameters
        ----------
        name : str
            1 to 64 bytes. Ranks of one name belong together: those of this node, and of its cluster's nodes. Nothing
            to do with a group of blocks.
        rank, size : int
            Which one this is, from 0, and how many there are, 1 to 256.
        timeout : float
            Seconds that a question may take, 0.001 to 3,600; all ranks say the same.
        wait : float, optional
            Seconds to wait for the other ranks; None: the session's deadline.

        Returns
        -------
        Group

        Raises
        ------
        DeadlineExceeded
            Some rank did not come; the message names it.
        SpecMismatch
            Ranks differ in size, or in what makes their lengths comparable: model, dtype, layout, tokens_per_block,
            hash_scheme, fingerprint.
        InvalidArgument
            Another session is this rank.
        LimitExceeded
            The session or the node is in too many groups.
        Unsupported
            The node knows no groups.
        """
        return join(self._core, name, rank, size, timeout, wait)

    def publish(
        self,
        request: bytes | str,
        keys: KeyBatch = (),
        *,
        first: int | None = None,
        end: bool = False,
        group: str | None = None,
    ) -> int:
        """Says which blocks belong to a request, in their order: who follows it gets them. Thread-safe.

        The blocks may be stored before or after. The node forgets a request 60 s after its last change, with clear(),
        and with its worker: then publish it from its first key on. With this session it ends behind its blocks that
        are whole.

        Parameters
        ----------
        request : bytes or str
            The request's name, 1 to 64 bytes. It belongs to this instance and group.
        keys : sequence of n byte strings, or uint8 array of shape (n, width)
        first : int, optional
            Place of keys[0] in the request; what was published there before must be the same. None: behind all that
            was published.
        end : bool
            No key follows these.
        group : str, optional

        Returns
        -------
        int
            Keys of the request now.

        Raises
        ------
        InvalidArgument
            These are not its next keys, or it has ended.
        LimitExceeded
            Too many requests or keys are published.
        """
        name = _name_of(request)
        known = c_uint64()
        place = lib.APPEND if first is None else _not_negative(first, "first")
        number = self._group(group).number
        call = lib.library.cenote_publish
        core = self._core  # kept: another thread may close the session meanwhile
        lib.check(call(core, name, len(name), pack_keys(keys), number, place, int(end), byref(known)))
        return known.value

    def follow(
        self, request: bytes | str, node: str = "", *, deadline: float = 10.0, group: str | None = None
    ) -> Follow:
        """Brings a request's blocks here as they are stored at another node. Returns at once.

        Parameters
        ----------
        request : bytes or str
            As it is, or will be, published.
        node : str
            The `cluster.name` of the node where it is; empty: this one.
        deadline : float
            Seconds, a minute at most: what has not come by then does not come.
        group : str, optional

        Returns
        -------
        Follow
            Done when the request has ended and all of it came, when a block cannot be had, or at the deadline.

        Raises
        ------
        Unsupported
            From Follow.wait: this node is in no cluster, or has no `peers` among its `remote.backends`.
        """
        core = self._core
        name = _name_of(request)
        ticket = c_void_p()
        number = self._group(group).number
        patience = int(min(_not_negative(deadline, "deadline"), _LONGEST_LOCATE) * 1e9)
        start = lib.library.cenote_follow
        lib.check(start(core, name, len(name), node.encode(), number, patience, byref(ticket)))
        return Follow(core, ticket, lambda keys: self.acquire(keys, group=group))

    def get_into(
        self,
        keys: KeyBatch,
        buffers: Sequence[BufferLike] | BufferLike,
        part: str | None = None,
        *,
        group: str | None = None,
    ) -> int:
        """Copies the resident prefix of the keys.

        Parameters
        ----------
        keys : sequence of n byte strings, or uint8 array of shape (n, width)
        buffers : sequence of n writable buffers, or one buffer for all
            Each is contiguous and has exactly the bytes of the part, or of the whole block; one for all has n times as
            many, for example as an array of shape (n, bytes). NumPy arrays, torch CPU tensors, bytearrays, memoryviews.
        part : str, optional
            None: the whole block, parts in declared order.
        group : str, optional

        Returns
        -------
        int
            Blocks that were copied; the buffers behind them are as they were.

        Raises
        ------
        TypeError
            A buffer is read-only.
        InvalidArgument
            A buffer has another size; the message says which one and what is right.
        """
        layout = self._group(group)
        packed = pack_keys(keys)
        number, size = self._part(layout, part)
        copied = c_size_t()
        with Pinned(buffers, packed, size, writable=True) as raw:
            code = lib.library.cenote_get_into(self._core, packed, layout.number, number, raw, byref(copied))
            lib.check(code)
        return copied.value

    # ---- writing

    def put(
        self,
        keys: KeyBatch,
        buffers: Sequence[BufferLike] | BufferLike,
        part: str | None = None,
        *,
        group: str | None = None,
    ) -> int:
        """Stores blocks that are not there yet; they are visible to every session when it returns.

        Parameters
        ----------
        keys : sequence of n byte strings, or uint8 array of shape (n, width)
        buffers : sequence of n buffers, or one buffer for all
            As in get_into(); they are only read.
        part : str, optional
            Stores this part of each block that no other writer has: a block is visible when all its parts are stored.
            None: the whole block.
        group : str, optional

        Returns
        -------
        int
            Blocks (or parts) that are new.

        Raises
        ------
        NoSpace
            Nothing can be evicted. Exactly the first `NoSpace.stored` keys are stored.
        """
        return self._put(lib.library.cenote_put, keys, buffers, part, group)

    def put_async(
        self,
        keys: KeyBatch,
        buffers: Sequence[BufferLike] | BufferLike,
        part: str | None = None,
        *,
        group: str | None = None,
    ) -> int:
        """put() without waiting for the node; flush() says how it went. The buffers may be reused at once.

        Returns
        -------
        int
            Blocks that were handed in.
        """
        return self._put(lib.library.cenote_put_async, keys, buffers, part, group)

    def _put(
        self,
        function: ctypes._NamedFuncPointer,
        keys: KeyBatch,
        buffers: Sequence[BufferLike] | BufferLike,
        part: str | None,
        group: str | None,
    ) -> int:
        layout = self._group(group)
        packed = pack_keys(keys)
        number, size = self._part(layout, part)
        stored = c_uint64()
        with Pinned(buffers, packed, size, writable=False) as raw:
            code = function(self._core, packed, layout.number, number, raw, byref(stored))
            lib.check(code, stored.value)
        return stored.value

    def flush(self) -> int:
        """Waits for every put_async(), and raises the first failure among them.

        Returns
        -------
        int
            Blocks that are new since the last flush.
        """
        stored = c_uint64()
        lib.check(lib.library.cenote_flush(self._core, byref(stored)))
        return stored.value

    def reserve(self, keys: KeyBatch, part: str | None = None, *, group: str | None = None) -> list[Slot]:
        """Binds blank blocks to keys, to be filled in place. All or nothing.

        Parameters
        ----------
        keys : sequence of n byte strings, or uint8 array of shape (n, width)
        part : str, optional
            The one part that the caller writes; None: all of them.
        group : str, optional

        Returns
        -------
        list of n Block or BlockState
            A Block to fill and commit; PRESENT: complete already; PENDING: another writer has it.

        Raises
        ------
        NoSpace
            Nothing can be evicted, or the session has its share of reserved blocks.
        """
        core = self._core
        layout = self._group(group)
        packed = pack_keys(keys)
        number, _ = self._part(layout, part)
        raw = (lib.Reserved * packed.count)()
        lib.check(lib.library.cenote_reserve(core, packed, layout.number, number, raw))
        return [Block(core, layout, each) if each.state == lib.WRITABLE else BlockState(each.state) for each in raw]

    def commit(self, slots: Sequence[Slot]) -> int:
        """Says that reserved blocks are filled; PRESENT and PENDING are skipped.

        Returns
        -------
        int
            Blocks that became visible by it.

        Raises
        ------
        Revoked, NotReserved
            The first refusal; the other blocks took effect.
        """
        raw = self._raw_blocks(slots)
        completed = c_uint64()
        lib.check(lib.library.cenote_commit(self._core, raw, len(raw), byref(completed)))
        return completed.value

    @property
    def device(self) -> Device | None:
        """The device that this session's blocks lie on, whose streams may work on them; None: they are host memory, and
        use_device() is wanted first."""
        core = self._core
        if self._device is None and core.device is not None:
            self._device = Device._of_session(core.device, core)
        return self._device

    def use_device(self, device: Device) -> None:
        """Must be called before `device` works on this session's blocks: all memory of the instance, also what is added
        later, is mapped and registered with it in the background, and the node sets aside what this process was writing
        when it is killed. One device a session."""
        lib.check(lib.library.cenote_use_device(self._core, device._raw))

    def commit_after(self, slots: Sequence[Slot], stream: Stream) -> None:
        """Commits when all that the stream was given before has ended; returns at once. flush() waits for it and raises
        the first failure. If the device fails, the blocks are never shown."""
        raw = self._raw_blocks(slots)
        lib.check(lib.library.cenote_commit_after(self._core, raw, len(raw), stream._raw))

    def abandon(self, slots: Sequence[Slot]) -> None:
        """Gives reserved blocks back without committing them."""
        raw = self._raw_blocks(slots)
        lib.check(lib.library.cenote_abandon(self._core, raw, len(raw)))

    def _raw_blocks(self, slots: Sequence[Slot]) -> ctypes.Array[lib.Reserved]:
        blocks = []
        for slot in slots:
            if isinstance(slot, Block):
                blocks.append(slot)
            elif not isinstance(slot, BlockState):
                raise TypeError(f"slots are what reserve() returned, not {type(slot).__name__}")
        for block in blocks:
            block.end_views()
        return (lib.Reserved * len(blocks))(*(block._raw for block in blocks))

    # ---- staying, forgetting, counters, the end

    def keep(self, keys: KeyBatch, *, group: str | None = None) -> int:
        """Lets blocks that are present stay in DRAM until they are removed or let_go(): for a prompt that every request
        begins with.

        Returns
        -------
        int
            Blocks that stay now.

        Raises
        ------
        LimitExceeded
            The instance group's quota of kept blocks is used up; the first ones stay.
        """
        return self._keep(keys, group, True)

    def let_go(self, keys: KeyBatch, *, group: str | None = None) -> int:
        """The end of keep(): these blocks may be evicted again."""
        return self._keep(keys, group, False)

    def _keep(self, keys: KeyBatch, group: str | None, kept: bool) -> int:
        changed = c_uint64()
        number = self._group(group).number
        lib.check(lib.library.cenote_keep(self._core, pack_keys(keys), number, int(kept), byref(changed)))
        return changed.value

    def remove(self, keys: KeyBatch, *, group: str | None = None) -> int:
        """Forgets keys, in all tiers. When it returns, nothing brings them back here.

        Nodes that share a Redis server and are no peers keep what they have in tiers of their own; clear() reaches
        them.

        Returns
        -------
        int
            Blocks that were there.

        Raises
        ------
        RemovalPending
            They are not served any more, but a tier below DRAM could not write that down.
        """
        removed = c_uint64()
        code = lib.library.cenote_remove(self._core, pack_keys(keys), self._group(group).number, byref(removed))
        lib.check(code)
        return removed.value

    def clear(self) -> None:
        """Forgets this instance in all tiers; done when it returns, else `RemovalPending` is raised."""
        lib.check(lib.library.cenote_clear(self._core))

    def unconfirmed(self) -> Unconfirmed:
        """Removals and clears of this instance that other nodes or Redis servers have not confirmed yet.

        Both are 0 when each removal that raised `RemovalPending` for the sake of nodes or servers is done.
        """
        removals, nodes = ctypes.c_uint64(), ctypes.c_uint64()
        lib.check(lib.library.cenote_unconfirmed(self._core, byref(removals), byref(nodes)))
        return Unconfirmed(removals.value, nodes.value)

    def barrier(self) -> None:
        """Returns when everything that this session handed in before is done."""
        lib.check(lib.library.cenote_barrier(self._core))

    def stats(self) -> Stats:
        """Counters of this client since the attach."""
        raw = lib.Stats(struct_size=ctypes.sizeof(lib.Stats))
        lib.check(lib.library.cenote_stats_of(self._core, byref(raw)))
        return cast(Stats, {name: int(getattr(raw, name)) for name in lib.STATS_FIELDS})

    def close(self) -> None:
        """Ends the pins, waits for put_async, tells the node. Closing twice is allowed."""
        core = self._open
        if core is None:
            return
        self._open = None
        core.lingering.clear()
        lib.check(lib.library.cenote_close(core))

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # also when the interpreter is ending: then no module's name can be used here
            return

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- names to numbers

    @property
    def _core(self) -> Core:
        if self._open is None:
            raise Closed("the session is closed")
        return self._open

    def _group(self, name: str | None) -> Layout:
        if name is None:
            if len(self._layouts) == 1:
                return next(iter(self._layouts.values()))
            raise InvalidArgument(f"this instance has several groups; say which: {', '.join(self._layouts)}")
        try:
            return self._layouts[name]
        except KeyError:
            raise InvalidArgument(f"there is no group `{name}`; there is: {', '.join(self._layouts)}") from None

    @staticmethod
    def _part(layout: Layout, part: str | None) -> tuple[int, int]:
        """Number and bytes of what a buffer holds."""
        if part is None:
            return lib.WHOLE_BLOCK, layout.block_bytes
        number, _, size = layout.find(part)
        return number, size
