// An array that grows without moving: chunks of equal size behind a directory of fixed length.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

#include "services/indexer/forest/index_budget.hpp"

namespace cenote::indexer {

/// Elements 0 to capacity(), in chunks of 2^bits that stay where they are until the array is destroyed.
/// One thread grows it; others may use an element whose number was published to them after grow() had made it.
/// Plain numbers begin uninitialized, all other elements value-initialized.
template <class T>
class chunked_array {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  /// At most `limit` elements, rounded up to chunks. Throws std::bad_alloc if the budget has no room for the directory.
  chunked_array(index_budget& budget, std::size_t limit, unsigned bits)
      : budget_(budget), bits_(bits), mask_((std::uint32_t{1} << bits) - 1), limit_((limit + mask_) >> bits) {
    void* const memory = budget.allocate(limit_ * sizeof(chunk_pointer));
    if (memory == nullptr) throw std::bad_alloc();
    directory_ = static_cast<chunk_pointer*>(memory);
    std::uninitialized_value_construct_n(directory_, limit_);
  }
  chunked_array(const chunked_array&) = delete;
  chunked_array& operator=(const chunked_array&) = delete;
  chunked_array(chunked_array&&) = delete;
  chunked_array& operator=(chunked_array&&) = delete;
  ~chunked_array() {
    while (count_ > 0) shrink();
    budget_.release(directory_, limit_ * sizeof(chunk_pointer));
  }

  /// Adds a chunk; false if the budget does not have it and `reserve` bytes, or the directory is full.
  [[nodiscard]] bool grow(std::size_t reserve = 0) noexcept {
    if (count_ == limit_) return false;
    void* const memory = budget_.allocate(chunk_bytes(), reserve);
    if (memory == nullptr) return false;
    T* const elements = static_cast<T*>(memory);
    if constexpr (!std::is_arithmetic_v<T>) std::uninitialized_value_construct_n(elements, chunk_size());
    directory_[count_++].store(elements, std::memory_order_release);
    return true;
  }
  /// Takes the last chunk back, whose elements no other thread may know.
  void shrink() noexcept { budget_.release(directory_[--count_].load(std::memory_order_relaxed), chunk_bytes()); }

  [[nodiscard]] T& operator[](std::uint32_t number) const noexcept {
    return directory_[number >> bits_].load(std::memory_order_acquire)[number & mask_];
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return count_ << bits_; }
  [[nodiscard]] std::size_t chunk_size() const noexcept { return std::size_t{mask_} + 1; }

 private:
  using chunk_pointer = std::atomic<T*>;

  [[nodiscard]] std::size_t chunk_bytes() const noexcept { return chunk_size() * sizeof(T); }

  index_budget& budget_;
  unsigned bits_;
  std::uint32_t mask_;
  std::size_t limit_;
  std::size_t count_ = 0;
  chunk_pointer* directory_ = nullptr;
};

}  // namespace cenote::indexer
