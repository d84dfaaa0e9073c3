#include "tests/unit/cluster/agreement_world.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>

namespace cenote::testing {

using namespace std::chrono_literals;
using kind = cluster::rank_answer::kind;

namespace {

constexpr auto agree_faults_for = 2500ms;
constexpr auto agree_peace_for = 4000ms;
constexpr auto seen_gone_after = 400ms;  // as membership would: silence, or a link that closed
constexpr auto longest_freeze = 1200ms;
constexpr std::uint64_t forged_length = 7777;

}  // namespace

agreement_world::agreement_world(std::uint64_t seed, agreement_world_options options)
    : wire_(seed), options_(options), begun_(wire_.now()) {
  settings_.grace = 600ms;
  settings_.tell_for = 2000ms;
  settings_.rules = options_.rules;
  if (wire_.chance() < 0.3) settings_.most_remembered = 2 + wire_.number(6);
  is_calm_ = wire_.chance() < 0.25;
  is_hostile_ = wire_.chance() < 0.2;
  if (wire_.chance() < 0.7) wire_.habit.loses = wire_.chance() * (is_calm_ ? 0.2 : 0.3);
  if (wire_.chance() < 0.6) wire_.habit.doubles = wire_.chance() * 0.3;
  wire_.habit.spread = std::chrono::microseconds(100 + wire_.number(wire_.chance() < 0.5 ? 1000 : 15000));
  wire_.habit.swaps = wire_.chance() < 0.3 ? wire_.chance() * 0.2 : 0;
  timeout_ = is_calm_ ? 3000ms : 300ms + some(700);
  slow_ = wire_.chance() < 0.4 ? 0.1 : 0.02;
  skips_ = wire_.chance() < 0.4 ? 0.1 : 0;
  const auto count = 1 + wire_.number(4);
  for (std::uint64_t i = 0; i < count; ++i) {
    nodes_.push_back(std::make_unique<node>());
    nodes_.back()->name = std::string(1, static_cast<char>('a' + i));
  }
  for (const auto& each : nodes_) start(*each);
  add_groups();
}

void agreement_world::add_groups() {
  const std::size_t count = wire_.chance() < 0.2 ? 2 : 1;
  for (std::size_t i = 0; i < count; ++i) {
    const auto size = static_cast<std::uint32_t>(2 + wire_.number(wire_.chance() < 0.7 ? 2 : 5));
    groups_.push_back({"g", size, {static_cast<std::uint32_t>(i), {}}});
    for (std::uint32_t number = 0; number < size; ++number) {
      rank& made = *ranks_.emplace_back(std::make_unique<rank>());
      made.group = i;
      made.number = number;
      made.node = wire_.number(nodes_.size());
      step_later(made, some(200));
    }
  }
}

void agreement_world::show(const std::string& what) {
  if (options_.shows)
    std::cerr << std::chrono::duration<double, std::milli>(wire_.now() - begun_).count() << " ms: " << what << '\n';
}

void agreement_world::fail(const std::string& what) {
  if (!failure_) failure_ = std::to_string((wire_.now() - begun_) / 1ms) + " ms: " + what;
  if (options_.shows) show("WRONG: " + what);
}

std::string agreement_world::name_of(const rank& which) const {
  return groups_[which.group].name + std::to_string(which.group) + "." + std::to_string(which.number) + "@" +
         nodes_[which.node]->name;
}

// ---- nodes

void agreement_world::start(node& which) {
  if (which.object) return;
  if (options_.shows) show("node " + which.name + " starts");
  ++which.life;
  which.alarm_at = {};
  which.object = std::make_unique<cluster::agreement>(which.name, which.born(), settings_, wire_.now());
  which.sees.clear();
  look(which);
  look_soon(200ms);
}

/// What membership would tell it: whoever runs and is not cut off.
void agreement_world::look(node& which) {
  if (!which.object) return;
  std::map<std::string, peer::incarnation> now;
  std::vector<cluster::live_node> live;
  for (const auto& each : nodes_) {
    if (each.get() == &which || !each->object) continue;
    if (wire_.is_cut(which.name, each->name) || wire_.is_cut(each->name, which.name)) continue;
    now.emplace(each->name, each->born());
    live.push_back({each->name, each->born()});
  }
  if (now == which.sees) return;
  which.sees = std::move(now);
  which.object->members_changed(live, wire_.now());
  settle(which);
}

void agreement_world::look_soon(duration within) {
  for (const auto& each : nodes_)
    wire_.at(
        wire_.now() + some(static_cast<std::uint64_t>(within / 1ms) + 1), [this, &one = *each] { look(one); },
        each->name);
}

void agreement_world::set_alarm(node& which) {
  const time_point due = which.object->wake_at();
  if (due == which.alarm_at) return;
  which.alarm_at = due;
  const std::uint64_t number = ++which.alarm;
  if (due == time_point::max()) return;
  const auto late = std::chrono::microseconds(wire_.number(500));
  wire_.at(
      std::max(due, wire_.now()) + late,
      [this, &which, number, life = which.life] {
        if (which.life != life || which.alarm != number || !which.object) return;
        which.alarm_at = {};
        which.object->advance(wire_.now());
        settle(which);
      },
      which.name);
}

/// What a turn of its actor does afterwards.
void agreement_world::settle(node& which) {
  for (const cluster::rank_answer& each : which.object->take_answers()) take(which, each);
  for (const cluster::agreement_frame& each : which.object->take_frames()) send(which, each);
  for (const cluster::rank_answer& each : which.object->take_answers()) take(which, each);
  set_alarm(which);
}

agreement_world::duration agreement_world::delay() {
  const double bell = wire_.chance() + wire_.chance() + wire_.chance() - 1.5;  // about normal
  return wire_.habit.least + std::chrono::duration_cast<duration>(wire_.habit.spread * std::exp(2 * bell));
}

void agreement_world::send(node& from, const cluster::agreement_frame& what) {
  const auto body = std::make_shared<const std::vector<std::byte>>(what.body);
  for (const auto& each : nodes_) {
    if (each.get() == &from || (!what.to.empty() && what.to != each->name)) continue;
    if (!from.sees.contains(each->name)) continue;
    post(from.name, from.born(), *each, what.type, body);
  }
}

void agreement_world::post(const std::string& from, peer::incarnation born, node& to, peer::frame_type type,
                           std::shared_ptr<const std::vector<std::byte>> body) {
  if (wire_.is_cut(from, to.name) || wire_.chance() < wire_.habit.loses) return;
  const int copies = wire_.chance() < wire_.habit.doubles ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    auto after = delay();
    if (wire_.chance() < wire_.habit.swaps) after += some(1000);  // overtaken by what is said much later
    wire_.at(
        wire_.now() + after,
        [this, from, born, &to, type, body] {
          if (!to.object) return;
          if (!to.object->heard(from, born, type, *body, wire_.now())) this->fail("a good frame is refused");
          settle(to);
        },
        to.name);
  }
}

