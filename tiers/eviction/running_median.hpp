// The median of the latest numbers of a stream.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace cenote::eviction {

/// Of the latest 64 numbers, or of fewer while there are fewer; each step is O(1). Not thread-safe.
class running_median {
 public:
  explicit running_median(std::uint32_t start) noexcept : median_(start) { add(start); }

  void add(std::uint32_t number) noexcept {
    latest_[next_++ % latest_.size()] = number;
    const std::size_t count = std::min(next_, latest_.size());
    std::array<std::uint32_t, window> sorted = latest_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(count));
    median_ = *middle;
  }
  [[nodiscard]] std::uint32_t value() const noexcept { return median_; }

 private:
  static constexpr std::size_t window = 64;

  std::array<std::uint32_t, window> latest_{};
  std::size_t next_ = 0;
  std::uint32_t median_;
};

}  // namespace cenote::eviction
