// For how long a worker has sent no sign of life, by the time in which this process was awake.
#pragma once

#include <chrono>

namespace cenote {

/// The keeper looks once a beat. What lies between two looks counts as one beat at most: where a whole machine stood
/// still, the keeper with it, the worker is not blamed.
class silence_meter {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using duration = std::chrono::milliseconds;

  /// A worker has started.
  void restart(time_point now, duration beat) noexcept;

  /// A sign of life. `reported`: for how long a part of the worker has been silent.
  void heartbeat(time_point now, duration reported) noexcept;

  /// The silence so far. `beat`: until the next look.
  duration look(time_point now, duration beat) noexcept;

 private:
  [[nodiscard]] std::chrono::nanoseconds awake_at(time_point now) const noexcept;

  std::chrono::nanoseconds awake_{0};  ///< until the last look
  std::chrono::nanoseconds last_{0};   ///< the last sign of life, in time awake
  time_point looked_{};
  duration beat_{0};
  duration reported_{0};
};

}  // namespace cenote
