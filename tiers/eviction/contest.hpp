// Which of some candidates saves most, and whether that is more than chance.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace cenote::eviction {

/// Adds up what each candidate saves, request by request, and forgets: at every `window` requests all sums are halved.
/// As all candidates see the same requests, the difference of two of them is judged by its own spread (a paired test).
/// Not thread-safe.
class contest {
 public:
  static constexpr std::size_t most = 8;

  /// What a candidate must reach to win.
  struct bar {
    double price = 0;      ///< its lead must be larger, and counts less by this
    double certainty = 0;  ///< its lead must be larger than so many standard deviations of chance
  };

  contest(std::size_t candidates, std::uint32_t window) noexcept : candidates_(candidates), window_(window) {}

  /// What each candidate saved of one request.
  void add(std::span<const std::uint32_t> saved) noexcept;
  /// Of the candidates whose lead over `champion` takes their bar, the one with the largest, prices taken off.
  [[nodiscard]] std::optional<std::size_t> winner_over(std::size_t champion, std::span<const bar> bars) const noexcept;
  /// The lead of `one` over `other` in standard deviations of chance; 0 for none.
  [[nodiscard]] double certainty(std::size_t one, std::size_t other) const noexcept;
  /// What `candidate` saved, of late.
  [[nodiscard]] double saved(std::size_t candidate) const noexcept { return sums_[candidate]; }

 private:
  void age() noexcept;

  std::size_t candidates_;
  std::uint32_t window_;
  std::uint32_t requests_ = 0;
  std::array<double, most> sums_{};
  std::array<std::array<double, most>, most> squares_{};  ///< of differences, for the first above the second
};

}  // namespace cenote::eviction
