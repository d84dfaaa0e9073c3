// The nodes that a replay runs against: its own, one or several of a cluster, or somebody else's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands/private_node.hpp"
#include "commands/replay/run.hpp"
#include "commands/replay/watch.hpp"
#include "core/error.hpp"
#include "simulation/trace.hpp"

namespace cenote::replay {

/// Not thread-safe. Destroying it stops the replay's own nodes.
class replay_nodes {
 public:
  /// Starts or finds them, and waits until they serve with all their tiers, and each can ask all others for blocks. The
  /// process must have no other thread.
  [[nodiscard]] static result<replay_nodes> open(const simulation::trace& trace, const run_options& options);

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(nodes_.size()); }
  [[nodiscard]] bool are_own() const noexcept { return nodes_.front().own != nullptr; }
  [[nodiscard]] const std::string& socket(std::uint32_t number) const noexcept { return nodes_[number].socket; }
  [[nodiscard]] const std::string& name(std::uint32_t number) const noexcept { return nodes_[number].name; }
  [[nodiscard]] const node_watch& watch(std::uint32_t number) const noexcept { return *nodes_[number].watch; }

  /// Asks all for their status. False: one that should did not answer.
  bool look();
  /// Asks one. False: no answer.
  bool look_at(std::uint32_t number);
  /// Why the replay cannot go on, if one is gone that was not killed by it, or does not come back. `now`: seconds.
  [[nodiscard]] std::optional<std::string> loss(double now);

  void kill(std::uint32_t number, double now);
  /// Starts those again that have been dead for long enough.
  [[nodiscard]] result<void> revive(double now);
  [[nodiscard]] bool is_down(std::uint32_t number) const noexcept { return nodes_[number].killed_at.has_value(); }

  // Of all of them together.
  [[nodiscard]] node_movement moved() const;
  [[nodiscard]] std::uint64_t restarts() const;
  /// Nothing when a /proc cannot be read, or a node was killed.
  [[nodiscard]] std::optional<double> cpu_seconds() const;

 private:
  struct node {
    std::string name{};
    std::unique_ptr<private_node> own{};
    std::string socket{};
    std::optional<node_watch> watch{};
    std::optional<double> gone_since{};
    std::optional<double> killed_at{};  ///< until it answers again
    bool is_started_again = false;
    bool was_killed = false;
  };

  [[nodiscard]] result<void> start(const simulation::trace& trace, const run_options& options);
  [[nodiscard]] result<void> wait_until_open() const;
  [[nodiscard]] result<void> begin_watching();

  std::vector<node> nodes_;
};

}  // namespace cenote::replay
