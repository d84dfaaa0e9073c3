// When a dead worker is started again.
#pragma once

#include <chrono>

#include "keeper/child_process.hpp"

namespace cenote {

/// Plain arithmetic; time is an argument. Back-off counts only workers that died before they were ready, or within
/// `grace` of it by their own fault. Not thread-safe.
class restart_policy {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using duration = std::chrono::steady_clock::duration;

  static constexpr duration first_delay = std::chrono::milliseconds(50);
  static constexpr duration longest_delay = std::chrono::seconds(5);
  static constexpr duration grace = std::chrono::seconds(1);
  static constexpr int most_failures_at_start = 10;

  struct verdict {
    duration delay{};      ///< wait so long before the next start
    bool give_up = false;  ///< never ready, and too many tries
  };

  /// `ever_ready`: a worker of this node was ready before (an upgraded keeper knows that from its predecessor).
  explicit restart_policy(bool ever_ready = false) noexcept : ever_ready_(ever_ready) {}

  void started() noexcept { ready_ = false; }
  void ready(time_point now) noexcept;
  [[nodiscard]] verdict died(const process_end& end, time_point now) noexcept;

  [[nodiscard]] bool ever_ready() const noexcept { return ever_ready_; }
  [[nodiscard]] int failures() const noexcept { return failures_; }

 private:
  bool ready_ = false;
  bool ever_ready_ = false;
  time_point ready_at_{};
  int failures_ = 0;
};

}  // namespace cenote
