#include "transport/http/request_stream.hpp"

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <random>

#include "tests/support/allocations.hpp"

using namespace cenote;
using namespace cenote::http;

namespace {

struct reader_world {
  explicit reader_world(request_limits limits = {}) : reader(limits, budget) {}

  void put(std::string_view text) {
    while (!text.empty()) {
      const auto room = reader.room();
      BOOST_REQUIRE(!room.empty());
      const std::size_t size = std::min(room.size(), text.size());
      std::memcpy(room.data(), text.data(), size);
      reader.add(size);
      text.remove_prefix(size);
    }
  }
  /// On to the request's end or refusal, past its header.
  stream_state advance() {
    const auto state = reader.advance();
    return state == stream_state::header ? reader.advance() : state;
  }
  std::string body() const {
    return {reinterpret_cast<const char*>(reader.request().body.data()), reader.request().body.size()};
  }
  int refusal_of(std::string_view text) {
    put(text);
    BOOST_TEST((advance() == stream_state::refused), text);
    return reader.refusal().status;
  }

  buffer_budget budget{std::size_t{64} << 20U};
  request_stream reader;
};

int refusal_of(std::string_view text, request_limits limits = {}) {
  return reader_world(limits).refusal_of(text);
}

/// All that there is to see of requests, whatever the pieces in which they come.
std::string shown_requests(std::string_view text, std::size_t piece) {
  reader_world world;
  std::string shown;
  while (!text.empty()) {
    world.put(text.substr(0, piece));
    text.remove_prefix(std::min(piece, text.size()));
    stream_state state = world.advance();
    for (; state == stream_state::complete; state = world.advance()) {
      const http_request& request = world.reader.request();
      shown.append(request.method).append(" ").append(request.path).append("?").append(request.query);
      for (const auto& field : request.fields) shown.append(" ").append(field.name).append("=").append(field.value);
      shown.append(" [").append(world.body()).append(world.reader.keeps_alive() ? "]" : "]!");
      world.reader.finish();
    }
    BOOST_REQUIRE((state != stream_state::refused));
  }
  return shown;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(request_reading)

BOOST_AUTO_TEST_CASE(requests_are_the_same_in_whatever_pieces_they_come) {
  constexpr std::string_view text =
      "GET /a?x=1 HTTP/1.1\r\nHost: h\r\nEmpty:\r\n\r\n"
      "\r\nPOST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n10;name=value\r\n0123456789abcdef\r\n0\r\nTrailer: x\r\n\r\n"
      "HEAD http://h:1/d?q HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
      "DELETE /e HTTP/1.0\r\n\r\n";
  const std::string whole = shown_requests(text, text.size());
  BOOST_TEST(whole ==
             "GET /a?x=1 Host=h Empty= []"
             "POST /b? Host=h Content-Length=5 [hello]"
             "POST /c? Host=h Transfer-Encoding=chunked [abc0123456789abcdef]"
             "GET /d?q Host=h Connection=close []!"
             "DELETE /e? []!");
  for (std::size_t piece = 1; piece < 80; ++piece) BOOST_TEST(shown_requests(text, piece) == whole, piece);
}

BOOST_AUTO_TEST_CASE(a_large_body_is_whole_and_may_be_read_beyond_its_end) {
  for (const bool is_chunked : {false, true}) {
    std::string body(5'000'000, '\0');
    std::mt19937 random(3);
    for (char& each : body) each = static_cast<char>(random());
    std::string text = "POST / HTTP/1.1\r\nHost: h\r\n";
    if (is_chunked) {
      text += "Transfer-Encoding: chunked\r\n\r\n";
      for (std::size_t sent = 0; sent < body.size();) {
        const std::size_t size = std::min<std::size_t>(1 + random() % 40'000, body.size() - sent);
        std::array<char, 16> head;
        std::snprintf(head.data(), head.size(), "%zx\r\n", size);
        text.append(head.data()).append(body, sent, size).append("\r\n");
        sent += size;
      }
      text += "0\r\n\r\n";
    } else {
      text += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    }
    text += "GET /next HTTP/1.1\r\nHost: h\r\n\r\n";
    reader_world world;
    std::string_view rest = text;
    stream_state state = stream_state::incomplete;
    while (state != stream_state::complete) {
      BOOST_REQUIRE(!rest.empty());
      const std::size_t piece = std::min<std::size_t>(1 + random() % 100'000, rest.size());
      world.put(rest.substr(0, piece));
      rest.remove_prefix(piece);
      state = world.advance();
      BOOST_REQUIRE((state != stream_state::refused));
    }
    BOOST_TEST((world.body() == body));
    const std::byte* const end = world.reader.request().body.data() + world.reader.request().body.size();
    unsigned sum = 0;
    for (std::size_t i = 0; i < http_request::body_padding; ++i) sum += static_cast<unsigned>(end[i]) & 1U;
    BOOST_TEST(sum <= http_request::body_padding);
    BOOST_TEST(world.budget.used() > 0U);
    world.reader.finish();
    world.put(rest);
    BOOST_TEST((world.advance() == stream_state::complete));
    BOOST_TEST(world.reader.request().path == "/next");
    BOOST_TEST(world.budget.used() == 0U);  // the large buffer is gone
  }
}

BOOST_AUTO_TEST_CASE(nothing_is_allocated_for_requests_like_those_before) {
  const std::string text =
      "POST /v1/scores?model=m HTTP/1.1\r\nHost: h\r\nContent-Length: 65536\r\n\r\n" + std::string(65'536, 'x');
  reader_world world;
  const auto ask = [&] {
    world.put(text);
    if (world.advance() != stream_state::complete) throw std::runtime_error("not complete");
    world.reader.finish();
  };
  ask();
  ask();
  const auto counts = test::allocations_during([&] {
    for (int i = 0; i < 10; ++i) ask();
  });
  BOOST_TEST(counts.calls == 0U);
}

BOOST_AUTO_TEST_CASE(a_request_with_two_possible_ends_is_refused) {
  BOOST_TEST(refusal_of("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n") ==
             400);
  BOOST_TEST(refusal_of("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n") ==
             400);
  BOOST_TEST(refusal_of("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc") == 400);
  BOOST_TEST(refusal_of("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3\r\n\r\nabc") == 400);
  BOOST_TEST(refusal_of("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -3\r\n\r\nabc") == 400);
  BOOST_TEST(refusal_of("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n") == 400);
  BOOST_TEST(refusal_of("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n") == 501);
  BOOST_TEST(refusal_of("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n") == 501);
  BOOST_TEST(refusal_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n") == 501);
  BOOST_TEST(refusal_of("GET / HTTP/1.1\r\nHost: a\r\nX: one\r\n two\r\n\r\n") == 400);
}

BOOST_AUTO_TEST_CASE(what_is_no_request_is_refused) {
  for (const std::string_view text :
       {"hello\r\n\r\n", "GET / HTTP/2.0\r\nHost: h\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost : h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n", "\x16\x03\x01\x02\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n"}) {
    BOOST_TEST(refusal_of(text) == 400, text);
  }
  BOOST_TEST(refusal_of("GET / HTTP/1.1\r\nHost: h\r\nExpect: wonders\r\n\r\n") == 417);
}

BOOST_AUTO_TEST_CASE(headers_and_bodies_have_bounds) {
  const request_limits small{.header = 1024, .body = 100, .fields = 10};
  const std::string begin = "POST / HTTP/1.1\r\nHost: h\r\n";
  BOOST_TEST(refusal_of(begin + "X: " + std::string(2000, 'x'), small) == 431);
  BOOST_TEST(refusal_of("GET /" + std::string(2000, 'x'), small) == 431);
  std::string many = begin;
  for (int i = 0; i < 12; ++i) many += "X: y\r\n";
  BOOST_TEST(refusal_of(many + "\r\n", small) == 431);
  BOOST_TEST(refusal_of(begin + "Content-Length: 101\r\n\r\n", small) == 413);
  BOOST_TEST(
      refusal_of(begin + "Transfer-Encoding: chunked\r\n\r\n60\r\n" + std::string(96, 'x') + "\r\n5\r\n12345\r\n",
                 small) == 413);
  BOOST_TEST(refusal_of(begin + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(3000, 'x'), small) == 400);
  BOOST_TEST(refusal_of(begin + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + std::string(3000, 'x'), small) == 400);
  reader_world exact(small);
  exact.put(begin + "Content-Length: 100\r\n\r\n" + std::string(100, 'x'));
  BOOST_TEST((exact.advance() == stream_state::complete));
}

BOOST_AUTO_TEST_CASE(bodies_beyond_the_budget_of_all_connections_find_no_room) {
  buffer_budget budget(1'000'000);
  request_stream one({}, budget);
  request_stream two({}, budget);
  const std::string text = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 800000\r\n\r\n";
  for (request_stream* each : {&one, &two}) {
    const auto room = each->room();
    BOOST_REQUIRE(room.size() > text.size());
    std::memcpy(room.data(), text.data(), text.size());
    each->add(text.size());
    BOOST_TEST((each->advance() == stream_state::header));
    BOOST_TEST((each->advance() == stream_state::incomplete));
  }
  BOOST_TEST(one.room().size() > 700'000U);
  BOOST_TEST(two.room().size() == 0U);
}

BOOST_AUTO_TEST_CASE(fields_are_found_in_any_case_and_types_without_parameters) {
  reader_world world;
  world.put("GET / HTTP/1.1\r\nhOST: h\r\ncontent-TYPE: Application/JSON; charset=utf-8\r\n\r\n");
  BOOST_TEST((world.advance() == stream_state::complete));
  BOOST_TEST(world.reader.request().header("Host") == "h");
  BOOST_TEST(world.reader.request().header("Authorization").empty());
  BOOST_TEST(world.reader.request().has_type("application/json"));
  BOOST_TEST(!world.reader.request().has_type("application/js"));
}

BOOST_AUTO_TEST_SUITE_END()
