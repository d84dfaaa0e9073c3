#include "actors/pulse.hpp"

#include <algorithm>
#include <utility>

namespace cenote {

void pulse::add(std::string name, question ask) {
  subjects_.push_back({std::move(name), std::move(ask)});
}

pulse::report pulse::beat() {
  report now;
  for (subject& each : subjects_) {
    if (!each.answered->exchange(false, std::memory_order_acq_rel)) {
      now.missed = std::max(now.missed, ++each.missed);
      now.late += (now.late.empty() ? "" : ", ") + each.name;
      continue;
    }
    each.missed = 0;
    each.ask([answered = each.answered] { answered->store(true, std::memory_order_release); });
  }
  return now;
}

void pulse::ask_actor(caf::actor_system& system, const caf::weak_actor_ptr& whom, std::function<void()> answer) {
  const auto target = caf::actor_cast<caf::actor>(whom);
  if (!target) return;  // it is dead: it never answers
  // Every actor answers this by itself, in the order of its mailbox. No deadline: the one who asks has its own.
  system.spawn([target, answer = std::move(answer)](caf::event_based_actor* self) {
    self->request(target, caf::infinite, caf::sys_atom_v, caf::get_atom_v, std::string("info"))
        .then(
            [answer](caf::ok_atom, const std::string&, const caf::strong_actor_ptr&, const std::string&) { answer(); },
            [](const caf::error&) {});
  });
}

}  // namespace cenote
