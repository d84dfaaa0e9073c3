// When something has to go, and how much.
#pragma once

#include <cstdint>

namespace cenote::manager {

/// A group's level, as its reclaim strategy gives it.
struct level_terms {
  double used_percentage = 0.9;   ///< part of the capacity; above 1: never before that much is used
  std::int64_t used_size = 0;     ///< bytes; 0: none
  double step_percentage = 0.05;  ///< how far below the level it goes
  std::int64_t step_size = 0;     ///< bytes in place of a percentage; 0: none
};

/// A use that counts against a capacity: bytes, or keys.
struct level_use {
  std::int64_t capacity = 0;  ///< 0 and less: full as soon as anything is used
  std::int64_t used = 0;      ///< without what is being deleted
};

/// Whether bytes have reached their level. Equality counts.
[[nodiscard]] bool is_over_level(const level_use& use, const level_terms& terms) noexcept;
/// The same for keys and for single types and storages, for which only the percentage counts.
[[nodiscard]] bool is_over_share(const level_use& use, const level_terms& terms) noexcept;
/// The part of `use` that may stay once its level is reached: the level less the step.
[[nodiscard]] std::int64_t goal_of(const level_use& use, const level_terms& terms) noexcept;

}  // namespace cenote::manager
