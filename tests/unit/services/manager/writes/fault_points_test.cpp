// Faults by name: at which passings they happen, and which names there are.
#include "services/manager/writes/fault_points.hpp"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

namespace cenote::manager::test {

namespace {

/// Whether each of the next passings fails.
std::vector<bool> failures(fault_table& faults, std::string_view name, std::size_t passings) {
  std::vector<bool> outcomes;
  for (std::size_t i = 0; i < passings; ++i) outcomes.push_back(!faults.pass(name));
  return outcomes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(fault_points)

BOOST_AUTO_TEST_CASE(a_fault_comes_once_or_from_its_passing_on) {
  fault_table faults;
  BOOST_REQUIRE(faults.inject("start_batch", {.repetition = fault_repetition::once, .first = 2}));
  BOOST_REQUIRE(faults.inject("StartWriteCache", {.repetition = fault_repetition::always, .first = 3}));
  BOOST_TEST((failures(faults, "start_batch", 4) == std::vector<bool>{false, true, false, false}));
  BOOST_TEST((failures(faults, "StartWriteCache", 5) == std::vector<bool>{false, false, true, true, true}));
  BOOST_TEST((failures(faults, "start_written", 1) == std::vector<bool>{false}));
}

BOOST_AUTO_TEST_CASE(a_fault_goes_when_it_is_removed_and_all_go_at_once) {
  fault_table faults;
  for (const std::string_view name : {"start_batch", "trim_written", "TrimCache"}) {
    BOOST_REQUIRE(faults.inject(name, {}));
  }
  BOOST_TEST(faults.remove("start_batch").has_value());
  BOOST_TEST(faults.remove("start_batch").has_value());  // none is there
  BOOST_TEST((failures(faults, "start_batch", 1) == std::vector<bool>{false}));
  BOOST_TEST((failures(faults, "trim_written", 1) == std::vector<bool>{true}));
  faults.clear();
  BOOST_TEST((failures(faults, "trim_written", 1) == std::vector<bool>{false}));
  BOOST_TEST((failures(faults, "TrimCache", 1) == std::vector<bool>{false}));
}

BOOST_AUTO_TEST_CASE(a_name_that_is_none_is_refused_with_all_that_are) {
  fault_table faults;
  for (const std::string_view name : {"", "start", "startWriteCache", "InjectFault", "START_BATCH"}) {
    const auto injected = faults.inject(name, {});
    BOOST_REQUIRE(!injected);
    BOOST_TEST((injected.error().code() == error_code::invalid_argument));
    for (const fault_point point : enumerators_of(fault_point{})) {
      BOOST_TEST(injected.error().message().find(name_of(point)) != std::string::npos);
    }
    BOOST_TEST(!faults.remove(name));
  }
}

BOOST_AUTO_TEST_CASE(kills_have_a_passing_that_is_a_number_from_1) {
  fault_table faults;
  for (const std::string_view text : {"start_batch", "start_batch:1", "start_batch:4294967295"}) {
    BOOST_TEST(faults.inject_kill(text).has_value());
  }
  for (const std::string_view text : {"", ":", "start_batch:", "start_batch:0", "start_batch:-1", "start_batch:1:hang",
                                      "start_batch:4294967296", "start_batch: 1", "start:1"}) {
    BOOST_TEST_CONTEXT(text) {
      BOOST_TEST(!faults.inject_kill(text));
    }
  }
}

BOOST_AUTO_TEST_CASE(without_a_table_every_point_is_passed) {
  for (const fault_point point : enumerators_of(fault_point{})) BOOST_TEST(pass(nullptr, point).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
