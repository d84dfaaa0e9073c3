#include "worker/hit_history.hpp"

#include <boost/test/unit_test.hpp>

using namespace cenote;
using namespace std::chrono_literals;

namespace {

constexpr hit_history::clock::time_point start(1'000'000s);

blocks::instance_status instance(std::string id, std::uint64_t questions, std::uint64_t hits, std::uint64_t reads = 0) {
  blocks::instance_status made;
  made.id = std::move(id);
  made.match_tokens = questions;
  made.match_resident_tokens = hits;
  made.read_tokens = reads;
  made.read_resident_tokens = reads;
  return made;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(hits_over_time)

BOOST_AUTO_TEST_CASE(a_span_has_what_was_counted_in_it) {
  hit_history history;
  const std::vector first{instance("a", 100, 40)};
  BOOST_TEST(history.spans(first, start).empty());
  history.end_span(first, start);
  const std::vector second{instance("a", 160, 70), instance("b", 10, 10)};
  history.end_span(second, start + 30s);
  const std::vector third{instance("a", 161, 70), instance("b", 10, 10)};
  const auto spans = history.spans(third, start + 40s);
  BOOST_REQUIRE(spans.size() == 2U);
  BOOST_TEST((spans[0] == hit_span{.end = start + 30s, .looked_up = 70, .hits = 40}));
  BOOST_TEST((spans[1] == hit_span{.end = start + 40s, .looked_up = 1, .hits = 0}));
  BOOST_TEST((sum_of(spans) == hit_span{.end = start + 40s, .looked_up = 71, .hits = 40}));
}

BOOST_AUTO_TEST_CASE(an_instance_whose_engines_do_not_ask_counts_what_they_read) {
  hit_history history;
  history.end_span({}, start);
  const std::vector read_only{instance("a", 0, 0, 50)};
  BOOST_TEST((history.spans(read_only, start + 1s)[0] == hit_span{.end = start + 1s, .looked_up = 50, .hits = 50}));
  history.end_span(std::vector{instance("c", 40, 40)}, start);
  const std::vector later{instance("c", 40, 40, 30)};
  BOOST_TEST((history.spans(later, start + 1s).back() == hit_span{.end = start + 1s}));  // they were counted when asked
  history = {};
  history.end_span({}, start);
  const std::vector both{instance("a", 80, 20, 50)};
  BOOST_TEST((history.spans(both, start + 1s)[0] == hit_span{.end = start + 1s, .looked_up = 80, .hits = 20}));
}

BOOST_AUTO_TEST_CASE(counters_that_begin_again_count_from_zero) {
  hit_history history;
  history.end_span(std::vector{instance("a", 1'000, 900)}, start);
  const std::vector again{instance("a", 30, 20)};
  BOOST_TEST((history.spans(again, start + 1s)[0] == hit_span{.end = start + 1s, .looked_up = 30, .hits = 20}));
  BOOST_TEST((history.spans({}, start + 1s)[0] == hit_span{.end = start + 1s}));
}

BOOST_AUTO_TEST_CASE(it_keeps_an_hour) {
  hit_history history;
  for (std::uint64_t i = 0; i <= 10 * hit_history::span_count; ++i)
    history.end_span(std::vector{instance("a", i, i)}, start + i * hit_history::span_length);
  const std::vector last{instance("a", 10 * hit_history::span_count, 0)};
  const auto spans = history.spans(last, start + 100h);
  BOOST_REQUIRE(spans.size() == hit_history::span_count + 1);
  BOOST_TEST((spans.front().end == start + (9 * hit_history::span_count + 1) * hit_history::span_length));
}

BOOST_AUTO_TEST_SUITE_END()
