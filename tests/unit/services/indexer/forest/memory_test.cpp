#include <boost/test/unit_test.hpp>
#include <memory>
#include <random>

#include "tests/support/allocations.hpp"
#include "tests/unit/services/indexer/forest/forest_world.hpp"

namespace cenote::indexer::test {

namespace {

void use_in_all_ways(forest& index, std::size_t rounds) {
  std::mt19937_64 random(3);
  for (std::size_t i = 0; i < rounds; ++i) {
    const holder who = *index.holders().open(
        {.pod = "pod" + std::to_string(random() % 50), .kind = kind_of(0, static_cast<medium_number>(random() % 3))});
    const numbers keys = chain(random() % 300, 1 + random() % 200);
    const auto domain = static_cast<name_domain>(random() % 3);
    const numbers names = names_of(keys, domain);
    if (random() % 3 != 0) {
      (void)index.store(domain, no_block, keys, names, who);
    } else {
      (void)index.remove(domain, std::span(names).subspan(random() % names.size()), who);
    }
    if (random() % 100 == 0) index.clear(who);
    if (random() % 10 == 0) (void)index.sweep(random() % 100);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(forest_memory)

BOOST_AUTO_TEST_CASE(the_bytes_in_use_are_those_that_were_allocated) {
  for (const std::size_t memory : {std::size_t{2} << 20, std::size_t{24} << 20}) {
    const std::int64_t before = cenote::test::allocations().live_bytes;
    {
      forest index({.memory = memory, .members = 256, .seed = 1});
      for (int i = 0; i < 20; ++i) {
        use_in_all_ways(index, 300);
        const std::int64_t allocated = cenote::test::allocations().live_bytes - before;
        BOOST_REQUIRE(static_cast<std::int64_t>(index.bytes()) == allocated);
        BOOST_REQUIRE(index.bytes() <= memory);
      }
    }
    BOOST_TEST(cenote::test::allocations().live_bytes == before);
  }
}

BOOST_AUTO_TEST_CASE(a_block_of_long_chains_takes_at_most_28_bytes) {
  constexpr std::size_t blocks = 300'000;
  forest index({.memory = std::size_t{64} << 20, .members = 256, .seed = 1});
  const std::size_t empty = index.bytes();
  for (std::size_t i = 0; i < blocks / 1000; ++i) {
    const holder who = *index.holders().open({.pod = "pod" + std::to_string(i % 100)});
    const numbers keys = chain(i * 1000, 1000);
    const numbers names = names_of(keys);
    block_number parent = no_block;
    for (std::size_t at = 0; at < 1000; at += 50) {
      BOOST_REQUIRE(index.store(0, parent, std::span(keys).subspan(at, 50), std::span(names).subspan(at, 50), who));
      parent = index.block_of(0, names[at + 49]);
    }
  }
  index.reclaim();
  BOOST_TEST(index.bytes() - empty <= blocks * 28);
}

BOOST_AUTO_TEST_CASE(less_memory_than_the_least_is_refused) {
  BOOST_CHECK_THROW(std::make_unique<forest>(forest_options{.memory = forest::least_memory - 1}), std::bad_alloc);
}

BOOST_AUTO_TEST_CASE(an_allocation_that_fails_is_taken_as_a_full_budget) {
  world w;
  const holder a = w.open("a");
  const numbers keys = chain(1, 100);
  w.store(keys, a);
  cenote::test::set_allocation_fault([]() noexcept { return true; });
  std::size_t stored = 0;
  for (std::uint64_t i = 2; i < 2000; ++i) {
    std::array<std::uint64_t, 4> more{mixed(i, 0), mixed(i, 1), mixed(i, 2), mixed(i, 3)};
    stored += w.index.store(0, no_block, more, more, a).value_or(0);
  }
  cenote::test::set_allocation_fault(nullptr);
  BOOST_TEST(stored < 4U * 1998);
  BOOST_TEST(w.index.figures().refused > 0U);
  const numbers other = chain(77, 100);
  BOOST_TEST(w.store(other, a) == 100U);
  BOOST_TEST(blocks_of(w.reader, other, "a") == 100U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer::test
