// This node's place among others: a shell around cluster::membership.
#pragma once

#include <caf/all.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/actor_alarm.hpp"
#include "actors/cluster_messages.hpp"
#include "actors/cluster_report.hpp"
#include "actors/peer.hpp"
#include "cluster/membership.hpp"

namespace cenote {

/// Tells the membership what the network heard and what time it is, carries out what it says, and has an actor for each
/// node that it is linked to. What the network's thread delivers runs on that thread.
class cluster_shell final : public cluster_actor::base {
 public:
  /// Called with the reason why this node must not go on.
  using on_fatal = std::function<void(std::string reason)>;

  cluster_shell(caf::actor_config& config, on_fatal fatal);

  [[nodiscard]] const char* name() const override { return "cluster"; }
  void on_exit() override;

 protected:
  behavior_type make_behavior() override;

 private:
  using steady_time = cluster::steady_time;

  struct traffic {
    std::uint64_t sent = 0, heard = 0;
  };
  struct rate {
    steady_time since{};
    traffic then;
    double sent_a_second = 0, heard_a_second = 0;
  };

  void begin(const cluster_start_ptr& with);
  void take(const link_event& event);
  void heard(const link_event& event, steady_time now);
  void carry_out();
  void send_frame(peer::link_id to, std::vector<std::byte> frame);
  void look_when_due();
  void follow_members();
  void tell_pool();
  void tell_groups();
  void say_for_groups(const group_sayings& what);
  void tell(const cluster::news& what);
  void tell_refusal(const cluster::news& what);
  [[nodiscard]] bool drops(peer::link_id link, std::span<const std::byte> frame, bool is_sent);
  [[nodiscard]] caf::result<payload_ptr> ping(const std::string& node, const payload_ptr& payload);
  [[nodiscard]] outcome partition(const partition_order& order);
  [[nodiscard]] outcome weigh(bool takes_part);
  [[nodiscard]] tier_report_ptr report();
  void measure_rates(steady_time now);

  on_fatal fatal_;
  cluster_start_ptr start_;  ///< null: nobody has said who this node is; has a network once there is a membership
  std::optional<cluster::membership> members_;
  std::vector<link_event_ptr> early_;  ///< what was heard before there was a membership
  std::map<std::string, peer_actor> peers_;
  std::map<std::string, peer::link_id> links_;                  ///< that the peers' actors know of
  std::optional<std::vector<cluster::live_node>> told_groups_;  ///< who is live, as they know it
  std::set<peer::link_id> carrying_;                            ///< links that carry blocks
  std::uint64_t followed_ = 0;                                  ///< the membership's revision by which they do
  std::shared_ptr<peer_counts> counts_ = std::make_shared<peer_counts>();
  std::map<std::string, partition_order> partitions_;
  std::map<std::string, std::string> last_refusal_;  ///< by address, so that each is logged once
  steady_time refusals_since_{};                     ///< of the minute whose refusals are counted
  std::size_t refusals_logged_ = 0;
  std::map<std::string, traffic> traffic_;  ///< by node
  std::map<std::string, rate> rates_;
  cluster::traffic_counters totals_;
  actor_alarm<look_atom> alarm_;
};

}  // namespace cenote
