// Times of the uses of a pool's blocks, by the running numbers of the uses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cenote::eviction {

/// Maps the running number of a use to its time, so that a block need not keep both. Exact for recent uses; the older a
/// use is the coarser, by at most 1/64 of its age, so that the size grows with the logarithm of the oldest age: some
/// hundred entries an age of a day. Not thread-safe.
class use_times {
 public:
  /// Use number `turn` is at `time`. Neither ever goes back.
  void note(std::uint64_t turn, std::uint32_t time) {
    if (!starts_.empty() && starts_.back().time == time) return;
    if (starts_.size() >= thin_at_) thin(time);
    starts_.push_back({turn, time});
  }
  /// The time of a use; 0 when none was noted before it.
  [[nodiscard]] std::uint32_t time_of(std::uint64_t turn) const noexcept {
    const auto next = std::ranges::upper_bound(starts_, turn, {}, &first_use::turn);
    return next == starts_.begin() ? 0 : std::prev(next)->time;
  }
  [[nodiscard]] std::size_t size() const noexcept { return starts_.size(); }

 private:
  static constexpr std::size_t fewest = 256;
  static constexpr std::uint32_t precision = 64;  ///< ages are right to one part of so many

  /// The first use of a tenth of a second, or of several that were merged.
  struct first_use {
    std::uint64_t turn = 0;
    std::uint32_t time = 0;
  };

  /// Merges each entry into the one before, where the two then span little of their age.
  void thin(std::uint32_t now) {
    std::size_t kept = 1;
    for (std::size_t each = 1; each < starts_.size(); ++each) {
      const bool is_last = each + 1 == starts_.size();
      const std::uint32_t end = is_last ? now : starts_[each + 1].time;
      if (!is_last && end - starts_[kept - 1].time <= (now - end) / precision) continue;
      starts_[kept++] = starts_[each];
    }
    starts_.resize(kept);
    thin_at_ = std::max(fewest, 2 * kept);
  }

  std::vector<first_use> starts_;  ///< ascending
  std::size_t thin_at_ = fewest;
};

}  // namespace cenote::eviction
