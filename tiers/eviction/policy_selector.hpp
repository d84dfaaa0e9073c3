// Compares the recent savings of some candidates, and chance with the lead of the best.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace cenote::eviction {

/// Adds up what each candidate saved of each request, older requests counting less. One takes over from the active one
/// when its lead is larger than chance explains: in units of the root of the sum of the squared differences of the
/// two, which is what a lead of equals comes to on average. What the active one saved is a
/// quarter what the pool really got and else what its shadow cache promised: one that saves more than promised is left
/// later, one that saves less sooner, by half a unit at most.
///
/// Leads are taken twice: over a long run, and over the recent requests, of which the 20th counts half. A recent lead
/// shows a change of the workload long before the long run does. It has to be the larger, the further the candidate is
/// behind in the long run, and twice as large after a switch by a recent lead that was taken back, which fades with the
/// long run. Where it decides, what was before the change is forgotten. Not thread-safe.
class policy_selector {
 public:
  static constexpr std::size_t most = 8;

  /// The leads with which a candidate takes over, in units of chance.
  struct threshold {
    double lead = 0;                                               ///< over the long run
    double recent_lead = std::numeric_limits<double>::infinity();  ///< over the recent requests
  };
  /// The requests that a choice rests on.
  enum class evidence : std::uint8_t { long_run, recent };
  struct choice {
    std::size_t candidate = 0;
    evidence basis = evidence::long_run;

    bool operator==(const choice&) const = default;
  };

  /// `half_life`: requests until one counts half in the long run.
  policy_selector(std::size_t candidates, std::size_t active, std::uint32_t half_life) noexcept;

  /// Adds a request: the blocks that each candidate saved of it, and those of the pool, which the active one orders.
  void add(std::span<const std::uint32_t> saved, std::uint32_t by_pool) noexcept;
  /// Of the candidates whose lead exceeds their threshold, the one that does so by most.
  [[nodiscard]] std::optional<choice> winner(std::span<const threshold> thresholds) const noexcept;
  /// The candidate is at work from here on.
  void take_over(const choice& successor) noexcept;

  [[nodiscard]] std::size_t active() const noexcept { return active_; }
  /// Of a candidate over the active one in the long run, in units of chance; negative when it is behind.
  [[nodiscard]] double lead(std::size_t candidate) const noexcept { return long_run_.lead(candidate, active_); }
  /// Blocks that `candidate` saved in all.
  [[nodiscard]] double saved(std::size_t candidate) const noexcept { return totals_[candidate]; }

 private:
  /// Below so few requests no candidate takes over, as the usual savings are not known.
  static constexpr std::uint32_t fewest = 20;

  struct decayed_savings {
    double pool = 0;  ///< by the pool; before its time, by the active one's shadow cache
    std::array<double, most> saved{};
    std::array<std::array<double, most>, most> squares{};  ///< of differences, for the first above the second

    /// `keeps`: the weight of a request after another one.
    void add(std::span<const std::uint32_t> blocks, std::uint32_t by_pool, double keeps) noexcept;
    [[nodiscard]] double lead(std::size_t candidate, std::size_t active) const noexcept;
  };

  std::size_t candidates_;
  std::size_t active_;
  double keeps_;
  std::uint32_t requests_ = 0;
  decayed_savings long_run_;
  decayed_savings recent_;
  std::array<double, most> totals_{};
  // Trust in recent leads.
  std::size_t previous_ = most;           ///< the candidate that was active before this one
  evidence reason_ = evidence::long_run;  ///< for the present one
  double doubt_ = 1;                      ///< factor of the leads that are needed
};

}  // namespace cenote::eviction
