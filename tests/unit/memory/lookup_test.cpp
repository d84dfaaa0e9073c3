// Finding and pinning against an owner in the same process, on one mapping: the thread sanitizer sees both sides.
#include <boost/test/unit_test.hpp>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "memory/fence.hpp"
#include "memory/lookup.hpp"
#include "tests/support/local_owner.hpp"

namespace lookup_test {

using namespace cenote;
using testing::batch_of;
using testing::key_of;
using testing::keys_of;

namespace {

struct fixture {
  explicit fixture(std::uint32_t blocks = 64, std::uint32_t pins = 32)
      : owner(blocks, 4096, pins), slots(pins), lookup(owner.reader(), owner.versions(), owner.session(), slots) {}

  void publish(std::uint64_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) owner.publish(i, key_of(first + i));
  }

  testing::local_owner owner;
  memory::pin_slots slots;
  memory::lookup lookup;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(lookups)

BOOST_AUTO_TEST_CASE(a_prefix_ends_at_the_first_missing_key) {
  fixture test;
  test.publish(0, 40);
  const auto keys = keys_of(0, 50);
  BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 0) == 40U);
  const auto others = keys_of(1000, 3);
  BOOST_TEST(test.lookup.count_prefix(batch_of(others), 0) == 0U);
  BOOST_TEST(test.lookup.count_prefix({}, 0) == 0U);
}

BOOST_AUTO_TEST_CASE(every_key_is_looked_up_on_its_own) {
  fixture test;
  for (std::uint32_t i = 0; i < 40; i += 2) test.owner.publish(i, key_of(i));
  const auto keys = keys_of(0, 40);
  std::vector<std::uint8_t> present(40, 9);
  test.lookup.find_each(batch_of(keys), 0, present);
  for (std::size_t i = 0; i < 40; ++i) BOOST_TEST(int{present[i]} == (i % 2 == 0 ? 1 : 0));
}

BOOST_AUTO_TEST_CASE(each_number_of_keys_and_each_end_of_a_prefix_is_right) {
  constexpr std::uint32_t most = 137;  // runs and the ring of runs, begun and full
  fixture test(2 * most);
  test.publish(0, most);
  for (std::size_t count = 0; count <= most; ++count) {
    const auto found = keys_of(0, count);
    BOOST_REQUIRE(test.lookup.count_prefix(batch_of(found), 0) == count);
    const auto half = keys_of(most - count, most);  // `count` of them are there
    BOOST_REQUIRE(test.lookup.count_prefix(batch_of(half), 0) == count);
    std::vector<std::uint8_t> present(most, 2);
    test.lookup.find_each(batch_of(half), 0, present);
    for (std::size_t i = 0; i < most; ++i) BOOST_REQUIRE(int{present[i]} == (i < count ? 1 : 0));
  }
}

BOOST_AUTO_TEST_CASE(keys_far_from_their_home_slots_are_found) {
  constexpr std::uint32_t crowd = 60;  // with the same few homes: the last ones lie beyond every shortcut
  fixture test(crowd, crowd);
  std::vector<std::byte> keys;
  std::uint32_t count = 0;
  for (std::uint64_t n = 0; count < crowd; ++n) {
    const auto key = key_of(n);
    if (memory::index_reader::home_slot(reduce_key(key, 0), memory::index_min_slots) >= 4) continue;
    test.owner.publish(count++, key);
    keys.insert(keys.end(), key.begin(), key.end());
  }
  BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 0) == crowd);
  std::vector<memory::pin> pins(crowd);
  BOOST_TEST(test.lookup.pin_prefix(batch_of(keys), 0, pins).value() == crowd);
  std::vector<std::uint8_t> present(crowd);
  test.lookup.find_each(batch_of(keys), 0, present);
  BOOST_TEST(std::ranges::count(present, std::uint8_t{1}) == crowd);
}

BOOST_AUTO_TEST_CASE(an_entry_that_shares_half_of_a_key_hides_nothing) {
  fixture test;
  test.publish(0, 8);
  const block_key key = reduce_key(key_of(3), 0);
  const block_key twin{key.hi ^ 1, key.lo};  // of the same home slot
  test.owner.index().erase(key);
  BOOST_REQUIRE(test.owner.index().insert(twin, memory::index_value::make({1, 5}, 2)).has_value());
  BOOST_REQUIRE(test.owner.index().insert(key, memory::index_value::make({1, 3}, 2)).has_value());
  const auto keys = keys_of(0, 8);
  BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 0) == 8U);
  std::vector<memory::pin> pins(8);
  BOOST_TEST(test.lookup.pin_prefix(batch_of(keys), 0, pins).value() == 8U);
  BOOST_TEST(pins[3].block.block() == 3U);
}

BOOST_AUTO_TEST_CASE(groups_have_keys_of_their_own) {
  fixture test;
  test.owner.publish(0, key_of(7), 3);
  const auto keys = keys_of(7, 1);
  BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 3) == 1U);
  BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 0) == 0U);
}

BOOST_AUTO_TEST_CASE(keys_of_every_width_are_compared_to_their_last_byte) {
  fixture test;
  for (std::size_t width = 8; width <= 64; ++width) {
    std::vector<std::byte> key(width, std::byte{1});
    test.owner.publish(0, key);
    BOOST_TEST(test.lookup.count_prefix({key.data(), 1, width}, 0) == 1U);
    key.back() = std::byte{2};
    BOOST_TEST(test.lookup.count_prefix({key.data(), 1, width}, 0) == 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_collision_of_index_keys_is_a_miss) {
  fixture test;
  test.owner.publish(0, key_of(1));
  // As if the other key had the same 128-bit hash: its index entry leads to the block of key 1.
  const auto other = keys_of(2, 1);
  const std::uint64_t value = test.owner.reader().find(reduce_key(key_of(1), 0));
  BOOST_REQUIRE(test.owner.index().insert(reduce_key(other, 0), value).has_value());
  BOOST_TEST(test.lookup.count_prefix(batch_of(other), 0) == 0U);
  std::vector<memory::pin> pins(1);
  BOOST_TEST(test.lookup.pin_prefix(batch_of(other), 0, pins).value() == 0U);
  BOOST_TEST(test.slots.in_use() == 0U);
}

BOOST_AUTO_TEST_CASE(the_low_bits_of_a_version_may_wrap) {
  fixture test;
  const std::uint32_t version_index = test.owner.versions().slab(1)->first_version;
  const std::uint64_t wrap = std::uint64_t{1} << (memory::index_value::version_bits + 1);
  const auto keys = keys_of(0, 1);
  for (const std::uint64_t before : {wrap - 4, wrap - 2, wrap, 3 * wrap - 2}) {
    test.owner.set_version(version_index, before);
    test.owner.publish(0, keys);
    BOOST_TEST(test.owner.versions().version(version_index) == before + 2);
    BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 0) == 1U);
  }
}

BOOST_AUTO_TEST_CASE(an_entry_of_an_earlier_publication_is_a_miss) {
  fixture test;
  test.owner.publish(0, key_of(1));
  const std::uint64_t old = test.owner.reader().find(reduce_key(key_of(1), 0));
  const std::uint32_t block = 0;
  BOOST_REQUIRE(test.owner.condemn(std::span(&block, 1)).front());
  const auto keys = keys_of(1, 1);
  BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 0) == 0U);
  BOOST_REQUIRE(test.owner.index().insert(reduce_key(key_of(1), 0), old).has_value());  // a stale entry
  BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 0) == 0U);
}

BOOST_AUTO_TEST_CASE(a_pinned_block_survives_being_condemned) {
  fixture test;
  test.publish(0, 8);
  const auto keys = keys_of(0, 8);
  std::vector<memory::pin> pins(8);
  BOOST_REQUIRE(test.lookup.pin_prefix(batch_of(keys), 0, pins).value() == 8U);
  BOOST_TEST(test.slots.in_use() == 8U);
  const std::vector<std::uint32_t> some{0, 3, 7};
  for (const bool blank : test.owner.condemn(some)) BOOST_TEST(!blank);
  BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 0) == 8U);
  test.lookup.unpin(pins);
  BOOST_TEST(test.slots.in_use() == 0U);
  for (const bool blank : test.owner.condemn(some)) BOOST_TEST(blank);
  BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 0) == 0U);
}

