// An array that grows and never moves: readers need no lock, and what they read is never freed under them.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "core/huge_vector.hpp"

namespace cenote::manager {

/// Memory of whole cache lines, in huge pages where it is large.
struct line_memory {
  static constexpr std::align_val_t alignment{64};

  [[nodiscard]] static void* allocate(std::size_t bytes) {
    return bytes < huge_pages::least ? ::operator new(bytes, alignment) : huge_pages::map(bytes);
  }
  static void release(void* memory, std::size_t bytes) noexcept {
    if (bytes < huge_pages::least) {
      ::operator delete(memory, alignment);
    } else {
      huge_pages::unmap(memory, bytes);
    }
  }
};

/// An array of `count` elements from line_memory.
template <class T>
struct line_deleter {
  std::size_t count = 0;

  void operator()(T* elements) const noexcept { line_memory::release(elements, count * sizeof(T)); }
};
template <class T>
using line_array = std::unique_ptr<T[], line_deleter<T>>;

/// Value-initialized. Throws std::bad_alloc.
template <class T>
[[nodiscard]] line_array<T> make_line_array(std::size_t count) {
  static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 64);
  T* const elements = static_cast<T*>(line_memory::allocate(count * sizeof(T)));
  std::uninitialized_value_construct_n(elements, count);
  return line_array<T>(elements, line_deleter<T>{count});
}

/// Chunks of 64, 64, 128, … 2^15, 2^15, … elements, value-initialized, which live as long as the array: small ones cost
/// little, large ones fill huge pages. One thread grows it; others may use an element whose number was published to
/// them after grow() had made it.
template <class T>
class stable_array {
 public:
  stable_array() = default;
  stable_array(const stable_array&) = delete;
  stable_array& operator=(const stable_array&) = delete;
  stable_array(stable_array&&) = delete;
  stable_array& operator=(stable_array&&) = delete;
  ~stable_array() = default;

  [[nodiscard]] T& operator[](std::uint32_t number) const noexcept {
    const std::atomic<T*>* const directory = directory_.load(std::memory_order_acquire);
    if (number >= full) [[likely]] {
      return directory[(number >> full_bits) + small_chunks - 1].load(std::memory_order_acquire)[number & (full - 1)];
    }
    const unsigned chunk = static_cast<unsigned>(std::bit_width(number >> first_bits));
    const std::uint32_t begin = chunk == 0 ? 0 : first << (chunk - 1);
    return directory[chunk].load(std::memory_order_acquire)[number - begin];
  }

  /// Makes room for numbers below `count`. Throws std::bad_alloc and keeps what there is.
  void reserve(std::size_t count) {
    while (capacity_ < count) grow();
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr unsigned first_bits = 6;
  static constexpr unsigned full_bits = 15;
  static constexpr std::uint32_t first = 1U << first_bits;
  static constexpr std::uint32_t full = 1U << full_bits;
  static constexpr unsigned small_chunks = full_bits - first_bits + 1;

  void grow() {
    if (chunks_.size() == places_) widen();
    const std::size_t count = chunks_.size() < small_chunks ? std::max<std::size_t>(capacity_, first) : full;
    chunks_.reserve(chunks_.size() + 1);
    line_array<T> chunk = make_line_array<T>(count);
    directories_.back()[chunks_.size()].store(chunk.get(), std::memory_order_release);
    chunks_.push_back(std::move(chunk));
    capacity_ += count;
    bytes_ += count * sizeof(T);
  }
  /// A directory that is replaced stays for its readers; all of them together are as large as the last.
  void widen() {
    const std::size_t places = std::max<std::size_t>(16, 2 * places_);
    auto wider = std::make_unique<std::atomic<T*>[]>(places);
    for (std::size_t i = 0; i < chunks_.size(); ++i) wider[i].store(chunks_[i].get(), std::memory_order_relaxed);
    directories_.push_back(std::move(wider));
    directory_.store(directories_.back().get(), std::memory_order_release);
    places_ = places;
    bytes_ += places * sizeof(std::atomic<T*>);
  }

  std::atomic<const std::atomic<T*>*> directory_{nullptr};
  std::vector<std::unique_ptr<std::atomic<T*>[]>> directories_{};
  std::vector<line_array<T>> chunks_{};
  std::size_t places_ = 0;
  std::size_t capacity_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace cenote::manager
