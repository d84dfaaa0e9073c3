"""What the Python layer checks before it asks the node: no node is needed."""

from __future__ import annotations

import array
import mmap
from types import SimpleNamespace
from typing import Any

import cenote
import pytest
from cenote import _library as lib
from cenote._buffers import Pinned, pack_keys
from cenote.blocks import Core, Held, Layout
from cenote.copying import Piece, Strides
from cenote.prefetch import raw_options

SIZE = 64


def spec(**changes: Any) -> cenote.InstanceSpec:
    return cenote.InstanceSpec(**{"id": "t", "tokens_per_block": 16, "parts": {"kv": 4096}, **changes})


def pinned(things: Any, count: int, *, writable: bool = False) -> lib.Buffers:
    with Pinned(things, lib.Keys(b"", count, 8), SIZE, writable=writable) as raw:
        return raw


# ---- keys


def test_keys_are_packed_back_to_back() -> None:
    packed = pack_keys([b"a" * 32, b"b" * 32])
    assert (packed.data, packed.count, packed.width) == (b"a" * 32 + b"b" * 32, 2, 32)


def test_keys_may_be_an_iterator_or_empty() -> None:
    assert pack_keys(bytes([i]) * 8 for i in range(1, 4)).count == 3
    assert pack_keys([]).count == 0


def test_keys_may_be_one_array() -> None:
    rows = memoryview(bytes(range(64))).cast("B", (4, 16))
    packed = pack_keys(rows)
    assert (packed.count, packed.width) == (4, 16)


def test_keys_of_mixed_width_are_refused_with_their_place() -> None:
    with pytest.raises(cenote.InvalidArgument, match="key 2 has 31 bytes, key 0 has 32") as why:
        pack_keys([b"a" * 32, b"b" * 32, b"c" * 31, b"d" * 33])
    assert why.value.code == "invalid_argument"
    assert isinstance(why.value, ValueError)


@pytest.mark.parametrize("keys", [b"a" * 32, "a" * 32, 7, ["text of 16 bytes"], [1, 2], None])
def test_keys_that_are_no_byte_strings_are_refused(keys: Any) -> None:
    with pytest.raises(TypeError):
        pack_keys(keys)


def test_an_array_of_keys_has_two_dimensions_of_bytes() -> None:
    with pytest.raises(cenote.InvalidArgument):
        pack_keys(memoryview(bytes(64)))
    with pytest.raises(cenote.InvalidArgument):
        pack_keys(memoryview(bytes(64)).cast("I", (4, 4)))


# ---- buffers


def test_a_list_has_a_buffer_for_each_key() -> None:
    assert pinned([bytes(SIZE), bytearray(SIZE), memoryview(bytes(SIZE)), mmap.mmap(-1, SIZE)], 4).list
    with pytest.raises(cenote.InvalidArgument, match="1 buffers for 2 keys"):
        pinned([bytes(SIZE)], 2)


def test_a_wrong_size_is_named_with_its_place_and_what_is_wanted() -> None:
    with pytest.raises(cenote.InvalidArgument, match="buffer 1 has 63 bytes, want 64"):
        pinned([bytes(SIZE), bytes(SIZE - 1)], 2)


def test_one_buffer_may_serve_all_keys() -> None:
    raw = pinned(bytearray(3 * SIZE), 3)
    assert (raw.list, raw.stride, raw.bytes) == (None, SIZE, SIZE)
    assert pinned(array.array("d", [0.0] * 24), 3).stride == SIZE
    with pytest.raises(cenote.InvalidArgument, match="has 100 bytes; 3 keys of 64 bytes each want 192"):
        pinned(bytearray(100), 3)


def test_a_read_only_target_is_a_type_error_that_says_so() -> None:
    with pytest.raises(TypeError, match="buffer 0 is read-only"):
        pinned([bytes(SIZE)], 1, writable=True)
    with pytest.raises(TypeError, match="the buffer is read-only"):
        pinned(bytes(SIZE), 1, writable=True)


def test_a_buffer_that_is_not_contiguous_is_refused() -> None:
    with pytest.raises(cenote.InvalidArgument, match="not contiguous"):
        pinned([memoryview(bytearray(2 * SIZE))[::2]], 1)


@pytest.mark.parametrize("thing", [None, 7, "text", object()])
def test_what_has_no_buffer_is_a_type_error(thing: Any) -> None:
    with pytest.raises(TypeError):
        pinned([thing], 1)


def test_buffers_are_let_go_after_the_call_and_after_a_failure() -> None:
    one, other = bytearray(SIZE), bytearray(SIZE - 1)
    pinned([one], 1, writable=True)
    one.append(0)  # BufferError while somebody holds it
    one.pop()
    with pytest.raises(cenote.InvalidArgument):
        pinned([one, other], 2)
    one.append(0)
    other.append(0)


class FakeTensor(SimpleNamespace):
    """What the layer knows of a torch tensor."""

    def is_contiguous(self) -> bool:
        return bool(self.contiguous)

    def data_ptr(self) -> int:
        return 4096

    def numel(self) -> int:
        return SIZE // 2

    def element_size(self) -> int:
        return 2


def test_cpu_tensors_are_taken_and_others_refused() -> None:
    cpu, gpu = SimpleNamespace(type="cpu"), SimpleNamespace(type="cuda")
    assert pinned(FakeTensor(device=cpu, contiguous=True), 1).base == 4096
    assert pinned([FakeTensor(device=cpu, contiguous=True)], 1, writable=True).list
    with pytest.raises(cenote.InvalidArgument, match="only CPU"):
        pinned([FakeTensor(device=gpu, contiguous=True)], 1)
    with pytest.raises(cenote.InvalidArgument, match="not contiguous"):
        pinned([FakeTensor(device=cpu, contiguous=False)], 1)


# ---- specs


def test_parts_alone_make_the_group_default() -> None:
    layouts = spec().layouts()
    assert list(layouts) == ["default"]
    assert layouts["default"].block_bytes == 4096


def test_parts_lie_in_declared_order() -> None:
    layouts = spec(parts=None, groups={"b": {"parts": {"z": 10, "a": 20}}, "a": {"parts": {"kv": 5}}}).layouts()
    assert [layout.number for layout in layouts.values()] == [0, 1]
    assert layouts["b"].parts == {"z": (0, 0, 10), "a": (1, 10, 20)}
    with pytest.raises(cenote.InvalidArgument, match="no part `kv`; it has: z, a"):
        layouts["b"].find("kv")


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": None},
        {"groups": {"full": {"parts": {"kv": 1}}}},
        {"parts": {"kv": 0}},
        {"parts": {"kv": -1}},
        {"parts": {"kv": (1 << 30) + 1}},
        {"parts": {"kv": 1.5}},
        {"parts": {"kv": True}},
        {"parts": {}},
        {"parts": None, "groups": {}},
        {"parts": None, "groups": {"full": {"kv": 4096}}},
        {"tokens_per_block": 0},
        {"tokens_per_block": -1},
        {"tokens_per_block": 1 << 40},
        {"id": ""},
        {"id": "a\0b"},
    ],
)
def test_a_spec_that_can_never_work_is_refused_before_a_node_is_asked(changes: dict[str, Any]) -> None:
    with pytest.raises(cenote.InvalidArgument):
        cenote.attach(spec(**changes), socket="/nonexistent/cenote.sock")


@pytest.mark.parametrize("options", [{"max_pins": 0}, {"max_pins": 1 << 21}, {"deadline": 0}, {"deadline": 1e9}])
def test_absurd_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(cenote.InvalidArgument):
        cenote.attach(spec(), socket="/nonexistent/cenote.sock", **options)


def test_without_a_node_the_message_says_how_to_start_one() -> None:
    with pytest.raises(cenote.NotRunning, match="cenote node") as why:
        cenote.attach(spec(), socket="/nonexistent/cenote.sock")
    assert (why.value.code, why.value.number) == ("not_running", 3)


# ---- errors


def test_every_code_of_the_c_abi_has_an_exception_of_that_name() -> None:
    name = lib.library.cenote_error_name
    name.restype = __import__("ctypes").c_char_p
    for number in range(1, 22):
        raised = cenote.errors.from_number(number, "why", 3)
        assert raised.number == number
        assert raised.code == name(number).decode()
        assert raised.stored == 3
    assert cenote.NoSpace("full", stored=5).stored == 5


# ---- prefetch


def test_what_a_prefetch_is_not_told_is_left_to_the_node() -> None:
    raw = raw_options(None, None, None, None, None)
    assert (raw.policy, raw.given) == (0, 0)
    raw = raw_options("timeout", 0, 0.25, None, None)
    assert (raw.policy, raw.given) == (3, lib.PREFETCH_BASE | lib.PREFETCH_PER_KI_TOKEN)
    assert (raw.base_ns, raw.per_ki_token_ns) == (0, 250_000_000)
    raw = raw_options("best_effort", None, None, 0, None)
    assert (raw.policy, raw.given, raw.prefill_tokens_per_s) == (1, lib.PREFETCH_PREFILL_RATE, 0)
    raw = raw_options(None, None, None, None, 64)
    assert (raw.policy, raw.given, raw.threshold_tokens) == (0, lib.PREFETCH_THRESHOLD, 64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("soon", None, None, None, None), "policy is 'soon'; it is one of 'best_effort'"),
        ((None, -1, None, None, None), "base is -1 s"),
        ((None, None, float("inf"), None, None), "per_ki_token is inf s"),
        ((None, None, float("nan"), None, None), "per_ki_token is nan s"),
        ((None, True, None, None, None), "base is True s"),
        ((None, None, None, -5, None), "prefill_tokens_per_s is -5"),
        ((None, None, None, None, -1), "threshold_tokens is -1"),
        ((None, None, None, None, 1 << 32), "threshold_tokens is 4294967296"),
        ((None, None, None, None, True), "threshold_tokens is True"),
    ],
)
def test_terms_that_make_no_sense_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(cenote.InvalidArgument, match=message):
        raw_options(*arguments)


# ---- the end of the interpreter


def test_objects_that_go_after_their_modules_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cenote.blocks, cenote.prefetch, cenote.session):
        for name in ("contextlib", "lib"):
            monkeypatch.setattr(module, name, None, raising=False)
    for kind in (cenote.blocks.Core, cenote.blocks.Held, cenote.prefetch.Prefetch, cenote.session.Session):
        made = kind.__new__(kind)
        made._as_parameter_ = 0  # what a Core has
        made.__del__()


# ---- blocks on a device


def on_device() -> tuple[Core, Layout]:
    whole = Layout("default", 0, {"rank0": 4096, "rank1": 8192})
    return Core(0, "sim:0"), whole.share_of(1)


def test_a_ranks_share_of_a_block_is_its_part_alone_or_the_only_one() -> None:
    _, share = on_device()
    assert (share.block_bytes, share.parts) == (8192, {"rank1": (0, 0, 8192)})
    assert Layout("one", 3, {"kv": 64}).share_of(5).parts == {"kv": (0, 0, 64)}


def test_held_blocks_on_a_device_have_addresses_but_no_views() -> None:
    core, share = on_device()
    held = Held(core, share, array.array("Q", [1 << 20, 8192, 0]), 1, None)
    with pytest.raises(cenote.InvalidArgument, match="lie on sim:0"):
        held[0].view()
    with pytest.raises(cenote.InvalidArgument, match="lie on sim:0"):
        Strides([Piece(4096, 8192, 8192)]).scatter([0], held)  # by the processor
    assert list(held.addresses("rank1")) == [1 << 20]
    held._count = 0  # nothing was pinned


def test_reserved_blocks_on_a_device_have_addresses_but_no_views() -> None:
    core, share = on_device()
    block = cenote.Block(core, share, lib.Reserved(data=1 << 20, bytes=8192, parts=1, state=lib.WRITABLE))
    with pytest.raises(cenote.InvalidArgument, match="lie on sim:0"):
        block.view()
    with pytest.raises(cenote.InvalidArgument, match="lie on sim:0"):
        Strides([Piece(4096, 8192, 8192)]).gather([0], [block])  # by the processor
    assert block.address() == 1 << 20


@pytest.mark.parametrize("part", [-1, 64, True, "1"])
def test_a_part_of_a_device_is_a_number(part: Any) -> None:
    with pytest.raises(cenote.InvalidArgument, match="part is"):
        cenote.attach(spec(), "/nonexistent/cenote.sock", device="sim:0", part=part)


def test_an_attach_to_a_device_names_what_is_wrong_before_it_asks_a_node() -> None:
    two = spec(parts={"rank0": 4096, "rank1": 4096})
    for device, part in (("gpu", 0), ("sim:0", 2), (None, 1)):
        with pytest.raises(cenote.InvalidArgument):
            cenote.attach(two, "/nonexistent/cenote.sock", device=device, part=part)
    with pytest.raises(cenote.NotRunning):
        cenote.attach(spec(), "/nonexistent/cenote.sock", device="sim:0", part=1)  # the only part is all ranks'
