// `cenote optimize plan --verify`: the plan's hits beside those of the trace replayed through a node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "commands/optimize/tier_options.hpp"
#include "core/error.hpp"
#include "simulation/optimize/search.hpp"
#include "simulation/trace.hpp"

namespace CLI {
class App;
}

namespace cenote::optimize {

struct verification_options {
  static constexpr std::size_t standard_runs = 3;
  static constexpr std::size_t most_runs = 9;

  bool is_wanted = false;
  std::size_t runs = 0;  ///< 0: not given

  void add_to(CLI::App& command);
  /// Refuses (invalid_argument) tiers, policies and water levels that no node on this machine has; `policies` are
  /// further ones of the first tier.
  [[nodiscard]] result<void> check(std::span<const tier_choice> tiers, std::span<const std::string> policies) const;
  [[nodiscard]] std::size_t count() const noexcept { return runs == 0 ? standard_runs : runs; }
};

/// Shares of a tier of a node above which it evicts, and at which that ends.
struct replayed_marks {
  double high = 1;
  double low = 1;
};

/// The tiers of the replay's node: as many blocks as the plan's, of a size that fits this machine. The marks are the
/// plan's water levels, or all of its blocks, as shares of all that the node has there.
struct replayed_tiers {
  std::uint64_t block_bytes = 0;
  std::uint64_t dram = 0;  ///< bytes
  replayed_marks dram_marks{};
  std::uint64_t nvme = 0;  ///< bytes, metadata included; 0: no such tier
  replayed_marks nvme_marks{};
};

/// Sizes of a trace.
struct replay_load {
  std::uint32_t distinct = 0;       ///< blocks
  std::size_t longest_request = 0;  ///< blocks
};

/// Bytes that a replay may take.
struct replay_room {
  std::uint64_t memory = 0;
  std::uint64_t disk = 0;
};

/// The smallest blocks with which a node has tiers of as many blocks; where they would hold more than all distinct
/// blocks, of so many, or where it has water levels, of as many as let all blocks stay. Over NVMe, DRAM has room for
/// two of the longest requests and a thirty-second beside them: what goes down waits there until it is written. Errors:
/// unsupported for a plan without DRAM, or whose levels are below a node's marks with that room, limit_exceeded for one
/// that does not fit `room`.
[[nodiscard]] result<replayed_tiers> tiers_for_replay(const simulation::tier_setups& plan, const replay_load& load,
                                                      const replay_room& room);

/// Seconds until the first token, without waiting for other requests and with attention for free: what a replay counts.
struct first_token {
  double p50 = 0;
  double p90 = 0;
};

/// Several runs: medians of them.
struct verification {
  std::size_t runs = 0;
  double planned = 0;         ///< share of the tokens
  double replayed = 0;        ///< …
  double lowest = 0;          ///< … of all runs
  double highest = 0;         ///< …
  double bound = 0;           ///< points
  double from_dram = 0;       ///< share of the tokens
  std::uint64_t dropped = 0;  ///< blocks that left DRAM without a copy below, of all runs
  std::uint64_t block_bytes = 0;
  bool goes_by_time = false;                ///< the policy
  std::optional<first_token> ttft_planned;  ///< nothing: no rate that a replay takes
  std::optional<first_token> ttft_replayed;

  [[nodiscard]] double points_apart() const noexcept;
  [[nodiscard]] bool holds() const noexcept { return points_apart() <= bound; }
};

/// Replays `requests` back to back, one after the other, so many times, each time through a new node. The process must
/// have no other thread. Errors: as tiers_for_replay(), those of a replay, and closed after an interruption.
[[nodiscard]] result<verification> verify_plan(const simulation::trace& requests,
                                               const simulation::plan_candidate& plan,
                                               const simulation::cost_model& cost, std::size_t runs);

/// Whether `plan` has a tier at all.
[[nodiscard]] bool has_cache(const simulation::plan_candidate& plan) noexcept;

[[nodiscard]] nlohmann::ordered_json json_of(const verification& outcome);
/// A table, after an empty line.
[[nodiscard]] std::string text_of(const verification& outcome);
/// A sentence on a bound that was missed.
[[nodiscard]] std::string missed_text(const verification& outcome);

}  // namespace cenote::optimize
