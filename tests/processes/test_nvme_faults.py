"""Disks that are slow, full, read-only or broken: the node says so, goes on, and never serves a wrong byte."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import blocks
import cenote
import pytest
from conftest import StartNode, make_spec
from node import BINARY, HERE, LIMIT, KiB, MiB, Node, preloading, run_cenote, until
from test_nvme import brought_up, filled, nvme, serving, settled

Attach = Callable[..., Any]
BLOCK = 256 * KiB
PATIENT = ("prefetch.threshold_tokens=0", "prefetch.policy=wait_complete")  # all that is asked for comes up
SHIM = BINARY.parent / "tests" / "bin" / "libfaulty_disk.so"


class Faults:
    """The orders that tests/support/faulty_disk.cpp obeys; a path is named by the end of its directory's name."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._orders: dict[str, str] = {}
        self.end()

    def give(self, path: str, orders: str) -> None:
        self._orders[path] = orders
        self._write()

    def end(self) -> None:
        self._orders = {}
        self._write()

    def _write(self) -> None:
        new = self.file.with_suffix(".new")
        new.write_text("".join(f"/{path}/data {orders}\n" for path, orders in self._orders.items()))
        new.replace(self.file)  # nobody reads half of it


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[Faults]:
    if not SHIM.exists():
        pytest.skip(f"{SHIM} was not built")
    made = Faults(tmp_path / "faults")
    yield made
    made.end()


@pytest.fixture
def start(start_node: StartNode, tmp_path: Path, faults: Faults) -> Callable[..., Node]:
    """A node of 32 MiB of DRAM over 256 MiB of disk in the directories `names`; its transfers obey `faults`."""

    def start(*sets: str, names: tuple[str, ...] = ("store",), **more: Any) -> Node:
        paths = ",".join(str(tmp_path / name) for name in names)
        environment = preloading(SHIM) | {"CENOTE_TEST_FAULTS": str(faults.file)}
        defaults = [f"nvme.paths=[{paths}]", "nvme.capacity=256MiB", "nvme.engine=threads"]
        node = start_node(*defaults, *PATIENT, *sets, capacity="32MiB", environment=environment, **more)
        assert str(SHIM) in Path(f"/proc/{node.worker_pid}/maps").read_text(), "the worker runs without the shim"
        serving(node)
        return node

    return start


def path_of(node: Node, name: str = "store") -> dict[str, Any]:
    return dict(next(each for each in nvme(node)["paths"] if each["directory"].endswith(f"/{name}")))


def counters(node: Node) -> dict[str, int]:
    return dict(nvme(node)["counters"])


def only_below(session: Any, node: Node, label: str = "a", count: int = 100) -> list[bytes]:
    """Blocks that are on disk, and none of them in DRAM."""
    keys = filled(session, label, count, BLOCK, pace=node)
    filled(session, f"after {label}", 140, BLOCK, pace=node)
    assert session.match(keys).reachable == count
    assert not any(session.exists(keys))
    return keys


def hits(session: Any, keys: list[bytes]) -> None:
    """Each of the keys is in DRAM, and right."""
    for key in keys:
        with session.acquire([key]) as held:
            assert len(held) == 1
            assert blocks.is_content_of(key, held[0].view(), BLOCK)


def dram_works(session: Any, label: str, count: int = 200) -> None:
    """Puts of more than DRAM holds, each of them read back."""
    for key in blocks.keys_of(label, 0, count):
        session.put([key], [blocks.content_of(key, BLOCK)])
        hits(session, [key])


# ---- slow


def test_a_disk_that_does_not_answer_holds_up_neither_puts_nor_hits(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start("nvme.write_window=2MiB", "nvme.queue_depth=4", "nvme.write_ahead=0.1")
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=40)
    hot = blocks.keys_of("after a", 130, 10)
    faults.give("store", "hold")
    before = nvme(node)
    hits(session, hot)
    dropped = node.counter("demotions_dropped")
    for turn in range(10):
        filled(session, f"b{turn}", 40)
        hits(session, blocks.keys_of(f"b{turn}", 0, 40))
    during = nvme(node)
    for what in ("written", "read"):  # 410 hits, while not a single transfer ended
        assert during["counters"][what] == before["counters"][what]
    assert 0 < during["bytes_in_flight"] <= 2 * MiB
    assert node.counter("demotions_dropped") > dropped, "what does not fit into the window is dropped, and counted"
    latest = blocks.keys_of("b9", 0, 4)
    ticket = session.prefetch([*latest, *keys])
    assert ticket.wait(0.05) == 4, "the part that is here"
    assert not ticket.done
    faults.give("store", "delay_ms=100")
    until("what was asked for comes", lambda: counters(node)["read"] > before["counters"]["read"])
    ticket.release()
    until("the requests end", lambda: nvme(node)["bytes_in_flight"] == 0)
    filled(session, "last", 200)
    session.prefetch(keys)
    assert node.stop() == 0, "an end waits for the requests that the disk has, not for all"


