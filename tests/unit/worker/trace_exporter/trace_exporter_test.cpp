// The exporter before collectors that take spans, refuse them, talk nonsense, are away or hang.
#include "worker/trace_exporter/trace_exporter.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/unique_fd.hpp"
#include "tests/support/allocations.hpp"
#include "tests/unit/worker/trace_exporter/example_spans.hpp"

namespace cenote::traces::trace_exporter_test {

namespace {

using std::chrono::milliseconds;
using testing::origin_of;
using testing::prefetch_span;

constexpr auto patience = std::chrono::seconds(30);
constexpr std::string_view good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

void wait_for(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    BOOST_REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::yield();
  }
}

/// A listening socket; connections to it succeed, without an answer.
class silent_collector {
 public:
  silent_collector() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    BOOST_REQUIRE(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&place), size) == 0);
    BOOST_REQUIRE(::listen(socket_.get(), 64) == 0);
    BOOST_REQUIRE(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&place), &size) == 0);
    port_ = ::ntohs(place.sin_port);
  }
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  [[nodiscard]] exporter_options options() const {
    return {.collector = {.address = {"127.0.0.1", port_}},
            .target = "/v1/traces",
            .gather = milliseconds(1),
            .post_limit = milliseconds(20'000),
            .first_pause = milliseconds(1),
            .longest_pause = milliseconds(1)};
  }

 private:
  unique_fd socket_;
  std::uint16_t port_ = 0;
};

/// Answers each request with what `answer` makes of its number, from 0.
class collector : public silent_collector {
 public:
  explicit collector(std::function<std::string(int)> answer)
      : answer_(std::move(answer)), thread_([this] { serve(); }) {}
  collector(const collector&) = delete;
  collector& operator=(const collector&) = delete;
  ~collector() {
    ::shutdown(fd(), SHUT_RDWR);
    thread_.join();
  }

  /// Of each request that came, how many spans it had.
  [[nodiscard]] std::vector<std::size_t> batches() {
    const std::lock_guard lock(mutex_);
    return batches_;
  }

 private:
  void serve() {
    for (int number = 0;; ++number) {
      const unique_fd peer(::accept(fd(), nullptr, nullptr));
      if (!peer) return;
      read_request(peer.get());
      const std::string said = answer_(number);
      (void)!::send(peer.get(), said.data(), said.size(), MSG_NOSIGNAL);
    }
  }

  void read_request(int peer) {
    std::string text;
    std::size_t body = std::string::npos, size = 0;
    std::array<char, 65'536> piece{};
    while (body == std::string::npos || text.size() < body + size) {
      const ssize_t got = ::recv(peer, piece.data(), piece.size(), 0);
      if (got <= 0) return;
      text.append(piece.data(), static_cast<std::size_t>(got));
      body = text.find("\r\n\r\n");
      if (body == std::string::npos) continue;
      body += 4;
      size = std::stoul(text.substr(text.find("Content-Length: ") + 16));
    }
    const auto read = nlohmann::json::parse(text.substr(body));
    const std::size_t spans = read["resourceSpans"][0]["scopeSpans"][0]["spans"].size();
    const std::lock_guard lock(mutex_);
    batches_.push_back(spans);
  }

  std::function<std::string(int)> answer_;
  std::mutex mutex_;
  std::vector<std::size_t> batches_;
  std::thread thread_;
};

local::span_batch batch_of(std::size_t count) {
  return {.spans = std::vector<local::trace_span>(count, prefetch_span())};
}

std::unique_ptr<trace_exporter> started(exporter_options options) {
  auto made = trace_exporter::start(std::move(options));
  BOOST_REQUIRE(made);
  return std::move(*made);
}

std::atomic<int> faults = 0;

/// Of the exporter's thread the second allocation: behind that of its batch that of the document.
bool fails_once() noexcept {
  thread_local int allocated = 0;
  std::array<char, 16> name{};
  ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  if (std::string_view(name.data()) != "trace-exporter" || ++allocated != 2) return false;
  ++faults;
  return true;
}

std::uint64_t dropped_of(const trace_report& report) {
  return report.dropped_full + report.dropped_away + report.dropped_refused + report.dropped_at_stop;
}

/// The report after ten spans, with a collector of these answers.
trace_report report_of(std::function<std::string(int)> answer) {
  collector there(std::move(answer));
  const auto exporter = started(there.options());
  exporter->add({}, origin_of(), batch_of(10));
  wait_for([&] { return exporter->report().waiting == 0; });
  return exporter->report();
}

std::string refusal(int status) {
  return "HTTP/1.1 " + std::to_string(status) + " no\r\nContent-Length: 0\r\n\r\n";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_exporters)

BOOST_AUTO_TEST_CASE(spans_go_in_batches) {
  collector there([](int) { return std::string(good); });
  auto options = there.options();
  options.gather = std::chrono::hours(1);  // a full batch does not wait for it
  auto exporter = started(options);
  for (int i = 0; i < 6; ++i) exporter->add({}, origin_of(), batch_of(256));
  wait_for([&] { return exporter->report().exported == 3 * 512; });
  BOOST_TEST(there.batches() == std::vector<std::size_t>(3, 512), boost::test_tools::per_element());
  BOOST_TEST(exporter->report().waiting == 0U);
  BOOST_TEST(dropped_of(exporter->report()) == 0U);
}

