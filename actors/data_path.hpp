// The thread of the data path: it polls the sessions' doorbells and the ends of transfers, and runs the actors that
// they concern on the same thread (run to completion).
//
// With CAF's scheduler alone a commit would cost ten context switches: see actor_runner.hpp. Otherwise actors are the
// same here as anywhere.
#pragma once

#include <caf/all.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "actors/actor_runner.hpp"
#include "actors/messages.hpp"
#include "core/error.hpp"
#include "transport/local/alarm.hpp"
#include "transport/local/event_loop.hpp"

namespace cenote {

/// Must outlive the actors that it ran. Thread-safe.
class data_path final {
 public:
  /// `on_failure` is called with exceptions, see event_loop. Errors: system.
  [[nodiscard]] static result<std::unique_ptr<data_path>> start(caf::actor_system& system,
                                                                local::event_loop::failure_handler on_failure);
  data_path(const data_path&) = delete;
  data_path& operator=(const data_path&) = delete;
  ~data_path() { stop(); }

  /// From now on `target` gets `doorbell` when the client of `session` rings. Errors: system.
  [[nodiscard]] result<local::event_loop::watch_id> watch(session_ptr session, const session_actor& target);
  /// See event_loop::unwatch(). A `doorbell` that was sent may still be in the actor's mailbox.
  void unwatch(local::event_loop::watch_id id) { events_->unwatch(id); }
  /// Sends a message to an actor; may be called by any thread.
  template <class Actor, class... Parts>
  void deliver(const Actor& target, Parts... parts) {
    post([this, to = caf::actor_cast<caf::strong_actor_ptr>(target),
          message = caf::make_message(std::move(parts)...)]() mutable { runner_.hand_over(to, std::move(message)); });
  }
  /// Sends a message every `interval` as long as the actor lives. Costs a third of CAF's delayed messages, which wake
  /// CAF's clock and a scheduler thread.
  template <class Actor, class Part>
  void repeat(std::chrono::milliseconds interval, const Actor& target, Part part) {
    remind(interval, caf::actor_cast<caf::weak_actor_ptr>(target), caf::make_message(part));
  }
  /// Runs `task` on the thread, soon.
  void post(std::function<void()> task) { events_->post(std::move(task)); }
  /// An alarm of the thread, which runs `task`.
  [[nodiscard]] std::unique_ptr<local::alarm> make_alarm(std::function<void()> task) const {
    return std::make_unique<local::alarm>(events_, std::move(task));
  }
  /// That have not run yet.
  [[nodiscard]] std::size_t timers() const { return events_->timers(); }
  /// For tasks that run on the thread.
  [[nodiscard]] actor_runner& runner() noexcept { return runner_; }
  /// Ends the thread and all watches. Actors that still have messages go on in the scheduler. What is posted afterwards
  /// is dropped.
  void stop();

 private:
  explicit data_path(caf::actor_system& system) : runner_(system) {}
  void remind(std::chrono::milliseconds interval, caf::weak_actor_ptr to, caf::message what);

  actor_runner runner_;
  std::shared_ptr<local::event_loop> events_;
};

}  // namespace cenote
