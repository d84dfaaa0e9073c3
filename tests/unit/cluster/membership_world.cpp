#include "tests/unit/cluster/membership_world.hpp"

#include <algorithm>
#include <iostream>
#include <set>

namespace cenote::testing {

using namespace std::chrono_literals;
using cluster::peer_state;

namespace {

constexpr auto faults_for = 10s;
constexpr auto longest_standstill = 10s;
constexpr auto peace_for = 15s;  // longer than the longest pause, a greeting, and gone_after together
constexpr auto noticed_within = 1000ms;
constexpr auto closed_within = 4200ms;
constexpr auto beat = 200ms;

}  // namespace

membership_world::membership_world(std::uint64_t seed, world_options options)
    : wire_(seed), options_(options), begun_(wire_.now()) {
  const auto count = 2 + wire_.number(4);
  for (std::uint64_t i = 0; i < count; ++i) add_node(std::string(1, static_cast<char>('a' + i)), true, true);
  if (wire_.chance() < 0.2) add_node("x", false, true);
  if (wire_.chance() < 0.1) add_node("y", true, false);
  if (wire_.chance() < 0.15) add_node("b", true, true).place = "twin";
}

membership_world::~membership_world() = default;

membership_world::node& membership_world::add_node(const std::string& name, bool knows_secret, bool is_of_cluster) {
  auto& made = *nodes_.emplace_back(std::make_unique<node>());
  made.name = made.place = name;
  made.where = {"10.0.0." + std::to_string(nodes_.size()), 7000};
  made.belongs = knows_secret && is_of_cluster;
  made.options.cluster = is_of_cluster ? "test" : "other";
  const std::string secret = knows_secret ? "the secret of all" : "a wrong secret";
  const auto bytes = std::as_bytes(std::span(secret));
  made.options.shared = peer::secret({bytes.begin(), bytes.end()});
  made.options.seeds.push_back({"10.0.0.1", 7000});
  if (wire_.chance() < 0.5) made.options.seeds.push_back({"10.0.0.2", 7000});
  made.options.jitter_seed = wire_.number(1U << 30U);
  made.options.rules = options_.rules;
  made.started_ms = 1000 + wire_.number(1000000);
  wire_.at(wire_.now() + std::chrono::milliseconds(wire_.number(1000)), [this, &made] { start(made); });
  return made;
}

void membership_world::show(const std::string& what) {
  if (options_.shows)
    std::cerr << std::chrono::duration<double, std::milli>(wire_.now() - begun_).count() << " ms: " << what << '\n';
}

void membership_world::fail(const std::string& what) {
  if (!failure_) failure_ = std::to_string((wire_.now() - begun_) / 1ms) + " ms: " + what;
  show("WRONG: " + what);
}

void membership_world::start(node& which) {
  if (which.network) return;
  show(which.place + " starts");
  ++which.life;
  which.has_left = false;
  which.epoch = 0;
  which.heard.clear();
  peer::network_events events;
  events.opened = [this, &which](peer::link_id link, bool is_dialled, const endpoint&) {
    which.members->opened(link, is_dialled, wire_.now());
    carry_out(which);
  };
  events.closed = [this, &which](peer::link_id link, const error& why) {
    which.members->closed(link, why, wire_.now());
    carry_out(which);
  };
  events.heard = [this, &which](peer::link_id link, std::span<const std::byte> frame) {
    const auto before = which.members->counters().frames;
    std::map<std::string, std::optional<peer::link_id>> links_before;
    for (const auto& each : nodes_) links_before[each->name] = which.members->link_of(each->name);
    (void)which.members->heard(link, frame, wire_.now());
    const std::string from = which.members->name_on(link);
    const auto decoded = peer::decode_frame(frame);
    // What counts as a sign of life: a frame of a node that is in, or the one that let it in.
    const bool is_sign = decoded && decoded->type >= peer::frame_type::beat &&
                         which.members->incarnation_of(from) == decoded->from &&
                         which.members->counters().frames != before;
    if (is_sign || which.members->link_of(from) != links_before[from]) which.heard[from] = wire_.now();
    carry_out(which);
  };
  which.network = std::make_unique<fake_network>(wire_, which.place, which.where, std::move(events));
  which.members = std::make_unique<cluster::membership>(
      cluster::identity{.name = which.name,
                        .where = which.where,
                        .blocks_at = which.where,
                        .born = peer::incarnation::of(which.started_ms, which.worker)},
      which.options, wire_.now());
  which.members->advance(wire_.now());
  carry_out(which);
}

void membership_world::set_alarm(node& which) {
  const std::uint64_t number = ++which.alarm;
  const auto late = wire_.chance() < 0.1 ? std::chrono::milliseconds(wire_.number(10)) : 0ms;
  wire_.at(
      which.members->wake_at() + late,
      [this, &which, number, life = which.life, promised = which.members->wake_at(), late] {
        if (which.life != life || which.alarm != number || !which.members) return;
        if (late > 0ms && wire_.now() - promised <= late) which.standstills.emplace_back(promised, wire_.now());
        which.members->advance(wire_.now());
        carry_out(which);
      },
      which.place);
}

void membership_world::carry_out(node& which) {
  for (cluster::saying& each : which.members->take_sayings()) {
    if (auto* dial = std::get_if<cluster::dial_saying>(&each)) {
      which.members->dialling(dial->where, which.network->dial(dial->where));
    } else if (auto* say = std::get_if<cluster::frame_saying>(&each)) {
      which.network->send(say->to, std::move(say->frame));
    } else if (auto* shut = std::get_if<cluster::close_saying>(&each)) {
      which.network->close(shut->which, shut->why);
    } else if (auto* join = std::get_if<cluster::join_saying>(&each)) {
      which.network->join_blocks(join->which, join->where, join->proof);
    } else if (auto* wait = std::get_if<cluster::await_saying>(&each)) {
      which.network->await_blocks(wait->which, wait->proof);
    }
  }
  for (const cluster::news& each : which.members->take_news())
    show(which.place + ": " + std::to_string(static_cast<int>(each.what)) + " " + each.name + " " + each.why);
  set_alarm(which);
  check(which);
}

void membership_world::check(node& which) {
  const auto view = which.members->current();
  if (view.epoch < which.epoch) fail(which.name + "'s epoch went back");
  which.epoch = view.epoch;
  std::set<std::string> names;
  for (const cluster::identity& each : view.live) {
    if (!names.insert(each.name).second) fail(which.name + " sees " + each.name + " twice");
    const auto found = std::ranges::find(nodes_, each.name, [](const auto& one) { return one->name; });
    if (which.belongs != (*found)->belongs) fail(which.name + " lets " + each.name + " in");
  }
  if (which.has_left) return;
  for (const cluster::peer_row& each : which.members->peers()) check_silence(which, each);
}

/// How long `of` has not heard of a node while it ran itself.
fake_wire::duration membership_world::silence(const node& of, time_point heard) const {
  auto silent = wire_.now() - heard;
  for (const auto& [from, to] : of.standstills) {
    const auto overlap = std::min(to, wire_.now()) - std::max(from, heard);
    silent -= std::max(overlap, fake_wire::duration(0));
  }
  return silent;
}

void membership_world::check_silence(node& of, const cluster::peer_row& row) {
  const auto heard = of.heard.find(row.who.name);
  if (row.link == 0 || heard == of.heard.end()) return;
  const auto silent = silence(of, heard->second);
  // A standstill within a beat looks like waiting for it.
  const auto unseen =
      beat * std::ranges::count_if(of.standstills, [&](const auto& each) { return each.second > heard->second; });
  const std::string text = row.who.name + ", silent for " + std::to_string(silent / 1ms) + " ms";
  if (row.state == peer_state::live && silent > noticed_within) fail(of.place + " uses " + text);
  if (silent > closed_within) fail(of.place + " keeps a link to " + text);
  if (row.state == peer_state::suspect && row.since == wire_.now() && silent < 800ms - 50ms - unseen)
    fail(of.place + " suspects " + text);
}

void membership_world::fault() {
  node& one = any();
  node& other = any();
  const double what = wire_.chance();
  if (what < 0.2 && one.network) {
    const bool says_so = wire_.chance() < 0.7;
    show(one.place + (says_so ? " is killed" : "'s machine is gone"));
    wire_.crash(one.place, says_so);
    one.network.reset();
    one.members.reset();
    ++one.life;
    if (wire_.chance() < 0.5) {
      ++one.worker;
    } else {
      one.started_ms += 1 + wire_.number(100000);
      one.worker = 1;
    }
    wire_.at(wire_.now() + std::chrono::milliseconds(wire_.number(3000)), [this, &one] { start(one); });
  } else if (what < 0.45) {
    const auto until =
        wire_.now() + std::chrono::milliseconds(wire_.number(wire_.chance() < 0.3 ? longest_standstill / 1ms : 1500));
    show(one.place + " stands still for " + std::to_string((until - wire_.now()) / 1ms) + " ms");
    const auto from = std::max(wire_.now(), wire_.frozen_until(one.place));
    wire_.freeze(one.place, until);
    if (until > from) one.standstills.emplace_back(from, until);
  } else if (what < 0.75 && &one != &other) {
    show(one.place + " is cut off from " + other.place);
    wire_.cut(one.place, other.place);
    if (wire_.chance() < 0.6) wire_.cut(other.place, one.place);
    wire_.at(wire_.now() + std::chrono::milliseconds(wire_.number(6000)), [this] { wire_.heal(); });
  } else if (what < 0.85 && one.network && !one.has_left) {
    show(one.place + " leaves");
    one.members->leave(wire_.now());
    one.has_left = true;
    carry_out(one);
    wire_.at(wire_.now() + 50ms, [this, &one, life = one.life] {
      if (one.life != life) return;
      wire_.crash(one.place, true);
      one.network.reset();
      one.members.reset();
      ++one.life;
      one.started_ms += 1000;
    });
    wire_.at(wire_.now() + std::chrono::milliseconds(100 + wire_.number(3000)), [this, &one] { start(one); });
  } else if (what < 0.9) {
    wire_.habit.spread = std::chrono::microseconds(wire_.number(20000));
  }
}

std::optional<std::string> membership_world::run() {
  const auto peace = begun_ + faults_for;
  for (auto when = begun_ + 500ms; when < peace; when += std::chrono::milliseconds(100 + wire_.number(1500)))
    wire_.at(when, [this] { fault(); });
  wire_.run_until(peace);
  show("peace");
  wire_.heal();
  wire_.habit = {};
  wire_.run_until(peace + longest_standstill + peace_for);
  check_peace();
  return failure_;
}

std::set<std::string> membership_world::seen_by(const node& one) const {
  std::set<std::string> seen;
  for (const cluster::identity& each : one.members->current().live) seen.insert(each.name);
  return seen;
}

/// One of them is a node like any other; the other one is alone.
void membership_world::check_twins(const std::string& name) {
  std::set<std::size_t> sizes;
  for (const auto& each : nodes_) {
    if (each->name == name) sizes.insert(seen_by(*each).size());
  }
  const auto others = std::ranges::count_if(nodes_, [](const auto& each) { return each->belongs; }) - 1;
  if (sizes != std::set<std::size_t>{1, static_cast<std::size_t>(others)}) fail("two nodes named " + name + " are in");
}

void membership_world::check_peace() {
  for (const auto& one : nodes_) {
    if (!one->network) return fail(one->place + " was not started again");
  }
  for (const auto& one : nodes_) {
    if (one->place == "twin" && nodes_.size() > 2) check_twins(one->name);
    const bool is_twin = std::ranges::count(nodes_, one->name, [](const auto& each) { return each->name; }) > 1;
    if (is_twin) continue;
    std::set<std::string> wanted;
    for (const auto& each : nodes_) {
      if (each->belongs == one->belongs && (one->belongs || each == one)) wanted.insert(each->name);
    }
    const auto seen = seen_by(*one);
    std::string text;
    for (const std::string& each : seen) text += " " + each;
    if (seen != wanted) fail(one->place + " sees" + text + " in peace, of " + std::to_string(wanted.size()));
    // Those who are refused come again now and then.
    const auto most = wanted.size() - 1 + 2 * (nodes_.size() - wanted.size());
    if (one->belongs && one->network->open_links() > most)
      fail(one->place + " has " + std::to_string(one->network->open_links()) + " links");
  }
}

}  // namespace cenote::testing
