// A session as a rank of groups that must agree: the node decides, this side keeps the deadlines.
#include <algorithm>
#include <thread>
#include <utility>

#include "client/session.hpp"
#include "core/text.hpp"
#include "memory/group_terms.hpp"

namespace cenote::client {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr milliseconds look_at_worker{50};  // how soon a waiting rank sees that its worker was replaced
constexpr milliseconds leave_patience{2};   // then it goes with the next call: this one has had its time

std::string milliseconds_text(nanoseconds time) {
  return std::to_string(std::chrono::duration_cast<milliseconds>(time).count()) + " ms";
}

/// What an answer may take on its way, beside the time that the node has for it.
nanoseconds path_time(nanoseconds of) {
  return std::clamp<nanoseconds>(of / 8, milliseconds(2), milliseconds(100));
}

std::string name_of_group(const group_ticket& group) {
  return "group `" + group.name + "`, rank " + std::to_string(group.rank);
}

result<void> check_terms(const memory::join_terms& terms, nanoseconds timeout) {
  if (terms.name.empty()) return fail(error_code::invalid_argument, "a group needs a name");
  if (auto ok = check_name("a group's name", terms.name, memory::max_rank_group_name); !ok) return ok;
  if (terms.size == 0 || terms.size > memory::max_ranks) {
    return fail(error_code::invalid_argument, "a group of " + std::to_string(terms.size) + " ranks; it has 1 to " +
                                                  std::to_string(memory::max_ranks));
  }
  if (terms.rank >= terms.size) {
    return fail(error_code::invalid_argument,
                "rank " + std::to_string(terms.rank) + " of " + std::to_string(terms.size) + "; ranks count from 0");
  }
  if (timeout < memory::shortest_group_timeout || timeout > memory::longest_group_timeout) {
    return fail(error_code::invalid_argument, "the timeout of a group is 1 ms to 1 hour");
  }
  return {};
}

/// Of a join or of a question, in the node's words.
error refusal_of(const request& refused) {
  const auto code = static_cast<error_code>(refused.outcome.code);
  return {code, refused.text.empty() ? "the node refuses it" : as_utf8(refused.text)};
}

}  // namespace

/// A worker that came later than the join knows nothing of it. No system call.
bool session::knows(const group_ticket& group) const noexcept {
  return memory_.header().worker_epoch.load(std::memory_order_acquire) == group.epoch;
}

// ---------------------------------------------------------------------------------------------- joining

result<std::unique_ptr<group_ticket>> session::join(std::string name, std::uint32_t rank, std::uint32_t size,
                                                    nanoseconds timeout, nanoseconds patience) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  memory::join_terms terms{.name = std::move(name), .rank = rank, .size = size};
  if (auto ok = check_terms(terms, timeout); !ok) return std::unexpected(ok.error());
  const time_point until = steady_clock::now() + (patience > nanoseconds(0) ? patience : options_.deadline);
  auto group = std::make_unique<group_ticket>();
  group->name = terms.name;
  group->rank = rank;
  group->size = size;
  group->timeout = timeout;
  do {  // a worker that is replaced meanwhile is asked anew
    do terms.handle = next_group_.fetch_add(1, std::memory_order_relaxed);
    while (terms.handle == 0);
    if (auto met = channel_.recover(until); !met) return std::unexpected(met.error());
    terms.epoch = memory_.header().worker_epoch.load(std::memory_order_acquire);
    group->handle = terms.handle;
    group->epoch = terms.epoch;
    terms.patience = std::max<nanoseconds>(until - steady_clock::now(), milliseconds(1));
    memory::submission entry;
    terms.pack(entry);
    auto sent = channel_.submit(std::span(&entry, 1), until);
    if (!sent) return std::unexpected(sent.error());
    const auto answered = await_ranks(*group, **sent, until + path_time(until - steady_clock::now()));
    if (answered && *answered && (*sent)->outcome.code == 0) return group;
    channel_.forget(**sent);
    if (!answered) {
      say_leave(*group);
      return std::unexpected(answered.error().in(name_of_group(*group)));
    }
    if (!knows(*group)) continue;
    const error why = refusal_of(**sent);
    if (why.code() == error_code::malformed) return fail(error_code::unsupported, "this node knows no groups of ranks");
    return std::unexpected(why.in(name_of_group(*group)));
  } while (true);
}

