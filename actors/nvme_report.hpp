// What the NVMe tier says of itself.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "actors/tier_report.hpp"
#include "tiers/nvme/figures.hpp"
#include "tiers/nvme/store.hpp"

namespace cenote {

struct nvme_path_report {
  std::string directory;
  std::string engine;
  bool direct = false;
  std::uint64_t metadata_bytes = 0;    ///< the share of the capacity that is kept for it
  std::uint64_t registered_bytes = 0;  ///< memory that transfers of this path need not pin first
  std::uint64_t pending_removals = 0;  ///< that are not written down in its metadata
};

/// Reads and writes are timed from the hand-over to a path's engine until the completion was heard of.
struct nvme_report final : tier_report {
  nvme_report() : tier_report("nvme") {}

  nvme::store_status store;
  std::vector<nvme_path_report> paths;
  histogram reads, writes;  ///< nanoseconds
  std::uint64_t failed_saves = 0;
  std::uint64_t failed_removals = 0;  ///< requests that were answered as not done

  /// Makes the parts that every tier's report has of the members above.
  void describe();
};

template <>
struct figure_table<nvme_report> {
  using all = nvme_report;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"nvme.counters.failed_saves", "cenote_nvme_failed_saves_total", counter, "writes",
       "Writes of metadata that failed.", &all::failed_saves},
      {"nvme.counters.failed_removals", "cenote_nvme_failed_removals_total", counter, "removals",
       "Removals answered as not done.", &all::failed_removals},
  });
};

template <>
struct figure_table<nvme_path_report> {
  using all = nvme_path_report;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"nvme.paths[].pending_removals", "cenote_nvme_path_pending_removals", gauge, "removals",
       "Removals that a path has not written down in its metadata.", &all::pending_removals},
      {"nvme.paths[].metadata_capacity", "", gauge, "bytes", "Space of a path for its metadata.", &all::metadata_bytes},
      {"nvme.paths[].registered_bytes", "", gauge, "bytes", "Memory that transfers of a path need not pin first.",
       &all::registered_bytes},
  });
};

}  // namespace cenote
