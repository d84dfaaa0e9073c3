#include "services/manager/index/extent_table.hpp"

#include <boost/test/unit_test.hpp>
#include <set>

namespace cenote::manager::test {

BOOST_AUTO_TEST_SUITE(extents)

BOOST_AUTO_TEST_CASE(an_extent_is_read_as_it_was_added_and_finished) {
  line_arena arena;
  extent_table table(arena);
  const std::uint32_t extent = table.add({.number = 1ULL << 40, .storage = 254}).value();
  BOOST_TEST((table.get(extent) == extent_info{.number = 1ULL << 40, .wrote_at = 0, .storage = 254}));
  table.set_wrote_at(extent, 1'700'000'000);
  BOOST_TEST((table.get(extent) == extent_info{.number = 1ULL << 40, .wrote_at = 1'700'000'000, .storage = 254}));
}

BOOST_AUTO_TEST_CASE(numbers_of_erased_extents_are_used_again_and_no_others) {
  line_arena arena;
  extent_table table(arena);
  std::set<std::uint32_t> numbers;
  for (std::uint64_t i = 0; i < 1000; ++i) numbers.insert(table.add({.number = i}).value());
  BOOST_TEST(numbers.size() == 1000U);
  for (const std::uint32_t extent : {3U, 500U, 999U}) table.erase(extent);
  BOOST_TEST(table.size() == 997U);
  for (std::uint64_t i = 1000; i < 1003; ++i) {
    const std::uint32_t extent = table.add({.number = i, .wrote_at = 1}).value();
    BOOST_TEST(numbers.contains(extent));
    BOOST_TEST(table.get(extent).number == i);
  }
  BOOST_TEST(!numbers.contains(table.add({.number = 2000}).value()));
  BOOST_TEST(table.get(4).number == 4U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
