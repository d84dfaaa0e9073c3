#include "actors/request_recording.hpp"

#include <boost/test/unit_test.hpp>
#include <utility>

using namespace cenote;

namespace {

using time_point = std::chrono::steady_clock::time_point;

watched_batch batch_of(std::size_t requests, std::size_t blocks) {
  watched_batch batch;
  for (std::size_t i = 0; i < requests; ++i) {
    batch.requests.push_back({.instance = 1, .ids = std::vector<std::uint64_t>(blocks, i + 1), .block_tokens = 16});
  }
  batch.blocks = requests * blocks;
  return batch;
}

struct recording_fixture {
  time_point moment(std::chrono::milliseconds time) const { return start + time; }

  time_point start{std::chrono::hours(1)};
  request_recording recording;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(request_recording_tests, recording_fixture)

BOOST_AUTO_TEST_CASE(requests_come_out_once_in_their_order_with_the_times_since_the_recording_began) {
  const auto begun = recording.begin(0, start);
  BOOST_REQUIRE((begun.status.code == error_code::ok));
  BOOST_TEST(begun.recording != 0U);
  recording.add(batch_of(2, 3), moment(std::chrono::milliseconds(5)));
  recording.add(batch_of(1, 1), moment(std::chrono::milliseconds(7)));
  const auto answer = recording.take(begun.recording, 0, moment(std::chrono::milliseconds(9)));
  BOOST_REQUIRE(answer.requests.size() == 3U);
  BOOST_TEST(answer.requests[1].ids == std::vector<std::uint64_t>(3, 2));
  BOOST_TEST((answer.times_ns == std::vector<std::uint64_t>{5'000'000, 5'000'000, 7'000'000}));
  BOOST_TEST(!answer.has_more);
  BOOST_TEST(recording.take(begun.recording, 0, moment(std::chrono::milliseconds(9))).requests.empty());
}

BOOST_AUTO_TEST_CASE(without_a_recording_nothing_waits) {
  recording.add(batch_of(1, 1), start);
  const auto begun = recording.begin(0, start);
  BOOST_TEST(recording.take(begun.recording, 0, start).requests.empty());
  BOOST_TEST((recording.take(begun.recording + 1, 0, start).status.code == error_code::closed));
}

BOOST_AUTO_TEST_CASE(a_second_recording_is_refused_until_the_first_has_ended_or_was_given_up) {
  const auto first = recording.begin(0, start);
  BOOST_TEST((recording.begin(0, start).status.code == error_code::limit_exceeded));
  recording.end(first.recording + 1);
  BOOST_TEST((recording.begin(0, start).status.code == error_code::limit_exceeded));
  recording.end(first.recording);
  const auto second = recording.begin(0, start);
  BOOST_TEST((second.status.code == error_code::ok));
  const auto late = moment(request_recording::patience + std::chrono::milliseconds(1));
  recording.add(batch_of(1, 1), late);
  BOOST_TEST((recording.take(second.recording, 0, late).status.code == error_code::closed));
  BOOST_TEST((recording.begin(0, late).status.code == error_code::ok));
}

BOOST_AUTO_TEST_CASE(more_than_may_wait_is_dropped_and_counted_with_what_never_came) {
  const auto begun = recording.begin(10, start);
  const std::size_t large = request_recording::most_waiting - 9;
  recording.add(batch_of(1, large), start);
  recording.add(batch_of(3, 1), start);
  auto answer = recording.take(begun.recording, 14, start);
  BOOST_TEST(answer.requests.size() == 1U);
  BOOST_TEST(answer.dropped == 3U + 4U);
  recording.add(batch_of(1, 1), start);
  answer = recording.take(begun.recording, 14, start);
  BOOST_TEST(answer.requests.size() == 1U);
  BOOST_TEST(answer.dropped == 3U + 4U);
}

BOOST_AUTO_TEST_CASE(an_answer_is_bounded_and_says_that_more_waits) {
  const auto begun = recording.begin(0, start);
  recording.add(batch_of(3, request_recording::most_answered), start);
  std::size_t requests = 0;
  for (bool more = true; more;) {
    const auto answer = recording.take(begun.recording, 0, start);
    BOOST_TEST(answer.requests.size() == 1U);
    requests += answer.requests.size();
    more = answer.has_more;
  }
  BOOST_TEST(requests == 3U);
}

BOOST_AUTO_TEST_SUITE_END()
