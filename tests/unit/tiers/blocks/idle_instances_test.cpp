// Instances that nobody uses are emptied and given up.
#include "tiers/blocks/idle_instances.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::idle_instances_test {

using namespace testing;

namespace {

store_options with_life() {
  store_options options = options_of(5 << 20, 1 << 20);
  options.life.idle = tenths(1000);
  options.life.empty = tenths(100);
  options.life.claim = tenths(50);
  return options;
}

struct fixture : bare_parts {
  fixture() : bare_parts(with_life()) {}

  /// As time goes by: a step, and the memory of slabs that are asked for.
  void step(tenths later) {
    now += later;
    of.idle.give_up_idle(now);
    pump();
  }
  [[nodiscard]] bool is_there(const std::string& id) const { return of.all.by_id.contains(id); }
  life_options& life = of.all.options.life;
  instance& in = add();
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(idle_instances_suite, fixture)

BOOST_AUTO_TEST_CASE(an_empty_instance_goes_early_and_a_full_one_when_it_was_idle_for_long) {
  instance& full = add("full");
  (void)present(full, 1);
  step(tenths(99));
  BOOST_TEST(is_there("one"));
  step(tenths(1));
  BOOST_TEST(!is_there("one"));
  BOOST_TEST(is_there("full"));
  step(tenths(900));
  BOOST_TEST(!is_there("full"));
  BOOST_TEST(of.all.used == 0U);
  BOOST_TEST(of.all.assigned == 0U);
  BOOST_TEST(of.all.counters.instances_given_up == 2U);
}

BOOST_AUTO_TEST_CASE(a_full_instance_goes_too_where_no_tier_below_takes_what_it_has) {
  of.all.options.edges.push_back({.ingest = ingest::none, .write_window = 16 << 20, .read_window = 16 << 20});
  instance& full = add("full");
  (void)present(full, 1);
  step(tenths(1000));
  BOOST_TEST(!is_there("full"));
  BOOST_TEST(of.all.used == 0U);
}

BOOST_AUTO_TEST_CASE(the_provisioner_hears_of_the_slabs_before_the_instance) {
  const auto number = in.number;
  now += tenths(100);
  of.idle.give_up_idle(now);
  const auto requests = of.space.take_requests();
  BOOST_REQUIRE(requests.size() == 2U);
  BOOST_TEST((requests[0].what == slab_request::kind::drop));
  BOOST_TEST((requests[1].what == slab_request::kind::forget));
  BOOST_TEST((of.table.take_given_up() == std::vector{number}));
}

BOOST_AUTO_TEST_CASE(neither_a_session_nor_a_claim_lets_it_go) {
  (void)attach(in);
  instance& claimed = add("claimed");
  now += tenths(2000);
  of.table.claim_instance(claimed.number, now);
  step(tenths(49));
  BOOST_TEST(is_there("one"));
  BOOST_TEST(is_there("claimed"));
  step(tenths(1));
  BOOST_TEST(is_there("one"));
  BOOST_TEST(!is_there("claimed"));
}

BOOST_AUTO_TEST_CASE(without_a_time_nothing_goes) {
  life.idle = tenths(0);
  life.empty = tenths(0);
  BOOST_TEST(!of.idle.idle_limit(in).has_value());
  step(tenths(1'000'000));
  BOOST_TEST(is_there("one"));
  life.empty = tenths(7);
  BOOST_TEST((of.idle.idle_limit(in) == tenths(7)));
  (void)present(in, 1);
  BOOST_TEST(!of.idle.idle_limit(in).has_value());  // it is not empty
}

BOOST_AUTO_TEST_CASE(where_there_are_nearly_too_many_the_one_that_was_idle_longest_makes_way) {
  life.instances = 3;
  (void)present(in, 1);
  now += tenths(50);
  instance& later = add("later");
  (void)present(later, 1);
  now += tenths(50);
  instance& used = add("used");
  (void)attach(used);
  now += tenths(50);
  BOOST_TEST(of.idle.make_room(0, now).has_value());
  BOOST_TEST(!is_there("one"));
  BOOST_TEST(is_there("later"));
  BOOST_TEST(is_there("used"));
}

BOOST_AUTO_TEST_CASE(who_made_too_many_that_are_in_use_is_refused) {
  life.instances = 1;
  (void)attach(in);
  const auto refused = of.idle.make_room(0, now);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::limit_exceeded));
  life.instances = 0;
  life.per_owner = 1;
  BOOST_TEST(!of.idle.make_room(0, now).has_value());
  BOOST_TEST(of.idle.make_room(1, now).has_value());  // another user
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::idle_instances_test
