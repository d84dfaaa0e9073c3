// What the comparison with recomputing costs and brings: disks that change, in virtual time.
#include "tiers/prefetch/gate.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstdlib>
#include <iostream>
#include <random>

#include "tests/unit/tiers/prefetch/fake_tier.hpp"

namespace cenote::prefetch {

using namespace testing;

namespace {

nanoseconds time_of(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(seconds));
}

/// Blocks a second as a function of time, in steps that end at the given times. Begins at `start`.
struct disk {
  static constexpr time_point start{std::chrono::hours(1)};
  struct step {
    double until = 0;  ///< seconds after the start
    double speed = 0;  ///< of `full`
  };
  double full = 1000;  ///< blocks a second
  nanoseconds latency = milliseconds(1);
  std::vector<step> steps;  ///< the last one goes on for ever

  [[nodiscard]] std::size_t step_at(double at) const {
    std::size_t i = 0;
    while (i + 1 < steps.size() && steps[i].until <= at) ++i;
    return i;
  }
  [[nodiscard]] double rate(time_point at) const { return full * steps[step_at(seconds_of(at - start))].speed; }
  /// When a block of which the transfer begins at `from` is there.
  [[nodiscard]] time_point end_of(time_point begin) const {
    double at = seconds_of(begin - start);
    double left = 1;
    for (std::size_t i = step_at(at); left > 0; ++i) {
      const double rate = full * steps[i].speed;
      const bool last = i + 1 == steps.size();
      const double here = rate * (last ? 1e9 : steps[i].until - at);
      if (here >= left) return std::max(begin, start + time_of(at + left / rate));
      left -= here;
      at = steps[i].until;
    }
    return begin;
  }
};

constexpr std::size_t requests = 120;

struct scenario {
  const char* name;
  disk (*make)(double run, std::mt19937_64& dice);  ///< `run`: about how long it takes, in seconds
  double pause = 0;                                 ///< the mean between two requests, as a part of a recomputation
  double long_pause = 0;                            ///< seconds, after every tenth request
};

disk steady(double /*run*/, std::mt19937_64& /*dice*/) {
  return {.steps = {{0, 1}}};
}
disk falling(double run, std::mt19937_64& /*dice*/) {
  return {.steps = {{run / 2, 1}, {0, 0.05}}};
}
disk rising(double run, std::mt19937_64& /*dice*/) {
  return {.steps = {{run / 3, 0.05}, {0, 1}}};
}
using lasting = std::uniform_real_distribution<double>;
/// All of the disk and a `share` of it by turns.
disk alternating(double run, lasting whole, lasting part, double share, std::mt19937_64& dice) {
  disk made;
  for (double at = 0; at < 4 * run;) {
    made.steps.push_back({at += whole(dice), 1});
    made.steps.push_back({at += part(dice), share});
  }
  made.steps.push_back({0, 1});
  return made;
}
disk stalling(double run, std::mt19937_64& dice) {
  return alternating(run, lasting(2, 10), lasting(0.2, 2), 0, dice);
}
disk shared(double run, std::mt19937_64& dice) {
  return alternating(run, lasting(0.5, 5), lasting(0.5, 5), 0.3, dice);
}
/// The device stands still for 50 to 500 ms again and again, as on a shared machine.
disk pauses(double run, std::mt19937_64& dice) {
  return alternating(run, lasting(0.2, 2), lasting(0.05, 0.5), 0, dice);
}

constexpr std::array scenarios{
    scenario{"steady", steady, 0.2},
    scenario{"falling", falling, 0.2},
    scenario{"rising", rising, 0.2},
    scenario{"stalling", stalling, 0.2},
    scenario{"idle, then needed", steady, 0.2, 100},
    scenario{"shared", shared, 0.2},
    scenario{"standing still", pauses, 0.2},
};

struct demand {
  std::size_t blocks = 0;
  double pause = 0;  ///< seconds before it
};

struct sums {
  double took = 0, recompute = 0;
  double worst = 0;  ///< of one request, in times of its recomputation
  double waited = 0;
  std::uint64_t tokens = 0;
};

std::vector<demand> demands_of(const scenario& what, double block, std::mt19937_64& dice) {
  std::vector<demand> made;
  for (std::size_t i = 0; i < requests; ++i) {
    const auto blocks = std::uniform_int_distribution<std::size_t>(16, 160)(dice);
    double pause = std::exponential_distribution<double>(1 / (what.pause * block * 80))(dice);
    if (what.long_pause > 0 && i % 10 == 9) pause += what.long_pause;
    made.push_back({blocks, pause});
  }
  return made;
}

void add(sums& to, double waited, std::size_t got, std::size_t of, double block) {
  const double recompute = static_cast<double>(of) * block;
  const double took = waited + static_cast<double>(of - got) * block;
  to.took += took;
  to.recompute += recompute;
  to.waited += waited;
  to.worst = std::max(to.worst, took / recompute);
  to.tokens += got * world::tokens_per_block;
}

options waits_for_all() {
  options chosen;
  chosen.policy = memory::prefetch_policy::wait_complete;
  chosen.threshold_tokens = 0;
  return chosen;
}

/// An engine that computes a block in `block` seconds asks for one chain after the other.
sums run_planner(const disk& over, const std::vector<demand>& all, double block, status& out) {
  world each(waits_for_all());
  each.device = [&](time_point from) { return over.end_of(from); };
  each.latency = over.latency;
  sums made;
  std::uint64_t first = 1;
  std::uint32_t chain = 0;
  const auto pass = [&](double seconds) {
    const time_point until = each.now + time_of(seconds);
    while (each.next_event() && *each.next_event() <= until && each.step()) continue;
    each.now = until;
  };
  for (const demand& want : all) {
    pass(want.pause);
    const auto keys = chain_of(first, want.blocks);
    first += want.blocks;
    for (const std::uint64_t n : keys) each.below.insert(n);
    memory::prefetch_terms terms;
    terms.prefill_rate = static_cast<std::uint64_t>(std::lround(world::tokens_per_block / block));
    each.submit({.chain = ++chain, .keys = keys, .terms = terms});
    BOOST_REQUIRE(each.run_until_answered(chain));
    const auto got = static_cast<std::size_t>(each.lengths[chain]);
    add(made, seconds_of(each.ended[chain] - each.begun[chain]), got, want.blocks, block);
    pass(static_cast<double>(want.blocks - got) * block);
  }
  out = each.plan.status(each.now);
  return made;
}

/// One of several engines at one device: it asks for one chain after the other.
struct asker {
  std::uint32_t number = 0;
  double block = 0;  ///< seconds to compute one
  std::vector<demand> wants;
  std::size_t next = 0;
  time_point ready{};       ///< to ask for the next one
  std::uint32_t chain = 0;  ///< asked for; 0: none
  sums made;
};

void ask(world& world, asker& who, std::uint32_t chain) {
  const demand& want = who.wants[who.next++];
  const auto keys = chain_of(std::uint64_t{chain} << 16, want.blocks);
  for (const std::uint64_t n : keys) world.below.insert(n);
  memory::prefetch_terms terms;
  terms.prefill_rate = static_cast<std::uint64_t>(std::lround(world::tokens_per_block / who.block));
  who.chain = chain;
  world.submit({.session = who.number, .chain = chain, .keys = keys, .terms = terms, .instance = who.number});
}

void take_answer(world& world, asker& who) {
  if (who.chain == 0 || !world.lengths.contains(who.chain)) return;
  const demand& want = who.wants[who.next - 1];
  const auto got = static_cast<std::size_t>(world.lengths[who.chain]);
  add(who.made, seconds_of(world.ended[who.chain] - world.begun[who.chain]), got, want.blocks, who.block);
  const double pause = who.next < who.wants.size() ? who.wants[who.next].pause : 0;
  who.ready = world.ended[who.chain] + time_of(static_cast<double>(want.blocks - got) * who.block + pause);
  who.chain = 0;
}

void run_together(const disk& over, std::vector<asker>& all) {
  world each(waits_for_all());
  each.device = [&](time_point from) { return over.end_of(from); };
  each.latency = over.latency;
  for (asker& who : all) who.ready = each.now + time_of(who.wants.front().pause);
  for (std::uint32_t chain = 1;;) {
    asker* next = nullptr;
    bool waits = false;
    for (asker& who : all) {
      waits |= who.chain != 0;
      if (who.chain != 0 || who.next == who.wants.size()) continue;
      if (next == nullptr || who.ready < next->ready) next = &who;
    }
    if (next == nullptr && !waits) return;
    const auto event = each.next_event();
    if (next != nullptr && (!event || next->ready <= *event)) {
      each.now = std::max(each.now, next->ready);
      ask(each, *next, chain++);
    } else {
      BOOST_REQUIRE(each.step());
    }
    for (asker& who : all) take_answer(each, who);
  }
}

/// Knows the present rate, not the future one: begins what pays by it, and goes on as long as the rest pays.
sums run_oracle(const disk& over, const std::vector<demand>& all, double block) {
  sums made;
  time_point now = disk::start;
  for (const demand& want : all) {
    now += time_of(want.pause);
    const time_point begin = now;
    const auto pays = [&](std::size_t left, nanoseconds delay) {
      const double rate = over.rate(now);
      return rate > 0 && seconds_of(delay) + static_cast<double>(left) / rate < static_cast<double>(left) * block;
    };
    std::size_t got = 0;
    if (pays(want.blocks, over.latency)) {
      now += over.latency;
      while (got < want.blocks && pays(want.blocks - got, {})) {
        const time_point next = over.end_of(now);
        time_point change = now;  // it sees at once that the rate is another one
        const double was = over.rate(now);
        while (change < next && over.rate(change) == was) change += milliseconds(1);
        if (change < next) {
          now = change;
          if (!pays(want.blocks - got, {})) break;
        }
        now = std::max(now, next);
        ++got;
      }
    }
    add(made, seconds_of(now - begin), got, want.blocks, block);
    now += time_of(static_cast<double>(want.blocks - got) * block);
  }
  return made;
}

constexpr std::array needs{0.1, 0.25, 0.5, 0.75, 1.5, 2.0, 4.0, 8.0};

/// The world, and an oracle in one like it.
void compare(const scenario& what, double need, std::uint64_t seed) {
  std::mt19937_64 dice(seed);
  disk over = what.make(1, dice);
  const double block = 1 / (need * over.full);
  const auto all = demands_of(what, block, dice);
  double run = 0;
  for (const demand& each : all) run += each.pause + static_cast<double>(each.blocks) * block;
  over = what.make(run, dice);
  status told;
  const sums ours = run_planner(over, all, block, told);
  const sums best = run_oracle(over, all, block);
  const double factor = ours.took / ours.recompute;
  const double share = best.tokens == 0 ? 1 : static_cast<double>(ours.tokens) / static_cast<double>(best.tokens);
  if (std::getenv("CENOTE_TEST_SHOW") != nullptr) {
    std::cout << what.name << " need " << need << " seed " << seed << ": " << factor << " (oracle "
              << best.took / best.recompute << "), worst " << ours.worst << ", tokens " << share << ", lost "
              << told.lost_s / told.recompute_s << ", probes " << told.probes << ", took " << told.waited_s << "\n";
  }
  const auto where = std::string(what.name) + ", need " + std::to_string(need) + ", seed " + std::to_string(seed);
  BOOST_TEST(factor <= 1.05, where << ": " << factor << " times as long as recomputing");
  BOOST_TEST(ours.worst <= 1.25, where << ": one request took " << ours.worst << " times as long");
  BOOST_TEST(share >= 0.9, where << ": " << share << " of the tokens that an oracle loads");
}

/// Engines of different rates at one device. Together they need more than it gives.
void compare_together(const scenario& what, std::uint64_t seed) {
  std::mt19937_64 dice(seed);
  const disk plain = what.make(1, dice);
  std::vector<asker> all;
  double run = 0;
  for (const double need : {0.1, 0.5, 0.75, 2.0}) {
    asker who;
    who.number = static_cast<std::uint32_t>(all.size() + 1);
    who.block = 1 / (need * plain.full);
    who.wants = demands_of(what, who.block, dice);
    double takes = 0;
    for (const demand& each : who.wants) takes += each.pause + static_cast<double>(each.blocks) * who.block;
    run = run == 0 ? takes : std::min(run, takes);
    all.push_back(std::move(who));
  }
  const disk over = what.make(run, dice);
  run_together(over, all);
  for (const asker& who : all) {
    const double factor = who.made.took / who.made.recompute;
    const auto where =
        std::string(what.name) + ", seed " + std::to_string(seed) + ", engine " + std::to_string(who.number) + ": ";
    if (std::getenv("CENOTE_TEST_SHOW") != nullptr) {
      std::cout << where << factor << ", worst " << who.made.worst << ", tokens " << who.made.tokens << "\n";
    }
    BOOST_TEST(factor <= 1.05, where << factor << " times as long as recomputing");
    BOOST_TEST(who.made.worst <= 1.25, where << "one request took " << who.made.worst << " times as long");
  }
}

/// Each of its own disks and demands. CENOTE_TEST_SEEDS: how many. A build that is not optimised takes minutes for all.
std::uint64_t seeds() {
  if (const char* const asked = std::getenv("CENOTE_TEST_SEEDS")) return std::strtoull(asked, nullptr, 10);
  if (std::getenv("CENOTE_TEST_FULL") != nullptr) return 100;
#ifdef __OPTIMIZE__
  return 4;
#else
  return 2;
#endif
}

}  // namespace

BOOST_AUTO_TEST_SUITE(prefetch_gate)

BOOST_AUTO_TEST_CASE(with_any_disk_it_is_never_slower_than_recomputing_and_loads_what_an_oracle_would) {
  for (const scenario& what : scenarios) {
    for (const double need : needs) {
      for (std::uint64_t seed = 1; seed <= seeds(); ++seed) compare(what, need, seed);
    }
  }
}

BOOST_AUTO_TEST_CASE(engines_that_share_a_device_cost_each_other_no_more_than_computing_would) {
  for (const scenario& what : scenarios) {
    for (std::uint64_t seed = 1; seed <= seeds(); ++seed) compare_together(what, seed);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::prefetch
