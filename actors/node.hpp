// The supervisor.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/cluster_messages.hpp"
#include "actors/consensus_messages.hpp"
#include "actors/messages.hpp"

namespace cenote {

/// Monitors the tiers, the planner of prefetches and the groups of ranks, starts one actor for each session. There is
/// one recovery path: when any of them dies unasked, the worker ends with a reason, and the keeper starts the next one.
///
///   open      a session that the server made, or one that survived a restart -> its actor
///   release   a session's process is dead or done: its actor ends, then the tier frees what it held
///   report    everything that status shows
///   add_tier  what became of a device's tier
///   drain     no session reads its ring any more, and no batch is under way
///   reload    new configuration
class node final : public node_actor::base {
 public:
  using on_fatal = std::function<void(std::string reason)>;

  node(caf::actor_config& config, dram_tier_actor dram, prefetch_actor prefetch, on_fatal fatal,
       std::vector<lower_tier> lower = {}, cluster_actor cluster = {}, consensus_actor groups = {},
       live_curves_actor curves = {});

  [[nodiscard]] const char* name() const override { return "node"; }
  void on_exit() override;

 protected:
  behavior_type make_behavior() override;

 private:
  caf::result<session_actor> open(const session_ptr& resources);
  caf::result<outcome> release(std::uint64_t number);
  caf::result<report_ptr> report();
  caf::result<outcome> drain();
  void ask_for_curves(const dram_report_ptr& dram, const report_ptr& full, const std::function<void()>& finish);
  void went_down(const caf::down_msg& down);
  void take_news(const device_news& news);
  void tell_reloaded(const device_stack& stack);
  [[nodiscard]] dram_tier_actor top_of(tier_number tier) const;

  dram_tier_actor dram_;
  prefetch_actor prefetch_;
  std::vector<lower_tier> lower_;
  cluster_actor cluster_;     ///< none: the node is alone
  consensus_actor groups_;    ///< none: there are no groups of ranks
  live_curves_actor curves_;  ///< none: nothing is watched
  on_fatal fatal_;
  struct served {
    session_actor actor;
    tier_number tier = 0;
  };
  std::unordered_map<std::uint64_t, served> sessions_;
  std::map<tier_number, device_news> devices_;
  config_ptr reloaded_;  ///< none: it is the worker's first one still
  bool stopping_ = false;
};

}  // namespace cenote
