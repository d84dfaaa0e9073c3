// What a replay asks the node while it runs: use of the tiers, movement between them, processor time.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "commands/replay/result.hpp"
#include "core/error.hpp"

namespace cenote::replay {

/// Follows one node by its status. Its counters begin at 0 with each worker; what an earlier one counted is kept.
/// Not thread-safe.
class node_watch {
 public:
  /// The state from which on it counts. Errors: as ask().
  [[nodiscard]] static result<node_watch> begin(std::string socket);

  /// Asks again, with little patience: a worker on its way is no failure. False: no answer.
  bool look();

  [[nodiscard]] const node_movement& moved() const noexcept { return moved_; }
  [[nodiscard]] const nlohmann::json& status() const noexcept { return status_; }
  [[nodiscard]] disk_estimate disk() const;
  [[nodiscard]] std::uint64_t restarts() const noexcept;
  /// Processor time of keeper and workers since begin(); nothing when their /proc cannot be read, or is that of
  /// another PID namespace than the node's.
  [[nodiscard]] std::optional<double> cpu_seconds() const;
  /// The socket refuses connections: keeper and all are gone.
  [[nodiscard]] bool gone() const noexcept { return gone_; }

 private:
  explicit node_watch(std::string socket) : socket_(std::move(socket)) {}
  void count();

  std::string socket_;
  nlohmann::json status_;
  std::uint64_t first_restarts_ = 0;
  std::uint64_t worker_ = 0;  ///< its pid
  node_movement before_;      ///< the worker's counters when it was last seen
  node_movement moved_;
  std::optional<double> cpu_before_;
  bool gone_ = false;
};

/// User and system time of a process in seconds, with that of children it has waited for; nothing if it is not there.
[[nodiscard]] std::optional<double> process_cpu_seconds(std::uint64_t pid);

}  // namespace cenote::replay
