// What the node of a group's rank 0 does for the whole group: who is in, and one number for each question. A plain
// state machine, as cluster/agreement, which owns it.
#pragma once

#include <bitset>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cluster/agreement_options.hpp"
#include "cluster/counters.hpp"
#include "cluster/known_nodes.hpp"
#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "transport/peer/agreement_messages.hpp"
#include "transport/peer/frame.hpp"

namespace cenote::cluster {

/// Of one group. Not thread-safe; the time is an argument and never goes back.
///
/// forming: joins are gathered until all ranks are there. formed: proposals are gathered and decided. A loss goes back
/// to forming, with nobody in. Only in an epoch of its own does it decide anything, each question once, and what it
/// remembers of an epoch ends with the epoch.
class group_coordinator {
 public:
  using send_function = std::function<void(const std::string& to, peer::frame_type type, std::vector<std::byte> body)>;

  /// `epochs` counts the formations of the whole node.
  group_coordinator(peer::group_name group, std::string self, peer::incarnation born, const agreement_options& options,
                    std::uint64_t& epochs, agreement_counters& counters)
      : group_(std::move(group)),
        self_(std::move(self)),
        born_(born),
        options_(options),
        epochs_(epochs),
        counters_(counters) {}

  /// Rank 0 is here, and waits or is in: joins are taken.
  void open(const instance_identity& shared, std::uint32_t size);
  /// Rank 0 is gone: joins are not taken.
  void close() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }
  [[nodiscard]] bool is_formed() const noexcept { return !table_.empty(); }
  /// There is nothing left that anybody waits for.
  [[nodiscard]] bool is_idle() const noexcept { return !is_open_ && !is_formed() && telling_.empty(); }
  /// Whether somebody who looks for rank 0 of this group is told of this node: not if all of the group is here, since
  /// groups that keep to one node do not concern others.
  [[nodiscard]] bool answers(const std::string& seeker) const;

  /// A refusal is sent in the next flush; one of this node's own ranks is handed back.
  [[nodiscard]] std::optional<peer::refused_ranks> take(const std::string& from, peer::incarnation born,
                                                        const peer::join_group& what, const known_nodes& nodes,
                                                        steady_time now);
  void take(const std::string& from, peer::incarnation born, const peer::propose_lengths& what, steady_time now);
  /// From this node itself.
  void propose(const peer::proposal& what, steady_time now);
  void forget_questions();
  void lose(const std::string& why, steady_time now);
  /// Nodes that are gone, or were started again; deadlines.
  void advance(const known_nodes& nodes, steady_time now);

  [[nodiscard]] const peer::group_epoch& epoch() const noexcept { return epoch_; }  ///< the present or last one
  [[nodiscard]] const std::string& why_lost() const noexcept { return why_lost_; }
  [[nodiscard]] std::vector<peer::node_ranks> table() const;
  /// This node's own acknowledgement: decisions above `heard`, which are then taken as heard.
  [[nodiscard]] std::vector<peer::decision> take_decisions();
  /// Questions of this node's that are not answered.
  [[nodiscard]] std::vector<std::uint64_t> take_too_old();
  /// "ranks 1 and 3 of 4", for who waits in vain.
  [[nodiscard]] std::string missing() const;
  [[nodiscard]] std::map<std::uint32_t, std::string> joined() const;  ///< rank → node, while it forms

  void flush(const send_function& send, steady_time now);
  [[nodiscard]] steady_time wake_at(const known_nodes& nodes) const;

 private:
  struct waiting_node {
    peer::incarnation born{};
    std::uint64_t turn = 0;
    std::vector<peer::joined_rank> ranks{};
  };
  struct member_node {
    std::size_t index = 0;  ///< its bit in `gathering`
    peer::incarnation born{};
    std::uint64_t turn = 0;  ///< of the join that is in the epoch
    std::vector<peer::joined_rank> ranks{};
    bool has_heard = false;              ///< that the epoch began
    std::uint64_t heard_up_to = 0;       ///< decisions
    std::uint64_t sent_up_to = 0;        ///< of those, at least once
    std::optional<steady_time> again{};  ///< when to send what was not acknowledged
    std::vector<std::uint64_t> too_old{};
  };
  struct gathering {
    std::uint64_t least = 0;
    std::bitset<peer::most_group_ranks> said{};
    steady_time deadline{};
    bool is_decided = false;  ///< only without decides_once
  };
  struct told_node {
    peer::group_epoch epoch{};
    peer::incarnation born{};
    std::string why{};
    steady_time again{}, until{};
  };
  struct left_turn {
    peer::incarnation born{};
    std::uint64_t turn = 0;
  };

  [[nodiscard]] std::optional<peer::refused_ranks> refuse(const std::string& whom, const peer::join_group& what,
                                                          error_code code, std::string why);
  [[nodiscard]] bool is_stale(const std::string& from, peer::incarnation born, std::uint64_t turn) const;
  [[nodiscard]] std::optional<std::pair<std::uint32_t, std::string>> taken_rank(const std::string& from,
                                                                                const peer::join_group& what) const;
  [[nodiscard]] std::optional<std::string> why_wrong(const peer::join_group& what) const;
  [[nodiscard]] bool rejoins(const std::string& from, peer::incarnation born, const peer::join_group& what,
                             steady_time now);
  [[nodiscard]] std::optional<peer::refused_ranks> resolve(const std::string& from, const peer::join_group& what,
                                                           std::uint32_t rank, const std::string& holder,
                                                           const known_nodes& nodes, steady_time now);
  void form_if_complete();
  void gather(member_node& from, const peer::proposal& what, steady_time now);
  void decide(std::uint64_t question, std::uint64_t length);
  void decide_due(steady_time now);
  void trim_log();
  [[nodiscard]] std::uint64_t last_decision() const noexcept { return first_in_log_ + log_.size() - 1; }
  void forget_sent();
  void flush_node(const std::string& name, member_node& to, const send_function& send, steady_time now);
  void send_decisions(const std::string& name, member_node& to, std::uint64_t above, const send_function& send);

  peer::group_name group_;
  std::string self_;
  peer::incarnation born_;
  const agreement_options& options_;
  std::uint64_t& epochs_;
  agreement_counters& counters_;

  bool is_open_ = false;
  instance_identity shared_;
  std::uint32_t size_ = 0;
  std::map<std::string, waiting_node> waiting_;
  std::map<std::string, steady_time> conflicts_;  ///< since when a node claims what another one has
  std::map<std::string, left_turn> left_;         ///< joins that an epoch used up
  std::vector<std::pair<std::string, peer::refused_ranks>> refusals_;

  peer::group_epoch epoch_{};
  std::string why_lost_;
  std::map<std::string, member_node> table_;  ///< empty: forming
  std::unordered_map<std::uint64_t, gathering> open_;
  std::set<std::pair<steady_time, std::uint64_t>> deadlines_;
  std::map<std::uint64_t, std::uint64_t> decided_;  ///< those that are remembered
  std::uint64_t floor_ = 0;                         ///< what is less and not remembered is not answered
  std::deque<peer::decision> log_;                  ///< what somebody has not acknowledged
  std::unordered_set<std::uint64_t> in_log_;        ///< its questions
  std::uint64_t first_in_log_ = 1;

  std::map<std::string, told_node> telling_;
  std::vector<std::pair<std::string, peer::lost_epoch>> replies_;
};

}  // namespace cenote::cluster
