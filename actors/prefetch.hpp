// The actor that plans what is brought up the tiers, and for how long.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "actors/actor_alarm.hpp"
#include "actors/load_times.hpp"
#include "actors/messages.hpp"

namespace cenote {

/// Owns a prefetch::planner. It sends the DRAM tier commands for batches of keys and hears of their results and of the
/// loads' ends from it; answers go to the sessions that asked. It registers with the tier first. Tiers below without
/// hints it asks itself which blocks they have.
///
///   prefetch_request   starts, stops and ends of one session, in the order of its ring  (DRAM tier)
///   command_results, transfers_done   what became of commands and loads                 (DRAM tier)
///   space_available    there is space again for loads that found none                   (DRAM tier)
///   disconnect         a session's end                                                  (DRAM tier)
///   news               what a request has by now that is followed         (the network's thread)
///   wake               a time came that the planner waits for                           (itself)
///   reload, report                                                                      (node)
class prefetch_planner final : public prefetch_actor::base {
 public:
  using clock = std::function<prefetch::time_point()>;

  /// Has a request followed at its node; `news` come of it. Never blocks.
  using follower = std::function<void(handover::order)>;

  /// `below`: by edge. `follow`: none, where nothing is handed over.
  prefetch_planner(caf::actor_config& config, const prefetch::options& options, dram_tier_actor dram,
                   std::vector<lower_tier> below = {}, clock now = prefetch::clock::now, follower follow = {});

  [[nodiscard]] const char* name() const override { return "prefetch"; }
  void on_exit() override;

 protected:
  behavior_type make_behavior() override;

 private:
  void submit(prefetch_batch& batch);
  /// After each change: decide, send commands and answers, and sleep no longer than the planner wants.
  void flush_outbox();
  void ask(prefetch::question question);
  void pass_on(handover::order order);
  void answer(const std::vector<prefetch::answer>& answers);
  void note_time(const prefetch::answer& answer);
  void sleep_until(prefetch::time_point when);

  const prefetch::options first_;  ///< of the start
  prefetch::planner planner_;
  dram_tier_actor dram_;
  std::vector<lower_tier> below_;
  clock now_;
  follower follow_;
  std::unordered_map<std::uint64_t, session_actor> asking_;  ///< by session
  actor_alarm<wake_atom> alarm_;
  load_times load_times_;
  std::chrono::nanoseconds slow_load_;
};

}  // namespace cenote
