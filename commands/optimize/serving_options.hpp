// The way in which the replicas of `cenote optimize` serve requests, and what an hour of them costs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "commands/optimize/prefill_options.hpp"
#include "commands/optimize/tier_options.hpp"
#include "core/error.hpp"
#include "simulation/optimize/cost_model.hpp"
#include "simulation/optimize/price.hpp"
#include "simulation/optimize/queue.hpp"

namespace CLI {
class App;
}

namespace cenote::optimize {

struct serving_terms {
  double speed = 1;
  std::optional<simulation::service_level> level;
  std::optional<simulation::price_list> prices;
};

/// Prices of a replica and of some of `tiers`, the value of --price. Errors: invalid_argument.
[[nodiscard]] result<simulation::price_list> parse_prices_of(const std::string& text,
                                                             std::span<const tier_choice> tiers);

struct serving_options {
  std::uint64_t replicas = 0;  ///< 0: not given
  std::string speed = "1x";
  std::string service_level;
  std::string prices;
  bool overlaps = false;
  bool loads_always = false;

  void add_to(CLI::App& command);
  /// Errors: invalid_argument, also for a price of what is none of `tiers`.
  [[nodiscard]] result<serving_terms> terms(std::span<const tier_choice> tiers) const;
  /// Errors: as prefill_options::cost().
  [[nodiscard]] result<simulation::cost_model> cost(const prefill_options& engine) const;
};

}  // namespace cenote::optimize