BOOST_AUTO_TEST_CASE(only_the_prefix_stays_pinned) {
  fixture test;
  test.publish(0, 5);
  test.owner.publish(6, key_of(6));  // behind a gap
  const auto keys = keys_of(0, 8);
  std::vector<memory::pin> pins(8);
  BOOST_TEST(test.lookup.pin_prefix(batch_of(keys), 0, pins).value() == 5U);
  BOOST_TEST(test.slots.in_use() == 5U);
  const std::uint32_t behind = 6;
  BOOST_TEST(test.owner.condemn(std::span(&behind, 1)).front());
}

BOOST_AUTO_TEST_CASE(more_resident_blocks_than_pins_are_refused_and_nothing_is_held) {
  fixture test(64, 16);
  test.publish(0, 20);
  const auto keys = keys_of(0, 20);
  std::vector<memory::pin> pins(20);
  const auto outcome = test.lookup.pin_prefix(batch_of(keys), 0, pins);
  BOOST_REQUIRE(!outcome.has_value());
  BOOST_TEST((outcome.error().code() == error_code::pin_limit));
  BOOST_TEST(test.slots.in_use() == 0U);
  for (std::uint32_t i = 0; i < 16; ++i) BOOST_TEST(test.owner.session().pin(i).load() == 0U);
}

BOOST_AUTO_TEST_CASE(more_keys_than_pins_are_fine_when_the_resident_prefix_fits) {
  fixture test(64, 16);
  test.publish(0, 16);
  const auto keys = keys_of(0, 64);
  std::vector<memory::pin> pins(64);
  BOOST_TEST(test.lookup.pin_prefix(batch_of(keys), 0, pins).value() == 16U);
}

