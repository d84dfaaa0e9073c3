// Settings of publishers and of the subscriber, and which addresses strangers can name.
#include <boost/test/unit_test.hpp>
#include <string>

#include "services/indexer/subscriber/publisher_options.hpp"
#include "services/indexer/subscriber/subscriber_options.hpp"

using namespace cenote;
using namespace cenote::indexer;

namespace {

bool is_taken(const publisher_options& options) {
  const auto checked = check_publisher(options);
  if (!checked) BOOST_TEST((checked.error().code() == error_code::invalid_argument));
  return checked.has_value();
}

std::string replay_of(std::string_view pod) {
  return replay_endpoint_of(pod, 5558).value_or("none");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(options_of_the_subscriber)

BOOST_AUTO_TEST_CASE(a_publisher_has_a_name_and_plain_endpoints) {
  const publisher_options good{.name = "a", .endpoint = "tcp://10.0.0.7:5557", .replay = "tcp://10.0.0.7:5558"};
  BOOST_TEST(is_taken(good));
  for (const char* const text : {"tcp://engine-0.engines:5557", "tcp://[::1]:5557", "ipc:///run/engine.sock"}) {
    publisher_options options = good;
    options.endpoint = options.replay = text;
    BOOST_TEST(is_taken(options), text);
  }
  for (const char* const text : {"10.0.0.7:5557", "tcp://*:5557", "tcp://10.0.0.7", "tcp://10.0.0.7:0",
                                 "tcp://10.0.0.7:70000", "inproc://a", "tcp://eth0;10.0.0.7:5557", "tcp://a b:5557",
                                 "tcp://-host:5557", "udp://10.0.0.7:5557", "ipc://", "pgm://a:1"}) {
    publisher_options options = good;
    options.endpoint = text;
    BOOST_TEST(!is_taken(options), text);
    options = good;
    options.replay = text;
    BOOST_TEST(!is_taken(options), text);
  }
  publisher_options options = good;
  options.endpoint.clear();
  BOOST_TEST(!is_taken(options));
  options = good;
  options.replay.clear();
  BOOST_TEST(is_taken(options));
  options.name.clear();
  BOOST_TEST(!is_taken(options));
  options.name.assign(257, 'a');
  BOOST_TEST(!is_taken(options));
  options = good;
  options.pod = "pod\x1b[2J";
  BOOST_TEST(!is_taken(options));
}

BOOST_AUTO_TEST_CASE(only_a_plain_host_of_a_topic_is_ever_connected_to) {
  BOOST_TEST(replay_of("10.0.0.7") == "tcp://10.0.0.7:5558");
  BOOST_TEST(replay_of("10.0.0.7:8000") == "tcp://10.0.0.7:5558");
  BOOST_TEST(replay_of("engine-0.engines.svc:8000") == "tcp://engine-0.engines.svc:5558");
  BOOST_TEST(replay_of("[fd00::7]:8000") == "tcp://[fd00::7]:5558");
  BOOST_TEST(replay_of("fd00::7") == "tcp://[fd00::7]:5558");
  BOOST_TEST(replay_of("node:worker-3") == "tcp://worker-3:5558");
  for (const char* const pod : {"", "*", "ipc:///run/docker.sock", "/run/docker.sock", "a/b", "a;b", "user@host", "a b",
                                "-h", "tcp://10.0.0.7:22", "10.0.0.7:8000:1", "host\n", "host:", ":80"}) {
    BOOST_TEST(replay_of(pod) == "none", pod);
  }
  BOOST_TEST(replay_of(std::string(254, 'a')) == "none");
  BOOST_TEST(!replay_endpoint_of("10.0.0.7", 0).has_value());
}

BOOST_AUTO_TEST_CASE(topics_have_bounds) {
  BOOST_TEST(check_topic("kv@pod@model").has_value());
  BOOST_TEST(check_topic("kv@" + std::string(250, 'p') + "@" + std::string(250, 'm')).has_value());
  BOOST_TEST(!check_topic("kv@" + std::string(257, 'p') + "@m").has_value());
  BOOST_TEST(!check_topic("kv@p@" + std::string(257, 'm')).has_value());
  BOOST_TEST(!check_topic(std::string(513, 'p')).has_value());
  BOOST_TEST(!check_topic("kv@\xff@m").has_value());
  BOOST_TEST(!check_topic("kv@a\nb@m").has_value());
}

BOOST_AUTO_TEST_CASE(ranks_are_ports_that_follow_the_bound_one) {
  const auto all = bound_endpoints_of({.bind = {"tcp://*:5557", "tcp://127.0.0.1:*"}, .ranks = 2}).value();
  BOOST_REQUIRE(all.size() == 4U);
  BOOST_TEST(all[0].endpoint == "tcp://*:5557");
  BOOST_TEST(all[1].endpoint == "tcp://*:5558");
  BOOST_TEST(all[1].rank == 1U);
  BOOST_TEST(all[3].endpoint == "tcp://127.0.0.1:*");
  BOOST_TEST(bound_endpoints_of({.bind = {"ipc:///run/events"}}).value().size() == 1U);
  BOOST_TEST(!bound_endpoints_of({.bind = {"ipc:///run/events"}, .ranks = 2}).has_value());
  BOOST_TEST(!bound_endpoints_of({.bind = {"tcp://*:65535"}, .ranks = 2}).has_value());
  BOOST_TEST(!bound_endpoints_of({.bind = {"tcp://*"}}).has_value());
  BOOST_TEST(!bound_endpoints_of({.bind = {"*:5557"}}).has_value());
  BOOST_TEST(!bound_endpoints_of({.ranks = 0}).has_value());
  BOOST_TEST(!bound_endpoints_of({.ranks = most_ranks + 1}).has_value());
}

BOOST_AUTO_TEST_SUITE_END()
