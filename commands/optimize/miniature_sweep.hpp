// The requests of a trace through miniature caches of several capacities, on all cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "commands/optimize/watched_work.hpp"
#include "core/error.hpp"
#include "simulation/optimize/miniature_caches.hpp"

namespace cenote::optimize {

struct sweep_setup {
  std::vector<const eviction::policy_info*> policies;
  std::vector<std::uint32_t> capacities;
  std::uint32_t part_blocks = 0;  ///< of miniature_caches
  std::uint64_t salt = 1;
  std::uint64_t blocks = 0;  ///< of all requests, for the progress
};

/// Collects requests to a quarter of a million blocks and serves those of each capacity on a core of its own. Not
/// thread-safe.
class miniature_sweep {
 public:
  /// Refused: caches that memory has no room for (limit_exceeded).
  [[nodiscard]] static result<void> check_room(const sweep_setup& setup);

  explicit miniature_sweep(const sweep_setup& setup);

  void add(std::span<const std::uint64_t> chain, std::uint64_t time_ms);
  /// Serves the requests that are left.
  void finish();
  /// Of the capacity at that place.
  [[nodiscard]] const simulation::miniature_caches& caches(std::size_t capacity) const { return *caches_[capacity]; }

 private:
  struct batch_request {
    std::size_t count = 0;  ///< blocks
    std::uint32_t tenths = 0;
  };

  void serve();

  watched_work work_;
  std::vector<std::unique_ptr<simulation::miniature_caches>> caches_;  ///< by capacity
  std::vector<std::uint64_t> keys_;
  std::vector<batch_request> requests_;
};

}  // namespace cenote::optimize
