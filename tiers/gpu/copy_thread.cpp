#include "tiers/gpu/copy_thread.hpp"

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

namespace cenote::gpu {

/// Shared with the thread, which may outlive us.
struct copy_thread::state {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void(state&)>> tasks;
  bool hangs = false;  ///< somebody has waited for it in vain; nobody else does before it goes on
  bool stop = false;
  bool has_ended = false;
  std::unique_ptr<copies> work;  ///< the thread's

  [[nodiscard]] bool may_register() const noexcept { return work && work->has_unregistered(); }
};

copy_thread::copy_thread() : shared_(std::make_shared<state>()) {}

/// The thread comes with its first task: a node without devices has none. False: it is closed.
bool copy_thread::post(std::function<void(state&)> task) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->stop) return false;
  shared_->tasks.push_back(std::move(task));
  if (!thread_.joinable()) thread_ = std::thread([shared = shared_] { run(shared); });
  shared_->changed.notify_all();
  return true;
}

void copy_thread::run(const std::shared_ptr<state>& shared) {
  ::pthread_setname_np(::pthread_self(), "cenote-copies");
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->changed.wait(lock, [&] { return shared->stop || !shared->tasks.empty() || shared->may_register(); });
    if (shared->stop) break;
    std::function<void(state&)> task = [](state& mine) {
      try {
        mine.work->register_one();
      } catch (const std::exception&) {
        // Out of memory: what is not registered is copied through a stage.
      }
    };
    if (!shared->tasks.empty()) {
      task = std::move(shared->tasks.front());
      shared->tasks.pop_front();
    }
    lock.unlock();
    task(*shared);
    lock.lock();
    shared->hangs = false;
    shared->changed.notify_all();
  }
  lock.unlock();
  shared->work.reset();
  lock.lock();
  shared->has_ended = true;
  shared->changed.notify_all();
}

void copy_thread::open(std::shared_ptr<device> on, copies::staged told) {
  (void)post(
      [on = std::move(on), told = std::move(told)](state& mine) { mine.work = std::make_unique<copies>(on, told); });
}

void copy_thread::begin(copy_way way, std::vector<copy_run> runs, std::vector<std::span<std::byte>> slabs,
                        const copies::then& ended) {
  const bool is_open = post([way, runs = std::move(runs), slabs = std::move(slabs), ended](state& mine) {
    if (!mine.work) return ended({copy_end::kind::refused, "no device is open"});
    try {
      mine.work->begin(way, runs, slabs, ended);
    } catch (const std::exception& thrown) {  // out of memory: how far it came nobody knows
      ended({copy_end::kind::unknown, thrown.what()});
    }
  });
  if (!is_open) ended({copy_end::kind::refused, "the device was closed"});
}

void copy_thread::forget(std::span<std::byte> memory) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (!thread_.joinable()) return;
  }
  const auto done = std::make_shared<std::atomic<bool>>(false);
  (void)post([memory, done](state& mine) {
    if (mine.work) mine.work->forget(memory);
    done->store(true, std::memory_order_release);
  });
  std::unique_lock lock(shared_->mutex);
  const auto is_over = [&] { return done->load(std::memory_order_acquire) || shared_->hangs || shared_->has_ended; };
  if (!shared_->changed.wait_for(lock, patience, is_over)) shared_->hangs = true;
}

void copy_thread::close() noexcept {
  std::unique_lock lock(shared_->mutex);
  if (!thread_.joinable()) return;
  shared_->stop = true;
  shared_->changed.notify_all();
  const bool has_ended = shared_->changed.wait_for(lock, patience, [&] { return shared_->has_ended; });
  std::thread mine = std::move(thread_);
  lock.unlock();
  if (has_ended)
    mine.join();
  else
    mine.detach();
}

}  // namespace cenote::gpu
