"""`cenote manager` with faults that its DebugService injects: kills at each point of its work, and failures there."""

from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from manager import UNREACHABLE, FilePart, Manager, code_of, message_of, uris_of, write_parts
from manager_wire import WireClient
from manager_writers import SPECS, Round, Writer, check_quiet, check_writers, go_on, writers_at_work
from node import FULL, LIMIT, until
from redis import Redis

DEBUG = "debug.enabled=true"
KILLS = 100 if FULL else 5  # a point
REDIS_KILLS = 100 if FULL else 3
BLOCK = sum(size for _, size in SPECS)
# Passings of a point until a kill, at most: about those of a second of the writers' work.
MOST_PASSINGS = {"start": 80, "finish": 80, "remove": 80, "trim": 12, "reclaim": 20, "deletion": 80, "storage": 150}
WORK_POINTS = [
    *(f"{work}_{side}" for work in MOST_PASSINGS if work != "storage" for side in ("batch", "written")),
    "storage_removal",
    "storage_removed",
]
RECOVERY_POINTS = ["recovery_registry", "recovery_extents", "recovery_view"]
# With the journal on a Redis server what is done to rows is the same, and each batch costs a way to it and back: CI
# takes a point of each kind of work, and of what a recovery passes.
REDIS_POINTS = ["start_written", "finish_batch", "remove_written", "trim_batch", "deletion_written", "recovery_extents"]
# A level of bytes that the writers of a kill at reclaim come to.
LEVEL = {
    "reclaim_policy": "POLICY_LRU",
    "trigger_strategy": {"used_percentage": 3.0, "used_size": 100 * BLOCK},
    "reclaim_step_size": 5 * BLOCK,
    "delay_before_delete_ms": 50,
}


def make_round(manager: Manager, point: str, seed: int) -> tuple[Round, list[Writer], Path]:
    """Four writers with an instance each, in one group."""
    evicts = point.startswith("reclaim")
    group = {"cache_config": {"reclaim_strategy": LEVEL, "meta_indexer_config": {"max_key_count": 1000}}}
    folder = manager.add_instance("i", specs=SPECS, blocks_per_file=4, group=group if evicts else None)
    round_ = Round(manager, evicts=evicts)
    writers = []
    for number in range(4):
        manager.register(f"i{number}", SPECS, group="g-i")
        writers.append(Writer(round_, f"i{number}", number, seed, trims=8 if point.startswith("trim") else 60))
    return round_, writers, folder


def wait_for_kill(manager: Manager, writers: list[Writer], point: str) -> None:
    def is_dead() -> bool:
        check_writers(writers)
        return not manager.running

    until(f"it passes {point}", is_dead, limit=2 * LIMIT)
    assert manager.process is not None and manager.process.returncode == -signal.SIGKILL


def kill_at_work(round_: Round, writers: list[Writer], point: str, dice: random.Random) -> None:
    passing = dice.randint(1, MOST_PASSINGS[point.partition("_")[0]])
    round_.is_up.clear()
    with contextlib.suppress(*UNREACHABLE):
        round_.manager.do(
            "injectFault", api_name=point, fault_type="FT_KILL", fault_trigger_strategy="ONCE", trigger_at_call=passing
        )
    wait_for_kill(round_.manager, writers, point)


def kill_at_recovery(round_: Round, writers: list[Writer], point: str, dice: random.Random) -> None:
    go_on(round_, writers, dice.randint(1, 100))
    round_.is_up.clear()
    round_.manager.kill()
    round_.manager.launch(f"debug.kill_at=['{point}']")
    wait_for_kill(round_.manager, writers, point)


def play_kills(folder: Path, point: str, kills: int, *sets: str) -> None:
    """Kills a manager so often at a point under its writers, and compares with what was answered."""
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}")
    dice = random.Random(seed)
    with Manager(folder, DEBUG, *sets) as manager:
        round_, writers, folder = make_round(manager, point, seed)
        kill = kill_at_recovery if point in RECOVERY_POINTS else kill_at_work
        with writers_at_work(round_, writers):
            for _ in range(kills):
                kill(round_, writers, point, dice)
                manager.start()
                round_.is_up.set()
        if not FULL and point != "start_written":  # else sessions without a client come to their deadline
            for each in writers:
                each.give_up()
        check_quiet(round_, writers, folder)


@pytest.mark.parametrize("point", [*WORK_POINTS, *RECOVERY_POINTS])
def test_a_kill_at_any_point_loses_nothing_that_was_answered(tmp_path: Path, point: str) -> None:
    play_kills(tmp_path / "manager", point, KILLS)


@pytest.mark.parametrize("point", [*WORK_POINTS, *RECOVERY_POINTS] if FULL else REDIS_POINTS)
def test_a_kill_at_any_point_loses_nothing_on_a_redis_server(tmp_path: Path, point: str) -> None:
    with contextlib.closing(Redis()) as store:
        play_kills(tmp_path / "manager", point, REDIS_KILLS, f"manager.store={store.url}")


def test_every_point_is_in_the_matrix(tmp_path: Path) -> None:
    with Manager(tmp_path, DEBUG) as manager:
        answer = manager.call("injectFault", api_name="nothing")
        assert code_of(answer) == "INVALID_ARGUMENT"
        names = message_of(answer).rpartition("one of ")[2].split("|")
        assert sorted(names) == sorted([*WORK_POINTS, *RECOVERY_POINTS])
    assert set(REDIS_POINTS) <= set(names)


# ---------------------------------------------------------------------------------------------- failures

FAILING = ["start", "finish", "remove", "trim"]
CALLS = {
    "start": "startWriteCache",
    "finish": "finishWriteCache",
    "remove": "removeCache",
    "trim": "trimCache",
}


@pytest.mark.parametrize("side", ["batch", "written"])
@pytest.mark.parametrize("work", FAILING)
def test_a_batch_that_fails_is_refused_and_can_be_asked_again(tmp_path: Path, work: str, side: str) -> None:
    with Manager(tmp_path, DEBUG) as manager:
        manager.add_instance("i", specs=SPECS)
        kept = manager.write("i", [1])
        granted = manager.do("startWriteCache", instance_id="i", block_keys=[2], write_timeout_seconds=60)
        for uri in uris_of(granted)[0]:
            part = FilePart.parse(uri)
            part.write(b"\x01" * part.size)
        session = granted["write_session_id"]
        fields: dict[str, dict[str, object]] = {
            "start": {"block_keys": [3]},
            "finish": {"write_session_id": session, "success_blocks": {"offset": 1}},
            "remove": {"block_keys": [1]},
            "trim": {"strategy": "TS_REMOVE_ALL_CACHE"},
        }
        manager.do("injectFault", api_name=f"{work}_{side}", fault_trigger_strategy="ONCE")
        refused = manager.call(CALLS[work], instance_id="i", **fields[work])
        assert code_of(refused) == "IO_ERROR", refused
        assert "fault was injected" in message_of(refused)
        until("it has recovered", lambda: bool(manager.call("checkHealth").get("is_health")))
        again = manager.do(CALLS[work], instance_id="i", **fields[work])
        if work == "start":  # a grant whose answer was lost is given up at its deadline
            assert bool(again["locations"]) == (side == "batch")
        expected = {"start": [kept[0], []], "finish": [kept[0], uris_of(granted)[0]]}
        assert manager.locations("i", [1, 2]) == expected.get(work, [[], []])


def test_a_deletion_that_fails_is_done_again(tmp_path: Path) -> None:
    with Manager(tmp_path, DEBUG) as manager:
        manager.add_instance("i", specs=SPECS)
        (uris,) = manager.write("i", [1])
        manager.do("injectFault", api_name="storage_removal", fault_trigger_strategy="ONCE")
        manager.do("removeCache", instance_id="i", block_keys=[1])
        until("it is gone", lambda: manager.states("i", [1]) == ["CLS_NOT_FOUND"])
        assert not any(FilePart.parse(uri).path.exists() for uri in uris)
        assert "cenote_manager_failed_deletions 1" in manager.ask(manager.admin, "GET", "/metrics").body.decode()


def test_a_failed_recovery_is_tried_again(tmp_path: Path) -> None:
    with Manager(tmp_path, DEBUG) as manager:
        manager.add_instance("i", specs=SPECS)
        kept = manager.write("i", [1])
        for point in RECOVERY_POINTS:
            manager.do("injectFault", api_name=point, fault_trigger_strategy="ONCE")
            manager.do("injectFault", api_name="remove_batch", fault_trigger_strategy="ONCE")
            assert code_of(manager.call("removeCache", instance_id="i", block_keys=[1])) == "IO_ERROR"
            until("it has recovered", lambda: bool(manager.call("checkHealth").get("is_health")))
            assert manager.locations("i", [1]) == kept


def test_a_finish_after_a_restart_is_known_again(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:
        manager.add_instance("i", specs=SPECS)
        granted = manager.do("startWriteCache", instance_id="i", block_keys=[1, 2, 3], write_timeout_seconds=60)
        fields = {"instance_id": "i", "write_session_id": granted["write_session_id"]}
        success = {"bool_masks": {"values": [True, False, True]}}
        manager.do("finishWriteCache", success_blocks=success, **fields)
        manager.restart()
        manager.do("finishWriteCache", success_blocks=success, **fields)
        other = manager.call("finishWriteCache", success_blocks={"offset": 3}, **fields)
        assert code_of(other) == "INVALID_ARGUMENT", other
        assert manager.locations("i", [1, 2, 3]) == [uris_of(granted)[0], [], uris_of(granted)[2]]


def test_a_finish_whose_blocks_all_failed_is_known_after_a_restart(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:
        folder = manager.add_instance("i", specs=SPECS)
        granted = manager.do("startWriteCache", instance_id="i", block_keys=[1, 2], write_timeout_seconds=60)
        write_parts(uris_of(granted), 1)
        fields = {"instance_id": "i", "write_session_id": granted["write_session_id"]}
        manager.do("finishWriteCache", success_blocks={"offset": 0}, **fields)
        until("all is gone", lambda: set(manager.states("i", [1, 2])) == {"CLS_NOT_FOUND"})
        for _ in range(2):
            manager.restart()
            manager.do("finishWriteCache", success_blocks={"bool_masks": {"values": [False, False]}}, **fields)
            other = manager.call("finishWriteCache", success_blocks={"offset": 1}, **fields)
            assert code_of(other) == "INVALID_ARGUMENT", other
        assert not (folder / "i").exists()
        check_again = manager.write("i", [1, 2])
        assert manager.locations("i", [1, 2]) == check_again


# ---------------------------------------------------------------------------------------------- calls of DebugService


def test_faults_of_calls_come_at_their_passing_and_go_when_they_are_removed(tmp_path: Path) -> None:
    with Manager(tmp_path, DEBUG) as manager:
        manager.add_instance("i", specs=SPECS)

        def codes(count: int) -> list[str]:
            calls = [manager.call("getCacheLocation", instance_id="i", block_keys=[1]) for _ in range(count)]
            return [code_of(each) for each in calls]

        bad, good = "INTERNAL_ERROR", "OK"
        once = {"api_name": "GetCacheLocation", "fault_trigger_strategy": "ONCE"}
        manager.do("injectFault", **once, trigger_at_call=2)
        assert codes(4) == [good, bad, good, good]
        manager.do("injectFault", **once)
        assert codes(2) == [bad, good]
        manager.do("injectFault", api_name="GetCacheLocation")
        assert codes(3) == [bad, bad, bad]
        assert code_of(manager.call("getCacheLocationLen", instance_id="i", block_keys=[1])) == good
        wire = WireClient(manager.meta_rpc, manager.admin_rpc)
        assert code_of(wire.call("GetCacheLocation", instance_id="i", block_keys=[1])) == bad
        wire.close()
        manager.do("removeFault", api_name="GetCacheLocation")
        assert codes(1) == [good]
        manager.do("injectFault", api_name="GetCacheLocation")
        manager.do("clearFaults")
        assert codes(1) == [good]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"api_name": "GetNothing"}, "GetCacheLocation|start_batch"),
        ({"api_name": ""}, "start_batch"),
        ({"api_name": "ClearFaults"}, "start_batch"),
        ({"api_name": "start_batch", "fault_type": 7}, "fault_type"),
        ({"api_name": "start_batch", "fault_trigger_strategy": 9}, "fault_trigger_strategy"),
        ({"api_name": "start_batch", "trigger_at_call": -1}, "trigger_at_call"),
    ],
)
def test_a_fault_that_is_wrong_is_refused_with_the_reason(
    debug_manager: Manager, fields: dict[str, object], reason: str
) -> None:
    answer = debug_manager.call("injectFault", **fields)
    assert code_of(answer) == "INVALID_ARGUMENT", answer
    assert any(each in message_of(answer) for each in reason.split("|")), answer


@pytest.fixture(scope="module")
def debug_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    manager = Manager(tmp_path_factory.mktemp("manager"), DEBUG)
    with manager:
        yield manager


def test_no_fault_can_be_injected_without_the_key(tmp_path: Path) -> None:
    with Manager(tmp_path, "debug.kill_at=['recovery_view']") as manager:
        for rpc in ("injectFault", "removeFault", "clearFaults"):
            answer = manager.call(rpc, api_name="GetCacheLocation")
            assert code_of(answer) == "UNSUPPORTED" and "debug.enabled" in message_of(answer), answer


def test_a_manager_does_not_start_with_a_kill_at_no_point(tmp_path: Path) -> None:
    manager = Manager(tmp_path, DEBUG)
    manager.launch("debug.kill_at=['start_bach']")
    assert manager.process is not None and manager.process.wait(LIMIT) == 2
    assert "start_batch" in manager.log_text()
