// The rate at which a session uses blocks, by which slabs are made ready ahead of them.
#pragma once

#include <atomic>
#include <cstdint>

namespace cenote::client {

/// Counts in windows of time. Thread-safe; counts that come at the edge of a window may be lost.
class use_rate {
 public:
  static constexpr std::uint64_t window = 256;       ///< milliseconds
  static constexpr std::uint64_t span = 2 * window;  ///< of recent(), at most

  void add(std::uint64_t blocks, std::uint64_t now) noexcept {
    const std::uint64_t number = now / window;
    std::uint64_t before = present_.load(std::memory_order_relaxed);
    if (before >> count_bits != number) {
      if (present_.compare_exchange_strong(before, number << count_bits | blocks, std::memory_order_relaxed)) {
        past_.store(before, std::memory_order_relaxed);
        return;
      }
    }
    present_.fetch_add(blocks, std::memory_order_relaxed);
  }

  /// Blocks of this window and the one before.
  [[nodiscard]] std::uint64_t recent(std::uint64_t now) const noexcept {
    const std::uint64_t number = now / window;
    std::uint64_t blocks = 0;
    for (const std::uint64_t word : {past_.load(std::memory_order_relaxed), present_.load(std::memory_order_relaxed)}) {
      if ((word >> count_bits) + 1 >= number) blocks += word & ((std::uint64_t{1} << count_bits) - 1);
    }
    return blocks;
  }

 private:
  static constexpr unsigned count_bits = 28;

  std::atomic<std::uint64_t> past_{0}, present_{0};  ///< window's number (36 bits) | blocks
};

}  // namespace cenote::client
