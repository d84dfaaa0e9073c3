"""`cenote manager` with accounts: logins, roles, groups, rates, the first password and client certificates."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import self_signed
from manager import ADMIN_CALLS, UNREACHABLE, Manager, code_of, group_message, instance_message
from node import LIMIT

META_SERVICE = "/kv_cache_manager.proto.meta.MetaService/"
ADMIN_SERVICE = "/kv_cache_manager.proto.admin.AdminService/"
LOCALHOST = "localhost"  # the name in the certificate of `self_signed`


@dataclass(frozen=True)
class LoginReply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return code_of(json.loads(self.body))


@dataclass(frozen=True)
class Caller:
    """An account at a manager; without a name: none."""

    manager: Manager
    name: str = ""
    password: str = ""
    security: ssl.SSLContext | None = None

    @property
    def authorization(self) -> str:
        return "Basic " + base64.b64encode(f"{self.name}:{self.password}".encode()).decode()

    def ask(self, method: str, path: str, port: int, body: bytes | None = None) -> LoginReply:
        if self.security is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        else:
            connection = http.client.HTTPSConnection(LOCALHOST, port, timeout=LIMIT, context=self.security)
        headers = {"Content-Type": "application/json"}
        if self.name:
            headers["Authorization"] = self.authorization
        try:
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            return LoginReply(reply.status, dict(reply.getheaders()), reply.read())
        finally:
            connection.close()

    def call(self, rpc: str, **fields: Any) -> LoginReply:
        port = self.manager.admin if rpc in ADMIN_CALLS else self.manager.meta
        return self.ask("POST", f"/api/{rpc}", port, json.dumps(fields).encode())

    def do(self, rpc: str, **fields: Any) -> None:
        reply = self.call(rpc, **fields)
        assert (reply.status, reply.code) == (200, "OK"), (rpc, reply)

    def call_grpc(self, method: str, message: bytes = b"") -> grpc.StatusCode:
        """The status of a call; the answer is dropped."""
        is_admin = method[0].lower() + method[1:] in ADMIN_CALLS
        port, service = (self.manager.admin_rpc, ADMIN_SERVICE) if is_admin else (self.manager.meta_rpc, META_SERVICE)
        headers = [("authorization", self.authorization)] if self.name else []
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            try:
                channel.unary_unary(service + method)(message, timeout=LIMIT, metadata=headers)
            except grpc.RpcError as refusal:
                status = refusal.code()
                assert isinstance(status, grpc.StatusCode)
                return status
        return grpc.StatusCode.OK


def password_file(manager: Manager) -> Path:
    return manager.folder / "state" / "admin.password"


def admin_of(manager: Manager) -> Caller:
    return Caller(manager, "admin", password_file(manager).read_text().strip())


def add_group(manager: Manager, admin: Caller, name: str) -> None:
    """The group g-NAME over a storage of its own."""
    nfs = {"root_path": f"{manager.root / name}/", "key_count_per_file": 8}
    admin.do("addStorage", storage={"global_unique_name": f"s-{name}", "nfs": nfs})
    admin.do("createInstanceGroup", instance_group=group_message(name))


def add_account(manager: Manager, name: str, **fields: Any) -> Caller:
    admin_of(manager).do("addAccount", user_name=name, password=f"password of {name}", **fields)
    return Caller(manager, name, f"password of {name}")


@pytest.fixture(scope="module")
def running_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with Manager(tmp_path_factory.mktemp("manager"), "manager.auth=on") as made:
        yield made


def test_a_call_without_an_account_is_refused(manager: Manager) -> None:
    for rpc in ("getCacheLocation", "startWriteCache", "listAccount", "addAccount"):
        reply = Caller(manager).call(rpc, instance_id="i", block_keys=[1])
        assert (reply.status, reply.code) == (401, "PERMISSION_DENIED")
        assert reply.headers["WWW-Authenticate"].startswith("Basic realm=")
    assert Caller(manager).ask("GET", "/metrics", manager.admin).status == 401
    assert Caller(manager).ask("GET", "/api/listAccount", manager.admin).status == 405
    assert Caller(manager).ask("POST", "/api/unknown", manager.admin).status == 404


def test_pages_and_calls_about_health_are_open(manager: Manager) -> None:
    assert Caller(manager).call("getClusterInfo").status == 200
    Caller(manager).do("checkHealth")
    assert Caller(manager).ask("GET", "/healthz", manager.admin).body == b"ok\n"


def test_a_right_password_lets_in_and_a_wrong_one_does_not(manager: Manager) -> None:
    admin = admin_of(manager)
    admin.do("listAccount")
    admin.do("listAccount")
    assert admin.ask("GET", "/metrics", manager.admin).status == 200
    wrong = Caller(manager, "admin", "wrong").call("listAccount")
    assert (wrong.status, wrong.code) == (401, "PERMISSION_DENIED")
    assert admin.password.encode() not in wrong.body


def test_a_user_is_no_admin(manager: Manager) -> None:
    user = add_account(manager, "user")
    refused = user.call("listAccount")
    assert (refused.status, refused.code) == (403, "PERMISSION_DENIED")
    assert user.ask("GET", "/metrics", manager.admin).status == 403
    assert user.call("getCacheLocation", instance_id="absent", block_keys=[1]).code == "INSTANCE_NOT_EXIST"


def test_an_account_of_a_group_sees_nothing_of_another(manager: Manager) -> None:
    admin = admin_of(manager)
    for name in ("one", "two"):
        add_group(manager, admin, name)
    one = add_account(manager, "team-one", groups=["g-one"])
    two = add_account(manager, "team-two", groups=["g-two"])
    one.do("registerInstance", **instance_message("one"))
    assert two.call("registerInstance", **instance_message("three", group="g-one")).code == "NOT_FOUND"
    questions: dict[str, dict[str, Any]] = {
        "getInstanceInfo": {},
        "getCacheLocation": {"block_keys": [1]},
        "getCacheLocationLen": {"block_keys": [1]},
        "getCacheMeta": {"block_keys": [1]},
        "startWriteCache": {"block_keys": [1]},
        "removeCache": {"block_keys": [1]},
        "trimCache": {"strategy": "TS_REMOVE_ALL_CACHE"},
    }
    for rpc, fields in questions.items():
        assert two.call(rpc, instance_id="one", **fields).code == "INSTANCE_NOT_EXIST", rpc
        absent = json.loads(two.call(rpc, instance_id="none", **fields).body)
        hidden = json.loads(two.call(rpc, instance_id="one", **fields).body)
        assert json.dumps(hidden["header"]["status"]) == json.dumps(absent["header"]["status"]).replace("none", "one")
        one.do(rpc, instance_id="one", **fields)


def test_an_admin_that_is_bound_to_groups_sees_and_changes_these_alone(manager: Manager) -> None:
    admin = admin_of(manager)
    for name in ("mine", "theirs"):
        add_group(manager, admin, name)
        admin.do("registerInstance", **instance_message(name))
    bound = add_account(manager, "bound-admin", role="ROLE_ADMIN", groups=["g-mine"])

    def listed(rpc: str, field: str, name: str, **fields: Any) -> set[str]:
        return {each[name] for each in json.loads(bound.call(rpc, **fields).body)[field]}

    assert listed("listInstanceGroup", "instance_group", "name") == {"g-mine"}
    assert listed("listInstanceInfo", "instance_info", "instance_id") == {"mine"}
    assert listed("listInstanceInfo", "instance_info", "instance_id", instance_group_name="g-theirs") == set()
    bound.do("getInstanceGroup", name="g-mine")
    refused: dict[tuple[str, str], dict[str, Any]] = {
        ("getInstanceGroup", "NOT_FOUND"): {"name": "g-theirs"},
        ("removeInstanceGroup", "NOT_FOUND"): {"name": "g-theirs"},
        ("updateInstanceGroup", "NOT_FOUND"): {
            "instance_group": group_message("theirs") | {"version": 2},
            "current_version": 1,
        },
        ("createInstanceGroup", "PERMISSION_DENIED"): {"instance_group": group_message("mine") | {"name": "g-further"}},
        ("removeInstance", "INSTANCE_NOT_EXIST"): {"instance_group": "g-theirs", "instance_id": "theirs"},
        ("getCacheMeta", "INSTANCE_NOT_EXIST"): {"instance_id": "theirs", "block_keys": [1]},
    }
    for (rpc, code), fields in refused.items():
        assert bound.call(rpc, **fields).code == code, rpc
    for rpc, code in (("getInstanceInfo", "INSTANCE_NOT_EXIST"), ("registerInstance", "NOT_FOUND")):
        message = {"instance_id": "theirs"} if rpc == "getInstanceInfo" else instance_message("new", group="g-theirs")
        reply = bound.ask("POST", f"/api/{rpc}", manager.admin, json.dumps(message).encode())
        assert reply.code == code, rpc
    bound.do("updateInstanceGroup", instance_group=group_message("mine") | {"version": 2}, current_version=1)
    bound.do("removeInstance", instance_group="g-mine", instance_id="mine")
    assert {"g-mine", "g-theirs"} <= {
        each["name"] for each in json.loads(admin.call("listInstanceGroup").body)["instance_group"]
    }


def test_an_account_that_is_added_again_is_the_same(manager: Manager) -> None:
    admin = admin_of(manager)
    fields: dict[str, Any] = {"user_name": "twice", "password": "secret of both", "groups": ["g"]}
    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(lambda _: admin.call("addAccount", **fields).code, range(8)))
    assert codes == ["OK"] * 8
    other = admin.call("addAccount", **fields | {"password": "another"})
    assert (
        other.code == "DUPLICATE_ENTITY" and b"another password" in other.body and b"secret of both" not in other.body
    )
    assert admin.call("addAccount", **fields | {"groups": []}).code == "DUPLICATE_ENTITY"


def test_an_account_that_is_deleted_is_refused_at_once(manager: Manager) -> None:
    leaver = add_account(manager, "leaver")
    assert leaver.call("getCacheLocation", instance_id="absent", block_keys=[1]).status == 200
    admin_of(manager).do("deleteAccount", user_name="leaver")
    assert leaver.call("getCacheLocation", instance_id="absent", block_keys=[1]).status == 401


def test_grpc_has_the_same_rules(manager: Manager) -> None:
    admin, user = admin_of(manager), add_account(manager, "grpc-user")
    assert Caller(manager).call_grpc("ListAccount") == grpc.StatusCode.UNAUTHENTICATED
    assert Caller(manager).call_grpc("GetCacheLocation") == grpc.StatusCode.UNAUTHENTICATED
    assert Caller(manager).call_grpc("CheckHealth") == grpc.StatusCode.OK
    assert Caller(manager).call_grpc("GetClusterInfo") == grpc.StatusCode.OK
    assert Caller(manager, "admin", "wrong").call_grpc("ListAccount") == grpc.StatusCode.UNAUTHENTICATED
    assert admin.call_grpc("ListAccount") == grpc.StatusCode.OK
    assert user.call_grpc("ListAccount") == grpc.StatusCode.PERMISSION_DENIED
    assert user.call_grpc("GetCacheLocation") == grpc.StatusCode.OK


def test_bad_text_of_a_client_writes_no_line_of_a_library(manager: Manager) -> None:
    bad_trace = b"\x0a\x02\xff\xfe"
    admin_of(manager).call_grpc("ListAccount", bad_trace)
    admin_of(manager).call_grpc("GetInstanceInfo", bad_trace + b"\x12\x02\xff\xfe")
    for line in manager.log_text().splitlines():
        json.loads(line)


def test_the_first_start_makes_an_admin_with_a_password_in_a_file(tmp_path: Path) -> None:
    with Manager(tmp_path, "manager.auth=on") as manager:
        path = password_file(manager)
        admin = admin_of(manager)
        admin.do("listAccount")
        assert path.stat().st_mode & 0o7777 == 0o600
        lines = [each for each in manager.log_lines() if each.get("password_file") == str(path)]
        assert len(lines) == 1
        manager.restart()
        assert admin_of(manager) == admin
        admin.do("listAccount")
        assert admin.password not in manager.log_text()
        snapshot = admin.call("genConfigSnapshot")
        assert b"admin" in snapshot.body and admin.password.encode() not in snapshot.body


def test_without_accounts_every_caller_is_let_in_and_no_password_is_made(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:
        Caller(manager).do("listAccount")
        Caller(manager, "stranger", "x").do("listAccount")
        assert not password_file(manager).exists()


def test_ten_wrong_passwords_close_an_address_but_not_to_logins_that_were_right(tmp_path: Path) -> None:
    with Manager(tmp_path, "manager.auth=on") as manager:
        user = add_account(manager, "user")
        for attempt in range(10):
            assert Caller(manager, "admin", f"guess {attempt}").call("listAccount").status == 401
        for closed in (Caller(manager, "admin", "another guess"), user):
            refused = closed.call("getCacheLocation", instance_id="i", block_keys=[1])
            assert (refused.status, refused.code) == (429, "RATE_LIMITED")
            assert 1 <= int(refused.headers["Retry-After"]) <= 60
            assert closed.call_grpc("GetCacheLocation") == grpc.StatusCode.RESOURCE_EXHAUSTED
        admin_of(manager).do("listAccount")


def test_an_account_above_its_rate_of_keys_waits_and_no_other(tmp_path: Path) -> None:
    with Manager(tmp_path, "manager.auth=on", "manager.rate_keys=1") as manager:
        heavy, light = add_account(manager, "heavy"), add_account(manager, "light")
        heavy.do("registerInstance", **instance_message("i", group="default"))
        heavy.do("getCacheLocation", instance_id="i", block_keys=list(range(10_000)))
        refused = heavy.call("getCacheLocation", instance_id="i", block_keys=[1])
        assert (refused.status, refused.code) == (429, "RATE_LIMITED")
        assert int(refused.headers["Retry-After"]) > 1_000
        assert heavy.call_grpc("GetCacheLocation") == grpc.StatusCode.RESOURCE_EXHAUSTED
        light.do("getCacheLocation", instance_id="i", block_keys=[1])


class MutualManager(Manager):
    """One that asks its clients for certificates."""

    security: ssl.SSLContext

    def _is_healthy(self) -> bool:
        assert self.running, self.log_text()[-4000:]
        try:
            return bool(json.loads(Caller(self, security=self.security).call("checkHealth").body)["is_health"])
        except UNREACHABLE:
            return False


def test_a_client_certificate_stands_for_the_account_of_its_name(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    files = (f"manager.tls_cert={certificate}", f"manager.tls_key={key}", f"manager.tls_client_ca={certificate}")
    made = MutualManager(tmp_path / "manager", "manager.auth=on", *files)
    made.security = ssl.create_default_context(cafile=str(certificate))
    made.security.load_cert_chain(certificate, key)
    with made as manager:
        stranger = Caller(manager, security=made.security)
        assert stranger.call("listAccount").status == 401
        admin = Caller(manager, "admin", password_file(manager).read_text().strip(), made.security)
        admin.do("addAccount", user_name=LOCALHOST, password="of no use", role="ROLE_USER")
        assert stranger.call("listAccount").status == 403
        assert stranger.call("getCacheLocation", instance_id="i", block_keys=[1]).code == "INSTANCE_NOT_EXIST"
        credentials = grpc.ssl_channel_credentials(certificate.read_bytes(), key.read_bytes(), certificate.read_bytes())
        with grpc.secure_channel(f"{LOCALHOST}:{manager.meta_rpc}", credentials) as channel:
            channel.unary_unary(META_SERVICE + "GetCacheLocation")(b"", timeout=LIMIT)
        with grpc.secure_channel(f"{LOCALHOST}:{manager.admin_rpc}", credentials) as channel:
            with pytest.raises(grpc.RpcError) as refusal:
                channel.unary_unary(ADMIN_SERVICE + "ListAccount")(b"", timeout=LIMIT)
            assert refusal.value.code() == grpc.StatusCode.PERMISSION_DENIED
