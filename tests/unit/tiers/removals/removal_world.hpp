// Nodes with a pool of blocks on a network in virtual time, with everything going wrong by a seed, and a look at each
// of them for blocks that were removed.
//
// Real: membership, pool, both of its halves (guest and peers_backend), recent_removals, removal_book with its file,
// the decisions of the remote tier (remote::store) and the store of blocks with its shared memory, which outlives a
// worker as the keeper's does. The test plays the actors between them, with a mailbox for each pair that sends, the
// engine, and the network with its links. Tiers of NVMe and devices are not there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/guest.hpp"
#include "cluster/membership.hpp"
#include "cluster/pool.hpp"
#include "tests/support/fake_network.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"
#include "tiers/remote/peers_backend.hpp"
#include "tiers/remote/store.hpp"

namespace cenote::testing {

/// A new folder, in memory where there is a file system for that: a file there is synced at once.
[[nodiscard]] std::string temporary_folder();

/// Rules that the test leaves out one by one, to show that each is needed.
struct removal_rules {
  bool names_clears = true;        ///< questions and fetches name the last clear
  bool keeps_removed_keys = true;  ///< what is being removed, or was lately, is neither fetched, served nor taken
  bool keeps_book = true;          ///< removals that wait outlive the worker
  bool repeats_to_all = true;      ///< a removal that waits goes to all nodes again, not only to the missing ones
  bool keeps_names = true;         ///< a node that may have blocks is known however long it stays away
  bool revokes_deliveries = true;  ///< a removal ends what is on its way to a node and is not stored there yet
  bool offers_name_clears = true;  ///< offers name the last clear before them
  bool keeps_lag = true;           ///< what was removed is neither served nor taken for a while after that
  bool clears_returned = true;     ///< a node that was written off and comes back clears its blocks
  bool awaits_clears = true;       ///< … before any node uses one of them
  bool spreads_write_offs = true;  ///< all nodes know of a write-off
};

struct removal_options {
  removal_rules rules{};
  bool shows = false;  ///< prints what happens
};

/// Events of one world, so that a test can see that the worlds are no idle ones.
struct removal_figures {
  std::uint64_t done = 0, pending = 0;  ///< removals and clears, by their answer
  std::uint64_t fetched = 0, repeated = 0, restarts = 0, hits = 0, absences = 0, write_offs = 0;

  removal_figures& operator+=(const removal_figures& other);
};

/// Two to four nodes that put, get, remove and clear, ten seconds of faults, in some worlds the absence of a node that
/// lasts until membership has forgotten it or until an operator has written it off, then peace:
/// - a removal that was answered as done: no node finds the block any more, unless it was stored anew;
/// - one that was answered as pending: the node that asked does not, and in peace no node does;
/// - in peace no removal waits.
class removal_world {
 public:
  using figures_type = removal_figures;

  removal_world(std::uint64_t seed, removal_options options);
  removal_world(const removal_world&) = delete;
  removal_world& operator=(const removal_world&) = delete;
  ~removal_world();

  /// None: all held. Else what did not, and when.
  [[nodiscard]] std::optional<std::string> run();
  [[nodiscard]] const removal_figures& figures() const noexcept { return figures_; }

 private:
  struct machine;
  class chaotic_links;
  class room;
  /// State that ends with a worker.
  struct worker;

  /// A block as one engine computed it: its bytes name it.
  struct copy {
    std::uint64_t key = 0;
    bool is_gone = false;             ///< no node may find it
    std::set<std::string> gone_at{};  ///< these may not
  };
  /// An engine's order to remove.
  struct order {
    std::string name;
    std::set<std::uint64_t> copies;  ///< that there were
    bool is_answered = false;
  };
  /// Its part in the remote tier.
  struct forgetting {
    std::size_t open = 1;
    std::string reason;
    std::function<void(const std::string& reason)> finish;
  };
  /// Messages of one actor to another one: they arrive in their order.
  struct mailbox {
    fake_wire::time_point last{};
  };
  using action = std::function<void(worker&)>;

  [[nodiscard]] machine& any() { return *machines_[wire_.number(machines_.size())]; }
  [[nodiscard]] machine* any_present();
  void add_machine(const std::string& name);
  void start(machine& target);
  void kill(machine& target, bool is_closing_links);
  void post(worker& home, mailbox& box, action message);
  void run_on_network(worker& home, action message);

  // Links and members.
  [[nodiscard]] peer::network_events events_of(worker& home);
  void remove_stored(worker& home, peer::link_id link, std::uint64_t request, const peer::forget_request& removal);
  void carry_out(worker& home);
  void tell_pool(worker& home);
  void set_alarm(worker& home);
  void hear(worker& home, peer::link_id link, const std::vector<std::byte>& frame);
  void send(worker& home, peer::link_id link, std::vector<std::byte> frame);
  void pass_on(worker& home, peer::link_id link, const std::vector<std::byte>& frame);

  [[nodiscard]] bool is_left_out(worker& home, peer::link_id link, const peer::frame_view& notice);

  // The block tier and the remote tier.
  void connect_tier(worker& home);
  void flush_blocks(worker& home);
  void flush_remote(worker& home);
  void forget(worker& home, std::vector<blocks::removal> removals, bool is_on_its_way,
              std::function<void(const std::string&)> finish);
  void end_part(worker& home, std::uint64_t number, const std::string& reason);
  void clear_all(worker& home, const std::function<void(result<std::uint64_t>)>& done);
  void tick(worker& home);

  // The engine.
  void work(machine& target);
  void put(worker& home, std::uint64_t key);
  void get(worker& home, std::uint64_t key);
  void remove(worker& home, const std::vector<std::uint64_t>& keys);
  void take_answer(std::size_t number, const std::string& reason);
  void fault();
  void stay_away();
  void write_off(machine& absent);
  void work_with_returned();
  void come_back(machine& target);

  void check(machine& target);
  void check_all();
  void check_peace();
  [[nodiscard]] std::optional<std::uint64_t> find(machine& target, std::uint64_t key);
  void fail(const std::string& message);
  void show(const std::string& message);

  fake_wire wire_;
  std::mt19937_64 fates_;  ///< of what does not befall each world: its draws change no other world
  removal_options options_;
  fake_wire::time_point start_;
  remote::peers_options peers_;
  std::string folder_;
  instance_spec spec_;
  std::vector<std::unique_ptr<machine>> machines_;
  std::map<std::uint64_t, copy> copies_;  ///< by number
  std::vector<order> orders_;
  std::map<std::pair<std::string, std::uint64_t>, std::uint64_t> last_look_;  ///< copies at the last look
  std::optional<std::string> failure_;
  removal_figures figures_;
  bool is_peace_ = false;
  bool catches_up_ = false;     ///< nodes offer once more what they have when another one is there again
  bool is_long_after_ = false;  ///< membership has forgotten the node that is away
};

}  // namespace cenote::testing
