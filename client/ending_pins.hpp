// Which pins end by themselves when an event comes: nobody else may end them, or their slots would be others' by then.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cenote::client {

/// A mark for each of a session's pin slots. Thread-safe; without a lock, since every release looks here.
class ending_pins {
 public:
  explicit ending_pins(std::uint32_t slots) : words_((slots + word_bits - 1) / word_bits) {}

  /// No slot is marked: one look in place of one a slot.
  [[nodiscard]] bool empty() const noexcept { return mark_count_.load(std::memory_order_acquire) == 0; }

  [[nodiscard]] bool has(std::uint32_t slot) const noexcept {
    return (words_[slot / word_bits].load(std::memory_order_acquire) & bit(slot)) != 0;
  }

  /// Marks all slots, or none; returns how many were free to be marked: the one behind them is marked already, also
  /// when it stands there twice.
  [[nodiscard]] std::size_t mark(std::span<const std::uint32_t> slots) noexcept {
    mark_count_.fetch_add(slots.size(), std::memory_order_acq_rel);
    const auto taken = std::ranges::find_if(slots, [&](std::uint32_t slot) {
      return (words_[slot / word_bits].fetch_or(bit(slot), std::memory_order_acq_rel) & bit(slot)) != 0;
    });
    const auto count = static_cast<std::size_t>(taken - slots.begin());
    if (count != slots.size()) {
      mark_count_.fetch_sub(slots.size() - count, std::memory_order_release);
      unmark(slots.first(count));
    }
    return count;
  }

  void unmark(std::span<const std::uint32_t> slots) noexcept {
    for (const std::uint32_t slot : slots) {
      words_[slot / word_bits].fetch_and(~bit(slot), std::memory_order_release);
    }
    mark_count_.fetch_sub(slots.size(), std::memory_order_release);
  }

 private:
  static constexpr std::uint32_t word_bits = 64;
  static constexpr std::uint64_t bit(std::uint32_t slot) noexcept { return std::uint64_t{1} << (slot % word_bits); }

  std::atomic<std::uint64_t> mark_count_{
      0};  ///< slots, or more for a moment: counted before their marks, until after them
  std::vector<std::atomic<std::uint64_t>> words_;
};

}  // namespace cenote::client
