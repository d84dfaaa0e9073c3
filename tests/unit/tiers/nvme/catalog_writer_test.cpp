#include "tiers/nvme/catalog_writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <future>
#include <stdexcept>

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
  pending_removals pending({}, 1);
  catalog_writer writer(held, pending, {}, [&](std::span<const std::uint64_t> tags, const save_status& status) {
    BOOST_REQUIRE(status.written.has_value());
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
  BOOST_TEST((found.at({numbered_identity(1), last.key}) == last));
}

BOOST_AUTO_TEST_CASE(many_threads_submit_and_stop_writes_what_waits) {
  const scratch_directory at;
  auto held = open_catalog(at);
  std::vector<std::uint64_t> seen(4);
  std::uint64_t most = 0;
  pending_removals pending({}, 1);
  catalog_writer writer(held, pending, {}, [&](std::span<const std::uint64_t> tags, const save_status& status) {
    BOOST_REQUIRE(status.written.has_value());
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
  pending_removals pending({}, 1);
  {
    catalog_writer writer(held, pending, {}, [&](std::span<const std::uint64_t> tags, const save_status& status) {
      BOOST_REQUIRE(!status.written.has_value());
      BOOST_TEST(status.removals_hold, "there is none among them");
      failed.insert(failed.end(), tags.begin(), tags.end());
    });
    writer.submit({put(block_of(1, 1))}, 7);
    writer.submit({put(block_of(1, 2))}, 8);
  }
  BOOST_TEST((failed == std::vector<std::uint64_t>{7, 8}));
}

/// A file with a log of removals, as a path's data file has it.
struct log_file {
  explicit log_file(const scratch_directory& directory)
      : fd(::open((directory.path() / "log").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    BOOST_REQUIRE(::ftruncate(fd.get(), removal_log::bytes) == 0);
  }
  [[nodiscard]] removal_log log() const { return {fd.get(), 0, store_id}; }
  unique_fd fd;
};

/// Submits the changes one by one and says which of them hold.
std::vector<bool> holding(catalog& into, pending_removals& pending, std::optional<removal_log> log,
                          const std::vector<catalog_change>& changes) {
  std::vector<bool> hold;
  catalog_writer writer(into, pending, log, [&](std::span<const std::uint64_t> tags, const save_status& status) {
    hold.insert(hold.end(), tags.size(), status.removals_hold);
  });
  for (const catalog_change& each : changes) writer.submit({each}, 1);
  writer.stop();
  return hold;
}

BOOST_AUTO_TEST_CASE(a_removal_that_the_catalog_does_not_take_is_in_the_log_or_does_not_hold) {
  const scratch_directory at;
  const log_file file(at);
  { open_catalog(at); }
  auto held = open_catalog(at, true);
  pending_removals pending({}, 1);
  BOOST_TEST((holding(held, pending, {}, {erase(block_of(1, 1))}) == std::vector<bool>{false}));
  BOOST_TEST((holding(held, pending, file.log(), {erase(block_of(1, 2))}) == std::vector<bool>{true}));
  BOOST_TEST(pending.size() == 2U);
  const auto logged = file.log().load();
  BOOST_REQUIRE(logged.has_value());
  BOOST_TEST(logged->contains(numbered_identity(1), block_of(1, 1).key));
  BOOST_TEST(logged->contains(numbered_identity(1), block_of(1, 2).key));
  BOOST_TEST(!logged->contains(numbered_identity(1), block_of(1, 3).key));
}

BOOST_AUTO_TEST_CASE(what_is_pending_is_erased_before_anything_else_is_written_and_leaves_the_log) {
  const scratch_directory at;
  const log_file file(at);
  auto held = open_catalog(at);
  BOOST_REQUIRE(held.apply(std::vector{put(block_of(1, 1)), put(block_of(1, 2)), put(block_of(2, 1))}));
  removal_set left;
  left.add(numbered_identity(1), block_of(1, 1).key);
  left.add(numbered_identity(1), block_of(1, 2).key);
  auto log = file.log();
  BOOST_REQUIRE(log.store(left));
  pending_removals pending({}, 1);
  pending.add(left);
  BOOST_TEST((holding(held, pending, log, {put(block_of(1, 2, 7))}) == std::vector<bool>{true}));
  const auto found = contents_of(held);
  BOOST_TEST(found.size() == 2U);
  BOOST_TEST(!found.contains({numbered_identity(1), block_of(1, 1).key}));
  BOOST_TEST((found.at({numbered_identity(1), block_of(1, 2).key}) == block_of(1, 2, 7)));
  BOOST_TEST(pending.size() == 0U);
  BOOST_TEST(file.log().load()->empty());
}

BOOST_AUTO_TEST_CASE(an_exception_on_its_thread_costs_no_write) {
  const scratch_directory at;
  auto held = open_catalog(at);
  pending_removals pending({}, 1);
  std::vector<std::string> heard;
  std::vector<std::uint64_t> said;
  {
    catalog_writer writer(
        held, pending, {},
        [&](std::span<const std::uint64_t> tags, const save_status& status) {
          if (heard.empty()) throw std::runtime_error("no memory");
          BOOST_TEST(status.written.has_value());
          said.insert(said.end(), tags.begin(), tags.end());
        },
        {}, [&](const std::string& what) { heard.push_back(what); });
    writer.submit({put(block_of(1, 1))}, 7);
    writer.submit({put(block_of(1, 2)), erase(block_of(1, 1))}, 8);
  }
  BOOST_TEST((heard == std::vector<std::string>{"no memory"}));
  BOOST_TEST((said == std::vector<std::uint64_t>{7, 8}));
  BOOST_TEST(contents_of(held).size() == 1U);
}

BOOST_AUTO_TEST_CASE(everything_can_be_erased) {
  const scratch_directory at;
  auto held = open_catalog(at);
  BOOST_REQUIRE(held.apply(std::vector{put(block_of(1, 1)), put(block_of(~std::uint64_t{0}, 2))}));
  BOOST_REQUIRE(held.apply(std::vector{catalog_change{catalog_change::kind::erase_everything, {}}}));
  BOOST_TEST(contents_of(held).empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme
