#include "services/manager/index/instance_index.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <new>
#include <random>
#include <set>
#include <vector>

#include "tests/support/allocations.hpp"
#include "tests/unit/services/manager/index/index_world.hpp"

namespace cenote::manager::test {

BOOST_AUTO_TEST_SUITE(instance_indexes)

namespace {

struct state_row {
  location_state have = none;  ///< none: no location in the extent
  location_state expected = none;
  location_state next = none;  ///< none: the location is erased
  change_outcome outcome = change_outcome::changed;
};

constexpr std::array state_rows{
    state_row{writing, writing, serving, change_outcome::changed},
    state_row{deleting, writing, serving, change_outcome::mismatch},
    state_row{serving, serving, deleting, change_outcome::changed},
    state_row{writing, serving, deleting, change_outcome::mismatch},
    state_row{writing, writing, deleting, change_outcome::changed},
    state_row{none, writing, serving, change_outcome::not_found},
    state_row{deleting, deleting, none, change_outcome::changed},
    state_row{serving, deleting, none, change_outcome::mismatch},
    state_row{none, deleting, none, change_outcome::not_found},
};

std::vector<location> locations_of(const instance_index& index, std::uint32_t record) {
  std::vector<location> all;
  index.visit_locations(record, [&](const location& place) { all.push_back(place); });
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_change_needs_the_state_that_it_expects) {
  for (const state_row& row : state_rows) {
    index_world w;
    const std::uint32_t extent = w.extent(0);
    const std::uint32_t record = w.put(5, w.extent(0), writing);  // another location, which keeps the record
    if (row.have != none) w.put(5, extent, row.have);
    const change_outcome outcome = row.next == none ? w.index.erase_location(record, extent, row.expected).outcome
                                                    : w.index.change_state(record, extent, row.expected, row.next);
    BOOST_TEST((outcome == row.outcome));
    const location_state after = row.outcome == change_outcome::changed ? row.next : row.have;
    const auto all = locations_of(w.index, record);
    const auto place = std::ranges::find(all, extent, &location::extent);
    BOOST_TEST(((place == all.end() ? none : place->state) == after));
    BOOST_TEST(std::ranges::count(all, writing, &location::state) == 1 + (after == writing ? 1 : 0));
  }
}

BOOST_AUTO_TEST_CASE(of_a_batch_the_change_that_expects_another_state_fails_alone) {
  index_world w;
  const std::uint32_t extent = w.extent(0);
  const std::array records{w.put(1, extent, deleting), w.put(2, extent, writing)};
  std::vector<change_outcome> outcomes;
  for (const std::uint32_t record : records) outcomes.push_back(w.index.change_state(record, extent, writing, serving));
  BOOST_TEST((outcomes == std::vector{change_outcome::mismatch, change_outcome::changed}));
}

BOOST_AUTO_TEST_CASE(a_record_that_is_not_there_is_not_found) {
  index_world w;
  const std::uint32_t extent = w.extent(0);
  BOOST_TEST((w.index.change_state(no_record, extent, writing, serving) == change_outcome::not_found));
  BOOST_TEST((w.index.change_state(0, extent, writing, serving) == change_outcome::not_found));
  BOOST_TEST((w.index.erase_location(no_record, extent, writing) == erase_outcome{}));
  w.index.note_use(no_record, 5);
  w.index.note_use(77, 5);
  BOOST_TEST(!w.index.has_record(no_record));
}

BOOST_AUTO_TEST_CASE(the_last_location_takes_the_key_with_it) {
  index_world w;
  const std::uint32_t first = w.extent(0);
  const std::uint32_t second = w.extent(1);
  const std::uint32_t record = w.put(5, first, deleting);
  w.put(5, second, deleting);
  BOOST_TEST((w.index.erase_location(record, second, deleting) ==
              erase_outcome{.outcome = change_outcome::changed, .is_key_gone = false}));
  BOOST_TEST(w.index.find({.low = 5}) == record);
  BOOST_TEST((w.index.erase_location(record, first, deleting) ==
              erase_outcome{.outcome = change_outcome::changed, .is_key_gone = true}));
  BOOST_TEST(w.index.find({.low = 5}) == no_record);
  BOOST_TEST(w.index.count() == 0U);
  BOOST_TEST(w.put(6, first) == record);
}

BOOST_AUTO_TEST_CASE(a_record_has_one_location_an_extent) {
  index_world w;
  const std::uint32_t extent = w.extent(0);
  const std::uint32_t record = w.put(5, extent);
  BOOST_TEST(!w.index.add_location(record, {.extent = extent, .position = 9, .state = writing}));
  BOOST_TEST(!w.index.add_location(record, {.extent = w.extent(0), .state = none}));
  BOOST_TEST(locations_of(w.index, record).size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_record_without_locations_is_seen_by_its_writer_alone_and_may_be_dropped) {
  index_world w;
  const std::uint32_t record = w.index.add({.low = 1, .high = 2}, no_record);
  BOOST_TEST(w.index.find({.low = 1, .high = 2}) == record);
  BOOST_TEST((w.index.key_of(record) == cache_key{.low = 1, .high = 2}));
  BOOST_TEST(w.match({{.low = 1, .high = 2}}) == 0U);
  BOOST_TEST(w.index.count() == 1U);
  w.index.drop(record);
  BOOST_TEST(w.index.find({.low = 1, .high = 2}) == no_record);
  BOOST_TEST(w.index.count() == 0U);
}

BOOST_AUTO_TEST_CASE(any_number_of_locations_of_a_key_come_and_go) {
  index_world w;
  std::vector<std::uint32_t> extents;
  for (std::uint8_t i = 0; i < 50; ++i) extents.push_back(w.extent(i));
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 50; ++i) w.put(5, extents[i], serving, std::uint64_t{1} << i);
    for (std::size_t i = 0; i < 20; ++i) w.put(6, extents[i], deleting);
    BOOST_TEST(w.parts_of(5).size() == 50U);
    for (std::size_t i = 0; i < 50; i += 2) {
      BOOST_TEST((w.index.erase_location(w.record(5), extents[i], serving).outcome == change_outcome::changed));
    }
    std::uint64_t specs = 0;
    for (const found_part& part : w.parts_of(5)) specs |= part.specs;
    BOOST_TEST(specs == 0x2'aaaa'aaaa'aaaaU);
    BOOST_TEST(locations_of(w.index, w.record(6)).size() == 20U);
    for (std::size_t i = 1; i < 50; i += 2) w.index.erase_location(w.record(5), extents[i], serving);
    BOOST_TEST(w.index.find({.low = 5}) == no_record);
    for (std::size_t i = 20; i-- > 0;) w.index.erase_location(w.record(6), extents[i], deleting);
    BOOST_TEST(w.index.count() == 0U);
  }
  const std::size_t bytes = w.index.bytes();
  for (std::size_t i = 0; i < 50; ++i) w.put(5, extents[i]);
  BOOST_TEST(w.index.bytes() == bytes);
}

BOOST_AUTO_TEST_CASE(a_parent_counts_its_children_and_no_other_record_counts_them) {
  index_world w;
  const std::uint32_t extent = w.extent(0);
  const std::uint32_t parent = w.put(1, extent);
  const std::uint32_t first = w.index.add({.low = 2}, parent);
  const std::uint32_t second = w.index.add({.low = 3}, parent);
  BOOST_TEST(w.index.children_of(parent) == 2U);
  BOOST_TEST(w.index.parent_of(first) == parent);
  BOOST_TEST(w.index.parent_of(parent) == no_record);
  w.index.erase_location(parent, extent, serving);
  BOOST_TEST(w.index.find({.low = 1}) == no_record);
  BOOST_TEST(w.index.parent_of(first) == no_record);
  // While a child is there, no other key gets the number.
  const std::uint32_t stranger = w.put(4, extent);
  BOOST_TEST(stranger != parent);
  const std::uint32_t grandchild = w.index.add({.low = 5}, stranger);
  w.index.drop(first);
  BOOST_TEST(w.index.children_of(stranger) == 1U);
  w.index.drop(second);
  BOOST_TEST(w.index.children_of(stranger) == 1U);
  // Without children the number is another key's.
  const std::set numbers{w.index.add({.low = 6}, no_record), w.index.add({.low = 7}, no_record),
                         w.index.add({.low = 8}, no_record)};
  BOOST_TEST((numbers == std::set{parent, first, second}));
  for (const std::uint32_t number : numbers) BOOST_TEST(w.index.children_of(number) == 0U);
  BOOST_TEST(w.index.parent_of(grandchild) == stranger);
}

BOOST_AUTO_TEST_CASE(a_chain_that_goes_from_its_front_leaves_no_record) {
  index_world w;
  std::vector<std::uint32_t> records;
  for (std::uint64_t key = 0; key < 100; ++key) {
    records.push_back(w.index.add({.low = key}, records.empty() ? no_record : records.back()));
  }
  for (const std::uint32_t record : records) w.index.drop(record);
  std::set<std::uint32_t> numbers;
  for (std::uint64_t key = 0; key < 100; ++key) numbers.insert(w.index.add({.low = key}, no_record));
  BOOST_TEST((numbers == std::set(records.begin(), records.end())));
}

BOOST_AUTO_TEST_CASE(a_parent_that_is_gone_is_none) {
  index_world w;
  const std::uint32_t parent = w.index.add({.low = 1}, no_record);
  w.index.drop(parent);
  BOOST_TEST(w.index.parent_of(w.index.add({.low = 2}, parent)) == no_record);
}

BOOST_AUTO_TEST_CASE(uses_are_counted_and_the_last_one_is_known) {
  index_world w;
  const std::uint32_t record = w.put(1, w.extent(0));
  BOOST_TEST(w.index.uses_of(record) == 0U);
  for (std::uint32_t now = 1; now <= 70'000; ++now) w.index.note_use(record, now);
  BOOST_TEST(w.index.uses_of(record) == 65'535U);
  BOOST_TEST(w.index.last_use_of(record) == 70'000U);
}

BOOST_AUTO_TEST_CASE(a_scan_visits_each_record_once_in_steps_and_may_erase_them) {
  index_world w;
  const std::uint32_t extent = w.extent(0);
  for (std::uint64_t key = 0; key < 1000; ++key) w.put(key, extent);
  for (std::uint64_t key = 0; key < 1000; key += 3) w.index.erase_location(w.record(key), extent, serving);
  std::set<std::uint64_t> keys;
  int steps = 0;
  for (std::uint32_t cursor = 0; cursor != no_record; ++steps) {
    std::size_t visited = 0;
    cursor = w.index.scan(cursor, 100, [&](std::uint32_t record) {
      ++visited;
      BOOST_TEST(keys.insert(w.index.key_of(record).low).second);
      w.index.erase_location(record, extent, serving);
    });
    BOOST_REQUIRE(visited <= 100U);
  }
  BOOST_TEST(steps == 7);
  BOOST_TEST(keys.size() == 666U);
  BOOST_TEST(w.index.count() == 0U);
  BOOST_TEST(w.index.scan(0, 10, [](std::uint32_t) {}) == no_record);
}

BOOST_AUTO_TEST_CASE(samples_are_different_records_and_differ_from_each_other) {
  index_world w;
  const std::uint32_t extent = w.extent(0);
  for (std::uint64_t key = 0; key < 3000; ++key) w.put(key, extent);
  for (std::uint64_t key = 0; key < 2000; ++key) w.index.erase_location(w.record(key), extent, serving);
  std::mt19937_64 random(11);
  const auto draw = [&](std::size_t amount) {
    const std::vector<std::uint32_t> records = w.index.sample(amount, random);
    std::set<std::uint64_t> keys;
    for (const std::uint32_t record : records) keys.insert(w.index.key_of(record).low);
    BOOST_TEST(keys.size() == records.size());
    return keys;
  };
  const std::set<std::uint64_t> first = draw(100);
  const std::set<std::uint64_t> second = draw(100);
  BOOST_TEST(first.size() == 100U);
  BOOST_TEST(std::ranges::count_if(first, [&](std::uint64_t key) { return second.contains(key); }) <= 40);
  std::map<std::uint64_t, int> counts;
  for (int i = 0; i < 2000; ++i) {
    for (const std::uint64_t key : draw(10)) ++counts[key];
  }
  BOOST_TEST(counts.size() == 1000U);
  for (const auto& [key, count] : counts) {
    BOOST_TEST(key >= 2000U);
    BOOST_TEST((count >= 2 && count <= 50));
  }
  BOOST_TEST(draw(5000).size() == 1000U);
}

BOOST_AUTO_TEST_CASE(without_memory_nothing_is_added_and_all_goes_on_afterwards) {
  index_world w;
  const std::uint32_t extent = w.extent(0);
  const std::uint16_t set = w.index.sets().number_of(1).value();
  std::uint64_t refused = 0;
  for (std::uint64_t key = 0; key < 20'000; ++key) {
    cenote::test::set_allocation_fault([]() noexcept { return true; });
    std::uint32_t record = no_record;
    try {
      record = w.index.add({.low = key}, no_record);
    } catch (const std::bad_alloc&) {
      ++refused;
    }
    cenote::test::set_allocation_fault(nullptr);
    if (record == no_record) {
      BOOST_REQUIRE(w.index.find({.low = key}) == no_record);
      record = w.index.add({.low = key}, no_record);
    }
    w.index.add_location(record, {.extent = extent, .state = serving, .set = set});
  }
  BOOST_TEST(refused > 0U);
  BOOST_TEST(w.index.count() == 20'000U);
  BOOST_TEST(w.match(row(0, 20'000)) == 20'000U);
}

BOOST_AUTO_TEST_CASE(keys_are_fetched_whether_they_are_there_or_not) {
  index_world w;
  w.index.prefetch(row(0, 20));
  w.put(3, w.extent(0));
  w.index.prefetch(row(0, 20));
  BOOST_TEST(w.index.count() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
