// Questions to actors from threads that are none. Whether or not an answer comes, and in time, nothing stays behind.
#pragma once

#include <caf/all.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "core/error.hpp"

namespace cenote {

/// Calls `then` once, on a thread of the actor system, with the answer or with why there is none. Each question is an
/// actor that ends with its answer: a mailbox that outlives questions would keep what comes too late. It has no
/// time-out of its own: actors answer what they are asked, and who waits has a deadline. `wanted` is asked before the
/// question is sent.
template <class Answer, class Actor, class... Arguments>
void ask_then(caf::actor_system& system, std::function<bool()> wanted, std::function<void(result<Answer>)> then,
              const Actor& whom, Arguments... arguments) {
  system.spawn([wanted = std::move(wanted), then = std::move(then), whom, arguments...](caf::event_based_actor* self) {
    if (!wanted()) return;
    self->request(whom, caf::infinite, arguments...)
        .then([then](const Answer& answer) { then(answer); },
              [then](const caf::error& why) { then(fail(error_code::internal, caf::to_string(why))); });
  });
}

/// Waits `limit` for the answer. Errors: deadline_exceeded, internal (the actor is gone). A question that has not been
/// sent by then never is.
template <class Answer, class Actor, class... Arguments>
result<Answer> ask(caf::actor_system& system, std::chrono::nanoseconds limit, const Actor& whom,
                   Arguments... arguments) {
  struct question {
    std::promise<result<Answer>> promise;
    std::atomic<bool> given_up = false;
  };
  const auto asked = std::make_shared<question>();
  auto answer = asked->promise.get_future();
  ask_then<Answer>(
      system, [asked] { return !asked->given_up.load(); },
      [asked](result<Answer> came) { asked->promise.set_value(std::move(came)); }, whom, std::move(arguments)...);
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of the function above, which was moved on
  if (answer.wait_for(limit) == std::future_status::ready) return answer.get();
  asked->given_up = true;
  return fail(error_code::deadline_exceeded, "the node is too busy to answer");
}

}  // namespace cenote
