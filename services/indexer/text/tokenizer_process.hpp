// The tokenizer as a child process: started, started again when it dies, and ended.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "keeper/child_process.hpp"

namespace cenote::indexer {

/// The settings of a tokenizer process, which become its arguments.
struct tokenizer_settings {
  std::string command{};  ///< words with blanks between them; the first is a program, in $PATH if it has no '/'
  std::string socket{};   ///< where it is to answer; empty: in a folder that is made for it
  std::vector<std::string> models{}, directories{};
  bool hub = false;
  unsigned cache = 16, workers = 2;
};

/// A folder of this user's alone, which goes with its only file when this goes.
class socket_folder {
 public:
  /// Errors: system.
  [[nodiscard]] static result<socket_folder> make();
  socket_folder(socket_folder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  socket_folder(const socket_folder&) = delete;
  socket_folder& operator=(const socket_folder&) = delete;
  socket_folder& operator=(socket_folder&&) = delete;
  ~socket_folder();

  [[nodiscard]] std::string socket() const { return path_ + "/socket"; }

 private:
  explicit socket_folder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

/// Belongs to one thread, which has to live as long as the process: the child dies with it.
class tokenizer_process {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  using duration = std::chrono::steady_clock::duration;

  static constexpr duration first_delay = std::chrono::milliseconds(250);
  static constexpr duration longest_delay = std::chrono::seconds(30);
  static constexpr duration steady_life = std::chrono::seconds(10);  ///< after which a death is the first one again

  /// Starts it. Errors: invalid_config (no such program), system.
  [[nodiscard]] static result<tokenizer_process> start(const tokenizer_settings& settings, time_point now);
  tokenizer_process(tokenizer_process&&) noexcept = default;
  tokenizer_process(const tokenizer_process&) = delete;
  tokenizer_process& operator=(const tokenizer_process&) = delete;
  tokenizer_process& operator=(tokenizer_process&&) = delete;
  /// As stop().
  ~tokenizer_process();

  [[nodiscard]] const std::string& socket() const noexcept { return socket_; }
  /// Starts it again if it has died, behind a pause that grows. To be called about twice a second.
  void look(time_point now);
  /// Asks it to end, and ends it if it does not within a second.
  void stop() noexcept;

 private:
  tokenizer_process(std::optional<socket_folder> folder, std::string socket, std::vector<std::string> command)
      : folder_(std::move(folder)), socket_(std::move(socket)), command_(std::move(command)) {}

  [[nodiscard]] result<void> launch(time_point now);

  std::optional<socket_folder> folder_;
  std::string socket_;
  std::vector<std::string> command_;
  std::optional<child_process> child_;
  time_point started_{}, next_start_{};
  duration delay_ = first_delay;
};

}  // namespace cenote::indexer
