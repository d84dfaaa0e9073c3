// The thread of the data path: it hears the sessions' doorbells and the ends of transfers, and runs whom they wake
// right there.
//
// A message from a thread that belongs to no actor wakes a thread of the scheduler, and the answer of whom that one
// asks wakes another: a commit would cost ten context switches, several times what waking one process costs. So this
// thread is a CAF execution unit of its own: it hosts the messages that it delivers, and what the actors that it runs
// send to each other. Actors, messages and ownership are as everywhere: an actor that a thread of the scheduler runs at
// that moment takes its message there.
#pragma once

#include <caf/all.hpp>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "actors/messages.hpp"
#include "core/error.hpp"
#include "transport/local/event_loop.hpp"

namespace cenote {

/// Must outlive the actors that it ran. Thread-safe but for exec_later(), which is for those that this thread runs.
class data_path final : public caf::execution_unit {
 public:
  /// Hears of exceptions, see event_loop. Errors: system.
  [[nodiscard]] static result<std::unique_ptr<data_path>> start(caf::actor_system& system,
                                                                local::event_loop::failure_handler on_failure);
  data_path(const data_path&) = delete;
  data_path& operator=(const data_path&) = delete;
  ~data_path() override { stop(); }

  /// From now on `target` gets `doorbell` when the client of `session` rings. Errors: system.
  [[nodiscard]] result<local::event_loop::watch_id> watch(session_ptr session, const session_actor& target);
  /// See event_loop::unwatch(). A `doorbell` that was sent may still be in the actor's mailbox.
  void unwatch(local::event_loop::watch_id id) { events_->unwatch(id); }
  /// A message from a thread that is no actor's.
  template <class Actor, class... Parts>
  void deliver(const Actor& target, Parts... parts) {
    post([this, to = caf::actor_cast<caf::strong_actor_ptr>(target),
          message = caf::make_message(std::move(parts)...)]() mutable { hand_over(to, std::move(message)); });
  }
  /// A message every `interval`, as long as the actor lives: it need not wake CAF's clock and a thread of the scheduler
  /// for that, three times as dear together.
  template <class Actor, class Part>
  void repeat(std::chrono::milliseconds interval, const Actor& target, Part part) {
    remind(interval, caf::actor_cast<caf::weak_actor_ptr>(target), caf::make_message(part));
  }
  /// Runs `task` on the thread, soon.
  void post(std::function<void()> task) { events_->post(std::move(task)); }
  /// Ends the thread, and lets go of who was watched. What it has not run goes on in the scheduler. Nothing else may be
  /// called after it.
  void stop();

  /// By CAF: `job` has something to do. Takes over a reference.
  void exec_later(caf::resumable* job) noexcept override { jobs_.push_back(job); }

 private:
  explicit data_path(caf::actor_system& system) : caf::execution_unit(&system) {}
  void remind(std::chrono::milliseconds interval, caf::weak_actor_ptr to, caf::message what);
  // noexcept, as a thread of the scheduler is: an actor that lost its turn or a message would be silent for ever after,
  // and only a new worker helps.
  void hand_over(const caf::strong_actor_ptr& to, caf::message message) noexcept;
  /// A share of what there is to do. True: there is more.
  bool run_some() noexcept;
  void run_one() noexcept;

  std::deque<caf::resumable*> jobs_;  ///< with a reference each, as CAF hands them over
  std::unique_ptr<local::event_loop> events_;
};

}  // namespace cenote
