#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "commands/bench/support.hpp"
#include "tests/support/redis_server.hpp"

namespace cenote::bench {

namespace {

std::vector<std::string> remote_cases(const report& out) {
  std::vector<std::string> names;
  for (const figure& each : out.figures()) names.push_back(each.name);
  return names;
}

result<void> run_remote_quick(const std::string& url, report& out) {
  return remote_bench::run({.socket = {}, .quick = true, .url = url}, out);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(remote_bench)

BOOST_AUTO_TEST_CASE(on_a_server_of_its_own_every_figure_stands_beside_a_limit) {
  report out(true);
  const auto done = run_remote_quick("", out);
  BOOST_REQUIRE_MESSAGE(done, (done ? "" : done.error().message()));
  const std::vector<std::string> wanted{"put 512 KiB x 2",
                                        "get 512 KiB x 2",
                                        "put 512 KiB x 2, redis-benchmark's SET",
                                        "get 512 KiB x 2, redis-benchmark's GET",
                                        "put 2 MiB x 2",
                                        "get 2 MiB x 2",
                                        "locate 1000 keys"};
  BOOST_TEST(remote_cases(out) == wanted, boost::test_tools::per_element());
  for (const figure& each : out.figures()) {
    BOOST_TEST(each.value > 0);
    BOOST_TEST(each.limit.value_or(0) > 0);
    const bool is_promised = each.name.find("redis-benchmark") == std::string::npos;
    BOOST_TEST(each.kept().has_value() == is_promised);
  }
}

BOOST_AUTO_TEST_CASE(on_a_server_of_others_it_leaves_what_was_there_and_nothing_of_its_own) {
  const test::redis_server server;
  BOOST_TEST(server.say({"SET", "theirs", "1"}) == "OK");
  report out(true);
  const auto done = run_remote_quick(server.url(), out);
  BOOST_REQUIRE_MESSAGE(done, (done ? "" : done.error().message()));
  // The backend's own sign of life belongs to the prefix, and nodes may share it.
  BOOST_TEST(server.say({"DEL", "cenote:alive"}) == "1");
  BOOST_TEST(server.say({"KEYS", "*"}) == "theirs");
}

BOOST_AUTO_TEST_CASE(a_server_without_room_is_said_to_be_full_and_one_that_is_not_there_not_to_run) {
  const test::redis_server server({"--maxmemory", "2mb", "--maxmemory-policy", "noeviction"});
  report out(true);
  const auto full = run_remote_quick(server.url(), out);
  BOOST_REQUIRE(!full);
  BOOST_TEST((full.error().code() == error_code::no_space || full.error().code() == error_code::system));
  const auto away = run_remote_quick("unix:///nowhere/redis.sock", out);
  BOOST_REQUIRE(!away);
  BOOST_TEST((away.error().code() == error_code::not_running));
  BOOST_TEST(out.figures().empty());
}

BOOST_AUTO_TEST_CASE(several_servers_or_a_user_are_refused) {
  report out(true);
  for (const std::string url : {"redis://127.0.0.1:1,127.0.0.1:2", "redis://somebody@127.0.0.1:1", "http://x"}) {
    const auto done = run_remote_quick(url, out);
    BOOST_REQUIRE(!done);
    BOOST_TEST((done.error().code() == error_code::invalid_argument), url);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::bench
