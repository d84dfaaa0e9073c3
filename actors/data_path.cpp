#include "actors/data_path.hpp"

#include <utility>

namespace cenote {

namespace {

using local::event_loop;

constexpr std::size_t messages_a_turn = 16;                     // of one actor, before the next one runs
constexpr auto between_looks = std::chrono::microseconds(200);  // for so long actors run before descriptors are polled

}  // namespace

result<std::unique_ptr<data_path>> data_path::start(caf::actor_system& system, event_loop::failure_handler on_failure) {
  std::unique_ptr<data_path> made(new data_path(system));
  auto events = event_loop::start("cenote-data", std::move(on_failure), [to = made.get()] { return to->run_some(); });
  if (!events) return std::unexpected(events.error());
  made->events_ = std::move(*events);
  return made;
}

result<event_loop::watch_id> data_path::watch(session_ptr session, const session_actor& target) {
  const int doorbell = session->submit_doorbell.get();
  return events_->watch(
      doorbell,
      [this, session = std::move(session), to = caf::actor_cast<caf::strong_actor_ptr>(target)](std::uint32_t) {
        if (session->take_bell()) hand_over(to, caf::make_message(doorbell_atom_v));
      },
      /*edge=*/true);
}

void data_path::stop() {
  if (!events_) return;
  events_.reset();  // joins the thread; the watches hold references to actors
  for (; !jobs_.empty(); jobs_.pop_front()) system().scheduler().enqueue(jobs_.front());
}

void data_path::remind(std::chrono::milliseconds interval, caf::weak_actor_ptr to, caf::message what) {
  events_->post_at(event_loop::clock::now() + interval,
                   [this, interval, to = std::move(to), what = std::move(what)]() mutable {
                     const auto target = to.lock();
                     if (!target) return;
                     hand_over(target, what);
                     remind(interval, std::move(to), std::move(what));
                   });
}

void data_path::hand_over(const caf::strong_actor_ptr& to, caf::message message) noexcept {
  to->enqueue(nullptr, caf::make_message_id(), std::move(message), this);
}

bool data_path::run_some() noexcept {
  if (jobs_.empty()) return false;
  const auto until = event_loop::clock::now() + between_looks;
  do {
    run_one();
  } while (!jobs_.empty() && event_loop::clock::now() < until);
  return !jobs_.empty();
}

void data_path::run_one() noexcept {
  caf::resumable* const job = jobs_.front();
  jobs_.pop_front();
  if (job->resume(this, messages_a_turn) == caf::resumable::resume_later) {
    jobs_.push_back(job);
  } else {
    caf::intrusive_ptr_release(job);
  }
}

}  // namespace cenote
