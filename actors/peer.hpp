// The proxy of one other node: requests become frames, and frames answers.
#pragma once

#include <caf/all.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>

#include "actors/actor_alarm.hpp"
#include "actors/cluster_messages.hpp"
#include "actors/promise_guard.hpp"

namespace cenote {

/// What all peers' actors count together. Thread-safe.
struct peer_counts {
  std::atomic<std::uint64_t> requests{0}, overdue{0};
};

/// Every request ends: with its answer, after request_limit, or with the link that it went out by.
class peer_proxy final : public peer_actor::base {
 public:
  static constexpr std::chrono::milliseconds request_limit{2000};
  static constexpr std::size_t most_requests = 1024;  ///< that are open

  using steady_time = std::chrono::steady_clock::time_point;

  peer_proxy(caf::actor_config& config, cluster_actor cluster, std::shared_ptr<peer_counts> counts,
             std::function<steady_time()> clock)
      : peer_actor::base(config), cluster_(std::move(cluster)), counts_(std::move(counts)), clock_(std::move(clock)) {}

  [[nodiscard]] const char* name() const override { return "peer"; }
  void on_exit() override;

 protected:
  behavior_type make_behavior() override;

 private:
  struct open_request {
    promise_guard<payload_ptr> promise;
    steady_time until;
  };

  [[nodiscard]] caf::result<payload_ptr> ping(const payload_ptr& payload);
  void take_frame(const node_frame& frame);
  void use_link(peer::link_id link);
  void end_overdue();
  void look_later();
  void send_frame(peer::frame_type type, std::uint64_t request, std::vector<std::byte> body);

  cluster_actor cluster_;
  std::shared_ptr<peer_counts> counts_;
  std::function<steady_time()> clock_;
  peer::link_id link_ = 0;
  std::uint64_t next_request_ = 1;
  std::map<std::uint64_t, open_request> requests_;  ///< in the order in which they were made, so of their ends
  actor_alarm<look_atom> alarm_;
};

}  // namespace cenote
