// Measures how fast lower tiers load blocks: latency and bandwidth.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

namespace cenote::prefetch {

using clock = std::chrono::steady_clock;
using time_point = clock::time_point;
using nanoseconds = std::chrono::nanoseconds;

[[nodiscard]] constexpr double seconds_of(nanoseconds time) noexcept {
  return std::chrono::duration<double>(time).count();
}

/// When loads arrive: the first byte after `delay`, and then `bytes_per_s`.
struct forecast {
  double delay = 0;  ///< seconds
  double bytes_per_s = 0;

  [[nodiscard]] double until(std::uint64_t bytes) const noexcept {
    return delay + static_cast<double>(bytes) / bytes_per_s;
  }
};

/// Measures latency and bandwidth of loads separately. In a period in which loads are in flight without a gap, the time
/// until the first of them ends is the latency; what ends after it gives the bandwidth, which is the median of the last
/// five slices of about 20 ms: one outlier has no effect, three new slices settle it. A shared machine stands still now
/// and then, which is no property of the device: a slice that a single gap between two ends makes far slower than the
/// known rate counts only if the next one agrees. Nothing is measured while the device is idle. Not thread-safe; the
/// caller passes the time, which never goes back.
class throughput {
 public:
  static constexpr nanoseconds proof =
      std::chrono::seconds(10);  ///< for so long after a window the speed counts as known
  static constexpr nanoseconds memory = std::chrono::seconds(60);  ///< measurements that are older are forgotten

  /// A load of `bytes` was submitted.
  void started(std::uint64_t bytes, time_point now) noexcept;
  /// So many `loads`, of `bytes` together, have ended; those of `good` bytes brought a block.
  void ended(std::uint64_t bytes, std::uint64_t good, time_point now, std::uint64_t loads = 1) noexcept;

  /// Begins a new measurement, on an idle device: once it is complete, older ones are discarded.
  void renew(time_point now) noexcept;

  [[nodiscard]] std::uint64_t under_way() const noexcept { return under_way_; }
  /// True when a window was measured within `proof`: eight loads in one period, or loads for 50 ms. A single load on an
  /// idle device is none.
  [[nodiscard]] bool is_proven(time_point now) const noexcept;
  /// True when a window was measured after `then`.
  [[nodiscard]] bool is_measured_since(time_point then) const noexcept { return windowed_ > then; }
  /// What to expect of loads that begin now. While nothing has arrived for longer than expected: that it takes as long
  /// again, with no more bandwidth than that allows. Nothing: not measured, or forgotten.
  [[nodiscard]] std::optional<forecast> estimate(time_point now) const noexcept;
  /// How long ago the last load ended with a block; nothing: never.
  [[nodiscard]] std::optional<nanoseconds> age(time_point now) const noexcept;
  /// The last measurements, however old; 0: none.
  [[nodiscard]] double last() const noexcept { return rate_; }
  [[nodiscard]] double latency() const noexcept { return latency_; }
  /// The last end, and how long the device was busy before it without a pause.
  [[nodiscard]] time_point last_end() const noexcept { return progress_; }
  [[nodiscard]] nanoseconds last_period() const noexcept { return progress_ - period_.begin; }

 private:
  struct slice {
    double net_bytes = 0, net_seconds = 0;      ///< without the first end of a period
    double gross_bytes = 0, gross_seconds = 0;  ///< with it
    double longest_gap = 0;                     ///< seconds between two ends
    time_point begin{};
    time_point at{};

    void add_gap(double bytes, double duration) noexcept;
    [[nodiscard]] double rate() const noexcept;
    [[nodiscard]] bool is_strong() const noexcept { return 2 * net_bytes >= gross_bytes && net_bytes > 0; }
  };
  struct period {
    time_point begin{};
    time_point first_end{};
    std::uint64_t loads = 0;  ///< that ended, of any size
    double first_bytes = 0;
  };

  void count(std::uint64_t bytes, std::uint64_t good, std::uint64_t loads, double took, time_point now) noexcept;
  void close_slice(time_point now) noexcept;
  void keep(const slice& measured) noexcept;
  [[nodiscard]] bool is_doubtful(const slice& measured) const noexcept;
  [[nodiscard]] double median_rate() const noexcept;
  void learn_latency() noexcept;

  std::uint64_t under_way_ = 0;
  double block_ = 0;       ///< bytes of the last load
  time_point progress_{};  ///< the last end, or when loads began after a pause
  time_point measured_{};  ///< the last load that came
  time_point windowed_{};  ///< the last of them in a window
  time_point renewed_{};
  bool measured_once_ = false;
  period period_;
  slice open_;
  slice weak_;                     ///< the last one in which most bytes came with first ends, so that it says little
  std::array<slice, 5> strong_{};  ///< the last ones, a ring
  std::size_t next_ = 0;
  std::optional<slice> doubted_;  ///< put aside until the next one agrees
  double rate_ = 0;
  double latency_ = 0;
};

}  // namespace cenote::prefetch
