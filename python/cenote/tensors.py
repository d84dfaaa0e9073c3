"""Where an engine's tensors lie, whatever framework made them: torch, `__cuda_array_interface__`, NumPy's
`__array_interface__` or DLPack. Nothing is copied, and no framework is imported."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, NamedTuple

from .copying import Piece
from .errors import InvalidArgument

# Of DLPack 1.0, dlpack.h: kDLCPU, kDLCUDA, kDLCUDAHost, kDLCUDAManaged.
_DLPACK_DEVICES = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}


class Place(NamedTuple):
    """A tensor's memory; the tensor must outlive its use.

    Attributes
    ----------
    address : int
        Of item [0, 0, …].
    shape : tuple of int
        Outermost axis first.
    strides : tuple of int
        Bytes from an item to the next along each axis.
    item_bytes : int
    device : str
        "cpu" or "cuda:<number>"; "cuda" where the tensor does not say which.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item_bytes: int
    device: str


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = (ctypes.py_object, c_char_p)
_capsule_pointer.restype = c_void_p


def place_of(tensor: Any) -> Place:
    """Where a tensor lies.

    Raises
    ------
    TypeError
        It has none of the interfaces above.
    InvalidArgument
        It lies on a device that is no GPU of NVIDIA's, or its items are no whole bytes.
    """
    if hasattr(tensor, "data_ptr") and hasattr(tensor, "element_size"):
        size = tensor.element_size()
        device = str(tensor.device)
        if device.split(":")[0] not in ("cpu", "cuda"):
            raise InvalidArgument(f"the tensor is on {device}; it must be on cpu or cuda")
        strides = tuple(stride * size for stride in tensor.stride())
        return Place(tensor.data_ptr(), tuple(tensor.shape), strides, size, device)
    for name, device in (("__cuda_array_interface__", "cuda"), ("__array_interface__", "cpu")):
        found = getattr(tensor, name, None)
        if found is not None:
            size = int(found["typestr"][2:])
            shape = tuple(found["shape"])
            return Place(found["data"][0], shape, tuple(found.get("strides") or _packed(shape, size)), size, device)
    if hasattr(tensor, "__dlpack__"):
        return _of_dlpack(tensor)
    raise TypeError(f"a {type(tensor).__name__} has no data_ptr(), no array interface and no __dlpack__()")


def _of_dlpack(tensor: Any) -> Place:
    kind, number = tensor.__dlpack_device__()
    where = _DLPACK_DEVICES.get(int(kind))
    if where is None:
        raise InvalidArgument(f"the tensor is on DLPack's device type {int(kind)}; it must be on cpu or cuda")
    # -1: whoever copies orders its work by events, no stream has to wait now.
    capsule = tensor.__dlpack__(stream=-1) if where == "cuda" else tensor.__dlpack__()
    seen = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))  # the capsule frees itself, unconsumed
    bits = seen.bits * seen.lanes
    if bits % 8:
        raise InvalidArgument(f"the tensor's items have {bits} bits, no whole bytes")
    shape = tuple(seen.shape[: seen.ndim])
    strides = (
        tuple(stride * (bits // 8) for stride in seen.strides[: seen.ndim])
        if seen.strides
        else _packed(shape, bits // 8)
    )
    device = f"cuda:{number}" if where == "cuda" else "cpu"
    return Place((seen.data or 0) + seen.byte_offset, shape, strides, bits // 8, device)


def _packed(shape: Sequence[int], item_bytes: int) -> tuple[int, ...]:
    inner = list(itertools.accumulate(reversed(shape[1:]), lambda size, count: size * count, initial=item_bytes))
    return tuple(reversed(inner)) if shape else ()


def strides_of(place: Place, blocks: int) -> tuple[int, list[tuple[int, int]]]:
    """How a tensor is made of blocks, which its first axis counts.

    Returns
    -------
    int
        Bytes from a block to the next.
    list of (int, int)
        What a block has: count and bytes apart of each dimension, outermost first in memory, down to single bytes;
        neighbours that are one in memory are merged.

    Raises
    ------
    InvalidArgument
        The first axis does not count the blocks.
    """
    shape, strides, each = place.shape, place.strides, place.item_bytes
    if not shape or shape[0] < blocks or shape[0] % blocks:
        raise InvalidArgument(f"a tensor of shape {shape} does not begin with the {blocks} blocks")
    split = shape[0] // blocks  # an engine's kernels may have smaller blocks than its cache manager
    dimensions = [(split, strides[0]), *zip(shape[1:], strides[1:], strict=True)]
    dimensions.sort(key=lambda dimension: -dimension[1])  # in memory's order: runs are as long as they can be
    merged: list[tuple[int, int]] = []
    for count, stride in [*dimensions, (each, 1)]:
        if count == 1:
            continue
        inside = merged.pop()[0] if merged and merged[-1][1] == count * stride else 1
        merged.append((inside * count, stride))
    return split * strides[0], merged


def pieces_of(tensor: Any, blocks: int) -> list[Piece]:
    """A tensor's share of a block, for cenote.copying.Strides. Errors as of place_of() and strides_of()."""
    place = place_of(tensor)
    return pieces_at(place, *strides_of(place, blocks))


def pieces_at(place: Place, between: int, dimensions: Sequence[tuple[int, int]]) -> list[Piece]:
    """pieces_of() the tensor that lies there, by what strides_of() says of it."""
    left = list(dimensions)
    run_bytes = left.pop()[0] if left and left[-1][1] == 1 else 1
    runs, run_stride = left.pop() if left else (1, 0)
    starts = itertools.product(*(range(0, count * stride, stride) for count, stride in left))
    return [Piece(place.address + sum(start), between, run_bytes, runs, run_stride) for start in starts]
