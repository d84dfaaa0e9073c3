// One connection to a server that the test plays, in virtual time: puts that are given up, and removals behind them.
#include <poll.h>

#include <array>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <future>
#include <mutex>

#include "tests/unit/tiers/remote/backend_fixture.hpp"
#include "tests/unit/tiers/remote/fake_redis.hpp"
#include "tiers/remote/redis_lane.hpp"

namespace cenote::remote {

namespace {

using namespace std::chrono_literals;

/// A server that keeps a put to itself until it is let go, and counts deletions of blocks.
class slow_server {
 public:
  slow_server()
      : server_([this](const redis_words& words) -> std::optional<fake_reply> {
          if (words[0] == "DEL") ++deletions;
          if (words[0] != "SETNX") return std::nullopt;
          if (closes_at_put.exchange(false)) return fake_reply{.closes = true};
          ++puts;
          may_go_on_.wait();
          return std::nullopt;
        }) {}
  ~slow_server() { let_go(); }

  void let_go() {
    if (!is_let_go_.exchange(true)) let_go_.set_value();
  }
  [[nodiscard]] redis::server_url url() const { return *redis::parse_server_url(server_.url()); }

  std::atomic<int> puts = 0, deletions = 0;
  std::atomic<bool> closes_at_put = false;

 private:
  std::promise<void> let_go_;
  std::shared_future<void> may_go_on_ = let_go_.get_future().share();
  std::atomic<bool> is_let_go_ = false;
  fake_redis server_;
};

redis_settings patient_settings() {
  redis_settings settings;
  settings.prefix = "cenote";
  settings.timeout = 3600s;
  settings.first_back_off = settings.last_back_off = 0ms;
  return settings;
}

class lane_under_test {
 public:
  explicit lane_under_test(slow_server& server)
      : book_(std::move(*epoch_book::open(folder_ / "book", 1))),
        site_(
            server.url().servers.front(), settings_, book_, [] {}, look_up),
        lane_(site_, settings_, answers_) {
    events_.put = [this](const auto& some) { outcomes_.insert(outcomes_.end(), some.begin(), some.end()); };
    run_until([this] { return lane_.is_ready(); });
  }

  /// Lets the connection work, at the time of the test.
  void run_until(const std::function<bool()>& done) {
    const auto until = std::chrono::steady_clock::now() + 60s;
    while (!done()) {
      BOOST_REQUIRE(std::chrono::steady_clock::now() < until);
      lane_.turn(now_);
      pollfd polled = lane_.watched();
      if (::poll(&polled, 1, 1) > 0) lane_.serve(polled.revents, now_);
      answers_.deliver(events_);
    }
  }
  void put() { lane_.take(request(request_kind::put), now_); }
  /// The time at which all that is open is given up, while the connection is still waited for.
  void pass_deadline() { now_ += patience_; }
  /// Another connection of this node makes a newer epoch.
  void renew_epoch() {
    const auto place = site_.place_of(some_identity);
    BOOST_REQUIRE(book_.keep(place, {book_.known(place) + 1}).has_value());
  }
  [[nodiscard]] std::size_t end_puts() {
    return lane_.end_puts(some_identity, std::array{name_of(1).key()}, now_).size();
  }
  /// Of the block, behind what the connection has of it; gives the answer of the removal.
  std::shared_ptr<std::optional<result<std::uint64_t>>> drop() {
    auto heard = std::make_shared<std::optional<result<std::uint64_t>>>();
    redis_request made = request(request_kind::drop);
    made.asked = std::make_shared<redis_question>();
    made.asked->open = 1;
    made.asked->dropped = [heard](const auto& count, const auto&) { *heard = count; };
    lane_.take_first(std::move(made), now_);
    return heard;
  }
  [[nodiscard]] const std::vector<item_outcome>& outcomes() const noexcept { return outcomes_; }
  [[nodiscard]] bool is_ready() const noexcept { return lane_.is_ready(); }

