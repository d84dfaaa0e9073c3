// The meaning of error replies, and their text for operators.
#include "transport/redis/reply_errors.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

namespace cenote::redis {

BOOST_AUTO_TEST_SUITE(redis_errors)

BOOST_AUTO_TEST_CASE(a_full_server_is_full_and_one_that_refuses_us_is_away) {
  BOOST_TEST((meaning_of("OOM command not allowed when used memory > 'maxmemory'.") == reply_failure::full));
  BOOST_TEST((meaning_of("ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not "
                         "allowed when used memory > 'maxmemory'.") == reply_failure::full));  // before Redis 7
  BOOST_TEST((meaning_of("ERR Error running script (call to f_1): @user_script:1: nonsense") == reply_failure::away));
  BOOST_TEST((meaning_of("MISCONF Redis is configured to save RDB snapshots") == reply_failure::full));
  BOOST_TEST((meaning_of("ERR Protocol error: invalid bulk length") == reply_failure::too_big));
  BOOST_TEST((meaning_of("READONLY You can't write against a read only replica.") == reply_failure::away));
  BOOST_TEST((meaning_of("something new") == reply_failure::away));
  BOOST_TEST((meaning_of("") == reply_failure::away));
}

BOOST_AUTO_TEST_CASE(the_text_says_what_would_be_right_and_steers_no_terminal) {
  BOOST_TEST(explained("NOAUTH Authentication required.").find("file") != std::string::npos);
  BOOST_TEST(explained("READONLY x").find("primary") != std::string::npos);
  for (const char* const each : {"MOVED 1 10.0.0.1:6379", "CROSSSLOT Keys in request", "CLUSTERDOWN x", "ASK 1 x"}) {
    BOOST_TEST(explained(each).find("Redis Cluster") != std::string::npos);
    BOOST_TEST(is_of_cluster(each));
  }
  BOOST_TEST(!is_of_cluster("READONLY x"));
  BOOST_TEST(explained("ERR \x1b[2J").find('\x1b') == std::string::npos);
  BOOST_TEST(explained("ERR unknown command 'AUTH', with args beginning with: 'hunter2'").find("hunter2") ==
             std::string::npos);
  BOOST_TEST(explained(std::string(100000, 'x')).size() < 1000U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::redis
