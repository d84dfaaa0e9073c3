// Requests that are followed from one node to another: what the network's thread says and hears of them. Which blocks a
// request has, and when they are whole, the block tier of its node knows; who follows, its planner of prefetches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cluster/pool.hpp"
#include "core/handover.hpp"

namespace cenote::cluster {

/// The pool's part for hand-overs. Orders of this node's planner go to the node that they name, again when its link is
/// another one; orders of other nodes go to the block tier here; the news take the way back. Each order ends at its
/// time, whatever the network does.
class handovers final : public pool_half {
 public:
  static constexpr std::size_t most_of_link = 1024;  ///< orders of one other node at a time

  /// Called on the network's thread; neither waits.
  struct events {
    std::function<void(handover::news)> told;    ///< to the planner: the answer to its order
    std::function<void(handover::order)> asked;  ///< to the block tier: news of it come by take()
  };

  explicit handovers(pool& with) : pool_(with) {}

  /// Before the network is used.
  void use(events to) { to_ = std::move(to); }

  /// The planner's. Thread-safe. Orders whose node cannot be followed are answered with an error.
  void follow(handover::order what);
  /// The block tier's news. Thread-safe.
  void take(std::vector<handover::news> all);

  // pool_half
  void members_changed() override;
  void heard(peer::link_id from, peer::frame_type type, std::uint64_t request,
             std::span<const std::byte> body) override;
  [[nodiscard]] peer::landing expects(peer::link_id, const peer::piece_header&, std::size_t) override { return {}; }
  void landed(peer::link_id, const peer::piece_header&, std::span<const std::byte>) override {}
  void sent(peer::link_id, std::uint64_t, bool) override {}
  void closed(peer::link_id which) override;
  void flush() override {}
  void advance(std::chrono::steady_clock::time_point now) override;

 private:
  using place = std::pair<peer::link_id, std::uint64_t>;  ///< link, and the number there

  /// An order of this node's planner.
  struct outgoing {
    handover::order what;
    pool::steady_time until{};
    peer::link_id link = 0;  ///< it was sent on; 0: it waits for its node, or is this node's own
    std::uint64_t here = 0;  ///< this node's own: its number in the block tier
  };
  /// Whose order the block tier has.
  struct asking {
    peer::link_id link = 0;  ///< 0: this node's planner
    std::uint64_t number = 0;
    pool::steady_time until{};
  };

  void begin(handover::order what);
  void end(std::uint64_t number);
  void ask_tier(const asking& by, handover::order what);
  void forget(std::map<std::uint64_t, asking>::iterator which);
  void send(outgoing& what);
  void deliver(handover::news what);
  void hear_follow(peer::link_id from, std::uint64_t number, std::span<const std::byte> body);
  void hear_handed(peer::link_id from, std::uint64_t number, std::span<const std::byte> body);

  pool& pool_;
  events to_;

  // The network's thread's own.
  std::map<std::uint64_t, outgoing> outgoing_;  ///< by the planner's number
  std::map<std::uint64_t, asking> asking_;      ///< by the block tier's number
  std::map<place, std::uint64_t> by_place_;     ///< of other nodes' orders, the block tier's number
  std::uint64_t next_number_ = 1;
};

}  // namespace cenote::cluster
