#include "tiers/nvme/entry_table.hpp"

#include <boost/test/unit_test.hpp>
#include <map>
#include <random>

#include "memory/lower_hints.hpp"
#include "tests/support/step_cost.hpp"

namespace cenote::nvme {

namespace {

using name = std::pair<std::uint16_t, block_key>;

block_entry entry_of(const name& of, std::uint32_t sector) {
  return {.key_hi = of.second.hi,
          .key_lo = of.second.lo,
          .checksum = 0,
          .sector = sector,
          .sectors = 1,
          .touch = {},
          .instance = of.first,
          .path = 0};
}

/// A key whose place is in the last `part`th of the slots: the inverse of the table's multiplication.
block_key key_near_the_end(std::uint64_t n, std::uint64_t part) {
  constexpr std::uint64_t factor = 0x9e3779b97f4a7c15ULL;
  std::uint64_t inverse = factor;
  for (int i = 0; i < 6; ++i) inverse *= 2 - factor * inverse;
  return {n + 1, (~std::uint64_t{0} - n * 0x1000003 % (~std::uint64_t{0} / part)) * inverse};
}

template <class Name>
void compare_with_a_map(std::uint64_t seed, std::size_t steps, std::uint64_t names, Name name_of) {
  std::mt19937_64 random(seed);
  entry_table table;
  std::map<name, std::uint32_t> model;  // name -> entry number
  for (std::size_t step = 0; step < steps; ++step) {
    const name which = name_of(random() % names);
    const auto known = model.find(which);
    const auto found = table.find(which.first, which.second);
    BOOST_REQUIRE(found.has_value() == (known != model.end()));
    if (!found) {
      model.emplace(which, table.add(entry_of(which, static_cast<std::uint32_t>(step))));
    } else {
      BOOST_REQUIRE(*found == known->second);
      BOOST_REQUIRE((table[*found].key() == which.second));
      // Goes up and down, so that it is full at times.
      if (random() % 4 < step * 8 / steps % 4) {
        table.erase(*found);
        BOOST_REQUIRE(table[*found].sectors == 0U);
        model.erase(known);
      }
    }
    BOOST_REQUIRE(table.size() == model.size());
  }
  for (const auto& [which, number] : model) {
    const auto found = table.find(which.first, which.second);
    BOOST_REQUIRE(found.has_value());
    BOOST_REQUIRE(*found == number);
    BOOST_REQUIRE(number < table.end());
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nvme_entry_table)

BOOST_AUTO_TEST_CASE(it_does_what_a_map_does) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    compare_with_a_map(seed, 40'000 / cenote::testing::step_cost, 200 + seed * 300, [&](std::uint64_t n) {
      std::mt19937_64 of(n / 2);
      return name{static_cast<std::uint16_t>(1 + n % 2), block_key{of(), of()}};  // one key in two instances
    });
  }
}

BOOST_AUTO_TEST_CASE(runs_go_on_at_the_start_of_the_table) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const std::uint64_t part = std::uint64_t{1} << (1 + seed % 10);  // up to: all at home in the last slot or two
    compare_with_a_map(seed, 20'000 / cenote::testing::step_cost, 300, [&](std::uint64_t n) {
      return name{0, key_near_the_end(n, part)};
    });
  }
}

BOOST_AUTO_TEST_CASE(numbers_stay_while_the_table_grows_and_are_used_again) {
  entry_table table;
  std::vector<std::uint32_t> numbers;
  for (std::uint64_t n = 0; n < 5000; ++n) numbers.push_back(table.add(entry_of({1, {n, n}}, 1)));
  for (std::uint64_t n = 0; n < 5000; ++n) BOOST_REQUIRE(table.find(1, {n, n}).value() == numbers[n]);
  for (std::uint64_t n = 0; n < 5000; n += 2) table.erase(numbers[n]);
  for (std::uint64_t n = 6000; n < 8500; ++n) BOOST_REQUIRE(table.add(entry_of({1, {n, n}}, 1)) < 5000U);
  BOOST_TEST(table.end() == 5000U);
}

BOOST_AUTO_TEST_CASE(a_block_costs_at_most_64_bytes_of_memory) {
  // A slot is 4 bytes, and at most 0.8 of them are used; when the table has just grown by half it is 0.8 / 1.5.
  constexpr double slots = 4 / (0.8 / 1.5);
  constexpr double links = 8;
  constexpr double hints = 64 / 15.0 / memory::hints::load;
  BOOST_TEST(static_cast<double>(sizeof(block_entry)) + slots + links + hints <= 64);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme
