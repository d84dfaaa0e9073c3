// One child process, held by a pidfd.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"

namespace cenote {

/// How a process ended.
struct process_end {
  bool by_signal = false;
  int value = 0;  ///< the signal, the exit status, or `unknown`

  static constexpr int unknown = -1;  ///< it has ended, and another part of the process has reaped it

  /// "exit status 1", "signal 11 (Segmentation fault)"
  [[nodiscard]] std::string describe() const;
};

/// Not thread-safe. Destroying it kills and reaps a child that still runs.
class child_process {
 public:
  struct setup {
    std::vector<std::string> command;       ///< program and arguments
    std::string program = {};               ///< what is executed, if it is not the command's first word
    int inherit = -1;                       ///< one descriptor that the child keeps, under the same number
    bool die_with_parent = false;           ///< SIGTERM to the child when this process dies
    bool discard_output = false;            ///< stdout goes to /dev/null
    int input = -1;                         ///< where stdin comes from; -1: where ours does
    int output = -1;                        ///< where stdout goes; -1: where ours does
    int errors = -1;                        ///< where stderr goes; -1: where ours does
    bool own_group = false;                 ///< a process group of its own: ctrl-C is not for it
    bool close_others = false;              ///< no descriptor but 0 to 2 and `inherit`, even without CLOEXEC
    std::vector<int> blocked_signals = {};  ///< the child's whole signal mask
  };

  /// Forks and executes. With `die_with_parent`, the child dies when the calling thread ends, too. A program that
  /// cannot be executed shows as exit status 127.
  [[nodiscard]] static result<child_process> start(const setup& setup);

  child_process(child_process&& other) noexcept;
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  child_process& operator=(child_process&&) = delete;
  ~child_process();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] int pidfd() const noexcept { return pidfd_.get(); }

  /// The end of the child if it has ended (it is reaped then); nothing while it runs.
  [[nodiscard]] std::optional<process_end> ended() noexcept;

  void signal(int number) noexcept;

 private:
  child_process(pid_t pid, unique_fd pidfd) noexcept : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_ = 0;
  unique_fd pidfd_;
  std::optional<process_end> end_;
};

}  // namespace cenote
