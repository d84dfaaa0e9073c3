// Who pays for blocks.
#include "tiers/blocks/accounts.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks {

using namespace testing;

namespace {

store_options with_groups() {
  store_options options = options_of(5 << 20, 1 << 20);
  options.groups["paying"] = {.quota = 8 * 4096, .keep_quota = 2 * 4096};
  options.limits.user_quota = 4 * 4096;
  return options;
}

struct fixture : bare_parts {
  fixture() : bare_parts(with_groups()) {}
  instance& named = add("named", "paying");
  instance& other = add("other", "unknown");
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(accounts_suite, fixture)

BOOST_AUTO_TEST_CASE(a_group_that_the_configuration_does_not_name_shares_one_account_with_others) {
  BOOST_TEST(named.payer->name == "paying");
  BOOST_TEST(other.payer->name == "default");
  BOOST_REQUIRE(other.payer->parent != nullptr);  // its user's, within that of all
  BOOST_TEST(other.payer->given.quota == 4U * 4096);
}

BOOST_AUTO_TEST_CASE(a_quota_is_set_for_a_group_that_the_configuration_names_also_before_its_account_is_open) {
  of.payers.set_quota("paying", 16 * 4096);
  BOOST_TEST(named.payer->given.quota == 16U * 4096);
  of.all.options.groups["late"] = {.quota = 4096};
  of.payers.set_quota("late", 2 * 4096);
  of.payers.set_quota("unknown", 4096);
  BOOST_TEST(add("late one", "late").payer->given.quota == 2U * 4096);
  BOOST_TEST(other.payer->given.quota == 4U * 4096);
  BOOST_TEST(!of.all.options.groups.contains("unknown"));
}

BOOST_AUTO_TEST_CASE(a_user_pays_and_so_does_the_account_that_he_shares) {
  (void)present(other, 1);
  BOOST_TEST(other.payer->used == 4096U);
  BOOST_TEST(other.payer->parent->used == 4096U);
}

BOOST_AUTO_TEST_CASE(what_is_kept_is_bounded_and_counted_up_and_down) {
  pool& group = pool_in(named);
  for (std::uint64_t n = 0; n < 2; ++n) {
    BOOST_TEST(of.payers.may_keep(*named.payer, group.stride));
    const memory::block_ref ref = present(named, n);
    BOOST_TEST(of.kept.set_kept(*slab_of(named, ref), ref, true, now));
  }
  BOOST_TEST(!of.payers.may_keep(*named.payer, group.stride));
  BOOST_TEST(of.payers.kept_bytes() == 2U * 4096);
  const memory::block_ref third = present(named, 2);
  BOOST_TEST(!of.kept.set_kept(*slab_of(named, third), third, true, now));
}

BOOST_AUTO_TEST_CASE(what_a_session_reserves_is_charged_until_it_is_discharged_also_when_the_session_is_gone) {
  session& by = attach(named);
  const memory::block_ref ref = blank(named);
  of.payers.charge_reservation(by, named, ref, 4096);
  BOOST_TEST(by.blank == 4096U);
  BOOST_TEST(named.payer->reserved == 4096U);
  of.payers.discharge_reservation(named, ref, 4096);
  of.payers.discharge_reservation(named, ref, 4096);  // once is enough
  BOOST_TEST(by.blank == 0U);
  BOOST_TEST(named.payer->reserved == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks
