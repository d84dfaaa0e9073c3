#include "tiers/eviction/contest.hpp"

#include <algorithm>
#include <cmath>

namespace cenote::eviction {

contest::contest(std::size_t candidates, std::size_t champion, std::uint32_t window) noexcept
    : candidates_(candidates), champion_(champion), keeps_(std::exp2(-1.0 / window)) {}

void contest::add(std::span<const std::uint32_t> saved) noexcept {
  requests_ = requests_ * keeps_ + 1;
  for (std::size_t one = 0; one < candidates_; ++one) {
    sums_[one] += saved[one];
    leads_[one] = std::max(0.0, leads_[one] + saved[one] - saved[champion_]);
    for (std::size_t other = 0; other < one; ++other) {
      const double difference = static_cast<double>(saved[one]) - saved[other];
      squares_[one][other] = squares_[one][other] * keeps_ + difference * difference;
    }
  }
}

void contest::halve() noexcept {
  for (double& each : leads_) each /= 2;
  for (double& each : sums_) each /= 2;
  for (auto& row : squares_) {
    for (double& each : row) each /= 4;
  }
}

std::optional<std::size_t> contest::winner(std::span<const bar> bars) const noexcept {
  if (requests_ < fewest) return std::nullopt;
  std::optional<std::size_t> best;
  double most_above = 0;
  for (std::size_t each = 0; each < candidates_; ++each) {
    const double above = leads_[each] - height(each, bars[each]);
    if (above <= most_above) continue;
    best = each;
    most_above = above;
  }
  return best;
}

void contest::take_over(std::size_t candidate) noexcept {
  const double ahead = leads_[candidate];
  for (double& each : leads_) each = std::max(0.0, each - ahead);
  champion_ = candidate;
}

double contest::height(std::size_t candidate, const bar& of) const noexcept {
  const double square = squares_[std::max(candidate, champion_)][std::min(candidate, champion_)];
  return of.price + of.chance * std::sqrt(square / std::max(requests_, 1.0));
}

}  // namespace cenote::eviction
