// The remote tier: decides which backend keeps what; the backends do it.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/promise_guard.hpp"
#include "actors/remote_messages.hpp"
#include "actors/remote_report.hpp"
#include "core/instance_identity.hpp"
#include "tiers/remote/backend.hpp"
#include "tiers/remote/store.hpp"

namespace cenote {

/// Instance groups whose blocks stay on this machine.
[[nodiscard]] std::set<std::string, std::less<>> groups_kept_here(const config::node_config& config);

/// Owns the tier's state (remote::store) and speaks to the block tier above it, which introduces itself first. The
/// backends outlive it; what they have to say arrives as messages. It needs a `tick` every tick_interval.
class remote_tier final : public remote_tier_actor::base {
 public:
  static constexpr std::chrono::milliseconds tick_interval{250};

  struct setup {
    std::vector<std::shared_ptr<remote::backend>> backends;  ///< in the order in which they are asked
    std::chrono::milliseconds timeout{};                     ///< … within which all of them together answer
    std::set<std::string, std::less<>> kept_here;
    /// Sends a message to this actor from a backend's thread.
    std::function<void(remote_tier_actor, remote_presence_ptr)> tell_presence;
    std::function<void(remote_tier_actor, remote_removal_ptr)> tell_removal;
  };

  remote_tier(caf::actor_config& config, setup with);

  [[nodiscard]] const char* name() const override { return "remote_tier"; }
  void on_exit() override;

 protected:
  behavior_type make_behavior() override;

 private:
  static constexpr std::size_t most_names = 4096;  ///< instances that are not bound any more, but may be cleared

  /// A question that backends are answering.
  struct open_question {
    promise_guard<key_answer_ptr> promise;
    std::vector<bool> held;
    std::size_t open = 0;  ///< backends that have not answered
    remote::steady_time until{};
    std::uint32_t unreachable = 0;
  };
  /// A removal that backends carry out.
  struct forgetting {
    promise_guard<outcome> promise;
    std::size_t open = 0;
    remote::steady_time until{};
    std::uint64_t removed = 0;
    std::string unconfirmed{};  ///< a backend that did not confirm it, and the reason
  };

  void bind(const blocks::instance_binding& instance);
  void unbind(std::uint32_t instance);
  [[nodiscard]] caf::result<key_answer_ptr> locate(const key_query& asked);
  void take_presence(const remote_presence& part);
  [[nodiscard]] caf::result<outcome> forget(const std::vector<blocks::removal>& removals);
  [[nodiscard]] std::set<instance_identity> cleared_by(const blocks::removal& what);
  [[nodiscard]] bool knows(const std::string& id) const;
  void ask_to_clear(std::uint64_t removal, instance_identity identity);
  void ask_to_clear_all(std::uint64_t removal);
  [[nodiscard]] std::function<void(result<std::uint64_t>)> tell_removed(std::uint64_t removal,
                                                                        remote::backend_number from);
  [[nodiscard]] std::function<void(const result<void>&)> tell_cleared(std::uint64_t removal,
                                                                      remote::backend_number from);
  void ask_to_drop(std::uint64_t removal, remote::backend_number from, instance_identity identity,
                   std::vector<block_key> keys);
  void take_removal(const remote_removal& part);
  void answer(open_question& question);
  void answer(forgetting& removal);
  void answer_overdue();
  void take_outcomes(const remote_outcomes& ended);
  void take_standing(const remote_standing& heard);
  void look_for_clears(const instance_spec& spec, const instance_identity& identity);
  void take_clear(const remote_clear& clear);
  void end_clear(const remote_clear& clear, const result<void>& cleared);
  [[nodiscard]] tier_report_ptr report();
  /// Hands on what the store decided.
  void flush_outbox();
  /// False: the tier above knows it.
  bool say_standing();

  remote::store store_;
  std::vector<std::shared_ptr<remote::backend>> backends_;
  std::chrono::milliseconds timeout_;
  std::set<std::string, std::less<>> kept_here_;
  std::function<void(remote_tier_actor, remote_presence_ptr)> tell_presence_;
  std::function<void(remote_tier_actor, remote_removal_ptr)> tell_removal_;
  upper_tier_actor above_;
  blocks::edge_number edge_ = 0;
  bool said_standing_ = true;  ///< what the tier above believes: every tier stands until it says otherwise
  histogram gets_, puts_;
  std::unordered_map<std::uint32_t, instance_spec> specs_;  ///< of instances that are bound
  std::map<instance_identity, std::string> names_;          ///< of those and earlier ones, by identity
  std::set<std::string, std::less<>> owed_;                 ///< ids that were cleared before they were known here
  std::unordered_map<std::uint64_t, open_question> questions_;
  std::unordered_map<std::uint64_t, forgetting> removals_;
  std::uint64_t next_number_ = 1;
};

}  // namespace cenote