def test_new_clients_are_refused_while_a_node_writes_down_what_dram_alone_has(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start("node.flush_timeout=10m")
    keys = filled(attach(node, "i", block=BLOCK), "a", 40)
    faults.give("store", "hold")
    node.send_signal(signal.SIGTERM)

    def is_refused() -> bool:
        try:
            cenote.attach(make_spec("new"), socket=str(node.socket)).close()
        except cenote.CenoteError as why:
            assert why.code == "not_running", why
            return True
        return False

    until("a new client is refused", is_refused)
    assert node.running
    faults.end()
    assert node.wait() == 0
    node.start()
    assert attach(node, "i", block=BLOCK).match(keys).reachable == 40


# ---- errors


def test_a_path_that_gives_errors_is_left_out_and_taken_back(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start(names=("one", "two"))
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node)
    faults.give("one", f"read={errno.EIO} write={errno.EIO}")
    found = brought_up(session, keys)
    until("the path is retired", lambda: path_of(node, "one")["state"] == "retired")
    assert 0 < found < 100
    assert path_of(node, "two")["state"] == "serving"
    assert path_of(node, "one")["last_error"] == os.strerror(errno.EIO)
    assert counters(node)["io_errors"] >= 4
    said = node.logged("out of service")
    assert [each["level"] for each in said] == ["warn"], said
    assert said[0]["path"].endswith("/one")
    # A probe reads, too: the path stays out while the disk gives errors, and the other one goes on.
    other = filled(session, "b", 200, BLOCK, pace=node)
    assert brought_up(session, other) == 200
    assert path_of(node, "one")["state"] == "retired"
    faults.end()
    until("the path is taken back", lambda: path_of(node, "one")["state"] == "serving")
    assert len(node.logged("in service again")) == 1
    filled(session, "c", 140, BLOCK, pace=node)
    again = brought_up(session, keys)
    assert again > found, "what the path holds is served again"
    assert again >= 100 - counters(node)["io_errors"], "only what was asked for in vain is gone"
    assert counters(node)["checksum_errors"] == 0


def test_a_full_file_system_makes_the_path_smaller(start: Callable[..., Node], attach: Attach, faults: Faults) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=40)
    before = path_of(node)
    faults.give("store", f"write={errno.ENOSPC}")
    dram_works(session, "b")
    settled(node)
    full = path_of(node)
    lost = before["capacity"] - full["capacity"]
    assert lost == full["bad_bytes"] > 0
    assert full["last_error"] == os.strerror(errno.ENOSPC)
    assert lost // BLOCK <= full["errors"] <= counters(node)["dropped"]
    assert full["state"] == "serving"
    assert brought_up(session, keys) == 40, "what was written before is read"
    settled(node)
    faults.end()
    until("the path has its size again", lambda: path_of(node)["bad_bytes"] == 0)
    written = counters(node)["written"]
    only_below(session, node, "c")
    assert counters(node)["written"] >= written + 100
    assert path_of(node)["used"] <= path_of(node)["capacity"]


# ---- read-only


def test_a_disk_that_became_read_only_still_serves_what_it_holds(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    print("variant: the shim answers writes with EROFS")
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node)
    faults.give("store", f"write={errno.EROFS}")
    dropped = counters(node)["dropped"]
    dram_works(session, "b")
    settled(node)
    assert counters(node)["dropped"] > dropped
    assert counters(node)["io_errors"] >= 4
    assert path_of(node)["last_error"] == os.strerror(errno.EROFS)
    assert path_of(node)["state"] == "serving", "it reads: nothing else is asked of it"
    assert brought_up(session, keys) == 100
    settled(node)
    faults.end()
    written = counters(node)["written"]
    only_below(session, node, "c")
    assert counters(node)["written"] >= written + 100
    assert counters(node)["checksum_errors"] == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """An image with ext4 on it that turns read-only at its first error; skips where none can be mounted."""
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists() or shutil.which("mkfs.ext4") is None:
        pytest.skip("variant: none, a mount needs root, loop devices and mkfs.ext4")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(160 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, stdin=subprocess.DEVNULL)
    (tmp_path / "mounted").mkdir()
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-o", "loop", str(image), str(tmp_path / "mounted")],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        pytest.skip(f"variant: none, mount says {tried.stderr.strip()}")
    return image


def test_a_file_system_that_turns_read_only_does_no_harm(
    start_node: StartNode, attach: Attach, tmp_path: Path, small_disk: Path
) -> None:
    place = tmp_path / "mounted"
    mounting = 'mount -o loop,errors=remount-ro "$0" "$1" && shift && exec "$@"'  # unmounted with its last process
    node = start_node(
        f"nvme.paths=[{place}/store]",
        "nvme.capacity=96MiB",
        prefix=("unshare", "-m", "sh", "-c", mounting, str(small_disk), str(place)),
        capacity="32MiB",
    )
    serving(node)
    node.allowed_errors = ["metadata not written"]
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=60)
    loop = subprocess.run(["losetup", "-nO", "NAME", "-j", str(small_disk)], capture_output=True, text=True, check=True)
    trigger = Path("/sys/fs/ext4") / Path(loop.stdout.strip()).name / "trigger_fs_error"
    if not trigger.exists():
        pytest.skip(f"variant: none, there is no {trigger}")
    trigger.write_text("a test wants it read-only")
    print("variant: ext4 on a loop device met an error and turned read-only")
    dropped = counters(node)["dropped"]
    dram_works(session, "b")
    settled(node)
    assert counters(node)["dropped"] > dropped
    assert path_of(node)["last_error"] == os.strerror(errno.EROFS)
    assert path_of(node)["state"] == "serving"
    assert brought_up(session, keys) == 60
    assert counters(node)["checksum_errors"] == 0


# ---- full from the start


