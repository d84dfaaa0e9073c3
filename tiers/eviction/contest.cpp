#include "tiers/eviction/contest.hpp"

#include <algorithm>
#include <cmath>

namespace cenote::eviction {

namespace {
constexpr double of_pool =
    0.25;  // what the pool got beside what its miniature promised: far fewer requests are behind it
}

contest::contest(std::size_t candidates, std::size_t champion, std::uint32_t half_life) noexcept
    : candidates_(candidates), champion_(champion), keeps_(std::exp2(-1.0 / half_life)) {}

void contest::add(std::span<const std::uint32_t> saved, std::uint32_t got) noexcept {
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

void contest::halve() noexcept {
  got_ /= 2;
  for (double& each : sums_) each /= 2;
  for (double& each : totals_) each /= 2;
  for (auto& row : squares_) {
    for (double& each : row) each /= 4;
  }
}

std::optional<std::size_t> contest::winner(std::span<const double> bars) const noexcept {
  if (requests_ < fewest) return std::nullopt;
  std::optional<std::size_t> best;
  double most_above = 1;
  for (std::size_t each = 0; each < candidates_; ++each) {
    const double above = lead(each) / bars[each];
    if (above <= most_above) continue;
    best = each;
    most_above = above;
  }
  return best;
}

void contest::take_over(std::size_t candidate) noexcept {
  champion_ = candidate;
  got_ = sums_[candidate];
}

double contest::lead(std::size_t candidate) const noexcept {
  const double square = squares_[std::max(candidate, champion_)][std::min(candidate, champion_)];
  if (square == 0) return 0;
  const double champions = of_pool * got_ + (1 - of_pool) * sums_[champion_];
  return (sums_[candidate] - champions) / std::sqrt(square);
}

}  // namespace cenote::eviction
