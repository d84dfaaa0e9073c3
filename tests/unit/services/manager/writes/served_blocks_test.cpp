// Orders of eviction, and the children that hold their parents back.
#include "services/manager/writes/served_blocks.hpp"

#include <boost/test/unit_test.hpp>

#include "services/manager/writes/start_write.hpp"
#include "tests/unit/services/manager/writes/write_world.hpp"

namespace cenote::manager::test {

using enum answer_code;
using namespace std::chrono_literals;

namespace {

bool has_child(const write_world& world, std::uint64_t key) {
  return has_served_child(world.instance(), world.instance().index->find({.low = key}));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(served_blocks)

BOOST_AUTO_TEST_CASE(a_child_counts_while_it_is_served_in_any_storage) {
  write_world world({.delay_ms = 500});
  const auto grant = world.start({1, 2, 3});
  BOOST_TEST(!has_child(world, 1));
  BOOST_TEST(world.finish(*grant, bools({true, true, false})) == ok);
  BOOST_TEST((has_child(world, 1) && !has_child(world, 2)));
  world.write({1, 2}, {.replicas = 2});
  BOOST_TEST(world.remove({2}) == ok);
  BOOST_TEST(!has_child(world, 1));
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(the_parent_is_the_key_in_front_in_the_first_request) {
  write_world world;
  world.write({1, 2});
  world.write({9, 2, 3});
  const instance_index& index = *world.instance().index;
  const auto parent_of = [&](std::uint64_t key) { return index.parent_of(index.find({.low = key})); };
  BOOST_TEST(parent_of(1) == no_record);
  BOOST_TEST(parent_of(2) == index.find({.low = 1}));
  BOOST_TEST(parent_of(9) == no_record);
  BOOST_TEST(parent_of(3) == index.find({.low = 2}));
  BOOST_TEST((has_child(world, 1) && has_child(world, 2) && !has_child(world, 9)));
}

BOOST_AUTO_TEST_CASE(parents_are_the_same_after_a_recovery) {
  write_world world({.delay_ms = 500});
  world.write({1, 2});
  world.write({9, 2, 3, 3, 4});
  world.write({1, 7, 2, 8});
  (void)world.start({4, 5});
  BOOST_TEST(world.remove({3}) == ok);
  const auto second = world.recovered_copy();
  check_counts(second->state);
  const instance_index& live = *world.instance().index;
  const instance_index& recovered = *second->state.instance_called("i")->index;
  for (const std::uint64_t key : numbers(1, 9)) {
    const std::uint32_t one = live.find({.low = key}), other = recovered.find({.low = key});
    BOOST_TEST_REQUIRE((one == no_record) == (other == no_record));
    if (one == no_record) continue;
    const std::uint32_t parent = live.parent_of(one), other_parent = recovered.parent_of(other);
    BOOST_TEST_REQUIRE((parent == no_record) == (other_parent == no_record), key);
    if (parent != no_record) BOOST_TEST((live.key_of(parent) == recovered.key_of(other_parent)), key);
  }
}

// A refused request takes the last place of a key whose deletion was done meanwhile.
BOOST_AUTO_TEST_CASE(the_number_of_a_key_that_a_refusal_takes_out_has_no_children) {
  write_world world({.max_keys = 6'000});
  world.write({1, 2});  // 2 is a child of 1
  BOOST_TEST(world.remove({1}) == ok);
  start_request large{.instance = "i"};
  for (const std::uint64_t number : numbers(1, 9'000)) large.keys.push_back({.low = number});
  rpc_outcome<start_grant> outcome;
  world.post(
      std::make_unique<start_write>(large, [&](rpc_outcome<start_grant> arrival) { outcome = std::move(arrival); }));
  (void)world.run_commands();
  BOOST_TEST(!outcome.has_value());
  world.settle();
  BOOST_TEST(world.instance().index->find({.low = 1}) == no_record);
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
