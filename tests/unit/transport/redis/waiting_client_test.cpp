// One server asked by a thread that waits: pipelines, greetings, deadlines, and what follows a failure.
#include "transport/redis/waiting_client.hpp"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <fstream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/redis_server.hpp"
#include "transport/redis/command_text.hpp"

namespace cenote::redis {

namespace {

using namespace std::chrono_literals;

server_access access_of(const test::redis_server& server) {
  return {.address = {.path = server.socket(), .place = {}}};
}

std::vector<std::string> ask(waiting_client& client, const std::vector<std::string>& commands) {
  std::vector<std::string> texts;
  const auto done = client.run(commands, present_time() + 60s, [&](std::size_t index, const server_reply& reply) {
    BOOST_TEST(index == texts.size());
    std::string text(reply.text);
    if (reply.kind == server_reply::type::integer) text = std::to_string(reply.number);
    for (const std::string_view each : reply.list) text += "[" + std::string(each) + "]";
    texts.push_back(text);
  });
  BOOST_REQUIRE_MESSAGE(done.has_value(), (done ? std::string() : done.error().message()));
  return texts;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(waiting_clients)

BOOST_AUTO_TEST_CASE(replies_of_every_kind_come_in_the_order_of_their_commands) {
  const test::redis_server server;
  auto client = waiting_client::make(access_of(server)).value();
  const auto texts =
      ask(client, {wire_command({"SET", "a", "1"}), wire_command({"HSET", "h", "one", "", "t\r\nwo", ""}),
                   wire_command({"HKEYS", "h"}), wire_command({"HKEYS", "none"}), wire_command({"HKEYS", "a"}),
                   wire_command({"GET", "none"}), wire_command({"SCAN", "0", "MATCH", "a"})});
  BOOST_TEST(texts[0] == "OK");
  BOOST_TEST(texts[1] == "2");
  BOOST_TEST(texts[2] == "[one][t\r\nwo]");
  BOOST_TEST(texts[3] == "");
  BOOST_TEST(texts[4].starts_with("WRONGTYPE"));
  BOOST_TEST(texts[5] == "");
  BOOST_TEST(texts[6] == "[0][a]");
  BOOST_TEST(client.connections() == 1U);
}

BOOST_AUTO_TEST_CASE(a_pipeline_may_be_longer_than_all_buffers) {
  const test::redis_server server;
  auto client = waiting_client::make(access_of(server)).value();
  std::vector<std::string> commands;
  for (int i = 0; i < 20'000; ++i) commands.push_back(wire_command({"ECHO", std::string(500, 'x')}));
  BOOST_TEST(ask(client, commands).size() == commands.size());
}

BOOST_AUTO_TEST_CASE(texts_without_a_line_end_may_be_longer_than_all_buffers) {
  const test::redis_server server;
  auto client = waiting_client::make(access_of(server), {.most_reply_bytes = std::size_t{8} << 20U}).value();
  const std::string dense(3'000'000, '\xff'), ends(300'000, '\n'), empty;
  const auto texts = ask(client, {wire_command({"HSET", "h", dense, ends, ends, empty, empty, dense}),
                                  wire_command({"ECHO", dense}), wire_command({"HMGET", "h", dense, ends, empty}),
                                  wire_command({"ECHO", empty}), wire_command({"ECHO", "\r\n$5\r\n"})});
  BOOST_TEST((texts[1] == dense));
  BOOST_TEST((texts[2] == "[" + ends + "][][" + dense + "]"));
  BOOST_TEST(texts[3] == "");
  BOOST_TEST(texts[4] == "\r\n$5\r\n");
}

BOOST_AUTO_TEST_CASE(a_reply_above_the_bound_is_an_error) {
  const test::redis_server server;
  auto client = waiting_client::make(access_of(server), {.most_reply_bytes = 1000}).value();
  BOOST_TEST(ask(client, {wire_command({"ECHO", std::string(900, 'x')})}).front().size() == 900U);
  const std::vector commands{wire_command({"ECHO", std::string(1000, 'x')})};
  const auto done = client.run(commands, present_time() + 60s, [](std::size_t, const server_reply&) {});
  BOOST_REQUIRE(!done.has_value());
  BOOST_TEST((done.error().code() == error_code::malformed));
}

BOOST_AUTO_TEST_CASE(a_stop_ends_what_waits) {
  test::redis_server server;
  std::stop_source stop;
  auto client = waiting_client::make(access_of(server), {.stop = stop.get_token()}).value();
  const std::vector commands{wire_command({"PING"})};
  BOOST_TEST(ask(client, commands).front() == "PONG");
  server.freeze();
  std::thread stopper([&] { stop.request_stop(); });
  BOOST_TEST(!client.run(commands, present_time() + 1h, [](std::size_t, const server_reply&) {}).has_value());
  stopper.join();
  server.thaw();
}

BOOST_AUTO_TEST_CASE(a_password_and_a_database_are_sent_first) {
  const test::redis_server server({"--requirepass", "hush"});
  const std::string file = server.folder() / "secret";
  std::ofstream(file) << "hush\n";
  BOOST_REQUIRE(::chmod(file.c_str(), 0600) == 0);
  auto access = access_of(server);
  access.database = 3;
  auto without = waiting_client::make(access).value();
  const std::vector commands{wire_command({"SET", "a", "1"})};
  BOOST_TEST(!without.run(commands, present_time() + 60s, [](std::size_t, const server_reply&) {}).has_value());
  access.credentials = file;
  auto client = waiting_client::make(access).value();
  BOOST_TEST(ask(client, commands).front() == "OK");
  BOOST_TEST(server.say({"DBSIZE"}, "hush") == "0");
  std::ofstream(file) << "wrong\n";
  auto wrong = waiting_client::make(access).value();
  const auto refused = wrong.run(commands, present_time() + 60s, [](std::size_t, const server_reply&) {});
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST(refused.error().message().find("WRONGPASS") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_server_that_says_nothing_costs_the_deadline_and_the_connection) {
  test::redis_server server;
  auto client = waiting_client::make(access_of(server)).value();
  const std::vector commands{wire_command({"PING"})};
  BOOST_TEST(ask(client, commands).front() == "PONG");
  server.freeze();
  const auto late = client.run(commands, present_time() + 50ms, [](std::size_t, const server_reply&) {});
  BOOST_REQUIRE(!late.has_value());
  BOOST_TEST((late.error().code() == error_code::deadline_exceeded));
  BOOST_TEST(!client.is_connected());
  const auto again = client.run(commands, present_time() + 50ms, [](std::size_t, const server_reply&) {});
  BOOST_TEST(!again.has_value());
  server.thaw();
  BOOST_TEST(ask(client, commands).front() == "PONG");
}

BOOST_AUTO_TEST_CASE(a_server_that_ends_is_an_error_and_the_next_call_connects_again) {
  test::redis_server server;
  auto client = waiting_client::make(access_of(server)).value();
  const std::vector commands{wire_command({"PING"})};
  (void)ask(client, commands);
  server.kill();
  const auto none = [](std::size_t, const server_reply&) {};
  BOOST_TEST(!client.run(commands, present_time() + 60s, none).has_value());
  BOOST_TEST(!client.run(commands, present_time() + 60s, none).has_value());
  server.start();
  BOOST_TEST(ask(client, commands).front() == "PONG");
  BOOST_TEST(client.connections() == 2U);
}

BOOST_AUTO_TEST_CASE(a_name_without_an_address_ends_at_the_deadline_at_the_latest) {
  auto client = waiting_client::make({.address = {.path = {}, .place = {"no-such-host.invalid", 1}}}).value();
  const std::vector commands{wire_command({"PING"})};
  const auto done = client.run(commands, present_time() + 5s, [](std::size_t, const server_reply&) {});
  BOOST_TEST(!done.has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::redis