def test_a_node_starts_on_a_full_disk_and_serves_what_it_holds(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start()
    node.allowed_errors = UNSAVED
    keys = only_below(attach(node, "i", block=BLOCK), node)
    faults.give("store", FULL_DISK)
    restarted(node)
    assert len(node.logged("the disk is full")) == 1
    session = attach(node, "i", block=BLOCK)
    assert brought_up(session, keys) == 100
    session.remove(keys[:50])  # holds all the same
    assert path_of(node)["pending_removals"] > 0
    faults.end()
    until("the metadata is written again", lambda: path_of(node)["pending_removals"] == 0)
    fresh = only_below(session, node, "b")
    restarted(node)
    session = attach(node, "i", block=BLOCK)
    assert not any(session.match([key]).reachable for key in keys[:50])
    assert brought_up(session, fresh) == 100


def test_a_node_starts_without_a_path_whose_metadata_has_no_room(
    start: Callable[..., Node], attach: Attach, faults: Faults, tmp_path: Path
) -> None:
    node = start(names=("one", "two"))
    node.allowed_errors = UNSAVED
    assert node.stop() == 0
    shutil.rmtree(tmp_path / "one" / "metadata")
    faults.give("one", FULL_DISK)
    node.start()
    until("the other path serves", lambda: path_of(node, "two")["state"] == "serving")
    until("the path has failed", lambda: path_of(node, "one")["state"] == "failed")
    assert os.strerror(errno.ENOSPC) in path_of(node, "one")["last_error"]
    dram_works(attach(node, "i", block=BLOCK), "b")


def test_a_node_starts_on_a_disk_that_others_have_filled(
    start_node: StartNode, attach: Attach, tmp_path: Path, small_disk: Path
) -> None:
    place = tmp_path / "mounted"
    fill = 'dd if=/dev/zero of="$1/of others" bs=4k 2>/dev/null; '
    mounting = 'mount -o loop "$0" "$1" && {{ {} true; }} && shift && exec "$@"'
    sets = (f"nvme.paths=[{place}/store]", "nvme.capacity=96MiB", "nvme.require_mount=true", *PATIENT)
    mounted = ("unshare", "-m", "sh", "-c", mounting.format(""), str(small_disk), str(place))
    node = start_node(*sets, prefix=mounted, capacity="32MiB")
    serving(node)
    keys = only_below(attach(node, "i", block=BLOCK), node, count=60)
    assert node.stop() == 0
    full = ("unshare", "-m", "sh", "-c", mounting.format(fill), str(small_disk), str(place))
    node = start_node(*sets, prefix=full, capacity="32MiB")
    node.allowed_errors = ["metadata not written"]
    serving(node)
    session = attach(node, "i", block=BLOCK)
    assert brought_up(session, keys) == 60
    session.remove(keys)
    assert counters(node)["checksum_errors"] == 0


# ---- removals that cannot be written down

FULL_DISK = f"metadata={errno.ENOSPC}"
READ_ONLY = f"metadata={errno.EROFS} log={errno.EROFS} write={errno.EROFS}"
UNSAVED = ["metadata not written", "removals are not written down", "a path is not used"]


def restarted(node: Node) -> None:
    """A new node on the same paths."""
    assert node.stop() == 0
    node.start()
    serving(node)


def test_removals_hold_on_a_full_disk_over_a_restart_of_the_node(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start()
    node.allowed_errors = UNSAVED
    session = attach(node, "i", block=BLOCK)
    other = attach(node, "other", block=BLOCK)
    keys = only_below(session, node)
    cleared = only_below(other, node, "b", 60)
    faults.give("store", FULL_DISK)
    session.remove(keys[:50])
    other.clear()
    assert path_of(node)["pending_removals"] > 0
    assert counters(node)["failed_saves"] > 0
    assert counters(node)["failed_removals"] == 0
    assert node.stop() == 0
    faults.end()
    node.start()
    serving(node)
    session = attach(node, "i", block=BLOCK)
    assert not any(session.match([key]).reachable for key in keys[:50])
    assert brought_up(session, keys[50:]) == 50, "the others are as they were"
    other = attach(node, "other", block=BLOCK)
    assert not any(other.match([key]).reachable for key in cleared)
    until("the metadata is as it should be", lambda: path_of(node)["pending_removals"] == 0)
    assert brought_up(session, only_below(session, node, "c")) == 100
    restarted(node)
    assert brought_up(attach(node, "i", block=BLOCK), blocks.keys_of("c", 0, 100)) == 100


def test_a_removal_that_no_disk_takes_is_said_and_kept_for_the_next_worker(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start()
    node.allowed_errors = UNSAVED
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node)
    faults.give("store", READ_ONLY)
    with pytest.raises(cenote.RemovalPending, match="pending_removals"):
        session.remove(keys[:30])
    with pytest.raises(cenote.RemovalPending):
        session.remove(keys[30:60])
    assert not any(session.match([key]).reachable for key in keys[:60]), "gone, as long as the node runs"
    assert path_of(node)["pending_removals"] == 60
    assert counters(node)["failed_removals"] == 2
    node.restart_worker()
    until("the path cannot be opened", lambda: path_of(node)["state"] == "failed")
    session = attach(node, "i", block=BLOCK)
    with pytest.raises(cenote.RemovalPending):
        session.remove(keys[60:70])  # nobody knows what such a path holds
    cleared = run_cenote("clear", "--all", "--socket", node.socket)
    assert cleared.returncode == 1
    assert "/store (" in cleared.stderr, cleared.stderr
    faults.end()
    node.restart_worker()
    serving(node)
    session = attach(node, "i", block=BLOCK)
    assert not any(session.match([key]).reachable for key in keys)
    until("it is written down", lambda: path_of(node)["pending_removals"] == 0)
    restarted(node)
    assert not any(attach(node, "i", block=BLOCK).match([key]).reachable for key in keys)


def test_a_removal_that_failed_is_tried_again_until_the_disk_takes_it(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start()
    node.allowed_errors = UNSAVED
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node)
    faults.give("store", READ_ONLY)
    with pytest.raises(cenote.RemovalPending):
        session.clear()
    faults.end()
    until("it is written down", lambda: path_of(node)["pending_removals"] == 0)
    session.remove(keys)  # and so is the next one
    fresh = only_below(session, node, "c")
    restarted(node)
    session = attach(node, "i", block=BLOCK)
    assert not any(session.match([key]).reachable for key in keys)
    assert brought_up(session, fresh) == 100


def test_a_disk_that_does_not_answer_a_removal_brings_nothing_back(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start()
    node.allowed_errors = UNSAVED
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node)
    faults.give("store", "metadata_hold")
    with pytest.raises(cenote.RemovalPending):
        session.remove(keys)
    assert not any(session.match([key]).reachable for key in keys)
    node.worker_dies()
    faults.end()
    node.status()
    serving(node)
    session = attach(node, "i", block=BLOCK)
    assert not any(session.match([key]).reachable for key in keys)
    until("it is written down", lambda: path_of(node)["pending_removals"] == 0)


def test_a_worker_that_dies_behind_a_removal_it_kept_brings_nothing_back(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    node = start("debug.enabled=true", 'debug.kill_at=["removals.kept"]')
    node.allowed_errors = UNSAVED
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node)
    faults.give("store", "metadata_hold")
    node.announced_deaths += 1
    with pytest.raises(cenote.RemovalPending):
        session.remove(keys)
    assert node.epoch == 2, "the first worker died behind it, the second carried it out again"
    faults.end()
    serving(node)
    assert not any(session.match([key]).reachable for key in keys)
    until("it is written down", lambda: path_of(node)["pending_removals"] == 0)
    restarted(node)
    session = attach(node, "i", block=BLOCK)
    assert not any(session.match([key]).reachable for key in keys)


def test_a_path_that_is_still_opening_brings_nothing_back(
    start: Callable[..., Node], attach: Attach, tmp_path: Path
) -> None:
    node = start()
    node.allowed_errors = UNSAVED
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node)
    with (tmp_path / "store" / "data").open("rb") as data:
        waits = threading.Thread(target=fcntl.flock, args=(data, fcntl.LOCK_EX))
        waits.start()
        node.restart_worker()  # whose lock is ours now
        waits.join()
        assert path_of(node)["state"] == "opening"
        with pytest.raises(cenote.RemovalPending):
            session.remove(keys[:50])
        node.restart_worker()
        session = attach(node, "i", block=BLOCK)
        with pytest.raises(cenote.RemovalPending):
            session.remove(keys[50:60])
        assert path_of(node)["state"] == "opening"
    serving(node)
    assert not any(session.match([key]).reachable for key in keys[:60])
    assert brought_up(session, keys[60:]) == 40
    until("it is written down", lambda: path_of(node)["pending_removals"] == 0)


# ---- a path that is lost


def test_memory_that_a_lost_path_may_still_fill_does_not_stay_away(
    start: Callable[..., Node], attach: Attach, faults: Faults, tmp_path: Path
) -> None:
    node = start()
    node.allowed_errors = UNSAVED
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node, count=40)
    settled(node)
    faults.give("store", "hold")
    ticket = session.prefetch(keys)

    def loading() -> int:
        return int(node.status()["dram"]["blocks"]["loading"])

    until("reads are under way", lambda: loading() > 0)
    worker = node.worker_pid
    os.kill(worker, signal.SIGSTOP)  # or its reads would end when the file has another name
    data = tmp_path / "store" / "data"
    data.rename(data.with_name("away"))
    data.mkdir()
    node.announced_deaths += 1
    os.kill(worker, signal.SIGKILL)
    faults.end()
    until("the path cannot be opened", lambda: path_of(node)["state"] == "failed")
    until("the memory is not waited for", lambda: loading() == 0)
    assert ticket.wait(LIMIT) == 0, "who waited for them has an answer"
    dram_works(session, "b")


