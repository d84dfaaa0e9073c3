"""The restart matrix's list is complete: every kind of state that the sources know has a test for each way to end.

A kind of state is a file with a magic number, a kind of shared segment, or a kind of entry that the keeper holds. One
that is added fails here until its row names its tests, or the reason why none is wanted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("actors", "cluster", "config", "core", "keeper", "memory", "tiers", "transport", "worker")

# Magic numbers of messages: they outlive nothing.
OF_MESSAGES = {
    "tiers/remote/value.cpp: value_magic": "on a server of others; a value of another version is a miss",
    "transport/local/frame.hpp: frame_magic": "between a client and its node",
    "transport/local/registry.hpp: link_magic": "between keeper and worker",
    "transport/peer/frame.cpp: frame_magic": "between nodes",
    "transport/ucx/connection_proof.cpp: proof_magic": "between nodes",
    "transport/ucx/piece.cpp: piece_magic": "between nodes",
    "transport/ucx/piece.cpp: ticket_magic": "between nodes",
}


class Row(NamedTuple):
    """Names of tests; `-` stands before the reason for none."""

    worker_killed: str
    node_killed: str
    upgraded: str


UPGRADE = "test_an_upgrade_replaces_keeper_and_worker_and_keeps_the_blocks"
NODE_KILLED = "test_a_node_that_was_killed_and_comes_back_is_used_again"
MATRIX = "test_a_worker_that_dies_behind_any_word_leaves_nothing_wrong"
OF_MEMORY = Row("test_a_worker_that_dies_is_back_with_all_complete_blocks", NODE_KILLED, UPGRADE)
ON_DISK = "- the file is the next worker's as after a kill"
CHECKED = "a_file_that_is_missing_cut_off_or_changed_anywhere_is_not_taken"
ROWS = {
    # Files
    "core/machine_decisions.cpp: decisions_magic": Row(
        CHECKED, CHECKED, "the_file_of_another_machine_or_version_is_not_taken"
    ),
    "keeper/keeper_state.cpp: state_magic": Row("- the keeper's, for an upgrade alone", "- lives in memory", UPGRADE),
    "tiers/nvme/catalog.cpp: format_magic": Row(
        "test_workers_killed_in_the_middle_of_transfers_never_bring_a_wrong_byte",
        "test_a_keeper_killed_in_the_middle_of_writes_leaves_a_sound_store",
        ON_DISK,
    ),
    "tiers/nvme/path_file.cpp: magic": Row(
        "test_reads_of_a_killed_worker_hit_no_block_of_the_next",
        "test_a_keeper_killed_in_the_middle_of_writes_leaves_a_sound_store",
        ON_DISK,
    ),
    "tiers/nvme/removal_log.cpp: log_magic": Row(
        "test_a_worker_that_dies_behind_a_removal_it_kept_brings_nothing_back",
        "test_removals_hold_on_a_full_disk_over_a_restart_of_the_node",
        ON_DISK,
    ),
    "tiers/nvme/removal_log.cpp: mark_magic": Row(
        "test_a_removal_that_no_disk_takes_is_said_and_kept_for_the_next_worker",
        "a_mark_gives_back_the_sequence_of_its_owner",
        ON_DISK,
    ),
    "tiers/remote/epoch_book.cpp: book_magic": Row(
        "epochs_and_clears_to_be_carried_out_outlive_the_process",
        "a_damaged_book_makes_every_older_epoch_count_as_old",
        ON_DISK,
    ),
    "tiers/remote/removal_book.cpp: removals_magic": Row(
        "what_was_written_is_read_by_the_next_worker",
        "a_damaged_file_counts_as_a_clear_of_every_instance",
        ON_DISK,
    ),
    # Shared segments
    "memory/segment.hpp: segment_magic": OF_MEMORY,
    "segment_kind: records": OF_MEMORY,
    "segment_kind: versions": OF_MEMORY,
    "segment_kind: index": OF_MEMORY,
    "segment_kind: slab": OF_MEMORY,
    "segment_kind: session": Row("test_pins_over_a_restart_hold_blocks_against_eviction", NODE_KILLED, UPGRADE),
    # Entries of the keeper
    "entry_kind: records": Row(MATRIX, NODE_KILLED, UPGRADE),
    "entry_kind: instance": Row("test_what_was_given_up_is_found_after_a_restart_too", NODE_KILLED, UPGRADE),
    "entry_kind: slab": Row(MATRIX, NODE_KILLED, UPGRADE),
    "entry_kind: session": Row(MATRIX, NODE_KILLED, UPGRADE),
    "entry_kind: node": Row("- nothing is kept under this kind", "- as before", "- as before"),
    "entry_kind: configuration": Row(
        "test_the_time_is_reloaded_and_goes_on_over_a_worker", "- read from its sources again", UPGRADE
    ),
    "entry_kind: tier_memory": Row(
        "test_a_removal_that_no_disk_takes_is_said_and_kept_for_the_next_worker",
        "- memory for what no disk took",
        "test_an_upgrade_whose_worker_dies_behind_its_wish_keeps_every_block",
    ),
    "entry_kind: reserve": Row(MATRIX, "- empty memory", UPGRADE),
}


def sources() -> list[Path]:
    return [each for folder in FOLDERS for each in (ROOT / folder).rglob("*.[ch]pp")]


def kinds_of_state() -> set[str]:
    found: set[str] = set()
    for path in sources():
        text = path.read_text()
        for name in re.findall(r"\bconstexpr [^;=({]*?(\w*magic)\b *[={]", text):
            found.add(f"{path.relative_to(ROOT).as_posix()}: {name}")
        for kind, body in re.findall(r"enum class (segment_kind|entry_kind)\b[^{]*\{([^}]*)\}", text):
            plain = re.sub(r"//.*", "", body)
            found |= {f"{kind}: {name}" for name in re.findall(r"(\w+) *=", plain)}
    return found


def all_tests() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("*_test.cpp"):
        found |= set(re.findall(r"_TEST_CASE\((\w+)[,)]", path.read_text()))
    for path in (ROOT / "tests/processes").glob("test_*.py"):
        found |= set(re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE))
    return found


def test_each_kind_of_state_in_the_sources_has_a_row() -> None:
    assert kinds_of_state() == ROWS.keys() | OF_MESSAGES.keys()


@pytest.mark.parametrize("kind", sorted(ROWS))
def test_each_row_names_tests_that_are_there(kind: str) -> None:
    named = {name for name in ROWS[kind] if not name.startswith("- ")}
    assert named <= all_tests()
