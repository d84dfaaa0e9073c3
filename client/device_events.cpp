#include "client/device_events.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

namespace cenote::client {

struct device_events::state {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<task, result<void>>> ready;
  std::size_t pending = 0;  ///< handed in and not done
  bool stop = false;
};

device_events::device_events() : shared_(std::make_shared<state>()) {}

device_events::~device_events() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
    shared_->ready.clear();
  }
  shared_->changed.notify_all();
  if (thread_.joinable()) thread_.join();
}

result<void> device_events::after(const device_stream& where, task work) {
  auto event = where.owner->record(where.stream);
  if (!event) return std::unexpected(event.error());
  {
    const std::lock_guard lock(shared_->mutex);
    try {
      if (!thread_.joinable()) thread_ = std::thread([shared = shared_] { run(shared); });
    } catch (const std::system_error& why) {
      return fail(error_code::system, std::string("no thread that waits for the device: ") + why.what());
    }
    ++shared_->pending;
  }
  where.owner->when(*event, [shared = shared_, work = std::move(work)](result<void> outcome) {
    {
      const std::lock_guard lock(shared->mutex);
      if (shared->stop) return;
      shared->ready.emplace_back(work, std::move(outcome));
    }
    shared->changed.notify_all();
  });
  return {};
}

void device_events::run(const std::shared_ptr<state>& shared) {
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->changed.wait(lock, [&] { return shared->stop || !shared->ready.empty(); });
    if (shared->stop) return;
    const auto [work, outcome] = std::move(shared->ready.front());
    shared->ready.pop_front();
    lock.unlock();
    work(outcome);
    lock.lock();
    --shared->pending;
    shared->changed.notify_all();
  }
}

result<void> device_events::drain(time_point until) {
  std::unique_lock lock(shared_->mutex);
  if (shared_->changed.wait_until(lock, until, [&] { return shared_->pending == 0; })) return {};
  return fail(error_code::deadline_exceeded,
              "a device still works: " + std::to_string(shared_->pending) + " releases or commits wait for it");
}

std::size_t device_events::pending() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->pending;
}

}  // namespace cenote::client
