#include "commands/bench/manager/work_thread.hpp"

#include <chrono>

namespace cenote::bench {

namespace {

constexpr std::chrono::milliseconds call_pause{100};  // as the writer, which waits for a while only

}  // namespace

work_thread::~work_thread() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    wake_.notify_one();
  }
  thread_.join();
}

void work_thread::call(std::chrono::nanoseconds work) {
  {
    const std::lock_guard lock(mutex_);
    is_asked_ = true;
    work_ = work;
    wake_.notify_one();
  }
  answer_.acquire();
}

void work_thread::answer() {
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait_until(lock, std::chrono::steady_clock::now() + call_pause, [this] { return is_asked_ || is_over_; });
    if (is_over_) return;
    if (!is_asked_) continue;
    is_asked_ = false;
    const auto end = std::chrono::steady_clock::now() + work_;
    lock.unlock();
    while (std::chrono::steady_clock::now() < end) {
    }
    answer_.release();
  }
}

}  // namespace cenote::bench
