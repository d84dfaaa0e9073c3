#include "simulation/pool_simulation.hpp"

#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>

namespace cenote::simulation {

namespace {

/// Sessions that grow, restart and share beginnings.
trace sessions_of(unsigned seed) {
  std::mt19937_64 random(seed);
  trace of;
  std::vector<std::vector<std::uint64_t>> sessions(60);
  std::uint64_t next = 100;
  for (std::uint64_t i = 0; i < 2'000; ++i) {
    auto& session = sessions[random() % sessions.size()];
    if (session.empty() || random() % 8 == 0) session = {random() % 5};
    for (std::uint64_t more = random() % 6; more > 0; --more) session.push_back(next++);
    of.add(i * 250, session.size() * 512, session);
  }
  return of;
}

trace trace_of(const std::vector<std::vector<std::uint64_t>>& requests) {
  trace of;
  for (const auto& ids : requests) of.add(0, ids.size() * 512, ids);
  return of;
}

pool_sums simulated(const trace& of, const node_pool& how, pool_route route = pool_route::round_robin) {
  const auto sums = simulate(of, how, homes_of(of, how.nodes), routes_of(of, how.nodes, route), replay_order::reverse);
  BOOST_REQUIRE(sums.has_value());
  return *sums;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(pool_simulation)

BOOST_AUTO_TEST_CASE(a_pool_of_one_node_is_that_node_to_the_block) {
  const trace of = sessions_of(1);
  for (const std::string policy : {"lru", "arc", "s3fifo", "tblru", "auto"}) {
    for (const auto order : {replay_order::forward, replay_order::reverse}) {
      for (const std::optional<double> copies : {std::optional<double>(), {0.0}, {0.5}}) {
        const node_pool how{.nodes = 1, .capacity = 120, .policy = policy, .copies = copies};
        const auto pool = simulate(of, how, homes_of(of, 1), routes_of(of, 1, pool_route::prefix), order);
        const auto node = simulate(of, policy, 120, order);
        BOOST_TEST(pool->all.prefix_tokens == node->prefix_tokens, policy);
        BOOST_TEST(pool->all.stream_hits == node->stream_hits, policy);
        BOOST_TEST(pool->all.evictions == node->evictions, policy);
        BOOST_TEST(pool->local_tokens == node->prefix_tokens, policy);
        BOOST_TEST(pool->messages() == 0U);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(with_room_for_all_no_node_misses_what_any_has_stored) {
  const trace of = sessions_of(2);
  const auto one = simulate(of, "lru", of.distinct(), replay_order::reverse);
  for (const std::uint32_t nodes : {2U, 3U, 8U}) {
    const auto pool = simulated(of, {.nodes = nodes, .capacity = of.distinct(), .copies = 0.05});
    BOOST_TEST(pool.all.prefix_tokens == one->prefix_tokens);
    BOOST_TEST(pool.local_tokens < pool.all.prefix_tokens);
    BOOST_TEST(pool.fetched > 0U);
    BOOST_TEST(pool.fetched <= pool.all.prefix_hits - pool.local_hits);
  }
}

BOOST_AUTO_TEST_CASE(what_a_node_fetched_is_a_local_hit_the_next_time) {
  const trace of = trace_of({{1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}});
  const std::vector<std::uint32_t> homes{0, 0, 0};
  const std::vector<std::uint32_t> routes{0, 1, 1, 1};
  const auto sums = simulate(of, {.nodes = 2, .capacity = 10, .copies = 0.5}, homes, routes, replay_order::reverse);
  BOOST_TEST(sums->all.prefix_hits == 9U);
  BOOST_TEST(sums->local_hits == 6U);
  BOOST_TEST(sums->fetched == 3U);
  BOOST_TEST(sums->fetches == 1U);
  BOOST_TEST(sums->offers == 0U);
}

BOOST_AUTO_TEST_CASE(what_is_computed_elsewhere_is_offered_to_its_home) {
  const trace of = trace_of({{1, 2, 3}, {1, 2, 3}});
  const std::vector<std::uint32_t> homes{0, 1, 2};
  const auto sums = simulate(of, {.nodes = 3, .capacity = 10, .copies = 0.0}, homes, std::vector<std::uint32_t>{0, 1},
                             replay_order::reverse);
  BOOST_TEST(sums->accepted == 2U);
  BOOST_TEST(sums->offers == 2U);
  BOOST_TEST(sums->locates == 2U + 2U);
  BOOST_TEST(sums->all.prefix_hits == 3U);
  BOOST_TEST(sums->local_hits == 0U);
  BOOST_TEST(sums->fetched == 2U);
}

BOOST_AUTO_TEST_CASE(copies_go_first_when_they_take_more_than_their_share) {
  // Node 0 stores 1 to 4, which are its own, and then 11 to 14, which are not: with room for six.
  const trace of = trace_of({{1}, {2}, {3}, {4}, {11}, {12}, {13}, {14}, {1}, {2}, {3}, {4}});
  const std::vector<std::uint32_t> homes{0, 0, 0, 0, 1, 1, 1, 1};
  const std::vector<std::uint32_t> routes(12, 0);
  const auto hits = [&](std::optional<double> copies) {
    const node_pool how{.nodes = 2, .capacity = 6, .copies = copies};
    return simulate(of, how, homes, routes, replay_order::reverse)->local_hits;
  };
  BOOST_TEST(hits(0.0) == 4U);
  BOOST_TEST(hits(0.2) == 4U);
  BOOST_TEST(hits({}) == 0U);  // the oldest ones went, and each now takes the place of the next
}

BOOST_AUTO_TEST_CASE(a_fetch_brings_all_of_a_prefix_though_copies_have_a_small_share) {
  const trace of = trace_of({{1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}});
  const std::vector<std::uint32_t> homes{0, 0, 0, 0};
  const auto sums = simulate(of, {.nodes = 2, .capacity = 4, .copies = 0.0}, homes, std::vector<std::uint32_t>{0, 1, 1},
                             replay_order::reverse);
  BOOST_TEST(sums->all.prefix_hits == 8U);
  BOOST_TEST(sums->local_hits == 4U);
}

BOOST_AUTO_TEST_CASE(nodes_that_keep_all_copies_hold_less_than_those_with_a_rule) {
  const trace of = sessions_of(3);
  const std::uint32_t all = of.distinct() / 8;
  const auto one = simulate(of, "lru", all, replay_order::reverse);
  const auto ruled = simulated(of, {.nodes = 4, .capacity = all / 4, .copies = 0.05});
  const auto plain = simulated(of, {.nodes = 4, .capacity = all / 4});
  BOOST_TEST(plain.all.prefix_tokens < ruled.all.prefix_tokens);
  BOOST_TEST(static_cast<double>(ruled.all.prefix_tokens) > 0.8 * static_cast<double>(one->prefix_tokens));
}

BOOST_AUTO_TEST_CASE(routes_by_prefix_keep_a_conversation_at_one_node_and_use_all_nodes) {
  const trace of = trace_of({{1, 2}, {1, 2, 3}, {1, 2, 3, 4}, {1, 9}});
  const auto routes = routes_of(of, 5, pool_route::prefix);
  BOOST_TEST(routes[0] == routes[1]);
  BOOST_TEST(routes[1] == routes[2]);
  std::vector<std::uint32_t> used(4);
  for (const std::uint32_t node : routes_of(sessions_of(4), 4, pool_route::prefix)) ++used[node];
  for (const std::uint32_t requests : used) BOOST_TEST(requests > 100U);
  BOOST_TEST(routes_of(of, 3, pool_route::round_robin) == (std::vector<std::uint32_t>{0, 1, 2, 0}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(homes_are_spread_over_all_nodes) {
  const trace of = sessions_of(5);
  std::vector<double> share(8);
  for (const std::uint32_t home : homes_of(of, 8)) share[home] += 1.0 / of.distinct();
  for (const double each : share) BOOST_TEST(each == 1.0 / 8, boost::test_tools::tolerance(0.2));
}

BOOST_AUTO_TEST_CASE(policies_that_know_the_future_are_refused) {
  const trace of = sessions_of(6);
  const auto homes = homes_of(of, 2);
  const auto routes = routes_of(of, 2, pool_route::round_robin);
  BOOST_TEST(
      !simulate(of, {.nodes = 2, .capacity = 9, .policy = "belady"}, homes, routes, replay_order::forward).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
