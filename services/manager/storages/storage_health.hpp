// Whether a storage works, from its probes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "core/enum_names.hpp"

namespace cenote::manager {

enum class storage_condition : std::uint8_t {
  healthy,
  full,       ///< it works, but less than a twentieth is free: it is read, and takes no new writes
  unhealthy,  ///< neither read nor written
  unprobed,   ///< as unhealthy, until the first probe that works
};
CENOTE_ENUM_NAMES(storage_condition, healthy, full, unhealthy, unprobed);

/// Whether reads are sent to a storage in this condition.
[[nodiscard]] constexpr bool is_readable(storage_condition condition) noexcept {
  return condition == storage_condition::healthy || condition == storage_condition::full;
}

/// A storage's condition for all threads.
class storage_signal {
 public:
  explicit storage_signal(storage_condition condition = storage_condition::unprobed) noexcept : condition_(condition) {}

  [[nodiscard]] storage_condition condition() const noexcept { return condition_.load(std::memory_order_relaxed); }
  /// The last failure of a probe; empty: the last one worked.
  [[nodiscard]] std::string reason() const;
  void show(storage_condition condition, std::string reason);

 private:
  std::atomic<storage_condition> condition_;
  mutable std::mutex mutex_;  ///< of what stands below
  std::string reason_;
};

/// Healthy from the first probe on that works. Unhealthy after three that failed in a row, or one that hangs; healthy
/// again after two that worked. A plain object; time is an argument.
class storage_health {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr unsigned most_failures = 3;
  static constexpr unsigned successes_to_return = 2;

  explicit storage_health(std::chrono::milliseconds probe_timeout) noexcept : probe_timeout_(probe_timeout) {}

  void note_success(bool has_room) noexcept;
  void note_failure() noexcept;
  /// A probe that began at `begin` has not ended.
  void note_running(time_point begin, time_point now) noexcept;
  [[nodiscard]] storage_condition condition() const noexcept { return condition_; }

 private:
  std::chrono::milliseconds probe_timeout_;
  storage_condition condition_ = storage_condition::unprobed;
  unsigned failures_ = 0;
  unsigned successes_ = 0;
};

}  // namespace cenote::manager
