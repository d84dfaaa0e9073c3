// A real Redis server of a test's own: in a temporary folder, on a Unix socket or a port of its own, killed at the end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cenote::test {

/// A folder that is removed with all that is in it. Not thread-safe.
class scratch_folder {
 public:
  scratch_folder();
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  ~scratch_folder();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

/// A port of the loopback that nobody has at this moment.
[[nodiscard]] std::string free_port();

/// Fails the test when there is no server to run: the package redis-tools has one. Not thread-safe.
class redis_server {
 public:
  /// Starts it with `settings` ("--maxmemory", "4mb"), without persistence, and waits until it answers.
  explicit redis_server(std::vector<std::string> settings = {});
  redis_server(const redis_server&) = delete;
  redis_server& operator=(const redis_server&) = delete;
  ~redis_server();

  [[nodiscard]] std::string url() const { return "unix://" + socket(); }
  [[nodiscard]] std::string socket() const { return folder_ / "redis.sock"; }
  [[nodiscard]] const scratch_folder& folder() const noexcept { return folder_; }

  /// kill -9, and waits for its end.
  void kill();
  /// Starts it again, empty unless it saved.
  void start();
  void freeze();  ///< SIGSTOP
  void thaw();    ///< SIGCONT

  /// What it says to a command, on a connection of its own: text of a string, status, number, "(nil)" or error; lists
  /// one a line. With `password` it authenticates first.
  std::string say(const std::vector<std::string>& command, const std::string& password = {}) const;

 private:
  scratch_folder folder_;
  std::vector<std::string> settings_;
  pid_t process_ = -1;
};

}  // namespace cenote::test