BOOST_AUTO_TEST_CASE(a_collector_that_has_no_time_is_asked_again) {
  const auto report = report_of([](int number) { return number < 3 ? refusal(503) : std::string(good); });
  BOOST_TEST(report.exported == 10U);
  BOOST_TEST(dropped_of(report) == 0U);
}

BOOST_AUTO_TEST_CASE(without_memory_for_a_document_it_is_made_again_later) {
  test::set_allocation_fault(&fails_once);
  const auto report = report_of([](int) { return std::string(good); });
  test::set_allocation_fault(nullptr);
  BOOST_TEST(faults == 1);
  BOOST_TEST(report.exported == 10U);
  BOOST_TEST(dropped_of(report) == 0U);
}

BOOST_AUTO_TEST_CASE(what_would_be_refused_again_is_dropped_at_once) {
  for (const int status : {400, 404, 413, 500, 501}) {
    collector there([&](int) { return refusal(status); });
    const auto exporter = started(there.options());
    exporter->add({}, origin_of(), batch_of(10));
    wait_for([&] { return exporter->report().waiting == 0; });
    BOOST_TEST(exporter->report().dropped_refused == 10U, status);
    BOOST_TEST(there.batches().size() == 1U, status);
  }
}

BOOST_AUTO_TEST_CASE(one_that_is_away_for_long_costs_the_spans_and_nothing_else) {
  const auto report = report_of([](int) { return refusal(503); });
  BOOST_TEST(report.dropped_away == 10U);
  const auto cut = report_of([](int) { return std::string(); });  // it closes without a word
  BOOST_TEST(cut.dropped_away == 10U);
}

BOOST_AUTO_TEST_CASE(nobody_listens_there) {
  exporter_options options;
  {
    const silent_collector gone;
    options = gone.options();
  }
  const auto exporter = started(options);
  exporter->add({}, origin_of(), batch_of(10));
  wait_for([&] { return exporter->report().waiting == 0; });
  BOOST_TEST(exporter->report().dropped_away == 10U);
}

BOOST_AUTO_TEST_CASE(answers_that_are_no_http_are_none) {
  for (const std::string& said : {std::string("SSH-2.0-OpenSSH_9.2\r\n"), std::string(1 << 20, '\xff'),
                                  std::string("HTTP/1.1 abc\r\n\r\n"), std::string(100'000, '\n')}) {
    const auto report = report_of([&](int) { return said; });
    BOOST_TEST(report.dropped_away == 10U);
  }
}

BOOST_AUTO_TEST_CASE(what_a_collector_rejects_of_a_batch_counts_as_refused) {
  const auto answering = [](std::string_view body) {
    return [text = "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                   std::string(body)](int) { return text; };
  };
  const auto some = report_of(answering(R"({"partialSuccess":{"rejectedSpans":"4"}})"));
  BOOST_TEST(some.exported == 6U);
  BOOST_TEST(some.dropped_refused == 4U);
  const auto absurd = report_of(answering(R"({"partialSuccess":{"rejectedSpans":"99999999999"}})"));
  BOOST_TEST(absurd.dropped_refused == 10U);
  BOOST_TEST(report_of(answering(std::string(1 << 20, 'x'))).exported == 10U);  // a long text of no meaning
}

BOOST_AUTO_TEST_CASE(what_waits_is_bounded_and_one_user_leaves_room_for_others) {
  constexpr std::uint64_t most = total_of(node_bound::trace_spans);
  const silent_collector hangs;
  auto exporter = started(hangs.options());
  const share_holder greedy{.uid = 1, .group = "a"}, modest{.uid = 2, .group = "b"};
  std::uint64_t added = 0;
  for (std::uint64_t i = 0; i < 3 * most / 256; ++i, added += 256) exporter->add(greedy, origin_of(), batch_of(256));
  const auto full = exporter->report();
  BOOST_TEST(full.waiting <= most / 2 + 1);
  BOOST_TEST(full.waiting + full.dropped_full == added);
  exporter->add(modest, origin_of(), batch_of(256));
  BOOST_TEST(exporter->report().waiting == full.waiting + 256);
  exporter->add(greedy, origin_of(), {.spans = {}, .dropped = 7});
  BOOST_TEST(exporter->report().dropped_by_client == 7U);
}

BOOST_AUTO_TEST_CASE(the_end_hands_over_what_waits) {
  collector there([](int) { return std::string(good); });
  auto options = there.options();
  options.gather = std::chrono::hours(1);
  options.stop_limit = patience;
  auto exporter = started(options);
  exporter->add({}, origin_of(), batch_of(3));
  exporter.reset();
  BOOST_TEST(there.batches() == std::vector<std::size_t>{3}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_end_does_not_wait_for_a_collector_that_hangs_or_was_away) {
  const silent_collector hangs;
  auto options = hangs.options();
  options.post_limit = std::chrono::hours(1);
  options.stop_limit = milliseconds(10);
  started(options)->add({}, origin_of(), batch_of(3));  // ends here, before its request and perhaps in it
  collector busy([](int) { return refusal(503); });
  options = busy.options();
  options.first_pause = options.longest_pause = std::chrono::hours(1);
  options.stop_limit = std::chrono::hours(1);
  auto exporter = started(options);
  exporter->add({}, origin_of(), batch_of(3));
  wait_for([&] { return !busy.batches().empty(); });
  exporter.reset();
  BOOST_TEST(busy.batches().size() <= 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::traces::trace_exporter_test
