// Independent pieces of work on all cores, with a line on a terminal where they take long.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace cenote::optimize {

/// Counts pieces over several calls of run(). From the second second on a terminal has one line on standard error,
/// drawn anew at most five times a second by the thread that called, and taken away at the end. run() is not
/// thread-safe.
class watched_work {
 public:
  /// `planned`: pieces of all calls together at most.
  watched_work(std::string name, std::size_t planned);
  watched_work(const watched_work&) = delete;
  watched_work& operator=(const watched_work&) = delete;
  ~watched_work();

  /// Calls `work(i)` for each i below `count`, on as many threads as there are cores.
  void run(std::size_t count, const std::function<void(std::size_t)>& work);

 private:
  void show();

  std::string name_;
  std::size_t planned_;
  bool has_terminal_;
  bool is_drawn_ = false;
  std::atomic<std::size_t> done_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point next_line_;
};

/// "curve: 37 of 140, 0:12 left"; without a guess before the first piece is done.
[[nodiscard]] std::string work_text(const std::string& name, std::size_t done, std::size_t planned, double seconds);

}  // namespace cenote::optimize
