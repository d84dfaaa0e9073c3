// Lookups and hits of engines in the last hour, in spans of half a minute.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/blocks/types.hpp"

namespace cenote {

/// Tokens of the keys that were looked up between two looks at the counters: by calls that ask what is there, or of an
/// instance whose engines do not ask, by those that read.
struct hit_span {
  std::chrono::system_clock::time_point end;
  std::uint64_t looked_up = 0;
  std::uint64_t hits = 0;        ///< of those, in DRAM
  std::uint64_t lower_hits = 0;  ///< … in tiers below alone

  [[nodiscard]] bool operator==(const hit_span&) const = default;
};

/// The sum of `spans`, and the end of the last one.
[[nodiscard]] hit_span sum_of(std::span<const hit_span> spans);

/// Spans from the differences of an instance's counters, of which it keeps the last ones: memory is bounded by the
/// instances that there are. An instance that is new, or begins again, counts from 0. Not thread-safe.
class hit_history {
 public:
  static constexpr std::chrono::seconds span_length{30};
  static constexpr std::size_t span_count = 120;  ///< an hour

  using clock = std::chrono::system_clock;

  /// Ends a span at `now`. The first call begins the first one: what was counted before belongs to none.
  void end_span(std::span<const blocks::instance_status> instances, clock::time_point now);
  /// The last hour, oldest first, with the span that has not ended.
  [[nodiscard]] std::vector<hit_span> spans(std::span<const blocks::instance_status> instances,
                                            clock::time_point now) const;

 private:
  struct instance_counts {
    hit_span questions;
    hit_span reads;
  };

  [[nodiscard]] static instance_counts counts_of(const blocks::instance_status& instance);
  [[nodiscard]] hit_span open_span(std::span<const blocks::instance_status> instances, clock::time_point now) const;

  bool is_begun_ = false;
  std::map<std::string, instance_counts> last_;  ///< by instance
  std::deque<hit_span> spans_;
};

}  // namespace cenote
