"""`cenote admin` beside a real manager: each verb, its errors, exit codes, JSON, accounts, snapshots."""

from __future__ import annotations

import base64
import json
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from certificates import self_signed
from manager import Manager, group_message, instance_message
from node import BINARY, LIMIT, free_port, node_environment, run_cenote, until

DONE, FAILED, USAGE = 0, 1, 2


@dataclass(frozen=True)
class Output:
    """The end of a command."""

    code: int
    text: str
    error: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Admin:
    """`cenote admin` with options of one manager."""

    options: tuple[str, ...]

    def run(self, *words: str, text: str = "") -> Output:
        place = words.index("--") if "--" in words else len(words)
        command = [str(BINARY), "admin", *words[:place], *self.options, *words[place:]]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=LIMIT, env=node_environment(), check=False
        )
        return Output(done.returncode, done.stdout, done.stderr)

    def do(self, *words: str, text: str = "") -> str:
        """The output of a command that must work."""
        output = self.run(*words, text=text)
        assert output.code == DONE, (words, output)
        assert not output.error, (words, output)
        return output.text

    def json(self, *words: str, text: str = "") -> Any:
        place = words.index("--") if "--" in words else len(words)
        return json.loads(self.do(*words[:place], "--json", *words[place:], text=text))

    def refused(self, *words: str, code: int = FAILED, text: str = "") -> str:
        """The complaint of a command that must not work."""
        output = self.run(*words, text=text)
        assert output.code == code, (words, output)
        assert output.error.startswith("cenote: "), output
        assert output.error.count("\n") == 1, output
        return output.error


def admin_of(manager: Manager, *options: str) -> Admin:
    return Admin(("--manager", f"127.0.0.1:{manager.admin_rpc}", *options))


@pytest.fixture(scope="module")
def running_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with Manager(tmp_path_factory.mktemp("manager"), "manager.bootstrap=none") as made:
        yield made


@pytest.fixture
def admin(manager: Manager) -> Admin:
    return admin_of(manager)


def storage_message(manager: Manager, name: str, **fields: Any) -> dict[str, Any]:
    nfs = {"root_path": f"{manager.root / name}/", "key_count_per_file": 8}
    return {"global_unique_name": f"s-{name}", "nfs": nfs, "capacity": 1 << 30} | fields


def add_all(admin: Admin, manager: Manager, name: str) -> None:
    """A storage s-NAME, a group g-NAME and an instance NAME."""
    admin.do("storage", "add", "-", text=json.dumps(storage_message(manager, name)))
    admin.do("group", "add", "-", text=json.dumps(group_message(name)))
    admin.do("instance", "add", "-", text=json.dumps(instance_message(name)))


def rows_of(text: str) -> dict[str, list[str]]:
    """The rows of a table by their first cell; cells are apart by two blanks or more."""
    cells = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]
    return {row[0]: row[1:] for row in cells if row}


def test_a_storage_goes_through_its_life(admin: Admin, manager: Manager, tmp_path: Path) -> None:
    file = tmp_path / "storage.json"
    message = storage_message(manager, "life")
    file.write_text(json.dumps(message))
    assert admin.do("storage", "add", str(file)) == "storage s-life is there\n"
    admin.do("storage", "add", str(file))
    assert "DUPLICATE_ENTITY" in admin.refused("storage", "add", "-", text=json.dumps(message | {"capacity": 7}))
    row = rows_of(admin.do("storage", "list"))["s-life"]
    assert (row[0], row[2], row[-1]) == ("nfs", "1.0 GiB", "enabled")
    shown = admin.json("storage", "show", "s-life")
    assert shown["capacity"] == str(1 << 30)
    assert shown in admin.json("storage", "list")
    assert rows_of(admin.do("storage", "show", "s-life"))["nfs.key_count_per_file"] == ["8"]

    assert admin.json("storage", "update", "-", text=json.dumps(shown | {"capacity": 1 << 20}))["code"] == "OK"
    assert admin.json("storage", "show", "s-life")["capacity"] == str(1 << 20)
    admin.do("storage", "disable", "s-life")
    assert rows_of(admin.do("storage", "list"))["s-life"][-1] == "disabled"
    assert admin.json("storage", "show", "s-life")["is_disabled"] is True
    admin.do("storage", "enable", "s-life")
    assert rows_of(admin.do("storage", "list"))["s-life"][-1] == "enabled"
    admin.do("storage", "remove", "s-life")
    assert "s-life" not in rows_of(admin.do("storage", "list"))
    assert "there is no storage" in admin.refused("storage", "show", "s-life")
    for verb in ("enable", "disable", "remove"):
        assert "NOT_FOUND" in admin.refused("storage", verb, "s-life")


