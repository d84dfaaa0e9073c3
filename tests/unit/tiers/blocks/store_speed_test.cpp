// How long a restart takes and what a block costs beside the pools: printed, not judged (the machine is shared).
#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_speed_test {

using namespace testing;

namespace {

double milliseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

std::uint64_t resident_bytes(const char* field) {
  std::ifstream in("/proc/self/status");
  std::string word;
  while (in >> word) {
    if (word != field) continue;
    std::uint64_t kib = 0;
    in >> kib;
    return kib * 1024;
  }
  return 0;
}

std::uint64_t allocated(const memory::shared_file& memory) {
  struct stat status {};
  return ::fstat(memory.fd().get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_blocks) * 512 : 0;
}

void measure(std::uint64_t blocks) {
  const std::uint64_t before = resident_bytes("RssAnon:");
  auto options = options_of(blocks * 4096 + blocks / 2048 * 4096, std::uint64_t{1} << 30);
  options.high_water = 1.0;
  node at(options);
  client writer(at, at.add(spec_of("one")));
  const auto start = std::chrono::steady_clock::now();
  std::vector<memory::submission> entries;
  for (std::uint64_t k = 0; k < blocks; ++k) {  // nothing is written: the store only touches records
    const auto got = writer.take();
    if (!got) {
      writer.ask(std::move(entries));
      entries.clear();
      if (writer.grant(1024) == 0) break;
      --k;
      continue;
    }
    entries.push_back(writer.commit_of(*got, key_of(k)));
  }
  writer.ask(std::move(entries));
  const double filled = milliseconds(start);
  const std::uint64_t present = at.present(writer.in);
  const std::uint64_t process = resident_bytes("RssAnon:") - before;
  const auto& kept = at.instances.at(writer.in);
  const double n = static_cast<double>(present);
  at.tier.reset();
  const std::clock_t processor = std::clock();
  const auto again = std::chrono::steady_clock::now();
  const std::uint64_t served = at.recover();
  BOOST_TEST(served == present);
  BOOST_TEST_MESSAGE(present << " blocks: stored in " << filled << " ms, served again after " << milliseconds(again)
                             << " ms (processor "
                             << static_cast<double>(std::clock() - processor) * 1e3 / CLOCKS_PER_SEC
                             << " ms); bytes a block: process " << static_cast<double>(process) / n << ", index "
                             << static_cast<double>(allocated(kept.index.file)) / n << ", versions "
                             << static_cast<double>(allocated(kept.versions.file())) / n << ", record 112");
  BOOST_TEST((writer.pin(key_of(present / 2)).has_value()));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(store_speed)

BOOST_AUTO_TEST_CASE(a_million_blocks_are_served_again) {
  measure(1'000'000);
}

BOOST_AUTO_TEST_CASE(four_million_blocks_are_served_again) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;
#endif
  if (std::getenv("CENOTE_TEST_FULL") == nullptr) return;
  measure(4'000'000);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_speed_test
