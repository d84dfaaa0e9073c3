#include "actors/quota_mover.hpp"

#include "actors/live_curves.hpp"
#include "tests/actors/actor_fixture.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

constexpr std::uint64_t test_quota = 1 << 20;

blocks::instance_status instance_of(const char* account, std::uint32_t number, std::uint64_t bytes) {
  blocks::instance_status one;
  one.account = account;
  one.bytes = bytes;
  one.curve = blocks::curve_status{.instance = number, .block_bytes = 4096, .points = {}};
  return one;
}

blocks::curve_status curve_of(std::uint32_t number) {
  return {.instance = number, .block_bytes = 4096, .points = {{64, 0.5, 0.01}, {128, 0.25, 0.01}}};
}

blocks::account_status account_of(const std::string& name, std::uint64_t quota) {
  blocks::account_status made;
  made.name = name;
  made.quota = quota;
  return made;
}

/// A tier with the groups `a`, of two instances, and `b`.
struct reports_fixture {
  reports_fixture() {
    tier.accounts = {account_of("a", 8 * test_quota), account_of("b", 4 * test_quota), account_of("default", 0)};
    tier.instances = {instance_of("a", 1, 3 * test_quota), instance_of("a", 2, test_quota),
                      instance_of("b", 3, test_quota)};
  }
  auto groups() { return reports.groups(tier, curves, limits); }

  blocks::store_status tier;
  std::vector<blocks::curve_status> curves{curve_of(1), curve_of(2), curve_of(3)};
  std::map<std::string, quota_limits> limits{
      {"a", {test_quota, 10 * test_quota}}, {"b", {test_quota, 10 * test_quota}}, {"c", {test_quota, 2 * test_quota}}};
  quota_reports reports;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(quota_mover_tests)

BOOST_FIXTURE_TEST_CASE(groups_with_limits_are_made_of_their_instances_shares_and_curves, reports_fixture) {
  const auto all = groups();
  BOOST_REQUIRE(all.size() == 2U);  // `c` has no account
  BOOST_TEST(all[0].name == "a");
  BOOST_TEST(all[0].quota == 8 * test_quota);
  BOOST_REQUIRE(all[0].members.size() == 2U);
  BOOST_TEST(all[0].members[0].share == 0.75);
  BOOST_REQUIRE(all[0].members[0].points.size() == 2U);
  BOOST_TEST(all[0].members[0].points[1].bytes == 128.0 * 4096);
  BOOST_TEST(all[0].members[0].points[1].hit_ratio == 0.75);
}

BOOST_FIXTURE_TEST_CASE(requests_count_from_the_report_before_in_tokens_or_else_in_keys, reports_fixture) {
  tier.instances[0].match_tokens = 1'000;
  tier.instances[0].match_keys = 10;
  BOOST_TEST(groups()[0].requested == 0U);
  tier.instances[0].match_tokens = 1'600;
  tier.instances[0].match_resident_tokens = 320;
  tier.instances[2].match_keys = 5;
  tier.instances[2].match_resident = 4;
  const auto all = groups();
  BOOST_TEST(all[0].requested == 600U);
  BOOST_TEST(all[0].hits == 320U);
  BOOST_TEST(all[0].members[0].tokens == 60.0);  // an average that begins at 0
  BOOST_TEST(all[1].requested == 5U);
  BOOST_TEST(all[1].hits == 4U);
  BOOST_TEST(groups()[0].requested == 0U);
  BOOST_TEST(groups()[0].members[0].tokens < 60.0);
}

BOOST_FIXTURE_TEST_CASE(a_group_of_which_an_instance_is_not_watched_or_that_has_no_quota_stays, reports_fixture) {
  tier.instances[1].curve.reset();
  tier.accounts[1].quota = 0;
  BOOST_TEST(groups().empty());
}

BOOST_FIXTURE_TEST_CASE(a_mover_ends_with_the_curves_and_looks_at_what_it_is_given, actor_fixture) {
  const auto curves = system().spawn<live_curves>(std::make_shared<watched_limit>());
  config::node_config settings = config::default_config();
  auto& group = settings.groups["g"];
  group.quota = group.quota_min = test_quota;
  group.quota_max = 2 * test_quota;
  auto mover = system().spawn<quota_mover>(dram(), curves, std::make_shared<const config::node_config>(settings));
  run();
  caf::anon_send(mover, tick_atom_v);
  caf::anon_send(dram(), quota_atom_v, std::string("unknown"), std::uint64_t{7});
  run();
  const auto report = ask<dram_report_ptr>(dram(), report_atom_v);
  BOOST_REQUIRE(report);
  for (const auto& each : (*report)->store.accounts) BOOST_TEST(each.quota == 0U);
  const caf::scoped_actor observer(system());
  observer->monitor(mover);
  caf::anon_send_exit(curves, caf::exit_reason::user_shutdown);
  run();
  bool is_over = false;
  observer->receive([&](const caf::down_msg& down) { is_over = down.source == mover.address(); },
                    caf::after(std::chrono::seconds(0)) >> [] {});
  BOOST_TEST(is_over);
}

BOOST_AUTO_TEST_SUITE_END()
