// Figures of what became of a publisher's events. Sums saturate at 2^64.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/enum_names.hpp"
#include "services/indexer/events/event_batch.hpp"

namespace cenote::indexer {

/// The reason for which blocks or events were passed over; its names are those of metrics.
enum class placement_refusal : std::uint8_t {
  unknown_parent,  ///< blocks behind a parent that the index does not know
  unknown_name,    ///< hashes without tokens that name no block
  conflict,        ///< blocks whose hash names another block of the same publisher
  ignored_group,   ///< blocks of cache groups that make no prefix
  size,            ///< blocks of a size that there is no room for, or that differs from the pod's other groups
  bounds,          ///< blocks of pods, ranks, media, groups, models or domains beyond a bound
  memory,          ///< blocks that found no memory
};
CENOTE_ENUM_NAMES(placement_refusal, unknown_parent, unknown_name, conflict, ignored_group, size, bounds, memory);

struct placement_counters {
  std::uint64_t batches = 0;
  std::uint64_t stored = 0;   ///< blocks
  std::uint64_t removed = 0;  ///< blocks
  std::uint64_t clears = 0;   ///< events
  std::array<std::uint64_t, enum_size<placement_refusal>> refused{};
  std::array<std::uint64_t, enum_size<event_fault>> faults{};  ///< events that were not understood

  void refuse(placement_refusal reason, std::uint64_t count) noexcept {
    refused[static_cast<std::size_t>(reason)] += count;
  }
  placement_counters& operator+=(const placement_counters& part) noexcept {
    batches += part.batches;
    stored += part.stored;
    removed += part.removed;
    clears += part.clears;
    for (std::size_t i = 0; i < refused.size(); ++i) refused[i] += part.refused[i];
    for (std::size_t i = 0; i < faults.size(); ++i) faults[i] += part.faults[i];
    return *this;
  }
  /// Blocks that a pod has, and that found no room here.
  [[nodiscard]] std::uint64_t misses() const noexcept {
    return refusals(placement_refusal::bounds) + refusals(placement_refusal::memory);
  }
  [[nodiscard]] std::uint64_t refusals(placement_refusal reason) const noexcept {
    return refused[static_cast<std::size_t>(reason)];
  }
};

}  // namespace cenote::indexer
