"""Storages of `cenote manager`: plug-ins, sound and hostile; folders and Redis servers that are full, hang, are
away, or were wiped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from manager import Answer, Manager, code_of, group_message, message_of, uris_of
from node import BINARY, is_alive, preloading, until
from redis import Redis

HERE = Path(__file__).resolve().parent
SHIM = BINARY.parent / "tests" / "bin" / "libfaulty_disk.so"
FAST = ("manager.probe_interval=50ms", "manager.read_choice=first")
BLOCK = 1024


def health(manager: Manager, storage: str) -> tuple[str, str]:
    """Condition and reason of a storage."""
    for entry in manager.do("listStorage")["health"]:
        if entry["global_unique_name"] == storage:
            return entry["condition"], entry["reason"]
    raise AssertionError(f"no storage {storage}")


def finish(manager: Manager, instance: str, granted: Answer, blocks: int) -> None:
    """Ends a session: all its blocks were written, or none."""
    manager.do(
        "finishWriteCache",
        instance_id=instance,
        write_session_id=granted["write_session_id"],
        success_blocks={"offset": blocks},
    )


class Places:
    """Where new blocks of an instance go: sessions with new keys, which are given up at once."""

    def __init__(self, manager: Manager, instance: str) -> None:
        self.manager = manager
        self.instance = instance
        self.keys = count(1_000_000)

    def next(self) -> str:
        """The storage's name; else the code of the refusal."""
        answer = self.manager.call("startWriteCache", instance_id=self.instance, block_keys=[next(self.keys)])
        if code_of(answer) != "OK":
            return code_of(answer)
        finish(self.manager, self.instance, answer, 0)
        return urlsplit(uris_of(answer)[0][0]).netloc

    def await_storage(self, storage: str) -> None:
        until(f"new blocks go to {storage}", lambda: self.next() == storage)


def serve_other(manager: Manager, keys: Sequence[int]) -> None:
    """The other storage does all its work: writes, reads, deletions."""
    uris = manager.write("other", keys)
    assert manager.locations("other", keys) == uris
    manager.do("removeCache", instance_id="other", block_keys=list(keys))
    until("deletions there are done", lambda: set(manager.states("other", keys)) == {"CLS_NOT_FOUND"})


def serves_without(manager: Manager, places: Places, storage: str) -> None:
    """The storage of keys 1 and 2 of `i` is left alone, with a reason, and the other one works; key 2 is removed."""
    places.await_storage("s-other")
    condition, reason = health(manager, storage)
    assert condition == "unhealthy" and reason
    assert manager.locations("i", [1, 2]) == [[], []]
    manager.do("removeCache", instance_id="i", block_keys=[2])
    serve_other(manager, range(100))


# ---------------------------------------------------------------------------------------------- plug-ins


