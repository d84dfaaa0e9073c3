// The best tiers for a trace: which capacities and policies, with how many replicas, for which money.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/choices.hpp"
#include "core/error.hpp"
#include "simulation/simulation.hpp"
#include "simulation/trace.hpp"

#include "simulation/optimize/cost_model.hpp"
#include "simulation/optimize/interval_curve.hpp"
#include "simulation/optimize/price.hpp"
#include "simulation/optimize/queue.hpp"
#include "simulation/optimize/served_trace.hpp"

namespace cenote::simulation {

/// A figure that a search makes small; hits it makes many.
enum class objective : std::uint8_t { cost, hits, ttft, writes };
CENOTE_ENUM_NAMES(objective, cost, hits, ttft, writes);

/// All that may be tried, the nearest tier first.
struct search_space {
  struct tier_range {
    tier_setup setup;
    std::vector<std::uint32_t> capacities;  ///< in blocks; empty: that of `setup`, always
  };
  std::vector<tier_range> tiers;
  std::vector<std::string> policies;       ///< of the first tier; empty: its own
  std::vector<cenote::ingest> ingests;     ///< of lower tiers; empty: their own
  std::vector<std::uint8_t> keeps_copies;  ///< the same, 0 or 1; what keeps no copy and is not `evicted` is no setup
  std::uint64_t most_blocks = std::numeric_limits<std::uint64_t>::max();  ///< of all tiers together
};

using tier_setups = std::vector<tier_setup>;

/// Every setup of `space` once, the one without the tiers that have a range first. Setups that differ only in what a
/// tier without room would do are one. Errors: limit_exceeded where they are over `limit`.
[[nodiscard]] result<std::vector<tier_setups>> setups_in(const search_space& space, std::size_t limit);

struct search_goal {
  std::vector<objective> objectives{objective::cost};  ///< several: the front of those that no other one beats
  std::optional<service_level> level;                  ///< the replicas are the fewest that keep it
  std::size_t replicas = 1;                            ///< without a level
  double ttft_percent = 90;                            ///< which percentile `ttft` is
  price_list prices;
  replay_order order = replay_order::reverse;
  cost_model cost;
  double speed = 1;
  serving_rules rules;
};

struct plan_candidate {
  tier_setups tiers;
  std::size_t place = 0;  ///< of its setup among those that were given
  std::uint64_t hit_tokens = 0;
  std::uint64_t loaded_tokens = 0;
  std::vector<std::uint64_t> tier_tokens{};  ///< of the hits, those of each tier
  std::uint64_t written_blocks = 0;          ///< into the tier `nvme`
  double gpu_s = 0;
  double ttft_p50 = 0;  ///< without waiting where no number of replicas keeps the level
  double ttft_p90 = 0;
  double ttft_p99 = 0;
  double ttft = 0;                      ///< the percentile of the goal
  double excess = 0;                    ///< without waiting, the largest share that a time is of its bound
  std::optional<std::size_t> replicas;  ///< nothing: none keep the level
  double utilisation = 0;
  double hourly = 0;
};

struct search_outcome {
  std::vector<plan_candidate> simulated;  ///< in the order of their setups, then of replicas
  std::vector<std::size_t> ranked;        ///< of these, the best first, those that keep no level last
  std::optional<std::size_t> best;        ///< by the first objective; nothing: no setup keeps the level
  std::optional<std::size_t> nearest;     ///< without a best one: the smallest excess
  std::vector<std::size_t> front;  ///< of several objectives: those that none is as good as in all and beats in one
  std::size_t fallen = 0;          ///< setups that fell by their bound
};

/// Runs `work(i)` for each i below `count`, in any order, at once or not, and returns when all are done.
using executor = std::function<void(std::size_t count, const std::function<void(std::size_t)>& work)>;

/// Looks for the best of many setups, simulating few: branch and bound. A bound of a setup's replicas are those that a
/// cache without end would need whose link is as good as the best one of all; services that are not longer in any
/// request make no time longer (J. Kiefer, J. Wolfowitz, Transactions of the AMS 78(1), 1955). For one tier of LRU in
/// the order `reverse`, of at least the longest request, hits grow with the capacity request by request, so what a
/// larger one needs is a bound as well, and the hits follow without a simulation. With water levels the hits are at
/// most those, and only what one needs whose floor is as large is a bound. What is found is what trying everything
/// finds, whatever the executor does. Its functions may be called by any thread once it is made.
class plan_search {
 public:
  static constexpr std::size_t batch = 32;  ///< setups that are simulated before bounds are compared again

