// Blocks that a router expects count as the GPU's for a while.
#include "services/indexer/placement/expected_blocks.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/support/indexer_world.hpp"

namespace cenote::indexer {

namespace {

using test::json;
using namespace std::chrono_literals;

struct routed_world : indexer_world {
  routed_world() : number(open(engine)) {
    publish(number, engine, {json{{"type", "BlockStored"}, {"of", "Z:0:16"}}});  // the model's size of blocks
  }

  bool expect(const std::string& prompt, std::chrono::milliseconds ttl = 10s) {
    tokens = tokens_of(prompt);
    const auto keys = questions.keys_of({.model = "m", .tokens = tokens});
    return blocks.expect(engine.pod, "m", keys, now, ttl);
  }
  double score(const std::string& prompt) {
    const pod_scores all = scores({{"of", prompt}});
    return all.contains(engine.pod) ? all.at(engine.pod) : 0;
  }

  case_engine engine;
  publisher_id number;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(expectation)

BOOST_AUTO_TEST_CASE(a_prompt_counts_from_its_routing_until_the_time_ends) {
  routed_world world;
  BOOST_TEST(world.score("A:0:64") == 0);
  BOOST_TEST(world.expect("A:0:64"));
  BOOST_TEST(world.score("A:0:64") == 4);
  world.now += 9900ms;
  world.blocks.advance(world.now);
  BOOST_TEST(world.score("A:0:64") == 4);
  world.now += 2200ms;
  world.blocks.advance(world.now);
  BOOST_TEST(world.score("A:0:64") == 0);
}

BOOST_AUTO_TEST_CASE(a_shorter_time_ends_sooner) {
  routed_world world;
  world.expect("A:0:64", 3s);
  world.expect("B:0:64", 1h);
  world.now += 2900ms;
  world.blocks.advance(world.now);
  BOOST_TEST(world.score("A:0:64") == 4);
  world.now += 3200ms;
  world.blocks.advance(world.now);
  BOOST_TEST(world.score("A:0:64") == 0);
  BOOST_TEST(world.score("B:0:64") == 4);
  world.now += 6s;
  world.blocks.advance(world.now);
  BOOST_TEST(world.score("B:0:64") == 0);
}

BOOST_AUTO_TEST_CASE(the_events_end_the_expectation) {
  routed_world world;
  world.expect("A:0:64");
  world.publish(world.number, world.engine, {json{{"type", "BlockStored"}, {"of", "A:0:64"}}});
  BOOST_TEST(world.score("A:0:64") == 4);
  world.publish(world.number, world.engine, {json{{"type", "BlockRemoved"}, {"of", "A:0:64"}, {"blocks", {2, 4}}}});
  BOOST_TEST(world.score("A:0:64") == 2);
  world.publish(world.number, world.engine, {json{{"type", "AllBlocksCleared"}}});
  BOOST_TEST(world.score("A:0:64") == 0);
}

BOOST_AUTO_TEST_CASE(a_restart_ends_the_expectation) {
  routed_world world;
  world.expect("A:0:64");
  world.blocks.clear(world.number);
  BOOST_TEST(world.score("A:0:64") == 0);
}

BOOST_AUTO_TEST_CASE(a_pod_without_a_publisher_is_expected_to_have_nothing) {
  routed_world world;
  const std::array<std::uint64_t, 1> keys{1};
  BOOST_TEST(!world.blocks.expect("10.9.9.9:1", "m", keys, world.now, 1s));
  BOOST_TEST(!world.blocks.expect(world.engine.pod, "unknown", keys, world.now, 1s));
}

BOOST_AUTO_TEST_CASE(a_clock_that_jumps_ends_all_that_is_over) {
  routed_world world;
  world.expect("A:0:64");
  world.now += 24h;
  world.blocks.advance(world.now);
  BOOST_TEST(world.score("A:0:64") == 0);
  world.expect("B:0:64");
  BOOST_TEST(world.score("B:0:64") == 4);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
