// The actor that moves quotas of a running node to groups that they bring more hits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "simulation/optimize/quota_moves.hpp"

namespace cenote {

struct quota_limits {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

/// Makes of reports what a decision is made from. Not thread-safe.
class quota_reports {
 public:
  /// The groups with limits and a quota, as they are now, with the requests since the last call. An instance that comes
  /// counts from its next report on. What an instance is asked for is an average that forgets an interval's part in ten
  /// others: a short pause of a group is no reason to take its memory.
  [[nodiscard]] std::vector<simulation::quota_group> groups(const blocks::store_status& tier,
                                                            const std::vector<blocks::curve_status>& curves,
                                                            const std::map<std::string, quota_limits>& limits);

 private:
  struct use {
    std::uint64_t requested = 0, hits = 0;          ///< tokens, since the instance came
    std::uint64_t new_requested = 0, new_hits = 0;  ///< … in the interval
    double average = 0;                             ///< requested in an interval
  };
  [[nodiscard]] use use_since_last(const blocks::instance_status& instance) const;

  std::map<std::uint32_t, use> last_;  ///< by instance
};

/// Looks at the DRAM tier and its curves once an interval, and lowers one group's quota before it raises another's.
/// Ends with the curves' actor.
///
///   tick     an interval is over              (itself)
///   reload   other limits                     (worker)
class quota_mover final : public quota_mover_actor::base {
 public:
  quota_mover(caf::actor_config& config, dram_tier_actor dram, live_curves_actor curves, const config_ptr& settings);

  [[nodiscard]] const char* name() const override { return "quota_mover"; }
  void on_exit() override;

 protected:
  behavior_type make_behavior() override;

 private:
  void set_limits(const config::node_config& settings);
  void look();
  void decide(const blocks::store_status& tier, const std::vector<blocks::curve_status>& curves);
  void carry_out(const simulation::quota_move& move, const std::vector<simulation::quota_group>& groups);

  dram_tier_actor dram_;
  live_curves_actor curves_;
  std::chrono::nanoseconds interval_;
  std::map<std::string, quota_limits> limits_;
  quota_reports reports_;
  simulation::quota_moves moves_;
};

}  // namespace cenote
