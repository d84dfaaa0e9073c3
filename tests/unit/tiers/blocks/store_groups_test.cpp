// Priority, kept prefixes, time to live.
#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_groups_test {

using namespace testing;
using memory::operation;

namespace {

constexpr std::uint64_t slab_bytes = 16 * 4096;

error_code code_of(const memory::completion& answer) {
  return static_cast<error_code>(answer.code);
}

struct world {
  explicit world(std::map<std::string, group_options> groups, std::uint64_t slabs = 4)
      : at(with(std::move(groups), slabs)) {}
  static store_options with(std::map<std::string, group_options> groups, std::uint64_t slabs) {
    auto options = options_of(slabs * (slab_bytes + 4096), slab_bytes);
    options.groups = std::move(groups);
    options.groups.try_emplace("a");
    return options;
  }
  ~world() { BOOST_TEST(at.broken_identity() == ""); }
  account_status account(const std::string& name) {
    for (const account_status& each : at.status().accounts) {
      if (each.name == name) return each;
    }
    return {};
  }
  void fill_with_others(std::uint64_t count = 200) {
    for (std::uint64_t n = 0; n < count; ++n) BOOST_REQUIRE((code_of(a.put(key_of(10'000 + n))) == error_code::ok));
  }

  node at;
  client a{at, at.add(spec_of("a"))};
};

const std::array prompt{key_of(1), key_of(2), key_of(3)};

}  // namespace

BOOST_AUTO_TEST_SUITE(store_groups)

BOOST_AUTO_TEST_CASE(kept_blocks_stay_whatever_comes) {
  world test({});
  for (const full_key& key : prompt) test.a.put(key);
  BOOST_TEST(test.a.keep(prompt).value == 3U);
  BOOST_TEST(test.a.keep(prompt).value == 3U);  // asked again
  BOOST_TEST(test.account("a").kept == 3U * 4096);
  test.fill_with_others();
  for (const full_key& key : prompt) BOOST_TEST((test.a.read(key) == look::right));
  BOOST_TEST(test.a.keep(prompt, false).value == 3U);
  BOOST_TEST(test.account("a").kept == 0U);
  test.fill_with_others();
  test.a.put(key_of(77));
}

BOOST_AUTO_TEST_CASE(what_is_let_go_is_evicted_again) {
  world test({});
  for (const full_key& key : prompt) test.a.put(key);
  test.a.keep(prompt);
  test.a.keep(prompt, false);
  test.fill_with_others();
  for (const full_key& key : prompt) BOOST_TEST((test.a.read(key) == look::miss));
}

BOOST_AUTO_TEST_CASE(only_what_is_present_can_be_kept) {
  world test({});
  test.a.put(prompt[0]);
  BOOST_TEST(test.a.keep(prompt).value == 1U);
}

BOOST_AUTO_TEST_CASE(kept_blocks_have_a_quota) {
  world test({{"a", {.keep_quota = 2 * 4096}}});
  for (const full_key& key : prompt) test.a.put(key);
  const auto answer = test.a.keep(prompt);
  BOOST_TEST((code_of(answer) == error_code::limit_exceeded));
  BOOST_TEST(answer.value == 2U);
  BOOST_TEST(answer.index == 2U);
  test.fill_with_others();
  BOOST_TEST((test.a.read(prompt[1]) == look::right));
  BOOST_TEST((test.a.read(prompt[2]) == look::miss));
}

BOOST_AUTO_TEST_CASE(a_kept_block_can_be_removed) {
  world test({});
  test.a.put(prompt[0]);
  test.a.keep(prompt);
  BOOST_TEST(test.a.remove(prompt[0]).value == 1U);
  BOOST_TEST(test.account("a").kept == 0U);
  test.a.put(prompt[1]);
  test.a.keep(prompt);
  test.a.ask({test.a.entry_of(operation::clear, blank{})});
  BOOST_TEST(test.account("a").kept == 0U);
}

BOOST_AUTO_TEST_CASE(kept_blocks_outlive_the_worker) {
  world test({});
  for (const full_key& key : prompt) test.a.put(key);
  test.a.keep(prompt);
  BOOST_TEST(test.at.restart() == 3U);
  BOOST_TEST(test.account("a").kept == 3U * 4096);
  client again(test.at, test.a.in);
  for (std::uint64_t n = 0; n < 200; ++n) BOOST_REQUIRE((code_of(again.put(key_of(500 + n))) == error_code::ok));
  for (const full_key& key : prompt) BOOST_TEST((again.read(key) == look::right));
}

BOOST_AUTO_TEST_CASE(the_configuration_keeps_blocks_by_key_as_they_come_and_lets_go_of_them) {
  world test({{"a", {.keep = {prompt.begin(), prompt.end()}}}});
  for (const full_key& key : prompt) test.a.put(key);
  BOOST_TEST(test.account("a").kept == 3U * 4096);
  test.fill_with_others();
  for (const full_key& key : prompt) BOOST_TEST((test.a.read(key) == look::right));
  test.at.tier->set_groups({{"a", {.keep = {prompt[0]}}}}, test.at.now);
  BOOST_TEST(test.account("a").kept == 4096U);
  test.fill_with_others();
  BOOST_TEST((test.a.read(prompt[0]) == look::right));
  BOOST_TEST((test.a.read(prompt[1]) == look::miss));
}

BOOST_AUTO_TEST_CASE(the_configuration_keeps_what_is_here_already) {
  world test({});
  for (const full_key& key : prompt) test.a.put(key);
  test.at.tier->set_groups({{"a", {.keep = {prompt[2]}}}}, test.at.now);
  test.fill_with_others();
  BOOST_TEST((test.a.read(prompt[2]) == look::right));
}

BOOST_AUTO_TEST_CASE(blocks_of_a_lower_class_go_first_even_if_they_are_younger) {
  world test({{"precious", {.priority = priority::high}}});
  client precious(test.at, test.at.add(spec_of("p", 4096, 1, "precious")));
  for (std::uint64_t n = 0; n < 16; ++n) BOOST_TEST((code_of(precious.put(key_of(n))) == error_code::ok));
  test.at.now += tenths(1000);
  test.fill_with_others();
  for (std::uint64_t n = 0; n < 16; ++n) BOOST_TEST((precious.read(key_of(n)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_higher_class_takes_the_memory_of_a_lower_one) {
  world test({{"precious", {.priority = priority::high}}});
  test.fill_with_others();
  client precious(test.at, test.at.add(spec_of("p", 4096, 1, "precious")));
  for (std::uint64_t n = 0; n < 40; ++n) BOOST_TEST((code_of(precious.put(key_of(n))) == error_code::ok));
  for (std::uint64_t n = 0; n < 40; ++n) BOOST_TEST((precious.read(key_of(n)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_lower_class_gets_a_first_slab_even_from_a_higher_one) {
  world test({{"a", {.priority = priority::high}}, {"poor", {.priority = priority::low}}});
  test.fill_with_others();
  client poor(test.at, test.at.add(spec_of("p", 4096, 1, "poor")));
  for (std::uint64_t n = 0; n < 40; ++n) BOOST_TEST((code_of(poor.put(key_of(n))) == error_code::ok));
  BOOST_TEST((poor.read(key_of(39)) == look::right));
  BOOST_TEST(test.at.present(poor.in) <= 16U);
}

BOOST_AUTO_TEST_CASE(blocks_that_nobody_used_for_their_time_to_live_are_forgotten) {
  world test({{"a", {.ttl = tenths(100)}}});
  client other(test.at, test.at.add(spec_of("other")));
  for (const full_key& key : prompt) test.a.put(key);
  other.put(prompt[0]);
  test.at.now += tenths(60);
  test.a.touch(std::array{prompt[1]});
  test.at.now += tenths(60);
  test.at.tier->tick(test.at.now);
  BOOST_TEST((test.a.read(prompt[0]) == look::miss));
  BOOST_TEST((test.a.read(prompt[1]) == look::right));  // used since
  BOOST_TEST((test.a.read(prompt[2]) == look::miss));
  BOOST_TEST((other.read(prompt[0]) == look::right));  // no limit
  BOOST_TEST(test.at.status().counters.expired == 2U);
  test.at.now += tenths(101);
  test.at.tier->tick(test.at.now);
  BOOST_TEST((test.a.read(prompt[1]) == look::miss));
}

BOOST_AUTO_TEST_CASE(kept_blocks_do_not_expire_and_pinned_ones_wait) {
  world test({{"a", {.ttl = tenths(100)}}});
  for (const full_key& key : prompt) test.a.put(key);
  test.a.keep(std::array{prompt[0]});
  const auto slot = test.a.pin(prompt[1]);
  BOOST_REQUIRE(slot.has_value());
  test.at.now += tenths(200);
  test.at.tier->tick(test.at.now);
  BOOST_TEST((test.a.read(prompt[0]) == look::right));
  BOOST_TEST((test.a.read(prompt[1]) == look::miss));
  BOOST_TEST(holds(test.a.pinned_bytes(*slot), 4096, prompt[1]));  // its bytes are still its own
  test.a.unpin(*slot);
  test.at.tier->tick(test.at.now);
  BOOST_TEST(test.at.status().zombie == 0U);
}

BOOST_AUTO_TEST_CASE(a_time_to_live_set_at_run_time_counts_for_what_is_here) {
  world test({});
  test.a.put(prompt[0]);
  test.at.now += tenths(200);
  test.at.tier->tick(test.at.now);
  BOOST_TEST((test.a.read(prompt[0]) == look::right));
  test.at.tier->set_groups({{"a", {.ttl = tenths(100)}}}, test.at.now);
  test.at.tier->tick(test.at.now);
  BOOST_TEST((test.a.read(prompt[0]) == look::miss));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_groups_test
