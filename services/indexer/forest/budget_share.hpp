// A part of an index's memory that one use of it may not exceed.
#pragma once

#include <cstddef>
#include <new>

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

  /// Bytes that were asked for; the budget counts what the allocator made of them.
  [[nodiscard]] std::size_t used() const noexcept { return used_; }

 private:
  index_budget& whole_;
  std::size_t limit_;
  std::size_t used_ = 0;
};

/// Standard containers' memory out of a share; throws std::bad_alloc where it has no room.
template <class T>
struct share_allocator {
  using value_type = T;

  explicit share_allocator(budget_share& source) noexcept : share(&source) {}
  template <class U>
  explicit(false) share_allocator(const share_allocator<U>& other) noexcept : share(other.share) {}

  T* allocate(std::size_t count) {
    void* const memory = share->allocate(count * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) noexcept { share->release(memory, count * sizeof(T)); }

  bool operator==(const share_allocator& other) const noexcept { return share == other.share; }

  budget_share* share;
};

}  // namespace cenote::indexer
