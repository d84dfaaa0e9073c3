// What the way from a device's tier to DRAM counts: a member and its row are all that a counter needs.
#pragma once

#include "core/figure.hpp"

namespace cenote::gpu {

/// Totals since the worker started, and what is under way.
struct guest_counters {
  std::uint64_t written = 0, written_bytes = 0, read = 0, read_bytes = 0, present = 0, dropped = 0, missing = 0,
                failed = 0, brought_up = 0, under_way = 0;
};

}  // namespace cenote::gpu

namespace cenote {

template <>
struct figure_table<gpu::guest_counters> {
  using all = gpu::guest_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"gpu.devices[].counters.written", "cenote_gpu_written_total", counter, "blocks",
       "Blocks copied from a device to DRAM.", &all::written},
      {"gpu.devices[].counters.written_bytes", "cenote_gpu_written_bytes_total", counter, "bytes",
       "Bytes of blocks copied from a device to DRAM.", &all::written_bytes},
      {"gpu.devices[].counters.read", "cenote_gpu_read_total", counter, "blocks",
       "Blocks copied from DRAM to a device.", &all::read},
      {"gpu.devices[].counters.read_bytes", "cenote_gpu_read_bytes_total", counter, "bytes",
       "Bytes of blocks copied from DRAM to a device.", &all::read_bytes},
      {"gpu.devices[].counters.present", "cenote_gpu_present_total", counter, "blocks",
       "Blocks of a device that DRAM had already.", &all::present},
      {"gpu.devices[].counters.dropped", "cenote_gpu_dropped_total", counter, "blocks",
       "Blocks of a device that DRAM does not have whole: no room, other ranks' parts lack, or they were removed.",
       &all::dropped},
      {"gpu.devices[].counters.missing", "cenote_gpu_missing_total", counter, "blocks",
       "Blocks asked for that neither DRAM nor a tier below it had.", &all::missing},
      {"gpu.devices[].counters.failed", "cenote_gpu_failed_total", counter, "blocks",
       "Copies that a device did not carry out.", &all::failed},
      {"gpu.devices[].counters.brought_up", "cenote_gpu_brought_up_total", counter, "blocks",
       "Blocks that were brought up to DRAM for a device.", &all::brought_up},
      {"gpu.devices[].under_way", "cenote_gpu_under_way", figure_kind::gauge, "blocks",
       "Blocks on their way between a device and DRAM.", &all::under_way},
  });
};
static_assert(rows_are_complete<gpu::guest_counters>(), "a counter has no row");

}  // namespace cenote
