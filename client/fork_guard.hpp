// Notices, without a system call, that a process was forked: a session belongs to the process that attached it.
#pragma once

#include <atomic>
#include <cstdint>

namespace cenote::client {

/// Changes in every child of a fork. Async-signal-safe; thread-safe.
[[nodiscard]] std::uint32_t fork_generation() noexcept;

/// Remembers the process it was made in.
class fork_guard {
 public:
  fork_guard() noexcept : generation_(fork_generation()) {}
  /// True in a child of the process that made this.
  [[nodiscard]] bool in_child() const noexcept { return generation_ != forks.load(std::memory_order_relaxed); }

 private:
  friend std::uint32_t fork_generation() noexcept;
  static constinit std::atomic<std::uint32_t> forks;  ///< counted from the first guard on

  std::uint32_t generation_;
};

}  // namespace cenote::client
