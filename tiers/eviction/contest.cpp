#include "tiers/eviction/contest.hpp"

#include <algorithm>
#include <cmath>

namespace cenote::eviction {

void contest::add(std::span<const std::uint32_t> saved) noexcept {
  for (std::size_t one = 0; one < candidates_; ++one) {
    sums_[one] += saved[one];
    for (std::size_t other = 0; other < one; ++other) {
      const double difference = static_cast<double>(saved[one]) - saved[other];
      squares_[one][other] += difference * difference;
      largest_square_[one][other] = std::max(largest_square_[one][other], difference * difference);
    }
  }
  if (++requests_ % window_ == 0) age();
}

std::optional<std::size_t> contest::winner_over(std::size_t champion, std::span<const bar> bars) const noexcept {
  std::optional<std::size_t> winner;
  double largest = 0;
  for (std::size_t each = 0; each < candidates_; ++each) {
    const double gain = sums_[each] - sums_[champion] - bars[each].price;
    const bool is_large = gain > large_share_ * sums_[champion];
    const double needed = is_large ? bars[each].certainty_of_large : bars[each].certainty;
    if (gain <= largest || certainty(each, champion) <= needed) continue;
    winner = each;
    largest = gain;
  }
  return winner;
}

double contest::certainty(std::size_t one, std::size_t other) const noexcept {
  const std::size_t above = std::max(one, other);
  const std::size_t below = std::min(one, other);
  const double spread = squares_[above][below] + largest_square_[above][below];
  return spread > 0 ? (sums_[one] - sums_[other]) / std::sqrt(spread) : 0;
}

void contest::age() noexcept {
  for (double& each : sums_) each /= 2;
  for (auto* const table : {&squares_, &largest_square_}) {
    for (auto& row : *table) {
      for (double& each : row) each /= 2;
    }
  }
}

}  // namespace cenote::eviction
