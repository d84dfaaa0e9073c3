// Nodes with ranks of groups that ask how long their common prefix is, in virtual time, with everything going wrong by
// a seed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/agreement.hpp"
#include "tests/support/fake_network.hpp"
#include "tests/support/numbered_identity.hpp"

namespace cenote::testing {

struct agreement_world_options {
  cluster::agreement_rules rules{};
  bool shows = false;  ///< prints what happens
};

/// One to four nodes, one or two groups of two to six ranks; seconds of faults, then peace. With each answer it checks:
/// - agreement: no two ranks hear different numbers for one question of one epoch, whenever they ask;
/// - validity: a number is the least of what all ranks proposed first, or 0;
/// - stickiness: a rank that heard `lost` hears no number of that epoch any more;
/// - termination: every join and every question has exactly one answer within its timeout, by a node that runs;
/// - an epoch has one life of each rank; in peace all groups form and decide; without other faults than a bad network
///   no epoch is lost.
class agreement_world {
 public:
  agreement_world(std::uint64_t seed, agreement_world_options options);

  /// None: all held. Else what did not, and when.
  [[nodiscard]] std::optional<std::string> run();
  [[nodiscard]] std::uint64_t answers() const noexcept { return answers_; }

 private:
  using time_point = fake_wire::time_point;
  using duration = fake_wire::duration;
  enum class rank_is : std::uint8_t { out, joining, in, lost };
  using epoch_name = std::pair<peer::group_epoch, std::string>;  ///< and its coordinator
  struct waiting {
    std::uint64_t length = 0;
  };
  struct rank {
    std::size_t group = 0;
    std::uint32_t number = 0;
    std::size_t node = 0;
    cluster::rank_id id = 0;
    rank_is state = rank_is::out;
    epoch_name epoch{};
    std::uint64_t next = 1;  ///< question
    std::map<std::uint64_t, waiting> asked{};
    std::uint64_t steps = 0;  ///< a step of before counts no more
    bool has_decided_in_peace = false;
  };
  struct node {
    std::string name;
    std::uint64_t worker = 1;
    std::unique_ptr<cluster::agreement> object;
    std::uint64_t life = 0, alarm = 0;
    time_point alarm_at{};
    std::map<std::string, peer::incarnation> sees{};
    [[nodiscard]] peer::incarnation born() const { return peer::incarnation::of(1000, worker); }
  };
  struct question {
    std::optional<std::uint64_t> value{};
    std::map<std::uint32_t, std::uint64_t> lengths{};
  };
  struct epoch_record {
    std::map<std::uint32_t, cluster::rank_id> ranks{};
    std::map<std::uint64_t, question> questions{};
  };
  struct group {
    std::string name;
    std::uint32_t size = 0;
    share_holder owner{};  ///< groups of two owners may have one name
    std::map<epoch_name, epoch_record> epochs{};

    [[nodiscard]] peer::group_name key() const { return {name, owner}; }
  };

  void add_groups();
  void start(node& which);
  void settle(node& which);
  void set_alarm(node& which);
  void send(node& from, const cluster::agreement_frame& what);
  void post(const std::string& from, peer::incarnation born, node& to, peer::frame_type type,
            std::shared_ptr<const std::vector<std::byte>> body);
  void look(node& which);
  void look_soon(duration within);

  void step_later(rank& which, duration when);
  void step(rank& which);
  void join(rank& which);
  void ask(rank& which);
  void ask_for(rank& which, std::uint64_t number);
  void expect_answer(rank& which, std::uint64_t number, duration timeout);
  void take(node& at, const cluster::rank_answer& what);
  void take_formed(rank& who, const cluster::rank_answer& what);
  void take_decided(rank& who, const cluster::rank_answer& what);
  void take_lost(rank& who, const cluster::rank_answer& what);
  void go(rank& which);

  void fault();
  void crash(node& which);
  void cut();
  void kill_rank();
  void forge();
  void make_peace();
  void check_peace();
  void fail(const std::string& what);
  void show(const std::string& what);
  [[nodiscard]] std::string name_of(const rank& which) const;
  [[nodiscard]] duration delay();
  [[nodiscard]] duration some(std::uint64_t milliseconds) {
    return std::chrono::milliseconds(wire_.number(milliseconds));
  }

  fake_wire wire_;
  agreement_world_options options_;
  cluster::agreement_options settings_;
  std::vector<std::unique_ptr<node>> nodes_;
  std::vector<group> groups_;
  std::vector<std::unique_ptr<rank>> ranks_;
  bool is_calm_ = false, is_hostile_ = false, is_peace_ = false;
  duration timeout_{};
  double slow_ = 0, skips_ = 0;
  cluster::rank_id last_id_ = 0;
  std::set<cluster::rank_id> dying_;
  std::uint64_t answers_ = 0;
  std::optional<std::string> failure_;
  time_point begun_;
};

}  // namespace cenote::testing
