// The NVMe tier: decides what is written where and what goes; the devices do it.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/nvme_messages.hpp"
#include "actors/nvme_report.hpp"
#include "actors/promise_guard.hpp"
#include "core/instance_identity.hpp"
#include "tiers/nvme/devices.hpp"
#include "tiers/nvme/store.hpp"

namespace cenote {

/// Seconds that unused blocks live, by the group's name; 0: for ever. Under the empty name: of groups that the
/// configuration does not name.
[[nodiscard]] std::map<std::string, wall_seconds> nvme_ttls_of(const config::node_config& config);

/// Owns the tier's state (nvme::store) and speaks to the block tier above it, which introduces itself first. The
/// devices outlive it; what they have to say arrives as messages. It needs a `tick` every tick_interval.
class nvme_tier : public nvme_tier_actor::base {
 public:
  static constexpr std::chrono::milliseconds tick_interval{1000};

  nvme_tier(caf::actor_config& config, nvme::store_options options, std::map<std::string, wall_seconds> ttls,
            std::shared_ptr<nvme::devices> devices);

  [[nodiscard]] const char* name() const override { return "nvme_tier"; }
  void on_exit() override;

 protected:
  behavior_type make_behavior() override;

 private:
  /// A removal that paths write down now.
  struct saving {
    promise_guard<outcome> promise;
    nvme::removal_set what;
    std::uint64_t removed = 0;
    std::chrono::steady_clock::time_point since;
    std::vector<std::uint32_t> open;                              ///< paths that have not answered
    std::vector<std::pair<std::uint32_t, std::string>> not_on{};  ///< paths that did not do it, and why
  };

  class listing;
  void tell_changes(const change_question& question);
  void reload(const config::node_config& config);
  /// A transfer that a path's engine has.
  struct start {
    std::chrono::steady_clock::time_point at;
    nvme::io_kind kind = nvme::io_kind::read;
  };

  void bind(blocks::instance_binding& instance);
  void unbind(std::uint32_t instance);
  void set_ttl(std::uint32_t instance, const instance_spec& spec);
  [[nodiscard]] key_answer_ptr locate(const key_query& asked) const;
  void take_path(const nvme::opened_path& opened);
  void take_broken(std::uint32_t path, const std::string& what);
  void opened_one(std::uint32_t path);
  void adopt(const nvme::opened_path& opened);
  caf::result<outcome> forget(const removals_ptr& removals);
  std::uint64_t apply(const std::vector<blocks::removal>& removals);
  std::uint64_t clear_named(const std::string& id);
  void add_named(const std::string& id, nvme::removal_set& to) const;
  [[nodiscard]] bool knows(const std::string& id) const;
  nvme::removal_set named(const std::vector<blocks::removal>& removals) const;
  void take_saved(const save_report& report);
  void answer(saving& ended);
  void answer_overdue();
  tier_report_ptr report();
  void tick();
  /// Hands on what the store decided.
  void flush_outbox();
  void note_starts(std::span<const nvme::path_request> requests);
  void note_ends(std::span<const nvme::io_completion> completions);
  void say_state(std::uint32_t path) const;
  void tell_drained();

  std::shared_ptr<nvme::store> store_;  ///< shared with the devices, which may read into it when we are gone
  std::shared_ptr<nvme::devices> devices_;
  upper_tier_actor above_;
  blocks::edge_number edge_ = 0;  ///< of those below that tier, the number of this one
  histogram reads_, writes_;
  std::unordered_map<std::uint64_t, start> under_way_;               ///< by tag
  std::map<std::string, wall_seconds> ttls_;                         ///< of unused blocks, by instance group
  std::unordered_map<std::uint32_t, instance_spec> specs_;           ///< by the DRAM tier's number
  std::unordered_map<instance_identity, instance_spec> identities_;  ///< instances that blocks were written of
  std::unordered_map<std::uint64_t, saving> saving_;                 ///< by tag
  nvme::removal_set late_;                                           ///< what was removed while a path was opening
  std::vector<nvme_path_report> paths_;
  std::set<std::uint32_t> drained_;  ///< paths on which no request of an earlier worker is under way
  std::set<std::uint32_t> opening_;  ///< paths that were not heard of yet
  std::uint64_t next_tag_ = 1;
  std::uint64_t failed_saves_ = 0;
  std::uint64_t failed_removals_ = 0;
  bool probing_ = false;  ///< every second tick
};

}  // namespace cenote
