// Nodes that only know each other through membership, on a network in virtual time, with everything going wrong by a
// seed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/membership.hpp"
#include "tests/support/fake_network.hpp"

namespace cenote::testing {

struct world_options {
  cluster::membership_rules rules{};
  bool shows = false;  ///< prints what happens
};

/// Two to five nodes, ten seconds of faults, then peace. After each event it checks what must hold:
/// - a node that falls silent is not used a second later; one that beats in time is never suspected;
/// - epochs only grow; a view has a name once, and nobody of another secret or another cluster;
/// - in peace everybody sees everybody, by one link a pair; of two nodes with one name, one is seen and sees.
class membership_world {
 public:
  membership_world(std::uint64_t seed, world_options options);
  ~membership_world();

  /// None: all held. Else what did not, and when.
  [[nodiscard]] std::optional<std::string> run();

 private:
  using time_point = fake_wire::time_point;
  struct node {
    std::string name;
    std::string place;  ///< on the wire: its name, but for the twin of another node
    endpoint where;
    bool belongs = true;  ///< knows the secret, and is of the cluster
    cluster::membership_options options;
    std::uint64_t started_ms = 0, worker = 1;
    std::unique_ptr<fake_network> network;
    std::unique_ptr<cluster::membership> members;
    std::uint64_t epoch = 0, life = 0;
    std::uint64_t alarm = 0;
    bool has_left = false;
    std::map<std::string, time_point> heard;  ///< when a frame of a node came last
    std::vector<std::pair<time_point, time_point>> standstills;
  };

  node& add_node(const std::string& name, bool knows_secret, bool is_of_cluster);
  void check_twins(const std::string& name);
  [[nodiscard]] std::set<std::string> seen_by(const node& one) const;
  void start(node& which);
  void set_alarm(node& which);
  void carry_out(node& which);
  void fault();
  void check(node& which);
  [[nodiscard]] fake_wire::duration silence(const node& of, time_point heard) const;
  void check_silence(node& of, const cluster::peer_row& row);
  void check_peace();
  void fail(const std::string& what);
  void show(const std::string& what);
  [[nodiscard]] node& any() { return *nodes_[wire_.number(nodes_.size())]; }

  fake_wire wire_;
  world_options options_;
  std::vector<std::unique_ptr<node>> nodes_;
  std::optional<std::string> failure_;
  time_point begun_;
};

}  // namespace cenote::testing
