// An array that grows and never moves.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "services/manager/index/line_arena.hpp"

namespace cenote::manager {

/// Chunks of 64, 64, 128, … 2^15, 2^15, … elements, value-initialized, which live as long as the arena. One thread
/// grows it; others may use an element whose number was published to them after grow() had made it.
template <class T>
class stable_array {
 public:
  explicit stable_array(line_arena& arena) noexcept : arena_(arena) {}
  stable_array(const stable_array&) = delete;
  stable_array& operator=(const stable_array&) = delete;
  stable_array(stable_array&&) = delete;
  stable_array& operator=(stable_array&&) = delete;
  ~stable_array() = default;

  [[nodiscard]] T& operator[](std::uint32_t number) const noexcept {
    const chunk_pointer* const directory = directory_.load(std::memory_order_acquire);
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

 private:
  static constexpr unsigned first_bits = 6;
  static constexpr unsigned full_bits = 15;
  static constexpr std::uint32_t first = 1U << first_bits;
  static constexpr std::uint32_t full = 1U << full_bits;
  static constexpr unsigned small_chunks = full_bits - first_bits + 1;
  using chunk_pointer = std::atomic<T*>;

  void grow() {
    if (chunks_ == places_.size()) widen();
    const std::size_t count = chunks_ < small_chunks ? std::max<std::size_t>(capacity_, first) : full;
    places_[chunks_].store(arena_.make<T>(count).data(), std::memory_order_release);
    ++chunks_;
    capacity_ += count;
  }
  /// A directory that is replaced stays for its readers; all of them together are as large as the last.
  void widen() {
    const std::span<chunk_pointer> wider = arena_.make<chunk_pointer>(std::max<std::size_t>(16, 2 * places_.size()));
    for (std::size_t i = 0; i < chunks_; ++i) {
      wider[i].store(places_[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    places_ = wider;
    directory_.store(wider.data(), std::memory_order_release);
  }

  std::atomic<const chunk_pointer*> directory_{nullptr};
  line_arena& arena_;
  std::span<chunk_pointer> places_{};
  std::size_t chunks_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace cenote::manager
