"""Keys and buffers of any kind, as the pointers that the C ABI takes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from ctypes import c_char_p, c_int, c_ssize_t, c_void_p
from types import TracebackType
from typing import Any

from . import _library as lib
from .errors import InvalidArgument

# Anything with the buffer protocol, or a torch CPU tensor. (collections.abc.Buffer needs Python 3.12.)
BufferLike = Any
KeyBatch = Sequence[bytes] | BufferLike

_SIMPLE, _WRITABLE = 0, 1


class _PyBuffer(ctypes.Structure):
    _fields_ = (
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    )


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), c_int)
_get_buffer.restype = c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = (ctypes.POINTER(_PyBuffer),)
_release_buffer.restype = None


def address_of(view: memoryview) -> int:
    """Where the bytes of a contiguous view lie, as long as the view is kept: also of one that is read-only."""
    held = _PyBuffer()
    _get_buffer(view, held, _SIMPLE)
    try:
        return held.buf or 0
    finally:
        _release_buffer(held)


def _is_tensor(thing: object) -> bool:
    return hasattr(thing, "data_ptr") and hasattr(thing, "is_contiguous")


def _tensor_place(tensor: Any, what: str) -> tuple[int, int]:
    """Address and size of a torch CPU tensor, known by its methods: torch is not imported."""
    if tensor.device.type != "cpu":
        raise InvalidArgument(f"{what} is a tensor on {tensor.device}; only CPU tensors are taken")
    if not tensor.is_contiguous():
        raise InvalidArgument(f"{what} is a tensor that is not contiguous")
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


def pack_keys(keys: Any) -> lib.Keys:
    """A list of byte strings of one width, or one (n, width) uint8 array."""
    if isinstance(keys, (bytes, bytearray, str)):
        raise TypeError("keys are a list of byte strings, or one (n, width) uint8 array; not one string")
    if _is_tensor(keys):
        address, size = _tensor_place(keys, "keys")
        if len(keys.shape) != 2 or keys.element_size() != 1:
            raise InvalidArgument(f"keys are a tensor of shape {tuple(keys.shape)}; want (n, width) of uint8")
        return lib.Keys(ctypes.string_at(address, size), keys.shape[0], keys.shape[1])
    if not isinstance(keys, (list, tuple)):
        try:
            view = memoryview(keys)
        except TypeError:
            if not isinstance(keys, Iterable):
                raise TypeError(f"keys are a list of byte strings or an array, not {type(keys).__name__}") from None
            keys = list(keys)
        else:
            return _pack_array(view)
    if not keys:
        return lib.Keys(b"", 0, 8)
    try:
        packed = b"".join(keys)
    except TypeError as why:
        raise TypeError(f"keys are byte strings: {why}") from None
    width = len(keys[0])
    if set(map(len, keys)) != {width}:
        index = next(i for i, key in enumerate(keys) if len(key) != width)
        raise InvalidArgument(
            f"key {index} has {len(keys[index])} bytes, key 0 has {width}; keys of one call have one width"
        )
    return lib.Keys(packed, len(keys), width)


def _pack_array(view: memoryview) -> lib.Keys:
    if view.ndim != 2 or view.itemsize != 1 or view.shape is None:
        raise InvalidArgument(
            f"keys are an array of shape {view.shape} with items of {view.itemsize} bytes; want (n, width) of uint8"
        )
    return lib.Keys(view.tobytes(), view.shape[0], view.shape[1])


class Pinned:
    """Buffers held by the buffer protocol while a call uses their addresses."""

    def __init__(self, things: object, keys: lib.Keys, want: int, *, writable: bool) -> None:
        self._held: list[_PyBuffer] = []
        self._writable = writable
        self._want = want
        try:
            one = self._is_one(things)
            self.raw = self._one_for_all(things, keys.count) if one else self._one_each(things, keys.count)
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> lib.Buffers:
        return self.raw

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        for held in self._held:
            _release_buffer(held)
        self._held.clear()

    @staticmethod
    def _is_one(things: object) -> bool:
        if isinstance(things, (list, tuple)):
            return False
        if isinstance(things, (bytes, bytearray, memoryview)) or _is_tensor(things):
            return True
        try:
            memoryview(things).release()  # type: ignore[arg-type]
        except (TypeError, ValueError, BufferError):
            return not isinstance(things, Iterable)
        return True

    def _one_for_all(self, thing: object, count: int) -> lib.Buffers:
        address, size = self._place(thing, "the buffer")
        if size != count * self._want:
            raise InvalidArgument(
                f"the buffer has {size} bytes; {count} keys of {self._want} bytes each want {count * self._want}"
            )
        return lib.Buffers(None, address, self._want, self._want)

    def _one_each(self, things: Any, count: int) -> lib.Buffers:
        things = things if isinstance(things, (list, tuple)) else list(things)
        if len(things) != count:
            raise InvalidArgument(f"{len(things)} buffers for {count} keys")
        self._array = (lib.Buffer * count)()
        for i, thing in enumerate(things):
            address, size = self._place(thing, f"buffer {i}")
            if size != self._want:
                raise InvalidArgument(f"buffer {i} has {size} bytes, want {self._want}")
            entry = self._array[i]
            entry.data = address
            entry.bytes = size
        return lib.Buffers(ctypes.addressof(self._array), None, 0, 0)

    def _place(self, thing: object, what: str) -> tuple[int, int]:
        """Address and size of one contiguous buffer."""
        if _is_tensor(thing):
            return _tensor_place(thing, what)
        held = _PyBuffer()
        try:
            _get_buffer(thing, held, _WRITABLE if self._writable else _SIMPLE)
        except (BufferError, ValueError, TypeError) as why:
            self._explain(thing, what, why)
        self._held.append(held)
        return held.buf or 0, held.len

    def _explain(self, thing: object, what: str, why: Exception) -> None:
        """Raises what is wrong with a buffer that could not be had."""
        try:
            view = memoryview(thing)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"{what} is a {type(thing).__name__}, which has no buffer") from None
        if self._writable and view.readonly:
            raise TypeError(f"{what} is read-only; the call writes into it") from None
        if not view.c_contiguous:
            raise InvalidArgument(f"{what} is not contiguous") from None
        raise InvalidArgument(f"{what}: {why}") from None
