#include "commands/bench/manager/thread_ping_pong.hpp"

#include <chrono>

namespace cenote::bench {

namespace {

constexpr std::chrono::milliseconds look_pause{100};  // as the writer, which waits for a while only

}  // namespace

thread_ping_pong::~thread_ping_pong() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

void thread_ping_pong::call() {
  {
    const std::lock_guard lock(mutex_);
    is_asked_ = true;
    wake_.notify_one();
  }
  answer_.acquire();
}

void thread_ping_pong::answer() {
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait_until(lock, std::chrono::steady_clock::now() + look_pause, [this] { return is_asked_ || is_over_; });
    if (is_over_) return;
    if (!is_asked_) continue;
    is_asked_ = false;
    lock.unlock();
    answer_.release();
  }
}

}  // namespace cenote::bench