// ---- ranks

void agreement_world::step_later(rank& which, duration when) {
  wire_.at(
      wire_.now() + when,
      [this, &which, number = ++which.steps] {
        if (which.steps == number) step(which);
      },
      nodes_[which.node]->name);
}

void agreement_world::step(rank& which) {
  if (!nodes_[which.node]->object) return step_later(which, 100ms + some(100));
  switch (which.state) {
    case rank_is::out: return join(which);
    case rank_is::in: return ask(which);
    case rank_is::lost: return go(which);
    case rank_is::joining: return;
  }
}

/// It leaves; comes again later.
void agreement_world::go(rank& which) {
  node& at = *nodes_[which.node];
  const auto id = std::exchange(which.id, 0);
  which.state = rank_is::out;
  which.asked.clear();
  if (id != 0 && at.object) {
    at.object->leave(id, wire_.now());
    settle(at);
  }
  step_later(which, some(150));
}

void agreement_world::join(rank& which) {
  node& at = *nodes_[which.node];
  which.id = ++last_id_;
  which.state = rank_is::joining;
  which.next = 1;
  which.asked.clear();
  const group& of = groups_[which.group];
  const duration timeout = is_calm_ || is_peace_ ? 5000ms : 800ms + some(2000);
  if (options_.shows) show(name_of(which) + " joins as " + std::to_string(which.id));
  expect_answer(which, 0, timeout);
  at.object->join({which.id, of.name, 42_identity, which.number, of.size, timeout, of.owner}, wire_.now());
  settle(at);
}

