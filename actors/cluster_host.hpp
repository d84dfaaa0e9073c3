// What a node has of a cluster: its network, the thread of it, and the actor that they belong to.
#pragma once

#include <caf/all.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "actors/actor_runner.hpp"
#include "actors/cluster_messages.hpp"
#include "actors/guest_room.hpp"
#include "actors/pulse.hpp"
#include "cluster/guest.hpp"
#include "transport/ucx/network.hpp"

namespace cenote {

/// What a cluster needs of the worker around it.
struct cluster_needs {
  caf::actor_system& system;
  config::cluster_section config;
  peer::incarnation born;
  std::uint64_t weight = 0;                              ///< bytes
  std::uint64_t features = 0;                            ///< of its greeting
  bool may_wait = false;                                 ///< its address may be another program's for a while
  std::function<void(const std::string& reason)> fatal;  ///< this node must not go on: its name is another one's
  std::shared_ptr<cluster::pool> blocks{};               ///< none: this node has no part in others' blocks
  dram_tier_actor dram{};                                ///< whose blocks others may have
  std::uint64_t epoch = 0;                               ///< of the worker
  cluster::guest_options serves{};                       ///< what they may have
  consensus_actor groups{};                              ///< whom frames about groups of ranks are for
};

/// Registers the types of the cluster's messages with CAF.
void add_cluster_messages(caf::actor_system_config& config);

/// Sets the environment for the network that `config` wants and loads it: to be called before the process has other
/// threads. Errors: invalid_config, unsupported.
[[nodiscard]] result<void> load_network(const config::cluster_section& config);

/// Of the groups for which the configuration has a token or users of their own.
[[nodiscard]] std::shared_ptr<const cluster::group_rights> group_rights_of(const config::node_config& config);

/// Stop it before the actor system ends, and destroy it afterwards.
class cluster_host {
 public:
  /// Reads the secret, listens, and dials the seeds from then on. Errors: invalid_config, unsupported; system: it
  /// cannot listen, and may not wait until it can.
  [[nodiscard]] static result<std::unique_ptr<cluster_host>> start(const cluster_needs& needs);
  cluster_host(const cluster_host&) = delete;
  cluster_host& operator=(const cluster_host&) = delete;
  ~cluster_host() { stop(); }

  [[nodiscard]] const cluster_actor& actor() const noexcept { return actor_; }
  /// Once it listens.
  [[nodiscard]] endpoint where() const { return network_.load()->where(); }
  /// Its actor and its thread.
  void watch_over(pulse& all);
  /// Says to the other nodes that this one leaves, and closes all links.
  void leave();
  void stop();

 private:
  explicit cluster_host(caf::actor_system& system) : system_(system), runner_(system) {}
  [[nodiscard]] result<void> listen(const ucx::network_options& options, cluster_start with);
  void listen_later(const ucx::network_options& options, const cluster_start& with);
  [[nodiscard]] peer::network_events events();
  void open_guest(const cluster_needs& needs);
  void tell(link_event event);

  caf::actor_system& system_;
  actor_runner runner_;
  cluster_actor actor_;
  caf::strong_actor_ptr target_;
  guest_actor guest_actor_;  ///< none: nobody else has a part in this node's blocks
  std::unique_ptr<guest_room> room_;
  std::unique_ptr<cluster::guest> guest_;
  std::shared_ptr<cluster::pool> blocks_;
  std::atomic<std::shared_ptr<ucx::network>> network_;
  std::jthread listens_later_;
};

}  // namespace cenote
