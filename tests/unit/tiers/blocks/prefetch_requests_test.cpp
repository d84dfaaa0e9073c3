// Prefetch requests out of ring entries, and what the planner has done.
#include "tiers/blocks/prefetch_requests.hpp"

#include <boost/test/unit_test.hpp>
#include <cstring>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::prefetch_requests_test {

using namespace testing;
using memory::operation;
using memory::submission;

namespace {

struct fixture : bare_parts {
  instance& in = add();
  session& by = attach(in);
  batch work{.session = by.number, .entries = {}, .completions = {}};

  progress run(std::uint64_t key, std::uint32_t request, bool last, std::uint32_t group = 0) {
    submission entry;
    entry.op = operation::prefetch;
    entry.request = request;
    entry.group = static_cast<std::uint16_t>(group);
    const full_key full = key_of(key);
    entry.key_size = full.size;
    std::memcpy(entry.key, full.bytes.data(), sizeof entry.key);
    if (last) entry.flags = submission::flag_last;
    return of.prefetching.run_prefetch(work, by, entry);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(prefetch_requests_suite, fixture)

BOOST_AUTO_TEST_CASE(entries_of_a_request_become_one_with_the_place_of_each_key) {
  (void)present(in, 1);
  run(1, 5, false);
  BOOST_TEST(of.prefetching.take_prefetches().empty());
  run(2, 5, true);
  const auto whole = of.prefetching.take_prefetches();
  BOOST_REQUIRE(whole.size() == 1U);
  BOOST_TEST(whole[0].number == 5U);
  BOOST_TEST((whole[0].places == std::vector<prefetch::spot>{{prefetch::place::present}, {prefetch::place::absent}}));
  BOOST_TEST(work.completions.empty());  // the planner answers it
  BOOST_TEST(work.late_answers == 1U);
}

BOOST_AUTO_TEST_CASE(a_request_that_makes_no_sense_is_answered_at_once) {
  run(1, 5, false);
  run(2, 5, true, 9);  // no such group
  BOOST_TEST(of.prefetching.take_prefetches().empty());
  BOOST_REQUIRE(work.completions.size() == 1U);
  BOOST_TEST(work.completions[0].code == static_cast<std::uint16_t>(error_code::malformed));
}

BOOST_AUTO_TEST_CASE(another_requests_entry_begins_anew) {
  run(1, 5, false);
  run(2, 6, true);
  const auto whole = of.prefetching.take_prefetches();
  BOOST_REQUIRE(whole.size() == 1U);
  BOOST_TEST(whole[0].keys.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_follow_whose_second_entry_says_more_bytes_than_it_has_is_refused_unread) {
  const auto follow = [&](std::uint8_t size, bool last) {
    submission entry;  // the sanitizer sees what is read behind it
    entry.op = operation::follow;
    entry.request = 7;
    entry.key_size = size;
    if (last) entry.flags = submission::flag_last;
    return of.prefetching.run_follow(work, by, entry);
  };
  follow(8, false);
  follow(255, true);
  BOOST_TEST(of.prefetching.take_prefetches().empty());
  BOOST_REQUIRE(work.completions.size() == 1U);
  BOOST_TEST(work.completions[0].code == static_cast<std::uint16_t>(error_code::malformed));
}

BOOST_AUTO_TEST_CASE(the_present_prefix_is_held_until_the_job_is_released) {
  const memory::block_ref ref = present(in, 1);
  (void)present(in, 3);
  auto keys = std::make_shared<const std::vector<full_key>>(std::vector{key_of(1), key_of(2), key_of(3)});
  prefetch::command command{.what = prefetch::command::kind::finish,
                            .job = 9,
                            .session = by.number,
                            .instance = in.number,
                            .hold = true,
                            .keys = keys};
  BOOST_TEST(of.prefetching.execute(command, now).length == 1U);
  BOOST_TEST(of.holds.is_held(record_of(in, ref)));
  BOOST_TEST(of.holds.bytes() == 4096U);
  command.what = prefetch::command::kind::release;
  (void)of.prefetching.execute(command, now);
  BOOST_TEST(of.holds.bytes() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::prefetch_requests_test
