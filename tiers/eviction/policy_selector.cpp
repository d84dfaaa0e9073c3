#include "tiers/eviction/policy_selector.hpp"

#include <algorithm>
#include <cmath>

namespace cenote::eviction {

namespace {

// The weight of the savings of the pool beside those that its shadow cache promised: far fewer requests are behind it.
constexpr double of_pool = 0.25;
// A pool that keeps less than any policy promises says nothing for one of them.
constexpr double most_short = 0.5;

constexpr double recent_half_life = 20;   // requests
constexpr double share_of_deficit = 0.3;  // of the lead in the long run that a recent lead has to outweigh
constexpr double doubt_of_error = 2;      // factor, for each switch that was taken back

const double keeps_recent = std::exp2(-1.0 / recent_half_life);

}  // namespace

void policy_selector::decayed_savings::add(std::span<const std::uint32_t> blocks, std::uint32_t by_pool,
                                           double keeps) noexcept {
  pool = pool * keeps + by_pool;
  for (std::size_t one = 0; one < blocks.size(); ++one) {
    saved[one] = saved[one] * keeps + blocks[one];
    for (std::size_t other = 0; other < one; ++other) {
      const double difference = static_cast<double>(blocks[one]) - blocks[other];
      squares[one][other] = squares[one][other] * keeps + difference * difference;
    }
  }
}

double policy_selector::decayed_savings::lead(std::size_t candidate, std::size_t active) const noexcept {
  const double square = squares[std::max(candidate, active)][std::min(candidate, active)];
  if (square == 0) return 0;
  const double promised = (saved[candidate] - saved[active]) / std::sqrt(square);
  const double kept = of_pool * (pool - saved[active]) / std::sqrt(square);
  return promised - std::max(kept, -most_short);
}

policy_selector::policy_selector(std::size_t candidates, std::size_t active, std::uint32_t half_life) noexcept
    : candidates_(candidates), active_(active), keeps_(std::exp2(-1.0 / half_life)) {}

void policy_selector::add(std::span<const std::uint32_t> saved, std::uint32_t by_pool) noexcept {
  requests_ = std::min(requests_ + 1, fewest);
  for (std::size_t each = 0; each < candidates_; ++each) totals_[each] += saved[each];
  long_run_.add(saved, by_pool, keeps_);
  recent_.add(saved, by_pool, keeps_recent);
  doubt_ = 1 + (doubt_ - 1) * keeps_;
}

std::optional<policy_selector::choice> policy_selector::winner(std::span<const threshold> thresholds) const noexcept {
  if (requests_ < fewest) return std::nullopt;
  std::optional<choice> best;
  double most_above = 1;
  for (std::size_t each = 0; each < candidates_; ++each) {
    const double deficit = std::max(0.0, -lead(each));
    const double above = lead(each) / thresholds[each].lead;
    const double recent_above =
        recent_.lead(each, active_) / (doubt_ * (thresholds[each].recent_lead + share_of_deficit * deficit));
    if (!(std::max(above, recent_above) > most_above)) continue;
    best = {each, above > 1 ? evidence::long_run : evidence::recent};
    most_above = std::max(above, recent_above);
  }
  return best;
}

void policy_selector::take_over(const choice& successor) noexcept {
  if (reason_ == evidence::recent && successor.candidate == previous_) doubt_ *= doubt_of_error;
  previous_ = active_;
  reason_ = successor.basis;
  active_ = successor.candidate;
  if (successor.basis == evidence::recent) long_run_ = recent_;
  long_run_.pool = long_run_.saved[active_];
  recent_.pool = recent_.saved[active_];
}

}  // namespace cenote::eviction
