// A thread of one's own on which the actors run that it sends messages to (run to completion).
#pragma once

#include <caf/all.hpp>

#include <deque>

namespace cenote {

/// A CAF execution unit for a thread that hears events. With CAF's scheduler alone, a message from a thread outside of
/// it wakes a scheduler thread, and each message between actors may wake another. What is delivered here runs here, and
/// so does what those actors send in turn; an actor that a scheduler thread is running takes its message there. Used by
/// its thread alone; must outlive the actors that it ran.
class actor_runner final : public caf::execution_unit {
 public:
  explicit actor_runner(caf::actor_system& system) : caf::execution_unit(&system) {}

  // noexcept, so that an exception ends the worker, as on a scheduler thread: an actor that lost a message or its turn
  // would never run again.
  void hand_over(const caf::strong_actor_ptr& to, caf::message message) noexcept;
  /// Runs actors for a while. True: some have more to do.
  bool run_some() noexcept;
  /// Actors that still have messages go on in the scheduler: the thread ends.
  void give_up();
  /// Called by CAF: `job` (an actor) is to be resumed. Takes over a reference to it.
  void exec_later(caf::resumable* job) noexcept override { jobs_.push_back(job); }

 private:
  void run_one() noexcept;

  std::deque<caf::resumable*> jobs_;  ///< with a reference each, as CAF hands them over
};

}  // namespace cenote
