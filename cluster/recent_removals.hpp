// Keys whose removal is under way, or ended a moment ago.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <unordered_map>

#include "cluster/pool_key.hpp"
#include "core/instance_identity.hpp"

namespace cenote::cluster {

/// A removal reaches the nodes of a pool one after the other. Until the last one has it, a block must not move from a
/// node that still has it to one that is through: neither half of the pool serves or fetches a key that stands here.
/// A key costs misses while it stands here and nothing else. Not thread-safe; the time is an argument.
class recent_removals {
 public:
  using steady_time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t most_keys = std::size_t{1} << 18U;  ///< of one instance all count from there on

  /// Keys stand here until `end`; a later call for the same key replaces its end.
  void note(instance_identity identity, std::span<const block_key> keys, steady_time end, steady_time now);
  [[nodiscard]] bool has(instance_identity identity, const block_key& key, steady_time now) const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return ends_.size(); }

 private:
  void drop_ended(steady_time now);

  std::unordered_map<pool_key, steady_time, pool_key_hash> ends_;
  std::deque<pool_key> order_;                      ///< in which they were noted first
  std::map<instance_identity, steady_time> whole_;  ///< instances of which all keys count
};

}  // namespace cenote::cluster
