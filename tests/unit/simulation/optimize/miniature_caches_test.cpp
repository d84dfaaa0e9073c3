#include "simulation/optimize/miniature_caches.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "simulation/simulation.hpp"
#include "simulation/workload.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/packed_trace.hpp"

namespace cenote::simulation {

namespace {

constexpr std::uint32_t part_blocks = miniature_caches::fewest_part_blocks;

std::vector<const eviction::policy_info*> all_rows() {
  std::vector<const eviction::policy_info*> rows;
  for (const std::string_view name : miniature_caches::policy_names)
    rows.push_back(miniature_caches::find_policy(name));
  return rows;
}

miniature_caches run(const trace& requests, std::uint32_t capacity, std::uint64_t salt) {
  miniature_caches caches(all_rows(), {.capacity = capacity, .part_blocks = part_blocks, .salt = salt});
  for (const trace::entry& each : requests.requests()) caches.add(requests.ids(each), each.tenths());
  return caches;
}

double misses_of(const trace& requests, std::string_view policy, std::uint32_t capacity) {
  const auto sums = simulate(requests, policy, capacity, replay_order::reverse);
  BOOST_REQUIRE(sums.has_value());
  return static_cast<double>(requests.stream().size() - sums->prefix_hits);
}

/// Each policy at each capacity is within three of the standard errors that it states, but once in fifty times, and on
/// the average of ten samples within one.
void check_samples(const trace& requests, const std::vector<std::uint32_t>& capacities) {
  constexpr std::uint64_t samples = 10;
  constexpr std::size_t policies = miniature_caches::policy_names.size();
  std::uint64_t outside = 0;
  for (const std::uint32_t capacity : capacities) {
    std::array<double, policies> exact{};
    std::array<double, policies> differences{};
    std::array<double, policies> errors{};
    for (std::size_t i = 0; i < policies; ++i)
      exact[i] = misses_of(requests, miniature_caches::policy_names[i], capacity);
    for (std::uint64_t seed = 0; seed < samples; ++seed) {
      const auto caches = run(requests, capacity, std::mt19937_64(seed)());
      BOOST_REQUIRE(caches.rate() < 1);
      for (std::size_t i = 0; i < policies; ++i) {
        const auto [misses, error] = caches.misses_of(i);
        outside += std::abs(misses - exact[i]) > 3 * error ? 1 : 0;
        differences[i] += misses - exact[i];
        errors[i] += error;
      }
    }
    for (std::size_t i = 0; i < policies; ++i) {
      BOOST_TEST_CONTEXT(miniature_caches::policy_names[i] << " at " << capacity) {
        BOOST_TEST(std::abs(differences[i]) < errors[i]);
      }
    }
  }
  BOOST_TEST(outside * 50 <= samples * capacities.size() * policies);
}

/// Sessions that grow by a few blocks from one of 16 common beginnings and begin anew after some turns.
trace growing_sessions(std::size_t count, std::size_t blocks) {
  std::mt19937_64 random(1);
  trace made;
  std::vector<std::vector<std::uint64_t>> sessions(count);
  std::uint64_t next = 128;
  std::uint64_t time_ms = 0;
  while (made.stream().size() < blocks) {
    auto& session = sessions[random() % count];
    if (session.empty() || random() % 6 == 0) {
      session.clear();
      const std::uint64_t beginning = random() % 16 * 8;
      for (std::uint64_t i = 0; i < 8; ++i) session.push_back(beginning + i);
    }
    for (std::uint64_t n = random() % 12; n > 0; --n) session.push_back(next++);
    made.add(time_ms, session.size() * trace::tokens_per_block, session);
    time_ms += 100;
  }
  return made;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(miniature_cache_sets)

BOOST_AUTO_TEST_CASE(a_capacity_of_no_more_than_the_blocks_of_all_parts_is_simulated_whole) {
  const trace chat = generate("chat:requests=600,rate=3,think=20")->full_blocks(600);
  for (const std::uint32_t capacity : {0U, 1U, 40U, 700U, 8'192U}) {
    const auto caches = run(chat, capacity, 7);
    BOOST_TEST(caches.rate() == 1);
    for (std::size_t i = 0; i < miniature_caches::policy_names.size(); ++i) {
      const std::string_view policy = miniature_caches::policy_names[i];
      BOOST_TEST_CONTEXT(policy << " at " << capacity) {
        BOOST_TEST(caches.misses_of(i).misses == misses_of(chat, policy, capacity));
        BOOST_TEST(caches.misses_of(i).error == 0);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(conversations_are_within_the_stated_errors) {
  check_samples(generate("chat:requests=6000,rate=3,think=200")->full_blocks(6'000), {9'000, 18'000});
}

BOOST_AUTO_TEST_CASE(a_recorded_trace_is_within_the_stated_errors) {
  const trace recorded = testing::load_packed_trace(testing::source_folder() / "tests/data/traces/conversation.txt");
  check_samples(recorded.full_blocks(recorded.requests().size()), {10'000, 40'000});
}

// A part sees few requests of a session, and from its first sampled block on alone.
BOOST_AUTO_TEST_CASE(turns_that_a_sample_has_no_block_of_count_in_their_sessions) {
  check_samples(growing_sessions(600, 600'000), {16'000});
}

BOOST_AUTO_TEST_CASE(policies_that_evict_within_chains_or_look_ahead_are_not_known) {
  for (const eviction::policy_info* row : all_rows()) BOOST_TEST(row != nullptr);
  for (const std::string_view name : {"fifo", "2q", "s3fifo", "sieve", "clock", "auto", "random", "belady", ""})
    BOOST_TEST(miniature_caches::find_policy(name) == nullptr);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
