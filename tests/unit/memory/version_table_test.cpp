#include "memory/version_table.hpp"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <random>

#include "memory/block_record.hpp"
#include "memory/block_ref.hpp"

namespace cenote::memory::version_table_test {

namespace {

struct table {
  table() { BOOST_REQUIRE(view.make_room(0, 0, 64).has_value()); }
  version_table view =
      std::move(*version_table::create(std::move(*shared_file::create("versions", version_table::segment_bytes))));
};

full_key key_of(std::size_t width, std::uint8_t salt = 1) {
  std::array<std::byte, max_key_bytes> bytes{};
  for (std::size_t i = 0; i < width; ++i) bytes[i] = static_cast<std::byte>(salt * 31 + i * 7 + 1);
  return full_key(std::span(bytes).first(width));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(versions_and_keys)

BOOST_FIXTURE_TEST_CASE(keys_of_every_width_are_compared_to_the_last_byte, table) {
  for (std::size_t width = min_key_bytes; width <= max_key_bytes; ++width) {
    const full_key key = key_of(width);
    view.set_key(3, key_of(max_key_bytes, 9));  // what stood there before must not matter
    view.set_key(3, key);
    BOOST_TEST(view.key_equals(3, key.view()));
    BOOST_TEST((view.key(3) == key));
    for (std::size_t at = 0; at < width; ++at) {
      full_key other = key;
      other.bytes[at] ^= std::byte{0x80};
      BOOST_REQUIRE(!view.key_equals(3, other.view()));
    }
    if (width > min_key_bytes) BOOST_TEST(!view.key_equals(3, key.view().first(width - 1)));
  }
}

BOOST_FIXTURE_TEST_CASE(a_key_that_ends_in_zeros_is_not_its_own_prefix, table) {
  std::array<std::byte, 16> zeros{};
  view.set_key(1, full_key(std::span(zeros).first(8)));
  BOOST_TEST(view.key_equals(1, std::span(zeros).first(8)));
  BOOST_TEST(!view.key_equals(1, std::span(zeros).first(9)));
  BOOST_TEST(!view.key_equals(1, zeros));
}

BOOST_FIXTURE_TEST_CASE(short_keys_leave_the_tails_untouched, table) {
  const auto allocated = [&] {
    struct stat status {};
    ::fstat(view.file().fd().get(), &status);
    return status.st_blocks * 512;
  };
  for (std::uint32_t i = 0; i < 64; ++i) view.set_key(i, key_of(48));
  BOOST_TEST(allocated() == 2 * 4096);  // the header, and 64 entries
  view.set_key(0, key_of(49));
  BOOST_TEST(allocated() == 3 * 4096);
}

BOOST_FIXTURE_TEST_CASE(a_size_that_makes_no_sense_is_an_empty_key, table) {
  view.entry(0).key_size.store(1000);
  BOOST_TEST(view.key(0).size == 0U);
}

BOOST_FIXTURE_TEST_CASE(the_parts_of_the_segment_do_not_overlap, table) {
  BOOST_TEST(version_table::cold_offset == version_table::hot_offset + std::uint64_t{max_version_entries} * 64);
  BOOST_TEST(version_table::directory_offset == version_table::cold_offset + std::uint64_t{max_version_entries} * 16);
  BOOST_TEST(view.slab(block_ref::max_slabs - 1) != nullptr);
  BOOST_TEST(view.slab(block_ref::max_slabs + 1000) == nullptr);
  BOOST_TEST(version_table::segment_bytes >=
             version_table::directory_offset + std::uint64_t{block_ref::max_slabs} * sizeof(slab_entry));
}

BOOST_AUTO_TEST_CASE(an_index_value_matches_its_own_publication_only) {
  const block_ref ref(block_ref::max_slabs - 1, block_ref::max_blocks_per_slab - 1);
  BOOST_TEST(ref.slab() == block_ref::max_slabs - 1);
  BOOST_TEST(ref.block() == block_ref::max_blocks_per_slab - 1);
  for (const std::uint64_t version :
       {std::uint64_t{2}, std::uint64_t{4}, std::uint64_t{1} << 24, std::uint64_t{1} << 25,
        (std::uint64_t{1} << 25) + 2, (std::uint64_t{1} << 59) + 6}) {
    const std::uint64_t value = index_value::make(ref, version);
    BOOST_TEST(index_value::holds_block(value));
    BOOST_TEST((index_value::ref(value) == ref));
    BOOST_TEST(index_value::matches(value, version));
    BOOST_TEST(!index_value::matches(value, version + 1));  // condemned
    BOOST_TEST(!index_value::matches(value, version + 2));
    BOOST_TEST(!index_value::matches(value, version - 2));
  }
  // The low bits wrap after 16 M publications of one block, which is why the full key is compared too.
  BOOST_TEST(index_value::matches(index_value::make(ref, 2), 2 + (std::uint64_t{1} << 25)));
  BOOST_TEST(!index_value::matches(index_value::make(ref, std::uint64_t{1} << 25), 0));  // never published
  BOOST_TEST(!index_value::holds_block(index_value::empty));
  BOOST_TEST(!index_value::holds_block(index_value::deleted));
}

BOOST_AUTO_TEST_SUITE_END()

// ---------------------------------------------------------------------------------------------- records

BOOST_AUTO_TEST_SUITE(records)

BOOST_AUTO_TEST_CASE(a_record_keeps_its_version_state_and_key) {
  const auto table = record_table::create();
  BOOST_REQUIRE(table.has_value());
  block_record& record = (*table)[max_records - 1];
  BOOST_TEST((record.state() == block_state::free));
  record.set_key(key_of(64));
  record.set(block_state::present, (std::uint64_t{1} << 60) - 2);
  BOOST_TEST((record.state() == block_state::present));
  BOOST_TEST(record.version() == (std::uint64_t{1} << 60) - 2);
  record.set_state(block_state::zombie);
  BOOST_TEST(record.version() == (std::uint64_t{1} << 60) - 2);
  BOOST_TEST((record.get_key() == key_of(64)));
  record.key_size = 200;
  BOOST_TEST(record.get_key().size == 0U);
  const auto again = record_table::open(std::move(*table->memory().fd().duplicate()));
  BOOST_REQUIRE(again.has_value());
  BOOST_TEST(((*again)[max_records - 1].state() == block_state::zombie));
}

BOOST_AUTO_TEST_CASE(ranges_never_overlap_and_holes_are_used_again) {
  constexpr std::uint32_t limit = 2'000;
  range_allocator ranges(limit);
  std::vector<bool> taken(limit);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> held;
  std::mt19937_64 random(2);
  const auto mark = [&](std::uint32_t first, std::uint32_t count, bool to) {
    BOOST_REQUIRE(first + count <= limit);
    for (std::uint32_t i = first; i < first + count; ++i) {
      BOOST_REQUIRE(taken[i] != to);
      taken[i] = to;
    }
  };
  const auto longest_hole = [&] {
    std::uint32_t longest = 0;
    std::uint32_t run = 0;
    for (std::uint32_t i = 0; i < limit; ++i) longest = std::max(longest, run = taken[i] ? 0 : run + 1);
    return longest;
  };
  for (int step = 0; step < 20'000; ++step) {
    const auto count = static_cast<std::uint32_t>(1 + random() % 60);
    if (random() % 2 == 0) {
      const auto got = ranges.allocate(count);
      BOOST_REQUIRE(got.has_value() == (longest_hole() >= count));
      if (got) {
        mark(*got, count, true);
        held.emplace_back(*got, count);
      }
    } else if (random() % 4 == 0) {
      const auto first = static_cast<std::uint32_t>(random() % limit);
      bool is_free = first + count <= limit;
      for (std::uint32_t i = first; is_free && i < first + count; ++i) is_free = !taken[i];
      BOOST_REQUIRE(ranges.claim(first, count) == is_free);
      if (is_free) {
        mark(first, count, true);
        held.emplace_back(first, count);
      }
    } else if (!held.empty()) {
      const std::size_t i = random() % held.size();
      const auto [first, size] = held[i];
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
      ranges.release(first, size);
      mark(first, size, false);
    }
  }
  for (const auto& [first, count] : held) ranges.release(first, count);
  BOOST_TEST(ranges.allocate(limit).value_or(1) == 0U);
  BOOST_TEST(!ranges.allocate(1).has_value());
  BOOST_TEST(!ranges.claim(~0U, 2));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::memory::version_table_test