/// Exactly one, in time: looked at when the timeout is over, or when a node that stood still has had its turn.
void agreement_world::expect_answer(rank& which, std::uint64_t number, duration timeout) {
  const auto check = [this, &which, number, id = which.id, life = nodes_[which.node]->life, &at = *nodes_[which.node]] {
    if (which.id != id || at.life != life || !at.object) return;
    const bool waits = number == 0 ? which.state == rank_is::joining : which.asked.contains(number);
    if (waits) fail(name_of(which) + " has no answer to " + std::to_string(number));
  };
  const std::string& name = nodes_[which.node]->name;
  wire_.at(
      wire_.now() + timeout,
      [this, check, &name] {
        if (wire_.now() < wire_.frozen_until(name) + 5ms) return wire_.at(wire_.now() + 5ms, check, name);
        check();
      },
      name);
}

void agreement_world::ask(rank& which) {
  const double what = wire_.chance();
  if (!is_peace_ && what < slow_) return step_later(which, 100ms + some(600));
  // Ranks of an engine are about as far as each other.
  const auto& asked = groups_[which.group].epochs[which.epoch].questions;
  if (!asked.empty() && asked.rbegin()->first > 3) which.next = std::max(which.next, asked.rbegin()->first - 2);
  const std::uint64_t next = which.next;
  const auto ahead = what < 0.2 ? 1 + wire_.number(2) : 0;  // in another order than others
  ask_for(which, next + ahead);
  if (ahead != 0 && which.state == rank_is::in) ask_for(which, next);
  if (what > 0.9 && next > 1 && which.state == rank_is::in) ask_for(which, 1 + wire_.number(next - 1));
  const bool is_skipped = !is_peace_ && wire_.chance() < skips_;
  which.next += is_skipped ? 2 : 1;
  if (which.state == rank_is::in) step_later(which, is_peace_ ? 150ms + some(200) : 20ms + some(120));
}

void agreement_world::ask_for(rank& which, std::uint64_t number) {
  node& at = *nodes_[which.node];
  const std::uint64_t length = wire_.chance() < 0.05 ? 0 : 1 + wire_.number(1000);
  auto& asked = groups_[which.group].epochs[which.epoch].questions[number];
  const bool is_first = which.state == rank_is::in && asked.lengths.emplace(which.number, length).second;
  if (options_.shows)
    show(name_of(which) + " asks " + std::to_string(number) + (is_first ? ": " : " again: ") + std::to_string(length));
  if (which.asked.emplace(number, waiting{length}).second) expect_answer(which, number, timeout_);
  at.object->agree(which.id, number, length, timeout_, wire_.now());
  settle(at);
}

void agreement_world::take(node& at, const cluster::rank_answer& what) {
  const auto found = std::ranges::find_if(ranks_, [&](const auto& each) { return each->id == what.rank; });
  if (found == ranks_.end()) {
    if (!dying_.contains(what.rank)) fail("an answer to a rank that left");
    return;
  }
  ++answers_;
  rank& who = **found;
  if (nodes_[who.node].get() != &at) return fail("an answer from another node");
  if (options_.shows)
    show(name_of(who) + " hears " + std::to_string(static_cast<int>(what.what)) + " of " +
         std::to_string(what.question) + ": " + std::to_string(what.length) + " " + what.why);
  if (who.state == rank_is::joining) {
    if (what.what == kind::formed) return take_formed(who, what);
    if (what.what != kind::refused) return fail(name_of(who) + " joins and hears something else");
    if (is_calm_) fail(name_of(who) + " is refused: " + what.why);
    who.id = 0;
    who.state = rank_is::out;
    return step_later(who, some(150));
  }
  if (who.asked.erase(what.question) == 0) return fail(name_of(who) + " did not ask " + std::to_string(what.question));
  if (what.what == kind::decided) return take_decided(who, what);
  if (what.what == kind::lost) return take_lost(who, what);
  if (what.what == kind::formed) return fail(name_of(who) + " is in twice");
  if (what.code != error_code::limit_exceeded) fail(name_of(who) + " is refused: " + what.why);
}

void agreement_world::take_formed(rank& who, const cluster::rank_answer& what) {
  who.state = rank_is::in;
  who.epoch = {what.epoch, what.coordinator};
  auto& epoch = groups_[who.group].epochs[who.epoch];
  const auto [place, is_new] = epoch.ranks.emplace(who.number, who.id);
  if (!is_new && place->second != who.id) fail("two lives of " + name_of(who) + " are in one epoch");
  step_later(who, some(50));
}

void agreement_world::take_decided(rank& who, const cluster::rank_answer& what) {
  const group& of = groups_[who.group];
  if (who.state == rank_is::lost)
    return fail(name_of(who) + " hears a number after its loss: " + std::to_string(what.question));
  question& asked = groups_[who.group].epochs[who.epoch].questions[what.question];
  if (!asked.value) asked.value = what.length;
  if (*asked.value != what.length)
    fail(name_of(who) + " hears " + std::to_string(what.length) + " for " + std::to_string(what.question) +
         ", another rank heard " + std::to_string(*asked.value));
  const bool is_whole = asked.lengths.size() == of.size;
  std::uint64_t least = ~std::uint64_t{0};
  for (const auto& [number, length] : asked.lengths) least = std::min(least, length);
  if (what.length != 0 && (!is_whole || what.length != least))
    fail(name_of(who) + " hears " + std::to_string(what.length) + " for " + std::to_string(what.question) +
         ", which is not the least of all");
  if (is_peace_ && what.length != 0) who.has_decided_in_peace = true;
}

void agreement_world::take_lost(rank& who, const cluster::rank_answer& what) {
  if (is_calm_) fail(name_of(who) + " lost its epoch: " + what.why);
  if (who.state == rank_is::lost) return;
  who.state = rank_is::lost;
  // Some try once more, of what they may have heard already, before they leave.
  if (wire_.chance() < 0.3) {
    const std::uint64_t again = 1 + wire_.number(who.next);
    wire_.at(
        wire_.now() + 1ms,
        [this, &who, again, id = who.id] {
          if (who.id == id && who.state == rank_is::lost && nodes_[who.node]->object) ask_for(who, again);
        },
        nodes_[who.node]->name);
  }
  step_later(who, 5ms + some(100));
}

// ---- what goes wrong

void agreement_world::fault() {
  if (is_hostile_ && wire_.chance() < 0.4) return forge();
  if (is_calm_) return;
  const double what = wire_.chance();
  node& one = *nodes_[wire_.number(nodes_.size())];
  if (what < 0.25) {
    crash(one);
  } else if (what < 0.45) {
    const auto until = wire_.now() + some(longest_freeze / 1ms);
    if (options_.shows) show(one.name + " stands still");
    wire_.freeze(one.name, until);
  } else if (what < 0.7) {
    cut();
  } else {
    kill_rank();
  }
}

void agreement_world::crash(node& which) {
  if (!which.object) return;
  if (options_.shows) show("node " + which.name + " dies");
  which.object.reset();
  ++which.life;
  ++which.worker;
  for (const auto& each : ranks_) {
    if (nodes_[each->node].get() != &which || each->state == rank_is::out) continue;
    each->asked.clear();
    const bool attaches_again = each->state == rank_is::in && wire_.chance() < 0.5;
    if (!attaches_again) {
      each->id = 0;
      each->state = rank_is::out;
    }
    step_later(*each, 10ms + some(300));
  }
  const auto away = wire_.chance() < 0.5 ? some(60) : some(1200);
  wire_.at(wire_.now() + away, [this, &which] { start(which); });
  wire_.at(wire_.now() + some(seen_gone_after / 1ms), [this] { look_soon(100ms); });
}

