#include "actors/data_path.hpp"

#include <utility>

namespace cenote {

namespace {

using local::event_loop;

}  // namespace

result<std::unique_ptr<data_path>> data_path::start(caf::actor_system& system, event_loop::failure_handler on_failure) {
  std::unique_ptr<data_path> made(new data_path(system));
  auto events =
      event_loop::start("cenote-data", std::move(on_failure), [to = made.get()] { return to->runner_.run_some(); });
  if (!events) return std::unexpected(events.error());
  made->events_ = std::move(*events);
  return made;
}

result<event_loop::watch_id> data_path::watch(session_ptr session, const session_actor& target) {
  const int doorbell = session->submit_doorbell.get();
  return events_->watch(
      doorbell,
      [this, session = std::move(session), to = caf::actor_cast<caf::strong_actor_ptr>(target)](std::uint32_t) {
        if (session->take_bell()) runner_.hand_over(to, caf::make_message(doorbell_atom_v));
      },
      /*edge=*/true);
}

void data_path::stop() {
  if (!events_) return;
  events_->stop();
  runner_.give_up();
}

void data_path::remind(std::chrono::milliseconds interval, caf::weak_actor_ptr to, caf::message what) {
  events_->post_at(event_loop::clock::now() + interval,
                   [this, interval, to = std::move(to), what = std::move(what)]() mutable {
                     const auto target = to.lock();
                     if (!target) return;
                     runner_.hand_over(target, what);
                     remind(interval, std::move(to), std::move(what));
                   });
}

}  // namespace cenote
