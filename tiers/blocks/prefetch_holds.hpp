// Blocks that are kept from eviction for whoever prefetched them.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tiers/blocks/types.hpp"

namespace cenote::blocks {

/// Which prefetch jobs hold which blocks, by their records. A block may be held by several jobs, and is evictable again
/// when the last one ends. Not kept across a restart.
class prefetch_holds {
 public:
  /// From now on the block, of `stride` bytes, is not evicted until the job ends. False, and nothing is held: all jobs
  /// together would hold more than `most` bytes.
  bool hold(std::uint64_t job, session_number session, std::uint32_t record, std::uint64_t stride, std::uint64_t most);
  /// Ends all holds of the job. Returns the blocks that no job holds now.
  std::vector<std::uint32_t> let_go(std::uint64_t job);
  /// … nor do all jobs of the session.
  std::vector<std::uint32_t> let_go_all(session_number session);
  /// The block is free: whatever fills it next is another one.
  void forget_holds(std::uint32_t record) noexcept;
  [[nodiscard]] bool is_held(const std::uint32_t record) const noexcept {
    return !held_for_.empty() && held_for_.contains(record);
  }
  /// Of all blocks that are held.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  struct job_holds {
    session_number by = 0;
    std::vector<std::uint32_t> records;
  };
  struct holders {
    std::uint64_t stride = 0;
    std::vector<std::uint64_t> jobs;
  };

  std::unordered_map<std::uint64_t, job_holds> job_holds_;  ///< by job
  std::unordered_map<std::uint32_t, holders> held_for_;     ///< by record
  std::uint64_t bytes_ = 0;
};

}  // namespace cenote::blocks
