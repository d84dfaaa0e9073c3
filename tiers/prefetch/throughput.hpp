// How fast loads come up: measured, not configured.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace cenote::prefetch {

using clock = std::chrono::steady_clock;
using time_point = clock::time_point;
using nanoseconds = std::chrono::nanoseconds;

/// Bytes per second of what came up while something was under way, the last seconds counting most. Only time with loads
/// under way counts: an idle device says nothing. One thread; time is an argument and never runs back.
class throughput {
 public:
  /// `bytes` are under way from now on, in addition.
  void started(std::uint64_t bytes, time_point now) noexcept;
  /// Loads of `bytes` together have ended, `good` bytes of them with a block.
  void ended(std::uint64_t bytes, std::uint64_t good, time_point now) noexcept;

  [[nodiscard]] std::uint64_t under_way() const noexcept { return under_way_; }
  /// Something was measured, not too long ago.
  [[nodiscard]] bool is_known(time_point now) const noexcept;
  /// Bytes/s: what is known, but, while what is under way is overdue, no faster than the silence allows. Nothing when
  /// neither tells anything.
  [[nodiscard]] std::optional<double> estimate(time_point now) const noexcept;
  /// The last measurement, however old; 0: none. For status.
  [[nodiscard]] double last() const noexcept { return rate_; }

 private:
  std::uint64_t under_way_ = 0;
  time_point progress_{};  ///< the last end, or when loads began after a pause
  time_point measured_{};
  double bytes_ = 0;    ///< both decay with busy time
  double seconds_ = 0;  ///< of busy time
  double rate_ = 0;
};

}  // namespace cenote::prefetch
