#include "commands/trace/recorded_requests.hpp"

#include <boost/test/unit_test.hpp>

using namespace cenote;
using namespace cenote::traces;
using nlohmann::json;

namespace {

json request_of(std::uint64_t instance, std::uint64_t time_ms, const char* ids, std::uint64_t block_tokens = 16) {
  return {{"time_ns", time_ms * 1'000'000},
          {"instance", instance},
          {"block_tokens", block_tokens},
          {"cut", false},
          {"ids", ids}};
}

json answer_of(json requests) {
  return {{"recording", 1}, {"dropped", 0}, {"more", false}, {"requests", std::move(requests)}};
}

constexpr const char* one = "00000000000000ff";
constexpr const char* two = "00000000000000ffffffffffffffffff";

}  // namespace

BOOST_AUTO_TEST_SUITE(recorded_requests_tests)

BOOST_AUTO_TEST_CASE(requests_have_their_blocks_and_times_from_the_first_one_on) {
  recorded_requests log(0);
  BOOST_REQUIRE(log.add(answer_of({request_of(7, 40, one), request_of(7, 45, two)}), 0));
  json cut = request_of(7, 1, one);
  cut["cut"] = true;
  BOOST_REQUIRE(log.add(answer_of({cut}), 100));  // of a recording that began later
  const auto& trace = log.requests();
  BOOST_REQUIRE(trace.requests().size() == 3U);
  BOOST_TEST(trace.block_tokens() == 16U);
  BOOST_TEST(trace.requests()[0].time_ms == 0U);
  BOOST_TEST(trace.requests()[1].time_ms == 5U);
  BOOST_TEST(trace.requests()[1].tokens == 32U);
  BOOST_TEST((trace.ids(trace.requests()[1]) == std::vector<std::uint64_t>{0xff, ~std::uint64_t{0}}));
  BOOST_TEST(trace.requests()[2].time_ms == 61U);
  BOOST_TEST(log.cut() == 1U);
  BOOST_TEST(log.left_out().empty());
}

BOOST_AUTO_TEST_CASE(equal_keys_of_two_instances_are_two_blocks) {
  recorded_requests log(0);
  BOOST_REQUIRE(log.add(answer_of({request_of(3, 0, one), request_of(9, 0, one), request_of(9, 0, one)}), 0));
  BOOST_TEST(log.requests().distinct() == 2U);
  BOOST_TEST(log.requests().requests()[2].instance == 1U);
}

BOOST_AUTO_TEST_CASE(requests_of_other_sizes_and_with_a_block_twice_are_left_out_by_reason) {
  recorded_requests log(0);
  BOOST_REQUIRE(log.add(answer_of({request_of(1, 0, one), request_of(2, 0, one, 32),
                                   request_of(1, 0, "00000000000000ff00000000000000ff")}),
                        0));
  BOOST_TEST(log.requests().requests().size() == 1U);
  BOOST_TEST(log.left_out().size() == 2U);
  for (const auto& [reason, count] : log.left_out()) BOOST_TEST(count == 1U);
}

BOOST_AUTO_TEST_CASE(an_instance_without_a_size_is_left_out_unless_one_is_given) {
  recorded_requests unknown(0);
  BOOST_REQUIRE(unknown.add(answer_of({request_of(4, 0, one, 0), request_of(5, 0, one), request_of(4, 0, one, 0)}), 0));
  BOOST_TEST(unknown.requests().requests().size() == 1U);
  BOOST_REQUIRE(unknown.left_out().size() == 1U);
  BOOST_TEST(unknown.left_out().begin()->second == 2U);
  recorded_requests known(64);
  BOOST_REQUIRE(known.add(answer_of({request_of(4, 0, one, 0)}), 0));
  BOOST_TEST(known.requests().block_tokens() == 64U);
}

BOOST_AUTO_TEST_CASE(after_a_restart_of_the_node_equal_numbers_are_other_instances) {
  recorded_requests log(0);
  json before = answer_of({request_of(1, 0, one)});
  before["node_started_ns"] = 1;
  json later = answer_of({request_of(1, 0, one)});
  later["node_started_ns"] = 2;
  for (const json& each : {before, before, later, later}) BOOST_REQUIRE(log.add(each, 0));
  BOOST_TEST(log.requests().distinct() == 2U);
  BOOST_TEST(log.requests().requests()[3].instance == 1U);
}

BOOST_AUTO_TEST_CASE(an_answer_that_makes_no_sense_is_refused) {
  recorded_requests log(16);
  BOOST_TEST(!log.add(json::object(), 0));
  for (const char* ids : {"", "ff", "00000000000000fg", "00000000000000ff0"}) {
    BOOST_TEST(!log.add(answer_of({request_of(1, 0, ids)}), 0));
  }
  BOOST_TEST(!log.add(answer_of({json::object()}), 0));
  BOOST_TEST(!log.add(answer_of({7}), 0));
  BOOST_TEST(log.requests().requests().empty());
}

BOOST_AUTO_TEST_SUITE_END()
