// The requests of a trace with what each takes on an engine over tiers: what queues are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/choices.hpp"
#include "core/error.hpp"
#include "simulation/simulation.hpp"
#include "simulation/trace.hpp"

#include "simulation/optimize/cost_model.hpp"
#include "simulation/optimize/instance_parts.hpp"
#include "simulation/optimize/queue.hpp"

namespace cenote::simulation {

/// A tier as it is tried.
struct tier_setup {
  tier_link link;
  std::uint32_t capacity = 0;  ///< blocks; 0: the tier is not there
  std::string policy = "lru";
  cenote::ingest ingest = cenote::ingest::evicted;  ///< of a lower tier, as lower_tier has it
  bool keep_copy = true;                            ///< the same
  bool is_device = false;                           ///< of the first one: tier_stack::upper_is_device
  water_levels levels{};
};

struct served_trace {
  std::vector<queue_request> requests;  ///< that ask, in their order
  std::uint64_t hit_tokens = 0;
  std::uint64_t loaded_tokens = 0;
  double gpu_s = 0;                        ///< all service, loads included
  std::vector<std::uint64_t> tier_tokens;  ///< hits of each of the tiers: a token is of the first one that has it
  std::vector<std::uint64_t> written;      ///< blocks that came into each of the tiers, 0 for one that is not there
};

/// Further terms of a run.
struct serving_rules {
  double warm_up = 0;               ///< share of the requests, the first ones, that fill the tiers and count nowhere
  simulation::lifetime lifetime{};  ///< of blocks; one tier alone may have it

  [[nodiscard]] std::size_t warm_requests(std::size_t requests) const noexcept {
    return static_cast<std::size_t>(warm_up * static_cast<double>(requests));
  }
};

/// Tokens of the requests that ask, from the place `first` on.
[[nodiscard]] std::uint64_t asked_tokens(const trace& requests, std::size_t first);

/// Runs `trace` through `tiers`, the nearest first, and gives each request its service. Requests come `speed` times as
/// fast as they did, at once where it is 0; policies see the times of the trace. Refused (invalid_argument): what
/// simulate() refuses, and several tiers for a trace whose reads and writes lie apart, or with a time to live.
[[nodiscard]] result<served_trace> serve_trace(const trace& trace, std::span<const tier_setup> tiers,
                                               replay_order order, const cost_model& cost, double speed,
                                               const serving_rules& rules = {});

/// The same where each part of a trace has a tier of its own, alike but for the capacity: `blocks`, by part. The
/// replicas are those of all: the requests come in the order of the whole. `services`, where it is given, gets what
/// each part has alone.
[[nodiscard]] result<served_trace> serve_parts(const trace& trace, const instance_parts& parts,
                                               std::span<const std::uint32_t> blocks, const tier_setup& tier,
                                               replay_order order, const cost_model& cost, double speed,
                                               const serving_rules& rules,
                                               std::vector<served_trace>* services = nullptr);

}  // namespace cenote::simulation
