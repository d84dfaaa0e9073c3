// Networks of one process in virtual time: delay, loss, duplication, reordering, partitions, nodes that stand still or
// die, all by a seed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/peer/network.hpp"

namespace cenote::testing {

class fake_network;

/// What lies between the networks, and their clock. Not thread-safe.
class fake_wire {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using duration = std::chrono::steady_clock::duration;

  /// What may happen to a frame of an open link. A real one loses, doubles and swaps none.
  struct manners {
    duration least{std::chrono::microseconds(50)};
    duration spread{std::chrono::microseconds(200)};  ///< of a log-normal delay
    double loses = 0, doubles = 0, swaps = 0;         ///< chances
  };

  explicit fake_wire(std::uint64_t seed) : random_(seed) {}

  [[nodiscard]] time_point now() const noexcept { return now_; }
  /// Runs `what` at `when`; on behalf of a node that stands still: when it goes on.
  void at(time_point when, std::function<void()> what, const std::string& node = {});
  /// Runs what is due next. False: nothing is left.
  bool step();
  void run_until(time_point when);

  /// What `from` sends is lost on its way to `to`.
  void cut(const std::string& from, const std::string& to) { cuts_.emplace(from, to); }
  void heal() { cuts_.clear(); }
  [[nodiscard]] bool is_cut(const std::string& from, const std::string& to) const { return cuts_.contains({from, to}); }
  /// The node's process stands still until then; its peers' bytes wait.
  void freeze(const std::string& node, time_point until) { frozen_[node] = std::max(frozen_[node], until); }
  [[nodiscard]] time_point frozen_until(const std::string& node) const;
  /// The node is gone. `says_so`: its kernel closes its connections; else its machine is gone, too.
  void crash(const std::string& node, bool says_so);

  [[nodiscard]] double chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  [[nodiscard]] std::uint64_t number(std::uint64_t below) { return below == 0 ? 0 : random_() % below; }

  manners habit{};
  std::map<std::string, std::vector<endpoint>> names{};  ///< what the name service has, by the text of the name

 private:
  friend class fake_network;
  struct event {
    time_point when;
    std::uint64_t order;
    std::string node;
    std::function<void()> what;
    bool operator>(const event& other) const { return std::pair(when, order) > std::pair(other.when, other.order); }
  };
  [[nodiscard]] duration delay();
  [[nodiscard]] fake_network* find(const std::string& address) const;

  std::mt19937_64 random_;
  time_point now_{std::chrono::hours(1)};
  std::uint64_t order_ = 0;
  std::priority_queue<event, std::vector<event>, std::greater<>> events_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::map<std::string, time_point> frozen_;
  std::map<std::string, fake_network*> by_address_;  ///< of those that listen
};

/// A node's network on a wire; destroyed, it is as if its process had died and its kernel closed its connections.
class fake_network final : public peer::network {
 public:
  fake_network(fake_wire& wire, std::string node, endpoint where, peer::network_events events);
  ~fake_network() override { stop(); }

  void look_up(const endpoint& name) override;
  peer::link_id dial(const endpoint& where) override;
  void send(peer::link_id to, std::vector<std::byte> frame) override;
  void join_blocks(peer::link_id which, const endpoint& where, const peer::ticket& proof) override;
  void await_blocks(peer::link_id which, const peer::ticket& proof) override;
  void send_block(peer::link_id to, const peer::piece_header& head, std::span<const std::byte> memory) override;
  void close(peer::link_id which, error why) override;
  void run(std::function<void()> what) override;
  [[nodiscard]] peer::oddities odd() const noexcept override { return {}; }
  void stop() noexcept override;

  [[nodiscard]] std::size_t open_links() const { return links_.size(); }

 private:
  friend class fake_wire;
  struct end {
    std::string other;             ///< address
    peer::link_id there = 0;       ///< the link's number at the other end; 0: not open yet
    fake_wire::time_point last{};  ///< arrival of the last frame, so that the next one comes later
    std::optional<peer::ticket> joins, awaits;
    bool carries = false;
  };

  void accept(peer::link_id from, const std::string& other);
  void opened(peer::link_id which, peer::link_id there);
  void ended(peer::link_id which, const error& why);
  void deliver(peer::link_id which, const std::vector<std::byte>& frame);
  void carry(peer::link_id which);
  [[nodiscard]] std::string address() const { return where_.text(); }

  fake_wire& wire_;
  std::string node_;
  endpoint where_;
  peer::network_events events_;
  std::map<peer::link_id, end> links_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cenote::testing
