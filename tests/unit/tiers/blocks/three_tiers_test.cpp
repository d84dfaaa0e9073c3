// A store of blocks over NVMe over memory: each hit is one tier's.
#include <boost/test/unit_test.hpp>
#include <random>
#include <set>

#include "tests/unit/tiers/blocks/lower_subjects.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::three_tiers_test {

using namespace testing;
using prefetch::load_state;

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t block = 64 << 10;

store_options with_two_below() {
  store_options options = options_of(4 * mib, mib);
  options.high_water = 0.9;
  options.low_water = 0.8;
  options.edges.push_back({.ingest = ingest::all, .write_window = 16 * mib, .read_window = 16 * mib});
  options.edges.push_back({.ingest = ingest::all, .write_window = 16 * mib, .read_window = 16 * mib, .hinted = false});
  return options;
}

/// Replays requests: a block is read where it is, or computed and stored.
struct replay {
  replay() {
    auto bindings = at.tier->take_bindings();
    BOOST_REQUIRE(bindings.size() == 1U);
    nvme = std::make_unique<nvme_subject>(8 * mib,
                                          std::move(*memory::hint_writer::open(std::move(bindings[0].index), 10'000)));
  }

  std::array<lower_subject*, 2> below() { return {nvme.get(), &far}; }
  /// Until nobody has anything to do.
  void settle() {
    for (bool more = true; more;) {
      more = at.pump() || at.tier->evict_ahead(at.now);
      for (edge_number edge = 0; edge < 2; ++edge) {
        lower_subject& tier = *below()[edge];
        tier.write(at.tier->take_demotions(edge));
        tier.read(at.tier->take_loads(edge));
        const auto ended = tier.settle();
        more |= !ended.empty();
        at.tier->transferred(ended, at.now);
        at.tier->forget_copies(tier.take_lost(), edge);
      }
    }
  }
  /// Which tier had it: 0 this one, 1 and 2 those below; 3 none.
  std::size_t request(std::uint64_t n) {
    ++at.now;
    if (at.tier->is_present(in, 0, key_of(n))) return 0;
    const std::array before{nvme->filled(), far.filled()};
    while (at.tier->load(in, 0, key_of(n), at.now).state == load_state::wait) settle();
    settle();
    if (at.tier->is_present(in, 0, key_of(n))) return nvme->filled() > before[0] ? 1 : 2;
    BOOST_TEST(a.put(key_of(n)).value == 1U);
    settle();
    return 3;
  }

  node at{with_two_below()};
  instance_number in = at.add(spec_of("one", block));
  client a{at, in};
  std::unique_ptr<nvme_subject> nvme;
  memory_subject far;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(three_tiers)

BOOST_AUTO_TEST_CASE(hits_are_exclusive_sums_over_the_tiers_and_no_byte_is_wrong) {
  replay test;
  std::mt19937_64 random(7);
  std::array<std::uint64_t, 4> hits{};
  std::set<std::uint64_t> seen;
  constexpr std::uint64_t requests = 1200;
  constexpr std::uint64_t keys = 300;  // this tier has room for some 60, and NVMe for some 120
  for (std::uint64_t i = 0; i < requests; ++i) {
    const std::uint64_t n = std::min(random() % keys, random() % keys);
    const std::size_t where = test.request(n);
    ++hits[where];
    BOOST_TEST((where == 3) == seen.insert(n).second);  // what was stored once is somewhere for ever
    const auto looked = test.a.read(key_of(n));
    BOOST_TEST((looked == look::right));
  }
  BOOST_TEST(hits[0] + hits[1] + hits[2] + hits[3] == requests);
  BOOST_TEST(hits[1] == test.nvme->filled());
  BOOST_TEST(hits[2] == test.far.filled());
  BOOST_TEST(hits[1] + hits[2] == test.at.status().counters.promoted);
  BOOST_TEST(hits[3] == seen.size());
  BOOST_TEST(hits[0] > 0U);
  BOOST_TEST(hits[1] > 0U);
  BOOST_TEST(hits[2] > 0U);
  BOOST_TEST(test.at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(a_copy_that_is_gone_counts_for_its_tier_alone) {
  replay test;
  BOOST_TEST(test.request(1) == 3U);
  const block_key key = reduce_key(key_of(1).view(), 0);
  const auto flags = [&] {
    const auto ref = memory::index_value::ref(test.at.index(test.in).find(key));
    return test.at.record(test.in, ref).flags & memory::block_record::flags_below;
  };
  BOOST_TEST(flags() == (memory::block_record::flag_of(0) | memory::block_record::flag_of(1)));  // written through
  const lost_block gone{test.in, key};
  test.at.tier->forget_copies(std::span(&gone, 1), 0);
  BOOST_TEST(flags() == memory::block_record::flag_of(1));
  test.at.tier->forget_copies(std::span(&gone, 1), 1);
  BOOST_TEST(flags() == 0);
}

BOOST_AUTO_TEST_CASE(memory_that_one_tier_was_filling_is_freed_when_that_tier_says_that_nothing_can_land) {
  replay test;
  BOOST_TEST(test.request(1) == 3U);
  test.at.tier->set_water_marks(0.0, 0.0);
  ++test.at.now;
  test.settle();
  test.at.tier->set_water_marks(0.9, 0.8);
  BOOST_TEST(!test.at.tier->is_present(test.in, 0, key_of(1)));
  BOOST_TEST((test.at.tier->load(test.in, 0, key_of(1), test.at.now).state == load_state::loading));
  (void)test.at.tier->take_loads(0);
  const bool from_second = !test.at.tier->take_loads(1).empty();
  test.at.restart();
  BOOST_TEST(test.at.status().loading == 1U);
  test.at.tier->release_loading(from_second ? 0 : 1);
  BOOST_TEST(test.at.status().loading == 1U);  // the other one may still fill it
  test.at.tier->release_loading(from_second ? 1 : 0);
  BOOST_TEST(test.at.status().loading == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::three_tiers_test
