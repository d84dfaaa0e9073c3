// The distinct sets of specs of an instance, by number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "services/manager/index/line_arena.hpp"
#include "services/manager/index/location.hpp"
#include "services/manager/index/stable_array.hpp"

namespace cenote::manager {

/// A table that only grows: a location names a set of specs in 14 bits. One thread adds, any thread reads.
class spec_sets {
 public:
  explicit spec_sets(line_arena& arena) noexcept : masks_(arena) {}

  /// The number of a set, which is added if it is new; nothing if most_spec_sets others are there. The writer's.
  /// Throws std::bad_alloc.
  [[nodiscard]] std::optional<std::uint16_t> number_of(std::uint64_t mask);

  /// The specs of a set that a location names. Any thread.
  [[nodiscard]] std::uint64_t mask(std::uint16_t set) const noexcept {
    return masks_[set].load(std::memory_order_relaxed);
  }

  /// The writer's.
  [[nodiscard]] std::size_t size() const noexcept { return numbers_.size(); }
  /// Beside those of the arena.
  [[nodiscard]] std::size_t bytes() const noexcept { return numbers_.size() * entry_bytes; }

 private:
  static constexpr std::size_t entry_bytes = 48;  ///< about, of a node and its bucket

  stable_array<std::atomic<std::uint64_t>> masks_;
  std::unordered_map<std::uint64_t, std::uint16_t> numbers_;
};

}  // namespace cenote::manager
