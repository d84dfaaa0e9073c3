#include "client/device_events.hpp"

#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

namespace cenote::client {

struct device_events::entry {
  task work;
  runs_on where = runs_on::own_thread;
  result<void> outcome = {};
};

/// An entry moves from list to list without memory being asked for: a device's thread could do nothing about a refusal.
struct device_events::state {
  std::mutex mutex;
  std::condition_variable changed;
  std::list<entry> under_way;  ///< their events have not ended
  std::list<entry> ready;      ///< for the thread
  std::size_t running = 0;
  std::size_t on_device = 0;  ///< … of those, by a device's thread
  bool stop = false;

  [[nodiscard]] std::size_t left() const noexcept { return under_way.size() + ready.size() + running; }
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
  std::unique_lock lock(shared_->mutex);  // what a device's thread does at this moment
  shared_->changed.wait(lock, [&] { return shared_->running == 0; });
}

void device_events::do_work(const entry& each) noexcept {
  try {
    each.work(each.outcome);
  } catch (const std::exception&) {
    // Out of memory: pins stay held, and blocks reserved, until the session ends.
  }
}

result<void> device_events::after(const device_stream& where, runs_on thread, task work) {
  auto event = where.owner->record(where.stream);
  if (!event) return std::unexpected(event.error());
  return when(*where.owner, *event, thread, std::move(work));
}

result<void> device_events::when(device& owner, const event_ref& event, runs_on thread, task work) {
  std::list<entry> made(1);
  made.front().work = std::move(work);
  made.front().where = thread;
  const auto mine = made.begin();
  {
    const std::lock_guard lock(shared_->mutex);
    try {
      if (!thread_.joinable()) thread_ = std::thread([shared = shared_] { run(shared); });
    } catch (const std::system_error& why) {
      return fail(error_code::system, std::string("no thread that waits for the device: ") + why.what());
    }
    shared_->under_way.splice(shared_->under_way.end(), made);
  }
  owner.when(event, [shared = shared_, mine](result<void> outcome) {
    std::list<entry> own;
    std::unique_lock lock(shared->mutex);
    mine->outcome = std::move(outcome);
    own.splice(own.end(), shared->under_way, mine);
    if (shared->stop) return;
    if (mine->where == runs_on::device_thread) {
      ++shared->running;
      ++shared->on_device;
      lock.unlock();
      do_work(own.front());
      lock.lock();
      --shared->on_device;
      --shared->running;
    } else {
      shared->ready.splice(shared->ready.end(), own);
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
    std::list<entry> own;
    own.splice(own.end(), shared->ready, shared->ready.begin());
    ++shared->running;
    lock.unlock();
    do_work(own.front());
    lock.lock();
    --shared->running;
    shared->changed.notify_all();
  }
}

result<void> device_events::wait_for_device(time_point until) {
  std::unique_lock lock(shared_->mutex);
  if (shared_->changed.wait_until(lock, until, [&] { return shared_->under_way.empty() && shared_->on_device == 0; }))
    return {};
  return fail(error_code::deadline_exceeded, "a device still works: " + std::to_string(shared_->under_way.size()) +
                                                 " releases or commits wait for it");
}

result<void> device_events::drain(time_point until) {
  if (auto done = wait_for_device(until); !done) return done;
  std::unique_lock lock(shared_->mutex);
  if (shared_->changed.wait_until(lock, until, [&] { return shared_->left() == 0; })) return {};
  return fail(error_code::deadline_exceeded,
              std::to_string(shared_->left()) + " commits of what a device has written are not answered");
}

std::size_t device_events::under_way() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->under_way.size();
}

std::size_t device_events::pending() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->left();
}

}  // namespace cenote::client
