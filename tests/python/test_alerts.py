"""packaging/prometheus: each alert fires and stays quiet as it should, and leads to a section of a document.

Cases are played by promtool, of Debian's package `prometheus`, whose service is not needed for that:
`apt-get download prometheus && dpkg -x prometheus_*.deb FOLDER`, and FOLDER/usr/bin in PATH.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "packaging" / "prometheus" / "cenote.rules.yml"
LIMIT = 120.0
PAGES = ("metrics.md", "service-metrics.md")
NODE = 'job="cenote",instance="a"'
KV = f'{NODE},exported_instance="m",call="match"'
TARGET = {"job": "cenote", "instance": "a"}

Rule = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Series, and the labels of the alert that they give; none: it is quiet."""

    alert: str
    minute: int
    series: dict[str, str]
    labels: dict[str, str] | None = field(default_factory=lambda: TARGET)

    @property
    def interval(self) -> str:
        """Of samples and evaluations. A rate of a day wants no sample a minute."""
        return "30m" if self.alert == "CenoteDiskWear" else "1m"

    @property
    def fires(self) -> bool:
        return self.labels is not None


def fires(alert: str, minute: int, series: dict[str, str], **labels: str) -> Case:
    return Case(alert, minute, series, TARGET | labels)


def quiet(alert: str, minute: int, series: dict[str, str]) -> Case:
    return Case(alert, minute, series, None)


def of_node(metric: str, **labels: str) -> str:
    more = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{NODE}{more}}}"


def one(metric: str, values: str, **labels: str) -> dict[str, str]:
    return {of_node(metric, **labels): values}


def lookups(hits: str, count: str = "0+6000x360") -> dict[str, str]:
    """Six hours of an engine that asks for 100 tokens a second."""
    return {
        f"cenote_instance_looked_up_tokens_total{{{KV}}}": count,
        f"cenote_instance_found_tokens_total{{{KV}}}": hits,
    }


COLLAPSE = "0+4800x240 1152000+600x120"  # 80 of 100, then 10
PEER = {"peer": "b"}
BACKEND = {"backend": "redis://c"}
GATE = {of_node("cenote_prefetch_ended_total", reason="complete"): "0+1x200"}

CASES = [
    Case(
        "CenoteHitRateCollapsed",
        330,
        lookups(COLLAPSE),
        {"job": "cenote", "exported_instance": "m", "call": "match"},
    ),
    quiet("CenoteHitRateCollapsed", 330, lookups("0+4800x240 1152000+3000x120")),  # half of it is not collapsed
    quiet("CenoteHitRateCollapsed", 330, lookups("0+480x240 115200+60x120")),  # it never was of use
    quiet("CenoteHitRateCollapsed", 330, lookups("0+4800x240 1152000x120", "0+6000x240 1440000x120")),  # idle
    fires("CenoteDown", 12, one("up", "1x5 0x10")),
    quiet("CenoteDown", 12, one("up", "1x8 0x2 1x5")),
    quiet("CenoteDown", 12, {'up{job="database",instance="a"}': "0x20"}),
    Case("CenoteMetricsMissing", 40, one("cenote_uptime_seconds", "1+60x9 stale"), {}),
    quiet("CenoteMetricsMissing", 40, one("cenote_uptime_seconds", "1+60x60")),
    fires("CenoteWorkerRestarts", 40, one("cenote_worker_restarts_total", "0x10 1x10 2x30")),
    quiet("CenoteWorkerRestarts", 40, one("cenote_worker_restarts_total", "0x10 1x40")),
    fires("CenoteWorkerExceptions", 40, one("cenote_worker_exceptions_total", "0x30 1x30")),
    quiet("CenoteWorkerExceptions", 90, one("cenote_worker_exceptions_total", "1x10 0x80")),  # another worker
    fires("CenoteClientsRefused", 40, one("cenote_server_turned_away_total", "0+1x60")),
    fires("CenoteClientsRefused", 40, one("cenote_server_attaches_refused_total", "0+1x60")),
    quiet("CenoteClientsRefused", 40, one("cenote_server_turned_away_total", "0x25 3x40")),
    fires("CenoteNoSpace", 40, one("cenote_dram_no_space_total", "0+5x60")),
    fires("CenoteNoSpace", 40, one("cenote_dram_pin_share_refusals_total", "0+5x60")),
    quiet("CenoteNoSpace", 40, one("cenote_dram_no_space_total", "0x20 9x40")),
    fires("CenoteDropsRise", 60, one("cenote_log_dropped_total", "0+1x90"), dropped="lines of the log"),
    fires("CenoteDropsRise", 60, one("cenote_dram_touches_dropped_total", "0+1x90"), dropped="uses"),
    fires("CenoteDropsRise", 60, one("cenote_curve_requests_dropped_total", "0+1x90"), dropped="requests of curves"),
    fires("CenoteDropsRise", 60, one("cenote_nvme_dropped_total", "0+1x90"), dropped="blocks for NVMe"),
    fires("CenoteDropsRise", 60, one("cenote_remote_dropped_total", "0+1x90"), dropped="blocks for the remote tier"),
    quiet("CenoteDropsRise", 60, one("cenote_nvme_dropped_total", "0x40 500x50")),
    fires("CenoteGateShut", 150, one("cenote_prefetch_ended_total", "0+19x200", reason="cannot_win") | GATE),
    quiet("CenoteGateShut", 150, one("cenote_prefetch_ended_total", "0+8x200", reason="cannot_win") | GATE),
    fires("CenoteWrongBlocks", 50, one("cenote_dram_checksum_errors_total", "0+1x90"), place="DRAM"),
    fires("CenoteWrongBlocks", 50, one("cenote_nvme_checksum_errors_total", "0+1x90"), place="NVMe"),
    fires("CenoteWrongBlocks", 50, one("cenote_remote_wrong_total", "0+1x90"), place="a remote backend"),
    fires("CenoteWrongBlocks", 50, one("cenote_cluster_wrong_total", "0+1x90"), place="another node"),
    quiet("CenoteWrongBlocks", 50, one("cenote_nvme_checksum_errors_total", "0x10 3x80")),
    fires("CenoteNvmePathDown", 20, one("cenote_nvme_path_serving", "1x10 0x20", path="/d"), path="/d"),
    quiet("CenoteNvmePathDown", 20, one("cenote_nvme_path_serving", "0x3 1x30", path="/d")),  # it was opening
    fires("CenoteNvmeErrors", 20, one("cenote_nvme_path_errors_total", "0x10 1x20", path="/d"), path="/d"),
    quiet("CenoteNvmeErrors", 60, one("cenote_nvme_path_errors_total", "0x10 1x60", path="/d")),
    fires("CenoteNvmeMetadataFails", 20, one("cenote_nvme_failed_saves_total", "0x10 1x20")),
    quiet("CenoteNvmeMetadataFails", 60, one("cenote_nvme_failed_saves_total", "0x10 1x60")),
    fires(
        "CenoteNvmeBypassed",
        90,
        one("cenote_nvme_dropped_total", "0+11x90") | one("cenote_nvme_written_total", "0+10x90"),
    ),
    quiet(
        "CenoteNvmeBypassed",
        90,
        one("cenote_nvme_dropped_total", "0+9x90") | one("cenote_nvme_written_total", "0+10x90"),
    ),
    fires(
        "CenoteDiskWear",
        1860,
        one("cenote_nvme_written_bytes_total", "0+66000x70") | one("cenote_nvme_capacity_bytes", "1000000x70"),
    ),
    quiet(
        "CenoteDiskWear",
        1860,
        one("cenote_nvme_written_bytes_total", "0+60000x70") | one("cenote_nvme_capacity_bytes", "1000000x70"),
    ),
    fires(
        "CenoteRemovalPending",
        50,
        one("cenote_nvme_path_pending_removals", "0x5 2x60", path="/d"),
        path="/d",
        holder="/d",
    ),
    fires(
        "CenoteRemovalPending",
        50,
        one("cenote_remote_backend_unconfirmed_removals", "0x5 2x60", **BACKEND),
        **BACKEND,
        holder="redis://c",
    ),
    fires("CenoteRemovalPending", 50, one("cenote_cluster_unconfirmed_removals", "0x5 2x60"), holder="another node"),
    fires("CenoteRemovalPending", 50, one("cenote_cluster_awaited_nodes", "0x5 2x60"), holder="another node"),
    quiet("CenoteRemovalPending", 50, one("cenote_cluster_unconfirmed_removals", "0x25 2x60")),
    fires(
        "CenoteRemovalsDropped",
        50,
        one("cenote_remote_backend_dropped_removals_total", "0x5 2x60", **BACKEND),
        **BACKEND,
        holder="redis://c",
    ),
    fires("CenoteRemovalsDropped", 50, one("cenote_cluster_dropped_removals_total", "0x5 2x60"), holder="another node"),
    quiet("CenoteRemovalsDropped", 50, one("cenote_cluster_dropped_removals_total", "2x60")),
    fires("CenoteRemoteAway", 20, one("cenote_remote_backend_serving", "1x10 0x20", **BACKEND), **BACKEND),
    quiet("CenoteRemoteAway", 20, one("cenote_remote_backend_serving", "1x16 0x20", **BACKEND)),
    fires("CenoteDeviceDown", 20, one("cenote_gpu_ready", "1x5 0x20", device="cuda:0"), device="cuda:0"),
    quiet("CenoteDeviceDown", 20, one("cenote_gpu_ready", "0x5 1x20", device="cuda:0")),
    fires("CenotePeerAway", 30, one("cenote_cluster_peer_live", "1x10 0x30", **PEER), **PEER),
    quiet("CenotePeerAway", 30, one("cenote_cluster_peer_live", "1x10 0x10 1x30", **PEER)),
    fires("CenoteClusterUnsteady", 40, one("cenote_cluster_suspected_total", "0+1x60")),
    quiet("CenoteClusterUnsteady", 40, one("cenote_cluster_suspected_total", "0x20 3x60")),
    fires("CenoteLinksRefused", 40, one("cenote_cluster_greetings_refused_total", "0+1x60")),
    quiet("CenoteLinksRefused", 40, one("cenote_cluster_greetings_refused_total", "0x25 1x60")),
    fires("CenoteRankGroupsBreak", 40, one("cenote_consensus_overdue_total", "0x20 3x60")),
    quiet("CenoteRankGroupsBreak", 40, one("cenote_consensus_overdue_total", "0x20 2x60")),
    fires("CenoteManagerNotReady", 20, one("cenote_manager_ready", "1x10 0x20")),
    quiet("CenoteManagerNotReady", 20, one("cenote_manager_ready", "0x4 1x30")),
    fires("CenoteManagerFiguresOld", 20, one("cenote_manager_usage_age_seconds", "1x10 70+60x20")),
    quiet("CenoteManagerFiguresOld", 20, one("cenote_manager_usage_age_seconds", "1x17 70 1x20")),
    fires(
        "CenoteManagerStorageDown",
        30,
        one("cenote_manager_storage_up", "1x10 0x30", storage="s", type="ST_NFS"),
        storage="s",
        type="ST_NFS",
    ),
    quiet("CenoteManagerStorageDown", 30, one("cenote_manager_storage_up", "0x5 1x30", storage="s", type="ST_NFS")),
    fires(
        "CenoteIndexerBehind",
        20,
        one("cenote_indexer_behind_seconds", "0x5 70+60x20", publisher="p", pod="p"),
        publisher="p",
        pod="p",
    ),
    quiet("CenoteIndexerBehind", 20, one("cenote_indexer_behind_seconds", "0x5 50x20", publisher="p", pod="p")),
    fires(
        "CenoteIndexerLosesEvents",
        20,
        one("cenote_indexer_lost_batches_total", "0x5 1x20", publisher="p", pod="p"),
        publisher="p",
        pod="p",
    ),
    quiet("CenoteIndexerLosesEvents", 60, one("cenote_indexer_lost_batches_total", "0x5 1x60", publisher="p", pod="p")),
    fires("CenoteIndexerTooSmall", 40, one("cenote_indexer_evicted_held_blocks_total", "0+5x60")),
    quiet("CenoteIndexerTooSmall", 40, one("cenote_indexer_evicted_held_blocks_total", "0x20 5x60")),
    fires("CenoteIndexerRedisAway", 20, one("cenote_indexer_redis_serving", "1x10 0x20")),
    quiet("CenoteIndexerRedisAway", 20, one("cenote_indexer_redis_serving", "1x18 0x20")),
]


@pytest.fixture(scope="module")
def model() -> ModuleType:
    spec = importlib.util.spec_from_file_location("board_model", ROOT / "scripts" / "board_model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["board_model"] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def rules() -> list[Rule]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> dict[str, Rule]:
    return {str(rule["alert"]): rule for rule in rules() if "alert" in rule}


def anchors(document: Path) -> set[str]:
    titles = re.findall(r"^#+ +(.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def test_each_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    assert {case.alert for case in CASES if case.fires} == set(alerts())
    assert {case.alert for case in CASES if not case.fires} == set(alerts())


def test_each_metric_that_a_rule_names_is_in_the_documents(model: ModuleType) -> None:
    metrics = {name: row for page in PAGES for name, row in model.read_metrics(page).items()}
    records = {rule["record"] for rule in rules() if "record" in rule}
    found = [each for rule in rules() for each in model.faults(rule["expr"], metrics)]
    named = {each for rule in rules() for each in re.findall(r"\bcenote:[\w:]+", rule["expr"])}
    assert found == []
    assert named <= records


def test_each_alert_leads_to_a_section_and_has_its_row_there() -> None:
    operations = (ROOT / "docs" / "operations.md").read_text()
    for name, rule in alerts().items():
        page, _, anchor = rule["annotations"]["runbook"].split(": ")[0].partition("#")
        assert page == "docs/operations.md", name
        assert anchor in anchors(ROOT / page), name
        assert f"| `{name}` |" in operations, name
    rows = re.findall(r"^\| `(Cenote\w+)` \|", operations, re.MULTILINE)
    assert sorted(rows) == sorted(alerts())


def test_each_alert_has_a_severity_and_says_what_it_is_about() -> None:
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("warning", "critical"), name
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, name


def filled(text: str, labels: dict[str, str]) -> str:
    """A template with the values of its labels. All that ours use are labels."""
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda name: labels[name[1]], text)


def played(case: Case) -> dict[str, Any]:
    """The case as promtool reads it."""
    rule = alerts()[case.alert]
    expected = []
    if case.labels is not None:
        notes = {name: filled(text, case.labels) for name, text in rule["annotations"].items()}
        expected = [{"exp_labels": {**case.labels, **rule["labels"]}, "exp_annotations": notes}]
    return {
        "interval": case.interval,
        "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
        "alert_rule_test": [{"alertname": case.alert, "eval_time": f"{case.minute}m", "exp_alerts": expected}],
    }


RECORDED = {
    "interval": "1m",
    "input_series": [
        {"series": name, "values": values}
        for name, values in (
            lookups("0+3000x20", "0+6000x20")
            | {f'cenote_instance_found_lower_tokens_total{{{NODE},exported_instance="m"}}': "0+1500x20"}
            | {name.replace('"a"', '"b"'): values for name, values in lookups("0+6000x20", "0+6000x20").items()}
        ).items()
    ],
    "promql_expr_test": [
        {
            "expr": f"cenote:hit_ratio_tokens{end}",
            "eval_time": "15m",
            "exp_samples": [{"labels": f"cenote:hit_ratio_tokens{end}{{{labels}}}", "value": value}],
        }
        for end, labels, value in (
            (":rate5m", 'job="cenote",exported_instance="m",call="match"', 0.75),  # 50 % at one node, all at another
            ("_all_tiers:rate5m", 'job="cenote",exported_instance="m"', 0.875),
        )
    ],
}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if not found:
        pytest.skip("no promtool: Debian's package prometheus has it")
    return found


def test_alerts_fire_and_stay_quiet_as_they_should(promtool: str, tmp_path: Path) -> None:
    """Each alert is played without the others: promtool evaluates all rules of a file each minute."""
    recordings = [rule for rule in rules() if "record" in rule]
    tests = {name: [played(case) for case in CASES if case.alert == name] for name in alerts()}
    for name, cases in (tests | {"recordings": [RECORDED]}).items():
        interval = cases[0]["interval"]
        rule = alerts().get(name)
        needed = recordings if rule is None or "cenote:" in rule["expr"] else []
        group = {"name": name, "interval": interval, "rules": [*needed, *([rule] if rule else [])]}
        (tmp_path / f"{name}.rules").write_text(json.dumps({"groups": [group]}))
        (tmp_path / f"{name}.test").write_text(
            json.dumps({"rule_files": [f"{name}.rules"], "evaluation_interval": interval, "tests": cases})
        )
    command = [promtool, "test", "rules", *map(str, sorted(tmp_path.glob("*.test")))]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_file_of_rules(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", str(RULES)], check=False, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr
