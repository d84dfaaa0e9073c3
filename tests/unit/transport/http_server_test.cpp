#include "transport/http/server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "core/unique_fd.hpp"
#include "transport/http/request.hpp"

using namespace cenote;
using namespace cenote::http;
using namespace std::chrono_literals;

namespace {

unique_fd connect_to(const http::server& server) {
  unique_fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(server.address().port);
  ::inet_pton(AF_INET, "127.0.0.1", &where.sin_addr);
  BOOST_REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) == 0);
  return socket;
}

void say(const unique_fd& to, std::string_view text) {
  BOOST_TEST(::send(to.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
}

/// All until the end of the connection.
std::string hear(const unique_fd& socket) {
  std::string text;
  std::array<char, 4096> bytes;
  for (ssize_t got = 0; (got = ::recv(socket.get(), bytes.data(), bytes.size(), 0)) > 0;) {
    text.append(bytes.data(), static_cast<std::size_t>(got));
  }
  return text;
}

std::string ask(const http::server& server, const std::string& page, const std::string& method = "GET") {
  const auto socket = connect_to(server);
  say(socket, method + " " + page + " HTTP/1.1\r\nHost: here\r\n\r\n");
  return hear(socket);
}

/// A page that waits until it is let go.
struct slow_page {
  result<page> make() {
    std::unique_lock lock(mutex);
    ++made;
    changed.notify_all();
    changed.wait(lock, [&] { return open; });
    return page{"text/plain", "slow"};
  }
  void wait_for_begin() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return made > 0; });
  }
  void let_go() {
    {
      const std::lock_guard lock(mutex);
      open = true;
    }
    changed.notify_all();
  }
  std::mutex mutex;
  std::condition_variable changed;
  int made = 0;
  bool open = false;
};

struct served {
  explicit served(server_limits limits = {}) {
    auto made = http::server::bind({"127.0.0.1", 0}, limits);
    BOOST_REQUIRE(made);
    at = std::move(*made);
    at->serve(
        {{"/ok",
          {.make =
               [] {
                 return page{"text/plain", "ok"};
               },
           .from_memory = true}},
         {"/page",
          {.make =
               [this] {
                 return page{"text/plain", "page " + std::to_string(++pages)};
               }}},
         {"/bad", {.make = []() -> result<page> { return fail(error_code::internal, "no \1 luck"); }}},
         {"/throws", {.make = []() -> result<page> { throw std::runtime_error("of luck"); }}},
         {"/throws_here", {.make = []() -> result<page> { throw std::runtime_error("of luck"); }, .from_memory = true}},
         {"/slow", {.make = [this] { return slow.make(); }}}});
  }
  ~served() { slow.let_go(); }

  slow_page slow;
  std::atomic<int> pages = 0;
  std::unique_ptr<http::server> at;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(http_server)

BOOST_AUTO_TEST_CASE(a_page_is_answered_and_the_connection_ends) {
  const served test;
  BOOST_TEST(ask(*test.at, "/ok") ==
             "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
  BOOST_TEST(ask(*test.at, "/page?a=b").ends_with("\r\n\r\npage 1"));
  BOOST_TEST(ask(*test.at, "/ok", "HEAD").ends_with("\r\n\r\n"));
}

BOOST_AUTO_TEST_CASE(what_is_no_page_is_refused_with_a_reason) {
  const served test;
  BOOST_TEST(ask(*test.at, "/nothing").starts_with("HTTP/1.1 404 Not Found\r\n"));
  BOOST_TEST(ask(*test.at, "/ok", "POST").starts_with("HTTP/1.1 405 Method Not Allowed\r\n"));
  const auto odd = connect_to(*test.at);
  say(odd, "hello\r\n\r\n");
  BOOST_TEST(hear(odd).starts_with("HTTP/1.1 400 "));
  const auto large = connect_to(*test.at);
  say(large, std::string(20'000, 'a'));
  BOOST_TEST(hear(large).starts_with("HTTP/1.1 431 "));
}

BOOST_AUTO_TEST_CASE(a_page_that_fails_or_throws_is_an_answer_and_no_end_of_anything) {
  const served test;
  BOOST_TEST(ask(*test.at, "/bad").starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
  for (const char* page : {"/throws", "/throws_here"}) {
    const std::string answer = ask(*test.at, page);
    BOOST_TEST(answer.starts_with("HTTP/1.1 500 "));
    BOOST_TEST(answer.find("of luck") != std::string::npos);
  }
  BOOST_TEST(ask(*test.at, "/page").ends_with("page 1"));
}

BOOST_AUTO_TEST_CASE(neither_silence_nor_a_slow_page_is_in_the_way_of_one_from_memory) {
  served test;
  std::vector<unique_fd> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(connect_to(*test.at));
    say(others.back(), i % 2 == 0 ? "GET /ok HTTP/1.1\r\nX: " : "GET /slow HTTP/1.1\r\n\r\n");
  }
  test.slow.wait_for_begin();
  BOOST_TEST(ask(*test.at, "/ok").ends_with("ok"));
  test.slow.let_go();
  for (std::size_t i = 1; i < others.size(); i += 2) BOOST_TEST(hear(others[i]).ends_with("slow"));
  BOOST_TEST(test.slow.made == 1);  // for all of them
}

BOOST_AUTO_TEST_CASE(a_page_is_made_once_for_all_who_ask_within_a_moment) {
  const served test({.fresh = 100'000h});  // longer than any machine is up: the clock counts from its start
  for (int i = 0; i < 20; ++i) BOOST_TEST(ask(*test.at, "/page").ends_with("page 1"));
  BOOST_TEST(test.pages == 1);
}

BOOST_AUTO_TEST_CASE(a_request_that_drips_in_is_cut_off_at_its_deadline) {
  const served test({.request = 50ms});
  const auto slow = connect_to(*test.at);
  // However many bytes come, the deadline stays.
  for (bool open = true; open;) {
    open = ::send(slow.get(), "a", 1, MSG_NOSIGNAL) == 1;
    pollfd end{slow.get(), POLLIN, 0};
    if (::poll(&end, 1, 1) > 0) open = false;
  }
  BOOST_TEST(hear(slow) == "");
}

BOOST_AUTO_TEST_CASE(of_too_many_connections_the_longest_silent_one_goes) {
  const served test({.connections = 4, .request = 1h});
  std::vector<unique_fd> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(connect_to(*test.at));
  BOOST_TEST(ask(*test.at, "/ok").ends_with("ok"));
  for (int i = 0; i < 36; ++i) BOOST_TEST(hear(silent[static_cast<std::size_t>(i)]) == "");
  say(silent.back(), "GET /ok HTTP/1.1\r\n\r\n");
  BOOST_TEST(hear(silent.back()).ends_with("ok"));
}

BOOST_AUTO_TEST_CASE(a_port_that_is_taken_is_an_error) {
  const served test;
  const auto second = http::server::bind(test.at->address());
  BOOST_REQUIRE(!second);
  BOOST_TEST(second.error().message().find("in use") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(it_ends_with_connections_of_every_kind) {
  served test;
  const auto silent = connect_to(*test.at);
  const auto waiting = connect_to(*test.at);
  say(waiting, "GET /slow HTTP/1.1\r\n\r\n");
  test.slow.wait_for_begin();
  test.slow.let_go();
  test.at->stop();
  test.at->stop();
}

BOOST_AUTO_TEST_SUITE_END()
