// What waiting for loads may cost when it does not pay, and when a device that is too slow is tried again.
#pragma once

#include <cstdint>

#include "tiers/prefetch/throughput.hpp"

namespace cenote::prefetch {

/// How much waiting may be lost, of one prefetch and of all. Each prefetch brings a share of the time that it takes to
/// recompute it, and a share of what loading it gained; each takes out at most a fifth of its own. So in all no more is
/// lost than 3 % of recomputing and a tenth of what was gained, but for the first four. Seconds. One thread.
class loss_account {
 public:
  static constexpr double most_of_one = 0.2;

  /// A prefetch that takes `recompute` to compute begins: what it may lose.
  [[nodiscard]] double open(double recompute) noexcept;
  /// It has ended; `gained` is what it saved less what it waited, below 0 for a loss.
  void close(double allowance, double gained) noexcept;

 private:
  double left_ = 0;
  std::uint64_t opened_ = 0;
};

/// When a device that does not pay is measured again: soon, and at a distance that grows with the time for which its
/// speed has been the same, so that a change is seen after a tenth of that. A probe is followed by a rest of three
/// times its length, a second at most. One thread.
class probe_schedule {
 public:
  /// After each measurement.
  void observe(const throughput& speed, time_point now) noexcept;
  [[nodiscard]] bool is_due(const throughput& speed, time_point now) const noexcept;
  void begun(time_point now) noexcept;

 private:
  double rate_ = 0;  ///< when it was last seen to be another one
  time_point changed_{};
  time_point begun_{};
};

}  // namespace cenote::prefetch
