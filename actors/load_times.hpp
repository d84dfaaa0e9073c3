// The time that prefetches with loads took.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "actors/sparse_line.hpp"
#include "core/histogram.hpp"
#include "memory/prefetch_outcome.hpp"

namespace cenote {

/// Counts the answers to prefetches for which blocks came up, and picks examples of slow ones for the log: the first of
/// ten seconds. Not thread-safe.
class load_times {
 public:
  using time_point = sparse_line::time_point;

  /// A slow one, when a line is due: how many were slow since the last line, this one included.
  [[nodiscard]] std::optional<std::uint64_t> note(const memory::prefetch_outcome& outcome,
                                                  std::chrono::nanoseconds slow_load, time_point now);
  [[nodiscard]] const histogram& times() const noexcept { return times_; }

 private:
  histogram times_;  ///< nanoseconds
  sparse_line line_;
};

}  // namespace cenote
