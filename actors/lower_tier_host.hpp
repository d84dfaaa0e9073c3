// The interface by which a worker makes, opens and stops a tier below the DRAM tier. The kinds of tiers are listed in
// actors/tier_stack.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "actors/data_path.hpp"
#include "actors/messages.hpp"
#include "cluster/pool.hpp"
#include "core/finding.hpp"
#include "memory/segment.hpp"
#include "tiers/blocks/provisioner.hpp"
#include "tiers/remote/backend.hpp"

namespace cenote {

/// What a worker gives a tier below when it is made.
struct lower_tier_needs {
  caf::actor_system& system;
  data_path& path;    ///< outlives the tier; its threads send messages to actors through it
  config_ptr config;  ///< in force when the worker starts
  /// Memory that outlives the worker, by name: that of the worker before, or new and zeroed.
  std::function<result<memory::segment>(const std::string& name, std::uint64_t bytes)> keep_memory;
  std::shared_ptr<cluster::pool> blocks{};                 ///< of all nodes; none: this node is alone
  std::shared_ptr<std::atomic<std::uint64_t>> exceptions;  ///< counter of exceptions that ended a piece of work
};

/// A tier below: its actor, and what outlives the actor: files, threads, connections.
class lower_tier_host {
 public:
  lower_tier_host() = default;
  lower_tier_host(const lower_tier_host&) = delete;
  lower_tier_host& operator=(const lower_tier_host&) = delete;
  virtual ~lower_tier_host() = default;

  [[nodiscard]] virtual lower_tier tier() const = 0;
  /// Functions to be called for every slab's memory. They may still be called when this object is gone.
  [[nodiscard]] virtual blocks::transfer_hooks hooks() = 0;
  /// Opens files or connections, after the tier above was told of this one. `checked`: waits until they are open, and
  /// fails if something is set up wrongly.
  virtual result<void> open(bool checked) = 0;
  /// Counts removals and clears of an instance that places outside this machine have not confirmed. `answer` is called
  /// on any thread, not at all after stop().
  virtual void count_unconfirmed(const instance_identity& /*identity*/,
                                 const std::function<void(remote::unconfirmed_removals)>& answer) {
    answer({});
  }
  /// Puts questions about the changes of what the tier holds on this machine. Empty: it holds nothing here.
  [[nodiscard]] virtual std::function<void(change_question_ptr)> changes() { return {}; }
  /// Ends what is under way. The actors have ended.
  virtual void stop() = 0;
};

/// A kind of tier below.
struct lower_tier_kind {
  std::string_view name;  ///< in configuration, status and log
  bool (*is_wanted)(const config::node_config&);
  blocks::edge_options (*edge_of)(const config::node_config&);  ///< how the tier above uses it
  std::unique_ptr<lower_tier_host> (*make)(const lower_tier_needs&);
  void (*add_messages)(caf::actor_system_config&);  ///< registers the types of its messages with CAF
  tier_report_ptr (*example)();                     ///< a report with every optional part, for the reference of metrics
  /// What lower_tier_host::open(true) would fail on, as far as that shows without a change that lasts. What another
  /// process has in use is a warning.
  std::vector<finding> (*check)(const config::node_config&);
};

}  // namespace cenote
