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

/// A window of eight blocks that instances write through.
struct window_fixture : fixture {
  window_fixture() { of.all.options.edges[0].write_window = 8 * 4096; }
  std::uint32_t write_all(instance& owner) {
    std::uint32_t count = 0;
    for (; table.may_write(0, pool_in(owner)); ++count)
      tokens.push_back(table.begin_moving(next_record++, {.owner = &owner, .ref = {}, .stride = 4096}));
    return count;
  }
  void end_oldest(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) (void)table.take_moving(tokens.at(i));
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
  }
  instance& other = add("two");
  std::vector<std::uint64_t> tokens;
  std::uint32_t next_record = 100;
};

BOOST_FIXTURE_TEST_CASE(an_instance_that_writes_alone_has_the_whole_window, window_fixture) {
  BOOST_TEST(write_all(in) == 8U);
}

BOOST_FIXTURE_TEST_CASE(an_instance_leaves_as_much_of_the_window_as_it_takes_while_another_one_waits, window_fixture) {
  BOOST_TEST(write_all(in) == 8U);
  BOOST_TEST(write_all(other) == 0U);
  end_oldest(4);
  BOOST_TEST(write_all(in) == 0U);
  BOOST_TEST(write_all(other) == 2U);
  end_oldest(4);
  BOOST_TEST(write_all(in) == 3U);
}

BOOST_FIXTURE_TEST_CASE(an_instance_that_asks_no_more_has_no_share_of_the_window, window_fixture) {
  BOOST_TEST(write_all(in) == 8U);
  BOOST_TEST(write_all(other) == 0U);
  end_oldest(7);
  BOOST_TEST(write_all(in) == 3U);  // four of eight: the other one may still come
  end_oldest(1);                    // a whole window was written since
  BOOST_TEST(write_all(in) == 5U);
}

/// A user with three instances in two groups, and another user.
struct users_fixture : window_fixture {
  users_fixture() {
    of.all.options.edges[0].write_window = 16 * 4096;
    stranger.owner = 7;
  }
  instance& grouped = add("three", "group");
  instance& stranger = add("four", "strangers");
};

BOOST_FIXTURE_TEST_CASE(the_instances_of_a_user_leave_another_user_as_much_of_the_window_as_they_take, users_fixture) {
  BOOST_TEST(write_all(in) == 16U);
  for (instance* const each : {&other, &grouped, &stranger}) BOOST_TEST(write_all(*each) == 0U);
  end_oldest(12);
  BOOST_TEST(write_all(in) + write_all(other) == 0U);  // they have four of the eight that their user may have
  BOOST_TEST(write_all(grouped) == 2U);
  BOOST_TEST(write_all(stranger) == 5U);
}

BOOST_FIXTURE_TEST_CASE(the_instances_of_a_group_leave_another_group_as_much_as_they_take, users_fixture) {
  BOOST_TEST(write_all(in) == 16U);
  for (instance* const each : {&other, &grouped}) BOOST_TEST(write_all(*each) == 0U);
  end_oldest(12);
  BOOST_TEST(write_all(grouped) == 6U);
  BOOST_TEST(write_all(other) == 1U);  // its group has four more
}

BOOST_FIXTURE_TEST_CASE(who_pays_for_what_is_under_way_is_who_paid_when_it_began, users_fixture) {
  BOOST_TEST(write_all(stranger) == 16U);
  stranger.owner = 8;
  end_oldest(16);
  BOOST_TEST(table.writing_bytes(0) == 0U);
  BOOST_TEST(write_all(in) == 16U);
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
