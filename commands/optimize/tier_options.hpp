// The tiers that `cenote optimize` computes with, as --tier describes them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/choices.hpp"
#include "core/error.hpp"
#include "simulation/optimize/cost_model.hpp"
#include "simulation/water_levels.hpp"

namespace CLI {
class App;
}

namespace cenote::optimize {

struct tier_choice {
  simulation::tier_link link;
  std::string capacity;  ///< blocks or bytes; empty: not given
  std::string policy = "lru";
  std::optional<cenote::ingest> ingest;
  bool keep_copy = true;
  simulation::water_levels levels{};  ///< by an option of its own
};

struct tier_options {
  std::vector<std::string> tiers;

  void add_to(CLI::App& command);
  /// The nearest first. Errors: invalid_argument.
  [[nodiscard]] result<std::vector<tier_choice>> choices() const;
  /// … with those of a usual host where no --tier is given: DRAM, and NVMe where `prices`, the value of --price, names
  /// it. A line on standard error shows them.
  [[nodiscard]] result<std::vector<tier_choice>> usual_choices(std::string_view prices) const;
};

/// Blocks of the capacity that `tier` has of its own; 0 without one. Errors: invalid_argument.
[[nodiscard]] result<std::uint32_t> own_capacity(const tier_choice& tier, std::uint64_t block_bytes);

/// "name:latency:bandwidth[:capacity][:policy][:ingest][:keep]", as "nvme:2ms:3GB/s:100k". Errors: invalid_argument.
[[nodiscard]] result<tier_choice> parse_tier_choice(std::string_view text);

}  // namespace cenote::optimize
