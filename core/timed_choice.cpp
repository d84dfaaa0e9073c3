#include "core/timed_choice.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cenote {

namespace {

bool is_measured(double rate) noexcept {
  return std::isfinite(rate) && rate > 0;
}

}  // namespace

bool timed_choice::judge(std::span<const double> rates) {
  const auto best_of = [&](const auto& is_eligible) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < rates.size(); ++i) {
      if (is_measured(rates[i]) && is_eligible(i) && (!best || rates[i] > rates[*best])) best = i;
    }
    return best;
  };
  if (!candidate_) {
    candidate_ = best_of([](std::size_t) { return true; });
    return candidate_.has_value();
  }
  if (*candidate_ >= rates.size() || !is_measured(rates[*candidate_])) return false;
  const auto winners = [&] {
    std::vector<bool> all(rates.size());
    for (std::size_t i = 0; i < rates.size(); ++i)
      all[i] = is_measured(rates[i]) && rates[*candidate_] < good_enough * rates[i];
    return all;
  };
  const std::vector<bool> challengers = winners();
  const auto winner = best_of([&](std::size_t i) { return challengers[i] && i < winners_.size() && winners_[i]; });
  if (winner) candidate_ = winner;
  winners_ = winner ? winners() : challengers;  // a candidate that beats the new choice has one win
  return winner.has_value();
}

bool timed_choice::is_in_doubt() const noexcept {
  return std::ranges::find(winners_, true) != winners_.end();
}

}  // namespace cenote
