// How the ends of a ring wake each other, in every order of steps: with its rules nobody sleeps while something waits,
// and without any one of them the search finds who does.
//
//   who pushes                     who takes
//   tail += 1                      takes what is there, else
//   seq_cst fence                  sleeps := 1
//   sleeps? exchange it for 0      seq_cst fence
//   it was 1: ring                 nothing came: wait for a ring; sleeps := 0
//
// Stores wait in buffers as on x86 (TSO); an exchange empties its thread's buffer first.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>

namespace {

struct rules {
  bool pusher_fences = true;
  bool taker_fences = true;
  bool taker_looks_again = true;  ///< after the fence
  bool who_claims_rings = true;   ///< else the last push claims the wake and leaves the ring to others
};

constexpr std::uint8_t pushes = 3;
enum variable : std::uint8_t { tail, sleeps, variables };
enum thread : std::uint8_t { pusher, taker };

struct buffered {
  std::uint8_t to = variables;
  std::uint8_t value = 0;
  auto operator<=>(const buffered&) const = default;
};

struct state {
  std::array<std::uint8_t, variables> memory{};
  std::array<std::array<buffered, 4>, 2> buffers{};
  std::array<std::uint8_t, 2> held{};  ///< stores in each buffer
  std::array<std::uint8_t, 2> step{};
  std::uint8_t pushed = 0;
  std::uint8_t taken = 0;
  std::uint8_t rings = 0;
  auto operator<=>(const state&) const = default;
};

void store(state& s, thread thread, variable to, std::uint8_t value) {
  s.buffers[thread][s.held[thread]++] = {to, value};
}

std::uint8_t load(const state& s, thread thread, variable from) {
  for (std::size_t i = s.held[thread]; i-- > 0;) {
    if (s.buffers[thread][i].to == from) return s.buffers[thread][i].value;
  }
  return s.memory[from];
}

bool full(const state& s, thread thread) {
  return s.held[thread] == s.buffers[thread].size();
}

/// The oldest store of `by` becomes visible.
std::optional<state> drained(state s, thread thread) {
  if (s.held[thread] == 0) return std::nullopt;
  s.memory[s.buffers[thread][0].to] = s.buffers[thread][0].value;
  std::shift_left(s.buffers[thread].begin(), s.buffers[thread].end(), 1);
  s.buffers[thread][--s.held[thread]] = {};
  return s;
}

std::optional<state> push_step(state s, const rules& with) {
  if (full(s, pusher)) return std::nullopt;
  switch (s.step[pusher]) {
    case 0:
      if (s.pushed == pushes) return std::nullopt;
      store(s, pusher, tail, ++s.pushed);
      s.step[pusher] = 1;
      return s;
    case 1:
      if (with.pusher_fences && s.held[pusher] != 0) return std::nullopt;
      s.step[pusher] = load(s, pusher, sleeps) != 0 ? 2 : 0;
      return s;
    case 2: {  // the exchange
      if (s.held[pusher] != 0) return std::nullopt;
      const bool slept = std::exchange(s.memory[sleeps], std::uint8_t{0}) != 0;
      s.step[pusher] = slept && (with.who_claims_rings || s.pushed != pushes) ? 3 : 0;
      return s;
    }
    default:
      ++s.rings;
      s.step[pusher] = 0;
      return s;
  }
}

std::optional<state> take_step(state s, const rules& with) {
  if (full(s, taker)) return std::nullopt;
  const bool waits = load(s, taker, tail) != s.taken;
  switch (s.step[taker]) {
    case 0:
      if (waits) {
        s.taken = load(s, taker, tail);
      } else {
        store(s, taker, sleeps, 1);
        s.step[taker] = 1;
      }
      return s;
    case 1:
      if (with.taker_fences && s.held[taker] != 0) return std::nullopt;
      s.step[taker] = waits && with.taker_looks_again ? 3 : 2;
      return s;
    case 2:  // asleep
      if (s.rings == 0) return std::nullopt;
      s.rings = 0;
      s.step[taker] = 3;
      return s;
    default:
      store(s, taker, sleeps, 0);
      s.step[taker] = 0;
      return s;
  }
}

struct search {
  std::size_t states = 0;
  bool slept_on = false;  ///< at rest, something waits
  bool woken = false;     ///< a ring ended a sleep
};

search explore(const rules& with) {
  search found;
  std::set<state> seen{state{}};
  std::deque<state> open{state{}};
  while (!open.empty()) {
    const state from = open.front();
    open.pop_front();
    ++found.states;
    bool at_rest = true;
    for (const auto& to : {push_step(from, with), take_step(from, with), drained(from, pusher), drained(from, taker)}) {
      if (!to) continue;
      at_rest = false;
      if (seen.insert(*to).second) open.push_back(*to);
    }
    found.woken |= from.rings != 0 && from.step[taker] == 2;
    found.slept_on |= at_rest && from.taken != pushes;
  }
  return found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(wake_model)

BOOST_AUTO_TEST_CASE(nobody_sleeps_while_something_waits_in_any_order_of_steps) {
  const search all = explore({});
  BOOST_TEST_MESSAGE(all.states << " states");
  BOOST_TEST(!all.slept_on);
  BOOST_TEST(all.woken);
}

BOOST_AUTO_TEST_CASE(without_either_fence_somebody_sleeps_on) {
  BOOST_TEST(explore({.pusher_fences = false}).slept_on);
  BOOST_TEST(explore({.taker_fences = false}).slept_on);
}

BOOST_AUTO_TEST_CASE(who_does_not_look_again_before_sleeping_sleeps_on) {
  BOOST_TEST(explore({.taker_looks_again = false}).slept_on);
}

BOOST_AUTO_TEST_CASE(who_claims_a_wake_and_does_not_ring_lets_the_other_side_sleep_on) {
  BOOST_TEST(explore({.who_claims_rings = false}).slept_on);
}

BOOST_AUTO_TEST_SUITE_END()
