// What the NVMe tier counts: a member and its row are all that a counter needs.
#pragma once

#include "core/figure.hpp"

namespace cenote::nvme {

/// Totals since the worker started.
struct store_counters {
  std::uint64_t written = 0, written_bytes = 0, read = 0, read_bytes = 0, dropped = 0, unadmitted = 0;
  std::uint64_t evicted = 0, removed = 0, checksum_errors = 0, io_errors = 0, misses = 0, loaded = 0,
                refused_at_load = 0, expired = 0;
};

}  // namespace cenote::nvme

namespace cenote {

template <>
struct figure_table<nvme::store_counters> {
  using all = nvme::store_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"nvme.counters.written", "cenote_nvme_written_total", counter, "blocks", "Blocks written.", &all::written},
      {"nvme.counters.written_bytes", "cenote_nvme_written_bytes_total", counter, "bytes", "Bytes of blocks written.",
       &all::written_bytes},
      {"nvme.counters.read", "cenote_nvme_read_total", counter, "blocks", "Blocks read, and right.", &all::read},
      {"nvme.counters.read_bytes", "cenote_nvme_read_bytes_total", counter, "bytes", "Bytes of blocks read.",
       &all::read_bytes},
      {"nvme.counters.dropped", "cenote_nvme_dropped_total", counter, "blocks",
       "Blocks not written: no room, or an error.", &all::dropped},
      {"nvme.counters.unadmitted", "cenote_nvme_unadmitted_total", counter, "blocks",
       "Blocks not written because they came for the first time.", &all::unadmitted},
      {"nvme.counters.evicted", "cenote_nvme_evicted_total", counter, "blocks", "Blocks that left to make room.",
       &all::evicted},
      {"nvme.counters.removed", "cenote_nvme_removed_total", counter, "blocks",
       "Blocks that a client or an operator removed.", &all::removed},
      {"nvme.counters.checksum_errors", "cenote_nvme_checksum_errors_total", counter, "blocks",
       "Blocks read that were not what was written.", &all::checksum_errors},
      {"nvme.counters.io_errors", "cenote_nvme_io_errors_total", counter, "transfers", "Transfers that a disk refused.",
       &all::io_errors},
      {"nvme.counters.misses", "cenote_nvme_misses_total", counter, "blocks", "Blocks asked for that were not there.",
       &all::misses},
      {"nvme.counters.expired", "cenote_nvme_expired_total", counter, "blocks",
       "Blocks that nobody used for their group's time to live.", &all::expired},
      {"nvme.counters.loaded", "", counter, "blocks", "Blocks taken over from metadata at the start.", &all::loaded},
      {"nvme.counters.refused_at_load", "", counter, "blocks",
       "Records that did not fit: two in one place, outside the data file, too many.", &all::refused_at_load},
  });
};
static_assert(rows_are_complete<nvme::store_counters>(), "a counter has no row");

}  // namespace cenote