/// Until the node has answered a join (true), or its worker is another one. Fails when the time is over.
result<bool> session::await_ranks(const group_ticket& group, request& which, time_point until) {
  while (true) {
    const auto now = steady_clock::now();
    const auto outcome = channel_.watch(which, std::min(until, now + look_at_worker));
    if (outcome && *outcome) return true;
    if (!outcome && outcome.error().code() != error_code::node_restarting) return std::unexpected(outcome.error());
    if (now >= until) return fail(error_code::deadline_exceeded, "the node did not say in time that all ranks joined");
    if (!knows(group)) return false;
    if (!outcome) std::this_thread::sleep_for(milliseconds(1));
  }
}

// ---------------------------------------------------------------------------------------------- the end

/// First step of each call about a group.
result<void> session::check_in(group_ticket& group) {
  {
    const std::lock_guard lock(group.mutex);
    if (group.lost) return std::unexpected(*group.lost);
  }
  if (!knows(group)) return std::unexpected(lose(group, "the node's worker was replaced"));
  return {};
}

/// From now on every call fails; the other ranks hear of it through the node.
error session::lose(group_ticket& group, const std::string& why) {
  std::vector<request_ptr> open;
  {
    const std::lock_guard lock(group.mutex);
    if (group.lost) return *group.lost;
    group.lost.emplace(error_code::group_lost,
                       name_of_group(group) + ": " + why + "; what was agreed is void, all ranks must join again");
    open = std::exchange(group.open, {});
  }
  for (const request_ptr& each : open) channel_.forget(*each);
  say_leave(group);
  return *group.lost;
}

/// Of a failure on the way to the node: one that says that it did not answer breaks the group.
error session::lose_or_fail(group_ticket& group, const error& why) {
  const bool is_away = why.code() == error_code::node_restarting || why.code() == error_code::deadline_exceeded;
  return is_away ? lose(group, why.message()) : why;
}

void session::say_leave(const group_ticket& group) {
  if (!knows(group)) return;
  memory::submission entry;
  entry.op = memory::operation::leave;
  entry.grant_version = group.handle;
  entry.parent = group.epoch;
  if (!channel_.post(std::span(&entry, 1), steady_clock::now() + leave_patience)) channel_.post_later(entry);
}

result<void> session::leave(group_ticket& group) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  (void)lose(group, "this rank left");
  return {};
}

// ---------------------------------------------------------------------------------------------- questions

namespace {

memory::submission entry_of(const group_ticket& group, const group_length& mine) {
  memory::submission entry;
  memory::agree_terms{.question = mine.question,
                      .length = mine.length,
                      .timeout = group.timeout,
                      .handle = group.handle,
                      .epoch = group.epoch}
      .pack(entry);
  return entry;
}

std::string late_text(const group_ticket& group) {
  return "the node did not answer within " + milliseconds_text(group.timeout);
}

}  // namespace

result<std::uint64_t> session::decided(group_ticket& group, const request& answered) {
  if (answered.outcome.code == 0) {
    const std::lock_guard lock(group.mutex);  // another thread may have heard meanwhile that all is void
    if (group.lost) return std::unexpected(*group.lost);
    return answered.outcome.value;
  }
  const error why = refusal_of(answered);
  if (why.code() == error_code::group_lost) return std::unexpected(lose(group, why.message()));
  return std::unexpected(why.in(name_of_group(group)));
}