 private:
  redis_request request(request_kind kind) {
    return {.kind = kind,
            .name = name_of(1),
            .key = name_of(1).key(),
            .token = ++token_,
            .size = bytes_.size(),
            .memory = bytes_,
            .begun = now_,
            .deadline = now_ + patience_};
  }

  static constexpr auto patience_ = 1s;
  test::scratch_folder folder_;
  const redis_settings settings_ = patient_settings();
  epoch_book book_;
  redis_answers answers_;
  redis_site site_;
  redis_lane lane_;
  std::vector<std::byte> bytes_ = block_of(1, 4096);
  std::vector<item_outcome> outcomes_;
  backend::events events_;
  std::uint64_t token_ = 0;
  steady_time now_ = std::chrono::steady_clock::now();
};

/// A put whose bytes are at the server, and whose deadline passes.
void give_up_put(slow_server& server, lane_under_test& lane) {
  lane.put();
  lane.run_until([&] { return server.puts == 1; });
  lane.pass_deadline();
  lane.run_until([&] { return !lane.outcomes().empty(); });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(redis_lanes)

BOOST_AUTO_TEST_CASE(a_removal_of_what_a_given_up_put_may_still_bring_is_answered_behind_it) {
  slow_server server;
  lane_under_test lane(server);
  give_up_put(server, lane);
  BOOST_TEST(lane.outcomes().front().what == item_result::unreachable);
  BOOST_TEST(lane.end_puts() == 1U);
  const auto removed = lane.drop();
  server.let_go();
  lane.run_until([&] { return removed->has_value(); });
  BOOST_REQUIRE((*removed)->has_value());
  lane.run_until([&] { return server.deletions == 2; });  // one for the removal, one for the value that came late
  BOOST_TEST(lane.end_puts() == 0U);
}

BOOST_AUTO_TEST_CASE(a_given_up_put_whose_key_was_removed_is_deleted_when_it_lands_whoever_waits) {
  slow_server server;
  lane_under_test lane(server);
  give_up_put(server, lane);
  BOOST_TEST(lane.end_puts() == 1U);
  server.let_go();
  lane.run_until([&] { return server.deletions == 1; });
}

BOOST_AUTO_TEST_CASE(a_put_that_lands_without_a_removal_stays) {
  slow_server server;
  lane_under_test lane(server);
  give_up_put(server, lane);
  server.let_go();
  const auto removed = lane.drop();
  lane.run_until([&] { return removed->has_value(); });
  BOOST_REQUIRE((*removed)->has_value());
  BOOST_TEST(removed->value().value() == 1U);  // it was there until then
  BOOST_TEST(server.deletions == 1);
}

BOOST_AUTO_TEST_CASE(what_was_removed_while_its_connection_was_lost_is_deleted_on_the_next_one) {
  slow_server server;
  server.closes_at_put = true;
  lane_under_test lane(server);
  lane.put();
  lane.run_until([&] { return !lane.outcomes().empty(); });
  BOOST_TEST(lane.outcomes().front().what == item_result::unreachable);
  BOOST_TEST(!lane.is_ready());
  BOOST_TEST(lane.end_puts() == 1U);
  lane.run_until([&] { return server.deletions == 1; });
  BOOST_TEST(lane.end_puts() == 0U);
}

BOOST_AUTO_TEST_CASE(a_put_that_others_may_have_seen_and_removed_is_not_sent_again) {
  slow_server server;
  lane_under_test lane(server);
  lane.put();
  lane.run_until([&] { return server.puts == 1; });
  lane.renew_epoch();
  server.let_go();
  lane.run_until([&] { return !lane.outcomes().empty(); });
  BOOST_TEST(lane.outcomes().front().what == item_result::refused);
  BOOST_TEST(server.puts == 1);
}

BOOST_AUTO_TEST_CASE(a_put_that_was_not_sent_ends_with_its_removal) {
  slow_server server;
  lane_under_test lane(server);
  lane.put();
  BOOST_TEST(lane.end_puts() == 0U);
  lane.run_until([&] { return !lane.outcomes().empty(); });
  BOOST_TEST(lane.outcomes().front().what == item_result::refused);
  BOOST_TEST(server.puts == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::remote
