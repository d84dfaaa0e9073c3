// The line that says how far a replay is.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace cenote::replay {

/// How far a run is; all but `seconds` are totals.
struct progress_state {
  double seconds = 0;
  std::uint64_t done = 0;  ///< requests
  std::uint64_t planned = 0;
  std::uint64_t bytes = 0;  ///< read and put
  std::uint64_t hit_tokens = 0;
  std::uint64_t tokens = 0;
  std::optional<double> seconds_left{};  ///< where the trace's times say; else it is guessed from the rate
};

/// Prints on standard error: a bar that is drawn anew on a terminal, else a line every few seconds. Not thread-safe.
class progress {
 public:
  /// `quiet`: prints nothing.
  explicit progress(bool quiet);

  void show(const progress_state& now);
  /// Ends the bar's line.
  void finish();

 private:
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  double next_line_ = 0;
  std::deque<progress_state> recent_;  ///< of the last seconds: the rate
};

/// The line; `before` is an earlier state, whence the rate. `width`: columns of the terminal, 0: no bar.
[[nodiscard]] std::string progress_text(const progress_state& before, const progress_state& now, std::size_t width);

}  // namespace cenote::replay
