// What the socket's parts need of the worker around them.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/cluster_messages.hpp"
#include "actors/data_path.hpp"
#include "actors/messages.hpp"
#include "cluster/pool.hpp"
#include "core/instance_identity.hpp"
#include "core/machine_decisions.hpp"
#include "tiers/remote/backend.hpp"
#include "transport/local/keeper_link.hpp"
#include "worker/metrics_place.hpp"
#include "worker/trace_exporter/trace_exporter.hpp"

namespace cenote {

/// What the server needs of the worker around it.
struct server_context {
  caf::actor_system& system;
  local::keeper_link& keeper;
  data_path& path;
  dram_tier_actor dram;
  node_actor node;
  std::uint64_t epoch = 0;
  std::chrono::system_clock::time_point node_started;
  std::uint32_t restarts = 0;
  std::string socket_path;
  std::function<metrics_place()> metrics = [] { return metrics_place(); };  ///< from any thread
  /// Of this worker's threads; each ended the work that threw it, and no more.
  std::shared_ptr<std::atomic<std::uint64_t>> exceptions = std::make_shared<std::atomic<std::uint64_t>>(0);
  /// How far memory is touched; from any thread.
  std::function<blocks::populate_status()> populated = [] { return blocks::populate_status(); };
  /// The decisions about copies; from any thread, never null.
  std::function<std::shared_ptr<const machine_decisions>()> copies = [] {
    return std::make_shared<const machine_decisions>();
  };
  /// Counts removals and clears of an instance that wait for places outside this machine; `answer` comes on any thread.
  std::function<void(const instance_identity&, const std::function<void(remote::unconfirmed_removals)>& answer)>
      count_unconfirmed = [](const auto&, const auto& answer) { answer({}); };
  bool has_lower = false;                   ///< there are tiers below, which want the checksums of what is stored
  bool asks_tiers = false;                  ///< one of them says what it holds only when it is asked
  cluster_actor cluster{};                  ///< none: the node is alone
  std::shared_ptr<cluster::pool> blocks{};  ///< of a cluster's nodes; null: the node is alone
  consensus_actor groups{};                 ///< of ranks
  live_curves_actor curves{};               ///< none: no request is watched
  std::shared_ptr<traces::trace_exporter> exporter{};  ///< null: clients make no spans
  std::vector<std::string_view> tiers{};               ///< below DRAM, by edge
};

/// The configuration that holds now. Thread-safe.
class current_config {
 public:
  explicit current_config(config_ptr first) : config_(std::move(first)) {}

  [[nodiscard]] config_ptr get() const { return std::atomic_load(&config_); }
  void replace(config_ptr next) { std::atomic_store(&config_, std::move(next)); }

 private:
  config_ptr config_;
};

}  // namespace cenote