# ---- a device without a file system


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    if shutil.which("losetup") is None:
        pytest.skip("no loop device: there is no losetup")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(128 << 20)
    made = subprocess.run(["losetup", "-f", "--show", str(image)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no loop device: {made.stderr.strip()}")
    yield Path(made.stdout.strip())
    subprocess.run(["losetup", "-d", made.stdout.strip()], check=True)


def test_a_raw_device_serves_as_a_path_unless_it_holds_somebodys_data(
    start_node: StartNode, attach: Attach, tmp_path: Path, device: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    (store / "data").symlink_to(device)
    sets = (f"nvme.paths=[{store}]", "nvme.capacity=96MiB")
    node = start_node(*sets, *PATIENT, capacity="32MiB")
    serving(node)
    keys = only_below(attach(node, "i", block=BLOCK), node)
    assert node.stop() == 0
    node = start_node(*sets, *PATIENT, capacity="32MiB")
    serving(node)
    assert path_of(node)["direct"] is True
    assert brought_up(attach(node, "i", block=BLOCK), keys) == 100
    assert node.stop() == 0
    device.write_bytes(b"somebody's" + bytes(4086))
    refused = start_node(*PATIENT, *sets, capacity="32MiB", launch_only=True)
    assert refused.wait() == 2
    assert "holds something else than blocks of this cache" in refused.log_text()
    assert device.read_bytes()[:10] == b"somebody's"


# ---- less than usual


@pytest.fixture
def in_memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cenote-", dir="/dev/shm") as place:
        yield Path(place) / "store"


def test_a_path_without_direct_io_works_with_one_warning(
    start: Callable[..., Node], attach: Attach, faults: Faults, in_memory: Path
) -> None:
    try:
        os.close(os.open(in_memory.parent / "probe", os.O_RDWR | os.O_CREAT | os.O_DIRECT))
        print("variant: this tmpfs takes O_DIRECT, the shim refuses it")
        faults.give("store", "buffered")
    except OSError as refused:
        print(f"variant: tmpfs refuses O_DIRECT with {refused}")
    node = start(f"nvme.paths=[{in_memory}]", "nvme.capacity=128MiB")
    warned = [each for each in node.logged("no direct I/O") if each["level"] == "warn"]
    assert [each["path"] for each in warned] == [str(in_memory)]
    assert path_of(node)["direct"] is False
    session = attach(node, "i", block=BLOCK)
    assert brought_up(session, only_below(session, node)) == 100
    assert len(node.logged("no direct I/O")) == 1
    assert counters(node)["io_errors"] == counters(node)["checksum_errors"] == 0


@pytest.mark.parametrize("part", [BLOCK // 2, 4 * KiB], ids=["halves", "sectors"])
def test_transfers_that_end_short_are_continued(
    start: Callable[..., Node], attach: Attach, faults: Faults, part: int
) -> None:
    faults.give("store", f"part={part}")
    node = start()
    session = attach(node, "i", block=BLOCK)
    assert brought_up(session, only_below(session, node)) == 100
    assert counters(node)["io_errors"] == counters(node)["checksum_errors"] == 0
    assert path_of(node)["state"] == "serving"


def test_transfers_that_end_within_a_sector_bring_no_wrong_byte(
    start: Callable[..., Node], attach: Attach, faults: Faults
) -> None:
    """Direct I/O cannot go on from there: depending on the file system the rest is refused, or moved all the same."""
    node = start()
    session = attach(node, "i", block=BLOCK)
    keys = only_below(session, node)
    faults.give("store", "part=1000")
    found = brought_up(session, keys)
    dram_works(session, "b")
    settled(node)
    said = counters(node)
    print(f"{found} of 100 came up, {said['io_errors']} errors")
    assert found == 100 or said["io_errors"] > 0
    faults.end()
    until("the path serves", lambda: path_of(node)["state"] == "serving")
    brought_up(session, blocks.keys_of("b", 0, 200))
    fresh = only_below(session, node, "c")
    assert brought_up(session, fresh) == 100
    assert counters(node)["checksum_errors"] == 0


@pytest.mark.parametrize("what", ["writes", "reads"])
def test_a_disk_that_moves_less_than_it_says_is_caught(
    start: Callable[..., Node], attach: Attach, faults: Faults, what: str
) -> None:
    node = start()
    session = attach(node, "i", block=BLOCK)
    if what == "writes":
        faults.give("store", "lie")
    keys = only_below(session, node)
    faults.give("store", "lie" if what == "reads" else "")
    assert brought_up(session, keys) == 0
    assert counters(node)["checksum_errors"] == 100
    assert path_of(node)["state"] == "serving"
    faults.end()
    assert brought_up(session, only_below(session, node, "b")) == 100


@pytest.mark.parametrize("refusal", [errno.EPERM, errno.ENOSYS], ids=["EPERM", "ENOSYS"])
def test_without_io_uring_threads_do_the_work(
    start_node: StartNode, attach: Attach, tmp_path: Path, refusal: int
) -> None:
    forbid = (sys.executable, str(HERE / "clients" / "without_io_uring.py"), str(refusal))
    if subprocess.run([*forbid, "/bin/true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("system calls cannot be forbidden here")
    disk = (f"nvme.paths=[{tmp_path}/store]", "nvme.capacity=256MiB")
    node = start_node(*disk, *PATIENT, capacity="32MiB", prefix=forbid)
    serving(node)
    assert path_of(node)["engine"] == "threads"
    assert [each["engine"] for each in node.logged("serving a path")] == ["threads"]
    (said,) = node.logged("io_uring cannot be used")
    assert os.strerror(refusal) in said["reason"]
    session = attach(node, "i", block=BLOCK)
    assert brought_up(session, only_below(session, node)) == 100
    assert counters(node)["io_errors"] == 0
