// A thread that waits for descriptors and calls back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"

namespace cenote::local {

/// One epoll instance, one thread. watch(), unwatch() and post() may be called from any thread, handlers run on the
/// loop's. A handler may block for a bounded time: all others of this loop wait meanwhile. Those that are ready take
/// turns: none is called again before each of the others was. An exception ends the handler that threw it, not the
/// loop.
class event_loop {
 public:
  using handler = std::function<void(std::uint32_t events)>;
  using watch_id = std::uint64_t;
  using clock = std::chrono::steady_clock;
  /// Called on the loop's thread with an exception that a handler (of watch `id`) or a task (`id` 0) has thrown.
  using failure_handler = std::function<void(watch_id id, const std::string& what)>;

  /// Called on the loop's thread after the handlers of all ready descriptors. True: it has more to do, so that the loop
  /// polls its descriptors without waiting and calls it again.
  using round_handler = std::function<bool()>;

  /// `name`: of the thread, at most 15 characters.
  static result<std::unique_ptr<event_loop>> start(const std::string& name, failure_handler on_failure = {},
                                                   round_handler after_round = {});
  event_loop(const event_loop&) = delete;
  event_loop& operator=(const event_loop&) = delete;
  /// Stops; see stop().
  ~event_loop();

  /// Calls `on_event` whenever `fd` is readable or hung up (level-triggered), or with `edge`: once for each new event.
  /// The descriptor stays the caller's and must outlive the watch.
  result<watch_id> watch(int fd, handler on_event, bool edge = false);
  /// Ends a watch. When it returns, the handler is not running and is not called again; on the loop's own thread it may
  /// be the handler that is running.
  void unwatch(watch_id id);
  /// Which events a level-triggered watch waits for: reading at first. With neither, hang-up and errors alone.
  void set_interest(watch_id id, bool read, bool write);
  /// Runs `task` on the loop's thread, soon.
  void post(std::function<void()> task);
  /// Runs `task` on the loop's thread at `due` or soon after. For waits that recur there is the alarm: each
  /// call here is one more timer.
  void post_at(clock::time_point due, std::function<void()> task);
  /// Timers that have not run yet.
  [[nodiscard]] std::size_t timers();
  /// Ends the thread after the handler that runs now, and, on another thread, lets go of all handlers, tasks and
  /// timers. Nothing is taken from then on: watch() fails, post() and timers do nothing.
  void stop();

 private:
  struct watched {
    int fd = -1;
    std::shared_ptr<handler> on_event;
  };

  friend class alarm;
  /// By the number of a timer, too: two may be due at one time.
  using timer_key = std::pair<clock::time_point, std::uint64_t>;

  event_loop(unique_fd epoll, unique_fd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void run(const std::string& name);
  void dispatch(watch_id id, std::uint32_t events);
  void run_tasks();
  void run_due();
  void end_round();
  /// Calls `work`; what it throws goes to on_failure_.
  void guarded(watch_id id, const std::function<void()>& work);
  [[nodiscard]] int milliseconds_to_next();
  [[nodiscard]] bool stopping();
  void signal() const noexcept;
  /// With mutex_; it does not wake the thread. Nothing: the loop is stopping.
  [[nodiscard]] std::optional<timer_key> add_timer(clock::time_point due, std::function<void()> task);
  void release();

  unique_fd epoll_;
  unique_fd wake_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::unordered_map<watch_id, watched> watches_;
  std::vector<std::function<void()>> tasks_;
  std::map<timer_key, std::function<void()>> timed_;
  std::uint64_t next_timer_ = 0;
  failure_handler on_failure_;
  round_handler after_round_;
  bool more_ = false;     ///< after_round_ has more to do
  watch_id next_ = 1;     ///< 0 is the wake-up descriptor
  watch_id running_ = 0;  ///< whose handler runs now
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cenote::local
