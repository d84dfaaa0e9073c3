#include "simulation/optimize/cost_model.hpp"

#include <algorithm>

namespace cenote::simulation {

namespace {

constexpr std::uint64_t longest_input = 1'000'000'000;

}  // namespace

double prefill_model::seconds(std::uint64_t cached, std::uint64_t input) const noexcept {
  const auto p = static_cast<double>(cached);
  const auto n = static_cast<double>(input);
  return constant + ((n - p) + (n * n - p * p) / (2 * pivot)) / rate;
}

double prefill_model::pivot_with(double active_parameters, double attention_flop) noexcept {
  if (attention_flop <= 0) return std::numeric_limits<double>::infinity();
  return 2 * active_parameters / attention_flop;
}

double prefill_model::rate_with(double measured, double length, double pivot) noexcept {
  return measured * (1 + length / (2 * pivot));
}

double tier_link::seconds(std::uint64_t tokens, double bytes_per_token) const noexcept {
  return tokens == 0 ? 0 : latency + static_cast<double>(tokens) * bytes_per_token / bandwidth;
}

request_service cost_model::serve(std::span<const tier_link> tiers, std::span<const std::uint64_t> tokens,
                                  std::uint64_t input) const noexcept {
  request_service best{.seconds = prefill.seconds(0, input), .loaded = 0};
  double load = 0;
  std::uint64_t loaded = 0;
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    load += tiers[i].seconds(tokens[i] - loaded, bytes_per_token);
    loaded = tokens[i];
    const double compute = prefill.seconds(loaded, input);
    const double all = overlap == load_overlap::layer_wise ? std::max(load, compute) : load + compute;
    if (gate == load_gate::open || all < best.seconds) best = {.seconds = all, .loaded = loaded};
  }
  return best;
}

std::optional<std::uint64_t> break_even_tokens(const tier_link& tier, const prefill_model& prefill,
                                               double bytes_per_token) noexcept {
  // The gain is convex in the tokens and not positive at 0: behind its first positive value all are.
  const auto gains = [&](std::uint64_t tokens) {
    return tier.seconds(tokens, bytes_per_token) < prefill.seconds(0, tokens) - prefill.constant;
  };
  if (!gains(longest_input)) return std::nullopt;
  std::uint64_t low = 1;
  std::uint64_t high = longest_input;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (gains(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

}  // namespace cenote::simulation
