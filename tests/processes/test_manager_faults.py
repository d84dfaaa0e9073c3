"""`cenote manager` and what goes wrong: kills under writers, late writers, storages that break, quotas under a rush."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from manager import Answer, FilePart, Manager, code_of, uris_of
from manager_cases import start_at_once
from manager_writers import KEYS, SPECS, Round, Writer, check_quiet, go_on, writers_at_work
from node import FULL, KiB, until


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A new one each time, which pytest shows where a test fails."""
    value = random.SystemRandom().randrange(1 << 30)
    print(f"seed {value} of {request.node.name}")
    return value


# ---------------------------------------------------------------------------------------------- kills under writers


@pytest.mark.parametrize("blocks_per_file", [4, pytest.param(1, marks=pytest.mark.full)])
def test_kills_under_writers_lose_nothing_that_was_answered(tmp_path: Path, seed: int, blocks_per_file: int) -> None:
    with Manager(tmp_path / "manager") as manager:
        folder = manager.add_instance("i", specs=SPECS, blocks_per_file=blocks_per_file)
        round_ = Round(manager)
        writers = [Writer(round_, "i", number, seed) for number in range(4)]
        with writers_at_work(round_, writers):
            for _ in range(50 if FULL else 5):
                go_on(round_, writers, 200)
                round_.is_up.clear()  # before, so that a call that breaks waits for the next start
                manager.restart()
                round_.is_up.set()
            go_on(round_, writers, 200)
        assert len(check_quiet(round_, writers, folder)) > KEYS / 10
        manager.restart()
        assert len(check_quiet(round_, writers, folder)) > KEYS / 10


# ---------------------------------------------------------------------------------------------- late writers


@pytest.mark.parametrize("blocks_per_file", [1, 8])
def test_a_late_writer_alters_nothing_that_is_read(tmp_path: Path, blocks_per_file: int) -> None:
    keys = [1, 2, 3]
    with Manager(tmp_path / "manager") as manager:
        manager.add_instance("i", blocks_per_file=blocks_per_file)
        begin = manager.do("startWriteCache", instance_id="i", block_keys=keys, write_timeout_seconds=1)
        late = [FilePart.parse(uri) for uris in uris_of(begin) for uri in uris]
        session, success = begin["write_session_id"], {"offset": len(keys)}
        late[0].write(b"\x01" * late[0].size)  # in time, and the rest is not
        handle = os.open(late[0].path, os.O_WRONLY)
        until("its time is over", lambda: set(manager.states("i", keys)) == {"CLS_NOT_FOUND"})

        def write_late() -> None:
            os.pwrite(handle, b"\x02" * late[0].size, late[0].offset)
            for each in late:
                each.write(b"\x02" * each.size)

        write_late()
        finish = manager.call("finishWriteCache", instance_id="i", write_session_id=session, success_blocks=success)
        assert code_of(finish) == "SESSION_NOT_FOUND", finish
        assert manager.locations("i", keys) == [[], [], []]
        again = manager.do("startWriteCache", instance_id="i", block_keys=keys, write_timeout_seconds=300)
        parts = [FilePart.parse(uri) for uris in uris_of(again) for uri in uris]
        assert len(parts) == len(keys)
        assert not {part.path for part in parts} & {part.path for part in late}
        assert not any(any(part.read()) for part in parts)
        for each in parts:
            each.write(b"\x07" * each.size)
        write_late()
        session = again["write_session_id"]
        manager.do("finishWriteCache", instance_id="i", write_session_id=session, success_blocks=success)

        def check_served() -> None:
            write_late()
            assert manager.locations("i", keys) == uris_of(again)
            assert all(part.read() == b"\x07" * part.size for part in parts)

        check_served()
        manager.restart()
        check_served()
        manager.do("removeCache", instance_id="i", block_keys=keys)
        until("they are gone", lambda: set(manager.states("i", keys)) == {"CLS_NOT_FOUND"})
        write_late()
        assert manager.locations("i", keys) == [[], [], []]
        os.close(handle)


# ---------------------------------------------------------------------------------------------- the journal's disk


class SmallDisk:
    """A file system of `size` at `folder`, for commands behind `prefix` alone, that outlives each of them. Skips the
    test where there is none."""

    def __init__(self, folder: Path, size: str) -> None:
        folder.mkdir(parents=True)
        mount = f'mount -t tmpfs -o size={size} tmpfs "$0" && echo mounted && exec sleep infinity'
        if shutil.which("unshare") is None or shutil.which("nsenter") is None:
            pytest.skip("needs unshare and nsenter")
        command = ["unshare", "-m", "sh", "-c", mount, str(folder)]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "mounted\n":
            self.close()
            pytest.skip("needs the right to mount")
        self.prefix = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt"]
        self._filler = Path(f"/proc/{self._holder.pid}/root{folder}/filler")

    def fill(self) -> None:
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096) > 0:
                pass

    def make_room(self) -> None:
        self._filler.unlink()

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "manager" / "state", "24m")  # less than RocksDB allocates ahead, where it can
    yield disk
    disk.close()


