// Whether the node is at work, for those who ask often and must not wait.
#pragma once

#include <atomic>
#include <chrono>

#include "core/error.hpp"

namespace cenote {

/// The DRAM tier says several times a second that it is at work; anybody asks. Thread-safe, never blocks.
class health {
 public:
  using clock = std::chrono::steady_clock;
  static constexpr auto patience = std::chrono::seconds(5);

  void beat(clock::time_point now = clock::now()) noexcept { last_ = now.time_since_epoch().count(); }
  /// `deadline_exceeded`, and for how long nothing was heard.
  [[nodiscard]] result<void> check(clock::time_point now = clock::now()) const {
    const auto silent = now - clock::time_point(clock::duration(last_));
    if (silent < patience) return {};
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(silent).count();
    return fail(error_code::deadline_exceeded,
                "the DRAM tier has not been heard of for " + std::to_string(seconds) + " s");
  }

 private:
  std::atomic<clock::rep> last_{clock::now().time_since_epoch().count()};
};

}  // namespace cenote
