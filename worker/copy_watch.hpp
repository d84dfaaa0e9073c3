// Measures by which routines this machine copies and sums: once for each kind of machine, and again in idle moments.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "core/machine_decisions.hpp"

namespace cenote {

/// Schedules rounds of measurement: some time after the latest one, in a moment in which the process was idle. Without
/// a clock. Not thread-safe.
class copy_schedule {
 public:
  using clock = std::chrono::steady_clock;
  using duration = std::chrono::nanoseconds;

  static constexpr duration first_wait = std::chrono::minutes(1);
  static constexpr duration longest_wait = std::chrono::hours(24);
  static constexpr duration idle_look = std::chrono::seconds(10);  ///< for so long the process must have been idle
  static constexpr double idle_share = 0.02;  ///< of a processor: a process that used less was idle

  explicit copy_schedule(clock::time_point now) noexcept : wait_(first_wait), due_(now + first_wait), look_at_(due_) {}

  /// Time of the next call of is_due().
  [[nodiscard]] clock::time_point next_look() const noexcept { return look_at_; }
  /// Whether to measure now. `cpu`: the processor time of this process so far.
  [[nodiscard]] bool is_due(clock::time_point now, duration cpu) noexcept;
  /// Waits for the next round after one that confirmed all choices.
  void confirm(clock::time_point now) noexcept;
  /// The same after one that left a choice in doubt, for a shorter time.
  void doubt(clock::time_point now) noexcept;

 private:
  duration wait_;
  clock::time_point due_;
  clock::time_point look_at_;
  clock::time_point last_look_{};
  duration last_cpu_{};
};

/// Holds the decisions for this machine, and their file in the runtime directory. Makes this process use them; its
/// sessions hand the process's choice to clients. One thread calls all but decisions(); a round keeps it for a tenth of
/// a second, and for longer on a busy machine.
class copy_watch {
 public:
  using clock = copy_schedule::clock;

  /// `pages`: the pages of blocks where the machine has them.
  copy_watch(const std::filesystem::path& runtime_dir, page_kind pages);

  /// Loads the decisions for this kind of machine, or measures if there are none. Without memory for that chooses
  /// nothing.
  void start();
  [[nodiscard]] clock::time_point next_look() const noexcept { return schedule_.next_look(); }
  /// Measures again if a round is due and the process was idle.
  void advance(clock::time_point now);

  /// The decisions in use. Thread-safe; never null.
  [[nodiscard]] std::shared_ptr<const machine_decisions> decisions() const { return std::atomic_load(&snapshot_); }

 private:
  void measure();
  void publish();

  std::filesystem::path file_;
  page_kind pages_;
  std::string machine_;
  machine_decisions decisions_;
  copy_schedule schedule_;
  std::shared_ptr<const machine_decisions> snapshot_ = std::make_shared<const machine_decisions>();
};

}  // namespace cenote
