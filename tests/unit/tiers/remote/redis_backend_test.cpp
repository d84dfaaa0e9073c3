// The Redis backend with a server that the test plays: it delays, cuts, says nonsense, or nothing.
#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/remote/backend_fixture.hpp"

namespace cenote::remote {

BOOST_AUTO_TEST_SUITE(redis_backends)

BOOST_AUTO_TEST_CASE(a_server_that_is_not_there_is_said_and_every_call_is_answered) {
  backend_under_test node("unix:///nowhere/redis.sock");
  BOOST_TEST(node.wait_until(false).find("/nowhere/redis.sock") != std::string::npos);
  BOOST_TEST(node.put(1) == item_result::unreachable);
  BOOST_TEST(node.get(1) == item_result::unreachable);
  BOOST_TEST(!node.locate({1}).is_complete);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::remote
