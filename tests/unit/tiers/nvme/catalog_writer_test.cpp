#include "tiers/nvme/catalog_writer.hpp"

#include <future>

#include "tests/unit/tiers/nvme/catalog_fixture.hpp"

namespace cenote::nvme {

using namespace testing;

BOOST_AUTO_TEST_SUITE(nvme_catalog_writer)

BOOST_AUTO_TEST_CASE(what_waits_goes_in_one_write_and_in_order) {
  const scratch_directory at;
  auto held = open_catalog(at);
  std::vector<std::vector<std::uint64_t>> writes;
  std::promise<void> first;
  std::promise<void> go;
  catalog_writer writer(held, [&](std::span<const std::uint64_t> tags, const result<void>& status) {
    BOOST_REQUIRE(status.has_value());
    writes.emplace_back(tags.begin(), tags.end());
    if (writes.size() != 1) return;
    first.set_value();
    go.get_future().wait();  // the thread is busy: all that is submitted now waits
  });
  writer.submit({put(block_of(1, 0))}, 100);
  first.get_future().wait();
  for (std::uint64_t i = 1; i < 50; ++i) {
    writer.submit({erase(block_of(1, i - 1)), put(block_of(1, i)), put(block_of(2, i))}, 100 + i);
  }
  writer.submit({}, 150);
  go.set_value();
  writer.stop();
  BOOST_REQUIRE(writes.size() == 2U);
  BOOST_REQUIRE(writes[1].size() == 50U);
  for (std::uint64_t i = 0; i < 50; ++i) BOOST_TEST(writes[1][i] == 101 + i);
  const auto found = contents_of(held);
  BOOST_TEST(found.size() == 50U);
  const auto last = block_of(1, 49);
  BOOST_TEST((found.at({1, last.key}) == last));
}

BOOST_AUTO_TEST_CASE(many_threads_submit_and_stop_writes_what_waits) {
  const scratch_directory at;
  auto held = open_catalog(at);
  std::vector<std::uint64_t> seen(4);
  std::uint64_t most = 0;
  catalog_writer writer(held, [&](std::span<const std::uint64_t> tags, const result<void>& status) {
    BOOST_REQUIRE(status.has_value());
    most = std::max<std::uint64_t>(most, tags.size());
    for (const std::uint64_t tag : tags) BOOST_REQUIRE(tag % 1'000'000 == seen[tag / 1'000'000]++);  // in order
  });
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&writer, t] {
        for (std::uint64_t i = 0; i < 2'000; ++i) writer.submit({put(block_of(t, i))}, t * 1'000'000 + i);
      });
    }
  }
  writer.stop();
  writer.stop();
  writer.submit({put(block_of(9, 9))}, 9);
  for (const std::uint64_t count : seen) BOOST_TEST(count == 2'000U);
  BOOST_TEST(most <= 1024U);
  BOOST_TEST(contents_of(held).size() == 8'000U);
}

BOOST_AUTO_TEST_CASE(a_write_that_fails_says_so_for_all_its_tags) {
  const scratch_directory at;
  { open_catalog(at); }
  auto held = open_catalog(at, true);
  std::vector<std::uint64_t> failed;
  {
    catalog_writer writer(held, [&](std::span<const std::uint64_t> tags, const result<void>& status) {
      BOOST_REQUIRE(!status.has_value());
      failed.insert(failed.end(), tags.begin(), tags.end());
    });
    writer.submit({put(block_of(1, 1))}, 7);
    writer.submit({put(block_of(1, 2))}, 8);
  }
  BOOST_TEST((failed == std::vector<std::uint64_t>{7, 8}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme
