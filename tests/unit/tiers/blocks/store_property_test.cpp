// Whatever clients do, the books balance and no wrong byte is read.
#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/random_work.hpp"

namespace cenote::blocks::store_property_test {

using namespace testing;

namespace {

constexpr std::uint64_t slab_bytes = 16 * 8192;

/// Three instances, two of one group with a quota; four sessions; less memory than keys.
struct crowd {
  explicit crowd(std::uint64_t seed, bool checksum = false) : at(options(checksum)), work(at, seed, 300) {
    const auto a = at.add(spec_of("a", 8192, 2, "team"));
    const auto b = at.add(spec_of("b", 4096, 1, "team"));
    const auto c = at.add(spec_of("c", 8192, 1));
    for (const instance_number in : {a, a, b, c}) work.add_client(in);
  }
  static store_options options(bool checksum) {
    auto options = options_of(8 * (slab_bytes + 4096), slab_bytes);
    options.groups = {{"team", {.quota = 90 * 8192}}};
    options.reserve_timeout = tenths(50);
    options.checksum_at_commit = checksum;
    return options;
  }
  node at;
  random_work work;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(store_property)

BOOST_AUTO_TEST_CASE(random_operations_keep_the_books_balanced_and_read_no_wrong_byte) {
  for (const std::uint64_t seed : {1, 2}) {
    crowd each(seed, seed == 2);
    for (int step = 0; step < 20'000; ++step) {
      if (const auto wrong = each.work.step(); !wrong.empty())
        BOOST_FAIL("seed " << seed << " step " << step << ": " << wrong);
      if (step % 4 != 0) continue;
      if (const auto broken = each.at.broken_identity(); !broken.empty()) {
        BOOST_FAIL("seed " << seed << " step " << step << ": " << broken);
      }
    }
    BOOST_TEST(each.work.read_all() > 0);
    const auto counters = each.at.status().counters;
    BOOST_TEST_MESSAGE("commits " << counters.commits << ", duplicates " << counters.duplicates << ", evicted "
                                  << counters.evicted << ", moved " << counters.moved << ", slabs moved "
                                  << counters.slabs_moved << ", pinned victims " << counters.pinned_victims
                                  << ", no space " << counters.no_space << ", revoked reservations "
                                  << counters.revoked_reservations);
    BOOST_TEST(counters.commits > 1000U);
    BOOST_TEST(counters.evicted > 100U);
    BOOST_TEST(counters.slabs_moved > 0U);
  }
}

BOOST_AUTO_TEST_CASE(random_operations_with_restarts_in_between_lose_nothing) {
  for (std::uint64_t seed = 10; seed < 14; ++seed) {
    crowd each(seed);
    for (int step = 0; step < 4'000; ++step) {
      if (const auto wrong = each.work.step(); !wrong.empty())
        BOOST_FAIL("seed " << seed << " step " << step << ": " << wrong);
      if (step % 97 != 0) continue;
      const std::uint64_t present = each.at.status().present;
      const std::int64_t hits = each.work.read_all();
      BOOST_REQUIRE(hits >= 0);
      BOOST_REQUIRE(each.at.restart() == present);
      BOOST_REQUIRE(each.work.read_all() == hits);
      if (const auto broken = each.at.broken_identity(); !broken.empty()) {
        BOOST_FAIL("seed " << seed << " step " << step << " after the restart: " << broken);
      }
      if (const auto wrong = each.work.after_restart(); !wrong.empty()) BOOST_FAIL("seed " << seed << ": " << wrong);
      const auto all = each.at.status();
      BOOST_REQUIRE(all.pending == 0U);
      BOOST_REQUIRE(all.quarantined == 0U);
      if (const auto broken = each.at.broken_identity(); !broken.empty()) BOOST_FAIL("after reattaching: " << broken);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_property_test
