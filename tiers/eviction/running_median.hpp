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
  explicit running_median(std::uint32_t start) noexcept { add(start); }

  void add(std::uint32_t number) noexcept {
    const auto begin = sorted_.begin();
    auto end = begin + static_cast<std::ptrdiff_t>(count_);
    if (count_ == window) {
      const auto oldest = std::lower_bound(begin, end, latest_[next_]);
      std::copy(oldest + 1, end, oldest);
      --end;
    } else {
      ++count_;
    }
    const auto place = std::upper_bound(begin, end, number);
    std::copy_backward(place, end, end + 1);
    *place = number;
    latest_[next_] = number;
    next_ = (next_ + 1) % window;
  }
  [[nodiscard]] std::uint32_t value() const noexcept { return sorted_[count_ / 2]; }

 private:
  static constexpr std::size_t window = 64;

  std::array<std::uint32_t, window> latest_{};  ///< a ring
  std::array<std::uint32_t, window> sorted_{};  ///< the same
  std::size_t next_ = 0;                        ///< of the ring
  std::size_t count_ = 0;
};

}  // namespace cenote::eviction
