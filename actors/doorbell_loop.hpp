// The thread that hears the sessions' doorbells, and runs whom they wake right there.
//
// A message from a thread that belongs to no actor wakes a thread of the scheduler, and the answer of whom it asks
// wakes another: a commit would cost ten context switches, several times what waking one process costs. So this thread
// is a CAF execution unit of its own: it hosts the messages that it sends, and what the actors that it runs send to
// each other. Actors, messages and ownership are as everywhere: an actor that a thread of the scheduler runs at that
// moment takes its message there.
#pragma once

#include <caf/all.hpp>

#include <deque>
#include <functional>
#include <memory>

#include "actors/messages.hpp"
#include "core/error.hpp"
#include "transport/local/event_loop.hpp"

namespace cenote {

/// Must outlive the actors that it ran. Thread-safe but for exec_later(), which actors call that this thread runs.
class doorbell_loop final : public caf::execution_unit {
 public:
  /// Hears of exceptions, see event_loop. Errors: system.
  [[nodiscard]] static result<std::unique_ptr<doorbell_loop>> start(caf::actor_system& system,
                                                                    local::event_loop::failure_handler on_failure);
  doorbell_loop(const doorbell_loop&) = delete;
  doorbell_loop& operator=(const doorbell_loop&) = delete;
  ~doorbell_loop() override { stop(); }

  /// From now on `target` gets `bell` when the client of `session` rings. Errors: system.
  [[nodiscard]] result<local::event_loop::watch_id> watch(session_ptr session, session_actor target);
  /// See event_loop::unwatch(). A bell that was heard may still be in the actor's mailbox.
  void unwatch(local::event_loop::watch_id id) { events_->unwatch(id); }
  /// Runs `task` on the thread, soon.
  void post(std::function<void()> task) { events_->post(std::move(task)); }
  /// Ends the thread, and lets go of who was watched. What it has not run goes on in the scheduler. Nothing else may be
  /// called after it.
  void stop();

  /// By CAF: `job` has something to do. Takes over a reference.
  void exec_later(caf::resumable* job) override;

 private:
  explicit doorbell_loop(caf::actor_system& system) : caf::execution_unit(&system) {}
  /// A share of what there is to do. True: there is more.
  bool run_some();
  void run_one();

  std::deque<caf::resumable*> jobs_;  ///< with a reference each, as CAF hands them over
  std::unique_ptr<local::event_loop> events_;
};

}  // namespace cenote
