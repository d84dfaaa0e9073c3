// The bytes of an index: every allocation is counted as large as the allocator made it, and none passes the bound.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>

namespace cenote::indexer {

/// Counts bytes against a hard bound. One thread allocates and releases; any thread may read used().
class index_budget {
 public:
  explicit index_budget(std::size_t limit) noexcept : limit_(limit) {}
  index_budget(const index_budget&) = delete;
  index_budget& operator=(const index_budget&) = delete;
  index_budget(index_budget&&) = delete;
  index_budget& operator=(index_budget&&) = delete;
  ~index_budget() = default;

  /// `bytes` of memory, in huge pages where that is worth it; null if the bound or the machine has no room for it and
  /// for `reserve` bytes more.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t reserve = 0) noexcept;
  /// Gives back what allocate(bytes) gave.
  void release(void* memory, std::size_t bytes) noexcept;

  [[nodiscard]] std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }

 private:
  void count(std::size_t bytes) noexcept { used_.store(used() + bytes, std::memory_order_relaxed); }

  std::size_t limit_;
  std::atomic<std::size_t> used_{0};
};

/// Standard containers' memory out of a budget, or of a share of one; throws std::bad_alloc where there is no room.
template <class T, class Budget>
struct counted_allocator {
  using value_type = T;

  explicit counted_allocator(Budget& source) noexcept : budget(&source) {}
  template <class U>
  explicit(false) counted_allocator(const counted_allocator<U, Budget>& other) noexcept : budget(other.budget) {}

  T* allocate(std::size_t count) {
    void* const memory = budget->allocate(count * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t count) noexcept { budget->release(memory, count * sizeof(T)); }

  bool operator==(const counted_allocator& other) const noexcept { return budget == other.budget; }

  Budget* budget;
};

template <class T>
using budget_allocator = counted_allocator<T, index_budget>;

}  // namespace cenote::indexer
