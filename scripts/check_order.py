"""Checks that includes follow the order of the folders: no arrow upwards, no circle.

scripts/check_order.py    says each include that breaks the order; status 1 if there is one

The order of the folders is that of add_subdirectory() in the CMakeLists.txt files; a folder's own files come before its
sub-folders. Inside the folders of LAYERS the order of the files is stated here.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OWN_NAME = Path(__file__).name
SOURCES = (".hpp", ".cpp", ".h")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
SUBDIRECTORY = re.compile(r"^\s*add_subdirectory\(([\w/]+)\)", re.MULTILINE)

# Inside a folder: layers of its files (without ending) and sub-folders, lowest first. What stands in a layer includes
# itself and what stands in the layers before, and nothing beside it.
LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "device": (
        ("copy_costs", "nvml", "one_way_queue", "strided_piece"),
        ("kernels", "paged_layout", "transform"),
        ("device", "launch"),
        ("sim_event",),
        ("cuda", "sim"),
        ("open",),
    ),
    "transport": (("tls",), ("local", "http", "peer"), ("ucx",)),
    "actors": (
        (
            "actor_alarm",
            "actor_runner",
            "ask",
            "boot_clock",
            "cluster_check",
            "gpu_figures",
            "health",
            "promise_guard",
            "pulse",
            "session_resources",
            "sparse_line",
            "tier_numbers",
            "tier_options",
            "tier_report",
        ),
        ("cluster_report", "consensus_report", "messages", "nvme_report", "remote_report"),
        ("consensus_messages", "device_news"),
        ("cluster_messages", "gpu_messages", "nvme_messages", "remote_messages"),
        ("consensus", "guest_room", "peer", "load_times", "removal_tally", "request_recording"),
        ("cluster",),
        ("cluster_host",),
        (
            "data_path",
            "dram_tier",
            "instance_maker",
            "live_curves",
            "nvme_tier",
            "prefetch",
            "quota_mover",
            "remote_tier",
            "session",
        ),
        ("dram_below",),
        ("gpu_report",),
        ("lower_tier_host", "node"),
        ("nvme_stack", "remote_stack"),
        ("tier_stack",),
    ),
    "worker": (
        ("metrics_place", "service_unit"),
        ("stop_limit",),
        (
            "admin_request",
            "connection",
            "copy_watch",
            "gpu_watch",
            "hit_history",
            "kept_entries",
            "kill_at",
            "node_figures",
            "prerequisites",
            "recovery",
            "server_context",
            "shared_reports",
        ),
        ("access", "device_host", "node_facts", "quarantine"),
        ("live_page", "metrics_text", "recorded_json", "status_json"),
        ("metrics_document",),
        ("attachments",),
        ("operator_commands",),
        ("server",),
        ("worker",),
    ),
    "commands": (
        ("common", "interruption", "table"),
        ("programs", "refusal"),
        ("node_status", "private_node"),
        ("node", "operator", "replay"),
        ("optimize",),  # it reads traces as a replay does
        ("trace",),  # it takes the options of the traces that optimize reads
        ("quickstart", "services"),
        ("bench",),  # it makes its traces as a replay does
        ("main",),
    ),
}


def folders(parent: str = "") -> list[str]:
    """All folders in their order, `tests` left out: a test may include anything."""
    found = []
    for name in SUBDIRECTORY.findall((ROOT / parent / "CMakeLists.txt").read_text()):
        path = f"{parent}/{name}" if parent else name
        if path == "tests":
            continue
        found.append(path)
        if (ROOT / path / "CMakeLists.txt").is_file():
            found += folders(path)
    return found


@dataclass(frozen=True)
class Place:
    """Where a file stands: its folder and its layer there as numbers, and its name in that layer."""

    folder: int
    layer: int
    name: str

    def may_include(self, other: Place) -> bool:
        if self.folder != other.folder:
            return self.folder > other.folder
        return self.layer > other.layer or self.name == other.name


def place(file: str, order: dict[str, int]) -> Place | None:
    """None: the file is in no folder of the order, or its folder has layers and none of them names it."""
    parts = file.split("/")
    for length in range(len(parts) - 1, 0, -1):
        folder = "/".join(parts[:length])
        if folder not in order:
            continue
        if folder not in LAYERS:
            return Place(order[folder], 0, "")
        name = parts[length].split(".")[0]
        layers = [number for number, names in enumerate(LAYERS[folder]) if name in names]
        return Place(order[folder], layers[0], name) if layers else None
    return None


def circle_from(start: str, includes: dict[str, list[str]], done: set[str]) -> list[str]:
    """The files of a circle that can be reached from `start`; empty if there is none."""
    path: list[str] = []

    def visit(file: str) -> list[str]:
        if file in path:
            return path[path.index(file) :]
        if file in done:
            return []
        path.append(file)
        for target in includes.get(file, []):
            if circle := visit(target):
                return circle
        done.add(path.pop())
        return []

    return visit(start)


def read_includes(order: dict[str, int]) -> dict[str, list[str]]:
    """Of each file of the folders: what it includes of the project."""
    tops = {folder.split("/")[0] for folder in order}
    found = {}
    for path in sorted(path for top in tops for path in (ROOT / top).rglob("*") if path.suffix in SOURCES):
        names = INCLUDE.findall(path.read_text())
        found[path.relative_to(ROOT).as_posix()] = [name for name in names if (ROOT / name).is_file()]
    return found


def faults() -> list[str]:
    order = {folder: number for number, folder in enumerate(folders())}
    includes = read_includes(order)
    places = {file: place(file, order) for file in includes}
    found = [f"{file}: in no layer; name it in LAYERS of {OWN_NAME}" for file in includes if places[file] is None]
    for file, names in includes.items():
        for name in names:
            own, other = places[file], places.get(name)
            if own is not None and other is not None and not own.may_include(other):
                found.append(f"{file}: includes {name}, which does not stand below it")
    done: set[str] = set()
    for file in includes:
        if circle := circle_from(file, includes, done):
            return [*found, "a circle of includes: " + " -> ".join([*circle, circle[0]])]
    return found


def main() -> int:
    found = faults()
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
