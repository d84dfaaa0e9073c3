// A plug-in as a child process, with a line for each question and each answer.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/unique_fd.hpp"
#include "keeper/child_process.hpp"
#include "services/manager/storages/plugin_channel.hpp"

namespace cenote::manager {

/// Lines of a program's stderr on their way to the log: cut, and a bounded number for each question.
class error_lines {
 public:
  static constexpr std::size_t longest_line = 512;  ///< bytes
  static constexpr std::size_t most_lines = 20;     ///< between two calls of renew()

  /// `storage` stands beside each line.
  explicit error_lines(std::string storage) : storage_(std::move(storage)) {}

  void renew() noexcept { lines_ = 0; }
  void add(std::string_view bytes);

 private:
  void end_line();

  std::string storage_;
  std::string line_;
  std::size_t lines_ = 0;
};

/// It is killed with its whole process group, and reaped, when this goes.
class plugin_process final : public plugin_channel {
 public:
  static constexpr std::size_t longest_answer = std::size_t{1} << 20U;  ///< bytes of a line

  /// `command`: a program's path and arguments; `stop`: a descriptor that is readable once all is to end, and that
  /// outlives this. Errors: system.
  [[nodiscard]] static result<std::unique_ptr<plugin_process>> start(const std::vector<std::string>& command,
                                                                     std::string storage, int stop);
  ~plugin_process() override;

  [[nodiscard]] result<std::string> ask(std::string_view line, plugin_time deadline) override;

 private:
  plugin_process(child_process child, std::string storage, int stop)
      : child_(std::move(child)), errors_(std::move(storage)), stop_(stop) {}

  /// Waits until something has come, or the deadline has. Errors: as ask().
  [[nodiscard]] result<> wait(bool has_more_to_send, plugin_time deadline);
  /// Errors: not_running.
  [[nodiscard]] result<> send(std::string_view& rest);
  /// Takes what has come. Errors: not_running, malformed.
  [[nodiscard]] result<> receive();
  void read_errors();
  [[nodiscard]] std::optional<result<std::string>> answer();
  /// Kills the group; gives a text about how the program has ended.
  [[nodiscard]] std::string end();

  child_process child_;
  unique_fd input_, output_, error_output_;
  error_lines errors_;
  int stop_;
  std::string received_;
  std::size_t searched_ = 0;  ///< bytes of `received_` without an end of a line
};

/// A program of the configuration: words with blanks between them, the first one in $PATH if it has no '/'.
class plugin_program final : public plugin_launcher {
 public:
  /// Errors: system.
  [[nodiscard]] static result<std::unique_ptr<plugin_program>> make(std::string command, std::string storage);

  [[nodiscard]] result<std::unique_ptr<plugin_channel>> start() override;
  void cancel() noexcept override;

 private:
  plugin_program(std::string command, std::string storage, unique_fd stop)
      : command_(std::move(command)), storage_(std::move(storage)), stop_(std::move(stop)) {}

  std::string command_;
  std::string storage_;
  unique_fd stop_;
};

}  // namespace cenote::manager
