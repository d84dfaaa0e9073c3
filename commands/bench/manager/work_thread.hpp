// The least that work of another thread can take: the work, waking the thread, and being woken by it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <semaphore>
#include <thread>

namespace cenote::bench {

/// A thread that works for a time, by what the manager uses: a mutex and a condition variable there, as in its writer's
/// inbox, and a semaphore back. How long a wake takes depends on how long the other side has slept, so that a round
/// trip without work would be too short a yardstick. One caller at a time.
class work_thread {
 public:
  work_thread() : thread_([this] { answer(); }) {}
  work_thread(const work_thread&) = delete;
  work_thread& operator=(const work_thread&) = delete;
  ~work_thread();

  /// Lets it work, and returns when its answer is here.
  void call(std::chrono::nanoseconds work);

 private:
  void answer();

  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_asked_ = false;
  std::chrono::nanoseconds work_{};
  bool is_over_ = false;
  std::binary_semaphore answer_{0};
  std::thread thread_;
};

}  // namespace cenote::bench
