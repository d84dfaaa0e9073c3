// What the DRAM tier counts: a member and its row are all that a counter needs.
#pragma once

#include "core/figure.hpp"

namespace cenote::blocks {

/// Totals since the worker started.
struct store_counters {
  std::uint64_t commits = 0, duplicates = 0, evicted = 0, removed = 0, moved = 0, slabs_moved = 0, pinned_victims = 0;
  std::uint64_t refused_commits = 0, revoked_reservations = 0, revoked_grants = 0, no_space = 0, collisions = 0;
  std::uint64_t reclaimed_blocks = 0, touches = 0, checksum_errors = 0, quarantine_freed = 0;
  std::uint64_t demoted = 0, demotions_dropped = 0, copies_skipped = 0, promoted = 0;
  std::uint64_t promotions_failed = 0;
  std::uint64_t waits = 0, put_waits = 0, expired = 0, instances_given_up = 0, not_held = 0;
  std::uint64_t touches_dropped = 0, reserve_refused = 0, victims_examined = 0, pin_scans = 0;
  std::uint64_t publications_refused = 0, pin_share_refusals = 0;
  std::uint64_t copies_checked = 0, sessions_ended = 0;
  std::uint64_t removals_done = 0, removals_pending = 0, removals_failed = 0;
};

}  // namespace cenote::blocks

namespace cenote {

template <>
struct figure_table<blocks::store_counters> {
  using all = blocks::store_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"counters.commits", "cenote_dram_commits_total", counter, "blocks", "Blocks that were stored.", &all::commits},
      {"counters.duplicates", "cenote_dram_duplicates_total", counter, "blocks",
       "Blocks that were there already when they were stored.", &all::duplicates},
      {"counters.evicted", "cenote_dram_evicted_total", counter, "blocks", "Blocks that left to make room.",
       &all::evicted},
      {"counters.removed", "cenote_dram_removed_total", counter, "blocks",
       "Blocks that a client or an operator removed.", &all::removed},
      {"counters.moved", "cenote_dram_moved_total", counter, "blocks",
       "Blocks that moved to another slab to free theirs.", &all::moved},
      {"counters.slabs_moved", "cenote_dram_slabs_moved_total", counter, "slabs",
       "Slabs that one instance gave up for another.", &all::slabs_moved},
      {"counters.no_space", "cenote_dram_no_space_total", counter, "reservations",
       "Reservations refused because all is in use.", &all::no_space},
      {"counters.refused_commits", "cenote_dram_refused_commits_total", counter, "blocks",
       "Commits of blocks that were not reserved.", &all::refused_commits},
      {"counters.revoked_reservations", "cenote_dram_revoked_reservations_total", counter, "reservations",
       "Reservations that were taken back.", &all::revoked_reservations},
      {"counters.revoked_grants", "cenote_dram_revoked_grants_total", counter, "blocks",
       "Blank blocks taken back from idle sessions.", &all::revoked_grants},
      {"counters.quarantine_freed", "cenote_dram_quarantine_freed_total", counter, "blocks",
       "Blocks that had been set aside and that nobody can write any more.", &all::quarantine_freed},
      {"counters.collisions", "cenote_dram_collisions_total", counter, "keys",
       "Full keys that met another one's index key.", &all::collisions},
      {"counters.reclaimed_blocks", "cenote_dram_reclaimed_blocks_total", counter, "blocks",
       "Blocks taken back from dead clients.", &all::reclaimed_blocks},
      {"counters.touches", "cenote_dram_touches_total", counter, "uses", "Uses that clients reported.", &all::touches},
      {"counters.touches_dropped", "cenote_dram_touches_dropped_total", counter, "uses",
       "Uses beyond what one record or batch may name.", &all::touches_dropped},
      {"counters.reserve_refused", "cenote_dram_reserve_refused_total", counter, "reservations",
       "Reservations beyond a session's, a user's or a group's share.", &all::reserve_refused},
      {"counters.victims_examined", "cenote_dram_victims_examined_total", counter, "blocks",
       "Blocks that eviction looked at.", &all::victims_examined},
      {"counters.pinned_victims", "cenote_dram_pinned_victims_total", counter, "blocks",
       "… of those, blocks that somebody held.", &all::pinned_victims},
      {"counters.pin_scans", "cenote_dram_pin_scans_total", counter, "looks",
       "Looks through the pins of an instance's sessions.", &all::pin_scans},
      {"counters.pin_share_refusals", "cenote_dram_pin_share_refusals_total", counter, "blocks",
       "Blocks not given to instances in which too much is pinned.", &all::pin_share_refusals},
      {"counters.publications_refused", "cenote_dram_publications_refused_total", counter, "requests",
       "Publications of blocks of a request that were too many, or did not fit.", &all::publications_refused},
      {"counters.checksum_errors", "cenote_dram_checksum_errors_total", counter, "blocks",
       "Blocks dropped because their bytes were wrong.", &all::checksum_errors},
      {"counters.copies_checked", "cenote_dram_copies_checked_total", counter, "blocks",
       "Blocks whose bytes were compared with their sums, since another node got wrong ones.", &all::copies_checked},
      {"counters.sessions_ended", "cenote_dram_sessions_ended_total", counter, "sessions",
       "Sessions that the node ended, since too many of their blocks did not have the bytes of their sums.",
       &all::sessions_ended},
      {"counters.removals_done", "cenote_dram_removals_done_total", counter, "removals",
       "Removals and clears answered as done: confirmed by everyone that may have had such blocks.",
       &all::removals_done},
      {"counters.removals_pending", "cenote_dram_removals_pending_total", counter, "removals",
       "Removals and clears answered with `removal_pending`: done here, and not confirmed by everyone in time.",
       &all::removals_pending},
      {"counters.removals_failed", "cenote_dram_removals_failed_total", counter, "removals",
       "Removals and clears that were carried out here, and answered with another error.", &all::removals_failed},
      {"counters.demoted", "cenote_dram_demoted_total", counter, "blocks", "Blocks that the tier below took.",
       &all::demoted},
      {"counters.demotions_dropped", "cenote_dram_demotions_dropped_total", counter, "blocks",
       "Blocks that left without a copy below.", &all::demotions_dropped},
      {"counters.copies_skipped", "cenote_dram_copies_skipped_total", counter, "blocks",
       "Blocks that a tier below was to have at once and did not get: it was away, or its write window was full.",
       &all::copies_skipped},
      {"counters.instances_given_up", "cenote_instances_given_up_total", counter, "instances",
       "Instances that nobody used and that were given up.", &all::instances_given_up},
      {"counters.promoted", "cenote_dram_promoted_total", counter, "blocks", "Blocks brought up from below.",
       &all::promoted},
      {"counters.promotions_failed", "cenote_dram_promotions_failed_total", counter, "blocks",
       "Blocks asked for below and not got.", &all::promotions_failed},
      {"dram.expired", "cenote_dram_expired_total", counter, "blocks",
       "Blocks that nobody used for their group's time to live.", &all::expired},
      {"counters.waits", "cenote_dram_waits_total", counter, "batches", "Batches of a session that waited for memory.",
       &all::waits},
      {"counters.put_waits", "cenote_dram_put_waits_total", counter, "times",
       "Times that a put found no blank block and had to evict for itself.", &all::put_waits},
      {"prefetch.not_held", "", counter, "blocks",
       "Blocks of prefetches that were left to eviction, since `held_bytes` was at its most.", &all::not_held},
  });
};
static_assert(rows_are_complete<blocks::store_counters>(), "a counter has no row");

}  // namespace cenote
