// Bounds what is lost by waiting for loads that are slower than recomputing, and says when a slow device is measured
// again.
#pragma once

#include <cstdint>

#include "tiers/prefetch/throughput.hpp"

namespace cenote::prefetch {

/// A budget of time that prefetches may lose by waiting longer than recomputing takes, in seconds. Each prefetch pays
/// in a share of its recomputation time, and a share of what loading it saved; its allowance is at most a fifth of its
/// own recomputation time. So all together lose no more than 3 % of recomputing and a tenth of what was saved, not
/// counting the first four. Not thread-safe.
class loss_account {
 public:
  static constexpr double most_of_one = 0.2;

  /// A prefetch begins whose blocks take `recompute` to compute. Returns its allowance.
  [[nodiscard]] double open(double recompute) noexcept;
  /// The prefetch with this allowance has ended; `gained` is what it saved less what it waited, below 0 for a loss.
  void close(double allowance, double gained) noexcept;

 private:
  double left_ = 0;
  std::uint64_t opened_ = 0;
};

/// When a device that is too slow to load from is measured again: at intervals of a twentieth of the time for which its
/// speed has been the same, between 0.1 and 4 s, so that a change is noticed soon after the last one, and late where it
/// is rare. A probe that kept the device busy is followed by a pause of three times as long, at most a second. Not
/// thread-safe.
class probe_schedule {
 public:
  /// To be called after each measurement.
  void observe(const throughput& speed, time_point now) noexcept;
  [[nodiscard]] bool is_due(const throughput& speed, time_point now) const noexcept;
  void begun(time_point now) noexcept;

 private:
  double rate_ = 0;  ///< the speed at changed_
  time_point changed_{};
  time_point begun_{};
};

}  // namespace cenote::prefetch
