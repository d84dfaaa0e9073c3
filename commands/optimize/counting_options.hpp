// --warm-up and --ttl: the requests that count, and how long blocks live.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "core/error.hpp"
#include "simulation/block_lifetimes.hpp"
#include "simulation/optimize/served_trace.hpp"
#include "simulation/trace.hpp"

namespace CLI {
class App;
}

namespace cenote::optimize {

struct counting_options {
  std::string ttl;       ///< a duration; empty: blocks live until others need their room
  std::string ttl_from;  ///< "use" or "insertion"; empty: use
  double warm_up = 0;    ///< percent of the requests

  void add_to(CLI::App& command);
  /// Errors: invalid_argument, also for --ttl-from without --ttl.
  [[nodiscard]] result<simulation::lifetime> lifetime() const;
  /// For a trace that is served. Errors: as lifetime().
  [[nodiscard]] result<simulation::serving_rules> rules() const;
};

/// Refuses a time to live where no time passes.
[[nodiscard]] result<void> check_lifetime(const simulation::lifetime& lifetime, const simulation::trace& requests);

/// Adds `ttl_ms` and `ttl_from` where blocks have a time to live.
void add_lifetime(nlohmann::ordered_json& object, const simulation::lifetime& lifetime);
/// The same for people, with a line feed; empty where they have none.
[[nodiscard]] std::string text_of_lifetime(const simulation::lifetime& lifetime);
/// "The first 4 requests fill the cache and are left out of the sums: 120 tokens count"; empty without such requests.
[[nodiscard]] std::string text_of_warm_up(std::size_t requests, std::uint64_t tokens);

}  // namespace cenote::optimize
