// The least that a request to another process can cost: waking it, and being woken by it.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <utility>

#include "core/error.hpp"
#include "core/unique_fd.hpp"

namespace cenote::bench {

/// A child that answers each eventfd with another one. Not thread-safe. The child has the processors that this process
/// had when it was made.
class ping_pong {
 public:
  /// Forks: the process must have no other thread yet.
  [[nodiscard]] static result<ping_pong> start();
  ping_pong(ping_pong&& other) noexcept;
  ping_pong(const ping_pong&) = delete;
  ping_pong& operator=(const ping_pong&) = delete;
  ping_pong& operator=(ping_pong&&) = delete;
  ~ping_pong();

  /// One round trip; returns when the child's answer is here. Errors: system.
  [[nodiscard]] result<void> call();

 private:
  ping_pong(pid_t child, unique_fd there, unique_fd back) noexcept
      : child_(child), there_(std::move(there)), back_(std::move(back)) {}

  pid_t child_ = 0;
  unique_fd there_;
  unique_fd back_;
};

/// While it lives, this thread and what it starts run on the first of its processors alone.
class one_processor {
 public:
  one_processor() noexcept;
  one_processor(const one_processor&) = delete;
  one_processor& operator=(const one_processor&) = delete;
  ~one_processor();

 private:
  cpu_set_t before_{};
};

}  // namespace cenote::bench
