"""Pages, metrics and traces of `cenote manager`, for operators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from manager import Manager, code_of
from node import until


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