def test_a_journal_whose_disk_is_full_takes_nothing_and_works_again_with_room(
    tmp_path: Path, small_disk: SmallDisk
) -> None:
    with Manager(tmp_path / "manager", "manager.bootstrap=none", prefix=small_disk.prefix) as manager:
        manager.add_instance("i", specs=[("tp0", 64)], blocks_per_file=1024)
        kept = manager.write("i", [-1, -2])
        open_session = manager.do("startWriteCache", instance_id="i", block_keys=[-3], write_timeout_seconds=300)
        numbers = iter(range(1_000_000))
        granted: list[int] = []

        def start() -> str:
            """The code of a start with 4,096 new keys, of which the first is noted if they are granted."""
            first = next(numbers) * 4096
            keys = list(range(first, first + 4096))
            code = code_of(manager.call("startWriteCache", instance_id="i", block_keys=keys, write_timeout_seconds=300))
            if code == "OK":
                granted.append(first)
            assert code in ("OK", "IO_ERROR", "SERVICE_NOT_READY"), code
            return code

        small_disk.fill()
        until("a start is refused", lambda: start() == "IO_ERROR")
        assert manager.locations("i", [-1, -2, -3]) == [*kept, []]
        small_disk.make_room()
        until("starts are granted", lambda: start() == "OK")
        assert manager.locations("i", [-1, -2]) == kept
        finish = {"write_session_id": open_session["write_session_id"], "success_blocks": {"offset": 1}}
        manager.do("finishWriteCache", instance_id="i", **finish)
        manager.do("removeCache", instance_id="i", block_keys=[-1])
        manager.restart()
        assert manager.locations("i", [-1, -2, -3]) == [[], kept[1], uris_of(open_session)[0]]
        assert set(manager.states("i", granted)) == {"CLS_WRITING"}


# ---------------------------------------------------------------------------------------------- quotas

WRITERS = 64  # at once
BATCH, BLOCK, ROOM = 16, KiB, 20  # keys of a start, bytes of a key, starts that there is room for
LIMIT_BYTES = ROOM * BATCH * BLOCK + BLOCK // 2
QUOTAS: dict[str, dict[str, Any]] = {
    "total": {"quota": {"capacity": LIMIT_BYTES}},
    "type": {
        "quota": {"capacity": 1 << 40, "quota_config": [{"storage_type": "ST_NFS", "capacity": LIMIT_BYTES}]},
    },
    "storage": {"storage": {"capacity": LIMIT_BYTES}},
    "keys": {"max_keys": ROOM * BATCH + 1},
}


@pytest.mark.parametrize("kind", QUOTAS)
def test_a_rush_never_exceeds_a_quota(tmp_path: Path, kind: str) -> None:
    with Manager(tmp_path / "manager") as manager:
        manager.add_instance("i", specs=[("tp0", BLOCK)], **QUOTAS[kind])
        numbers = iter(range(1_000_000))

        def batch() -> list[int]:
            first = next(numbers) * BATCH
            return list(range(first, first + BATCH))

        def granted(answers: list[Answer]) -> list[Answer]:
            """Those that were OK: whole, the others empty."""
            for each in answers:
                is_granted = code_of(each) == "OK"
                assert is_granted or code_of(each) == "REACH_MAX_ENTITY_CAPACITY", each
                assert len(each["locations"]) == (BATCH if is_granted else 0), each
            return [each for each in answers if code_of(each) == "OK"]

        for _ in range(3):
            sessions = granted(start_at_once(manager, "i", [batch() for _ in range(WRITERS)]))
            assert 0 < len(sessions) <= ROOM
            while extra := granted(start_at_once(manager, "i", [batch()])):
                sessions += extra
            assert len(sessions) == ROOM
            manager.restart()  # accounts are those of what was granted
            assert not granted(start_at_once(manager, "i", [batch()]))
            for each in sessions:
                session = each["write_session_id"]
                manager.do("finishWriteCache", instance_id="i", write_session_id=session, success_blocks={"offset": 0})
            keys = list(range(next(numbers) * BATCH))

            def is_empty(keys: list[int] = keys) -> bool:
                return set(manager.states("i", keys)) == {"CLS_NOT_FOUND"}

            until("all that failed is gone", is_empty)


# ---------------------------------------------------------------------------------------------- storages


def permission_prefix() -> list[str]:
    """A prefix of commands for which permissions of folders hold. Skips the test where there is none."""
    if os.geteuid() != 0:
        return []
    prefix = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"]
    if shutil.which("setpriv") is None or subprocess.run([*prefix, "true"], check=False).returncode != 0:
        pytest.skip("needs setpriv, for a manager that permissions hold for")
    return prefix


@contextlib.contextmanager
def replaced_by_file(folder: Path) -> Iterator[None]:
    """A file in a folder's place. Probes may make the folder anew in between."""
    away, file = folder.with_name(folder.name + ".away"), folder.with_name(folder.name + ".file")
    folder.rename(away)
    file.write_text("no folder")

    def is_placed(source: Path) -> bool:
        try:
            source.rename(folder)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            return False
        return True

    until("the file is in the folder's place", lambda: is_placed(file), pause=0.001)
    yield
    folder.unlink()
    until("the folder is back", lambda: is_placed(away), pause=0.001)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    folder.chmod(0o555)
    yield
    folder.chmod(0o755)


@pytest.mark.parametrize("harm", [replaced_by_file, read_only], ids=["replaced by a file", "read-only"])
def test_a_storage_that_breaks_is_not_used_until_it_works_again(
    tmp_path: Path, harm: Callable[[Path], contextlib.AbstractContextManager[None]]
) -> None:
    prefix = permission_prefix() if harm is read_only else []
    with Manager(tmp_path / "manager", "manager.probe_interval=50ms", prefix=prefix) as manager:
        folder = manager.add_instance("i", blocks_per_file=1)
        uris = manager.write("i", [1, 2])
        numbers = iter(range(100, 1_000_000))

        def start() -> str:
            """The code of a start with a new key; what is granted is given up."""
            answer = manager.call("startWriteCache", instance_id="i", block_keys=[next(numbers)])
            if code_of(answer) == "OK":
                session = answer["write_session_id"]
                manager.call(
                    "finishWriteCache", instance_id="i", write_session_id=session, success_blocks={"offset": 0}
                )
            return code_of(answer)

        open_session = manager.do("startWriteCache", instance_id="i", block_keys=[3], write_timeout_seconds=300)
        with harm(folder):
            until("new writes are refused", lambda: start() == "IO_ERROR")
            assert manager.locations("i", [1, 2]) == [[], []]
            assert manager.states("i", [1, 2]) == ["CLS_SERVING", "CLS_SERVING"]
            manager.do("removeCache", instance_id="i", block_keys=[2])
            manager.restart()
            until("new writes are refused after a restart", lambda: start() == "IO_ERROR")
            assert manager.locations("i", [1, 2]) == [[], []]
        until("it is read again", lambda: manager.locations("i", [1]) == [uris[0]])
        until("new writes are granted", lambda: start() == "OK")
        assert FilePart.parse(uris[0][0]).read() == b"\x01" * 1024
        until("what was removed is gone", lambda: manager.states("i", [2]) == ["CLS_NOT_FOUND"])
        assert not FilePart.parse(uris[1][0]).path.exists()
        assert manager.locations("i", [2]) == [[]]
        part = FilePart.parse(uris_of(open_session)[0][0])
        part.write(b"\x03" * part.size)
        session = open_session["write_session_id"]
        manager.do("finishWriteCache", instance_id="i", write_session_id=session, success_blocks={"offset": 1})
        assert manager.locations("i", [3]) == uris_of(open_session)


def test_a_broken_storage_leaves_its_writes_to_the_next_candidate(tmp_path: Path) -> None:
    sets = ("manager.probe_interval=50ms", "manager.read_choice=first")
    with Manager(tmp_path / "manager", *sets) as manager:
        other = manager.add_instance("other")
        group = {"storage_candidates": ["s-i", "s-other"]}
        folder = manager.add_instance("i", group=group)
        assert uris_of(manager.do("startWriteCache", instance_id="i", block_keys=[1]))[0][0].startswith("file://s-i/")
        manager.write("i", [2])
        numbers = iter(range(100, 1_000_000))

        def is_elsewhere() -> bool:
            answer = manager.do("startWriteCache", instance_id="i", block_keys=[next(numbers)])
            return uris_of(answer)[0][0].startswith("file://s-other/")

        with replaced_by_file(folder):
            until("the next one is written", is_elsewhere)
            assert manager.locations("i", [2]) == [[]]
            (copy,) = manager.write("i", [2], byte=9)
            assert FilePart.parse(copy[0]).path.is_relative_to(other)
            assert manager.locations("i", [2]) == [copy]
        until("the first one is written again", lambda: not is_elsewhere())
        (uris,) = manager.locations("i", [2])
        assert uris[0].startswith("file://s-i/") and FilePart.parse(uris[0]).read() == b"\x01" * 1024
