// Another program's times for rows of the same names, measured in turn with ours.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "commands/bench/report.hpp"
#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "keeper/child_process.hpp"

namespace cenote::bench {

/// A program that prints lines {"row": NAME, "us": [NUMBER…]}, as many as it likes. It stands still (SIGSTOP, its whole
/// group) but for its turns. Not thread-safe.
class rival_program {
 public:
  static constexpr std::size_t longest_line = std::size_t{1} << 24U;  ///< bytes
  static constexpr double patience = 60;                              ///< seconds for a line

  /// It stands still at once. The calling thread outlives it.
  [[nodiscard]] static result<rival_program> start(const std::string& program);

  /// Lets it run until it has printed a line, or has ended. Errors: malformed (no such line), deadline_exceeded, system
  /// (it did not end with 0), interrupted.
  [[nodiscard]] result<void> take_turn();
  /// Takes turns until it ends.
  [[nodiscard]] result<void> take_last_turns();
  /// Null: it has printed no such row.
  [[nodiscard]] const samples* find(std::string_view row) const;

 private:
  rival_program(child_process process, unique_fd lines) noexcept
      : process_(std::move(process)), lines_(std::move(lines)) {}

  void signal(int number) noexcept;
  /// Whether there was a whole line in what it has printed.
  [[nodiscard]] result<bool> read_lines();
  [[nodiscard]] result<void> take_line(std::string_view line);
  [[nodiscard]] result<void> check_end();

  child_process process_;
  unique_fd lines_;
  std::string text_;  ///< the begin of a line
  bool is_over_ = false;
  std::map<std::string, samples, std::less<>> rows_;
};

}  // namespace cenote::bench
