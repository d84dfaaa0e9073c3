#include "tiers/prefetch/throughput.hpp"

#include <algorithm>
#include <cmath>

namespace cenote::prefetch {

namespace {

constexpr double memory_seconds = 2;  // of busy time, after which a sample counts for a third
constexpr nanoseconds tells_nothing = std::chrono::seconds(10);  // other work may have begun or ended since

double seconds_of(nanoseconds time) noexcept {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void throughput::started(std::uint64_t bytes, time_point now) noexcept {
  if (under_way_ == 0) progress_ = now;
  under_way_ += bytes;
}

void throughput::ended(std::uint64_t bytes, std::uint64_t good, time_point now) noexcept {
  if (good > 0) {
    if (now - measured_ > tells_nothing) bytes_ = seconds_ = 0;
    // Ends that are reported together with the start have taken some time all the same.
    const double took = std::max(seconds_of(now - progress_), 1e-7);
    const double kept = std::exp(-took / memory_seconds);
    bytes_ = bytes_ * kept + static_cast<double>(good);
    seconds_ = seconds_ * kept + took;
    rate_ = bytes_ / seconds_;
    measured_ = now;
  }
  under_way_ -= std::min(bytes, under_way_);
  progress_ = now;
}

bool throughput::is_known(time_point now) const noexcept {
  return rate_ > 0 && now - measured_ <= tells_nothing;
}

std::optional<double> throughput::estimate(time_point now) const noexcept {
  const bool known = is_known(now);
  const double silence = seconds_of(now - progress_);
  if (under_way_ == 0 || silence <= 0) return known ? std::optional(rate_) : std::nullopt;
  // Had the device kept its pace, all that is under way would have come within under_way / rate.
  const double at_most = static_cast<double>(under_way_) / silence;
  return known ? std::min(rate_, at_most) : at_most;
}

}  // namespace cenote::prefetch
