#include "services/manager/index/slot_table.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <random>
#include <vector>

namespace cenote::manager::test {

namespace {

/// A table of records that have the hashes that the test gives them.
struct table_world {
  line_arena arena{};
  slot_table table{arena};
  std::vector<std::uint64_t> hashes{};
  std::vector<std::uint32_t> present{};

  std::uint64_t hash_of(std::uint32_t record) const { return hashes[record]; }
  std::uint32_t add(std::uint64_t hash) {
    const auto record = static_cast<std::uint32_t>(hashes.size());
    hashes.push_back(hash);
    table.make_room(
        hash, record, [this](std::uint32_t each) { return hash_of(each); }, [](std::uint32_t) {});
    table.insert(hash, record);
    present.push_back(record);
    return record;
  }
  void erase(std::uint32_t record) {
    table.erase(hash_of(record), record, [this](std::uint32_t each) { return hash_of(each); });
    std::erase(present, record);
  }
  bool has(std::uint32_t record) const {
    return table.find(hash_of(record), [&](std::uint32_t each) { return each == record; }) == record;
  }
  bool has_all() const {
    return std::ranges::all_of(present, [this](std::uint32_t record) { return has(record); });
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(slot_tables)

BOOST_AUTO_TEST_CASE(records_of_equal_hashes_are_all_there_and_go_one_by_one) {
  table_world w;
  for (const std::uint64_t hash : {std::uint64_t{0}, ~std::uint64_t{0}}) {  // the last wraps around
    for (int i = 0; i < 9; ++i) w.add(hash);
  }
  BOOST_TEST(w.has_all());
  while (!w.present.empty()) {
    const std::uint32_t record = w.present[w.present.size() / 2];
    w.erase(record);
    BOOST_TEST(!w.has(record));
    BOOST_TEST(w.has_all());
  }
}

BOOST_AUTO_TEST_CASE(a_table_that_changes_for_long_keeps_what_it_has_and_does_not_grow) {
  std::mt19937_64 random(3);
  table_world w;
  // Hashes that crowd: long runs of slots, whose order matters when one goes.
  const auto hash = [&] { return (random() % 64) << 52 | (random() & 0xfff); };
  for (int i = 0; i < 600; ++i) w.add(hash());
  std::size_t bytes = 0;
  for (int i = 0; i < 20'000; ++i) {
    w.erase(w.present[random() % w.present.size()]);
    w.add(hash());
    if (i % 500 == 0) BOOST_REQUIRE(w.has_all());
    if (i == 10'000) bytes = w.arena.bytes();
  }
  BOOST_TEST(w.has_all());
  BOOST_TEST(w.arena.bytes() <= 2 * bytes);  // numbers of records grow here, so that slots need more bits for them
}

BOOST_AUTO_TEST_CASE(a_key_that_is_not_there_costs_few_looks_at_records) {
  std::mt19937_64 random(5);
  table_world w;
  for (int i = 0; i < 10'000; ++i) w.add(random());
  std::size_t looks = 0;
  for (int i = 0; i < 10'000; ++i) {
    const auto count = [&](std::uint32_t) {
      ++looks;
      return false;
    };
    BOOST_REQUIRE(w.table.find(random(), count) == no_record);
  }
  BOOST_TEST(looks < 1000U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