result<std::uint64_t> session::agree(group_ticket& group, std::uint64_t question, std::uint64_t length) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  if (auto ok = check_in(group); !ok) return std::unexpected(ok.error());
  const time_point until = steady_clock::now() + group.timeout + path_time(group.timeout);
  memory::submission entry = entry_of(group, {question, length});
  const auto sent = channel_.submit(std::span(&entry, 1), until);
  if (!sent) return std::unexpected(lose_or_fail(group, sent.error()));
  request& which = **sent;
  while (true) {
    const bool is_late = steady_clock::now() >= until;  // as read before the look: a stopped process looks once more
    const auto outcome = channel_.watch(which, std::min(until, steady_clock::now() + look_at_worker));
    if (outcome && *outcome) return decided(group, which);
    const bool is_over = !outcome && outcome.error().code() != error_code::node_restarting;
    if (!is_over && !is_late && knows(group)) {
      if (!outcome) std::this_thread::sleep_for(milliseconds(1));
      continue;
    }
    channel_.forget(which);
    if (is_over) return std::unexpected(lose_or_fail(group, outcome.error()));
    return std::unexpected(lose(group, knows(group) ? late_text(group) : "the node's worker was replaced"));
  }
}

result<void> session::start(group_ticket& group, std::span<const group_length> questions) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  if (auto ok = check_in(group); !ok) return ok;
  {
    const std::lock_guard lock(group.mutex);
    if (group.open.size() + questions.size() > memory::most_open_questions) {
      return fail(error_code::limit_exceeded, name_of_group(group) + ": " + std::to_string(group.open.size()) +
                                                  " questions are open, and " + std::to_string(questions.size()) +
                                                  " more would be over " + std::to_string(memory::most_open_questions) +
                                                  "; poll first");
    }
  }
  const time_point until = steady_clock::now() + group.timeout + path_time(group.timeout);
  std::vector<memory::submission> entries;
  for (std::size_t first = 0; first < questions.size(); first += channel::max_batch) {
    entries.clear();
    const auto some = questions.subspan(first, std::min(channel::max_batch, questions.size() - first));
    for (const group_length& each : some) entries.push_back(entry_of(group, each));
    const auto sent = channel_.submit_each(entries, until);
    if (!sent) return std::unexpected(lose_or_fail(group, sent.error()));
    const std::lock_guard lock(group.mutex);
    if (group.lost) {  // by another thread: nobody looks at what is open any more
      for (const request_ptr& each : *sent) channel_.forget(*each);
      return std::unexpected(*group.lost);
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      (*sent)[i]->tag = some[i].question;
      (*sent)[i]->until = until;
      group.open.push_back((*sent)[i]);
    }
  }
  return {};
}

result<std::size_t> session::poll(group_ticket& group, std::span<group_length> out, nanoseconds patience) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  const time_point until = steady_clock::now() + patience;
  while (true) {
    if (auto ok = check_in(group); !ok) return std::unexpected(ok.error());
    const auto now = steady_clock::now();  // before the look, as in agree()
    std::vector<request_ptr> done;
    std::vector<request_ptr> open;
    bool is_late = false;
    {
      const std::lock_guard lock(group.mutex);
      done = channel_.take_done(group.open, out.size());
      is_late = !group.open.empty() && group.open.front()->until <= now;
      if (done.empty()) open = group.open;
    }
    for (std::size_t i = 0; i < done.size(); ++i) {
      const auto length = decided(group, *done[i]);
      if (!length) return std::unexpected(lose(group, length.error().message()));  // also: this question has no answer
      out[i] = {done[i]->tag, *length};
    }
    if (!done.empty() || out.empty() || open.empty()) return done.size();
    if (is_late) return std::unexpected(lose(group, late_text(group)));
    if (now >= until) return 0;
    const time_point look = std::min({until, open.front()->until, now + look_at_worker});
    const auto waited = channel_.watch_any(open, look);
    if (waited || waited.error().code() == error_code::node_restarting) continue;
    return std::unexpected(lose_or_fail(group, waited.error()));
  }
}

}  // namespace cenote::client
