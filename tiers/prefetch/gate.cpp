#include "tiers/prefetch/gate.hpp"

#include <algorithm>

namespace cenote::prefetch {

namespace {

constexpr std::uint64_t first_ones = 4;  // prefetches with the largest allowance, since nothing has been paid in yet
constexpr double share_of_recompute = 0.03;
constexpr double share_of_gain = 0.1;
constexpr double fades = 1.0 / 256;    // share of the budget that each prefetch lets expire: it does not pile up
constexpr double another_speed = 1.5;  // factor from which on a speed counts as another one
constexpr int rest = 3;                // pause after a probe, in times of its length
constexpr nanoseconds shortest = std::chrono::milliseconds(100);  // intervals between probes
constexpr nanoseconds longest = std::chrono::seconds(4);
constexpr nanoseconds longest_rest = std::chrono::seconds(1);
constexpr int part = 20;  // an interval is this part of the time since the speed changed

}  // namespace

double loss_account::open(double recompute) noexcept {
  const double share = opened_++ < first_ones ? most_of_one : share_of_recompute;
  left_ += share * recompute - fades * left_;
  const double allowance = std::min(left_, most_of_one * recompute);
  left_ -= allowance;
  return allowance;
}

void loss_account::close(double allowance, double gained) noexcept {
  left_ += gained >= 0 ? allowance + share_of_gain * gained : std::max(0.0, allowance + gained);
}

void probe_schedule::observe(const throughput& speed, time_point now) noexcept {
  const double rate = speed.last();
  if (rate <= another_speed * rate_ && rate * another_speed >= rate_) return;
  rate_ = rate;
  changed_ = now;
}

bool probe_schedule::is_due(const throughput& speed, time_point now) const noexcept {
  if (speed.under_way() > 0 || now - begun_ < std::clamp<nanoseconds>((begun_ - changed_) / part, shortest, longest)) {
    return false;
  }
  const nanoseconds after =
      speed.last_end() - speed.last_period() - begun_;  // only a probe's own loads ask for a pause
  const nanoseconds busy = after >= nanoseconds(0) && after < shortest ? speed.last_period() : nanoseconds(0);
  return speed.last() == 0 || now - speed.last_end() >= std::clamp<nanoseconds>(rest * busy, shortest, longest_rest);
}

void probe_schedule::begun(time_point now) noexcept {
  begun_ = now;
}

}  // namespace cenote::prefetch
