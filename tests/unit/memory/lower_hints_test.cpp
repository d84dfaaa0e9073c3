#include "memory/lower_hints.hpp"

#include <boost/test/unit_test.hpp>
#include <fstream>
#include <random>
#include <set>

namespace cenote::memory::lower_hints_test {

namespace {

shared_file copy_of(const shared_file& original) {
  return std::move(*shared_file::adopt(std::move(*original.fd().duplicate()), original.size()));
}

struct fixture {
  hint_writer writer_for(std::uint64_t keys) { return std::move(*hint_writer::open(copy_of(shared.file), keys)); }
  void set_buckets(std::uint64_t count) {
    reinterpret_cast<std::atomic<std::uint64_t>*>(shared.hints.base())->store(count);
  }

  index_memory shared =
      std::move(*index_memory::create(std::move(*shared_file::create("test-hints", index_segment_bytes))));
  hint_reader reader{shared.hints};
};

/// Random, as reduced keys are.
std::vector<block_key> keys_of(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  std::vector<block_key> keys(count);
  for (block_key& each : keys) each = {random(), random()};
  return keys;
}

/// At home in the first bucket.
block_key crowded(std::uint32_t n) {
  return {n, std::uint64_t{n + 1} << 32};
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(lower_hints, fixture)

BOOST_AUTO_TEST_CASE(keys_that_were_added_are_found_and_erased_ones_are_not) {
  constexpr std::size_t count = 100'000;
  auto writer = writer_for(count);
  const auto keys = keys_of(1, count);
  for (const block_key& each : keys) writer.add(each);
  for (const block_key& each : keys) BOOST_REQUIRE(reader.contains(each));
  for (std::size_t i = 0; i < count; i += 2) writer.erase(keys[i]);
  std::size_t left = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % 2 != 0) BOOST_REQUIRE(reader.contains(keys[i]));
    if (i % 2 == 0) left += reader.contains(keys[i]) ? 1 : 0;
  }
  BOOST_TEST(left <= 1U);
}

BOOST_AUTO_TEST_CASE(hardly_any_absent_key_is_taken_for_a_present_one) {
  constexpr std::size_t count = 100'000;
  auto writer = writer_for(count);
  for (const block_key& each : keys_of(2, count)) writer.add(each);
  std::size_t wrong = 0;
  for (const block_key& each : keys_of(3, 1'000'000)) wrong += reader.contains(each) ? 1 : 0;
  BOOST_TEST(wrong <= 3U);
}

BOOST_AUTO_TEST_CASE(a_full_bucket_overflows_to_its_neighbours) {
  auto writer = writer_for(10'000);
  constexpr std::uint32_t room = 15 * hints::max_probes;
  for (std::uint32_t n = 0; n < room + 10; ++n) writer.add(crowded(n));
  for (std::uint32_t n = 0; n < room; ++n) BOOST_TEST(reader.contains(crowded(n)));
  for (std::uint32_t n = room; n < room + 10; ++n) BOOST_TEST(!reader.contains(crowded(n)));  // no room: unknown
  for (std::uint32_t n = 0; n < room; n += 2) writer.erase(crowded(n));
  for (std::uint32_t n = 0; n < room; ++n) BOOST_TEST(reader.contains(crowded(n)) == (n % 2 != 0));
  for (std::uint32_t n = 1; n < room; n += 2) writer.erase(crowded(n));
  for (std::uint32_t n = 0; n < room; ++n) BOOST_TEST(!reader.contains(crowded(n)));
}

BOOST_AUTO_TEST_CASE(the_last_buckets_overflow_to_the_first) {
  auto writer = writer_for(10'000);
  const auto late = [](std::uint32_t n) { return block_key{~std::uint64_t{n}, std::uint64_t{n + 1} << 32}; };
  for (std::uint32_t n = 0; n < 60; ++n) writer.add(late(n));
  for (std::uint32_t n = 0; n < 60; ++n) BOOST_TEST(reader.contains(late(n)));
}

BOOST_AUTO_TEST_CASE(keys_whose_tag_would_be_nothing_are_found) {
  auto writer = writer_for(100);
  const block_key key{5, 77};
  BOOST_TEST(!reader.contains(key));
  writer.add(key);
  BOOST_TEST(reader.contains(key));
  writer.erase(key);
  BOOST_TEST(!reader.contains(key));
}

BOOST_AUTO_TEST_CASE(it_does_what_a_set_does) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t room = 100 + 300 * seed;
    auto writer = writer_for(room);
    const auto keys = keys_of(100 + seed, room);  // as many as there is room for: buckets overflow all the time
    std::set<block_key> model;
    for (int step = 0; step < 50'000; ++step) {
      const block_key& key = keys[random() % keys.size()];
      if (model.erase(key) != 0) {
        writer.erase(key);
      } else {
        model.insert(key);
        writer.add(key);
      }
      BOOST_REQUIRE(reader.contains(key) == model.contains(key));
    }
    for (const block_key& each : keys) BOOST_REQUIRE(reader.contains(each) == model.contains(each));
    writer.clear();
    for (const block_key& each : keys) BOOST_REQUIRE(!reader.contains(each));
  }
}

BOOST_AUTO_TEST_CASE(one_bucket_is_enough_for_a_few) {
  auto writer = writer_for(0);
  BOOST_TEST(!reader.none());
  for (std::uint32_t n = 0; n < 15; ++n) writer.add(crowded(n));
  for (std::uint32_t n = 0; n < 15; ++n) BOOST_TEST(reader.contains(crowded(n)));
  writer.add(crowded(15));
  BOOST_TEST(!reader.contains(crowded(15)));
}

BOOST_AUTO_TEST_CASE(without_a_writer_there_is_no_lower_tier) {
  BOOST_TEST(reader.none());
  BOOST_TEST(!reader.contains({1, 1}));
  const hint_reader nothing;
  BOOST_TEST(nothing.none());
  BOOST_TEST(!nothing.contains({1, 1}));
  hint_writer nobody;
  nobody.add({1, 1});
  nobody.erase({1, 1});
  nobody.clear();
}

BOOST_AUTO_TEST_CASE(a_nonsense_count_of_buckets_is_no_lower_tier) {
  auto writer = writer_for(100);
  writer.add({1, 1});
  BOOST_TEST(reader.contains({1, 1}));
  for (const std::uint64_t count : {std::uint64_t{0}, hints::max_buckets + 1, ~std::uint64_t{0}}) {
    set_buckets(count);
    BOOST_TEST(reader.none());
    BOOST_TEST(!reader.contains({1, 1}));
  }
  set_buckets(hints::max_buckets);  // wrong, but inside the segment: nothing breaks
  for (const block_key& each : keys_of(5, 1000)) BOOST_TEST(!reader.contains(each));
}

BOOST_AUTO_TEST_CASE(a_second_writer_over_the_same_memory_starts_empty) {
  const auto keys = keys_of(6, 1000);
  auto first = writer_for(1000);
  for (const block_key& each : keys) first.add(each);
  auto second = writer_for(1000);
  BOOST_TEST(!reader.none());
  for (const block_key& each : keys) BOOST_TEST(!reader.contains(each));
  second.add(keys[0]);
  BOOST_TEST(reader.contains(keys[0]));
}

BOOST_AUTO_TEST_CASE(a_writer_takes_the_address_space_of_its_hints_and_not_of_the_index) {
  const auto pages = [] {
    std::uint64_t count = 0;
    std::ifstream("/proc/self/statm") >> count;
    return count;
  };
  const std::uint64_t before = pages();
  std::vector<hint_writer> writers;
  for (int i = 0; i < 100; ++i) writers.push_back(writer_for(1000));
  BOOST_TEST(pages() * page_bytes < before * page_bytes + (std::uint64_t{16} << 20));
}

BOOST_AUTO_TEST_CASE(there_are_never_more_buckets_than_the_segment_holds) {
  BOOST_TEST(hints::buckets_for(0) == 1U);
  BOOST_TEST(hints::buckets_for(1'000'000) * 15 * hints::load >= 1'000'000.0);
  BOOST_TEST(hints::buckets_for(~std::uint64_t{0} / 2) == hints::max_buckets);
  BOOST_TEST(hints::first_bucket + hints::max_buckets * sizeof(hint_bucket) <= hints::area.bytes);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::memory::lower_hints_test
