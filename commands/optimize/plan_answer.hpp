// A plan for people, as JSON, and as a fragment of cenote.toml.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commands/replay/trace.hpp"
#include "commands/table.hpp"
#include "simulation/optimize/search.hpp"

namespace cenote::optimize {

/// All that a plan follows from, beside the trace.
struct plan_task {
  simulation::search_space space;
  simulation::search_goal goal;
  std::string level_text;         ///< the service level as it was given; empty: none
  std::uint64_t block_bytes = 0;  ///< of a block of the trace
  std::uint64_t gpus = 0;         ///< of a replica; 0: not given
  bool has_prices = false;
  std::uint64_t endurance = 0;  ///< bytes that the disks of the tier nvme may be written; 0: not given
  double span_s = 0;            ///< from the first request to the last one, as fast as they come; 0: no times
  std::size_t warm_up = 0;      ///< requests, the first ones, that are left out
  std::uint64_t tokens = 0;     ///< of the requests that count
};

/// The plan under other conditions than those it was made for.
struct plan_reasons {
  struct half {
    simulation::plan_candidate plan;  ///< the whole trace\'s
    simulation::plan_candidate best;  ///< of the best ones of the whole trace
  };
  std::optional<simulation::plan_candidate> halved;                   ///< with half of the first tier that has a range
  std::vector<std::array<simulation::plan_candidate, 2>> neighbours;  ///< of each such tier: 0.8 and 1.2 of it
  std::vector<half> halves;                                           ///< of the trace; none where it is too short
  std::vector<simulation::plan_candidate> loads;                      ///< requests 0.8 and 1.2 times as fast
};

struct plan_answer {
  simulation::plan_candidate bare;                 ///< without the tiers that have a range
  std::optional<simulation::plan_candidate> best;  ///< nothing: the service level cannot be kept
  simulation::search_outcome outcome;
  plan_reasons reasons;
};

[[nodiscard]] nlohmann::ordered_json json_of_plan(const read_trace& read, const plan_answer& answer,
                                                  const plan_task& task);
/// The answer in a sentence, the fragment, the reasons, what was tried.
void print_plan(const read_trace& read, const plan_answer& answer, const plan_task& task);
/// The answer in a sentence; there is a best one.
[[nodiscard]] std::string plan_sentence(const plan_answer& answer, const plan_task& task);
/// The best one under other conditions, beside no cache.
[[nodiscard]] table reasons_table(const plan_answer& answer, const plan_task& task);
/// The bytes of so many blocks, or the largest number.
[[nodiscard]] std::uint64_t bytes_with(std::uint64_t blocks, std::uint64_t block_bytes);
/// Years until the disks of the tier nvme are worn out by what goes into it; nothing where that has no answer.
[[nodiscard]] std::optional<double> nvme_life(const simulation::plan_candidate& candidate, const plan_task& task);
/// The candidates at the first `limit` of `places`.
[[nodiscard]] std::vector<simulation::plan_candidate> candidates_at(const simulation::search_outcome& outcome,
                                                                    std::span<const std::size_t> places,
                                                                    std::size_t limit);
/// A row for each, of which there is one at least.
[[nodiscard]] table candidates_table(std::span<const simulation::plan_candidate> candidates, const plan_task& task);
/// A sentence on a service level that nothing keeps.
[[nodiscard]] std::string unkept_text(const plan_answer& answer, const plan_task& task);
/// The smallest water mark of a node.
inline constexpr double least_mark = 0.1;
/// Whether a node has water marks of this tier, which a plan configures.
[[nodiscard]] bool has_marks(std::string_view tier) noexcept;
/// The configuration of a node; only comments where it is not worth one. Ends with a line feed.
[[nodiscard]] std::string toml_of(const simulation::plan_candidate& best, std::uint64_t block_bytes);

}  // namespace cenote::optimize
