// Bytes of a block beside its slab, counted; tests/bench/memory_per_block.py measures the same of a whole node.
#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <string>
#include <utility>
#include <vector>

#include "memory/block_record.hpp"
#include "tests/support/allocations.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_memory_test {

using namespace testing;

namespace {

constexpr std::uint64_t blocks = 1'000'000 / 8;  // tables double: the ratio is that of a million
constexpr std::uint64_t block_bytes = 4096;

/// Bytes a block.
struct costs {
  double index = 0;
  double versions = 0;
  double records = sizeof(memory::block_record);
  double heap = 0;

  [[nodiscard]] double all() const { return index + versions + records + heap; }
};

double allocated(const memory::shared_file& memory) {
  struct stat status {};
  return ::fstat(memory.fd().get(), &status) == 0 ? static_cast<double>(status.st_blocks) * 512 : 0;
}

/// Commits `count` blocks without writing them.
void fill(client& writer, std::uint64_t count) {
  std::vector<memory::submission> entries;
  for (std::uint64_t key = 0; key < count;) {
    if (const auto blank = writer.take()) {
      entries.push_back(writer.commit_of(*blank, key_of(key++, 32)));
      continue;
    }
    writer.ask(std::move(entries));
    entries.clear();
    BOOST_REQUIRE(writer.grant(memory::session_memory::grants) > 0);
  }
  writer.ask(std::move(entries));
}

costs costs_with(const std::string& policy) {
  store_options options = options_of(blocks * block_bytes / 8 * 9);
  options.policy = policy;
  node at(options);
  client writer(at, at.add(spec_of("one", block_bytes)));
  const auto heap = test::allocations_during([&] { fill(writer, blocks); }).live_bytes;
  BOOST_REQUIRE(at.present(writer.in) == blocks);
  const auto& instance = at.instances.at(writer.in);
  costs found;
  found.index = allocated(instance.index.file) / blocks;
  found.versions = allocated(instance.versions.file()) / blocks;
  found.heap = static_cast<double>(heap) / blocks;
  return found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(store_memory)

/// Counted bounds, a little above what is there; the heap's are of capacities, also where no page is touched yet.
BOOST_AUTO_TEST_CASE(a_block_takes_no_more_bytes_beside_its_slab_than_it_did) {
  for (const auto& [policy, heap] : {std::pair("lru", 11.5), std::pair("auto", 18.5)}) {
    const costs found = costs_with(policy);
    BOOST_TEST_MESSAGE(policy << ": index " << found.index << ", versions " << found.versions << ", heap " << found.heap
                              << ", all " << found.all());
    BOOST_TEST(found.index <= 38.5);
    BOOST_TEST(found.versions <= 64.2);
    BOOST_TEST(found.records <= 112.0);
    BOOST_TEST(found.heap <= heap, policy << ": " << found.heap);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_memory_test
