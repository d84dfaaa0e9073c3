// Nodes over one Redis server in virtual time, with everything going wrong by a seed, and a look at nodes and server
// for blocks that were removed.
//
// Real: redis_servers with its connections (over sockets of one process), books of epochs and removals with their
// files, and the decisions of the remote tier (remote::store). The test plays the server at the level of its wire, the
// threads and actors between them, and memory: a map that outlives a worker as the keeper's does.
//
// Each node puts what it stores, or not: then, and what it stored while the server was away, it puts once it is back,
// and when the block's place is needed, as the block tier does.
//
// Assumed: what a connection left at the server is carried out before the first command of a later one of that node, or
// never; a server that fails over loses puts and epochs, and no deletion.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/instance_spec.hpp"
#include "core/time_types.hpp"
#include "tests/support/fake_network.hpp"
#include "tiers/transfer.hpp"

namespace cenote::testing {

/// Rules that the test leaves out one by one, to show that each is needed.
struct redis_rules {
  bool clears_above = true;         ///< the epoch of another node's clear empties this node's own tiers
  bool repeats_stale_drops = true;  ///< a removal behind a look that was over is sent again
  bool follows_puts = true;         ///< a deletion goes behind a put of its key that may still land
  bool keeps_book = true;           ///< removals that wait outlive the worker
  bool names_arrival = true;        ///< what is put later has the time at which it came
  bool makes_stamps = true;         ///< a removal leaves a stamp, which a put that comes later has to know
};

struct redis_world_options {
  redis_rules rules{};
  bool shows = false;  ///< prints what happens
};

/// Events of one world, so that a test can see that the worlds are no idle ones.
struct redis_world_figures {
  std::uint64_t done = 0, pending = 0;  ///< removals and clears, by their answer
  std::uint64_t fetched = 0, repeated = 0, restarts = 0, failovers = 0, made_up = 0;

  redis_world_figures& operator+=(const redis_world_figures& other);
};

/// Two or three nodes that put, locate, get, remove and clear, ten seconds of faults, then peace:
/// - what was removed with success is not to be got from the server by any node, and not in the memory of the node that
///   removed it; of what was cleared no node has anything in peace;
/// - what is pending is not found by the node that removed it, and in peace by none;
/// - in peace no removal waits.
class redis_world {
 public:
  using figures_type = redis_world_figures;

  redis_world(std::uint64_t seed, redis_world_options choices);
  redis_world(const redis_world&) = delete;
  redis_world& operator=(const redis_world&) = delete;
  ~redis_world();

  /// None: all held. Else what did not, and when.
  [[nodiscard]] std::optional<std::string> run();
  [[nodiscard]] const redis_world_figures& figures() const noexcept { return figures_; }

 private:
  struct machine;
  struct worker;
  class server;

  /// A block as one engine computed it: its bytes name it.
  struct copy {
    std::uint64_t key = 0;
    std::string owner{};      ///< the node that stored it
    bool is_gone = false;     ///< the server has it for no node
    bool is_exposed = false;  ///< a node may offer it, and the server has lost memory: it may be there until peace
    bool is_cleared = false;  ///< no node has it in peace
    std::set<std::string> gone_at{};  ///< these do not find it
  };
  /// An engine's order to remove.
  struct order {
    std::string name;
    bool is_clear = false;
    std::set<std::uint64_t> copies;  ///< that it can reach
    std::set<std::uint64_t> unsent;  ///< that other nodes have not put, and shall not put any more
    std::set<std::uint64_t> memory;  ///< of a clear: what nodes have in their memory
    bool is_answered = false;
    bool is_reverted = false;   ///< the server has forgotten an epoch since it began
    bool is_lost = false;       ///< the server has lost memory since it began
    bool is_forgotten = false;  ///< it has, and the worker that asked for it has ended
    std::uint64_t life = 0;     ///< of its node
  };
  using time_point = fake_wire::time_point;
  using action = std::function<void(worker&)>;

  [[nodiscard]] machine& any() { return *machines_[wire_.number(machines_.size())]; }
  void start(machine& target);
  void kill(machine& target, bool is_farewell);
  void post(worker& home, time_point& last, action message);
  [[nodiscard]] std::uint64_t calendar(const machine& target) const;
  [[nodiscard]] boot_time boot() const;
  void drive(machine& target);
  void wake(const std::string& node);
  void drive_later(machine& target, time_point time);

  // The remote tier.
  void call(worker& home, action message);
  void flush(worker& home);
  void take_standing(worker& home, bool stands);
  void offer_missed(worker& home);
  void take_clear(worker& home);

  // The engine.
  void work(machine& target);
  void put(machine& target, std::uint64_t key);
  void send_put(machine& target, std::uint64_t key, write_occasion occasion);
  void evict(machine& target, std::uint64_t key);
  void get(machine& target, std::uint64_t key);
  void locate(machine& target);
  void remove(machine& target, const std::vector<std::uint64_t>& target_keys);
  void remove_later(machine& target, std::uint64_t key);
  void take_answer(std::size_t number, const std::string& reason);
  void fault();
  void fail_over();
  void note_loss();

  void check(const machine& target);
  void check_server();
  void check_all();
  void check_peace();
  void fail(const std::string& message);
  void show(const std::string& message);

  fake_wire wire_;
  redis_world_options options_;
  time_point start_;
  const bool has_one_clock_;
  std::string folder_;
  instance_spec spec_;
  std::unique_ptr<server> server_;
  std::vector<std::unique_ptr<machine>> machines_;
  std::map<std::uint64_t, copy> copies_;  ///< by number
  std::vector<order> orders_;
  std::uint64_t next_token_ = 1;
  std::optional<std::string> failure_;
  redis_world_figures figures_;
};

}  // namespace cenote::testing
