// A DRAM tier over a device of a given speed, both made up, and a clock that jumps from event to event.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tiers/prefetch/planner.hpp"

namespace cenote::prefetch::testing {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline full_key key_of(std::uint64_t n) {
  full_key key;
  key.size = 16;
  std::memcpy(key.bytes.data(), &n, sizeof n);
  return key;
}

struct chain_request {
  std::uint64_t session = 1;
  std::uint32_t chain = 1;
  std::vector<std::uint64_t> keys;
  memory::prefetch_terms terms{};
  std::uint32_t instance = 1;
  std::uint32_t tokens_per_block = 16;
  share_holder holder{};
};

/// Two tiers below. Of the first loads come one after the other, each after `block_time`, or as `device` says; it has
/// hints. The second one has none, so it is asked; `server` says how it is. Names of blocks are numbers.
class world {
 public:
  static constexpr std::uint64_t stride = 64 << 10;
  static constexpr std::uint32_t tokens_per_block = 16;

  explicit world(const options& chosen) : plan(chosen) {}

  void submit(chain_request what) {
    request made;
    made.session = what.session;
    made.number = what.chain;
    made.terms = what.terms;
    made.terms.chain = what.chain;
    made.instance = what.instance;
    made.holder = what.holder;
    made.tokens_per_block = what.tokens_per_block;
    made.stride = stride;
    if (server.stands) made.asks.set(1);
    for (const std::uint64_t n : what.keys) {
      made.keys.push_back(key_of(n));
      made.places.push_back(place_of(n));
    }
    begun[what.chain] = now;
    plan.on_request(std::move(made), now);
    settle();
  }
  /// Asks how far the chain reaches; the answer is as of a prefetch.
  void locate(chain_request what, nanoseconds patience) {
    request made;
    made.what = request::kind::locate;
    made.session = what.session;
    made.number = what.chain;
    made.patience = patience;
    if (server.stands) made.asks.set(1);
    for (const std::uint64_t n : what.keys) {
      made.keys.push_back(key_of(n));
      made.places.push_back(place_of(n));
    }
    begun[what.chain] = now;
    plan.on_request(std::move(made), now);
    settle();
  }
  void send(request::kind what, std::uint32_t chain, std::uint64_t session = 1) {
    request made;
    made.what = what;
    made.session = session;
    made.chain = chain;
    plan.on_request(std::move(made), now);
    settle();
  }
  /// Carries out what the planner wants, until it wants nothing more at this moment.
  void settle() {
    for (;;) {
      plan.plan(now);
      for (const answer& each : plan.take_answers()) {
        lengths[each.completion.request] = each.completion.value;
        results[each.completion.request] = memory::prefetch_outcome::unpack(each.completion);
        codes[each.completion.request] = each.completion.code;
        ended[each.completion.request] = now;
      }
      for (question& each : plan.take_questions()) {
        ++asked;
        if (server.answers_after) answers_.emplace(now + *server.answers_after, std::move(each));
      }
      const auto commands = plan.take_commands();
      if (commands.empty()) return;
      for (const command& each : commands) execute(each);
    }
  }
  std::optional<time_point> next_event() const {
    std::optional<time_point> next = plan.wake_at(now);
    const auto sooner = [&](time_point when) { next = next ? std::min(*next, when) : when; };
    if (!queue.empty() && !stalled) sooner(queue.front().done);
    if (!far_queue.empty() && !server.stalled) sooner(far_queue.front().done);
    if (!answers_.empty()) sooner(answers_.begin()->first);
    return next;
  }
  /// The next event: a load that ends, or a time that the planner waits for. False: there is none.
  bool step() {
    const std::optional<time_point> next = next_event();
    if (!next) return false;
    now = std::max(now, *next);
    std::vector<transfer_outcome> outcomes;
    while (!queue.empty() && !stalled && queue.front().done <= now) {
      const bool lost = damaged.contains(queue.front().key);
      if (!lost) present.insert(queue.front().key);
      below.erase(queue.front().key);
      outcomes.push_back({queue.front().token, lost ? transfer_result::failed : transfer_result::done});
      queue.pop_front();
    }
    while (!far_queue.empty() && !server.stalled && far_queue.front().done <= now) {
      const bool came = server.has.contains(far_queue.front().key);
      if (came) present.insert(far_queue.front().key);
      outcomes.push_back({far_queue.front().token, came ? transfer_result::done : transfer_result::missing});
      far_queue.pop_front();
    }
    if (!outcomes.empty()) plan.on_loads_finished(outcomes, now);
    while (!answers_.empty() && answers_.begin()->first <= now) {
      const question what = std::move(answers_.begin()->second);
      answers_.erase(answers_.begin());
      std::vector<bool> said;
      for (const full_key& each : what.keys.keys) {
        said.push_back(server.has.contains(number_of(each)) || server.lies_about.contains(number_of(each)));
      }
      plan.on_told(what.number, what.edge, said);
    }
    settle();
    return true;
  }
  bool run_until(const std::function<bool()>& done, int most = 1'000'000) {
    for (int i = 0; i < most && !done(); ++i) {
      if (!step()) break;
    }
    return done();
  }
  bool run_until_answered(std::uint32_t chain) {
    return run_until([&] { return lengths.contains(chain); });
  }
  std::uint64_t ends(reason why) const { return plan.status().by_reason[static_cast<std::size_t>(why)]; }
  std::uint64_t in_flight() const { return queue.size() * stride; }

