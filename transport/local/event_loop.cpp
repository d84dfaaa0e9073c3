#include "transport/local/event_loop.hpp"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

namespace cenote::local {

result<std::unique_ptr<event_loop>> event_loop::start(const std::string& name, failure_handler on_failure,
                                                      round_handler after_round) {
  unique_fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno("epoll_create1");
  unique_fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) return fail_errno("epoll_ctl");
  std::unique_ptr<event_loop> loop(new event_loop(std::move(epoll), std::move(wake)));
  loop->on_failure_ = std::move(on_failure);
  loop->after_round_ = std::move(after_round);
  loop->thread_ = std::thread([self = loop.get(), name] { self->run(name); });
  return loop;
}

event_loop::~event_loop() {
  stop();
}

result<event_loop::watch_id> event_loop::watch(int fd, handler on_event, bool edge) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return fail(error_code::closed, "the loop has ended");
  const watch_id id = next_++;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | (edge ? static_cast<std::uint32_t>(EPOLLET) : 0U);
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno("epoll_ctl");
  watches_.emplace(id, watched{fd, std::make_shared<handler>(std::move(on_event))});
  return id;
}

void event_loop::unwatch(watch_id id) {
  std::unique_lock lock(mutex_);
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  watches_.erase(found);
  if (std::this_thread::get_id() != thread_.get_id()) {
    idle_.wait(lock, [&] { return running_ != id; });
  }
}

void event_loop::set_interest(watch_id id, bool read, bool write) {
  const std::lock_guard lock(mutex_);
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  epoll_event event{};
  event.events = (read ? static_cast<std::uint32_t>(EPOLLIN | EPOLLRDHUP) : 0U) |
                 (write ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  event.data.u64 = id;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd, &event);
}

void event_loop::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    const bool told = !tasks_.empty();
    tasks_.push_back(std::move(task));
    if (told) return;  // whoever came first wakes the thread for all
  }
  signal();
}

void event_loop::post_at(clock::time_point due, std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    const auto added = add_timer(due, std::move(task));
    if (!added || added != timed_.begin()->first) return;
  }
  if (std::this_thread::get_id() != thread_.get_id()) signal();  // its own looks at the time anyway
}

std::optional<event_loop::timer_key> event_loop::add_timer(clock::time_point due, std::function<void()> task) {
  if (stopping_) return std::nullopt;
  return timed_.emplace(timer_key{due, ++next_timer_}, std::move(task)).first->first;
}

std::size_t event_loop::timers() {
  const std::lock_guard lock(mutex_);
  return timed_.size();
}

void event_loop::signal() const noexcept {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

void event_loop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  signal();
  if (std::this_thread::get_id() == thread_.get_id()) return;
  if (thread_.joinable()) thread_.join();
  release();
}

void event_loop::release() {
  std::unordered_map<watch_id, watched> watches;  // what they hold may call here while it goes
  std::vector<std::function<void()>> tasks;
  std::map<timer_key, std::function<void()>> timed;
  const std::lock_guard lock(mutex_);
  watches.swap(watches_);
  tasks.swap(tasks_);
  timed.swap(timed_);
}

void event_loop::run(const std::string& name) {
  ::pthread_setname_np(::pthread_self(), name.c_str());
  std::array<epoll_event, 64> events{};
  // Asked before every wait too: the wake-up of a stop may have been read together with that of a task.
  while (!stopping()) {
    const int ready =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), milliseconds_to_next());
    if ((ready < 0 && errno != EINTR) || stopping()) return;
    for (int i = 0; i < ready; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == 0) {
        run_tasks();
      } else {
        dispatch(event.data.u64, event.events);
      }
    }
    run_due();
    end_round();
  }
}

void event_loop::end_round() {
  if (!after_round_) return;
  more_ = true;  // also after an exception
  guarded(0, [this] { more_ = after_round_(); });
}

int event_loop::milliseconds_to_next() {
  if (more_) return 0;
  const std::lock_guard lock(mutex_);
  if (timed_.empty()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(timed_.begin()->first.first - clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

void event_loop::guarded(watch_id id, const std::function<void()>& work) {
  std::string what;
  try {
    return work();
  } catch (const std::exception& thrown) {
    what = thrown.what();
  } catch (...) {
    what = "something that is no std::exception";
  }
  try {
    if (on_failure_) on_failure_(id, what);
  } catch (...) {  // out of memory, as a rule: the loop goes on
  }
}

bool event_loop::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void event_loop::dispatch(watch_id id, std::uint32_t events) {
  std::shared_ptr<handler> on_event;
  {
    const std::lock_guard lock(mutex_);
    const auto found = watches_.find(id);
    if (found == watches_.end()) return;
    on_event = found->second.on_event;
    running_ = id;
  }
  guarded(id, [&] { (*on_event)(events); });
  {
    const std::lock_guard lock(mutex_);
    running_ = 0;
  }
  idle_.notify_all();
}

void event_loop::run_tasks() {
  std::uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof count);
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) guarded(0, task);
}

void event_loop::run_due() {
  std::vector<std::function<void()>> due;
  {
    const std::lock_guard lock(mutex_);
    const auto end = timed_.upper_bound({clock::now(), std::numeric_limits<std::uint64_t>::max()});
    for (auto each = timed_.begin(); each != end; ++each) due.push_back(std::move(each->second));
    timed_.erase(timed_.begin(), end);
  }
  for (const auto& task : due) guarded(0, task);
}

}  // namespace cenote::local
