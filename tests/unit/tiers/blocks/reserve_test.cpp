#include "tiers/blocks/reserve.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <map>

#include "core/units.hpp"

namespace cenote::blocks {

namespace {

using phase = populate_status::phase;

constexpr std::uint64_t piece = 4 * MiB + memory::page_bytes;

// A reserve for 16 MiB, what is kept of it, and what it said.
struct reserve_world {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint64_t, unique_fd> kept;
  std::vector<populate_report> reports;
  std::uint64_t room = ~std::uint64_t{0};
  bool keeps = true;
  reserve made{{.capacity = 4 * piece,
                .piece = piece,
                .most_pieces = 100,
                .huge_pages = false,
                .room =
                    [this] {
                      const std::lock_guard lock(mutex);
                      return room;
                    },
                .keep = [this](std::uint64_t id, const unique_fd& memory) -> result<void> {
                  const std::lock_guard lock(mutex);
                  if (!keeps) return fail(error_code::system, "the keeper is gone");
                  kept.emplace(id, std::move(*memory.duplicate()));
                  changed.notify_all();
                  return {};
                },
                .drop =
                    [this](std::uint64_t id) {
                      const std::lock_guard lock(mutex);
                      kept.erase(id);
                      changed.notify_all();
                    },
                .report =
                    [this](const populate_report& what) {
                      const std::lock_guard lock(mutex);
                      reports.push_back(what);
                      changed.notify_all();
                    }}};

  template <typename Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(60), condition);
  }
  bool said(phase what) {
    return wait([&] { return std::ranges::any_of(reports, [&](const auto& each) { return each.status.at == what; }); });
  }
  std::optional<spare_memory> take(std::uint64_t bytes) { return made.take(bytes, bytes); }
};

std::uint64_t touched_bytes(int fd) {
  struct stat status {};
  ::fstat(fd, &status);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

slab_description slab_of(std::uint64_t bytes) {
  return {.instance = 1, .group = 0, .index = 1, .count = 1, .stride = bytes, .first_record = 0, .first_version = 0};
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(reserve_suite, reserve_world)

BOOST_AUTO_TEST_CASE(all_that_slabs_leave_is_touched_kept_and_said) {
  made.slab_found(piece);
  made.start({});
  BOOST_TEST(said(phase::done));
  BOOST_TEST(kept.size() == 3U);
  for (const auto& [id, memory] : kept) BOOST_TEST(touched_bytes(memory.get()) == piece);
  BOOST_TEST((reports.front().status.at == phase::going_on));
  BOOST_TEST(reports.size() == 2U);
  const auto status = made.status();
  BOOST_TEST(status.bytes == 4 * piece);
  BOOST_TEST(status.total == 4 * piece);
  BOOST_TEST(status.ready == 3 * piece);
}

BOOST_AUTO_TEST_CASE(a_slab_of_another_size_is_made_of_a_piece_and_is_touched_as_far_as_that_goes) {
  made.start({});
  BOOST_TEST(said(phase::done));
  for (const std::uint64_t bytes : {3 * MiB, 6 * MiB}) {
    auto spare = take(slab_of(bytes).segment_bytes());
    BOOST_REQUIRE(spare.has_value());
    auto slab = make_slab_memory(slab_of(bytes), std::move(*spare));
    BOOST_REQUIRE(slab.has_value());
    BOOST_TEST(slab->size() == bytes + memory::page_bytes);
    BOOST_TEST(touched_bytes(slab->fd().get()) >= std::min(bytes, piece));
    BOOST_TEST(std::ranges::all_of(std::span(slab->data(), bytes), [](std::byte b) { return b == std::byte{0}; }));
    auto again = slab->fd().duplicate();  // sealed, with a header: as any worker takes it over
    BOOST_TEST(open_slab_memory(std::move(*again), slab->size()).has_value());
  }
}

BOOST_AUTO_TEST_CASE(what_is_touched_is_still_mapped_when_it_is_a_slab) {
  made.start({});
  BOOST_TEST(said(phase::done));
  auto slab = make_slab_memory(slab_of(3 * MiB), std::move(*take(slab_of(3 * MiB).segment_bytes())));
  BOOST_REQUIRE(slab.has_value());
  rusage before{};
  ::getrusage(RUSAGE_THREAD, &before);
  for (std::uint64_t at = 0; at < slab->size(); at += memory::page_bytes) slab->data()[at] = std::byte{1};
  rusage after{};
  ::getrusage(RUSAGE_THREAD, &after);
  BOOST_TEST(after.ru_minflt - before.ru_minflt < 16);  // some 770 pages
}

BOOST_AUTO_TEST_CASE(what_is_taken_is_the_keepers_no_more_and_slabs_and_reserve_stay_within_the_capacity) {
  made.start({});
  BOOST_TEST(said(phase::done));
  const auto one = take(piece);
  BOOST_TEST(one.has_value());
  BOOST_TEST(wait([&] { return kept.size() == 3U; }));
  const auto two = take(2 * piece);  // larger than usual
  BOOST_TEST(two.has_value());
  BOOST_TEST(wait([&] { return kept.size() == 1U; }));
  made.slab_gone(2 * piece);
  BOOST_TEST(wait([&] { return kept.size() == 3U; }));
  made.slab_found(9 * piece);
  made.slab_gone(0);
  BOOST_TEST(wait([&] { return kept.empty(); }));
  BOOST_TEST(!take(piece).has_value());
}

BOOST_AUTO_TEST_CASE(the_next_worker_gets_what_was_touched) {
  std::vector<reserve::piece> held;
  for (const std::uint64_t id : {5U, 9U}) {
    auto memory = make_spare_memory(piece, false, -1);
    memory->memory.populate(0, piece, memory::access::read_write);
    held.push_back({id, *adopt_spare_memory(*memory->memory.fd().duplicate())});
  }
  made.start(std::move(held));
  BOOST_TEST(said(phase::done));
  BOOST_TEST(kept.size() == 2U);
  BOOST_TEST(kept.begin()->first == 10U);  // no number of before
  BOOST_TEST(made.status().ready == 4 * piece);
}

BOOST_AUTO_TEST_CASE(memory_that_others_need_is_left_to_them_until_there_is_more) {
  room = 0;
  made.start({});
  BOOST_TEST(said(phase::short_of_memory));
  BOOST_TEST(!take(piece).has_value());
  made.slab_gone(piece);
  BOOST_TEST((made.status().at == phase::short_of_memory));
  {
    const std::lock_guard lock(mutex);
    BOOST_TEST(kept.empty());
    room = ~std::uint64_t{0};
  }
  BOOST_TEST(said(phase::done));
  BOOST_TEST(reports.size() == 2U);  // and not each time that it looked
}

BOOST_AUTO_TEST_CASE(a_piece_that_could_not_be_kept_ends_it_and_says_why) {
  keeps = false;
  made.start({});
  BOOST_TEST(said(phase::failed));
  BOOST_TEST(reports.back().reason.find("the keeper is gone") != std::string::npos);
  BOOST_TEST(!take(piece).has_value());
}

BOOST_AUTO_TEST_CASE(an_end_in_the_midst_of_it_waits_for_one_step_and_not_for_all) {
  constexpr std::uint64_t all = std::uint64_t{1} << 30;
  constexpr int steps = all >> 21;
  std::atomic<int> begun{0};
  const auto slow_room = [&] {  // so that all steps would take longer than a busy machine keeps this thread waiting
    ++begun;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return all;
  };
  auto large =
      std::make_unique<reserve>(reserve_options{.capacity = all, .piece = all, .most_pieces = 1, .room = slow_room});
  large->start({});
  while (large->status().bytes == 0) std::this_thread::yield();
  large.reset();
  BOOST_TEST(begun.load() < steps);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks
