"""Sessions whose blocks a device reads and writes, on a real node; the device is the simulated one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blocks
import cenote
import numpy as np
import pytest
from cenote.copying import Piece, Strides
from cenote.tensors import pieces_of
from conftest import StartNode
from node import BINARY, FULL, HERE, ROOT, Node, until

Attach = Callable[..., Any]
LATE_WRITER = BINARY.parent / "tests" / "bin" / "liblate_writer.so"
FAKE_NVML = BINARY.parent / "tests" / "bin" / "fake_nvml"
LAYERS, PAGES, ROW = 6, 64, 2048  # a tensor a layer, of (page, keys and values, row)
BLOCK = LAYERS * 2 * ROW
PATIENCE = 20.0


def tensors(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, (PAGES, 2, ROW), dtype=np.uint8) for _ in range(LAYERS)]


def strides_of(layers: list[Any]) -> Strides:
    pieces: list[Piece] = []
    for each in layers:
        pieces += pieces_of(each, PAGES)
    return Strides(pieces, [len(pieces) // LAYERS] * LAYERS)


@pytest.mark.sanitizer
def test_layers_are_saved_and_loaded_in_streams_while_others_are_not_there_yet(node: Node, attach: Attach) -> None:
    source, target = tensors(1), tensors(2)
    device = cenote.Device("sim:0")
    session = attach(node, "i", block=BLOCK)
    session.use_device(device)
    keys = blocks.keys_of("a", 0, 8)
    places = [30, 2, 17, 0, 8, 63, 1, 5]
    saving, loading = device.stream(), device.stream()
    slots = session.reserve(keys)
    for layer in range(LAYERS):
        strides_of(source).gather(places, slots, stream=saving, layer=layer)
    session.commit_after(slots, saving)
    assert session.flush() == 8
    before = [each.copy() for each in target]
    held = session.acquire(keys)
    events = []
    for layer in range(LAYERS):
        strides_of(target).scatter(places, held, stream=loading, layer=layer)
        events.append(loading.record())
    held.release_after(loading)
    assert len(held) == 0
    for layer, event in enumerate(events):
        event.wait(PATIENCE)
        assert event.is_done
        expected = before[layer]
        expected[places] = source[layer][places]
        assert np.array_equal(target[layer], expected)
    until("the pins have ended", lambda: session.stats()["pins_in_use"] == 0)
    until("its memory is registered", lambda: session.stats()["slabs_registered"] >= 1)
    assert session.stats()["slabs_refused"] == 0
    idle = attach(node, "i", block=BLOCK)
    idle.use_device(device)
    until("so is all memory of a session without a call", lambda: idle.stats()["slabs_registered"] >= 1)
    stats = idle.stats()
    assert stats["slabs_registered"] == stats["slabs_mapped"]
    assert stats["bytes_registered"] >= 8 * BLOCK
    assert stats["registration_ns"] > 0


def test_streams_wait_for_one_another_and_wrong_uses_are_named(node: Node, attach: Attach) -> None:
    device, other = cenote.Device("sim:0"), cenote.Device("sim:1")
    first, second = device.stream(), device.stream()
    second.wait(first.record())
    second.record().wait(PATIENCE)
    assert device.wrap(first.native).native == first.native
    with pytest.raises(cenote.InvalidArgument, match="no stream of this simulated device"):
        other.wrap(first.native)
    with pytest.raises(cenote.InvalidArgument, match="of another device"):
        other.stream().wait(first.record())
    with pytest.raises(cenote.InvalidArgument, match="'gpu' is no device; cuda:GPU-UUID"):
        cenote.Device("gpu")
    session = attach(node, "i", block=BLOCK)
    keys = blocks.keys_of("a", 0, 2)
    slots = session.reserve(keys)
    with pytest.raises(cenote.InvalidArgument, match="say use_device first"):
        session.commit_after(slots, first)
    session.use_device(device)
    session.use_device(device)
    with pytest.raises(cenote.InvalidArgument, match="uses another device already"):
        session.use_device(other)
    with pytest.raises(cenote.InvalidArgument, match="layer 6 of 6"):
        strides_of(tensors(1)).gather([0, 1], slots, stream=first, layer=LAYERS)
    session.abandon(slots)
    session.put(keys, blocks.contents_of(keys, BLOCK))
    held = session.acquire(keys)
    view = held[0].view()
    seen = np.frombuffer(view, np.uint8)
    with pytest.raises(BufferError):
        held.release_after(first)
    del seen
    held.release()


def test_a_forked_child_is_told_to_open_its_own_device(node: Node, attach: Attach) -> None:
    device = cenote.Device("sim:0")
    stream = device.stream()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            stream.record()
        except cenote.CenoteError as why:
            os.write(writer, str(why).encode())
        del stream, device  # nothing of the parent's is ended
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert "open again in the child" in pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    stream.record().wait(PATIENCE)


class LateWriter:
    """What an engine's device still does after the engine was killed: a process that shares its memory."""

    def __init__(
        self,
        node: Node,
        folder: Path,
        count: int,
        size: int,
        *,
        uses_device: bool,
        before_death: Callable[[int], None] = lambda process: None,
    ) -> None:
        """Kills an engine that was about to write into `count` blocks of `size` bytes; `before_death` gets its pid."""
        self._told = folder / "told"
        os.mkfifo(self._told)
        what = [LATE_WRITER, self._told, str(count), str(size), str(int(uses_device))]
        engine = subprocess.Popen(
            [sys.executable, HERE / "clients" / "gpu_engine.py", *what],
            env={**os.environ, "CENOTE_SOCKET": str(node.socket), "PYTHONPATH": f"{HERE}:{ROOT / 'python'}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert engine.stdout is not None
        self._process = int(engine.stdout.readline())
        assert self._process > 0
        before_death(engine.pid)
        engine.kill()
        engine.wait()
        engine.stdout.close()

    def write(self) -> None:
        """Returns when it has written."""
        self._told.write_bytes(b"x")
        until("the late writer has ended", lambda: state_of(self._process) == "Z")

    def __enter__(self) -> LateWriter:
        return self

    def __exit__(self, *why: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)


def state_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def wrong_blocks(session: Any, keys: list[bytes], size: int) -> int:
    targets = [np.empty(size, np.uint8) for _ in keys]
    found = session.get_into(keys, targets)
    return sum(not np.array_equal(targets[i], blocks.content_of(keys[i], size)) for i in range(found))


def test_what_a_dead_engines_device_may_still_write_is_not_reused_before_its_time(
    start_node: StartNode, attach: Attach, tmp_path: Path
) -> None:
    size, count = 128 << 10, 32
    node = start_node("gpu.quarantine=1h", capacity="16MiB")
    with LateWriter(node, tmp_path, count, size, uses_device=True) as writer:
        until("its blocks are set aside", lambda: node.blocks()["quarantined"] == count)
        session = attach(node, "i", block=size)
        keys = blocks.keys_of("other", 0, 200)
        for first in range(0, len(keys), 8):  # all memory that there is, several times over
            session.put(keys[first : first + 8], blocks.contents_of(keys[first : first + 8], size))
        assert node.blocks()["quarantined"] == count
        writer.write()
        resident = [key for key in keys if session.exists([key])[0]]
        assert len(resident) > 8
        assert sum(wrong_blocks(session, [key], size) for key in resident) == 0
        assert node.blocks()["quarantined"] == count


def test_what_a_dead_engine_had_pinned_is_free_at_once_though_its_device_goes_on(
    start_node: StartNode, attach: Attach
) -> None:
    size, count = 128 << 10, 16
    node = start_node("gpu.quarantine=1h", capacity="8MiB")
    script = (
        "import signal, blocks, cenote; from conftest import make_spec;"
        f"session = cenote.attach(make_spec('i', {size})); session.use_device(cenote.Device('sim:0'));"
        f"keys = blocks.keys_of('pinned', 0, {count}); session.put(keys, blocks.contents_of(keys, {size}));"
        "held = session.acquire(keys); print(len(held), flush=True); signal.pause()"
    )
    environment = {**os.environ, "CENOTE_SOCKET": str(node.socket), "PYTHONPATH": f"{HERE}:{ROOT / 'python'}"}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None and int(engine.stdout.readline()) == count
        engine.kill()
    until("it is set aside", lambda: node.logged("session set aside: a device may still write for it"))
    session = attach(node, "i", block=size)
    keys = blocks.keys_of("other", 0, 200)
    for first in range(0, len(keys), 8):
        session.put(keys[first : first + 8], blocks.contents_of(keys[first : first + 8], size))
    assert not any(session.exists(blocks.keys_of("pinned", 0, count)))


def test_a_late_write_is_seen_where_nobody_said_that_a_device_writes(
    start_node: StartNode, attach: Attach, tmp_path: Path
) -> None:
    """That the test before can fail."""
    size, count = 128 << 10, 32
    node = start_node(capacity="16MiB")
    with LateWriter(node, tmp_path, count, size, uses_device=False) as writer:
        until("its session has ended", lambda: not node.status()["sessions"])
        session = attach(node, "i", block=size)
        keys = blocks.keys_of("other", 0, 200)
        for first in range(0, len(keys), 8):
            session.put(keys[first : first + 8], blocks.contents_of(keys[first : first + 8], size))
        writer.write()
        assert sum(wrong_blocks(session, [key], size) for key in keys) > 0


def test_a_new_worker_waits_as_well_for_the_device_of_an_engine_that_died_meanwhile(
    start_node: StartNode, attach: Attach, tmp_path: Path
) -> None:
    size, count = 128 << 10, 16
    node = start_node("gpu.quarantine=1h", capacity="8MiB")
    with LateWriter(node, tmp_path, count, size, uses_device=True) as writer:
        until("its blocks are set aside", lambda: node.blocks()["quarantined"] == count)
        node.restart_worker()
        assert node.blocks()["quarantined"] == count
        session = attach(node, "i", block=size)
        keys = blocks.keys_of("other", 0, 100)
        for first in range(0, len(keys), 8):
            session.put(keys[first : first + 8], blocks.contents_of(keys[first : first + 8], size))
        writer.write()
        assert sum(wrong_blocks(session, [key], size) for key in keys) == 0


def test_what_was_set_aside_is_free_when_its_time_is_over(start_node: StartNode, tmp_path: Path) -> None:
    node = start_node("gpu.quarantine=1s")
    with LateWriter(node, tmp_path, 4, 4096, uses_device=True):
        until("its session has ended", lambda: not node.status()["sessions"])
        assert node.blocks()["quarantined"] == 0
        assert node.logged("session set aside: a device may still write for it")


class Gpus:
    """The list of processes that a node's driver has."""

    def __init__(self, folder: Path) -> None:
        self._list = folder / "processes of gpus"
        self.set("")
        self.environment = {"LD_LIBRARY_PATH": str(FAKE_NVML), "FAKE_NVML": str(self._list)}

    def set(self, process: int | str) -> None:
        new = self._list.with_suffix(".new")
        new.write_text(f"1 {process}\n")
        new.rename(self._list)


def test_what_was_set_aside_stays_until_the_driver_does_not_list_its_process_any_more(
    start_node: StartNode, tmp_path: Path
) -> None:
    gpus = Gpus(tmp_path)
    node = start_node("gpu.quarantine=1s", environment=gpus.environment)
    with LateWriter(node, tmp_path, 4, 4096, uses_device=True, before_death=gpus.set):
        until(
            "the driver was asked",
            lambda: bool(node.logged("a session stays set aside: the driver still lists its process")),
        )
        assert node.blocks()["quarantined"] == 4
        gpus.set("")
        until("its session has ended", lambda: not node.status()["sessions"])
        assert node.blocks()["quarantined"] == 0
        assert not node.logged("what a device may still write is used again")


def test_a_process_that_the_driver_lists_for_ever_is_waited_for_ten_times_as_long(
    start_node: StartNode, tmp_path: Path
) -> None:
    gpus = Gpus(tmp_path)
    node = start_node("gpu.quarantine=1s", environment=gpus.environment)
    with LateWriter(node, tmp_path, 4, 4096, uses_device=True, before_death=gpus.set):
        until("its session has ended", lambda: not node.status()["sessions"])
        assert node.blocks()["quarantined"] == 0
        assert len(node.logged("what a device may still write is used again")) == 1


def test_of_a_session_that_ended_only_the_time_counts_while_its_process_lives(
    start_node: StartNode, attach: Attach, tmp_path: Path
) -> None:
    """The driver lists it for other reasons."""
    gpus = Gpus(tmp_path)
    gpus.set(os.getpid())
    node = start_node("gpu.quarantine=1s", environment=gpus.environment)
    session = attach(node, "i", block=BLOCK)
    session.use_device(cenote.Device("sim:0"))
    slots = session.reserve(blocks.keys_of("a", 0, 8))
    session.close()
    assert len(slots) == 8
    until("its session has ended", lambda: not node.status()["sessions"])
    assert node.logged("session set aside: a device may still write for it")
    assert not node.logged("the driver still lists its process")


def test_engines_that_are_killed_while_their_device_works_leave_right_bytes_and_nothing_else(
    start_node: StartNode, attach: Attach
) -> None:
    size, count, rounds = 64 << 10, 24, 60 if FULL else 8
    node = start_node("gpu.quarantine=1s", capacity="8MiB")
    session = attach(node, "i", block=size)
    keys = blocks.keys_of("loop", 0, 64 + count)
    for seed in range(rounds):
        engine = subprocess.Popen(
            [sys.executable, HERE / "clients" / "device_loop.py", str(seed), str(count), str(size)],
            env={**os.environ, "CENOTE_SOCKET": str(node.socket), "PYTHONPATH": f"{HERE}:{ROOT / 'python'}"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert engine.stdout is not None
        for _ in range(1 + 3 * seed % 11):
            assert engine.stdout.readline()
        engine.kill()
        engine.wait()
        engine.stdout.close()
        assert sum(wrong_blocks(session, [key], size) for key in keys) == 0
    until("all of them have ended", lambda: len(node.status()["sessions"]) == 1)
    found = node.blocks()
    assert (found["quarantined"], found["pending"], found["zombie"]) == (0, 0, 0)
    assert (
        session.put(blocks.keys_of("whole", 0, 100), blocks.contents_of(blocks.keys_of("whole", 0, 100), size)) == 100
    )


def test_a_worker_that_comes_later_knows_what_was_set_aside_though_its_process_lives(
    start_node: StartNode, attach: Attach
) -> None:
    node = start_node("gpu.quarantine=1h", "debug.enabled=true", 'debug.kill_at=["session.set_aside"]')
    session = attach(node, "i", block=BLOCK)
    session.use_device(cenote.Device("sim:0"))
    slots = session.reserve(blocks.keys_of("a", 0, 8))
    node.announced_deaths += 1
    session.close()  # nobody said that the device has ended what it might do with these; a worker dies of hearing it
    assert len(slots) == 8
    until("the next one knows", lambda: node.epoch > 1 and node.blocks()["quarantined"] == 8)
    node.restart_worker()
    until("and the one after it", lambda: node.blocks()["quarantined"] == 8)
    assert len(node.logged("session set aside: a device may still write for it")) >= 2


def test_a_session_that_ends_in_order_leaves_nothing_set_aside(node: Node, attach: Attach) -> None:
    device = cenote.Device("sim:0")
    session = attach(node, "i", block=BLOCK)
    session.use_device(device)
    keys = blocks.keys_of("a", 0, 8)
    stream = device.stream()
    slots = session.reserve(keys)
    source = tensors(1)
    strides_of(source).gather(list(range(8)), slots, stream=stream)
    session.commit_after(slots, stream)
    session.close()
    until("it has ended", lambda: not node.status()["sessions"])
    assert node.blocks()["quarantined"] == 0
    assert node.blocks()["present"] == 8
