// Prefetches under way: which blocks of which chains are on their way up, and who waits for them.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_set>
#include <vector>

#include "tiers/dram/store.hpp"

namespace cenote::dram {

struct prefetch_answer {
  session_number session = 0;
  memory::completion completion;
};

/// Brings chains up in prefix order, oldest wish first, as far as the read window and the memory go. Owned by the
/// thread of the store.
class prefetcher {
 public:
  explicit prefetcher(coarse_time patience) noexcept : patience_(patience) {}

  void add(prefetch_wish wish, coarse_time now);
  /// Loads that ended; the store has heard of them before.
  void settle(std::span<const transfer_outcome> ended);
  /// Starts what there is room for, and returns the answers of the wishes that are done or late: the length of the
  /// prefix that is present now.
  [[nodiscard]] std::vector<prefetch_answer> advance(store& in, coarse_time now);
  void forget(session_number session);
  [[nodiscard]] bool idle() const noexcept { return jobs_.empty(); }

 private:
  struct job {
    prefetch_wish wish;
    coarse_time deadline = 0;
    std::size_t next = 0;                       ///< first key that was not looked at
    std::size_t end = 0;                        ///< where the chain ends: no copy below, or no room
    std::unordered_set<std::uint64_t> awaited;  ///< tokens
  };

  /// False: nothing more can start now.
  static bool start_loads(job& of, store& in, coarse_time now);
  [[nodiscard]] static prefetch_answer answer(const job& done, const store& in);

  coarse_time patience_;
  std::deque<job> jobs_;
};

}  // namespace cenote::dram