BOOST_AUTO_TEST_CASE(each_length_of_a_pinned_prefix_and_each_number_of_free_pins_is_right) {
  constexpr std::uint32_t most = 137;  // batches of pins, begun and full
  for (const std::uint32_t slots : {1U, 63U, 64U, 65U, 128U, most, 2 * most}) {
    fixture test(2 * most, slots);
    test.publish(0, most);
    std::vector<memory::pin> pins(2 * most);
    for (std::uint32_t count = 0; count <= most; ++count) {
      const auto keys = keys_of(most - count, most);  // `count` of them are there
      const auto held = test.lookup.pin_prefix(batch_of(keys), 0, pins);
      BOOST_REQUIRE(held.has_value() == (count <= slots));
      BOOST_REQUIRE(test.slots.in_use() == (held ? count : 0U));
      if (!held) continue;
      BOOST_REQUIRE(*held == count);
      for (std::uint32_t i = 0; i < count; ++i) BOOST_REQUIRE(pins[i].block.block() == most - count + i);
      test.lookup.unpin(std::span(pins).first(count));
      BOOST_REQUIRE(test.slots.in_use() == 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE(stale_entries_need_no_pins) {
  fixture test(64, 4);
  test.publish(0, 4);
  // The index knows eight keys, but the last four are condemned.
  for (std::uint32_t i = 4; i < 8; ++i) {
    test.owner.publish(i, key_of(i));
    const std::uint32_t version_index = test.owner.versions().slab(1)->first_version + i;
    test.owner.set_version(version_index, test.owner.versions().version(version_index) | 1);
  }
  const auto keys = keys_of(0, 8);
  std::vector<memory::pin> pins(8);
  BOOST_TEST(test.lookup.pin_prefix(batch_of(keys), 0, pins).value() == 4U);
}

BOOST_AUTO_TEST_CASE(low_slots_are_used_first_and_the_high_water_mark_covers_them) {
  fixture test;
  test.publish(0, 8);
  const auto keys = keys_of(0, 8);
  std::vector<memory::pin> pins(8);
  for (int round = 0; round < 10; ++round) {
    BOOST_REQUIRE(test.lookup.pin_prefix(batch_of(keys), 0, pins).value() == 8U);
    test.lookup.unpin(pins);
  }
  BOOST_TEST(test.owner.session().header().pin_high_water.load() == 8U);
}

BOOST_AUTO_TEST_CASE(a_block_that_moves_is_followed) {
  fixture test;
  test.owner.publish(0, key_of(1));
  const std::uint64_t old = test.owner.reader().find(reduce_key(key_of(1), 0));
  test.owner.publish(9, key_of(1));  // compaction: the same key at a new place, then the old place is condemned
  const std::uint32_t first = test.owner.versions().slab(1)->first_version;
  test.owner.set_version(first, test.owner.versions().version(first) | 1);
  BOOST_TEST(test.owner.reader().find(reduce_key(key_of(1), 0)) != old);
  const auto keys = keys_of(1, 1);
  BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 0) == 1U);
}

BOOST_AUTO_TEST_CASE(a_slab_that_is_not_live_is_a_miss) {
  fixture test;
  test.publish(0, 1);
  const auto keys = keys_of(0, 1);
  test.owner.versions().slab(1)->state.store(static_cast<std::uint32_t>(memory::slab_state::retired));
  BOOST_TEST(test.lookup.count_prefix(batch_of(keys), 0) == 0U);
}

// Readers verify bytes that derive from the keys while the owner condemns and reuses blocks as fast as it can.
BOOST_AUTO_TEST_CASE(pinned_bytes_are_always_those_of_the_key) {
  constexpr std::uint32_t blocks = 32;
  constexpr std::uint64_t universe = 96;
  constexpr std::size_t words = 64;
  fixture test(blocks, 256);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> verified{0};
  std::atomic<std::uint64_t> wrong{0};

  std::vector<std::thread> readers;
  for (unsigned r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      std::mt19937_64 random(r);
      std::vector<memory::pin> pins(6);
      while (!stop.load(std::memory_order_relaxed)) {
        const std::uint64_t first = random() % universe;
        const auto keys = keys_of(first, 6);
        const auto held = test.lookup.pin_prefix(batch_of(keys), 0, pins);
        if (!held) continue;
        for (std::size_t i = 0; i < *held; ++i) {
          std::uint64_t bytes[words];
          std::memcpy(bytes, test.owner.data(pins[i].block.block()), sizeof bytes);
          for (const std::uint64_t word : bytes) wrong.fetch_add(word == first + i ? 0 : 1, std::memory_order_relaxed);
        }
        verified.fetch_add(*held, std::memory_order_relaxed);
        test.lookup.unpin(std::span(pins).first(*held));
      }
    });
  }

  std::mt19937_64 random(99);
  std::vector<std::uint64_t> holds(blocks, ~std::uint64_t{0});
  std::vector<bool> resident(universe + 8, false);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  while (std::chrono::steady_clock::now() < end) {
    std::vector<std::uint32_t> victims;
    for (std::uint32_t i = 0; i < 4; ++i) {
      const auto block = static_cast<std::uint32_t>(random() % blocks);
      if (std::ranges::find(victims, block) == victims.end()) victims.push_back(block);
    }
    std::vector<std::uint32_t> used;
    for (const std::uint32_t block : victims) {
      if (holds[block] != ~std::uint64_t{0}) used.push_back(block);
    }
    const std::vector<bool> blank = test.owner.condemn(used);
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (!blank[i]) continue;
      resident[holds[used[i]]] = false;
      holds[used[i]] = ~std::uint64_t{0};
    }
    for (const std::uint32_t block : victims) {
      const std::uint64_t number = random() % (universe + 6);
      if (holds[block] != ~std::uint64_t{0} || resident[number]) continue;
      std::uint64_t bytes[words];
      std::fill(std::begin(bytes), std::end(bytes), number);
      std::memcpy(test.owner.data(block), bytes, sizeof bytes);
      test.owner.publish(block, key_of(number));
      holds[block] = number;
      resident[number] = true;
    }
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  BOOST_TEST(wrong.load() == 0U);
  BOOST_TEST(verified.load() > 100U);
  BOOST_TEST(test.slots.in_use() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace lookup_test
