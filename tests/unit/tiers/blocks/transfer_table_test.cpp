// Blocks on their way to and from a tier below.
#include "tiers/blocks/transfer_table.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::transfer_table_test {

using namespace testing;

namespace {

struct fixture : bare_parts {
  fixture() : bare_parts(with_lower()) {}
  static store_options with_lower() {
    store_options options = options_of(5 << 20, 1 << 20);
    options.edges.resize(2);
    options.edges[0].write_window = 2 * 4096;
    options.edges[0].read_window = 2 * 4096;
    return options;
  }
  moving_block down(bool leaves) { return {.owner = &in, .ref = {}, .stride = 4096, .leaves = leaves}; }
  instance& in = add();
  transfer_table& table = of.transfers;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(transfer_table_suite, fixture)

BOOST_AUTO_TEST_CASE(a_transfer_ends_once) {
  const std::uint64_t token = table.begin_moving(3, down(true));
  BOOST_TEST(table.serial_of(3) == token);
  BOOST_TEST(table.record_moving(token) == 3U);
  BOOST_TEST(table.writing_bytes() == 4096U);
  BOOST_TEST(table.leaving_bytes() == 4096U);
  const auto ended = table.take_moving(token);
  BOOST_REQUIRE(ended.has_value());
  BOOST_TEST(ended->first == 3U);
  BOOST_TEST(table.writing_bytes() == 0U);
  BOOST_TEST(table.leaving_bytes() == 0U);
  BOOST_TEST(!table.take_moving(token).has_value());
}

BOOST_AUTO_TEST_CASE(tokens_grow_and_are_never_used_again) {
  const std::uint64_t first = table.begin_moving(3, down(false));
  (void)table.take_moving(first);
  BOOST_TEST(table.begin_moving(3, down(false)) > first);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_to_leave_is_in_no_policy_until_it_stays) {
  (void)table.begin_moving(3, down(true));
  BOOST_TEST(!table.in_policy(3));
  table.stay(3);
  BOOST_TEST(table.in_policy(3));
  BOOST_TEST(table.leaving_bytes() == 0U);
  BOOST_TEST(table.writing_bytes() == 4096U);  // it is still written
}

BOOST_AUTO_TEST_CASE(an_instance_leaves_as_much_of_the_window_as_it_takes_while_there_is_another_one) {
  of.all.options.edges[0].write_window = 8 * 4096;
  const auto taken_by = [&](instance& owner) {
    std::uint32_t count = 0;
    for (; table.may_write(0, pool_in(owner)); ++count)
      (void)table.begin_moving(100 * owner.number + count, {.owner = &owner, .ref = {}, .stride = 4096});
    return count;
  };
  instance& other = add("two");
  BOOST_TEST(taken_by(in) == 4U);
  BOOST_TEST(taken_by(other) == 2U);
}

BOOST_AUTO_TEST_CASE(windows_bound_what_is_on_its_way_but_let_one_block_through) {
  const pool& any = pool_in(in);
  BOOST_TEST(table.may_write(0, any));
  (void)table.begin_moving(3, down(false));
  BOOST_TEST(table.may_write(0, any));
  (void)table.begin_moving(4, down(false));
  BOOST_TEST(!table.may_write(0, any));
  BOOST_TEST(table.may_load(0, any));
}

BOOST_AUTO_TEST_CASE(each_tier_below_has_windows_and_lists_of_its_own) {
  moving_block far = down(false);
  far.edge = 1;
  const std::uint64_t token = table.begin_moving(3, far);
  table.queue_write(1, {.token = token, .full = {}, .key = {}, .memory = {}});
  BOOST_TEST(table.take_writes(0).empty());
  BOOST_TEST(table.take_writes(1).size() == 1U);
  BOOST_TEST(table.writing_bytes() == 4096U);
  BOOST_TEST(table.may_write(0, pool_in(in)));
  BOOST_TEST(!table.may_write(1, pool_in(in)));  // its window is 0: one block at a time
}

BOOST_AUTO_TEST_CASE(a_load_that_nobody_wants_any_more_goes_on_unwanted) {
  const std::uint64_t token = table.begin_moving(5, {.owner = &in, .ref = {}, .stride = 4096, .up = true});
  const block_key key = reduce_key(key_of(1).view(), 0);
  in.loading.emplace(key, 5);
  table.abandon_load(in, key);
  BOOST_TEST(!in.loading.contains(key));
  BOOST_TEST(table.loading_bytes() == 4096U);  // its memory is written to until it ends
  BOOST_TEST(table.take_moving(token)->second.unwanted);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::transfer_table_test
