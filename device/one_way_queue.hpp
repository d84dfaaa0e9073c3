// A queue to one thread that tells those who push nothing of what that thread has done: under the thread sanitizer a
// lock would order the taker's writes before the next push, and hide that somebody reads them too early.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <utility>

namespace cenote {

/// A counting semaphore of the C library, in which post comes before wait and nothing else before anything (the
/// standard library's of g++ 12 also orders a wait before the next post).
class one_way_signal {
 public:
  one_way_signal() noexcept { ::sem_init(&semaphore_, 0, 0); }
  one_way_signal(const one_way_signal&) = delete;
  one_way_signal& operator=(const one_way_signal&) = delete;
  ~one_way_signal() { ::sem_destroy(&semaphore_); }

  void post() noexcept { ::sem_post(&semaphore_); }
  void wait() noexcept {
    while (::sem_wait(&semaphore_) != 0 && errno == EINTR) {
    }
  }

 private:
  sem_t semaphore_{};
};

/// First in, first out for pushes that are ordered. push: any thread; pop: one thread.
class one_way_queue {
 public:
  using task = std::function<void()>;

  one_way_queue() = default;
  one_way_queue(const one_way_queue&) = delete;
  one_way_queue& operator=(const one_way_queue&) = delete;
  /// What is left is not run.
  ~one_way_queue() {
    for (owner each = take_all(); each;) each = owner(each->next);
    for (owner each(std::move(taken_)); each;) each = owner(each->next);
  }

  void push(task work) {
    owner made = std::make_unique<node>(std::move(work), pushed_.load(std::memory_order_relaxed));
    while (
        !pushed_.compare_exchange_weak(made->next, made.get(), std::memory_order_release, std::memory_order_relaxed)) {
    }
    (void)made.release();  // the taker owns it now
    filled_.post();
  }

  /// Waits for the next one.
  [[nodiscard]] task pop() {
    filled_.wait();
    if (!taken_) {  // newest first: turned round
      for (owner each = take_all(); each;) {
        owner older(std::exchange(each->next, taken_.release()));
        taken_ = std::move(each);
        each = std::move(older);
      }
    }
    owner first = std::move(taken_);
    taken_.reset(first->next);
    return std::move(first->work);
  }

 private:
  struct node {
    node(task given, node* after) : work(std::move(given)), next(after) {}
    task work;
    node* next;  // owned by whoever owns this one
  };
  using owner = std::unique_ptr<node>;

  owner take_all() noexcept { return owner(pushed_.exchange(nullptr, std::memory_order_acquire)); }

  std::atomic<node*> pushed_{nullptr};
  one_way_signal filled_;
  owner taken_;
};

}  // namespace cenote
