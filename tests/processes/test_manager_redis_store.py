"""`cenote manager` with its journal on a real Redis server: kills, a server that stops, is full or is an older copy."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import self_signed
from manager import UNREACHABLE, Answer, FilePart, Manager, code_of, mask_of, uris_of, write_parts
from manager_cases import Case, CaseFile, Player
from manager_history import History
from node import BINARY, UNREACHED, free_ports, node_environment, until
from redis import Redis, SecuredRedis

CASES = CaseFile.load()
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
PREFIX = "cenote:manager:cenote"
NOT_DONE = ("IO_ERROR", "SERVICE_NOT_READY")


@pytest.fixture
def store() -> Iterator[Redis]:
    """A server that has all that it answered after a kill."""
    server = Redis(*DURABLE)
    yield server
    server.close()


def settings_of(store: Redis, *extra: str) -> tuple[str, ...]:
    return (f"manager.store={store.url}", "manager.store_timeout=500ms", *extra)


def epoch_of(store: Redis) -> int:
    text = store.ask("GET", f"{PREFIX}:epoch").split(b"\r\n")[1]
    return int(text.split(b":")[1])


def metrics_of(manager: Manager) -> bytes:
    return manager.ask(manager.admin, "GET", "/metrics").body


def begin(manager: Manager, keys: list[int], seconds: int = 60) -> Answer:
    return manager.call("startWriteCache", instance_id="i", block_keys=keys, write_timeout_seconds=seconds)


def finish(manager: Manager, granted: Answer, count: int) -> str:
    session, success = granted["write_session_id"], {"offset": count}
    return code_of(manager.call("finishWriteCache", instance_id="i", write_session_id=session, success_blocks=success))


def check_served(manager: Manager, key: int, uris: list[str], byte: int) -> None:
    assert manager.locations("i", [key]) == [uris]
    part = FilePart.parse(uris[0])
    assert part.read() == bytes([byte]) * part.size


# ---------------------------------------------------------------------------------------------- the whole life


@pytest.fixture(scope="module")
def running_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    server = Redis()
    with Manager(tmp_path_factory.mktemp("manager"), "manager.read_choice=first", *settings_of(server)) as made:
        yield made
    server.close()


@pytest.mark.parametrize("case", CASES.playable(), ids=lambda case: f"{case['id']} {case['title']}")
def test_a_case_of_the_contract_is_answered(running_manager: Manager, tmp_path: Path, case: Case) -> None:
    Player(running_manager, tmp_path, CASES.macros).play(case)


def test_a_random_history_goes_on_after_kills(running_manager: Manager) -> None:
    with History(running_manager, 17) as history:
        for _ in range(5):
            history.play(150)
            history.restart()
        history.play(150)


def test_what_was_answered_outlives_a_kill_of_both(tmp_path: Path, store: Redis) -> None:
    with Manager(tmp_path / "manager", *settings_of(store)) as manager:
        manager.add_instance("i")
        (uris,) = manager.write("i", [1], byte=7)
        open_session = begin(manager, [2])
        epoch = epoch_of(store)
        manager.kill()
        store.kill()
        store.start()
        manager.start()
        assert epoch_of(store) > epoch
        check_served(manager, 1, uris, 7)
        write_parts(uris_of(open_session), 8)
        assert finish(manager, open_session, 1) == "OK"
        check_served(manager, 2, uris_of(open_session)[0], 8)
        manager.do("removeCache", instance_id="i", block_keys=[1])
        manager.restart()
        assert manager.locations("i", [1]) == [[]]
        until("it is gone", lambda: manager.states("i", [1]) == ["CLS_NOT_FOUND"])


def test_sessions_of_the_most_keys_are_read_again(tmp_path: Path, store: Redis) -> None:
    keys = [number << 40 for number in range(65_536)]
    with Manager(tmp_path / "manager", f"manager.store={store.url}", "manager.store_timeout=30s") as manager:
        manager.add_instance("i", specs=[("tp0", 8)], blocks_per_file=1 << 16)
        granted = begin(manager, keys)
        assert code_of(granted) == "OK" and len(granted["locations"]) == len(keys)
        assert finish(manager, granted, len(keys)) == "OK"
        manager.restart()
        assert manager.locations("i", keys[::4096]) == uris_of(granted)[::4096]
        manager.do("removeInstance", instance_group="g-i", instance_id="i")
        until("its rows are gone", lambda: store.ask("EXISTS", f"{PREFIX}:extents", f"{PREFIX}:masks") == b":0\r\n")


# ---------------------------------------------------------------------------------------------- a server that fails


def test_nothing_is_granted_while_the_server_is_away(tmp_path: Path, store: Redis) -> None:
    with Manager(tmp_path / "manager", *settings_of(store)) as manager:
        manager.add_instance("i")
        (uris,) = manager.write("i", [1], byte=7)
        open_session = begin(manager, [2])
        epoch = epoch_of(store)
        store.kill()
        assert code_of(begin(manager, [3])) == "IO_ERROR"
        assert code_of(manager.call("removeCache", instance_id="i", block_keys=[1])) in NOT_DONE
        assert finish(manager, open_session, 1) in NOT_DONE
        check_served(manager, 1, uris, 7)
        assert manager.locations("i", [2, 3]) == [[], []]
        store.start()
        until("it takes sessions again", lambda: code_of(begin(manager, [4])) == "OK")
        assert epoch_of(store) > epoch
        check_served(manager, 1, uris, 7)
        assert manager.states("i", [2, 3]) == ["CLS_WRITING", "CLS_NOT_FOUND"]
        write_parts(uris_of(open_session), 9)
        assert finish(manager, open_session, 1) == "OK"
        check_served(manager, 2, uris_of(open_session)[0], 9)


def test_a_connection_that_is_cut_costs_no_request(tmp_path: Path, store: Redis) -> None:
    with Manager(tmp_path / "manager", *settings_of(store)) as manager:
        manager.add_instance("i")
        epoch = epoch_of(store)
        for key in range(1, 4):
            store.ask("CLIENT", "KILL", "TYPE", "normal")
            manager.write("i", [key])
        assert all(manager.locations("i", [1, 2, 3]))
        assert epoch_of(store) == epoch


def test_a_manager_waits_for_a_server_that_comes_later(tmp_path: Path, store: Redis) -> None:
    manager = Manager(tmp_path / "manager", *settings_of(store))
    store.kill()
    thread = threading.Thread(target=manager.start)
    thread.start()
    until("it asks for the server", lambda: "the journal cannot be read" in manager.log_text())

    def code() -> str:
        with contextlib.suppress(*UNREACHABLE):  # it may not listen yet
            return code_of(manager.call("getCacheLocation", instance_id="i", block_keys=[1]))
        return ""

    assert until("it answers", code) == "SERVICE_NOT_READY"
    store.start()
    thread.join()
    assert manager.call("checkHealth")["is_health"]
    manager.finish()


def test_a_server_that_stands_still_costs_the_timeout_and_its_late_batch_is_no_grant(
    tmp_path: Path, store: Redis
) -> None:
    with Manager(tmp_path / "manager", *settings_of(store)) as manager:
        manager.add_instance("i")
        (uris,) = manager.write("i", [1], byte=7)
        store.stop()
        assert code_of(begin(manager, [2], seconds=1)) == "IO_ERROR"
        check_served(manager, 1, uris, 7)
        assert manager.locations("i", [2]) == [[]]
        store.resume()
        until("it takes sessions again", lambda: code_of(begin(manager, [4])) == "OK")
        assert manager.locations("i", [2]) == [[]]
        check_served(manager, 1, uris, 7)

        def is_granted() -> bool:  # the late session, if it is one, ends at its deadline
            return mask_of(begin(manager, [2], seconds=300), 1) == [False]

        until("the key is granted", is_granted)
        manager.restart()
        assert manager.states("i", [1, 2]) == ["CLS_SERVING", "CLS_WRITING"]


def test_a_finish_without_an_answer_may_be_asked_again(tmp_path: Path, store: Redis) -> None:
    with Manager(tmp_path / "manager", *settings_of(store)) as manager:
        manager.add_instance("i")
        granted = begin(manager, [1])
        write_parts(uris_of(granted), 5)
        store.stop()
        assert finish(manager, granted, 1) == "IO_ERROR"
        assert manager.locations("i", [1]) == [[]]
        store.resume()
        until("it takes sessions again", lambda: code_of(begin(manager, [4])) == "OK")
        assert finish(manager, granted, 1) == "OK"
        check_served(manager, 1, uris_of(granted)[0], 5)


def test_a_manager_ends_while_the_server_stands_still(tmp_path: Path, store: Redis) -> None:
    with Manager(tmp_path / "manager", f"manager.store={store.url}", "manager.store_timeout=1m") as manager:
        manager.add_instance("i")
        before = manager.figure("journal_batches_total")
        store.stop()

        def ask() -> None:
            with contextlib.suppress(*UNREACHABLE):  # the manager may end before it answers
                begin(manager, [1])

        asked = threading.Thread(target=ask)
        asked.start()
        until("its batch is under way", lambda: manager.figure("journal_batches_total") > before)
        assert manager.stop() == 0
        asked.join()
        store.resume()


def test_a_full_server_takes_nothing_and_is_used_again_when_there_is_room(tmp_path: Path) -> None:
    store = Redis("--maxmemory-policy", "noeviction")
    with Manager(tmp_path / "manager", *settings_of(store)) as manager:
        manager.add_instance("i")
        (uris,) = manager.write("i", [1], byte=7)
        open_session = begin(manager, [2])
        store.ask("CONFIG", "SET", "maxmemory", "1")
        assert code_of(begin(manager, [3])) == "IO_ERROR"
        assert finish(manager, open_session, 1) in NOT_DONE
        check_served(manager, 1, uris, 7)
        assert manager.locations("i", [2, 3]) == [[], []]
        store.ask("CONFIG", "SET", "maxmemory", "0")
        until("it takes sessions again", lambda: code_of(begin(manager, [4])) == "OK")
        assert manager.states("i", [1, 2, 3]) == ["CLS_SERVING", "CLS_WRITING", "CLS_NOT_FOUND"]
        assert finish(manager, open_session, 1) == "OK"
    store.close()


# ---------------------------------------------------------------------------------------------- other copies, others


@pytest.mark.parametrize("loss", ["a batch", "an epoch"])
def test_a_replica_without_the_last_writes_is_recovered_from(tmp_path: Path, loss: str) -> None:
    (port,) = free_ports(1)
    primary, replica = Redis("--port", str(port)), Redis()
    place = tmp_path / "redis.sock"  # what the operator turns to the replica
    place.symlink_to(primary.socket)
    with Manager(tmp_path / "manager", f"manager.store=unix://{place}") as manager:
        manager.add_instance("i")
        (first,) = manager.write("i", [1], byte=7)
        replica.ask("REPLICAOF", "127.0.0.1", str(port))
        epoch_text = primary.ask("GET", f"{PREFIX}:epoch")
        until("the replica has all", lambda: replica.ask("GET", f"{PREFIX}:epoch") == epoch_text)
        replica.ask("REPLICAOF", "NO", "ONE")
        if loss == "a batch":
            manager.write("i", [2], byte=8)
        else:
            manager.restart()
        epoch = epoch_of(primary)
        place.unlink()
        place.symlink_to(replica.socket)
        primary.kill()
        assert code_of(begin(manager, [3])) == "IO_ERROR"  # the connection is gone
        until("it takes sessions again", lambda: code_of(begin(manager, [4])) == "OK")
        assert epoch_of(replica) > epoch
        check_served(manager, 1, first, 7)
        assert manager.locations("i", [2]) == [[]]
        granted = begin(manager, [2])
        assert mask_of(granted, 1) == [False]
        assert not any(FilePart.parse(uris_of(granted)[0][0]).read())
        write_parts(uris_of(granted), 9)
        assert finish(manager, granted, 1) == "OK"
        manager.restart()
        check_served(manager, 2, uris_of(granted)[0], 9)
    primary.close()
    replica.close()


@pytest.mark.parametrize("loss", ["a batch", "an epoch"])
def test_a_write_to_an_older_copy_is_refused(tmp_path: Path, store: Redis, loss: str) -> None:
    """The copy takes the server's place behind one connection: the next write alone shows it."""
    with Manager(tmp_path / "manager", *settings_of(store)) as manager:
        manager.add_instance("i")
        before = store.ask("GET", f"{PREFIX}:epoch").split(b"\r\n")[1]
        if loss == "a batch":
            manager.write("i", [2], byte=8)
        else:
            manager.restart()
        epoch = epoch_of(store)
        store.ask("SET", f"{PREFIX}:epoch", before)
        assert code_of(begin(manager, [3])) == "IO_ERROR"
        until("it takes sessions again", lambda: code_of(begin(manager, [4])) == "OK")
        assert epoch_of(store) > epoch
        assert manager.states("i", [3]) == ["CLS_NOT_FOUND"]
        assert "has another epoch" in manager.log_text()


def test_two_managers_of_one_id_never_grant_the_same_key(tmp_path: Path, store: Redis) -> None:
    with Manager(tmp_path / "one", *settings_of(store)) as one:
        one.add_instance("i")
        with Manager(tmp_path / "two", *settings_of(store)) as two:
            granted = begin(two, [1])
            assert mask_of(granted, 1) == [False]
            assert code_of(begin(one, [1])) == "IO_ERROR"
            until("it has recovered", lambda: code_of(begin(one, [2])) == "OK")
            assert mask_of(begin(one, [1]), 1) == [True]
            with Manager(tmp_path / "three", *settings_of(store, "manager.id=other")) as three:
                three.add_instance("i")
                assert mask_of(begin(three, [1]), 1) == [False]


def test_rows_of_others_are_skipped_and_counted(tmp_path: Path, store: Redis) -> None:
    with Manager(tmp_path / "manager", *settings_of(store)) as manager:
        manager.add_instance("i")
        (uris,) = manager.write("i", [1], byte=7)
        manager.write("i", [2])
        manager.kill()
        fields = [(b"", b""), (b"x", b"y" * 100_000), (b"\0" * 16, b"\xff" * 30), (b"s/x", b"of another version")]
        for kind in ("extents", "masks", "registry"):
            for field, value in fields:
                store.ask("HSET", f"{PREFIX}:{kind}", field, value)
        store.ask("SET", f"{PREFIX}:else", "x")
        manager.start()
        check_served(manager, 1, uris, 7)
        assert b"cenote_manager_damaged_rows_total 9" in metrics_of(manager)  # names of no kind of registry row pass


def test_a_key_of_another_type_is_named_and_nothing_is_made_anew(tmp_path: Path, store: Redis) -> None:
    manager = Manager(tmp_path / "manager", *settings_of(store))
    store.ask("SET", f"{PREFIX}:extents", "x")
    thread = threading.Thread(target=manager.start)
    thread.start()
    until("it is named", lambda: f"{PREFIX}:extents is a string" in manager.log_text())
    assert store.ask("DBSIZE") == b":1\r\n"
    store.ask("DEL", f"{PREFIX}:extents")
    thread.join()
    manager.finish()


# ---------------------------------------------------------------------------------------------- settings


def test_a_password_is_read_from_a_file_and_shown_nowhere(tmp_path: Path) -> None:
    store = Redis()
    secret = tmp_path / "secret"
    secret.write_text("worker:hush-hush\n")
    secret.chmod(0o600)
    rights = ["~cenote:manager:*", "+eval", "+evalsha", "+script|load", "+get", "+set", "+type", "+hset", "+hdel"]
    store.ask("ACL", "SETUSER", "worker", "on", ">hush-hush", *rights, "+hscan", "+ping", "+multi", "+exec")
    store.ask("ACL", "SETUSER", "default", "off")
    extra = (f"manager.store_auth_file={secret}", "log.level=debug")
    with Manager(tmp_path / "manager", *settings_of(store, *extra)) as manager:
        manager.add_instance("i")
        manager.write("i", [1])
        manager.restart()
        shown = metrics_of(manager).decode() + manager.log_text()
        assert "hush-hush" not in shown
    store.close()


def test_a_store_is_written_and_read_through_tls(tmp_path: Path) -> None:
    store = SecuredRedis(self_signed(tmp_path), *DURABLE, clients="yes")
    own = f"{store.url}&cert={store.identity.certificate}&key={store.identity.key}"
    with Manager(tmp_path / "manager", f"manager.store={own}") as manager:
        manager.add_instance("i")
        manager.write("i", [1])
        kept = manager.locations("i", [1])
        manager.restart()
        assert manager.locations("i", [1]) == kept
    store.close()


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        (["manager.store=redis://me:hush@host"], "a password does not belong into an address"),
        (["manager.store=rediss://me:hush@host"], "a password does not belong into an address"),
        (["manager.store=rediss://host?ca=relative"], "absolute paths"),
        (["manager.store=redis://host?ca=/ca.pem"], "are for TLS"),
        (["manager.store=http://me:hush@host"], "manager.store"),
        (["manager.store=redis://host:hush"], "manager.store"),
        (["manager.store=redis://a,b"], "one server"),
        (["manager.store=unix://relative"], "begins with /"),
        (["manager.store=redis://host?other=1"], "prefix, db and user"),
        (["manager.store=redis://host", "manager.id=a b"], "manager.id"),
        (["manager.store=redis://host", "manager.store_auth_file=/nowhere"], "manager.store_auth_file"),
        (["manager.store_auth_file=/nowhere"], "manager.store_auth_file"),
        (["manager.store_timeout=0s"], "manager.store_timeout"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_store_that_cannot_be_right_is_named_without_its_password(sets: list[str], named: str) -> None:
    command = [str(BINARY), "manager", "check", *(word for each in sets for word in ("--set", each))]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=node_environment(), timeout=UNREACHED
    )
    assert done.returncode == 2, done
    assert named in done.stderr, done.stderr
    assert "me:hush" not in done.stderr and "@host" not in done.stderr, done.stderr
