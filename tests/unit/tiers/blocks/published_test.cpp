// Requests that are published and followed: order, bounds, ends.
#include "tiers/blocks/published.hpp"

#include <boost/test/unit_test.hpp>

#include <cstring>
#include <string>

#include "tests/support/numbered_identity.hpp"

namespace cenote::blocks::published_test {

namespace {

full_key key_of(std::uint64_t number, std::uint8_t width = 16) {
  full_key key;
  key.size = width;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  return key;
}

/// What one follower heard.
struct ear {
  std::vector<std::uint64_t> keys{};
  bool is_over = false;
  error_code code = error_code::ok;
};

struct world {
  explicit world(published_limits limits = {}) : all(limits) {}

  result<std::uint64_t> publish(const std::string& name, std::uint64_t first, std::size_t count, bool here = false,
                                bool ends = false, std::optional<std::uint64_t> place = {}) {
    publication made;
    made.by = session;
    made.holder = holder;
    made.instance = instance;
    made.request = {.identity = numbered_identity(instance), .group = 0, .text = name};
    made.first = place;
    made.ends = ends;
    for (std::uint64_t i = first; i < first + count; ++i) made.keys.push_back(key_of(i, width));
    made.here.assign(count, here);
    return all.publish(made, now);
  }
  void arrive(std::uint64_t number) { all.arrived(instance, reduce_key(key_of(number, width).view(), 0), now); }
  void follow(std::uint64_t number, const std::string& name, std::uint64_t position = 0) {
    handover::order made;
    made.number = number;
    made.request = {.identity = numbered_identity(instance), .group = 0, .text = name};
    made.position = position;
    made.patience = std::chrono::seconds(30);
    made.holder = holder;
    all.follow(std::move(made), now);
  }
  const ear& heard(std::uint64_t number) {
    for (const handover::news& each : all.take_news()) {
      ear& by = ears[each.number];
      BOOST_TEST(!by.is_over);
      BOOST_TEST((each.keys.empty() || each.first == starts[each.number] + by.keys.size()));
      for (const full_key& key : each.keys) {
        std::uint64_t name = 0;
        std::memcpy(&name, key.bytes.data(), sizeof name);
        by.keys.push_back(name);
      }
      by.is_over = each.is_over;
      by.code = each.code;
    }
    return ears[number];
  }
  void pass(std::uint32_t seconds) {
    now += tenths(10 * seconds);
    all.expire(now);
  }

