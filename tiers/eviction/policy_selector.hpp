// Which of some candidates saves most of late, and whether its lead is more than chance.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace cenote::eviction {

/// Adds up what each candidate saved of each request, older requests counting less. One takes over from the active one
/// when its lead is larger than chance explains: in units of the root of the sum of the squared differences of the
/// two, which is what a lead of equals comes to on average. What the active one saved is a
/// quarter what the pool really got and else what its shadow cache promised: one that saves more than promised is left
/// later, one that saves less sooner, by half a unit at most. Not thread-safe.
class policy_selector {
 public:
  static constexpr std::size_t most = 8;

  /// `half_life`: requests until one counts half.
  policy_selector(std::size_t candidates, std::size_t active, std::uint32_t half_life) noexcept;

  /// What each candidate saved of one request, and what the pool itself did, which the active one orders.
  void add(std::span<const std::uint32_t> saved, std::uint32_t got) noexcept;
  /// Of the candidates whose lead exceeds their threshold, the one that does so by most.
  [[nodiscard]] std::optional<std::size_t> winner(std::span<const double> thresholds) const noexcept;
  /// `candidate` is at work from here on.
  void take_over(std::size_t candidate) noexcept;

  [[nodiscard]] std::size_t active() const noexcept { return active_; }
  /// Of a candidate over the active one, in units of chance; negative when it is behind.
  [[nodiscard]] double lead(std::size_t candidate) const noexcept;
  /// What `candidate` saved in all.
  [[nodiscard]] double saved(std::size_t candidate) const noexcept { return totals_[candidate]; }

 private:
  /// Below so few requests nobody takes over, as what is usual is not known.
  static constexpr std::uint32_t fewest = 20;

  std::size_t candidates_;
  std::size_t active_;
  double keeps_;  ///< what a request is worth after another one
  std::uint32_t requests_ = 0;
  double got_ = 0;  ///< by the pool; before its time, by the active one's shadow cache
  std::array<double, most> sums_{};
  std::array<double, most> totals_{};
  std::array<std::array<double, most>, most> squares_{};  ///< of differences, for the first above the second
};

}  // namespace cenote::eviction
