"""`cenote manager` with damaged rows in its journal: their blocks are never served, and their bytes go."""

from __future__ import annotations

import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from manager import Answer, FilePart, Manager, code_of, uris_of
from manager_writers import charged_bytes
from node import BINARY, LIMIT, preloading, until
from redis import Redis

PREFIX = "cenote:manager:cenote"
SHIM = BINARY.parent / "tests" / "bin" / "libfaulty_disk.so"
BLOCK = 1024
PRESENT, ABSENT = b":1\r\n", b":0\r\n"


@pytest.fixture
def store() -> Iterator[Redis]:
    server = Redis()
    yield server
    server.close()


def started(folder: Path, store: Redis, *extra: str) -> Manager:
    return Manager(folder, f"manager.store={store.url}", "manager.probe_interval=50ms", *extra)


class ExtentRows:
    """The rows of the extent of a block, of the first instance."""

    def __init__(self, store: Redis, uri: str) -> None:
        self.store = store
        self.field = struct.pack(">Q", 1) + bytes.fromhex(urlsplit(uri).path.split("/")[-3 if "redis:" in uri else -2])
        assert self.has("extents") and self.has("masks")

    def has(self, kind: str) -> bool:
        return self.store.ask("HEXISTS", f"{PREFIX}:{kind}", self.field) == PRESENT

    def damage(self, kind: str) -> None:
        assert self.store.ask("HSET", f"{PREFIX}:{kind}", self.field, b"damaged") == ABSENT  # no row is new

    def absent(self) -> bool:
        return not self.has("extents") and not self.has("masks")


def files(uris: list[list[str]]) -> list[Path]:
    return [FilePart.parse(uri).path for each in uris for uri in each]


def check_writable(manager: Manager, keys: list[int]) -> None:
    """The keys are granted, at new addresses."""
    manager.write("i", keys, byte=9)
    assert all(manager.locations("i", keys))


@pytest.mark.parametrize("kind", ["extents", "masks", "both"])
@pytest.mark.parametrize("blocks_per_file", [1, 8])
def test_files_of_an_extent_with_a_damaged_row_go(
    tmp_path: Path, store: Redis, kind: str, blocks_per_file: int
) -> None:
    with started(tmp_path, store) as manager:
        folder = manager.add_instance("i", specs=[("tp0", BLOCK), ("tp1", BLOCK)], blocks_per_file=blocks_per_file)
        damaged, sound = manager.write("i", [1, 2, 3]), manager.write("i", [4, 5], byte=7)
        rows, others = ExtentRows(store, damaged[0][0]), ExtentRows(store, sound[0][0])
        manager.kill()
        for each in ["extents", "masks"] if kind == "both" else [kind]:
            rows.damage(each)
        manager.start()
        assert manager.figure("damaged_rows_total") == (2 if kind == "both" else 1)
        assert manager.locations("i", [1, 2, 3]) == [[], [], []]
        until("its rows are gone", rows.absent)
        assert not any(path.exists() for path in files(damaged))
        assert [each.name for each in (folder / "i").iterdir()] == [files(sound)[0].parent.name]
        until("it is counted no more", lambda: manager.figure("lost_extents") == 0)
        assert manager.locations("i", [4, 5]) == sound
        assert all(FilePart.parse(uri).read() == b"\x07" * BLOCK for each in sound for uri in each)
        until("the bytes charged are those on disk", lambda: charged_bytes(manager) == 4 * BLOCK)
        check_writable(manager, [1, 2, 3])
        assert not others.absent()
        manager.restart()
        assert manager.figure("damaged_rows_total") == 0
        assert manager.locations("i", [4, 5]) == sound


@pytest.mark.parametrize("point", ["storage_removal", "storage_removed", "deletion_batch", "deletion_written"])
def test_a_kill_in_between_lets_it_be_done_again(tmp_path: Path, store: Redis, point: str) -> None:
    with started(tmp_path, store, "debug.enabled=true") as manager:
        manager.add_instance("i")
        damaged, sound = manager.write("i", [1, 2]), manager.write("i", [3])
        rows = ExtentRows(store, damaged[0][0])
        manager.kill()
        rows.damage("extents")
        manager.launch(f"debug.kill_at=['{point}']")
        assert manager.process is not None and manager.process.wait(LIMIT) == -signal.SIGKILL
        assert rows.absent() == (point == "deletion_written")
        manager.start()
        until("its rows are gone", rows.absent)
        assert not any(path.exists() for path in files(damaged))
        assert manager.locations("i", [1, 2, 3]) == [[], [], *sound]


def test_a_storage_that_is_disabled_is_tried_when_it_is_back(tmp_path: Path, store: Redis) -> None:
    with started(tmp_path, store) as manager:
        manager.add_instance("i")
        damaged = manager.write("i", [1])
        rows = ExtentRows(store, damaged[0][0])
        manager.do("disableStorage", storage_unique_name="s-i")
        manager.kill()
        rows.damage("extents")
        manager.start()
        manager.do("removeInstance", instance_group="g-i", instance_id="i")  # waits for what it lost
        manager.restart()
        assert manager.figure("lost_extents") == 1
        assert rows.has("extents") and files(damaged)[0].exists()
        manager.do("enableStorage", storage_unique_name="s-i")
        until("its rows are gone", rows.absent)
        assert not files(damaged)[0].exists()
        until("nothing is counted", lambda: manager.figure("lost_extents") == 0)


def test_a_mount_that_hangs_delays_its_own_files_alone(tmp_path: Path, store: Redis) -> None:
    orders = tmp_path / "orders"
    orders.touch()
    shim = [f"{name}={value}" for name, value in preloading(SHIM).items()]
    hanging = {"global_unique_name": "h", "nfs": {"root_path": str(tmp_path / "hanging" / "metadata" / "blocks")}}
    sets = f"manager.store={store.url}", "manager.probe_interval=50ms", "manager.probe_timeout=200ms"
    prefix = ["env", *shim, f"CENOTE_TEST_FAULTS={orders}"]
    with Manager(tmp_path / "manager", *sets, prefix=prefix) as manager:
        manager.do("addStorage", storage=hanging)
        manager.add_instance("i")
        damaged, sound = manager.write("i", [1]), manager.write("i", [2])
        rows = ExtentRows(store, damaged[0][0])
        manager.kill()
        rows.damage("extents")
        orders.write_text("hanging/data metadata_hold\n")
        manager.start()
        until("its file is gone", lambda: not files(damaged)[0].exists())
        assert manager.locations("i", [1, 2]) == [[], *sound]
        check_writable(manager, [1])
        assert rows.has("extents") and manager.figure("lost_extents") == 1
        orders.write_text("")
        until("its rows are gone", rows.absent)


def test_values_of_an_extent_with_a_damaged_row_go_and_those_of_other_extents_stay(
    tmp_path: Path, store: Redis
) -> None:
    with started(tmp_path, store) as manager:
        manager.do("addStorage", storage={"global_unique_name": "r", "redis": {"url": store.url}})
        manager.add_instance("i", specs=[("tp0", BLOCK), ("tp1", BLOCK)], group={"storage_candidates": ["r"]})

        def write(keys: list[int]) -> tuple[list[list[str]], list[str]]:
            granted: Answer = manager.do("startWriteCache", instance_id="i", block_keys=keys)
            names = [urlsplit(uri).path[1:] for each in uris_of(granted) for uri in each]
            for name in names:
                store.ask("SET", name, b"x" * BLOCK)
            session, success = granted["write_session_id"], {"offset": len(keys)}
            done = manager.call("finishWriteCache", instance_id="i", write_session_id=session, success_blocks=success)
            assert code_of(done) == "OK"
            return uris_of(granted), names

        uris, damaged = write(list(range(100, 115)))
        kept_uris, kept = write([1, 2])
        rows = ExtentRows(store, uris[0][0])
        manager.kill()
        rows.damage("extents")
        foreign = [damaged[0] + "0", damaged[0].replace("/tp0/", "/tp00/"), damaged[0] + "/x"]
        for name in foreign:
            store.ask("SET", name, b"x")
        manager.start()
        until("its rows are gone", rows.absent)
        assert store.ask("EXISTS", *damaged) == ABSENT
        assert store.ask("EXISTS", *kept, *foreign) == b":%d\r\n" % (len(kept) + len(foreign))
        assert manager.locations("i", [1, 2]) == kept_uris
