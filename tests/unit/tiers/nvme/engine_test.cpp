#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/checksum.hpp"
#include "core/units.hpp"
#include "tests/unit/tiers/nvme/temporary_directory.hpp"
#include "tiers/nvme/make_engine.hpp"
#include "tiers/nvme/uring_engine.hpp"

namespace cenote::nvme {

namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t data_at = path_file::data_offset;
constexpr std::uint64_t path_bytes = 64 * MiB;
constexpr auto patience = 60s;  // for completions

constexpr std::array kinds{"io_uring", "threads"};

/// Sector-aligned, zero at first.
class page_memory {
 public:
  explicit page_memory(std::uint64_t bytes) : sectors_((bytes + sector_bytes - 1) / sector_bytes) {}

  [[nodiscard]] std::span<std::byte> all() noexcept { return {sectors_.data()->bytes, sectors_.size() * sector_bytes}; }
  [[nodiscard]] std::span<std::byte> some(std::uint64_t offset, std::uint64_t bytes) noexcept {
    return all().subspan(offset, bytes);
  }
  void fill(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (sector& each : sectors_) {
      for (std::uint64_t i = 0; i < sector_bytes; i += sizeof(std::uint64_t)) {
        const std::uint64_t word = random();
        std::memcpy(each.bytes + i, &word, sizeof word);
      }
    }
  }

 private:
  struct alignas(sector_bytes) sector {
    std::byte bytes[sector_bytes] = {};
  };
  std::vector<sector> sectors_;
};

/// Completions as they come, from any thread.
class collector {
 public:
  void take(std::span<const io_completion> batch) {
    {
      const std::lock_guard lock(mutex_);
      all_.insert(all_.end(), batch.begin(), batch.end());
    }
    more_.notify_all();
  }
  /// The next `count`, in the order they came in; fewer when they do not come.
  [[nodiscard]] std::vector<io_completion> wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    more_.wait_for(lock, patience, [&] { return all_.size() >= count; });
    return std::exchange(all_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<io_completion> all_;
};

struct engine_fixture {
  engine_fixture() {
    auto opened = path_file::open({.directory = root / "path", .bytes = path_bytes, .holder = "test", .patience = 10s});
    BOOST_REQUIRE_MESSAGE(opened.has_value(), (opened ? "" : opened.error().describe()));
    file.emplace(std::move(*opened));
  }

  /// False where the kernel does not allow this kind.
  [[nodiscard]] bool start(const std::string& kind, unsigned queue_depth = 8) {
    auto made = make_engine(kind == "threads" ? engine_kind::threads : engine_kind::io_uring, *file, {queue_depth},
                            [this](std::span<const io_completion> batch) { came.take(batch); });
    if (!made && made.error().code() == error_code::unsupported) {
      BOOST_TEST_MESSAGE(made.error().describe());
      return false;
    }
    BOOST_REQUIRE_MESSAGE(made.has_value(), (made ? "" : made.error().describe()));
    engine = std::move(*made);
    BOOST_TEST(engine->name() == kind);
    return true;
  }

  /// Submits all and returns their completions by tag; the test fails unless each came once.
  std::map<std::uint64_t, io_completion> run(const std::vector<io_request>& requests) {
    engine->submit(requests);
    std::map<std::uint64_t, io_completion> out;
    for (const auto& each : came.wait_for(requests.size())) BOOST_TEST(out.emplace(each.tag, each).second);
    BOOST_REQUIRE(out.size() == requests.size());
    return out;
  }

  io_completion run_one(io_request request) {
    request.tag = 77;
    return run({request}).at(77);
  }

