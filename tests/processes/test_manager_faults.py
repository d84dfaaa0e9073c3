"""`cenote manager` and what goes wrong: kills under writers, late writers, storages that break, quotas under a rush."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from manager import UNREACHABLE, Answer, FilePart, Manager, code_of, mask_of, uris_of
from manager_cases import start_at_once
from node import FULL, KiB, until

SPECS = (("a", 512), ("b", 768))
KEYS = 120  # of a writer
TIMEOUT = 1  # seconds of a write session
TOLERANCE = 0.5  # seconds by which a deadline may be early


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A new one each time, which pytest shows where a test fails."""
    value = random.SystemRandom().randrange(1 << 30)
    print(f"seed {value} of {request.node.name}")
    return value


# ---------------------------------------------------------------------------------------------- kills under writers


@dataclass(frozen=True)
class Attempt:
    """The bytes of a key in one session."""

    uris: tuple[str, ...]
    stamp: int

    def data(self, uri: str, size: int) -> bytes:
        mark = self.stamp.to_bytes(6, "little") + bytes([0xA5, 1 + self.uris.index(uri)])
        return (mark * (size // len(mark) + 1))[:size]

    def write(self) -> None:
        for uri in self.uris:
            part = FilePart.parse(uri)
            part.write(self.data(uri, part.size))

    def is_intact(self) -> bool:
        parts = [(uri, FilePart.parse(uri)) for uri in self.uris]
        return all(part.read() == self.data(uri, part.size) for uri, part in parts)


Outcomes = set[Attempt | None]  # of a key: attempts that may be served; None: it may be absent
ABSENT: Attempt | None = None


@dataclass
class Round:
    """The manager, and when it is up."""

    manager: Manager
    instance: str
    is_up: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)


class Writer:
    """A thread that writes, reads and removes keys of its own, beside a model of what was answered."""

    def __init__(self, round_: Round, number: int, seed: int) -> None:
        self.round = round_
        self.dice = random.Random(seed * 64 + number)
        self.keys = range(number * 1_000_000, number * 1_000_000 + KEYS)
        self.outcomes: dict[int, Outcomes] = {key: {ABSENT} for key in self.keys}
        self.open_keys: set[int] = set()  # that a session may still have which this writer has lost
        self.granted: list[str] = []  # addresses
        self.late_paths: set[Path] = set()  # written when the session may have been over
        self.faults: list[str] = []
        self.answers = 0
        self.stamps = 0
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        steps = (self.write, self.write, self.read, self.remove)
        try:
            while not self.round.is_over.is_set() and not self.faults:
                self.dice.choice(steps)()
        except Exception as error:  # a thread's error must reach the test
            self.faults.append(repr(error))

    def call(self, rpc: str, expected: str = "OK", **fields: Any) -> Answer | None:
        """The answer; nothing: the manager went away meanwhile, and is back."""
        try:
            answer = self.round.manager.call(rpc, instance_id=self.round.instance, **fields)
        except UNREACHABLE:
            if not self.round.is_up.wait(60):
                self.faults.append("the manager is away")
            return None
        self.answers += 1
        if code_of(answer) not in expected.split():
            self.faults.append(f"{rpc} {fields}: {answer}")
        return answer

    def some_keys(self) -> list[int]:
        return self.dice.sample(self.keys, self.dice.randrange(1, 12))

    # ---- writes

    def write(self) -> None:
        """A session: start, bytes, at times a removal, and a finish, unless it is left to its deadline."""
        keys, begin = self.some_keys(), time.monotonic()
        answer = self.call("startWriteCache", block_keys=keys, write_timeout_seconds=TIMEOUT)
        if answer is None:
            self.open_keys |= set(keys)
            return
        attempts = self.take_grants(keys, answer)
        for each in attempts.values():
            each.write()
        if time.monotonic() - begin > TIMEOUT - TOLERANCE:
            self.late_paths |= {FilePart.parse(uri).path for each in attempts.values() for uri in each.uris}
        removed = self.remove_some(attempts)
        if attempts and self.dice.random() < 0.05:
            self.open_keys |= set(attempts)
            return
        self.finish(attempts, removed, answer["write_session_id"], begin)

    def take_grants(self, keys: list[int], answer: Answer) -> dict[int, Attempt]:
        mask, uris = mask_of(answer, len(keys)), iter(uris_of(answer))
        attempts: dict[int, Attempt] = {}
        for key, masked in zip(keys, mask, strict=True):
            if masked and self.outcomes[key] == {ABSENT} and key not in self.open_keys:
                self.faults.append(f"key {key} is masked, and nothing has it")
            if masked:
                continue
            if ABSENT not in self.outcomes[key]:
                self.faults.append(f"key {key} is granted although it is served")
            self.stamps += 1
            attempts[key] = Attempt(tuple(next(uris)), self.stamps)
            self.granted += attempts[key].uris
            self.outcomes[key] = {ABSENT}
            self.open_keys.discard(key)
        if next(uris, None) is not None:
            self.faults.append(f"more locations than keys: {answer}")
        return attempts

    def remove_some(self, attempts: dict[int, Attempt]) -> dict[int, bool]:
        """Keys that are removed while they are written, and whether that was answered."""
        if not attempts or self.dice.random() > 0.2:
            return {}
        keys = self.dice.sample(sorted(attempts), 1)
        answer = self.call("removeCache", block_keys=keys)
        return {key: answer is not None for key in keys}

    def finish(self, attempts: dict[int, Attempt], removed: dict[int, bool], session: str, begin: float) -> None:
        mask = [self.dice.random() < 0.8 for _ in attempts]
        success = {"bool_masks": {"values": mask}}
        answer = self.call("finishWriteCache", "OK SESSION_NOT_FOUND", write_session_id=session, success_blocks=success)
        if answer is None:
            self.open_keys |= set(attempts)
        elif code_of(answer) == "SESSION_NOT_FOUND":
            if time.monotonic() - begin < TIMEOUT - TOLERANCE:
                self.faults.append(f"a session of {time.monotonic() - begin:.2f} s is over: {answer}")
            return
        for (key, attempt), is_success in zip(attempts.items(), mask, strict=True):
            if not is_success or removed.get(key, False):
                continue
            is_sure = answer is not None and key not in removed
            self.outcomes[key] = {attempt} if is_sure else {ABSENT, attempt}

    # ---- reads and removals

    def read(self) -> None:
        self.check(self.some_keys())

    def check(self, keys: Sequence[int]) -> set[int]:
        """Compares keys, and the bytes of those that are served, with the model. Returns the keys that are served."""
        answer = self.call("getCacheLocation", query_type="QT_BATCH_GET", block_keys=list(keys))
        if answer is None:
            return set()
        served = set()
        for key, uris in zip(keys, uris_of(answer), strict=True):
            attempt = next((each for each in self.outcomes[key] if each is not None and each.uris == tuple(uris)), None)
            if any(uris) and attempt is None:
                self.faults.append(f"key {key} is served at {uris}, and may be {self.outcomes[key]}")
            elif attempt not in self.outcomes[key]:
                self.faults.append(f"key {key} is lost: {self.outcomes[key]}")
            elif attempt is not None and not attempt.is_intact():
                self.faults.append(f"key {key} has other bytes at {uris}")
            elif attempt is not None:
                served.add(key)
            self.outcomes[key] = {attempt}
        return served

    def remove(self) -> None:
        keys = self.some_keys()[:4]
        answer = self.call("removeCache", block_keys=keys)
        for key in keys:
            self.outcomes[key] = {ABSENT} if answer is not None else self.outcomes[key] | {ABSENT}

    def served_parts(self) -> set[tuple[Path, int]]:
        attempts = [each for outcomes in self.outcomes.values() for each in outcomes if each is not None]
        parts = [FilePart.parse(uri) for each in attempts for uri in each.uris]
        return {(part.path, part.offset) for part in parts}


def parts_on_disk(folder: Path, sizes: dict[str, int]) -> dict[Path, set[int]]:
    """Offsets of parts with bytes, by file, of the instances' files below a storage's folder."""
    found: dict[Path, set[int]] = {}
    for path in folder.glob("*/**/*"):
        if path.is_file():
            size, data = sizes[path.name.partition(".")[0]], path.read_bytes()
            found[path] = {offset for offset in range(0, len(data), size) if any(data[offset : offset + size])}
    return found


def check_writers(writers: list[Writer]) -> None:
    faults = [fault for each in writers for fault in each.faults]
    assert not faults, "\n".join(faults[:20])


def check_quiet(round_: Round, writers: list[Writer], folder: Path) -> None:
    """Nothing is under way any more, and what is served is right and all that there is."""
    keys = [key for each in writers for key in each.keys]

    def is_quiet() -> bool:
        return set(round_.manager.states(round_.instance, keys)) <= {"CLS_SERVING", "CLS_NOT_FOUND"}

    until("no key is being written or deleted", is_quiet, pause=0.1)
    served = set().union(*[each.check(each.keys) for each in writers])
    check_writers(writers)
    states = dict(zip(keys, round_.manager.states(round_.instance, keys), strict=True))
    assert served == {key for key, state in states.items() if state == "CLS_SERVING"}
    assert len(served) > KEYS / 10
    addresses = [uri for each in writers for uri in each.granted]
    assert len(addresses) == len(set(addresses)), "an address was granted twice"
    late = set().union(*[each.late_paths for each in writers])
    expected = set().union(*[each.served_parts() for each in writers])
    found = {path: parts for path, parts in parts_on_disk(folder, dict(SPECS)).items() if path not in late}
    assert found.keys() == {path for path, _ in expected if path not in late}
    assert {(path, offset) for path, parts in found.items() for offset in parts} == {
        (path, offset) for path, offset in expected if path not in late
    }


@pytest.mark.parametrize("blocks_per_file", [4, pytest.param(1, marks=pytest.mark.full)])
def test_kills_under_writers_lose_nothing_that_was_answered(tmp_path: Path, seed: int, blocks_per_file: int) -> None:
    with Manager(tmp_path / "manager") as manager:
        folder = manager.add_instance("i", specs=SPECS, blocks_per_file=blocks_per_file)
        round_ = Round(manager, "i")
        writers = [Writer(round_, number, seed) for number in range(4)]

        def go_on(calls: int) -> None:
            end = sum(each.answers for each in writers) + calls

            def is_there() -> bool:
                assert manager.running or not round_.is_up.is_set(), manager.log_text()[-8000:]
                check_writers(writers)
                return sum(each.answers for each in writers) >= end

            until(f"{calls} more calls are answered", is_there)

        round_.is_up.set()
        for each in writers:
            each.thread.start()
        try:
            for _ in range(50 if FULL else 5):
                go_on(200)
                round_.is_up.clear()  # before, so that a call that breaks waits for the next start
                manager.restart()
                round_.is_up.set()
            go_on(200)
        finally:
            round_.is_over.set()
            round_.is_up.set()
            for each in writers:
                each.thread.join()
        check_writers(writers)
        check_quiet(round_, writers, folder)
        manager.restart()
        check_quiet(round_, writers, folder)


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


# ---------------------------------------------------------------------------------------------- quotas

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
            sessions = granted(start_at_once(manager, "i", [batch() for _ in range(32)]))
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
