// Which of some candidates saves most, and whether that is more than chance.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace cenote::eviction {

/// Adds up what each candidate saves, request by request, and forgets: at every `window` requests all sums are halved.
/// As all candidates see the same requests, the difference of two of them is judged by its own spread (a paired test);
/// one more difference as large as the largest is added to that, so that few requests prove nothing.
/// Not thread-safe.
class contest {
 public:
  static constexpr std::size_t most = 8;

  /// What a candidate must reach to win.
  struct bar {
    double price = 0;               ///< its lead must be larger, and counts less by this
    double certainty = 0;           ///< its lead must be larger than so many standard deviations of chance
    double certainty_of_large = 0;  ///< so many are enough for a large lead
  };

  contest(std::size_t candidates, std::uint32_t window, double large_share) noexcept
      : candidates_(candidates), window_(window), large_share_(large_share) {}

  /// What each candidate saved of one request.
  void add(std::span<const std::uint32_t> saved) noexcept;
  /// What was added so far counts half.
  void age() noexcept;
  /// Of the candidates whose lead over `champion` takes their bar, the one with the largest, prices taken off.
  [[nodiscard]] std::optional<std::size_t> winner_over(std::size_t champion, std::span<const bar> bars) const noexcept;
  /// The lead of `one` over `other` in standard deviations of chance; 0 for none.
  [[nodiscard]] double certainty(std::size_t one, std::size_t other) const noexcept;
  /// What `candidate` saved, of late.
  [[nodiscard]] double saved(std::size_t candidate) const noexcept { return sums_[candidate]; }

 private:
  std::size_t candidates_;
  std::uint32_t window_;
  double large_share_;  ///< of what the champion saved
  std::uint32_t requests_ = 0;
  std::array<double, most> sums_{};
  // Of differences, for the first above the second.
  std::array<std::array<double, most>, most> squares_{};
  std::array<std::array<double, most>, most> largest_square_{};
};

}  // namespace cenote::eviction
