// The actor of groups of ranks that must agree: a shell around cluster::agreement.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "actors/actor_alarm.hpp"
#include "actors/cluster_messages.hpp"
#include "actors/consensus_messages.hpp"
#include "actors/consensus_report.hpp"
#include "memory/group_terms.hpp"

namespace cenote {

/// Checks what sessions ask, gives it to the agreement, carries its frames to the cluster's actor and its answers to
/// the sessions. One of a worker, with or without a cluster; the ranks of a session that ends leave their groups.
///
///   group_requests   joins, questions and leaves of one session, in the order of its ring   (session)
///   disconnect       a session's end, where its actor stays                                 (server)
///   group_members    who is live now, always before a frame of one that is new              (cluster)
///   group_frame      a frame of another node                                                (cluster)
///   wake             a time came that the agreement waits for                               (itself)
///   report                                                                                  (node)
class consensus final : public consensus_actor::base {
 public:
  using steady_time = cluster::steady_time;
  using clock = std::function<steady_time()>;

  /// Of a node that is alone `self` is its name for status. `epoch`: of the worker.
  consensus(caf::actor_config& config, std::string self, peer::incarnation born, std::uint64_t epoch,
            cluster::agreement_options options = {}, clock now = std::chrono::steady_clock::now);

  [[nodiscard]] const char* name() const override { return "consensus"; }
  void on_exit() override;

 protected:
  behavior_type make_behavior() override;

 private:
  /// One join of one rank, from when it is asked for until the rank has left.
  struct membership {
    std::uint64_t session = 0;
    std::uint32_t handle = 0;
    std::uint32_t join_request = 0;
    std::string group;
    std::uint32_t rank = 0;
    bool is_formed = false;
    bool says_why = true;                                        ///< no question of it was answered `lost` yet
    std::unordered_multimap<std::uint64_t, std::uint32_t> open;  ///< question -> request
  };
  struct session_ranks {
    session_actor actor;
    std::unordered_map<std::uint32_t, cluster::rank_id> by_handle;
    std::vector<memory::completion> answers;  ///< of this turn
  };
  struct rate {
    steady_time since{};
    std::uint64_t decided = 0;
    double a_second = 0;
  };

  void take(const group_requests& requests);
  void take_entry(const group_requests& from, session_ranks& session, const memory::submission& entry);
  void join(const group_requests& from, session_ranks& session, const memory::submission& entry);
  void agree(session_ranks& session, const memory::submission& entry);
  void leave(session_ranks& session, const memory::submission& entry);
  void drop_same(session_ranks& session, const memory::join_terms& terms);
  void end_rank(session_ranks& session, cluster::rank_id id, std::string_view why);
  void end_session(std::uint64_t number);
  void went_down(const caf::actor_addr& who);
  void finish_turn(std::uint64_t bad_link = 0, std::string why = {});
  void answer(const cluster::rank_answer& what);
  void answer_join(const cluster::rank_answer& what, membership& rank, session_ranks& session);
  void send_answers();
  void sleep_until(steady_time when);
  [[nodiscard]] tier_report_ptr report();
  [[nodiscard]] double rate_of(const cluster::group_report& group, steady_time now);
  [[nodiscard]] std::string label_of(const std::string& instance_group);

  const std::string self_;
  const std::uint64_t epoch_;
  clock now_;
  cluster::agreement agreement_;
  caf::strong_actor_ptr cluster_;  ///< none: the node is alone
  std::map<std::uint64_t, session_ranks> sessions_;
  std::unordered_map<cluster::rank_id, membership> ranks_;
  cluster::rank_id last_rank_ = 0;
  std::vector<std::uint64_t> answered_;     ///< sessions with answers of this turn
  std::map<peer::group_name, rate> rates_;  ///< by group
  std::set<std::string> labels_;            ///< instance groups that metrics name: the first ones of the worker
  actor_alarm<wake_atom> alarm_;
};

}  // namespace cenote
