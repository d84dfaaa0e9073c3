// Tables of what the NVMe tier's reports show beside its counters (tiers/nvme/counters.hpp).
#pragma once

#include "core/figure.hpp"
#include "tiers/nvme/store.hpp"

namespace cenote {

template <>
struct figure_table<nvme::store_status> {
  using all = nvme::store_status;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"nvme.capacity", "cenote_nvme_capacity_bytes", gauge, "bytes", "Disk space for blocks.", &all::capacity},
      {"nvme.used", "cenote_nvme_used_bytes", gauge, "bytes", "Disk space of blocks.", &all::used},
      {"nvme.blocks", "cenote_nvme_blocks", gauge, "blocks", "Blocks on disk.", &all::blocks},
      {"nvme.bytes_in_flight", "cenote_nvme_in_flight_bytes", gauge, "bytes", "Bytes of transfers under way.",
       &all::bytes_in_flight},
  });
};

template <>
struct figure_table<nvme::path_status> {
  using all = nvme::path_status;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"nvme.paths[].capacity", "cenote_nvme_path_capacity_bytes", gauge, "bytes", "Space of a path for blocks.",
       &all::capacity},
      {"nvme.paths[].used", "cenote_nvme_path_used_bytes", gauge, "bytes", "Space of a path's blocks.", &all::used},
      {"nvme.paths[].blocks", "", gauge, "blocks", "Blocks on a path.", &all::blocks},
      {"nvme.paths[].errors", "cenote_nvme_path_errors_total", figure_kind::counter, "errors",
       "Errors that a path's disk gave.", &all::errors},
      {"nvme.paths[].bad_bytes", "", gauge, "bytes", "Set aside because the file system had no space for it.",
       &all::bad_bytes},
  });
};

}  // namespace cenote