void agreement_world::cut() {
  node& one = *nodes_[wire_.number(nodes_.size())];
  node& other = *nodes_[wire_.number(nodes_.size())];
  if (&one == &other) return;
  if (options_.shows) show(one.name + " is cut off from " + other.name);
  wire_.cut(one.name, other.name);
  if (wire_.chance() < 0.6) wire_.cut(other.name, one.name);
  wire_.at(wire_.now() + seen_gone_after + some(200), [this] { look_soon(100ms); });
  wire_.at(wire_.now() + 50ms + some(1800), [this] {
    wire_.heal();
    look_soon(200ms);
  });
}

/// A rank's process dies; it may be started on another node before its own one has noticed.
void agreement_world::kill_rank() {
  rank& which = *ranks_[wire_.number(ranks_.size())];
  if (which.state == rank_is::out) return;
  if (options_.shows) show(name_of(which) + " dies");
  node& at = *nodes_[which.node];
  const auto id = std::exchange(which.id, 0);
  which.state = rank_is::out;
  which.asked.clear();
  dying_.insert(id);  // what it is told until the node has noticed, nobody hears
  wire_.at(
      wire_.now() + some(20),
      [this, &at, id] {
        dying_.erase(id);
        if (!at.object) return;
        at.object->leave(id, wire_.now());
        settle(at);
      },
      at.name);
  if (wire_.chance() < 0.2) which.node = wire_.number(nodes_.size());
  step_later(which, 20ms + some(300));
}

/// A node that is not the coordinator says what only that one may say.
void agreement_world::forge() {
  const auto& of = groups_[wire_.number(groups_.size())];
  if (of.epochs.empty() || nodes_.size() < 2) return;
  const auto at = std::next(of.epochs.begin(), static_cast<std::ptrdiff_t>(wire_.number(of.epochs.size())));
  node& from = *nodes_[wire_.number(nodes_.size())];
  node& to = *nodes_[wire_.number(nodes_.size())];
  if (&from == &to || !from.object) return;
  if (of.epochs.contains({at->first.first, from.name})) return;  // two nodes may have numbered alike
  std::vector<std::byte> body;
  peer::frame_type type = peer::frame_type::group_says;
  const double what = wire_.chance();
  if (what < 0.6) {
    peer::decided_lengths decided{.group = of.key(), .epoch = at->first.first, .first = 1 + wire_.number(4)};
    for (std::uint64_t i = 0; i < 4; ++i) decided.decisions.push_back({1 + wire_.number(40), forged_length});
    body = peer::encode(decided);
  } else if (what < 0.8) {
    body = peer::encode(peer::lost_epoch{of.key(), at->first.first, true, "a lie"});
  } else {
    type = peer::frame_type::group_formed;
    body = peer::encode(peer::group_formed{of.key(), {from.born(), 99}, {{to.name, to.born(), {{0, 1}, {1, 2}}}}});
  }
  if (options_.shows) show(from.name + " lies to " + to.name);
  post(from.name, from.born(), to, type, std::make_shared<const std::vector<std::byte>>(std::move(body)));
}

std::optional<std::string> agreement_world::run() {
  const auto peace = begun_ + agree_faults_for;
  for (auto when = begun_ + 100ms + some(400); when < peace; when += 50ms + some(600))
    wire_.at(when, [this] { fault(); });
  wire_.run_until(peace);
  make_peace();
  wire_.run_until(peace + agree_peace_for);
  check_peace();
  return failure_;
}

void agreement_world::make_peace() {
  if (options_.shows) show("peace");
  is_peace_ = true;
  timeout_ = 2000ms;
  wire_.heal();
  wire_.habit = {};
  for (const auto& each : nodes_) start(*each);
  look_soon(200ms);
}

void agreement_world::check_peace() {
  for (const auto& each : ranks_) {
    const auto& first = **std::ranges::find_if(ranks_, [&](const auto& one) { return one->group == each->group; });
    if (each->state != rank_is::in || each->epoch != first.epoch) {
      fail(name_of(*each) + " is not in its group's epoch in peace");
    } else if (!each->has_decided_in_peace) {
      fail(name_of(*each) + " hears no number in peace");
    }
  }
}

}  // namespace cenote::testing
