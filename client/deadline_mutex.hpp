// A mutex for what may take long: who waits for it has a deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace cenote::client {

/// For std::unique_lock with a time; not recursive. std::timed_mutex would do, but the thread sanitizer does not see
/// how that one waits by the steady clock. Slower than std::mutex.
class deadline_mutex {
 public:
  /// False: somebody else had it until `until`. One that is free is taken however late it is.
  bool try_lock_until(std::chrono::steady_clock::time_point until) {
    std::unique_lock lock(mutex_);
    if (!freed_.wait_until(lock, until, [this] { return !is_held_; })) return false;
    is_held_ = true;
    return true;
  }
  void unlock() {
    {
      const std::lock_guard lock(mutex_);
      is_held_ = false;
    }
    freed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  bool is_held_ = false;
};

}  // namespace cenote::client
