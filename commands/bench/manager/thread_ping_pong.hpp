// The least that a command to another thread can cost: waking it, and being woken by it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <semaphore>
#include <thread>

namespace cenote::bench {

/// A thread that answers each call, by what the manager uses: a mutex and a condition variable there, as in its
/// writer's inbox, and a semaphore back. One caller at a time.
class thread_ping_pong {
 public:
  thread_ping_pong() : thread_([this] { answer(); }) {}
  thread_ping_pong(const thread_ping_pong&) = delete;
  thread_ping_pong& operator=(const thread_ping_pong&) = delete;
  ~thread_ping_pong();

  /// One round trip; returns when the answer is here.
  void call();

 private:
  void answer();

  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_asked_ = false;
  bool is_over_ = false;
  std::binary_semaphore answer_{0};
  std::thread thread_;
};

}  // namespace cenote::bench
