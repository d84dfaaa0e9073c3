// Blocks that nobody used for their group's time to live.
#include "tiers/blocks/expiry.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::expiry_test {

using namespace testing;

namespace {

store_options with_ttl() {
  store_options options = options_of(5 << 20, 1 << 20);
  options.groups["short"] = {.ttl = tenths(100)};
  options.edges.resize(1);
  return options;
}

struct fixture : bare_parts {
  fixture() : bare_parts(with_ttl()) {}
  [[nodiscard]] bool is_here(const instance& instance, std::uint64_t key) const {
    return of.all.find_present(instance, reduce_key(key_of(key).view(), 0), key_of(key), nullptr).has_value();
  }
  instance& brief = add("brief", "short");
  instance& lasting = add("lasting", "");
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(expiry_suite, fixture)

BOOST_AUTO_TEST_CASE(only_what_is_old_enough_and_has_a_time_to_live_goes_here_and_below) {
  (void)present(brief, 1);
  (void)present(lasting, 2);
  now += tenths(60);
  (void)present(brief, 3);
  now += tenths(60);
  of.expire.expire(now);
  BOOST_TEST(!is_here(brief, 1));
  BOOST_TEST(is_here(lasting, 2));
  BOOST_TEST(is_here(brief, 3));
  const auto below = of.expire.take_expired();
  BOOST_REQUIRE(below.size() == 1U);
  BOOST_TEST(below[0].instance == brief.number);
  BOOST_TEST((below[0].keys == std::vector{reduce_key(key_of(1).view(), 0)}));
  BOOST_TEST(of.expire.take_expired().empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::expiry_test
