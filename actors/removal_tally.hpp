// Answers to removals and clears, by outcome.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "actors/sparse_line.hpp"
#include "core/error.hpp"
#include "tiers/blocks/counters.hpp"

namespace cenote {

/// Counts the answers that clients and operators get to removals and clears. What is not done has a line in the log,
/// for all of ten seconds one. Not thread-safe.
class removal_tally {
 public:
  using time_point = sparse_line::time_point;

  /// `requests` were answered with `code`. The text for the log, if a line is due: how many were not done since the
  /// last one, and `reason` of this one.
  [[nodiscard]] std::optional<std::string> note(error_code code, const std::string& reason, std::uint64_t requests,
                                                time_point now);
  [[nodiscard]] blocks::store_counters added_to(blocks::store_counters counters) const noexcept;

 private:
  std::uint64_t done_ = 0;
  std::uint64_t pending_ = 0;
  std::uint64_t failed_ = 0;
  sparse_line line_;
};

}  // namespace cenote
