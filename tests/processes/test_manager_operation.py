"""Pages, metrics and traces of `cenote manager`, for operators."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import lru_model
import pytest
from manager import Manager, code_of
from manager_wire import WireClient
from node import ROOT, run_cenote, until


def test_figures_of_groups_storages_and_calls_stand_on_every_page(tmp_path: Path) -> None:
    with Manager(tmp_path) as manager:
        check_figures(manager)


def check_figures(manager: Manager) -> None:
    manager.register("i", group="default")
    manager.write("i", [1, 2, 3])
    manager.locations("i", [1, 2, 9])
    assert code_of(manager.call("getCacheLocation", instance_id="none", block_keys=[1])) == "INSTANCE_NOT_EXIST"

    def status() -> dict[str, Any]:
        reply = manager.ask(manager.admin, "GET", "/status")
        assert reply.status == 200
        return dict(json.loads(reply.body))

    until("the writer has shown them", lambda: [each["keys"] for each in status()["instances"]] == [3])
    found = status()
    group, storage = found["groups"][0], found["storages"][0]
    assert (group["name"], group["used_bytes"], group["instances"]) == ("default", 3 * 1024, 1)
    assert group["types"] == [{"type": "ST_NFS", "quota_bytes": 0, "used_bytes": 3 * 1024, "deleting_bytes": 0}]
    assert (storage["name"], storage["condition"], storage["used_bytes"]) == ("local_01", "healthy", 3 * 1024)
    page = manager.ask(manager.admin, "GET", "/metrics").body.decode()
    for line in (
        'cenote_manager_group_used_bytes{group="default"} 3072',
        'cenote_manager_instance_keys{instance="i",group="default"} 3',
        'cenote_manager_requests_total{rpc="meta.FinishWriteCache",code="OK"} 1',
        'cenote_manager_requests_total{rpc="meta.GetCacheLocation",code="INSTANCE_NOT_EXIST"} 1',
        "cenote_manager_lookup_keys_total 3",
        "cenote_manager_lookup_hits_total 2",
    ):
        assert line in page, line
    metrics = manager.do("getMetrics")["metrics"]
    tagged = {
        (each["metric_name"], *(tag["tag_value"] for tag in each["metric_tags"])): each["metric_value"]
        for each in metrics
    }
    assert tagged["cenote_manager_group_used_bytes", "default"]["int_value"] == str(3 * 1024)


def test_a_call_that_is_refused_or_fails_stands_in_the_log_with_its_trace_id(tmp_path: Path) -> None:
    with Manager(tmp_path, "debug.enabled=true") as manager:
        manager.add_instance("i")
        manager.do("injectFault", api_name="start_batch", fault_trigger_strategy="ONCE")
        manager.do("injectFault", api_name="GetCacheLocationLen", fault_trigger_strategy="ONCE")
        keys = {"instance_id": "i", "block_keys": [1]}
        manager.do("getCacheLocation", trace_id="of-an-answer", **keys)
        manager.call("getCacheLocationLen", trace_id="of-a-fault", **keys)
        manager.call("getCacheLocation", trace_id="over-http", instance_id="none", block_keys=[1])
        assert manager.send("getCacheLocation", {"traceId": "of-a-type", "block_keys": "x"}).status == 400
        manager.call("reportEvent", trace_id="of-no-call\n\x1b[2J" + "x" * 1000)
        wire = WireClient(manager.meta_rpc, manager.admin_rpc)
        wire.call("GetCacheLocation", trace_id="over-grpc", instance_id="none", block_keys=[1])
        wire.close()
        manager.call("startWriteCache", trace_id="of-a-failure", **keys)

        def entries() -> dict[str, dict[str, Any]]:
            return {each["trace_id"]: each for each in manager.log_lines() if each.get("trace_id")}

        until("the last one is there", lambda: "of-a-failure" in entries())
        found = entries()
        codes = {name: (each["call"], each["code"]) for name, each in found.items()}
        long = next(name for name in codes if name.startswith("of-no-call"))
        assert codes.pop(long) == ("ReportEvent", "UNSUPPORTED")
        assert long.isprintable() and len(long) <= 140
        assert codes == {
            "of-a-failure": ("StartWriteCache", "IO_ERROR"),
            "of-a-fault": ("GetCacheLocationLen", "INTERNAL_ERROR"),
            "over-http": ("GetCacheLocation", "INSTANCE_NOT_EXIST"),
            "of-a-type": ("GetCacheLocation", "INVALID_ARGUMENT"),
            "over-grpc": ("GetCacheLocation", "INSTANCE_NOT_EXIST"),
        }
        assert "fault was injected" in found["of-a-failure"]["reason"]


def test_lines_of_a_trace_that_find_no_room_are_counted(tmp_path: Path) -> None:
    with Manager(tmp_path, "manager.trace_file=/dev/full") as manager:
        assert manager.figure("trace_dropped_lines_total") == 0
        manager.register("i", group="default")
        manager.locations("i", [1])
        until("it is counted", lambda: manager.figure("trace_dropped_lines_total") > 0)


@pytest.mark.parametrize("order", ["fwd", "rev"])
def test_the_optimizer_reads_a_trace(tmp_path: Path, order: str) -> None:
    trace, size = tmp_path / "trace.jsonl", 64
    with Manager(tmp_path / "manager", f"manager.trace_file={trace}") as manager:
        for name in ("one", "two"):
            manager.register(name, group="default")
        for turn in range(40):
            name, first = ("one", "two")[turn % 2], turn * 7 % 5 * 100
            keys = [*range(first, first + 4 + turn % 3)]
            manager.do("getCacheLocation", instance_id=name, query_type="QT_PREFIX_MATCH", block_keys=keys)
            fields = {"instance_id": name, "block_keys": keys, "write_timeout_seconds": 60}
            granted = manager.do("startWriteCache", **fields)
            count = len(granted["locations"]) - (turn % 4 == 1)
            session = granted["write_session_id"]
            success = {"offset": max(count, 0)}
            manager.do("finishWriteCache", instance_id=name, write_session_id=session, success_blocks=success)
            time.sleep(0.001)  # the times of events are microseconds
        manager.stop()
    requests = lru_model.of_tair_log(trace, size)
    arguments = ("--json", "--block-tokens", str(size), "--order", order, "--capacities", "0,4,8,12,16,20,40")
    ended = run_cenote("optimize", "curve", trace, *arguments)
    assert ended.returncode == 0, ended.stderr
    curve = json.loads(ended.stdout)
    assert (curve["format"], curve["left_out"], curve["requests"]) == ("tair-log", 0, 40)
    hits = [(each["hit_blocks"], each["hit_tokens"]) for each in curve["curves"][0]["points"]]
    assert hits == [lru_model.hits(requests, each["capacity"], order, size) for each in curve["curves"][0]["points"]]
    assert hits[-1][0] > 0


def test_the_demo_builds_what_it_runs(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(ROOT / "scripts" / "run-manager", scripts)
    (scripts / "run_manager.py").write_text("import os\nprint(os.environ['CENOTE_BINARY'])\n")
    (scripts / "setup").write_text("#!/bin/sh\n")
    (scripts / "build").write_text("#!/bin/sh\nmkdir build && touch build/cenote && chmod +x build/cenote\n")
    for name in ("setup", "build"):
        (scripts / name).chmod(0o755)
    plain = {name: value for name, value in os.environ.items() if name != "CENOTE_BINARY"}
    for given, program in (("", tmp_path / "build" / "cenote"), ("/bin/true", Path("/bin/true").resolve())):
        environment = plain | ({"CENOTE_BINARY": given} if given else {})
        ended = subprocess.run([scripts / "run-manager"], env=environment, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stdout) == (0, f"{program}\n"), ended.stderr
    ended = subprocess.run(
        [scripts / "run-manager"], env=plain | {"CENOTE_BINARY": "/none"}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1 and "/none is no program" in ended.stderr


def test_a_trace_has_a_line_for_each_lookup_and_write(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    with Manager(tmp_path / "manager", f"manager.trace_file={trace}") as manager:
        manager.register("i", group="default")
        manager.write("i", [1, -2])
        manager.locations("i", [1, -2, 3])
        assert code_of(manager.call("finishWriteCache", instance_id="i", write_session_id="0" * 32)) != "OK"
        manager.stop()
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [each["type"] for each in lines] == ["StartWriteCache", "FinishWriteCache", "GetCacheLocation"]
    start, finish, lookup = lines
    assert {each["source"] for each in lines} == {"i"}
    assert start["keys"] == [1, -2]
    assert lookup["keys"] == [1, -2, 3]
    assert finish["write_session_id"] == start["write_session_id"]
    assert finish["success_block"] in (2, [True, True])
