// Time for policies whose caller's may stand still.
#pragma once

#include <cstdint>

namespace cenote::eviction {

/// The caller's time, in tenths of a second, as long as it moves. Where so many requests come that none of them sees it
/// move (a replay at full speed), each of them is a tenth of a second from then on. Never goes back. Not thread-safe.
class request_clock {
 public:
  /// A request begins.
  void tick(std::uint32_t now) noexcept {
    still_ = now == last_ ? still_ + 1 : 0;
    last_ = now;
    if (still_ > patience) ++added_;
  }
  [[nodiscard]] std::uint32_t at(std::uint32_t now) const noexcept { return now + added_; }

 private:
  /// More than a node serves in a tenth of a second.
  static constexpr std::uint32_t patience = 256;

  std::uint32_t last_ = 0;
  std::uint32_t still_ = 0;
  std::uint32_t added_ = 0;
};

}  // namespace cenote::eviction
