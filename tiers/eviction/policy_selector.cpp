#include "tiers/eviction/policy_selector.hpp"

#include <algorithm>
#include <cmath>

namespace cenote::eviction {

namespace {

// What the pool got beside what its shadow cache promised: far fewer requests are behind it.
constexpr double of_pool = 0.25;
// A pool that keeps less than any policy promises says nothing for one of them.
constexpr double most_short = 0.5;

}  // namespace

policy_selector::policy_selector(std::size_t candidates, std::size_t active, std::uint32_t half_life) noexcept
    : candidates_(candidates), active_(active), keeps_(std::exp2(-1.0 / half_life)) {}

void policy_selector::add(std::span<const std::uint32_t> saved, std::uint32_t got) noexcept {
  requests_ = std::min(requests_ + 1, fewest);
  got_ = got_ * keeps_ + got;
  for (std::size_t one = 0; one < candidates_; ++one) {
    totals_[one] += saved[one];
    sums_[one] = sums_[one] * keeps_ + saved[one];
    for (std::size_t other = 0; other < one; ++other) {
      const double difference = static_cast<double>(saved[one]) - saved[other];
      squares_[one][other] = squares_[one][other] * keeps_ + difference * difference;
    }
  }
}

std::optional<std::size_t> policy_selector::winner(std::span<const double> thresholds) const noexcept {
  if (requests_ < fewest) return std::nullopt;
  std::optional<std::size_t> best;
  double most_above = 1;
  for (std::size_t each = 0; each < candidates_; ++each) {
    const double above = lead(each) / thresholds[each];
    if (!(above > most_above)) continue;
    best = each;
    most_above = above;
  }
  return best;
}

void policy_selector::take_over(std::size_t candidate) noexcept {
  active_ = candidate;
  got_ = sums_[candidate];
}

double policy_selector::lead(std::size_t candidate) const noexcept {
  const double square = squares_[std::max(candidate, active_)][std::min(candidate, active_)];
  if (square == 0) return 0;
  const double promised = (sums_[candidate] - sums_[active_]) / std::sqrt(square);
  const double kept = of_pool * (got_ - sums_[active_]) / std::sqrt(square);
  return promised - std::max(kept, -most_short);
}

}  // namespace cenote::eviction
