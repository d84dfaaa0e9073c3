// How fast loads come up: measured, not configured.
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

/// When loads come: the first byte after `delay`, and then so many a second.
struct forecast {
  double delay = 0;  ///< seconds
  double bytes_per_s = 0;

  [[nodiscard]] double until(std::uint64_t bytes) const noexcept {
    return delay + static_cast<double>(bytes) / bytes_per_s;
  }
};

/// Latency and bandwidth of loads, apart. In a period in which something is under way the time until the first end is
/// latency, and what follows is bandwidth; it is the median of the last few slices of about 20 ms, so that one pause
/// tells nothing and three slices tell all. An idle device says nothing. One thread; time is an argument and never runs
/// back.
class throughput {
 public:
  static constexpr nanoseconds proof = std::chrono::seconds(10);   ///< a window holds for so long
  static constexpr nanoseconds memory = std::chrono::seconds(60);  ///< what is older is forgotten

  /// A load of `bytes` is under way from now on.
  void started(std::uint64_t bytes, time_point now) noexcept;
  /// `loads` of `bytes` together have ended, `good` bytes of them with a block.
  void ended(std::uint64_t bytes, std::uint64_t good, time_point now, std::uint64_t loads = 1) noexcept;

  /// A window that tells of today begins: once it does, what was measured before counts no more. For an idle device.
  void renew(time_point now) noexcept;

  [[nodiscard]] std::uint64_t under_way() const noexcept { return under_way_; }
  /// A window was measured not long ago: eight loads without a pause, or loads for 50 ms. One cold load proves nothing.
  [[nodiscard]] bool is_proven(time_point now) const noexcept;
  /// A window was measured after that.
  [[nodiscard]] bool is_measured_since(time_point then) const noexcept { return windowed_ > then; }
  /// What to expect of loads that begin now. While the device is overdue: that it is silent for as long again, and then
  /// no faster than the silence allows. Nothing: nothing was measured, or it is forgotten.
  [[nodiscard]] std::optional<forecast> estimate(time_point now) const noexcept;
  /// How long ago something came; nothing: never.
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
    time_point begin{};
    time_point at{};

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
  slice weak_;                     ///< the last one that was mostly first ends
  std::array<slice, 5> strong_{};  ///< the last ones, in turn
  std::size_t next_ = 0;
  double rate_ = 0;
  double latency_ = 0;
};

}  // namespace cenote::prefetch
