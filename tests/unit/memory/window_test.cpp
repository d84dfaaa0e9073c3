#include "memory/window.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "core/units.hpp"
#include "memory/index.hpp"
#include "memory/segment.hpp"
#include "memory/version_table.hpp"
#include "tests/support/native_kernel.hpp"
#include "tests/support/scarce_address_space.hpp"
#include "tests/support/step_cost.hpp"

namespace cenote::memory::window_test {

using testing::address_space;
using testing::can_be_scarce;
using testing::needs_native_kernel;
using testing::of_sanitizers;
using testing::scarce_address_space;

namespace {

struct fixture {
  shared_file file = std::move(*shared_file::create("window", 64 * GiB));
  window writer = std::move(*window::open(file, {0, 32 * GiB}, access::read_write, page_bytes));
};

}  // namespace

BOOST_AUTO_TEST_SUITE(windows)

BOOST_FIXTURE_TEST_CASE(a_window_takes_the_address_space_of_what_was_reached_and_no_more, fixture) {
  const std::uint64_t before = address_space();
  BOOST_TEST(writer.mapped() == page_bytes);
  BOOST_TEST((writer.reach(0, page_bytes) == writer.base()));
  BOOST_TEST(writer.mapped() == page_bytes);
  for (std::uint64_t end = 2 * page_bytes; end <= (std::uint64_t{64} << 20); end += 5 * page_bytes) {
    BOOST_REQUIRE((writer.reach(end - 8, 8) != nullptr));
  }
  BOOST_TEST(writer.mapped() <= std::uint64_t{128} << 20);
  BOOST_TEST(address_space() <= before + (std::uint64_t{256} << 20) + of_sanitizers);
}

BOOST_FIXTURE_TEST_CASE(what_was_reached_stays_where_it_is_and_shows_the_same_memory, fixture) {
  auto* early = reinterpret_cast<std::uint64_t*>(writer.reach(64, 8));
  *early = 1;
  BOOST_REQUIRE((writer.reach(GiB, 8) != nullptr));
  auto* late = reinterpret_cast<std::uint64_t*>(writer.reach(64, 8));
  BOOST_TEST((late != early));
  BOOST_TEST(*late == 1U);
  *early = 2;
  BOOST_TEST(*late == 2U);
}

BOOST_FIXTURE_TEST_CASE(nothing_outside_of_the_part_is_reached, fixture) {
  BOOST_TEST((writer.reach(32 * GiB - 8, 8) != nullptr));
  BOOST_TEST((writer.reach(32 * GiB - 7, 8) == nullptr));
  BOOST_TEST((writer.reach(0, 33 * GiB) == nullptr));
  BOOST_TEST(writer.mapped() == 32 * GiB);
}

BOOST_FIXTURE_TEST_CASE(a_window_of_a_later_part_begins_there, fixture) {
  auto later = window::open(file, {4 * page_bytes, GiB}, access::read_only, page_bytes);
  BOOST_REQUIRE(later.has_value());
  std::memcpy(writer.reach(5 * page_bytes, 4), "here", 4);
  BOOST_TEST(std::memcmp(later->reach(page_bytes, 4), "here", 4) == 0);
}

BOOST_FIXTURE_TEST_CASE(without_address_space_nothing_is_reached_and_all_before_stays, fixture,
                        *needs_native_kernel()) {
  if (!can_be_scarce) return;
  const auto* base = writer.base();
  {
    const scarce_address_space scarce(std::uint64_t{64} << 20);
    BOOST_TEST((writer.reach(GiB, 8) == nullptr));
    BOOST_TEST((writer.base() == base));
    BOOST_TEST(!window::open(file, {0, GiB}, access::read_write, GiB).has_value());
  }
  BOOST_TEST((writer.reach(GiB, 8) != nullptr));  // later it may go
}

BOOST_FIXTURE_TEST_CASE(threads_that_grow_a_window_at_once_all_see_what_they_reached, fixture) {
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> wrong{0};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t at = t; at < 4000; at += 4) {
        auto* word = reinterpret_cast<std::atomic<std::uint64_t>*>(writer.reach(at * 8 * page_bytes, 8));
        if (word == nullptr) ++wrong;
        if (word != nullptr) word->store(at);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  BOOST_TEST(wrong == 0U);
  for (std::uint64_t at = 0; at < 4000; ++at) {
    const auto* word = reinterpret_cast<const std::uint64_t*>(writer.reach(at * 8 * page_bytes, 8));
    BOOST_REQUIRE(*word == at);
  }
}

BOOST_FIXTURE_TEST_CASE(a_moved_window_goes_on_and_the_one_it_came_from_reaches_nothing, fixture) {
  auto* word = reinterpret_cast<std::uint64_t*>(writer.reach(GiB, 8));
  window moved = std::move(writer);
  *word = 7;
  BOOST_TEST(*reinterpret_cast<std::uint64_t*>(moved.reach(GiB, 8)) == 7U);
  BOOST_TEST((moved.reach(3 * GiB, 8) != nullptr));
  BOOST_TEST((writer.reach(0, 8) == nullptr));  // NOLINT(bugprone-use-after-move)
}

BOOST_FIXTURE_TEST_CASE(a_forked_child_does_not_have_a_readers_window, fixture, *needs_native_kernel()) {
  const auto reader = window::open(file, {0, GiB}, access::read_only, page_bytes);
  BOOST_REQUIRE(reader.has_value());
  BOOST_REQUIRE((reader->reach(4 * page_bytes, 8) != nullptr));
  const auto is_mapped = [](const std::byte* page) {
    unsigned char in_core = 0;
    return ::mincore(const_cast<std::byte*>(page), page_bytes, &in_core) == 0;
  };
  const pid_t child = ::fork();
  if (child == 0) ::_exit((is_mapped(reader->base()) ? 1 : 0) + (is_mapped(writer.base()) ? 0 : 2));
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_TEST(WEXITSTATUS(status) == 0);
}

BOOST_AUTO_TEST_CASE(an_index_rewritten_again_and_again_stays_within_a_few_tables) {
  auto writer = std::move(*index_writer::create(std::move(*shared_file::create("index", index_segment_bytes))));
  const std::uint64_t before = address_space();
  for (std::uint64_t n = 0; n < 2'000'000 / cenote::testing::step_cost;
       ++n) {  // 300 entries at a time: a new table every few hundred
    BOOST_REQUIRE(writer.insert({n * 0x9e3779b97f4a7c15U, n + 1}, index_value::make(block_ref(1, 1), 2)).has_value());
    if (n >= 300) writer.erase({(n - 300) * 0x9e3779b97f4a7c15U, n - 300 + 1});
  }
  BOOST_TEST(writer.size() == 300U);
  BOOST_TEST(address_space() < before + (std::uint64_t{1} << 20) + of_sanitizers);
}

BOOST_AUTO_TEST_CASE(an_instance_without_blocks_takes_less_than_a_mebibyte) {
  const std::uint64_t before = address_space();
  std::vector<index_writer> indexes;
  std::vector<version_table> tables;
  for (int i = 0; i < 100; ++i) {
    indexes.push_back(std::move(*index_writer::create(std::move(*shared_file::create("index", index_segment_bytes)))));
    tables.push_back(
        std::move(*version_table::create(std::move(*shared_file::create("versions", version_table::segment_bytes)))));
  }
  BOOST_TEST(address_space() < before + (std::uint64_t{100} << 20) + of_sanitizers);
}

BOOST_AUTO_TEST_CASE(an_index_that_cannot_grow_takes_what_its_table_has_room_for, *needs_native_kernel()) {
  if (!can_be_scarce) return;
  auto writer = std::move(*index_writer::create(std::move(*shared_file::create("index", index_segment_bytes))));
  const auto key_of = [](std::uint64_t n) { return block_key{n * 0x9e3779b97f4a7c15U, n + 1}; };
  const auto value_of = [](std::uint32_t n, std::uint64_t version) {
    return index_value::make(block_ref(1, n), version);
  };
  const scarce_address_space none(0);
  unsigned failed = 0;
  for (std::uint32_t n = 0; n < 900; ++n) failed += writer.insert(key_of(n), value_of(n, 2)) ? 0 : 1;
  const std::uint64_t slots = writer.slots();
  for (std::uint32_t n = 0; n < 900; ++n) failed += writer.insert(key_of(n), value_of(n, 4)) ? 0 : 1;
  BOOST_TEST(failed == 0U);
  BOOST_TEST(slots == index_min_slots);
  BOOST_TEST(writer.find(key_of(3)) == value_of(3, 4));
}

BOOST_AUTO_TEST_CASE(an_index_with_room_for_its_blocks_needs_no_more_address_space) {
  if (!can_be_scarce) return;
  auto writer = std::move(*index_writer::create(std::move(*shared_file::create("index", index_segment_bytes))));
  constexpr std::uint64_t blocks = 20'000;
  BOOST_REQUIRE(writer.make_room_for(blocks).has_value());
  const scarce_address_space none(0);
  unsigned failed = 0;
  for (std::uint64_t n = 0; n < 20 * blocks; ++n) {
    failed += writer.insert({n * 0x9e3779b97f4a7c15U, n + 1}, index_value::make(block_ref(1, 1), 2)) ? 0 : 1;
    if (n >= blocks) writer.erase({(n - blocks) * 0x9e3779b97f4a7c15U, n - blocks + 1});
  }
  BOOST_TEST(failed == 0U);
  BOOST_TEST(writer.size() == blocks);
  BOOST_TEST(writer.slots() < 8 * blocks);  // never filled up for want of another table
}

BOOST_AUTO_TEST_CASE(an_index_whose_old_table_cannot_be_mapped_does_not_show_it_to_readers, *needs_native_kernel()) {
  if (!can_be_scarce) return;
  const auto file = std::move(*shared_file::create("index", index_segment_bytes));
  const auto again = [&] {
    return std::move(*shared_file::adopt(std::move(*file.fd().duplicate()), index_segment_bytes));
  };
  const auto key_of = [](std::uint64_t n) { return block_key{n * 0x9e3779b97f4a7c15U, n + 1}; };
  const auto value_of = [](std::uint32_t n, std::uint64_t version) {
    return index_value::make(block_ref(1, n), version);
  };
  static_cast<void>(index_writer::create(again()));
  const auto seen = std::move(*index_memory::open(again(), access::read_only));
  const index_reader reader(seen.tables);
  const auto table_of = [&](unsigned shift) -> const index_table* {
    const std::uint64_t number = (seen.header().state.load() >> shift) & 0xff;
    return number < seen.header().tables.size() ? &seen.header().tables[number] : nullptr;
  };
  std::uint32_t n = 0;
  {
    auto writer = std::move(*index_writer::open(again()));
    for (;; ++n) {  // until a table in front of the old one takes over
      BOOST_REQUIRE(n < 100'000U);
      BOOST_REQUIRE(writer.insert(key_of(n), value_of(n, 2)).has_value());
      if (n >= 300) writer.erase(key_of(n - 300));
      const index_table* old = table_of(8);
      if (old != nullptr && old->offset > table_of(0)->offset) break;
    }
  }
  const std::uint32_t moved = n - 150;
  BOOST_REQUIRE(reader.find(key_of(moved)) == value_of(moved, 2));
  const std::uint64_t end = table_of(0)->offset + table_of(0)->slots * sizeof(index_entry);
  const scarce_address_space tight(2 * page_bytes + (end + page_bytes - 1) / page_bytes * page_bytes);
  auto next = index_writer::open(again());
  BOOST_REQUIRE(next.has_value());
  BOOST_TEST(!next->migrating());
  next->reconcile([](const block_key&, std::uint64_t) { return true; });
  next->erase(key_of(moved));
  BOOST_REQUIRE(next->insert(key_of(moved), value_of(moved, 8)).has_value());
  BOOST_TEST(reader.find(key_of(moved)) == value_of(moved, 8));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::memory::window_test