  planner plan;
  time_point now{std::chrono::hours(1)};
  nanoseconds block_time = milliseconds(1);
  std::function<time_point(time_point)> device;  ///< when the transfer of a block that begins then is over
  nanoseconds latency{};                         ///< of every load, beside its transfer
  bool stalled = false;                          ///< nothing comes any more
  std::uint64_t room = ~std::uint64_t{0};        ///< loads that the tier takes at once
  std::set<std::uint64_t> present, below, damaged;
  struct {
    bool stands = false;
    std::set<std::uint64_t> has, lies_about;
    nanoseconds block_time = milliseconds(1);
    nanoseconds latency{};
    std::optional<nanoseconds> answers_after = microseconds(200);  ///< to questions; nothing: never
    bool stalled = false;
    std::uint64_t room = ~std::uint64_t{0};
  } server;
  std::uint64_t asked = 0;                         ///< questions
  std::vector<std::uint64_t> fetched;              ///< from the second tier, in their order
  std::set<std::uint64_t> no_room_for;             ///< the tier answers no_space
  std::set<std::uint64_t> busy;                    ///< the tier says so
  std::map<std::uint32_t, std::uint64_t> lengths;  ///< chain -> answer
  std::map<std::uint32_t, memory::prefetch_outcome> results{};
  std::map<std::uint32_t, std::uint16_t> codes;
  std::map<std::uint32_t, time_point> begun, ended;
  std::vector<std::uint64_t> read;                        ///< in the order in which the device was asked
  std::map<std::uint64_t, std::set<std::uint64_t>> held;  ///< job -> keys, of finish commands

 private:
  struct load {
    std::uint64_t key = 0;
    std::uint64_t token = 0;
    time_point done;
  };

  static std::uint64_t number_of(const full_key& key) {
    std::uint64_t n = 0;
    std::memcpy(&n, key.bytes.data(), sizeof n);
    return n;
  }
  spot place_of(std::uint64_t n) const {
    if (present.contains(n)) return {place::present};
    if (loading(queue, n) != nullptr) return {place::loading, 0};
    if (loading(far_queue, n) != nullptr) return {place::loading, 1};
    if (below.contains(n)) return {place::near, 0};
    return {server.stands ? place::unasked : place::absent};
  }
  static const load* loading(const std::deque<load>& queue, std::uint64_t n) {
    const auto found = std::ranges::find(queue, n, &load::key);
    return found == queue.end() ? nullptr : &*found;
  }
  void execute(const command& command) {
    command_result result{.what = command.what, .job = command.job, .edge = command.edge, .loads = {}, .length = 0};
    if (command.what == command::kind::release) {
      held.erase(command.job);
      return;
    }
    if (command.what == command::kind::finish) {
      while (result.length < command.keys->size() && present.contains(number_of((*command.keys)[result.length])))
        ++result.length;
      for (std::size_t i = 0; i < result.length && command.hold; ++i)
        held[command.job].insert(number_of((*command.keys)[i]));
    }
    for (const std::uint32_t i : command.which) {
      const load_answer answer = load_of(number_of((*command.keys)[i]), command.edge);
      result.loads.push_back(answer);
      if (answer.state != load_state::present && answer.state != load_state::loading) break;
    }
    plan.on_result(result, now);
  }
  load_answer load_of(std::uint64_t n, edge_number edge) {
    if (present.contains(n)) return {load_state::present};
    if (const load* under_way = loading(queue, n)) return {load_state::loading, under_way->token, 0};
    if (const load* under_way = loading(far_queue, n)) return {load_state::loading, under_way->token, 1};
    if (no_room_for.contains(n)) return {load_state::no_space};
    if (busy.contains(n)) return {load_state::busy};
    if (edge == 1) return fetch(n);
    if (!below.contains(n)) return {load_state::absent};
    if (queue.size() >= room) return {load_state::wait};
    const time_point begin = std::max(now, transferred_);
    transferred_ = device ? device(begin) : begin + block_time;
    queue.push_back({n, next_token_++, transferred_ + latency});
    read.push_back(n);
    return {load_state::loading, queue.back().token, 0};
  }
  load_answer fetch(std::uint64_t n) {
    if (far_queue.size() >= server.room) return {load_state::wait};
    fetched_ = std::max(now, fetched_) + server.block_time;
    far_queue.push_back({n, next_token_++, fetched_ + server.latency});
    fetched.push_back(n);
    return {load_state::loading, far_queue.back().token, 1};
  }

  std::deque<load> queue, far_queue;
  std::multimap<time_point, question> answers_;  ///< to come
  std::uint64_t next_token_ = 1;
  time_point transferred_{};
  time_point fetched_{};
};

/// first, first + 1, …
inline std::vector<std::uint64_t> chain_of(std::uint64_t first, std::size_t count) {
  std::vector<std::uint64_t> keys(count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = first + i;
  return keys;
}

}  // namespace cenote::prefetch::testing
