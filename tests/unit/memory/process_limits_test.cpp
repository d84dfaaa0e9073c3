#include "memory/process_limits.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>

namespace {

using namespace cenote;
using memory::process_limits;

constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30;

}  // namespace

BOOST_AUTO_TEST_SUITE(limits_of_processes)

BOOST_AUTO_TEST_CASE(a_node_needs_files_of_its_largest_segment_and_address_space_for_records_and_blocks) {
  for (const std::uint64_t capacity : {gibibyte, 512 * gibibyte}) {
    const auto limits = process_limits(capacity);
    const auto least = [&](int resource) {
      return std::ranges::find(limits, resource, &memory::process_limit::resource)->least;
    };
    BOOST_TEST(least(RLIMIT_FSIZE) >= std::max(33 * gibibyte, capacity));
    BOOST_TEST(least(RLIMIT_AS) >= 28 * gibibyte + capacity);
  }
}

BOOST_AUTO_TEST_CASE(a_limit_that_is_too_low_is_refused_with_both_figures_and_the_remedy) {
  for (const auto& limit : process_limits(gibibyte)) {
    BOOST_TEST(check_process_limit(limit, RLIM_INFINITY).has_value());
    BOOST_TEST(check_process_limit(limit, limit.least).has_value());
    const auto refused = check_process_limit(limit, gibibyte);
    BOOST_REQUIRE(!refused.has_value());
    BOOST_TEST((refused.error().code() == error_code::unsupported));
    for (const std::string_view part : {std::string_view("1.0 GiB"), limit.name, limit.remedy}) {
      BOOST_TEST(refused.error().message().find(part) != std::string::npos);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
