// Memory for new blocks: those without holders first, then the least recently used tails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/indexer/forest/forest_parts.hpp"
#include "services/indexer/forest/span_editor.hpp"

namespace cenote::indexer {

/// Forgets blocks, from the ends of chains. The writer's alone.
class block_eviction {
 public:
  block_eviction(forest_parts& parts, span_editor& editor);

  /// The run has blocks without holders: their memory may be wanted.
  void offer(std::uint32_t run) noexcept;
  /// Forgets blocks until an extent of `wanted` blocks may be had, sparing one run; false if none may be had.
  bool make_room(std::uint32_t request, std::uint32_t spared) noexcept;
  /// Forgets runs until `bytes` may be allocated; false if they may not.
  bool make_bytes(std::size_t bytes, std::uint32_t spared) noexcept;
  /// Forgets a little ahead of need once all memory is in use, since readers may keep what was forgotten for a while.
  void keep_ahead(std::uint32_t spared) noexcept;

  /// Forgets a run without children.
  void forget(std::uint32_t run) noexcept { (void)forget_run(run); }

  /// Blocks that were forgotten, of these with holders.
  [[nodiscard]] std::uint64_t evicted() const noexcept { return evicted_; }
  [[nodiscard]] std::uint64_t evicted_held() const noexcept { return evicted_held_; }

 private:
  struct eviction_candidate {
    std::uint32_t last_use = 0;
    std::uint32_t run = no_run;
    std::uint32_t birth = 0;
  };
  static constexpr std::uint32_t window = 65'536;  ///< runs that are compared for the oldest
  static constexpr std::size_t most_candidates = 1024;

  [[nodiscard]] std::uint32_t forget_one(std::uint32_t spared) noexcept;
  [[nodiscard]] std::uint32_t forget_offered(std::uint32_t run) noexcept;
  [[nodiscard]] std::uint32_t forget_run(std::uint32_t run) noexcept;
  void shorten(std::uint32_t run, std::uint32_t length) noexcept;
  void forget_names(std::uint32_t run, std::uint32_t first) noexcept;
  void find_candidates(std::uint32_t spared) noexcept;
  [[nodiscard]] static bool is_later(const eviction_candidate& one, const eviction_candidate& other) noexcept {
    return one.last_use > other.last_use;
  }

  forest_parts& parts_;
  span_editor& editor_;
  std::vector<std::uint32_t, budget_allocator<std::uint32_t>> offered_;
  std::size_t first_offered_ = 0;
  std::array<eviction_candidate, most_candidates> candidates_{};  ///< the oldest last
  std::size_t candidate_count_ = 0;
  std::uint32_t hand_ = 0;
  bool is_full_ = false;
  std::uint64_t evicted_ = 0;
  std::uint64_t evicted_held_ = 0;
};

}  // namespace cenote::indexer
