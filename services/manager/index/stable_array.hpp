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

/// Chunks of value-initialized elements, which live as long as the arena: eight of 64, eight of 128, … and then all of
/// 2^15, so that at most an eighth is unused, and many are whole huge pages. One thread grows it; others may use an
/// element whose number was published to them after reserve() had made it.
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
    const chunk_word* const directory = directory_.load(std::memory_order_acquire);
    const chunk_place target = place_of(number);
    return directory[target.chunk].load(std::memory_order_acquire)[target.offset];
  }

  /// Makes room for numbers below `count`. Throws std::bad_alloc and keeps what there is.
  void reserve(std::size_t count) {
    while (capacity_ < count) grow();
  }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

 private:
  static constexpr unsigned first_bits = 6;  ///< of the size of the first chunks
  static constexpr unsigned full_bits = 15;  ///< of the size of the last ones
  static constexpr std::uint64_t run = 8;    ///< chunks of one size
  static constexpr std::uint64_t shift = run << first_bits;

  struct chunk_place {
    std::size_t chunk = 0;
    std::size_t offset = 0;
  };
  /// The length of a number that is moved by the size of the first run gives the size of its chunk.
  [[nodiscard]] static chunk_place place_of(std::uint32_t number) noexcept {
    const std::uint64_t moved = number + shift;
    const unsigned bits = chunk_bits(moved);
    return {.chunk = (bits - first_bits) * run + (moved >> bits) - run, .offset = moved & ((1U << bits) - 1)};
  }
  [[nodiscard]] static unsigned chunk_bits(std::uint64_t moved) noexcept {
    if (moved >= run << full_bits) [[likely]]
      return full_bits;
    return static_cast<unsigned>(std::bit_width(moved / run)) - 1;
  }

  using chunk_word = std::atomic<T*>;

  void grow() {
    if (chunks_ == places_.size()) widen();
    const std::size_t count = std::size_t{1} << chunk_bits(capacity_ + shift);
    places_[chunks_].store(arena_.make<T>(count).data(), std::memory_order_release);
    ++chunks_;
    capacity_ += count;
  }
  /// A directory that is replaced stays for its readers; all of them together are as large as the last.
  void widen() {
    const std::span<chunk_word> wider = arena_.make<chunk_word>(std::max<std::size_t>(16, 2 * places_.size()));
    for (std::size_t i = 0; i < chunks_; ++i) {
      wider[i].store(places_[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    places_ = wider;
    directory_.store(wider.data(), std::memory_order_release);
  }

  std::atomic<const chunk_word*> directory_{nullptr};
  line_arena& arena_;
  std::span<chunk_word> places_{};
  std::size_t chunks_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace cenote::manager
