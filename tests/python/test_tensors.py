"""cenote.tensors: what tensors of any framework say of their memory."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cenote import InvalidArgument
from cenote.tensors import Place, pieces_of, place_of


class OnlyDlpack:
    """A NumPy array of which only DLPack is seen."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **more: Any) -> Any:
        return self._array.__dlpack__(**more)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_numpy_and_dlpack_say_the_same() -> None:
    array = np.arange(2 * 3 * 4, dtype=np.int16).reshape(2, 3, 4)
    for view in (array, array[:, ::2, 1:], array.transpose(2, 0, 1)):
        want = Place(view.ctypes.data, view.shape, view.strides, 2, "cpu")
        assert place_of(view) == want
        assert place_of(OnlyDlpack(view)) == want


def test_the_cuda_array_interface_is_a_place_on_a_gpu() -> None:
    interface = {"data": (4096, False), "shape": (2, 3, 5), "typestr": "<f2", "strides": None, "version": 3}
    found = place_of(SimpleNamespace(__cuda_array_interface__=interface))
    assert found == Place(4096, (2, 3, 5), (30, 10, 2), 2, "cuda")
    interface["strides"] = (60, 20, 4)
    assert place_of(SimpleNamespace(__cuda_array_interface__=interface)).strides == (60, 20, 4)


def test_a_torch_tensor_is_known_by_its_methods() -> None:
    tensor = SimpleNamespace(
        data_ptr=lambda: 64, element_size=lambda: 2, stride=lambda: (8, 1), shape=(4, 8), device="cuda:1"
    )
    assert place_of(tensor) == Place(64, (4, 8), (16, 2), 2, "cuda:1")
    tensor.device = "mps:0"
    with pytest.raises(InvalidArgument, match="on mps:0"):
        place_of(tensor)


def test_what_has_no_memory_to_show_is_refused() -> None:
    with pytest.raises(TypeError, match="a list has no data_ptr"):
        place_of([1, 2])
    with pytest.raises(InvalidArgument, match="device type 12"):
        place_of(SimpleNamespace(__dlpack__=lambda: None, __dlpack_device__=lambda: (12, 0)))
    with pytest.raises(InvalidArgument, match=r"shape \(3, 2\) does not begin with the 2 blocks"):
        pieces_of(np.zeros((3, 2), dtype=np.uint8), 2)


@pytest.mark.parametrize("axes", list(itertools.permutations(range(4))))
def test_the_pieces_of_any_strides_are_all_bytes_of_each_block_once(axes: tuple[int, ...]) -> None:
    shape = (3, 2, 4, 5)
    memory = np.arange(3 * 2 * 4 * 5, dtype=np.uint16).reshape([shape[axis] for axis in axes])
    tensor = memory.transpose(np.argsort(axes))
    base = memory.ctypes.data
    for block in range(3):
        wanted = {int(item) for item in tensor[block].flat}
        seen: list[int] = []
        for piece in pieces_of(tensor, 3):
            for run in range(piece.runs):
                start = piece.base + block * piece.block_stride + run * piece.run_stride - base
                seen += range(start, start + piece.run_bytes)
        assert sorted(seen) == sorted(2 * item + byte for item in wanted for byte in (0, 1))