class PluginWorld:
    """A manager with an instance `i` whose group has a storage of a plug-in, p, and s-other behind it."""

    def __init__(self, folder: Path, *sets: str, command: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.root = folder / "objects"
        self.control = folder / "control"
        self.harm("")
        own = f"{sys.executable} {HERE / 'manager_plugin.py'} {self.control}"
        plugins = json.dumps([f"dummy={command or own}"])
        self.manager = Manager(folder / "manager", f"manager.plugins={plugins}", *FAST, *sets)
        self.places = Places(self.manager, "i")

    def harm(self, kind: str) -> None:
        new = self.control.with_suffix(".new")
        new.write_text(kind)
        new.rename(self.control)

    @contextlib.contextmanager
    def started(self) -> Iterator[Manager]:
        with self.manager as manager:
            manager.add_instance("other")
            spec = {"global_unique_name": "p", "dummy": {"root_path": str(self.root)}}
            manager.do("addStorage", storage=spec)
            group: dict[str, Any] = {"storage_candidates": ["p", "s-other"]}
            manager.do("createInstanceGroup", instance_group=group_message("i") | group)
            manager.register("i")
            yield manager

    def file(self, uri: str) -> Path:
        parts = urlsplit(uri)
        assert (parts.scheme, parts.netloc, parts.query) == ("dummy", "p", f"size={BLOCK}"), uri
        return self.root / parts.path[1:]

    def write(self, keys: Sequence[int]) -> list[Path]:
        granted = self.manager.do("startWriteCache", instance_id="i", block_keys=list(keys), write_timeout_seconds=60)
        files = [self.file(uris[0]) for uris in uris_of(granted)]
        for each in files:
            each.parent.mkdir(parents=True, exist_ok=True)
            each.write_bytes(b"x" * BLOCK)
        finish(self.manager, "i", granted, len(keys))
        return files

    def plugin_pid(self) -> int:
        """The process of the plug-in that runs now; 0: none does."""
        children: list[int] = []
        for task in Path(f"/proc/{self.manager.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children += map(int, (task / "children").read_text().split())
        return children[0] if children else 0

    def until_healthy(self) -> None:
        counter = self.control.with_suffix(".sound")
        begin = counter.stat().st_size if counter.exists() else 0
        until("the plug-in answers", lambda: counter.exists() and counter.stat().st_size > begin)
        until("the plug-in works", lambda: health(self.manager, "p") == ("healthy", ""))


def test_a_plug_in_serves_a_storage(tmp_path: Path) -> None:
    command = f"{sys.executable} -m cenote.manager_plugins.directory"
    world = PluginWorld(tmp_path, command=command)
    with world.started() as manager:
        listed = json.loads(manager.register("i")["storage_configs"])
        assert listed[0]["type"] == "dummy" and listed[0]["storage_spec"]["root_path"] == str(world.root)
        keys = [-1, 2, 1 << 62]
        files = world.write(keys)
        uris = manager.locations("i", keys)
        assert [world.file(each[0]) for each in uris] == files
        assert re.fullmatch(rf"dummy://p/i/tp0/f{{16}}-[0-9a-f]{{16}}\?size={BLOCK}", uris[0][0])
        meta = manager.do("getCacheMeta", instance_id="i", block_keys=keys)
        assert uris_of(meta) == uris
        by_backend = manager.do("getCacheLocationsByBackend", instance_id="i", block_keys=keys)
        assert [uris_of(each)[0] for each in by_backend["key_locations"]] == uris
        window = manager.do(
            "getCacheLocation", instance_id="i", query_type="QT_REVERSE_ROLL_SW_MATCH", block_keys=[9, *keys], sw_size=2
        )
        assert uris_of(window)[2:] == uris[1:]
        manager.restart()
        assert manager.locations("i", keys) == uris
        manager.do("removeCache", instance_id="i", block_keys=keys[:2])
        until("they are deleted", lambda: manager.states("i", keys)[:2] == ["CLS_NOT_FOUND"] * 2)
        assert [each.exists() for each in files] == [False, False, True]
        again = world.write(keys[:1])
        assert again[0] != files[0]
        manager.do("trimCache", instance_id="i", strategy="TS_REMOVE_ALL_CACHE")
        until("all is deleted", lambda: set(manager.states("i", keys)) == {"CLS_NOT_FOUND"})
        assert not (world.root / "i").exists()


HARMS = ["die", "hang", "exit", "garbage", "long", "wrong id", "short", "wrong type", "extra", "error"]


@pytest.mark.parametrize("harm", HARMS)
def test_a_plug_in_that_does_harm_hurts_its_storage_alone(tmp_path: Path, harm: str) -> None:
    world = PluginWorld(tmp_path, "manager.probe_timeout=300ms")
    with world.started() as manager:
        world.until_healthy()
        files = world.write([1, 2])
        uris = manager.locations("i", [1, 2])
        world.harm(harm)
        serves_without(manager, world.places, "p")
        assert manager.states("i", [1, 2]) == ["CLS_SERVING", "CLS_DELETING"]
        assert manager.figure("unhealthy_storages") == 1
        if harm != "error":
            until("its failure is counted", lambda: manager.figure("plugin_failures_total") > 0)
        world.harm("")
        world.until_healthy()
        assert manager.locations("i", [1]) == uris[:1]
        until("what was removed is gone", lambda: manager.states("i", [2]) == ["CLS_NOT_FOUND"])
        assert [each.exists() for each in files] == [True, False]
        world.places.await_storage("p")


def test_a_plug_in_that_is_stopped_is_replaced(tmp_path: Path) -> None:
    world = PluginWorld(tmp_path, "manager.probe_timeout=300ms")
    with world.started() as manager:
        world.until_healthy()
        world.write([1])
        stopped = world.plugin_pid()
        os.kill(stopped, signal.SIGSTOP)
        serve_other(manager, range(100))
        until("it is dead", lambda: not is_alive(stopped))
        until("another one runs", lambda: world.plugin_pid() not in (0, stopped))
        world.until_healthy()
        assert manager.figure("plugin_starts_total") == 2
        assert len(manager.locations("i", [1])[0]) == 1


def test_a_storage_of_a_plug_in_that_is_full_is_read_and_not_written(tmp_path: Path) -> None:
    world = PluginWorld(tmp_path)
    with world.started() as manager:
        world.until_healthy()
        world.write([1])
        world.harm("full")
        world.places.await_storage("s-other")
        assert health(manager, "p") == ("full", "")
        assert manager.locations("i", [1]) != [[]]
        world.harm("")
        world.places.await_storage("p")


@pytest.mark.parametrize("kind", ["missing", "no program"])
def test_a_program_that_cannot_be_started_is_named(tmp_path: Path, kind: str) -> None:
    program = tmp_path / "plugin"
    if kind == "no program":
        program.write_text("#!/bin/sh\n")
    world = PluginWorld(tmp_path / "world", command=str(program))
    with world.started() as manager:
        until("it is unhealthy", lambda: health(manager, "p")[0] == "unhealthy")
        assert str(program) in health(manager, "p")[1]
        assert world.places.next() == "s-other"


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_no_plug_in_outlives_its_manager(tmp_path: Path, end: str) -> None:
    world = PluginWorld(tmp_path)
    with world.started() as manager:
        world.until_healthy()
        pid = world.plugin_pid()
        assert is_alive(pid)
        world.harm("hang" if end == "stop" else "")
        if end == "kill":
            manager.kill()
        else:
            assert manager.stop() == 0
        until("it has ended", lambda: not is_alive(pid))


def test_a_storage_stays_when_its_plug_in_is_taken_away(tmp_path: Path) -> None:
    world = PluginWorld(tmp_path)
    with world.started() as manager:
        world.until_healthy()
        world.write([1])
        uris = manager.locations("i", [1])
        manager.kill()
        place = manager.command.index(next(each for each in manager.command if each.startswith("manager.plugins=")))
        with_plugins, manager.command[place] = manager.command[place], "manager.plugins=[]"
        manager.start()
        until("it is unhealthy", lambda: health(manager, "p")[0] == "unhealthy")
        assert manager.locations("i", [1]) == [[]]
        refused = manager.call("addStorage", storage={"global_unique_name": "q", "dummy": {"root_path": "/q"}})
        assert code_of(refused) == "UNSUPPORTED" and "dummy=PROGRAM" in message_of(refused)
        manager.kill()
        manager.command[place] = with_plugins
        manager.start()
        until("it is read again", lambda: manager.locations("i", [1]) == uris)


# ---------------------------------------------------------------------------------------------- folders


def test_a_mount_that_hangs_hurts_itself_alone(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    orders.touch()
    shim = [f"{name}={value}" for name, value in preloading(SHIM).items()]
    prefix = ["env", *shim, f"CENOTE_TEST_FAULTS={orders}"]
    hanging = tmp_path / "hanging"
    spec = {"nfs": {"root_path": str(hanging / "metadata" / "blocks"), "key_count_per_file": 1}}
    with Manager(tmp_path / "manager", *FAST, "manager.probe_timeout=200ms", prefix=prefix) as manager:
        manager.add_instance("other")
        manager.add_instance("i", storage=spec, group={"storage_candidates": ["s-i", "s-other"]})
        places = Places(manager, "i")
        uris = manager.write("i", [1, 2])
        orders.write_text("hanging/data metadata_hold\n")
        places.await_storage("s-other")
        assert health(manager, "s-i")[0] == "unhealthy"
        assert manager.locations("i", [1, 2]) == [[], []]
        manager.do("removeCache", instance_id="i", block_keys=[2])
        serve_other(manager, range(200))
        assert manager.states("i", [1, 2]) == ["CLS_SERVING", "CLS_DELETING"]
        manager.restart()
        assert places.next() == "s-other"  # the other one has not answered yet
        assert manager.locations("i", [1, 2]) == [[], []]
        assert health(manager, "s-i")[0] in ("unprobed", "unhealthy")
        serve_other(manager, range(200))
        orders.write_text("")
        until("it is read again", lambda: manager.locations("i", [1]) == uris[:1])
        places.await_storage("s-i")
        until("what was removed is gone", lambda: manager.states("i", [2]) == ["CLS_NOT_FOUND"])


def test_nothing_is_granted_in_a_new_storage_before_its_first_probe(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    orders.write_text("hanging/data metadata_hold\n")
    shim = [f"{name}={value}" for name, value in preloading(SHIM).items()]
    prefix = ["env", *shim, f"CENOTE_TEST_FAULTS={orders}"]
    spec = {"nfs": {"root_path": str(tmp_path / "hanging" / "metadata"), "key_count_per_file": 1}}
    with Manager(tmp_path / "manager", *FAST, "manager.probe_timeout=1h", prefix=prefix) as manager:
        begin = time.monotonic()
        manager.add_instance("i", storage=spec)
        assert time.monotonic() - begin < 10  # the answer waits for a storage that hangs, but not for long
        assert Places(manager, "i").next() == "IO_ERROR"
        assert health(manager, "s-i") == ("unprobed", "its first probe has not ended")
        assert manager.figure("unhealthy_storages") == 1
        manager.add_instance("other")
        assert Places(manager, "other").next() == "s-other"  # at once
        serve_other(manager, range(200))
        orders.write_text("")
        Places(manager, "i").await_storage("s-i")


def mounting(folder: Path, size: str) -> list[str]:
    """A prefix of commands that see a file system of `size` in `folder`. Skips the test where there is none."""
    prefix = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs "$0" && exec "$@"', str(folder)]
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"], check=False).returncode != 0:
        pytest.skip("needs the right to mount")
    return prefix


@pytest.mark.parametrize("rest", [0, 32 * 1024], ids=["no byte free", "little free"])
def test_a_storage_that_is_full_is_read_and_not_written(tmp_path: Path, rest: int) -> None:
    small = tmp_path / "small"
    small.mkdir()
    spec = {"nfs": {"root_path": str(small), "key_count_per_file": 1}}
    with Manager(tmp_path / "manager", *FAST, prefix=mounting(small, "4m")) as manager:
        manager.add_instance("other")
        manager.add_instance("i", storage=spec, group={"storage_candidates": ["s-i", "s-other"]})
        places = Places(manager, "i")
        places.await_storage("s-i")
        granted = manager.do("startWriteCache", instance_id="i", block_keys=[1])
        finish(manager, "i", granted, 1)
        filler = Path(f"/proc/{manager.pid}/root{small}/filler")  # as the manager sees it
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            for _ in range(8 << 20 >> 12):
                file.write(b"x" * 4096)
        if rest:
            os.truncate(filler, filler.stat().st_size - rest)
        places.await_storage("s-other")
        assert health(manager, "s-i") == ("full", "")
        assert manager.locations("i", [1]) == uris_of(granted)
        filler.unlink()
        places.await_storage("s-i")
        assert health(manager, "s-i") == ("healthy", "")


def test_records_of_a_storage_that_was_wiped_are_trimmed(tmp_path: Path) -> None:
    blocks = 8
    quota = {"capacity": blocks * BLOCK}
    with Manager(tmp_path / "manager", *FAST) as manager:
        folder = manager.add_instance("i", quota=quota)
        keys = list(range(blocks))
        uris = manager.write("i", keys)

        def refuses() -> bool:
            return code_of(manager.call("startWriteCache", instance_id="i", block_keys=[99])) != "OK"

        assert refuses()  # the quota is used up
        shutil.rmtree(folder)
        assert manager.locations("i", keys) == uris  # which the manager cannot see
        manager.do("trimCache", instance_id="i", strategy="TS_REMOVE_ALL_META")
        assert manager.locations("i", keys) == [[]] * blocks
        assert set(manager.states("i", keys)) == {"CLS_NOT_FOUND"}
        until("it works as a new one", lambda: health(manager, "s-i") == ("healthy", ""))
        assert manager.write("i", keys) != uris
        assert refuses()
        manager.restart()
        assert len(manager.locations("i", keys)[0]) == 1
        assert refuses()


# ---------------------------------------------------------------------------------------------- Redis servers


class RedisWorld:
    """A manager with an instance `i` whose group has a storage on a Redis server, r, and s-other behind it."""

    def __init__(self, folder: Path, redis: Redis, *sets: str) -> None:
        self.redis = redis
        self.manager = Manager(folder / "manager", *FAST, "manager.probe_timeout=300ms", *sets)
        self.places = Places(self.manager, "i")

    @contextlib.contextmanager
    def started(self) -> Iterator[Manager]:
        with self.manager as manager:
            manager.add_instance("other")
            manager.do("addStorage", storage={"global_unique_name": "r", "redis": {"url": self.redis.url}})
            group: dict[str, Any] = {"storage_candidates": ["r", "s-other"]}
            manager.do("createInstanceGroup", instance_group=group_message("i") | group)
            manager.register("i")
            yield manager

    def start(self, keys: Sequence[int], seconds: int = 60) -> Answer:
        answer = self.manager.do(
            "startWriteCache", instance_id="i", block_keys=list(keys), write_timeout_seconds=seconds
        )
        assert {urlsplit(uris[0])[:2] for uris in uris_of(answer)} == {("redis", "r")}
        return answer

    def put(self, granted: Answer, byte: bytes = b"x") -> list[str]:
        """Writes as a client does; the names of the values."""
        names = [urlsplit(uris[0]).path[1:] for uris in uris_of(granted)]
        for name in names:
            assert self.redis.ask("SET", name, byte * BLOCK) == b"+OK\r\n"
        return names

    def write(self, keys: Sequence[int]) -> list[str]:
        granted = self.start(keys)
        names = self.put(granted)
        finish(self.manager, "i", granted, len(keys))
        return names

    def has(self, name: str) -> bool:
        return self.redis.ask("EXISTS", name) == b":1\r\n"


def test_a_redis_server_serves_a_storage(tmp_path: Path, redis: Redis) -> None:
    world = RedisWorld(tmp_path, redis)
    with world.started() as manager:
        assert health(manager, "r") == ("healthy", "")
        names = world.write([1, 2, 3])
        uris = manager.locations("i", [1, 2, 3])
        assert uris == [[f"redis://r/{name}?size={BLOCK}"] for name in names]
        manager.restart()
        assert manager.locations("i", [1, 2, 3]) == uris
        manager.do("removeCache", instance_id="i", block_keys=[1, 2])
        until("they are deleted", lambda: manager.states("i", [1, 2]) == ["CLS_NOT_FOUND"] * 2)
        assert [world.has(name) for name in names] == [False, False, True]
        assert world.write([1])[0] not in names
        manager.do("trimCache", instance_id="i", strategy="TS_REMOVE_ALL_CACHE")
        until("all is deleted", lambda: redis.size() == 0)


def test_a_writer_that_is_late_on_a_redis_server_is_read_by_nobody(tmp_path: Path, redis: Redis) -> None:
    world = RedisWorld(tmp_path, redis, "manager.quarantine=2s")
    with world.started() as manager:
        late = world.start([1], seconds=1)
        until("the session is over", lambda: manager.states("i", [1]) == ["CLS_NOT_FOUND"])
        fresh = world.start([1])
        assert uris_of(fresh) != uris_of(late)
        (new,) = world.put(fresh, b"n")
        finish(manager, "i", fresh, 1)
        (old,) = world.put(late, b"o")
        message = {"instance_id": "i", "write_session_id": late["write_session_id"], "success_blocks": {"offset": 1}}
        assert code_of(manager.call("finishWriteCache", **message)) == "SESSION_NOT_FOUND"
        assert manager.locations("i", [1]) == uris_of(fresh)
        assert redis.ask("GET", new).endswith(b"n" * BLOCK + b"\r\n")
        until("the late bytes are deleted as well", lambda: not world.has(old))
        assert world.has(new) and manager.locations("i", [1]) == uris_of(fresh)


def test_a_writer_that_is_late_after_a_restart_is_deleted_after_the_quarantine_too(
    tmp_path: Path, redis: Redis
) -> None:
    """The manager dies before the first deletion; the ones after the quarantine follow from that of its successor."""
    world = RedisWorld(tmp_path, redis, "manager.quarantine=2s", "debug.enabled=true")
    with world.started() as manager:
        late = world.start([1], seconds=1)
        manager.do("injectFault", api_name="storage_removal", fault_type="FT_KILL", fault_trigger_strategy="ONCE")
        until("it dies where it would delete", lambda: not manager.running)
        manager.start()
        until("the session is over", lambda: manager.states("i", [1]) == ["CLS_NOT_FOUND"])
        (old,) = world.put(late, b"o")
        until("the late bytes are deleted", lambda: not world.has(old))
        assert manager.locations("i", [1]) == [[]]


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_redis_server_that_is_away_hurts_its_storage_alone(tmp_path: Path, redis: Redis, end: str) -> None:
    world = RedisWorld(tmp_path, redis)
    with world.started() as manager:
        names = world.write([1, 2])
        uris = manager.locations("i", [1, 2])
        (redis.kill if end == "kill" else redis.stop)()
        serves_without(manager, world.places, "r")
        manager.restart()
        assert world.places.next() == "s-other"  # it has not answered since
        assert manager.states("i", [1, 2]) == ["CLS_SERVING", "CLS_DELETING"]
        (redis.start if end == "kill" else redis.resume)()
        until("it is read again", lambda: manager.locations("i", [1]) == uris[:1])
        until("what was removed is gone", lambda: manager.states("i", [2]) == ["CLS_NOT_FOUND"])
        assert not world.has(names[1])
        world.places.await_storage("r")
        assert health(manager, "r") == ("healthy", "")


def test_a_redis_server_that_is_full_is_read_and_not_written(tmp_path: Path, redis: Redis) -> None:
    world = RedisWorld(tmp_path, redis)
    with world.started() as manager:
        world.write([1])
        uris = manager.locations("i", [1])
        used = re.search(rb"\nused_memory:(\d+)", redis.ask("INFO", "memory"))
        assert used
        redis.ask("CONFIG", "SET", "maxmemory", str(int(used[1]) * 101 // 100))
        world.places.await_storage("s-other")
        assert health(manager, "r") == ("full", "")
        assert manager.locations("i", [1]) == uris
        redis.ask("CONFIG", "SET", "maxmemory", "0")
        world.places.await_storage("r")
        assert health(manager, "r") == ("healthy", "")
