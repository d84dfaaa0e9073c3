#include "actors/actor_runner.hpp"

#include <chrono>
#include <utility>

namespace cenote {

namespace {

constexpr std::size_t messages_a_turn = 16;                     // of one actor, before the next one runs
constexpr auto between_looks = std::chrono::microseconds(200);  // for so long actors run before events are looked for

}  // namespace

void actor_runner::hand_over(const caf::strong_actor_ptr& to, caf::message message) noexcept {
  to->enqueue(nullptr, caf::make_message_id(), std::move(message), this);
}

bool actor_runner::run_some() noexcept {
  if (jobs_.empty()) return false;
  const auto until = std::chrono::steady_clock::now() + between_looks;
  do {
    run_one();
  } while (!jobs_.empty() && std::chrono::steady_clock::now() < until);
  return !jobs_.empty();
}

void actor_runner::run_one() noexcept {
  caf::resumable* const job = jobs_.front();
  jobs_.pop_front();
  if (job->resume(this, messages_a_turn) == caf::resumable::resume_later) {
    jobs_.push_back(job);
  } else {
    caf::intrusive_ptr_release(job);
  }
}

void actor_runner::give_up() {
  for (; !jobs_.empty(); jobs_.pop_front()) system().scheduler().enqueue(jobs_.front());
}

}  // namespace cenote
