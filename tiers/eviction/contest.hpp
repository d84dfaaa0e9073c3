// Which of some candidates saves most, and whether its lead pays for moving to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace cenote::eviction {

/// Follows, request by request, by how much each candidate leads the one at work, the champion. A lead below nothing is
/// nothing (as in Page's CUSUM test): so a candidate that falls behind for an hour is not held back by that once it is
/// better. A candidate takes over when its lead passes its bar. As all see the same requests, the usual
/// size of the difference of two on one request (root of the mean square) says how much of a lead is chance.
/// Not thread-safe.
class contest {
 public:
  static constexpr std::size_t most = 8;

  /// What a candidate's lead must exceed: both together.
  struct bar {
    double price = 0;   ///< what moving to it costs
    double chance = 0;  ///< so many usual differences
  };

  /// `window`: requests until a difference counts half for what is usual.
  contest(std::size_t candidates, std::size_t champion, std::uint32_t window) noexcept;

  /// What each candidate saved of one request.
  void add(std::span<const std::uint32_t> saved) noexcept;
  /// The units of what is saved are twice as large from here on.
  void halve() noexcept;
  /// Of the candidates whose lead passes their bar, the one that does so by most.
  [[nodiscard]] std::optional<std::size_t> winner(std::span<const bar> bars) const noexcept;
  /// `candidate` is at work from here on.
  void take_over(std::size_t candidate) noexcept;

  [[nodiscard]] std::size_t champion() const noexcept { return champion_; }
  [[nodiscard]] double lead(std::size_t candidate) const noexcept { return leads_[candidate]; }
  /// What its lead must exceed.
  [[nodiscard]] double height(std::size_t candidate, const bar& of) const noexcept;
  /// What `candidate` saved in all.
  [[nodiscard]] double saved(std::size_t candidate) const noexcept { return sums_[candidate]; }

 private:
  /// Below so few requests nobody takes over, as what is usual is not known.
  static constexpr double fewest = 20;

  std::size_t candidates_;
  std::size_t champion_;
  double keeps_;  ///< what a request is worth to the averages after another one
  double requests_ = 0;
  std::array<double, most> leads_{};
  std::array<double, most> sums_{};
  std::array<std::array<double, most>, most> squares_{};  ///< of differences, for the first above the second
};

}  // namespace cenote::eviction
