// What status and metrics show of a device's tier beside its way to DRAM (tiers/gpu/counters.hpp).
#pragma once

#include <cstdint>

#include "core/figure.hpp"

namespace cenote {

/// What status and metrics show of one device: of its store, of what it loads, and of its way to DRAM.
struct device_figures {
  std::uint64_t capacity = 0, assigned = 0, used = 0, cached = 0, blocks = 0, slabs = 0, sessions = 0;
  std::uint64_t writing_bytes = 0, loading_bytes = 0;
  std::uint64_t commits = 0, evicted = 0, removed = 0, demoted = 0, demotions_dropped = 0, promoted = 0;
  std::uint64_t promotions_failed = 0, quarantined = 0;
};

template <>
struct figure_table<device_figures> {
  using all = device_figures;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"gpu.devices[].capacity", "cenote_gpu_capacity_bytes", gauge, "bytes", "Device memory that slabs may take.",
       &all::capacity},
      {"gpu.devices[].assigned", "cenote_gpu_assigned_bytes", gauge, "bytes", "Device memory of slabs.",
       &all::assigned},
      {"gpu.devices[].used", "cenote_gpu_used_bytes", gauge, "bytes", "Device memory of blocks in use.", &all::used},
      {"gpu.devices[].cached", "cenote_gpu_cached_bytes", gauge, "bytes", "Device memory of blocks that are hits.",
       &all::cached},
      {"gpu.devices[].blocks", "cenote_gpu_blocks", gauge, "blocks", "Blocks on a device that are hits.", &all::blocks},
      {"gpu.devices[].slabs", "", gauge, "slabs", "Slabs on a device.", &all::slabs},
      {"gpu.devices[].sessions", "cenote_gpu_sessions", gauge, "sessions", "Sessions whose blocks lie on a device.",
       &all::sessions},
      {"gpu.devices[].quarantined", "", gauge, "blocks", "Blocks that somebody may still write.", &all::quarantined},
      {"gpu.devices[].writing_bytes", "cenote_gpu_writing_bytes", gauge, "bytes", "On their way to DRAM.",
       &all::writing_bytes},
      {"gpu.devices[].loading_bytes", "cenote_gpu_loading_bytes", gauge, "bytes", "On their way from DRAM.",
       &all::loading_bytes},
      {"gpu.devices[].commits", "cenote_gpu_commits_total", counter, "blocks", "Blocks that were stored on a device.",
       &all::commits},
      {"gpu.devices[].evicted", "cenote_gpu_evicted_total", counter, "blocks", "Blocks that left to make room.",
       &all::evicted},
      {"gpu.devices[].removed", "cenote_gpu_removed_total", counter, "blocks",
       "Blocks that a client or an operator removed.", &all::removed},
      {"gpu.devices[].demoted", "cenote_gpu_demoted_total", counter, "blocks", "Blocks that DRAM took.", &all::demoted},
      {"gpu.devices[].demotions_dropped", "cenote_gpu_demotions_dropped_total", counter, "blocks",
       "Blocks that left without a copy in DRAM.", &all::demotions_dropped},
      {"gpu.devices[].promoted", "cenote_gpu_promoted_total", counter, "blocks", "Blocks brought up from DRAM.",
       &all::promoted},
      {"gpu.devices[].promotions_failed", "cenote_gpu_promotions_failed_total", counter, "blocks",
       "Blocks asked of DRAM and not got.", &all::promotions_failed},
  });
};
static_assert(rows_are_complete<device_figures>(), "a figure has no row");

}  // namespace cenote
