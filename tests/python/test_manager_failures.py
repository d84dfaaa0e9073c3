"""The failure table of docs/manager.md is tested line by line: each row has tests that are there.

A row that is added to the table fails here until it has its tests.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "docs" / "manager.md"
TEST_FILES = ("tests/processes/test_manager*.py", "tests/unit/services/manager/**/*_test.cpp")
TEST_NAME = re.compile(r"^def (test_\w+)\(|^BOOST_AUTO_TEST_CASE\((\w+)", re.MULTILINE)

# Tests by the first cell of a row, those with real processes first.
TESTS: dict[str, tuple[str, ...]] = {
    "the manager is killed": (
        "test_a_kill_at_any_point_loses_nothing_that_was_answered",
        "test_a_kill_at_any_point_loses_nothing_on_a_redis_server",
    ),
    "the journal's disk is full": ("test_a_journal_whose_disk_is_full_takes_nothing_and_works_again_with_room",),
    "the journal's Redis server is away, stands still or is full": (
        "test_nothing_is_granted_while_the_server_is_away",
        "test_a_server_that_stands_still_costs_the_timeout_and_its_late_batch_is_no_grant",
        "test_a_full_server_takes_nothing_and_is_used_again_when_there_is_room",
    ),
    "a write's answer from it was lost": (
        "test_a_finish_without_an_answer_may_be_asked_again",
        "test_a_batch_that_fails_is_refused_and_can_be_asked_again",
    ),
    "a replica took its place and lacks the last writes": (
        "test_a_replica_without_the_last_writes_is_recovered_from",
        "test_a_write_to_an_older_copy_is_refused",
    ),
    "two managers have one store and one `manager.id`": ("test_two_managers_of_one_id_never_grant_the_same_key",),
    "a storage is full, read-only or hangs": (
        "test_a_storage_that_is_full_is_read_and_not_written",
        "test_a_storage_that_breaks_is_not_used_until_it_works_again",
        "test_a_mount_that_hangs_hurts_itself_alone",
        "test_a_broken_storage_leaves_its_writes_to_the_next_candidate",
    ),
    "a storage is broken, or hangs, when the manager starts or when it is added": (
        "test_nothing_is_granted_in_a_new_storage_before_its_first_probe",
        "test_a_mount_that_hangs_hurts_itself_alone",
    ),
    "a plug-in dies, hangs or answers nonsense": (
        "test_a_plug_in_that_does_harm_hurts_its_storage_alone",
        "test_a_plug_in_that_is_stopped_is_replaced",
    ),
    "a storage was wiped": ("test_records_of_a_storage_that_was_wiped_are_trimmed",),
    "a client dies in a session": (
        "test_a_writer_that_is_late_on_a_redis_server_is_read_by_nobody",
        "test_a_writer_that_is_late_after_a_restart_is_deleted_after_the_quarantine_too",
        "test_a_late_writer_alters_nothing_that_is_read",
    ),
    "rows of the journal are damaged": (
        "test_files_of_an_extent_with_a_damaged_row_go",
        "test_values_of_an_extent_with_a_damaged_row_go_and_those_of_other_extents_stay",
    ),
    "the journal has rows of a newer manager": ("a_row_of_a_newer_manager_refuses_the_journal",),
    "a group is full": ("test_a_rush_never_exceeds_a_quota", "a_refusal_frees_what_the_request_lacked"),
}


def table_rows() -> list[str]:
    """First cells of the table, without its head."""
    section = BOOK.read_text().split("## When something fails\n")[1].split("\n#")[0]
    cells = [line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")]
    assert cells[:2] == ["what", "---"], cells
    return cells[2:]


@cache
def all_tests() -> frozenset[str]:
    files = [file for pattern in TEST_FILES for file in ROOT.glob(pattern)]
    return frozenset(name for file in files for match in TEST_NAME.findall(file.read_text()) for name in match if name)


def test_every_row_has_tests_and_every_test_its_row() -> None:
    assert table_rows() == list(TESTS)


@pytest.mark.parametrize("row", TESTS)
def test_the_tests_of_a_row_are_there(row: str) -> None:
    assert TESTS[row] and not set(TESTS[row]) - all_tests()