def test_a_group_is_replaced_by_the_version_that_was_read(admin: Admin, manager: Manager, tmp_path: Path) -> None:
    add_all(admin, manager, "turn")
    first = admin.json("group", "show", "g-turn")
    assert first in admin.json("group", "list")
    file = tmp_path / "group.json"
    file.write_text(json.dumps(first | {"max_instance_count": 3}))
    assert "version 2" in admin.do("group", "update", str(file))
    assert admin.json("group", "show", "g-turn")["max_instance_count"] == "3"
    assert "VERSION_CONFLICT" in admin.refused("group", "update", str(file))
    row = rows_of(admin.do("group", "list"))["g-turn"]
    assert row[:4] == ["s-turn", "1.0 GiB", "1000000", "3"]


def test_reclaim_is_paused_and_goes_on(admin: Admin, manager: Manager) -> None:
    add_all(admin, manager, "pause")
    for _ in range(2):
        admin.do("group", "pause", "g-pause")
        group = admin.json("group", "show", "g-pause")
        assert (group["reclaim_paused"], group["version"]) == (True, "2")
        assert "paused" in rows_of(admin.do("group", "list"))["g-pause"]
    admin.do("group", "resume", "g-pause")
    group = admin.json("group", "show", "g-pause")
    assert (group["reclaim_paused"], group["version"]) == (False, "3")
    assert "NOT_FOUND" in admin.refused("group", "pause", "absent")


def test_what_is_in_use_stays(admin: Admin, manager: Manager) -> None:
    add_all(admin, manager, "use")
    assert "IN_USE" in admin.refused("storage", "remove", "s-use")
    assert "IN_USE" in admin.refused("group", "remove", "g-use")
    admin.do("instance", "remove", "use")
    admin.do("group", "remove", "g-use")
    admin.do("storage", "remove", "s-use", "--force")


def test_an_instance_is_added_shown_and_removed(admin: Admin, manager: Manager) -> None:
    add_all(admin, manager, "one")
    add_all(admin, manager, "two")
    listed = [each["instance_id"] for each in admin.json("instance", "list")]
    assert {"one", "two"} <= set(listed)
    assert [each["instance_id"] for each in admin.json("instance", "list", "--group", "g-two")] == ["two"]
    assert rows_of(admin.do("instance", "list"))["one"] == ["g-one", "m", "bf16", "64", "tp0 1.0 KiB"]
    assert admin.json("instance", "show", "one")["block_size"] == 64
    changed = instance_message("one") | {"block_size": 65}
    assert "DUPLICATE_ENTITY" in admin.refused("instance", "add", "-", text=json.dumps(changed))
    assert "INSTANCE_NOT_EXIST" in admin.refused("instance", "remove", "one", "--group", "g-two")
    admin.do("instance", "remove", "one", "--group", "g-one")
    assert "INSTANCE_NOT_EXIST" in admin.refused("instance", "show", "one")


def test_states_of_blocks_are_shown_and_blocks_removed(admin: Admin, manager: Manager) -> None:
    add_all(admin, manager, "blocks")
    uris = manager.write("blocks", [1, 2, 3, -4])
    rows = rows_of(admin.do("cache", "meta", "blocks", "1", "9"))
    assert rows["1"] == ["CLS_SERVING", "1", uris[0][0]]
    assert rows["9"][:2] == ["CLS_NOT_FOUND", "0"]
    metas = admin.json("cache", "meta", "blocks", "--", "2", "-4")["metas"]
    assert [json.loads(each)["status"] for each in metas] == ["CLS_SERVING"] * 2
    bytes_of_two = (2).to_bytes(16, "little").hex()
    assert rows_of(admin.do("cache", "meta", "blocks", bytes_of_two, "--bytes"))[bytes_of_two][0] == "CLS_SERVING"

    admin.do("cache", "remove", "blocks", "1", "2")
    assert [bool(each) for each in manager.locations("blocks", [1, 2, 3])] == [False, False, True]
    admin.do("cache", "trim", "blocks", "--since", "0", "--until", "1")
    assert manager.locations("blocks", [3])[0]
    admin.do("cache", "trim", "blocks", "--all")
    assert manager.locations("blocks", [3, -4]) == [[], []]
    manager.write("blocks", [5])
    admin.do("cache", "trim", "blocks", "--records", "--meta", f"127.0.0.1:{manager.meta_rpc}")
    assert manager.locations("blocks", [5]) == [[]]


def test_keys_and_trims_that_cannot_be_are_usage_errors(admin: Admin) -> None:
    for words in (
        ("cache", "meta", "i", "x"),
        ("cache", "meta", "i", "9223372036854775808"),
        ("cache", "remove", "i", "1", "--bytes"),
        ("cache", "trim", "i"),
        ("cache", "trim", "i", "--all", "--records"),
        ("cache", "trim", "i", "--all", "--since", "1"),
    ):
        admin.refused(*words, code=USAGE)
    assert "INSTANCE_NOT_EXIST" in admin.refused("cache", "trim", "absent", "--all")
    assert "INSTANCE_NOT_EXIST" in admin.refused("cache", "meta", "absent", "1")


def test_leadership_is_shown(admin: Admin, manager: Manager) -> None:
    text = admin.do("leader", "show")
    assert f"admin {manager.admin_rpc} (gRPC)" in text
    assert "it leads, healthy" in text
    shown = admin.json("leader", "show")
    assert shown["cluster"]["leader_endpoint"]["admin_rpc_port"] == manager.admin_rpc
    assert shown["health"]["is_leader"] is True
    assert "UNSUPPORTED" in admin.refused("leader", "demote")


def test_a_snapshot_goes_to_another_manager_and_a_dry_run_changes_nothing(
    admin: Admin, manager: Manager, tmp_path: Path
) -> None:
    add_all(admin, manager, "snap")
    file = tmp_path / "registry.json"
    admin.do("snapshot", "save", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(admin.do("snapshot", "save", "-")) == json.loads(file.read_text())
    with Manager(tmp_path / "other", "manager.bootstrap=none") as other:
        target = admin_of(other)
        assert "s-snap" in target.do("snapshot", "load", str(file), "--dry-run")
        assert target.json("storage", "list") == target.json("group", "list") == target.json("instance", "list") == []
        assert target.json("snapshot", "load", str(file))["code"] == "OK"
        for family in ("storage", "group", "instance"):
            assert target.json(family, "list") == admin.json(family, "list")
        assert "INVALID_ARGUMENT" in target.refused("snapshot", "load", "-", code=USAGE, text="{}x")
        target.refused("snapshot", "load", str(tmp_path / "absent"), code=USAGE)


def test_levels_of_a_running_manager_change(admin: Admin) -> None:
    assert admin.do("log-level", "debug").startswith("the manager logs at debug")
    admin.do("log-level", "warn", "manager")
    admin.do("log-level", "info")
    assert "INVALID_ARGUMENT" in admin.refused("log-level", "loud", code=USAGE)


def usage_of(admin: Admin, name: str) -> list[str]:
    """The words behind a group or storage in the part about what is used."""
    used = admin.do("status").partition("\nused\n")[2]
    return next((line.split()[1:] for line in used.splitlines() if line.split()[:1] == [name]), [])


def test_the_status_has_all_that_the_manager_shows(admin: Admin, manager: Manager) -> None:
    add_all(admin, manager, "whole")
    text = admin.do("status")
    for part in ("leader ", "it leads, healthy", "1 in g-whole", "s-whole", "g-whole", "sessions"):
        assert part in text
    manager.write("whole", [1, 2])
    until("what is used is shown", lambda: usage_of(admin, "g-whole")[:2] == ["2.0", "KiB"])
    assert usage_of(admin, "s-whole")[-3:] == ["healthy", "0", "0"]
    status = admin.json("status")
    assert {"cluster", "health", "groups", "instances", "storages", "metrics"} == set(status)
    assert "whole" in [each["instance_id"] for each in status["instances"]]


def test_what_is_watched_through_a_pipe_has_no_escapes_of_a_terminal(manager: Manager) -> None:
    command = [str(BINARY), "admin", "status", "--watch", "--manager", f"127.0.0.1:{manager.admin_rpc}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=node_environment()) as watcher:
        assert watcher.stdout is not None
        first = watcher.stdout.readline()
        watcher.send_signal(signal.SIGINT)
        assert "\x1b" not in first + watcher.stdout.read()
        assert watcher.wait(LIMIT) == DONE


def test_a_status_is_watched_until_it_is_interrupted(manager: Manager) -> None:
    command = [str(BINARY), "admin", "status", "--watch", "--json", "--manager", f"127.0.0.1:{manager.admin_rpc}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=node_environment()) as watcher:
        assert watcher.stdout is not None
        lines = [json.loads(watcher.stdout.readline()) for _ in range(2)]
        assert all(line["health"]["is_health"] for line in lines)
        watcher.send_signal(signal.SIGINT)
        watcher.stdout.read()
        assert watcher.wait(LIMIT) == DONE


def test_the_default_address_is_that_of_the_configuration(manager: Manager) -> None:
    own = Admin(("--set", f"manager.admin_rpc_port={manager.admin_rpc}"))
    own.do("storage", "list")
    off = Admin(("--set", "manager.admin_rpc_port=0"))
    assert "--manager" in off.refused("storage", "list", code=USAGE)


def test_a_manager_that_is_away_makes_room_for_the_next_one(manager: Manager) -> None:
    addresses = f"127.0.0.1:{free_port()},127.0.0.1:{manager.admin_rpc}"
    Admin(("--manager", addresses)).do("storage", "list")
    lonely = Admin(("--manager", f"127.0.0.1:{free_port()}"))
    assert "no manager can be reached" in lonely.refused("storage", "list")
    assert "no manager can be reached" in lonely.refused("storage", "remove", "s")


def test_a_change_at_a_port_of_another_service_is_refused(manager: Manager) -> None:
    wrong = Admin(("--manager", f"127.0.0.1:{manager.meta_rpc}"))
    assert "this port has no such call" in wrong.refused("storage", "list")


@pytest.mark.parametrize(
    "words",
    [
        ("storage", "show"),
        ("storage", "unknown"),
        ("storage",),
        ("storage", "list", "--unknown"),
        ("account", "add", "a"),
        ("account", "add", "a", "--new-password-file", "-", "--role", "king"),
        ("storage", "add", "/absent/file"),
        ("log-level",),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(admin: Admin, words: Sequence[str]) -> None:
    admin.refused(*words, code=USAGE)


def test_addresses_and_entities_that_cannot_be_read_are_usage_errors(admin: Admin) -> None:
    for addresses in (",", "x", "x:0", "x:1,", "x:1,,y:2"):
        Admin(("--manager", addresses)).refused("storage", "list", code=USAGE)
    for text in ("", "[]", "{", '{"nfs": 1}', '{"capacity": "many"}'):
        admin.refused("storage", "add", "-", code=USAGE, text=text)
    assert "INVALID_ARGUMENT" in admin.refused("storage", "add", "-", code=USAGE, text="{}")


def test_help_names_all_families(admin: Admin) -> None:
    done = subprocess.run([str(BINARY), "admin", "--help"], capture_output=True, text=True, check=True, timeout=LIMIT)
    families = ("status", "storage", "group", "instance", "account", "cache", "leader", "snapshot", "log-level")
    assert all(family in done.stdout for family in families)
    alone = subprocess.run([str(BINARY), "admin"], capture_output=True, text=True, check=False, timeout=LIMIT)
    assert alone.returncode == USAGE


# ---- accounts


@pytest.fixture(scope="module")
def closed_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with Manager(tmp_path_factory.mktemp("closed"), "manager.auth=on") as made:
        yield made


def private(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def test_accounts_are_needed_made_and_removed(closed_manager: Manager, tmp_path: Path) -> None:
    first_password = str(closed_manager.folder / "state" / "admin.password")
    admin = admin_of(closed_manager, "--password-file", first_password)
    assert "PERMISSION_DENIED" in admin_of(closed_manager).refused("storage", "list")
    admin.do("storage", "list")

    admin.do("account", "add", "team", "--new-password-file", "-", "--group", "default", text="secret of team\n")
    admin.do("account", "add", "team", "--new-password-file", "-", "--group", "default", text="secret of team\n")
    assert "DUPLICATE" in admin.refused("account", "add", "team", "--new-password-file", "-", text="another\n")
    second = private(tmp_path / "second", "secret of the second\n")
    admin.do("account", "add", "second", "--new-password-file", second, "--role", "admin")
    rows = rows_of(admin.do("account", "list"))
    assert rows == {"NAME": ["ROLE", "GROUPS"], "admin": ["admin", "all"], "second": ["admin", "all"]} | {
        "team": ["user", "default"]
    }
    assert admin.json("account", "show", "team") == {"user_name": "team", "role": "ROLE_USER", "groups": ["default"]}

    admin_of(closed_manager, "--account", "second", "--password-file", second).do("storage", "list")
    team = private(tmp_path / "team", "secret of team")
    assert "PERMISSION_DENIED" in admin_of(closed_manager, "--account", "team", "--password-file", team).refused(
        "storage", "list"
    )
    wrong = admin_of(closed_manager, "--account", "second", "--password-file", private(tmp_path / "wrong", "wrong"))
    assert "PERMISSION_DENIED" in wrong.refused("storage", "list")

    admin.do("account", "remove", "team")
    assert "there is no account" in admin.refused("account", "show", "team")
    assert "NOT_FOUND" in admin.refused("account", "remove", "team")


def test_a_password_comes_from_a_private_file_alone(closed_manager: Manager, tmp_path: Path) -> None:
    open_file = tmp_path / "open"
    open_file.write_text("secret")
    open_file.chmod(0o644)
    admin_of(closed_manager, "--password-file", str(open_file)).refused("storage", "list")
    admin_of(closed_manager, "--password-file", str(tmp_path / "absent")).refused("storage", "list")
    admin_of(closed_manager, "--account", "admin").refused("storage", "list", code=USAGE)
    password = (closed_manager.folder / "state" / "admin.password").read_text().strip()
    output = admin_of(closed_manager, "--password-file", str(closed_manager.folder / "state" / "admin.password")).run(
        "status"
    )
    assert output.code == DONE
    for secret in (password, base64.b64encode(f"admin:{password}".encode()).decode()):
        assert secret not in output.text + output.error + closed_manager.log_text()


class SecureManager(Manager):
    """One that speaks TLS and takes certificates of clients."""

    authority: tuple[str, ...] = ()
    certificate: tuple[str, ...] = ()

    def client(self, *options: str) -> Admin:
        return Admin(("--manager", f"localhost:{self.admin_rpc}", *self.authority, *options))

    @property
    def password(self) -> tuple[str, ...]:
        return "--password-file", str(self.folder / "state" / "admin.password"), *self.certificate

    def _is_healthy(self) -> bool:
        assert self.running, self.log_text()[-4000:]
        output = self.client(*self.password).run("leader", "show", "--json")
        return output.code == DONE and bool(output.json["health"]["is_health"])


def test_a_manager_with_tls_is_asked_with_its_authority(tmp_path: Path) -> None:
    certificate, key = map(str, self_signed(tmp_path))
    files = (f"manager.tls_cert={certificate}", f"manager.tls_key={key}", f"manager.tls_client_ca={certificate}")
    made = SecureManager(tmp_path / "manager", "manager.auth=on", *files)
    made.authority = ("--ca", certificate)
    made.certificate = ("--cert", certificate, "--key", key)
    with made:
        assert "PERMISSION_DENIED" in made.client(*made.certificate).refused("storage", "list")
        made.client(*made.password).do(
            "account", "add", "localhost", "--new-password-file", "-", "--role", "admin", text="of no use"
        )
        made.client(*made.certificate).do("storage", "list")
        made.client("--cert", certificate).refused("storage", "list", code=USAGE)
        made.client("--cert", key, "--key", certificate).refused("storage", "list")
        plain = Admin(("--manager", f"localhost:{made.admin_rpc}", *made.password[:2]))
        for stranger in (made.client(), plain):
            assert "no manager can be reached" in stranger.refused("storage", "list")


def test_a_manager_begins_with_a_snapshot_of_another_one(tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    with Manager(tmp_path / "first") as first:
        first.add_instance("i", quota={"capacity": 12_345})
        first.do("disableStorage", storage_unique_name="local_01")
        ended = run_cenote("admin", "snapshot", "save", str(saved), "--manager", f"127.0.0.1:{first.admin_rpc}")
        assert ended.returncode == 0, ended.stderr
        snapshot = first.do("genConfigSnapshot")["config_snapshot"]
    with Manager(tmp_path / "second", f"manager.bootstrap={saved}") as second:
        assert json.loads(second.do("genConfigSnapshot")["config_snapshot"]) == json.loads(snapshot)
        second.write("i", [1, 2])
        second.do("updateInstanceGroup", instance_group=group_message("i") | {"version": 2}, current_version=1)
        changed = second.do("genConfigSnapshot")["config_snapshot"]
        second.restart()  # it is not empty any more
        assert second.do("genConfigSnapshot")["config_snapshot"] == changed
    broken = Manager(tmp_path / "third", f"manager.bootstrap={tmp_path / 'none.json'}")
    broken.launch()
    assert broken.process is not None and broken.process.wait(LIMIT) != 0
    assert "manager.bootstrap" in broken.log_text()


def test_a_manager_sends_others_to_the_host_that_it_is_told(tmp_path: Path) -> None:
    for sets, host in (
        ((), "127.0.0.1"),
        (("manager.advertise=cache.example",), "cache.example"),
        (("manager.host=0.0.0.0", "manager.trusted_network=true", "manager.auth=off"), ""),
    ):
        with Manager(tmp_path / str(len(sets)), *sets) as manager:
            for rpc in ("getClusterInfo", "getManagerClusterInfo"):
                found = manager.do(rpc)["leader_endpoint"]["host"]
                assert found == host if host else found not in ("", "0.0.0.0"), rpc
            if not host:
                assert manager.ask(manager.admin, "GET", "/healthz").status == 200
                with socket.create_connection((found, manager.meta), timeout=LIMIT):
                    pass
