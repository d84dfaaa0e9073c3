// Allocations of the store, for each batch of a session.
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/support/allocations.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_counts_test {

using namespace testing;

namespace {

constexpr std::size_t batch_blocks = 64;
constexpr std::size_t batches = 64;

/// A store with room for some thousand blocks, and a session that has been at work for a while.
struct busy_store {
  explicit busy_store(const std::string& policy)
      : fixture(with_policy(policy)), user(fixture, fixture.add(spec_of("one"))) {
    for (std::size_t each = 0; each < 3 * batches; ++each) commit(next_batch());
  }

  static store_options with_policy(const std::string& policy) {
    store_options options = options_of(std::uint64_t{32} << 20, std::uint64_t{4} << 20);  // half of what is committed
    options.policy = policy;
    return options;
  }

  batch batch_of(std::vector<memory::submission> entries) const {
    for (std::uint32_t i = 0; i < entries.size(); ++i) entries[i].index = i;
    entries.back().flags |= memory::submission::flag_last;
    batch work;
    work.session = user.number;
    work.entries = std::move(entries);
    return work;
  }

  /// The commits of the next keys, whose blocks were granted.
  batch next_batch() {
    std::vector<memory::submission> entries;
    while (entries.size() < batch_blocks) {
      const auto blank = user.obtain();
      BOOST_REQUIRE(blank.has_value());
      entries.push_back(user.commit_of(*blank, key_of(next_key++, 32)));
    }
    return batch_of(std::move(entries));
  }

  batch touches_of(std::uint64_t first_key) const {
    std::vector<memory::submission> entries;
    for (std::uint64_t key = first_key; key < first_key + batch_blocks; key += memory::touch_runs::capacity) {
      memory::submission entry;
      entry.op = memory::operation::touch;
      for (std::size_t run = 0; run < memory::touch_runs::capacity; ++run) {
        const auto found = fixture.index(user.in).find(reduce_key(key_of(key + run, 32).view(), 0));
        const std::uint64_t word = memory::touch_runs::make(memory::index_value::ref(found), 1);
        std::memcpy(entry.key + run * sizeof word, &word, sizeof word);
      }
      entry.key_size = static_cast<std::uint8_t>(memory::touch_runs::capacity * sizeof(std::uint64_t));
      entries.push_back(entry);
    }
    return batch_of(std::move(entries));
  }

  /// The number of allocations that the store makes for it.
  std::uint64_t commit(batch work) { return run(work); }
  std::uint64_t run(batch& work) {
    auto outcome = progress::more;
    std::uint64_t calls = 0;
    do {
      calls += test::allocations_during([&] { outcome = fixture.tier->run(work, fixture.now); }).calls;
    } while (outcome == progress::waits_for_memory && fixture.pump());
    BOOST_REQUIRE(outcome == progress::finished);
    BOOST_REQUIRE((work.completions.empty() || work.completions.back().code == 0));
    return calls;
  }

  node fixture;
  client user;
  std::uint64_t next_key = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(store_counts)

BOOST_AUTO_TEST_CASE(commits_that_evict_allocate_no_more_than_they_did) {
  for (const auto& [policy, most] : {std::pair("lru", std::size_t{136}), std::pair("auto", 12U * batches)}) {
    busy_store store(policy);
    std::uint64_t calls = 0;
    for (std::size_t each = 0; each < batches; ++each) calls += store.commit(store.next_batch());
    BOOST_TEST(calls <= most, policy << ": " << calls);
  }
}

BOOST_AUTO_TEST_CASE(touches_of_a_chain_allocate_no_more_than_they_did) {
  for (const auto& [policy, most] : {std::pair("lru", std::size_t{79}), std::pair("auto", 4U * batches)}) {
    busy_store store(policy);
    std::uint64_t calls = 0;
    for (std::size_t each = 0; each < batches; ++each) {
      batch work = store.touches_of(store.next_key - batch_blocks);
      calls += store.run(work);
    }
    BOOST_TEST(calls <= most, policy << ": " << calls);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_counts_test
