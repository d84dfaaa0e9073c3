#include "transport/http/request_server.hpp"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <future>
#include <thread>
#include <vector>

#include "tests/unit/transport/http/service_world.hpp"

using namespace cenote;
using namespace cenote::http;
using namespace std::chrono_literals;

namespace {

std::string post(std::string_view path, std::string_view body) {
  std::string text = "POST ";
  text.append(path).append(" HTTP/1.1\r\nHost: h\r\nContent-Length: ").append(std::to_string(body.size()));
  return text.append("\r\n\r\n").append(body);
}

/// Short where a test waits for a deadline.
request_server_options with_limits(const request_server_limits& limits) {
  request_server_options options;
  options.threads = 1;
  options.limits = limits;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(request_servers)

BOOST_AUTO_TEST_CASE(a_connection_carries_many_requests) {
  service_world world;
  auto client = world.connect();
  BOOST_TEST(client.get("/a?b").body == "GET /a?b ");
  BOOST_TEST(client.ask(post("/c", "body")).body == "POST /c? body");
  BOOST_TEST(client.ask("DELETE /d%2F HTTP/1.1\r\nHost: h\r\n\r\n").body == "DELETE /d%2F? ");
  const auto head = client.ask("HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD");
  BOOST_TEST(head.status == 200);
  BOOST_TEST(head.head.find("Content-Length: 8\r\n") != std::string::npos);
  BOOST_TEST(client.get("/e").body == "GET /e? ");
  BOOST_TEST(world.server->figures().accepted == 1U);
  BOOST_TEST(world.server->figures().succeeded == 5U);
}

BOOST_AUTO_TEST_CASE(two_requests_in_one_packet_get_two_answers_in_order) {
  service_world world;
  auto client = world.connect();
  client.send(post("/1", "one") + post("/2", "two") + "GET /3 HTTP/1.1\r\nHost: h\r\n");
  BOOST_TEST(client.receive().body == "POST /1? one");
  BOOST_TEST(client.receive().body == "POST /2? two");
  client.send("\r\n");
  BOOST_TEST(client.receive().body == "GET /3? ");
}

BOOST_AUTO_TEST_CASE(more_requests_in_a_row_than_a_turn_has_are_all_answered) {
  service_world world;
  auto client = world.connect();
  std::string text;
  for (int i = 0; i < 500; ++i) text += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: h\r\n\r\n";
  std::thread sender([&] { client.send(text); });
  for (int i = 0; i < 500; ++i) BOOST_TEST(client.receive().body == "GET /" + std::to_string(i) + "? ");
  sender.join();
}

BOOST_AUTO_TEST_CASE(a_connection_ends_where_its_client_wants_it) {
  service_world world;
  auto client = world.connect();
  const auto reply = client.ask("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  BOOST_TEST(reply.body == "GET /? ");
  BOOST_TEST(reply.head.find("Connection: close") != std::string::npos);
  BOOST_TEST(client.is_ended());
  auto old = world.connect();
  BOOST_TEST(old.ask("GET / HTTP/1.0\r\n\r\n").body == "GET /? ");
  BOOST_TEST(old.is_ended());
  auto kept = world.connect();
  const auto kept_reply = kept.ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  BOOST_TEST(kept_reply.head.find("Connection: keep-alive") != std::string::npos);
  BOOST_TEST(kept.ask("GET /2 HTTP/1.0\r\n\r\n").body == "GET /2? ");
}

BOOST_AUTO_TEST_CASE(faults_are_answered_as_json) {
  service_world world;
  auto client = world.connect();
  auto reply = client.get("/throw");
  BOOST_TEST(reply.status == 500);
  BOOST_TEST(reply.body == "{\"error\":\"it \\\"failed\\\"\"}\n");
  BOOST_TEST(reply.head.find("Content-Type: application/json") != std::string::npos);
  reply = client.get("/post");
  BOOST_TEST(reply.status == 405);
  BOOST_TEST(reply.head.find("Allow: POST\r\n") != std::string::npos);
  BOOST_TEST(client.get("/missing").status == 404);
  BOOST_TEST(client.get("/").status == 200);  // the connection goes on, and its head has no Allow
  const auto figures = world.server->figures();
  BOOST_TEST(figures.server_errors == 1U);
  BOOST_TEST(figures.client_errors == 2U);
  BOOST_TEST(figures.bytes_in > 0U);
  BOOST_TEST(figures.bytes_out > 0U);
}

BOOST_AUTO_TEST_CASE(an_answer_asks_for_a_login_or_for_patience) {
  service_world world;
  auto client = world.connect();
  const auto login = client.get("/login");
  BOOST_TEST(login.status == 401);
  BOOST_TEST(login.head.find("WWW-Authenticate: Basic realm=\"here\"\r\n") != std::string::npos);
  BOOST_TEST(login.head.find("Retry-After") == std::string::npos);
  const auto busy = client.get("/busy");
  BOOST_TEST(busy.status == 429);
  BOOST_TEST(busy.head.find("HTTP/1.1 429 Too Many Requests\r\n") != std::string::npos);
  BOOST_TEST(busy.head.find("Retry-After: 7\r\n") != std::string::npos);
  BOOST_TEST(client.get("/").head.find("Retry-After") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_handler_sees_the_address_of_its_client) {
  service_world world;
  BOOST_TEST(world.connect().get("/peer").body == "127.0.0.1 ");
}

BOOST_AUTO_TEST_CASE(what_is_no_request_is_400_and_ends_the_connection) {
  service_world world;
  auto client = world.connect();
  const auto reply = client.ask("what is this\r\n\r\n");
  BOOST_TEST(reply.status == 400);
  BOOST_TEST(reply.body.starts_with("{\"error\":"));
  BOOST_TEST(client.is_ended());
}

BOOST_AUTO_TEST_CASE(a_body_that_is_too_large_is_413_though_the_client_still_sends) {
  service_world world;
  auto client = world.connect();
  const std::string body(20U << 20U, 'x');
  std::thread sender([&] { client.send(post("/", body)); });
  const auto reply = client.receive();
  BOOST_TEST(reply.status == 413);
  BOOST_TEST(reply.body.find("16777216") != std::string::npos);
  sender.join();
}

BOOST_AUTO_TEST_CASE(a_client_that_waits_for_the_servers_consent_gets_it) {
  service_world world;
  auto client = world.connect();
  client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  BOOST_TEST(client.receive().status == 100);
  client.send("body");
  BOOST_TEST(client.receive().body == "POST /x? body");
  client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n");
  BOOST_TEST(client.receive().status == 413);  // without the body, and without consent to it
}

BOOST_AUTO_TEST_CASE(a_client_that_sends_drop_by_drop_meets_the_deadline_and_delays_no_other) {
  service_world world(with_limits({.request = 300ms, .linger = 100ms}));
  auto slow = world.connect();
  auto fast = world.connect();
  std::atomic<bool> is_over = false;
  std::thread drip([&] {
    const std::string text = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + std::string(100'000, 'x');
    for (const char each : text) {
      if (is_over || !slow.send({&each, 1})) return;
      ::poll(nullptr, 0, 5);
    }
  });
  while (world.server->figures().expired == 0) BOOST_REQUIRE(fast.get("/fast").status == 200);
  const auto reply = slow.receive();
  is_over = true;
  drip.join();
  BOOST_TEST(reply.status == 408);
  BOOST_TEST(slow.is_ended());
}

BOOST_AUTO_TEST_CASE(an_idle_connection_ends_after_its_time) {
  service_world world(with_limits({.idle = 100ms}));
  auto client = world.connect();
  BOOST_TEST(client.get("/").status == 200);
  BOOST_TEST(client.is_ended());
  BOOST_TEST(world.server->figures().expired == 0U);
}

BOOST_AUTO_TEST_CASE(a_connection_without_a_request_ends_as_well) {
  service_world world(with_limits({.request = 100ms}));
  auto client = world.connect();
  BOOST_TEST(client.is_ended());
}

BOOST_AUTO_TEST_CASE(a_client_that_never_reads_is_ended_and_delays_no_other) {
  service_world world(with_limits({.answer = 50ms}));
  auto deaf = world.connect();
  deaf.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
  auto other = world.connect();
  while (world.server->figures().expired == 0) BOOST_REQUIRE(other.get("/").status == 200);
  BOOST_TEST(!deaf.receive().is_whole);
}

BOOST_AUTO_TEST_CASE(a_large_answer_is_whole) {
  service_world world;
  auto client = world.connect();
  const auto reply = client.get("/large");
  BOOST_TEST(reply.is_whole);
  BOOST_TEST(reply.body.size() == 64U << 20U);
  BOOST_TEST(client.get("/after").body == "GET /after? ");
}

BOOST_AUTO_TEST_CASE(an_answer_in_parts_is_whole_or_visibly_cut) {
  service_world world;
  std::string expected = "begin;";
  for (int i = 0; i < 1000; ++i) expected += std::to_string(i) + ";";
  auto client = world.connect();
  BOOST_TEST(client.get("/parts").body == expected);
  BOOST_TEST(client.ask("HEAD /parts HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD").status == 200);
  BOOST_TEST(client.get("/after").body == "GET /after? ");
  BOOST_TEST(!client.get("/cut").is_whole);
  auto old = world.connect();
  BOOST_TEST(old.ask("GET /parts HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").body == expected);
}

BOOST_AUTO_TEST_CASE(a_part_that_is_not_there_yet_is_awaited) {
  service_world world;
  auto client = world.connect();
  BOOST_TEST(client.get("/hesitant").body == "part;part;part;");
  BOOST_TEST(client.get("/after").body == "GET /after? ");
}

BOOST_AUTO_TEST_CASE(an_answer_may_wait_for_another_thread) {
  service_world world;
  auto client = world.connect();
  for (int i = 0; i < 200; ++i) BOOST_TEST(client.ask(post("/later", "body")).body == "later body");
  client.send(post("/later", "1") + post("/2", "2"));
  BOOST_TEST(client.receive().body == "later 1");
  BOOST_TEST(client.receive().body == "POST /2? 2");
}

BOOST_AUTO_TEST_CASE(an_answer_that_never_comes_is_503) {
  service_world world(with_limits({.answer = 50ms}));
  auto client = world.connect();
  BOOST_TEST(client.get("/never").status == 503);
  auto second = world.connect();
  second.send("GET /never HTTP/1.1\r\nHost: h\r\n\r\n");
  world.await([](const auto& figures) { return figures.bytes_in > 50; });
}

BOOST_AUTO_TEST_CASE(only_the_token_opens_the_server) {
  request_server_options options;
  options.token = "secret";
  options.open_paths = {"/healthz"};
  service_world world(std::move(options));
  const auto with = [](std::string_view field) {
    return "GET /a HTTP/1.1\r\nHost: h\r\n" + std::string(field) + "\r\n\r\n";
  };
  for (const std::string_view field :
       {"X: y", "Authorization: Bearer", "Authorization: Bearer secre", "Authorization: Bearer secrets",
        "Authorization: Basic secret", "Authorization: secret"}) {
    auto client = world.connect();
    const auto reply = client.ask(with(field));
    BOOST_TEST(reply.status == 401, field);
    BOOST_TEST(reply.head.find("WWW-Authenticate: Bearer\r\n") != std::string::npos);
    BOOST_TEST(client.is_ended());
  }
  auto client = world.connect();
  BOOST_TEST(client.ask(with("Authorization: bearer  secret")).status == 200);
  BOOST_TEST(client.get("/healthz").status == 200);
  BOOST_TEST(client.ask("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n").status ==
             401);  // before its body
  raw_client local(world.path);
  BOOST_TEST(local.get("/a").status == 401);
}

BOOST_AUTO_TEST_CASE(a_unix_socket_serves_its_owner_alone) {
  std::string path;
  {
    service_world world;
    path = world.path;
    struct stat file {};
    BOOST_REQUIRE(::stat(path.c_str(), &file) == 0);
    BOOST_TEST((file.st_mode & 0777) == 0600U);
    raw_client client(path);
    const std::string body(65'536, 'b');
    for (int i = 0; i < 20; ++i) BOOST_TEST(client.ask(post("/size", body)).body == "65536");
  }
  BOOST_TEST(!std::filesystem::exists(path));  // the file goes with the server
}

BOOST_AUTO_TEST_CASE(a_dead_socket_is_replaced_and_a_live_one_is_not) {
  service_world world;
  endpoint any{"127.0.0.1", 0};
  auto second = request_server::bind({.addresses = {any}, .sockets = {{world.path}}});
  BOOST_REQUIRE(!second.has_value());
  BOOST_TEST((second.error().code() == error_code::limit_exceeded));
  const std::string dead = world.path + ".dead";
  {
    auto closed = listen_unix({dead});
    BOOST_REQUIRE(closed.has_value());
  }
  BOOST_TEST(std::filesystem::exists(dead));
  auto third = request_server::bind({.sockets = {{dead}}});
  BOOST_TEST(third.has_value());
  const std::string file = world.path + ".file";
  std::fclose(std::fopen(file.c_str(), "w"));
  auto fourth = request_server::bind({.sockets = {{file}}});
  BOOST_REQUIRE(!fourth.has_value());
  BOOST_TEST((fourth.error().code() == error_code::invalid_argument));
  std::filesystem::remove(file);
}

BOOST_AUTO_TEST_CASE(a_port_that_is_taken_is_refused) {
  service_world world;
  const auto second = request_server::bind({.addresses = {world.server->addresses().front()}});
  BOOST_REQUIRE(!second.has_value());
  BOOST_TEST((second.error().code() == error_code::system));
  BOOST_TEST(!request_server::bind({}).has_value());
}

BOOST_AUTO_TEST_CASE(the_longest_idle_connection_makes_room_for_a_new_one) {
  service_world world(with_limits({.connections = 3}));
  std::vector<raw_client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(world.connect());
    BOOST_TEST(clients.back().get("/").status == 200);
  }
  BOOST_TEST(clients[0].get("/again").status == 200);  // so the second is idle longest
  auto fourth = world.connect();
  BOOST_TEST(fourth.get("/").status == 200);
  BOOST_TEST(clients[1].is_ended());
  BOOST_TEST(clients[0].get("/").status == 200);
  BOOST_TEST(clients[2].get("/").status == 200);
  BOOST_TEST(world.server->figures().displaced == 1U);
  BOOST_TEST(world.server->figures().connections == 3U);
}

BOOST_AUTO_TEST_CASE(without_room_for_a_connection_it_is_refused) {
  service_world world(with_limits({.connections = 1, .answer = 60s}));
  auto busy = world.connect();
  busy.send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
  char first = 0;
  BOOST_TEST(::recv(busy.descriptor(), &first, 1, MSG_PEEK) == 1);  // its answer is under way
  auto second = world.connect();
  BOOST_TEST(second.is_ended());
  BOOST_TEST(world.server->figures().refused == 1U);
}

BOOST_AUTO_TEST_CASE(a_stopping_server_answers_the_request_under_way) {
  service_world world(with_limits({}));
  auto client = world.connect();
  auto idle = world.connect();
  BOOST_TEST(idle.get("/").status == 200);
  auto half = world.connect();
  half.send("POST /half HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo");
  client.send("GET /gate HTTP/1.1\r\nHost: h\r\n\r\n");
  world.gate.await_visitor();
  std::thread stopper([&] { world.server->stop(); });
  world.gate.open();
  const auto reply = client.receive();
  BOOST_TEST(reply.status == 200);
  BOOST_TEST(client.is_ended());
  BOOST_TEST(idle.is_ended());
  half.send("dy");
  BOOST_TEST(half.receive().body == "POST /half? body");
  stopper.join();
  BOOST_TEST(world.server->figures().connections == 0U);
}

BOOST_AUTO_TEST_CASE(a_stopping_server_does_not_wait_for_a_client_without_end) {
  service_world world(with_limits({.request = 60s, .stop = 200ms}));
  auto client = world.connect();
  client.send("POST /half HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo");
  world.await([](const auto& figures) { return figures.bytes_in > 0; });
  world.server->stop();
  BOOST_TEST(client.is_ended());
}

BOOST_AUTO_TEST_CASE(many_clients_on_two_threads_get_their_own_answers) {
  service_world world;
  std::vector<raw_client> clients;  // made here, since checks of Boost.Test are for one thread
  for (int t = 0; t < 8; ++t) clients.push_back(t % 2 == 0 ? world.connect() : raw_client(world.path));
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      raw_client& client = clients[static_cast<std::size_t>(t)];
      for (int i = 0; i < 200; ++i) {
        const std::string body = std::to_string(t * 1000 + i) + std::string(static_cast<std::size_t>(i * 97), 'x');
        if (client.ask(post("/p", body)).body != "POST /p? " + body) ++wrong;
      }
    });
  }
  for (auto& each : threads) each.join();
  BOOST_TEST(wrong == 0);
  BOOST_TEST(world.server->figures().succeeded == 1600U);
}

BOOST_AUTO_TEST_SUITE_END()