  /// `links` are those of all tiers that will be tried. Errors: as serve_trace(). `requests` and `goal` outlive the
  /// search.
  [[nodiscard]] static result<plan_search> make(const trace& requests, const search_goal& goal,
                                                std::span<const tier_link> links);

  /// A candidate, or several with more replicas where the time to first token is one of several objectives.
  [[nodiscard]] result<std::vector<plan_candidate>> candidates_with(const tier_setups& tiers) const;
  [[nodiscard]] result<search_outcome> run(std::span<const tier_setups> setups, const executor& execute) const;
  /// `best` with capacities between those of `space`, a tier after the other: in each gap the smallest one for each
  /// number of replicas that the gap's ends leave, to 1/64 of the gap; where that is cheaper. For `cost` alone.
  [[nodiscard]] result<plan_candidate> refined(plan_candidate best, const search_space& space) const;
  /// Whether `one` comes before `other`: by the objectives in their order, then money, blocks, place.
  [[nodiscard]] bool is_better(const plan_candidate& one, const plan_candidate& other) const;

  [[nodiscard]] const trace& requests() const noexcept { return *requests_; }

 private:
  using ranking = std::vector<double>;

  plan_search(const trace& requests, const search_goal& goal) : requests_(&requests), goal_(&goal) {}

  [[nodiscard]] plan_candidate candidate_with(const tier_setups& tiers, const served_trace& served,
                                              std::optional<std::size_t> replicas) const;
  [[nodiscard]] double price_of(std::size_t replicas, const tier_setups& tiers) const;
  [[nodiscard]] ranking ranking_of(const plan_candidate& candidate) const;
  /// At most the ranking of each candidate of the setup, member by member; `followers` are what was simulated and
  /// has a curve.
  [[nodiscard]] ranking bound_of(const tier_setups& tiers, std::size_t place,
                                 std::span<const plan_candidate> followers) const;
  [[nodiscard]] std::size_t fewest_of(const tier_setups& tiers, std::span<const plan_candidate> followers) const;
  /// Whether it is one tier of LRU with room for the longest request: the curve has its hits, or what they are at most.
  [[nodiscard]] bool has_curve(const tier_setups& tiers) const;
  void add_rival(std::vector<ranking>& rivals, const plan_candidate& candidate) const;
  [[nodiscard]] bool falls(const ranking& bound, std::span<const ranking> rivals) const;
  [[nodiscard]] result<plan_candidate> at_capacity(const plan_candidate& base, std::size_t tier,
                                                   std::uint32_t capacity) const;
  [[nodiscard]] result<plan_candidate> smallest_with(const plan_candidate& large, std::size_t tier, std::uint32_t low,
                                                     std::size_t replicas) const;
  [[nodiscard]] result<void> refine_gap(plan_candidate& best, std::size_t tier, const plan_candidate& small,
                                        const plan_candidate& large) const;
  void choose(search_outcome& outcome) const;

  const trace* requests_;
  const search_goal* goal_;
  std::optional<interval_curve> curve_;
  // Of a cache without end behind the best link:
  std::uint64_t endless_tokens_ = 0;  ///< hits
  std::size_t fewest_ = 1;            ///< replicas
  double shortest_ = 0;               ///< time to first token
};

/// The requests `first` and later ones up to `last`, at their times.
[[nodiscard]] trace part_of(const trace& requests, std::size_t first, std::size_t last);

}  // namespace cenote::simulation
