// A part of an index's memory that one use of it may not exceed.
#pragma once

#include <cstddef>

#include "services/indexer/forest/index_budget.hpp"

namespace cenote::indexer {

/// Bytes out of a budget, up to a bound of their own. The thread of the budget's allocations alone.
class budget_share {
 public:
  budget_share(index_budget& whole, std::size_t limit) noexcept : whole_(whole), limit_(limit) {}
  budget_share(const budget_share&) = delete;
  budget_share& operator=(const budget_share&) = delete;
  budget_share(budget_share&&) = delete;
  budget_share& operator=(budget_share&&) = delete;
  ~budget_share() = default;

  /// Null if the share or the budget has no room.
  [[nodiscard]] void* allocate(std::size_t bytes) noexcept {
    if (bytes > limit_ || used_ > limit_ - bytes) return nullptr;
    void* const memory = whole_.allocate(bytes);
    if (memory != nullptr) used_ += bytes;
    return memory;
  }
  void release(void* memory, std::size_t bytes) noexcept {
    if (memory != nullptr) used_ -= bytes;
    whole_.release(memory, bytes);
  }

 private:
  index_budget& whole_;
  std::size_t limit_;
  std::size_t used_ = 0;  ///< bytes that were asked for; the budget counts what the allocator made of them
};

template <class T>
using share_allocator = counted_allocator<T, budget_share>;

}  // namespace cenote::indexer
