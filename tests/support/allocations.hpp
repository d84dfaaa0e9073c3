// Counts what a test program allocates, and has allocations fail: its `operator new` is the one here.
#pragma once

#include <cstdint>

namespace cenote::test {

/// Allocations by `operator new`, of one thread.
struct allocation_counts {
  std::uint64_t calls = 0;
  std::int64_t live_bytes =
      0;  ///< allocated and not freed, as large as malloc made them; freed elsewhere they count on
};

/// Of the calling thread since it began.
[[nodiscard]] allocation_counts allocations() noexcept;

/// Runs `work` and counts the allocations of the calling thread meanwhile.
template <class Work>
[[nodiscard]] allocation_counts allocations_during(Work&& work) {
  const allocation_counts before = allocations();
  work();
  const allocation_counts after = allocations();
  return {after.calls - before.calls, after.live_bytes - before.live_bytes};
}

/// Asked before each allocation of any thread: true has it fail. Null: none fails.
using allocation_fault = bool (*)() noexcept;
void set_allocation_fault(allocation_fault fault) noexcept;

}  // namespace cenote::test