  published all;
  boot_time now = boot_time_of(1000);
  session_number session = 1;
  instance_number instance = 1;
  share_holder holder{.uid = 1, .group = "a"};
  std::uint8_t width = 16;
  std::map<std::uint64_t, ear> ears;
  std::map<std::uint64_t, std::uint64_t> starts;
};

using numbers = std::vector<std::uint64_t>;

}  // namespace

BOOST_AUTO_TEST_SUITE(published_tests)

BOOST_AUTO_TEST_CASE(a_follower_hears_of_keys_in_order_when_all_before_are_whole) {
  world of;
  BOOST_TEST(*of.publish("r", 0, 4) == 4U);
  of.follow(7, "r");
  of.arrive(1);
  BOOST_TEST(of.heard(7).keys.empty());
  of.arrive(0);
  BOOST_TEST(of.heard(7).keys == (numbers{0, 1}), boost::test_tools::per_element());
  of.arrive(3);
  of.arrive(2);
  BOOST_TEST(of.heard(7).keys == (numbers{0, 1, 2, 3}), boost::test_tools::per_element());
  BOOST_TEST(!of.heard(7).is_over);
  BOOST_TEST(*of.publish("r", 4, 1, true, true) == 5U);
  BOOST_TEST(of.heard(7).keys.size() == 5U);
  BOOST_TEST(of.heard(7).is_over);
  BOOST_TEST(of.all.followers() == 0U);
  BOOST_TEST(!of.all.awaits(1));
}

BOOST_AUTO_TEST_CASE(who_follows_first_hears_all_and_who_comes_later_what_there_is) {
  world of;
  of.follow(1, "r");
  BOOST_TEST(*of.publish("r", 0, 3, true) == 3U);
  of.starts[2] = 2;
  of.follow(2, "r", 2);
  BOOST_TEST(of.heard(1).keys == (numbers{0, 1, 2}), boost::test_tools::per_element());
  BOOST_TEST(of.heard(2).keys == (numbers{2}), boost::test_tools::per_element());
  of.follow(3, "r", 50);  // further than there is
  BOOST_TEST(of.heard(3).keys.empty());
  BOOST_TEST(*of.publish("r", 3, 0, true, true) == 3U);
  BOOST_TEST(of.heard(1).is_over);
  BOOST_TEST(of.heard(3).is_over);
  of.follow(4, "r", 3);
  BOOST_TEST(of.heard(4).is_over);
}

BOOST_AUTO_TEST_CASE(an_end_is_told_only_when_all_came) {
  world of;
  BOOST_TEST(*of.publish("r", 0, 2, false, true) == 2U);
  of.follow(1, "r");
  BOOST_TEST(!of.heard(1).is_over);
  of.arrive(0);
  BOOST_TEST(!of.heard(1).is_over);
  of.arrive(1);
  BOOST_TEST(of.heard(1).is_over);
}

BOOST_AUTO_TEST_CASE(keys_are_the_next_ones_or_the_same_as_before) {
  world of;
  BOOST_TEST(*of.publish("r", 0, 4) == 4U);
  BOOST_TEST(*of.publish("r", 2, 4, false, false, 2) == 6U);
  BOOST_TEST(*of.publish("r", 0, 6, false, false, 0) == 6U);
  BOOST_TEST((of.publish("r", 9, 1, false, false, 7).error().code() == error_code::invalid_argument));
  BOOST_TEST((of.publish("r", 1, 2, false, false, 0).error().code() == error_code::invalid_argument));
  BOOST_TEST((of.publish("s", 0, 1, false, false, 1).error().code() == error_code::invalid_argument));
  of.width = 32;
  BOOST_TEST((of.publish("r", 6, 1).error().code() == error_code::invalid_argument));
  of.width = 16;
  BOOST_TEST(*of.publish("r", 6, 0, false, true) == 6U);
  BOOST_TEST((of.publish("r", 6, 1).error().code() == error_code::invalid_argument));
  BOOST_TEST(*of.publish("r", 3, 3, false, true, 3) == 6U);  // said again
  BOOST_TEST(of.all.requests() == 1U);
  BOOST_TEST(of.all.keys() == 6U);
}

BOOST_AUTO_TEST_CASE(a_request_lives_for_a_minute_since_its_last_change) {
  world of;
  BOOST_TEST(*of.publish("r", 0, 2) == 2U);
  of.pass(40);
  of.arrive(0);
  of.pass(40);
  BOOST_TEST(of.all.requests() == 1U);
  of.follow(1, "r");
  BOOST_TEST(of.heard(1).keys.size() == 1U);
  of.pass(25);
  BOOST_TEST(of.all.requests() == 0U);
  BOOST_TEST(of.all.keys() == 0U);
  BOOST_TEST(!of.all.awaits(1));
  of.arrive(1);  // nobody waits for it any more
  BOOST_TEST((of.heard(1).code == error_code::closed));
  of.follow(2, "r");
  BOOST_TEST(of.all.followers() == 1U);
  of.pass(40);
  BOOST_TEST(of.all.followers() == 0U);
}

BOOST_AUTO_TEST_CASE(an_instance_that_goes_takes_its_requests_along_and_no_other_ones) {
  world of;
  BOOST_TEST(*of.publish("r", 0, 2) == 2U);
  of.follow(1, "r");
  of.instance = 2;
  BOOST_TEST(*of.publish("r", 0, 3) == 3U);
  of.all.forget(1);
  BOOST_TEST(of.all.requests() == 1U);
  BOOST_TEST(of.all.keys() == 3U);
  BOOST_TEST(!of.all.awaits(1));
  of.arrive(0);
  BOOST_TEST(of.heard(1).keys.empty());
  of.instance = 1;
  BOOST_TEST(*of.publish("r", 0, 2, true, true) == 2U);  // anew: it is followed still
  BOOST_TEST(of.heard(1).keys.size() == 2U);
  BOOST_TEST(of.heard(1).is_over);
}

BOOST_AUTO_TEST_CASE(a_request_has_so_many_followers_and_others_have_theirs) {
  world of({.most_followers = 20, .request_followers = 2});
  of.follow(1, "a");
  of.follow(2, "a");
  of.starts[3] = 4;
  of.follow(3, "a", 4);
  BOOST_TEST((of.heard(3).is_over && of.heard(3).code == error_code::limit_exceeded));
  of.follow(4, "b");
  BOOST_TEST(of.all.followers() == 3U);
  BOOST_TEST(*of.publish("a", 0, 2, true, true) == 2U);
  BOOST_TEST((of.heard(1).is_over && of.heard(1).keys.size() == 2U));
  of.follow(5, "a");  // a place is free
  BOOST_TEST((of.heard(5).is_over && of.heard(5).code == error_code::ok));
}

BOOST_AUTO_TEST_CASE(who_heard_of_keys_does_not_go_on_with_a_request_that_is_published_anew) {
  world of;
  BOOST_TEST(*of.publish("r", 0, 4) == 4U);
  of.follow(1, "r");
  of.arrive(0);
  BOOST_TEST(of.heard(1).keys == (numbers{0}), boost::test_tools::per_element());
  of.follow(2, "other");
  of.all.forget(1);
  BOOST_TEST(of.heard(1).is_over);
  BOOST_TEST((of.heard(1).code == error_code::closed));
  BOOST_TEST(of.all.followers() == 1U);
  BOOST_TEST(*of.publish("r", 10, 4, true, true) == 4U);  // others
  BOOST_TEST(of.heard(1).keys == (numbers{0}), boost::test_tools::per_element());
  BOOST_TEST(!of.heard(2).is_over);
}

BOOST_AUTO_TEST_CASE(a_request_ends_with_its_session_where_its_blocks_do_and_may_be_published_anew) {
  world of;
  BOOST_TEST(*of.publish("r", 0, 4, false, true) == 4U);
  BOOST_TEST(*of.publish("whole", 0, 2, true, true) == 2U);
  of.session = 2;
  BOOST_TEST(*of.publish("s", 0, 4) == 4U);
  for (std::uint64_t i = 1; i <= 3; ++i) of.follow(i, i == 1 ? "r" : i == 2 ? "s" : "nothing");
  of.arrive(0);
  of.arrive(2);
  of.all.release(3, of.now);  // it published nothing
  of.all.release(1, of.now);
  BOOST_TEST(of.heard(1).is_over);
  BOOST_TEST((of.heard(1).code == error_code::ok));
  BOOST_TEST(of.heard(1).keys == (numbers{0}), boost::test_tools::per_element());
  BOOST_TEST(!of.heard(2).is_over);
  BOOST_TEST(!of.heard(3).is_over);
  BOOST_TEST(of.all.keys() == 1U + 2U + 4U);
  of.arrive(1);
  of.follow(4, "r");  // as later ones
  BOOST_TEST(of.heard(4).is_over);
  BOOST_TEST(of.heard(4).keys.size() == 1U);
  of.session = 3;
  BOOST_TEST((of.publish("r", 11, 2, true, true, 1).error().code() == error_code::invalid_argument));
  BOOST_TEST((of.publish("r", 10, 3, true, true).error().code() == error_code::invalid_argument));  // nothing is before
  BOOST_TEST(*of.publish("r", 10, 3, true, true, 0) == 3U);
  of.follow(5, "r");
  BOOST_TEST(of.heard(5).keys == (numbers{10, 11, 12}), boost::test_tools::per_element());
  BOOST_TEST(*of.publish("whole", 0, 2, true, true, 0) == 2U);  // it ended by itself
  of.pass(61);
  BOOST_TEST(of.all.keys() == 0U);
  BOOST_TEST(of.all.requests() == 0U);
}

BOOST_AUTO_TEST_CASE(what_a_session_left_stays_when_nobody_may_publish_it_anew) {
  world of({.session_requests = 1});
  BOOST_TEST(*of.publish("s", 0, 4) == 4U);
  of.all.release(1, of.now);
  of.session = 2;
  BOOST_TEST(*of.publish("other", 0, 1) == 1U);
  BOOST_TEST((of.publish("s", 10, 1, true, true, 0).error().code() == error_code::limit_exceeded));
  of.follow(1, "s");
  BOOST_TEST(of.heard(1).is_over);
  BOOST_TEST((of.heard(1).code == error_code::ok));
  BOOST_TEST(of.all.requests() == 2U);
}

BOOST_AUTO_TEST_CASE(bounds_hold_for_a_request_a_session_and_all) {
  world of({.most_requests = 16,
            .session_requests = 2,
            .most_keys = 80,
            .session_keys = 12,
            .request_keys = 8,
            .most_followers = 8});
  const auto code = [&](const result<std::uint64_t>& how) { return how ? error_code::ok : how.error().code(); };
  BOOST_TEST((code(of.publish("a", 0, 9)) == error_code::limit_exceeded));
  BOOST_TEST(of.all.requests() == 0U);
  BOOST_TEST(*of.publish("a", 0, 8) == 8U);
  BOOST_TEST((code(of.publish("b", 0, 5)) == error_code::limit_exceeded));
  BOOST_TEST(*of.publish("b", 0, 4) == 4U);
  BOOST_TEST((code(of.publish("c", 0, 0)) == error_code::limit_exceeded));
  of.session = 2;
  BOOST_TEST((code(of.publish("c", 0, 9)) == error_code::limit_exceeded));
  BOOST_TEST((code(of.publish("b", 4, 1)) == error_code::limit_exceeded), "who published first pays");
  BOOST_TEST(*of.publish("c", 0, 8) == 8U);
  BOOST_TEST((code(of.publish("d", 0, 1)) == error_code::limit_exceeded));
  BOOST_TEST(*of.publish("d", 0, 0) == 0U);
  of.session = 3;
  BOOST_TEST((code(of.publish("e", 0, 0)) == error_code::limit_exceeded));
  of.follow(1, "a");
  of.follow(2, "a");
  of.follow(3, "a");
  BOOST_TEST((of.heard(3).code == error_code::limit_exceeded));
  BOOST_TEST(of.heard(3).is_over);
  of.pass(61);
  BOOST_TEST(of.all.requests() == 0U);
  of.session = 1;
  BOOST_TEST(*of.publish("a", 0, 8) == 8U);
}

BOOST_AUTO_TEST_CASE(a_user_and_an_instance_group_leave_requests_keys_and_followers_to_others) {
  world of({.most_requests = 16, .most_keys = 64, .most_followers = 16});
  std::uint64_t number = 0;
  const auto follow_all = [&] {
    std::size_t followed = 0;
    for (;; ++followed) {
      ++number;
      of.follow(number, "r" + std::to_string(number));
      if (of.heard(number).is_over) return followed;
    }
  };
  BOOST_TEST(*of.publish("big", 0, 16) == 16U);
  BOOST_TEST(!of.publish("more", 0, 1));
  for (int i = 0; i < 3; ++i) BOOST_TEST(*of.publish("empty" + std::to_string(i), 0, 0) == 0U);
  BOOST_TEST(!of.publish("empty", 0, 0));
  BOOST_TEST(follow_all() == 4U);
  of.holder = {.uid = 1, .group = "b"};
  of.session = 2;
  BOOST_TEST(*of.publish("b", 0, 8) == 8U);
  BOOST_TEST(follow_all() == 2U);
  of.holder = {.uid = 2, .group = "a"};
  of.session = 3;
  BOOST_TEST(*of.publish("c", 0, 8) == 8U);
  BOOST_TEST(follow_all() > 0U);
  of.holder = {.uid = share_holder::other_node, .group = "n2"};
  BOOST_TEST(follow_all() > 0U);
  of.pass(61);
  BOOST_TEST(of.all.requests() == 0U);
  BOOST_TEST(of.all.keys() == 0U);
  BOOST_TEST(of.all.followers() == 0U);
  of.holder = {.uid = 1, .group = "a"};
  BOOST_TEST(*of.publish("big", 0, 16) == 16U);
}

BOOST_AUTO_TEST_CASE(a_key_may_belong_to_several_requests_and_twice_to_one) {
  world of;
  BOOST_TEST(*of.publish("r", 5, 1) == 1U);
  BOOST_TEST(*of.publish("r", 5, 1) == 2U);
  BOOST_TEST(*of.publish("s", 5, 1) == 1U);
  of.follow(1, "r");
  of.follow(2, "s");
  of.arrive(5);
  BOOST_TEST(of.heard(1).keys == (numbers{5, 5}), boost::test_tools::per_element());
  BOOST_TEST(of.heard(2).keys == (numbers{5}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(long_requests_are_told_in_parts) {
  world of;
  BOOST_TEST(*of.publish("r", 0, 10000, true, true) == 10000U);
  of.follow(1, "r");
  const auto news = of.all.take_news();
  BOOST_TEST(news.size() == 3U);
  BOOST_TEST(news.front().keys.size() == 4096U);
  BOOST_TEST(news.back().is_over);
  BOOST_TEST(!news.front().is_over);
}

BOOST_AUTO_TEST_CASE(who_does_not_follow_any_more_hears_nothing) {
  world of;
  BOOST_TEST(*of.publish("r", 0, 2) == 2U);
  of.follow(1, "r");
  of.follow(2, "r");
  of.all.follow({.number = 1, .ends = true}, of.now);
  of.all.follow({.number = 9, .ends = true}, of.now);
  of.arrive(0);
  BOOST_TEST(of.heard(1).keys.empty());
  BOOST_TEST(of.heard(2).keys.size() == 1U);
  of.starts[2] = 0;
  of.ears.clear();
  of.follow(2, "r");  // from the first one on again
  BOOST_TEST(of.heard(2).keys.size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::published_test
