// How a tier below the DRAM tier is made, and what stands around its actor. Which ones there are:
// actors/tier_stack.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "actors/data_path.hpp"
#include "actors/messages.hpp"
#include "memory/segment.hpp"
#include "tiers/blocks/provisioner.hpp"

namespace cenote {

/// What a worker has for the tiers below.
struct lower_tier_needs {
  caf::actor_system& system;
  data_path& path;    ///< outlives the tier, and delivers what its threads say
  config_ptr config;  ///< as the worker starts with it
  /// Memory that outlives the worker, by name: what the last one had, or new.
  std::function<result<memory::segment>(const std::string& name, std::uint64_t bytes)> keep_memory;
  std::shared_ptr<std::atomic<std::uint64_t>> exceptions;  ///< that ended a piece of work, to be counted
};

/// A tier below, with what outlives its actor: files, threads, connections.
class lower_tier_host {
 public:
  lower_tier_host() = default;
  lower_tier_host(const lower_tier_host&) = delete;
  lower_tier_host& operator=(const lower_tier_host&) = delete;
  virtual ~lower_tier_host() = default;

  [[nodiscard]] virtual lower_tier tier() const = 0;
  /// Told of the slabs' memory from now on; outlive this.
  [[nodiscard]] virtual blocks::transfer_hooks hooks() = 0;
  /// Begins, after the tier above has introduced itself. `checked`: waits, and says what was set up wrongly.
  virtual result<void> open(bool checked) = 0;
  /// The actors are gone: ends what they left under way.
  virtual void stop() = 0;
};

/// A kind of tier below.
struct lower_tier_kind {
  std::string_view name;  ///< as configuration, status and log call it
  bool (*is_wanted)(const config::node_config&);
  blocks::edge_options (*edge_of)(const config::node_config&);  ///< what the tier above does with it
  std::unique_ptr<lower_tier_host> (*make)(const lower_tier_needs&);
  void (*add_messages)(caf::actor_system_config&);  ///< the types of its own messages
  tier_report_ptr (*example)();                     ///< with all that it may ever say
};

}  // namespace cenote
