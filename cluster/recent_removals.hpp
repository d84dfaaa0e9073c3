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
/// node that still has it to one that is through: neither half of the pool serves, takes or fetches a key that stands
/// here.
/// A key costs misses while it stands here and nothing else. Not thread-safe; the time is an argument.
class recent_removals {
 public:
  using steady_time = std::chrono::steady_clock::time_point;
  /// From there on all keys of the instance that has most here count, and stand here no more: so one instance costs
  /// itself misses, and no other one.
  static constexpr std::size_t most_keys = std::size_t{1} << 18U;

  /// One more removal of these keys is under way: they stand here until each of them has ended, and its lag after.
  void begin(instance_identity identity, std::span<const block_key> keys, steady_time now);
  /// One of them has ended, of the same keys; they stand here until `lag_end` still.
  void end(instance_identity identity, std::span<const block_key> keys, steady_time lag_end, steady_time now);
  [[nodiscard]] bool has(instance_identity identity, const block_key& key, steady_time now) const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return ends_.size(); }

 private:
  struct removed {
    std::size_t open = 0;   ///< removals under way
    steady_time lag_end{};  ///< of those that ended

    [[nodiscard]] bool is_over(steady_time now) const noexcept { return open == 0 && lag_end <= now; }
  };
  void drop_ended(steady_time now);
  void drop(const pool_key& key);
  void make_room();

  std::unordered_map<pool_key, removed, pool_key_hash> ends_;
  std::map<instance_identity, std::size_t> sizes_;  ///< of those, by instance
  std::deque<pool_key> order_;                      ///< in which they came first
  std::map<instance_identity, removed> whole_;      ///< instances of which all keys count
};

}  // namespace cenote::cluster
