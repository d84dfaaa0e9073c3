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
constexpr milliseconds leave_patience{100};

std::string milliseconds_text(nanoseconds time) {
  return std::to_string(std::chrono::duration_cast<milliseconds>(time).count()) + " ms";
}

std::string name_of_group(const group_ticket& group) {
  return "group `" + group.name + "`, rank " + std::to_string(group.rank);
}

result<void> check_terms(const memory::join_terms& terms) {
  if (auto ok = check_name("a group's name", terms.name, memory::max_rank_group_name); !ok) return ok;
  if (terms.size == 0 || terms.size > memory::max_ranks) {
    return fail(error_code::invalid_argument, "a group of " + std::to_string(terms.size) + " ranks; it has 1 to " +
                                                  std::to_string(memory::max_ranks));
  }
  if (terms.rank >= terms.size) {
    return fail(error_code::invalid_argument, "rank " + std::to_string(terms.rank) + " of " +
                                                  std::to_string(terms.size) + "; ranks count from 0");
  }
  if (terms.timeout < memory::shortest_group_timeout || terms.timeout > memory::longest_group_timeout) {
    return fail(error_code::invalid_argument, "the timeout of a group is 1 ms to 1 hour");
  }
  return {};
}

/// What the node said of a join or of a question, in words.
error refusal_of(const memory::completion& answer) {
  using enum memory::group_refusal;
  const auto code = static_cast<error_code>(answer.code);
  switch (static_cast<memory::group_refusal>(answer.block)) {
    case not_a_name: return {code, "the node refuses the name"};
    case not_a_size:
    case not_a_rank: return {code, "the node allows no group of this size, or no such rank in it"};
    case not_a_timeout: return {code, "the node refuses the timeout"};
    case not_a_handle: return {code, "the number of this membership is in use"};
    case unknown_handle: return {code, "the node knows no such membership"};
    case not_joined_yet: return {code, "not all ranks have joined yet"};
    case other_size: return {code, "other ranks of the group say another size"};
    case too_many_groups:
      return {code, "too many groups: a session is in " + std::to_string(memory::most_rank_groups) +
                        " at most, and the node has a bound, too"};
    case too_many_questions:
      return {code, std::to_string(memory::most_open_questions) + " questions of this rank are open: poll first"};
    default: return {code, "the node refuses it"};
  }
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
  memory::join_terms terms{.name = std::move(name), .rank = rank, .size = size, .timeout = timeout};
  if (auto ok = check_terms(terms); !ok) return std::unexpected(ok.error());
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
    memory::submission entry;
    terms.pack(entry);
    auto sent = channel_.submit(std::span(&entry, 1), until);
    if (!sent) return std::unexpected(sent.error());
    auto answer = await_ranks(*group, **sent, until);
    if (!answer) {
      channel_.forget(**sent);
      say_leave(*group);
      return std::unexpected(answer.error().in(name_of_group(*group)));
    }
    if (!*answer) {
      channel_.forget(**sent);
      continue;
    }
    if ((*answer)->code == 0) return group;
    const auto code = static_cast<error_code>((*answer)->code);
    if (code == error_code::malformed) return fail(error_code::unsupported, "this node knows no groups of ranks");
    const bool is_loss = code == error_code::group_lost;
    const auto loss = static_cast<memory::group_loss>((*answer)->block);
    if (is_loss && loss == memory::group_loss::other_worker) continue;
    const error why = is_loss ? error(code, std::string(memory::text_of(loss))) : refusal_of(**answer);
    return std::unexpected(why.in(name_of_group(*group)));
  } while (true);
}

/// What the node says of a join; nothing: its worker is another one now. Fails when the time is over.
result<std::optional<memory::completion>> session::await_ranks(const group_ticket& group, request& which,
                                                               time_point until) {
  while (true) {
    const auto now = steady_clock::now();
    auto outcome = channel_.watch(which, std::min(until, now + look_at_worker));
    if (outcome && *outcome) return outcome;
    if (!outcome && outcome.error().code() != error_code::node_restarting) return outcome;
    if (now >= until) return fail(error_code::deadline_exceeded, "not all ranks have joined in time");
    if (!knows(group)) return std::nullopt;
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
error session::lose(group_ticket& group, std::string why) {
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
  (void)channel_.post(std::span(&entry, 1), steady_clock::now() + leave_patience);
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
  memory::agree_terms{
      .question = mine.question, .length = mine.length, .handle = group.handle, .epoch = group.epoch}
      .pack(entry);
  return entry;
}

std::string late_text(const group_ticket& group) {
  return "the node did not answer within " + milliseconds_text(group.timeout);
}

}  // namespace

result<std::uint64_t> session::decided(group_ticket& group, const memory::completion& answer) {
  if (answer.code == 0) return answer.value;
  if (static_cast<error_code>(answer.code) == error_code::group_lost)
    return std::unexpected(lose(group, std::string(memory::text_of(static_cast<memory::group_loss>(answer.block)))));
  return std::unexpected(refusal_of(answer).in(name_of_group(group)));
}

result<std::uint64_t> session::agree(group_ticket& group, std::uint64_t question, std::uint64_t length) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  if (auto ok = check_in(group); !ok) return std::unexpected(ok.error());
  const time_point until = steady_clock::now() + group.timeout;
  memory::submission entry = entry_of(group, {question, length});
  const auto sent = channel_.submit(std::span(&entry, 1), until);
  if (!sent) return std::unexpected(lose_or_fail(group, sent.error()));
  request& which = **sent;
  while (true) {
    const bool is_late = steady_clock::now() >= until;  // as read before the look: a stopped process looks once more
    const auto outcome = channel_.watch(which, std::min(until, steady_clock::now() + look_at_worker));
    if (outcome && *outcome) return decided(group, **outcome);
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
      return fail(error_code::limit_exceeded,
                  name_of_group(group) + ": " + std::to_string(group.open.size()) + " questions are open, and " +
                      std::to_string(questions.size()) + " more would be over " +
                      std::to_string(memory::most_open_questions) + "; poll first");
    }
  }
  const time_point until = steady_clock::now() + group.timeout;
  std::vector<memory::submission> entries;
  for (std::size_t first = 0; first < questions.size(); first += channel::max_batch) {
    entries.clear();
    const auto some = questions.subspan(first, std::min(channel::max_batch, questions.size() - first));
    for (const group_length& each : some) entries.push_back(entry_of(group, each));
    const auto sent = channel_.submit_each(entries, until);
    if (!sent) return std::unexpected(lose_or_fail(group, sent.error()));
    const std::lock_guard lock(group.mutex);
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
      const auto length = decided(group, done[i]->outcome);
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
