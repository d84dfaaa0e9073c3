// The cursor of a batch.
#include "tiers/blocks/submissions.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::submissions_test {

using namespace testing;
using memory::operation;
using memory::submission;

namespace {

struct fixture : bare_parts {
  instance& in = add();
  session& by = attach(in);
  batch work{.session = by.number, .entries = {}, .completions = {}};

  void add_entry(operation op, std::uint64_t argument = 0) {
    submission entry;
    entry.op = op;
    entry.request = static_cast<std::uint32_t>(work.entries.size() + 1);
    entry.argument = argument;
    entry.flags = submission::flag_last;
    work.entries.push_back(entry);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(submissions_suite, fixture)

BOOST_AUTO_TEST_CASE(a_batch_goes_on_where_its_budget_ended) {
  for (int i = 0; i < 4; ++i) add_entry(operation::barrier);
  BOOST_TEST((of.submit.run(work, now, 2) == progress::more));
  BOOST_TEST(work.next == 2U);
  BOOST_TEST(work.completions.size() == 2U);
  BOOST_TEST((of.submit.run(work, now, 2) == progress::finished));
  BOOST_TEST(work.completions.size() == 4U);
}

BOOST_AUTO_TEST_CASE(a_batch_that_needs_memory_waits_at_its_entry_and_is_refused_when_it_is_given_up) {
  for (const auto& each : of.all.instances) {
    for (auto& group : each.second->pools) group->free.clear();
  }
  add_entry(operation::barrier);
  add_entry(operation::grant, 1);
  add_entry(operation::barrier);
  BOOST_TEST((of.submit.run(work, now, no_budget) == progress::waits_for_memory));
  BOOST_TEST(work.next == 1U);
  of.submit.give_up(work);
  BOOST_TEST((of.submit.run(work, now, no_budget) == progress::finished));
  BOOST_REQUIRE(work.completions.size() == 3U);
  BOOST_TEST(work.completions[1].code == static_cast<std::uint16_t>(error_code::no_space));
  BOOST_TEST(work.completions[2].code == 0U);
}

BOOST_AUTO_TEST_CASE(nothing_of_a_suspect_is_carried_out) {
  by.suspect = true;
  add_entry(operation::grant, 1);
  BOOST_TEST((of.submit.run(work, now, no_budget) == progress::finished));
  BOOST_TEST(work.completions.empty());
  BOOST_TEST(by.granted.empty());
}

BOOST_AUTO_TEST_CASE(an_operation_that_nobody_knows_is_malformed) {
  add_entry(static_cast<operation>(250));
  BOOST_TEST((of.submit.run(work, now, no_budget) == progress::finished));
  BOOST_REQUIRE(work.completions.size() == 1U);
  BOOST_TEST(work.completions[0].code == static_cast<std::uint16_t>(error_code::malformed));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::submissions_test
