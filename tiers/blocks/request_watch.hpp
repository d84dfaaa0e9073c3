// An onlooker of a pool's requests, without a part in them, and its estimate of other capacities.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace cenote::blocks {

struct curve_point {
  std::uint64_t capacity = 0;  ///< blocks
  double miss_ratio = 0;       ///< of all blocks that were asked for
  double error = 0;            ///< standard error of the ratio
};

struct curve_status {
  std::uint64_t requests = 0;
  std::uint64_t capacity = 0;     ///< blocks that the pool has room for now
  std::uint64_t block_bytes = 0;  ///< that a block takes
  std::vector<curve_point> points;
};

/// Of one pool. Its calls come from the owner's thread of the store.
class request_watch {
 public:
  request_watch() = default;
  request_watch(const request_watch&) = delete;
  request_watch& operator=(const request_watch&) = delete;
  virtual ~request_watch() = default;

  /// A request: the identities of its blocks, head first, whether they are there or not.
  virtual void add(std::span<const std::uint64_t> chain) = 0;
  /// Requests, and points around `capacity` blocks.
  [[nodiscard]] virtual curve_status status(std::uint64_t capacity) const = 0;
};

/// Makes the watch of a pool that has room for at most `capacity` blocks.
using watch_maker = std::function<std::unique_ptr<request_watch>(std::uint64_t capacity)>;

/// Pools of a store that are watched, at most.
inline constexpr std::size_t most_watched = 16;

}  // namespace cenote::blocks
