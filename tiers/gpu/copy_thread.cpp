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
};

copy_thread::copy_thread() : shared_(std::make_shared<state>()) {}

/// The thread comes with its first task: a node without devices has none.
void copy_thread::post(std::function<void(state&)> task) {
  const std::lock_guard lock(shared_->mutex);
  shared_->tasks.push_back(std::move(task));
  if (!thread_.joinable()) thread_ = std::thread([shared = shared_] { run(shared); });
  shared_->changed.notify_all();
}

void copy_thread::run(const std::shared_ptr<state>& shared) {
  ::pthread_setname_np(::pthread_self(), "cenote-copies");
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->changed.wait(lock, [&] { return shared->stop || !shared->tasks.empty(); });
    if (shared->stop) break;
    const auto task = std::move(shared->tasks.front());
    shared->tasks.pop_front();
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

void copy_thread::open(std::shared_ptr<device> on) {
  post([on = std::move(on)](state& mine) { mine.work = std::make_unique<copies>(on); });
}

void copy_thread::begin(copy_way way, std::vector<copy_run> runs, std::vector<std::span<std::byte>> slabs,
                        copies::then ended) {
  post([way, runs = std::move(runs), slabs = std::move(slabs), ended = std::move(ended)](state& mine) {
    if (!mine.work) return ended(copy_end::refused);
    try {
      mine.work->begin(way, runs, slabs, ended);
    } catch (const std::exception&) {  // out of memory: how far it came nobody knows
      ended(copy_end::unknown);
    }
  });
}

void copy_thread::forget(std::span<std::byte> memory) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (!thread_.joinable()) return;
  }
  const auto done = std::make_shared<std::atomic<bool>>(false);
  post([memory, done](state& mine) {
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
  lock.unlock();
  if (has_ended)
    thread_.join();
  else
    thread_.detach();
}

}  // namespace cenote::gpu
