// How long what a dead process's GPU may still write is set aside: for a time, and until its driver has let go of it.
#pragma once

#include <chrono>
#include <cstdint>

#include "worker/gpu_watch.hpp"

namespace cenote {

/// Decides; the time and what the driver says are arguments.
class quarantine {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using duration = std::chrono::steady_clock::duration;

  /// Its times over, a process that the driver still lists, or says nothing of, is waited for no longer: its number may
  /// be another one's, and memory that nobody ever gets is lost.
  static constexpr int most = 10;

  enum class verdict : std::uint8_t {
    goes_on,
    over,
    given_up,  ///< nobody knows that the driver has let go
  };

  quarantine(time_point begin, duration time) noexcept : until_(begin + time), at_most_(begin + most * time) {}

  /// From then on the driver is asked: what it says earlier may be no more true.
  [[nodiscard]] bool has_had_its_time(time_point now) const noexcept { return now >= until_; }

  [[nodiscard]] verdict judge(time_point now, gpu_answer answer) const noexcept {
    if (!has_had_its_time(now)) return verdict::goes_on;
    if (answer == gpu_answer::gone || answer == gpu_answer::nobody_knows) return verdict::over;
    return now < at_most_ ? verdict::goes_on : verdict::given_up;
  }

 private:
  time_point until_;
  time_point at_most_;
};

}  // namespace cenote
