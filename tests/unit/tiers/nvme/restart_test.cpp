// MEMORY.md, "Disk I/O and restarts": what a killed worker's reads do to memory that is used again.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/units.hpp"
#include "memory/segment.hpp"
#include "tests/unit/tiers/nvme/temporary_directory.hpp"
#include "tiers/nvme/make_engine.hpp"

namespace cenote::nvme::restart_test {

namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t block = 2 * MiB;
constexpr std::size_t reads = 64;
constexpr std::uint64_t memory_bytes = reads * block;
constexpr auto written_before = std::byte{0x11};  // what is on the disk
constexpr auto written_after = std::byte{0x22};   // what the next worker puts there

int kills() {
  return std::getenv("CENOTE_TEST_FULL") != nullptr ? 50 : 5;
}

path_options options_for(const std::string& directory) {
  return {.directory = directory, .bytes = path_file::data_offset + memory_bytes, .holder = "a node", .patience = 60s};
}

/// Fills the path with blocks.
void write_store(const path_options& options, const memory::segment& memory) {
  const auto file = path_file::open(options);
  BOOST_REQUIRE(file.has_value());
  std::memset(memory.data(), static_cast<int>(written_before), memory_bytes);
  std::array<int, 2> ends{};
  BOOST_REQUIRE(::pipe(ends.data()) == 0);
  auto engine = make_engine(engine_kind::automatic, *file, {}, [&](std::span<const io_completion> done) {
    for (const io_completion& each : done) {
      const char said = each.error == 0 ? 'y' : 'n';
      if (::write(ends[1], &said, 1) != 1) std::abort();
    }
  });
  BOOST_REQUIRE(engine.has_value());
  for (std::size_t i = 0; i < reads; ++i) {
    const io_request write{io_kind::write, path_file::data_offset + i * block, {memory.data() + i * block, block}, i};
    (*engine)->submit({&write, 1});
  }
  for (std::size_t i = 0; i < reads; ++i) {
    char said = 'n';
    BOOST_REQUIRE(::read(ends[0], &said, 1) == 1);
    BOOST_REQUIRE(said == 'y');
  }
  (*engine)->stop();
  ::close(ends[0]);
  ::close(ends[1]);
}

/// A worker that has submitted all reads when it is killed. Returns when waitpid() did: it is gone, its reads are not.
void kill_a_reading_worker(const path_options& options, const memory::segment& memory) {
  std::array<int, 2> ends{};
  BOOST_REQUIRE(::pipe(ends.data()) == 0);
  const pid_t pid = ::fork();
  BOOST_REQUIRE(pid >= 0);
  if (pid == 0) {
    const auto file = path_file::open(options);
    if (!file) ::_exit(1);
    const auto engine = make_engine(engine_kind::automatic, *file, {.queue_depth = reads},
                                    [&](std::span<const io_completion>) {  // the first has come: all are at the device
                                      if (::write(ends[1], "y", 1) != 1) ::_exit(1);
                                    });
    if (!engine) ::_exit(1);
    std::vector<io_request> batch;
    for (std::size_t i = 0; i < reads; ++i) {
      batch.push_back(
          {io_kind::read, path_file::data_offset + i * block, {memory.data() + i * block, block}, i, false});
    }
    (*engine)->submit(batch);
    while (true) ::pause();
  }
  char said = 'n';
  BOOST_REQUIRE(::read(ends[0], &said, 1) == 1);
  ::kill(pid, SIGKILL);
  BOOST_REQUIRE(::waitpid(pid, nullptr, 0) == pid);
  ::close(ends[0]);
  ::close(ends[1]);
}

std::uint64_t overwritten_sectors(const memory::segment& memory) {
  std::uint64_t count = 0;
  for (std::uint64_t at = 0; at < memory_bytes; at += sector_bytes) {
    const auto* sector = memory.data() + at;
    count += std::any_of(sector, sector + sector_bytes, [](std::byte each) { return each != written_after; }) ? 1U : 0U;
  }
  return count;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nvme_restart)

BOOST_AUTO_TEST_CASE(memory_that_waits_for_the_lock_of_the_path_is_hit_by_no_read_of_a_dead_worker) {
  const temporary_directory place;
  const path_options options = options_for(place / "path");
  auto memory = memory::segment::create("test-slab", memory_bytes);
  BOOST_REQUIRE(memory.has_value());
  write_store(options, *memory);
  std::uint64_t hit_without = 0;
  for (int kill = 0; kill < kills(); ++kill) {
    // Without the rule, only to say what it is for: a disk may be too fast to be caught.
    kill_a_reading_worker(options, *memory);
    std::memset(memory->data(), static_cast<int>(written_after), memory_bytes);
    BOOST_REQUIRE(path_file::open(options).has_value());
    hit_without += overwritten_sectors(*memory);

    kill_a_reading_worker(options, *memory);
    const auto file = path_file::open(options);
    BOOST_REQUIRE(file.has_value());
    std::memset(memory->data(), static_cast<int>(written_after), memory_bytes);
    BOOST_TEST(overwritten_sectors(*memory) == 0U);
  }
  const std::uint64_t all = static_cast<std::uint64_t>(kills()) * memory_bytes / sector_bytes;
  BOOST_TEST_MESSAGE("sectors overwritten without the rule: " << 100 * hit_without / all << " %, with it: 0 %");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme::restart_test