  temporary_directory root;
  std::optional<path_file> file;
  collector came;
  std::unique_ptr<io_engine> engine;  // last: ends first
};

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

io_request read_of(std::uint64_t offset, std::span<std::byte> memory, std::uint64_t tag = 0) {
  return {.kind = io_kind::read, .offset = offset, .memory = memory, .tag = tag};
}

io_request write_of(std::uint64_t offset, std::span<std::byte> memory, std::uint64_t tag = 0) {
  return {.kind = io_kind::write, .offset = offset, .memory = memory, .tag = tag};
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(io_engines, engine_fixture)

BOOST_DATA_TEST_CASE_F(engine_fixture, what_was_written_is_read, boost::unit_test::data::make(kinds), kind) {
  if (!start(kind)) return;
  page_memory source(9 * MiB);
  page_memory target(9 * MiB);
  source.fill(1);
  std::uint64_t at = data_at;
  for (const std::uint64_t bytes : {4 * KiB, 8 * KiB, 12 * KiB, 64 * KiB, 256 * KiB, MiB + 4 * KiB, 8 * MiB}) {
    for (const std::uint64_t shift : {0 * KiB, 4 * KiB, 20 * KiB}) {
      const auto from = source.some(shift, bytes);
      const auto to = target.some(24 * KiB - shift, bytes);
      const auto written = run_one(write_of(at, from));
      BOOST_TEST(written.error == 0);
      BOOST_TEST(written.checksum == checksum_of(from.data(), from.size()));
      const auto got = run_one(read_of(at, to));
      BOOST_TEST(got.error == 0);
      BOOST_TEST(got.checksum == written.checksum);
      BOOST_TEST(same(from, to));
      at += shift;  // also overlapping what was there
    }
    at += 8 * KiB;
  }
}

BOOST_DATA_TEST_CASE_F(engine_fixture, checksums_are_taken_only_when_asked_for, boost::unit_test::data::make(kinds),
                       kind) {
  if (!start(kind)) return;
  page_memory memory(64 * KiB);
  memory.fill(2);
  auto request = write_of(data_at, memory.all());
  request.checksum = false;
  BOOST_TEST(run_one(request).checksum == 0U);
  request.kind = io_kind::read;
  BOOST_TEST(run_one(request).checksum == 0U);
}

BOOST_DATA_TEST_CASE_F(engine_fixture, many_at_once, boost::unit_test::data::make(kinds), kind) {
  if (!start(kind)) return;
  constexpr std::size_t count = 2000;
  constexpr std::uint64_t bytes = 16 * KiB;  // small neighbours, which may go together
  page_memory source(count * bytes);
  page_memory target(count * bytes);
  source.fill(3);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937_64 random(3);
  std::ranges::shuffle(std::span(order).first(count / 2), random);
  std::vector<io_request> writes;
  std::vector<io_request> reads;
  for (std::size_t i = 0; i < count; ++i) {
    // In the file in another order than in memory, in the first half.
    writes.push_back(write_of(data_at + order[i] * bytes, source.some(i * bytes, bytes), i));
    reads.push_back(read_of(data_at + order[i] * bytes, target.some(i * bytes, bytes), i));
  }
  const auto written = run(writes);
  std::ranges::reverse(std::span(reads).first(count / 4));
  const auto got = run(reads);
  for (std::size_t i = 0; i < count; ++i) {
    BOOST_REQUIRE(written.at(i).error == 0);
    BOOST_REQUIRE(got.at(i).error == 0);
    BOOST_REQUIRE(got.at(i).checksum == written.at(i).checksum);
  }
  BOOST_TEST(same(source.all(), target.all()));
}

BOOST_DATA_TEST_CASE_F(engine_fixture, neighbours_in_the_file_need_not_be_neighbours_in_memory,
                       boost::unit_test::data::make(kinds), kind) {
  if (!start(kind, 1)) return;
  constexpr std::size_t count = 40;
  page_memory source(2 * count * 8 * KiB);
  page_memory target(2 * count * 8 * KiB);
  source.fill(4);
  std::vector<io_request> writes;
  std::vector<io_request> reads;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t place = (i % 3 == 0 ? 2 * i + 1 : 2 * i) * 8 * KiB;  // some touch, most do not
    writes.push_back(write_of(data_at + i * 8 * KiB, source.some(place, 8 * KiB), i));
    reads.push_back(read_of(data_at + i * 8 * KiB, target.some(place, 8 * KiB), i));
  }
  for (const auto& [tag, each] : run(writes)) BOOST_TEST(each.error == 0);
  for (const auto& [tag, each] : run(reads)) BOOST_TEST(each.error == 0);
  for (std::size_t i = 0; i < count; ++i) BOOST_TEST(same(writes[i].memory, reads[i].memory));
}

BOOST_DATA_TEST_CASE_F(engine_fixture, reads_go_before_writes_that_wait, boost::unit_test::data::make(kinds), kind) {
  if (!start(kind, 1)) return;
  page_memory memory(MiB);
  std::vector<io_request> batch;
  for (std::uint64_t i = 0; i < 4; ++i) {
    batch.push_back(write_of(data_at + i * MiB, memory.some(i * 64 * KiB, 64 * KiB), i));
  }
  for (std::uint64_t i = 4; i < 8; ++i) {
    batch.push_back(read_of(data_at + i * MiB, memory.some(i * 64 * KiB, 64 * KiB), i));
  }
  engine->submit(batch);
  std::vector<io_completion> all;
  while (all.size() < batch.size()) {
    const auto some = came.wait_for(1);
    BOOST_REQUIRE(!some.empty());
    all.insert(all.end(), some.begin(), some.end());
  }
  std::vector<std::uint64_t> tags;
  for (const auto& each : all) tags.push_back(each.tag);
  const std::vector<std::uint64_t> expected{4, 5, 6, 7, 0, 1, 2, 3};
  BOOST_TEST(tags == expected, boost::test_tools::per_element());
}

BOOST_DATA_TEST_CASE_F(engine_fixture, a_short_transfer_is_an_error, boost::unit_test::data::make(kinds), kind) {
  if (!start(kind)) return;
  page_memory memory(256 * KiB);
  BOOST_REQUIRE(::ftruncate(file->descriptor(), data_at + 32 * KiB) == 0);
  BOOST_TEST(run_one(read_of(data_at, memory.some(0, 32 * KiB))).error == 0);
  const auto cut = run_one(read_of(data_at, memory.some(0, 36 * KiB)));
  BOOST_TEST(cut.error == EIO);
  BOOST_TEST(cut.checksum == 0U);
  BOOST_TEST(run_one(read_of(data_at + MiB, memory.some(0, 4 * KiB))).error == EIO);
}

BOOST_DATA_TEST_CASE_F(engine_fixture, a_failure_leaves_its_neighbours_alone, boost::unit_test::data::make(kinds),
                       kind) {
  if (!start(kind)) return;
  page_memory memory(256 * KiB);
  BOOST_REQUIRE(::ftruncate(file->descriptor(), data_at + 40 * KiB) == 0);
  std::vector<io_request> reads;
  for (std::uint64_t i = 0; i < 8; ++i) {
    reads.push_back(read_of(data_at + i * 8 * KiB, memory.some(i * 16 * KiB, 8 * KiB), i));
  }
  for (const auto& [tag, each] : run(reads)) BOOST_TEST(each.error == (tag < 5 ? 0 : EIO));
}

BOOST_DATA_TEST_CASE_F(engine_fixture, what_must_not_reach_the_file_is_refused, boost::unit_test::data::make(kinds),
                       kind) {
  if (!start(kind)) return;
  page_memory memory(64 * KiB);
  const auto all = memory.all();
  for (const auto& wrong :
       {write_of(0, all), write_of(path_bytes, all), write_of(path_bytes - 4 * KiB, all), write_of(~4095ULL, all),
        write_of(data_at, {}), write_of(data_at + 512, all), write_of(data_at, all.subspan(512)),
        write_of(data_at, all.subspan(512, 4096)), read_of(path_bytes, all)}) {
    BOOST_TEST(run_one(wrong).error == EINVAL);
  }
  BOOST_TEST(std::filesystem::file_size(root / "path/data") == path_bytes);
}

BOOST_DATA_TEST_CASE_F(engine_fixture, stop_cancels_what_waits, boost::unit_test::data::make(kinds), kind) {
  if (!start(kind, 1)) return;
  constexpr std::size_t count = 4000;
  page_memory memory(256 * KiB);
  std::vector<io_request> reads;
  for (std::size_t i = 0; i < count; ++i) {
    reads.push_back(read_of(data_at + (i * 37 % 100) * 512 * KiB, memory.all(), i));
  }
  engine->submit(reads);
  engine->stop();
  std::map<std::uint64_t, int> ends;
  for (const auto& each : came.wait_for(count)) ends[each.tag] = each.error;
  BOOST_TEST(ends.size() == count);
  const auto cancelled = std::ranges::count_if(ends, [](const auto& each) { return each.second == ECANCELED; });
  const auto done = std::ranges::count_if(ends, [](const auto& each) { return each.second == 0; });
  BOOST_TEST(cancelled > 0);
  BOOST_TEST(static_cast<std::size_t>(cancelled + done) == count);
  engine->stop();         // again: nothing happens
  engine->submit(reads);  // nobody is there any more
  engine.reset();
  BOOST_TEST(came.wait_for(0).empty());
}

BOOST_DATA_TEST_CASE_F(engine_fixture, an_exception_ends_neither_the_engine_nor_a_request,
                       boost::unit_test::data::make(kinds), kind) {
  std::atomic<int> thrown = 0;
  std::atomic<int> heard = 0;
  auto made = make_engine(
      std::string(kind) == "threads" ? engine_kind::threads : engine_kind::io_uring, *file,
      {.queue_depth = 4, .on_exception = [&](const std::string& what) { heard += what == "no memory" ? 1 : 0; }},
      [&](std::span<const io_completion> batch) {
        if (thrown++ < 3) throw std::runtime_error("no memory");
        came.take(batch);
      });
  if (!made && made.error().code() == error_code::unsupported) {
    BOOST_TEST_MESSAGE(made.error().describe());
    return;
  }
  BOOST_REQUIRE(made.has_value());
  engine = std::move(*made);
  page_memory memory(40 * sector_bytes);
  std::vector<io_request> all;
  for (std::uint64_t i = 0; i < 40; ++i) {
    all.push_back(write_of(data_at + i * sector_bytes, memory.some(i * sector_bytes, sector_bytes), i));
  }
  const auto ended = run(all);
  for (const auto& [tag, each] : ended) BOOST_TEST(each.error == 0);
  BOOST_TEST(heard == 3);
  engine.reset();
}

BOOST_DATA_TEST_CASE_F(engine_fixture, a_stopped_engine_gives_the_path_up, boost::unit_test::data::make(kinds), kind) {
  if (!start(kind)) return;
  page_memory memory(64 * KiB);
  BOOST_TEST(run_one(write_of(data_at, memory.all())).error == 0);
  engine.reset();
  file.reset();
  const auto again =
      path_file::open({.directory = root / "path", .bytes = path_bytes, .holder = "test", .patience = 10s});
  BOOST_TEST(again.has_value());
}

BOOST_AUTO_TEST_CASE(memory_may_be_registered_or_not) {
  auto made = uring_engine::create(*file, {4}, [this](std::span<const io_completion> batch) { came.take(batch); });
  if (!made) return;  // the kernel does not allow it; the other cases say so
  uring_engine& ring = **made;
  engine = std::move(*made);
  page_memory memory(4 * MiB);
  memory.fill(5);
  const auto pinned = memory.some(MiB, 2 * MiB);
  const bool registered = ring.register_memory(pinned);
  BOOST_TEST_MESSAGE("registered: " << registered);
  if (registered) {
    BOOST_TEST(!ring.register_memory(memory.some(0, MiB + 4 * KiB)));  // they overlap
    BOOST_TEST(!ring.register_memory(memory.some(2 * MiB, 2 * MiB)));
  }
  BOOST_TEST(!ring.register_memory({}));
  BOOST_TEST(!ring.register_memory({memory.all().data(), uring_engine::most_registered + 1}));
  page_memory target(MiB);
  // Within, across the first edge, across the second, outside.
  for (const std::uint64_t at : {MiB, MiB - 8 * KiB, 3 * MiB - 8 * KiB, 3 * MiB}) {
    BOOST_TEST(run_one(write_of(data_at, memory.some(at, 512 * KiB))).error == 0);
    BOOST_TEST(run_one(read_of(data_at, target.some(0, 512 * KiB))).error == 0);
    BOOST_TEST(same(memory.some(at, 512 * KiB), target.some(0, 512 * KiB)));
  }
  BOOST_TEST(run_one(read_of(data_at, pinned.first(512 * KiB))).error == 0);
  BOOST_TEST(same(pinned.first(512 * KiB), target.some(0, 512 * KiB)));
  ring.unregister_memory(pinned);
  BOOST_TEST(run_one(read_of(data_at, pinned.last(512 * KiB))).error == 0);
  BOOST_TEST(same(pinned.last(512 * KiB), target.some(0, 512 * KiB)));
  BOOST_TEST(ring.registered_bytes() == 0U);
  // In two pieces, and gone with the memory that they are of.
  BOOST_TEST(ring.register_memory(pinned.first(MiB)) == registered);
  BOOST_TEST(ring.register_memory(pinned.last(MiB)) == registered);
  BOOST_TEST(ring.registered_bytes() == (registered ? 2 * MiB : 0));
  BOOST_TEST(run_one(read_of(data_at, pinned.subspan(MiB - 8 * KiB, 512 * KiB))).error == 0);  // across the two
  BOOST_TEST(same(pinned.subspan(MiB - 8 * KiB, 512 * KiB), target.some(0, 512 * KiB)));
  ring.unregister_memory(pinned.first(MiB));
  BOOST_TEST(ring.registered_bytes() == (registered ? MiB : 0));
  ring.unregister_memory(memory.all());
  BOOST_TEST(ring.registered_bytes() == 0U);
  ring.stop();
  BOOST_TEST(!ring.register_memory(memory.some(0, 4 * KiB)));
}

BOOST_AUTO_TEST_CASE(automatic_takes_what_works) {
  std::string refusal;
  auto made = make_engine(engine_kind::automatic, *file,
                          {.queue_depth = 4, .on_refusal = [&refusal](const error& why) { refusal = why.message(); }},
                          [this](std::span<const io_completion> batch) { came.take(batch); });
  BOOST_REQUIRE(made.has_value());
  engine = std::move(*made);
  BOOST_TEST_MESSAGE("automatic: " << engine->name() << " " << refusal);
  BOOST_TEST((engine->name() == "io_uring") == refusal.empty(), "threads are used for a reason that is told");
  page_memory memory(64 * KiB);
  BOOST_TEST(run_one(write_of(data_at, memory.all())).error == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme
