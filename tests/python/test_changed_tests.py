"""scripts/changed_tests.py: which tests a change can break."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import changed_tests  # noqa: E402

TREE = {
    "core/CMakeLists.txt": "cenote_library(core\n  SOURCES\n    text.cpp)\n",
    "client/CMakeLists.txt": "cenote_library(client SOURCES session.cpp DEPENDS core)\n",
    "tiers/nvme/CMakeLists.txt": "cenote_library(nvme SOURCES store.cpp DEPENDS core)\n",
    "tests/unit/core/CMakeLists.txt": "cenote_test(unit_core COMPUTES\n  SOURCES\n    text_test.cpp\n  DEPENDS core)\n",
    "tests/unit/client/CMakeLists.txt": "cenote_test(unit_client TSAN\n  SOURCES session_test.cpp DEPENDS client)\n",
    "tests/unit/nvme/CMakeLists.txt": (
        "cenote_test(unit_nvme NO_ASAN SOURCES store_test.cpp ../../support/fake_io.cpp DEPENDS nvme)\n"
    ),
}


@pytest.fixture
def targets(tmp_path: Path) -> dict[str, changed_tests.Target]:
    for name, text in TREE.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return changed_tests.read_targets(tmp_path)


def run_lines(targets: dict[str, changed_tests.Target], *files: str) -> dict[str, str]:
    selection = changed_tests.select(targets, [PurePosixPath(file) for file in files])
    return dict(line.split("=", 1) for line in changed_tests.lines(targets, selection))


def test_a_folder_concerns_its_own_programs_and_those_that_link_it(targets: dict[str, changed_tests.Target]) -> None:
    assert run_lines(targets, "core/text.cpp")["units"] == "^(unit_client|unit_core|unit_nvme)$"
    assert run_lines(targets, "tiers/nvme/store.cpp")["units"] == "^(unit_nvme)$"


def test_a_header_without_a_source_concerns_its_folder(targets: dict[str, changed_tests.Target]) -> None:
    assert run_lines(targets, "tiers/nvme/options.hpp")["units"] == "^(unit_nvme)$"


def test_the_sanitizers_run_what_they_see(targets: dict[str, changed_tests.Target]) -> None:
    everywhere = run_lines(targets, "core/text.cpp")
    assert everywhere["asan"] == "^(unit_client|unit_core)$"
    assert everywhere["tsan"] == "^(unit_client)$"
    assert everywhere["presets"] == "release asan tsan fuzz lint engines"


def test_codecs_and_their_targets_are_fuzzed(targets: dict[str, changed_tests.Target]) -> None:
    assert run_lines(targets, "tests/fuzz/ring_target.cpp")["presets"] == "fuzz lint"
    assert "fuzz" not in run_lines(targets, "tiers/nvme/store.cpp")["presets"]


def test_a_tier_concerns_processes_and_no_engine(targets: dict[str, changed_tests.Target]) -> None:
    found = run_lines(targets, "tiers/nvme/store.cpp")
    assert found["processes"] == "tests/processes tests/python"
    assert found["engines"] == ""
    assert found["presets"] == "release lint"


def test_a_test_concerns_itself_alone(targets: dict[str, changed_tests.Target]) -> None:
    assert run_lines(targets, "tests/unit/core/text_test.cpp")["units"] == "^(unit_core)$"
    assert run_lines(targets, "tests/support/fake_io.cpp")["units"] == "^(unit_nvme)$"
    assert run_lines(targets, "tests/processes/test_nvme.py")["processes"] == "tests/processes/test_nvme.py"
    assert run_lines(targets, "tests/processes/node.py")["processes"] == "tests/processes"


def test_an_adapter_concerns_its_engine(targets: dict[str, changed_tests.Target]) -> None:
    assert run_lines(targets, "python/cenote/_vllm/worker.py")["engines"] == "vllm"
    assert run_lines(targets, "python/cenote/session.py")["engines"] == "sglang vllm"


def test_a_page_concerns_what_checks_pages(targets: dict[str, changed_tests.Target]) -> None:
    found = run_lines(targets, "docs/paths.md")
    assert found["presets"] == "release lint"
    assert found["processes"] == "tests/python/test_check_docs.py"
    assert found["units"] == ""


def test_boards_and_rules_concern_what_reads_them(targets: dict[str, changed_tests.Target]) -> None:
    found = run_lines(targets, "packaging/prometheus/cenote.rules.yml", "docs/operations.md")
    assert found["presets"] == "release lint"
    assert found["processes"].split() == [
        "tests/processes/test_metrics.py",
        "tests/python/test_alerts.py",
        "tests/python/test_check_docs.py",
    ]
    assert found["units"] == ""


def test_what_is_packed_concerns_the_tests_that_read_it(targets: dict[str, changed_tests.Target]) -> None:
    found = run_lines(targets, "packaging/helm/cenote/values.yaml", "packaging/seccomp/cenote.json")
    assert found["processes"].split() == [
        "tests/processes/test_container.py",
        "tests/processes/test_kubernetes.py",
        "tests/python/test_version.py",
    ]
    assert found["units"] == ""
    for name in set(sum(changed_tests.READERS.values(), ())):
        assert (ROOT / name).exists()


def test_the_build_and_files_that_no_list_names_concern_everything(targets: dict[str, changed_tests.Target]) -> None:
    for file in ("cmake/CenoteFlags.cmake", "scripts/setup", "attic/forgotten.cpp"):
        assert run_lines(targets, file)["units"] == "^(unit_client|unit_core|unit_nvme)$"
        assert run_lines(targets, file)["engines"] == "sglang vllm"


def test_without_a_change_there_is_nothing_to_run(targets: dict[str, changed_tests.Target]) -> None:
    assert run_lines(targets)["presets"] == ""


def test_every_source_of_this_tree_belongs_to_a_target() -> None:
    targets = changed_tests.read_targets(ROOT)
    known = {source for target in targets.values() for source in target.sources}
    for name in ("core/text.cpp", "tiers/blocks/store.cpp", "tests/unit/core/text_test.cpp"):
        assert PurePosixPath(name) in known
