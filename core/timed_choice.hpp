// Chooses among several ways of doing one thing by measured rates.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace cenote {

/// Chooses among numbered candidates by rounds of rates. The first round decides. Later ones change the choice only
/// when another candidate beats it in two rounds one after the other, so that the noise of a moment neither keeps a
/// wrong choice nor replaces a right one. Without a clock. Not thread-safe.
class timed_choice {
 public:
  /// Share of the best candidate's rate; a choice that reaches it stays.
  static constexpr double good_enough = 0.97;

  timed_choice() = default;
  /// Continues with an earlier choice.
  explicit timed_choice(std::size_t candidate) noexcept : candidate_(candidate) {}

  /// Judges a round: the rate of each candidate, more is better. A rate that is not a finite number above 0 counts as
  /// not measured; a round that did not measure the chosen candidate is void. Returns whether the choice changed.
  bool judge(std::span<const double> rates);

  /// The chosen candidate; nothing before the first round.
  [[nodiscard]] std::optional<std::size_t> candidate() const noexcept { return candidate_; }
  /// Whether another candidate won the latest round, so that the next one may change the choice.
  [[nodiscard]] bool is_in_doubt() const noexcept;

 private:
  std::optional<std::size_t> candidate_;
  std::vector<bool> winners_;  ///< of the latest round
};

}  // namespace cenote
