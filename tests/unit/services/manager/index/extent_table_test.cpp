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

BOOST_AUTO_TEST_CASE(checksums_go_with_their_extent) {
  line_arena arena;
  extent_table table(arena);
  const std::uint32_t extent = table.add({.number = 1}).value();
  BOOST_TEST(table.checksums(extent, 2).empty());
  const block_checksums sums{.specs = 0b1010, .values = {1, 2, 3, 4}};
  table.set_checksums(extent, sums);
  BOOST_TEST((table.checksums(extent, 2) == sums));
  const checksum_word* const run = table.get(extent).checksums;
  std::vector<std::uint64_t> words;
  BOOST_TEST(checksum_runs::append_block(run, 1, words));
  BOOST_TEST((words == std::vector<std::uint64_t>{0b1010, 3, 4}));
  BOOST_TEST(!checksum_runs::append_block(run, 3, words));  // beyond the run, as a reader that comes too late may ask
  BOOST_TEST(!checksum_runs::append_block(run, 0xffff'ffff, words));
  BOOST_TEST(words.size() == 3U);
  table.erase(extent);
  const std::uint32_t next = table.add({.number = 2}).value();
  BOOST_TEST(table.get(next).checksums == nullptr);
}

BOOST_AUTO_TEST_CASE(memory_of_checksums_is_used_again) {
  line_arena arena;
  extent_table table(arena);
  std::size_t bytes = 0;
  for (std::uint64_t i = 0; i < 1'000; ++i) {
    const std::uint32_t extent = table.add({.number = i}).value();
    table.set_checksums(extent, {.specs = 1, .values = std::vector<std::uint64_t>(500, i)});
    BOOST_TEST(table.checksums(extent, 500).values.back() == i);
    if (i == 0) bytes = arena.bytes();
    table.erase(extent);
  }
  BOOST_TEST(arena.bytes() == bytes);
}

BOOST_AUTO_TEST_CASE(the_place_of_a_checksum_is_that_of_its_spec) {
  BOOST_TEST(checksum_rank(0b1010, 1) == 0U);
  BOOST_TEST(checksum_rank(0b1010, 3) == 1U);
  BOOST_TEST(checksum_rank(~0ULL, 63) == 63U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
