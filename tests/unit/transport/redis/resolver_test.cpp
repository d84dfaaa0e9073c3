// Look-ups of names that hang block no caller, and there is never more than one.
#include "transport/redis/resolver.hpp"

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <future>
#include <memory>
#include <optional>

namespace cenote::redis {

namespace {

/// A name service whose answer comes when the test lets it.
struct slow_names {
  std::promise<void> may_answer;
  std::shared_future<void> answered = may_answer.get_future().share();
  std::atomic<int> lookups = 0;
};

name_lookup lookup_of(const std::shared_ptr<slow_names>& names) {
  return [names](const endpoint&) -> result<socket_addresses> {
    ++names->lookups;
    names->answered.wait();
    return socket_addresses(1);
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(resolvers)

BOOST_AUTO_TEST_CASE(a_number_is_found_and_a_wrong_name_is_said) {
  const auto found = look_up({.host = "127.0.0.1", .port = 80});
  BOOST_REQUIRE(found.has_value());
  BOOST_TEST(found->size() == 1U);
  BOOST_TEST(!look_up({.host = "no host", .port = 80}).has_value());
}

BOOST_AUTO_TEST_CASE(who_asks_again_waits_for_the_lookup_that_is_under_way) {
  const auto names = std::make_shared<slow_names>();
  std::promise<void> woken;
  resolver asked(
      {.host = "h", .port = 1}, [&] { woken.set_value(); }, lookup_of(names));
  for (int i = 0; i < 10; ++i) BOOST_REQUIRE(asked.ask().has_value());
  BOOST_TEST(!asked.take().has_value());
  names->may_answer.set_value();
  woken.get_future().wait();
  BOOST_TEST(names->lookups == 1);
  const auto told = asked.take();
  BOOST_REQUIRE(told.has_value());
  BOOST_TEST(told->has_value());
  BOOST_TEST(!asked.take().has_value());
}

BOOST_AUTO_TEST_CASE(a_resolver_goes_while_its_lookup_hangs_and_is_not_woken_later) {
  const auto names = std::make_shared<slow_names>();
  std::atomic<int> wakes = 0;
  auto asked = std::make_unique<resolver>(
      endpoint{.host = "h", .port = 1}, [&] { ++wakes; }, lookup_of(names));
  BOOST_REQUIRE(asked->ask().has_value());
  asked.reset();
  names->may_answer.set_value();
  while (names.use_count() > 1) std::this_thread::yield();  // the look-up's thread has let go of all it had
  BOOST_TEST(wakes == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::redis
