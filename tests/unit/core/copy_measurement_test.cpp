#include "core/copy_measurement.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "core/checksum.hpp"
#include "core/copy_routines.hpp"

BOOST_AUTO_TEST_SUITE(copy_measurement_suite)

BOOST_AUTO_TEST_CASE(a_round_measures_every_candidate_of_every_case_that_the_machine_has) {
  using namespace cenote;
  auto measurement = copy_measurement::make();
  BOOST_REQUIRE(measurement.has_value());
  for (std::size_t i = 0; i < copy_case_count; ++i) {
    const auto kind = static_cast<copy_case>(i);
    const auto rates = measurement->rates_of(kind, 1);
    BOOST_TEST(rates.empty() != measurement->has(kind));
    if (rates.empty()) continue;
    BOOST_TEST(rates.size() == (kind == copy_case::checksum ? checksum_variants().size() : copy_routines().size()));
    BOOST_TEST(std::ranges::all_of(rates, [](const candidate_rate& each) { return each.bytes_per_s > 0; }));
  }
}

BOOST_AUTO_TEST_CASE(a_round_decides_all_that_was_not_decided) {
  using namespace cenote;
  machine_decisions decisions;
  const auto changed = measure_round(decisions);
  BOOST_REQUIRE(changed.has_value());
  BOOST_TEST(*changed);
  const machine_choice choice = decisions.choice(page_kind::huge);
  BOOST_TEST(choice.copies[0].routine != 0);
  BOOST_TEST(choice.copies[1].routine != 0);
  BOOST_TEST(choice.copies[0].least_bytes != 0U);
  BOOST_TEST(choice.hashed_copy != 0);
  BOOST_TEST(choice.checksum != 0);
}

BOOST_AUTO_TEST_SUITE_END()
