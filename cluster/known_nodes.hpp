// The other nodes as the agreement of ranks knows them: who is live, in which life, and since when one is not.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "transport/peer/frame.hpp"

namespace cenote::cluster {

using steady_time = std::chrono::steady_clock::time_point;

/// Another node that can be asked, as membership sees it.
struct live_node {
  std::string name{};
  peer::incarnation born{};
};

/// Nodes that are gone for a minute are forgotten. Not thread-safe.
class known_nodes {
 public:
  struct node {
    peer::incarnation born{};
    std::optional<steady_time> gone_since{};
  };

  /// All that are live now.
  void set_live(std::span<const live_node> live, steady_time now) {
    for (auto& [name, each] : nodes_) {
      if (!each.gone_since) each.gone_since = now;
    }
    for (const live_node& each : live) {
      auto& known = nodes_[each.name];
      known.born = each.born;
      known.gone_since.reset();
    }
    std::erase_if(nodes_, [&](const auto& each) {
      return each.second.gone_since && now - *each.second.gone_since > std::chrono::minutes(1);
    });
  }
  /// Null: it was never there, or is forgotten.
  [[nodiscard]] const node* find(std::string_view name) const {
    const auto found = nodes_.find(name);
    return found == nodes_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] bool is_live(std::string_view name) const {
    const node* const found = find(name);
    return found != nullptr && !found->gone_since;
  }
  [[nodiscard]] bool any_live() const {
    for (const auto& [name, each] : nodes_) {
      if (!each.gone_since) return true;
    }
    return false;
  }

 private:
  std::map<std::string, node, std::less<>> nodes_;
};

}  // namespace cenote::cluster
