"""Threads that write, read and remove blocks of a manager that goes away, each beside a model of what was answered."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manager import UNREACHABLE, Answer, FilePart, Manager, code_of, mask_of, uris_of
from node import until

SPECS = (("a", 512), ("b", 768))
KEYS = 120  # of a writer
TIMEOUT = 1  # seconds of a write session
TOLERANCE = 0.5  # seconds by which a deadline may be early


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
    evicts: bool = False  # what was served may go
    is_up: threading.Event = field(default_factory=threading.Event)
    is_over: threading.Event = field(default_factory=threading.Event)


class Writer:
    """A thread that writes, reads and removes keys of its own, beside a model of what was answered. `trims`: one step
    of so many trims the instance, which then has no other writer. 0: none."""

    def __init__(self, round_: Round, instance: str, number: int, seed: int, trims: int = 0) -> None:
        self.round = round_
        self.instance = instance
        self.trims = trims
        self.dice = random.Random(seed * 64 + number)
        self.keys = range(number * 1_000_000, number * 1_000_000 + KEYS)
        self.outcomes: dict[int, Outcomes] = {key: {ABSENT} for key in self.keys}
        self.open_keys: set[int] = set()  # that a session may still have which this writer has lost
        self.granted: list[str] = []  # addresses
        self.late_paths: set[Path] = set()  # written when the session may have been over
        self.faults: list[str] = []
        self.answers = 0
        self.stamps = 0
        self.broke_at = 0.0  # the time at which the last call without an answer ended
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        steps = (self.write, self.write, self.read, self.remove)
        try:
            while not self.round.is_over.is_set() and not self.faults:
                is_trim = self.trims != 0 and self.dice.randrange(self.trims) == 0
                (self.trim if is_trim else self.dice.choice(steps))()
        except Exception as error:  # a thread's error must reach the test
            self.faults.append(repr(error))

    def call(self, rpc: str, expected: str = "OK", **fields: Any) -> Answer | None:
        """The answer; nothing: the manager went away meanwhile, and is back."""
        try:
            answer = self.round.manager.call(rpc, instance_id=self.instance, **fields)
        except UNREACHABLE:
            self.broke_at = time.monotonic()
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
            if ABSENT not in self.outcomes[key] and not self.round.evicts:
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

        def ask() -> Answer | None:
            codes = "OK SESSION_NOT_FOUND"
            return self.call("finishWriteCache", codes, write_session_id=session, success_blocks=success)

        answer, end = ask(), 0.0
        if answer is None and self.dice.random() < 0.5:  # it is asked again, and may have been done before
            answer, end = ask(), self.broke_at
        if answer is None:
            self.open_keys |= set(attempts)
        elif code_of(answer) == "SESSION_NOT_FOUND":
            age = (end or time.monotonic()) - begin
            is_gone = not any(is_success and key not in removed for key, is_success in zip(attempts, mask, strict=True))
            if age < TIMEOUT - TOLERANCE and not (end and (is_gone or self.round.evicts)):
                self.faults.append(f"a session of {age:.2f} s is over: {answer}")
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
            elif attempt not in self.outcomes[key] and not self.round.evicts:
                self.faults.append(f"key {key} is lost: {self.outcomes[key]}")
            elif attempt is not None and not attempt.is_intact() and not self.is_evicted(key, attempt):
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

    def is_evicted(self, key: int, attempt: Attempt) -> bool:
        """Whether it has gone since, where that may be: its bytes went while they were read."""
        if not self.round.evicts:
            return False
        answer = self.call("getCacheLocation", query_type="QT_BATCH_GET", block_keys=[key])
        return answer is None or tuple(uris_of(answer)[0]) != attempt.uris

    def trim(self) -> None:
        answer = self.call("trimCache", strategy="TS_REMOVE_ALL_CACHE")
        for key in self.keys:
            self.outcomes[key] = {ABSENT} if answer is not None else self.outcomes[key] | {ABSENT}

    def give_up(self) -> None:
        """Removes what sessions are still writing that no client has."""
        keys = list(self.keys)
        states = zip(keys, self.round.manager.states(self.instance, keys), strict=True)
        writing = [key for key, state in states if state == "CLS_WRITING"]
        if writing:
            self.round.manager.do("removeCache", instance_id=self.instance, block_keys=writing)

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


def go_on(round_: Round, writers: list[Writer], calls: int) -> None:
    """Waits for so many more answers."""
    end = sum(each.answers for each in writers) + calls

    def is_there() -> bool:
        assert round_.manager.running or not round_.is_up.is_set(), round_.manager.log_text()[-8000:]
        check_writers(writers)
        return sum(each.answers for each in writers) >= end

    until(f"{calls} more calls are answered", is_there)


@contextlib.contextmanager
def writers_at_work(round_: Round, writers: list[Writer]) -> Iterator[None]:
    """The writers run meanwhile; afterwards they have found no fault."""
    round_.is_up.set()
    for each in writers:
        each.thread.start()
    try:
        yield
    finally:
        round_.is_over.set()
        round_.is_up.set()
        for each in writers:
            each.thread.join()
    check_writers(writers)


def states_of_all(manager: Manager, writers: list[Writer]) -> dict[int, str]:
    states: dict[int, str] = {}
    for each in writers:
        states |= zip(each.keys, manager.states(each.instance, list(each.keys)), strict=True)
    return states


def charged_bytes(manager: Manager) -> int:
    """Bytes that are charged to the groups, as of the last second."""
    status = json.loads(manager.ask(manager.admin, "GET", "/status").body)
    return sum(int(group["used_bytes"]) for group in status["groups"])


def check_quiet(round_: Round, writers: list[Writer], folder: Path) -> set[int]:
    """Nothing is under way any more, and what is served is right and all that there is. Returns the keys served."""
    manager = round_.manager

    def is_quiet() -> bool:
        return set(states_of_all(manager, writers).values()) <= {"CLS_SERVING", "CLS_NOT_FOUND"}

    until("no key is being written or deleted", is_quiet, pause=0.1)
    served = set().union(*[each.check(list(each.keys)) for each in writers])
    check_writers(writers)
    states = states_of_all(manager, writers)
    assert served == {key for key, state in states.items() if state == "CLS_SERVING"}
    addresses = [uri for each in writers for uri in each.granted]
    assert len(addresses) == len(set(addresses)), "an address was granted twice"
    late = set().union(*[each.late_paths for each in writers])
    expected = set().union(*[each.served_parts() for each in writers])
    found = {path: parts for path, parts in parts_on_disk(folder, dict(SPECS)).items() if path not in late}
    assert found.keys() == {path for path, _ in expected if path not in late}
    assert {(path, offset) for path, parts in found.items() for offset in parts} == {
        (path, offset) for path, offset in expected if path not in late
    }
    charged = len(served) * sum(size for _, size in SPECS)
    until(f"{charged} bytes are charged", lambda: charged_bytes(manager) == charged)
    return served
