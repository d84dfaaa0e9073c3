#include "simulation/simulation.hpp"

#include <boost/test/unit_test.hpp>
#include <vector>

#include "simulation/workload.hpp"

namespace cenote::simulation {

namespace {

/// Each request as a read and a write behind it.
trace halves(const trace& whole) {
  trace made(whole.block_tokens());
  for (const trace::entry& each : whole.requests()) {
    trace::arrival request{.time_ms = each.time_ms, .tokens = each.tokens};
    request.access = chain_access::read;
    made.add(request, whole.ids(each));
    request.access = chain_access::write;
    made.add(request, whole.ids(each));
  }
  return made;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simulations)

BOOST_AUTO_TEST_CASE(a_read_and_the_write_behind_it_are_one_request) {
  const trace whole = generate("chat:requests=400")->first(400);
  const trace parts = halves(whole);
  for (const replay_order order : {replay_order::forward, replay_order::reverse}) {
    for (const std::uint32_t capacity : {1U, 20U, 100U, 700U, whole.distinct()}) {
      const replay_sums expected = *simulate(whole, "lru", capacity, order);
      const replay_sums got = *simulate(parts, "lru", capacity, order);
      BOOST_TEST_CONTEXT("at " << capacity) {
        BOOST_TEST(got.prefix_hits == expected.prefix_hits);
        BOOST_TEST(got.prefix_tokens == expected.prefix_tokens);
        BOOST_TEST(got.inserts == expected.inserts);
        BOOST_TEST(got.blocks == expected.blocks);
        BOOST_TEST(got.tokens == expected.tokens);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_read_brings_nothing_in_and_a_write_hits_nothing) {
  const std::vector<std::uint64_t> ids{1, 2};
  trace requests;
  requests.add({.tokens = 1'024, .access = chain_access::read}, ids);
  requests.add({.tokens = 1'024, .access = chain_access::read}, ids);
  BOOST_TEST(simulate(requests, "lru", 10, replay_order::reverse)->prefix_hits == 0U);
  requests.add({.tokens = 1'024, .access = chain_access::write}, ids);
  requests.add({.tokens = 1'024, .access = chain_access::write}, ids);
  BOOST_TEST(simulate(requests, "lru", 10, replay_order::reverse)->prefix_hits == 0U);
  requests.add({.tokens = 1'024, .access = chain_access::read}, ids);
  const replay_sums sums = *simulate(requests, "lru", 10, replay_order::reverse);
  BOOST_TEST(sums.prefix_hits == 2U);
  BOOST_TEST(sums.stream_hits == 2U);
  BOOST_TEST(sums.inserts == 2U);
}

BOOST_AUTO_TEST_CASE(belady_is_refused_where_reads_and_writes_are_apart) {
  trace requests;
  requests.add({.tokens = 512, .access = chain_access::read}, std::vector<std::uint64_t>{1});
  BOOST_TEST(!simulate(requests, "belady", 10, replay_order::forward));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
