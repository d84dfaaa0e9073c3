// Logins that were right, and how long they stay so.
#include "services/manager/service/login_cache.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/services/manager/service/account_world.hpp"

using namespace std::chrono_literals;

namespace cenote::manager {

namespace {

const auto moment = test::start_time;

struct cached_login {
  manager_registry registry =
      test::with_account(test::with_account({}, "root", "r", account_role::admin), "u", "p", account_role::user, "g");
  login_cache cache{};
  login_digest digest = *cache.digest_of("Basic x");

  cached_login() { cache.add(digest, registry.find_account("u"), moment); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(cache_of_logins)

BOOST_AUTO_TEST_CASE(a_login_is_right_for_a_minute) {
  cached_login world;
  BOOST_TEST(world.cache.find(world.digest, world.registry, moment + 59s) == world.registry.find_account("u"));
  BOOST_TEST(world.cache.find(world.digest, world.registry, moment + 60s) == nullptr);
  BOOST_TEST(world.cache.find(world.digest, world.registry, moment) == nullptr);
}

BOOST_AUTO_TEST_CASE(a_login_is_forgotten_when_its_account_goes) {
  cached_login world;
  const auto change = world.registry.delete_account("u");
  BOOST_TEST_REQUIRE(change.has_value());
  BOOST_TEST(world.cache.find(world.digest, change->next, moment) == nullptr);
}

BOOST_AUTO_TEST_CASE(a_login_is_forgotten_when_its_account_changes) {
  cached_login world;
  auto account = world.registry.find_account("u")->message();
  account.clear_groups();
  const auto change = world.registry.update_account(account);
  BOOST_TEST_REQUIRE(change.has_value());
  BOOST_TEST(world.cache.find(world.digest, change->next, moment) == nullptr);
}

BOOST_AUTO_TEST_CASE(a_login_stays_when_another_account_changes) {
  cached_login world;
  const auto other = test::with_account(world.registry, "v", "q", account_role::user);
  BOOST_TEST(world.cache.find(world.digest, other, moment) != nullptr);
}

BOOST_AUTO_TEST_CASE(another_login_is_another_entry) {
  cached_login world;
  BOOST_TEST(world.cache.find(*world.cache.digest_of("Basic y"), world.registry, moment) == nullptr);
}

BOOST_AUTO_TEST_CASE(a_digest_means_nothing_in_another_cache) {
  BOOST_TEST((*login_cache().digest_of("Basic x") != *login_cache().digest_of("Basic x")));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
