// A store whose slabs lie on a device: it must not touch one byte of them. Here a touch is the end of the program.
#include <boost/test/unit_test.hpp>

#include <random>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::device_slabs_test {

using namespace testing;

namespace {

store_options on_device(std::uint64_t capacity) {
  store_options options = options_of(capacity, 1 << 20);
  options.bytes_are_host = false;
  options.checksum_at_commit = true;  // of bytes that it cannot read
  options.edges = {
      edge_options{.ingest = ingest::all, .write_window = 1 << 20, .read_window = 1 << 20, .hinted = false}};
  return options;
}

struct fixture {
  node at{on_device(4 << 20)};
  instance_number one = at.add(spec_of("one"));
  client writer{at, one};

  /// Ends all that is on its way down.
  void take_all() {
    for (auto sent = at.tier->take_demotions(); !sent.empty(); sent = at.tier->take_demotions()) {
      std::vector<transfer_outcome> outcomes;
      for (const transfer& each : sent) outcomes.push_back({each.token, transfer_result::done});
      at.tier->transferred(outcomes, at.now);
    }
  }
  [[nodiscard]] std::uint64_t readable(client& by, std::uint64_t first, std::uint64_t end) const {
    std::uint64_t right = 0;
    for (std::uint64_t key = first; key < end; ++key) right += by.read(key_of(key)) == look::right ? 1 : 0;
    return right;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(device_slabs, fixture)

BOOST_AUTO_TEST_CASE(blocks_are_stored_read_and_evicted_without_a_look_at_their_bytes) {
  for (std::uint64_t key = 0; key < 3000; ++key) {
    BOOST_TEST(writer.put(key_of(key)).value == 1U);
    take_all();
  }
  BOOST_TEST(at.status().counters.evicted > 0U);
  BOOST_TEST(readable(writer, 2900, 3000) == 100U);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(a_slab_goes_to_another_instance_and_its_blocks_are_evicted_not_moved) {
  for (std::uint64_t key = 0; key < 900; ++key) {
    writer.put(key_of(key));
    take_all();
  }
  client other(at, at.add(spec_of("two")));
  for (std::uint64_t key = 0; key < 900; ++key) {
    BOOST_TEST(other.put(key_of(key)).value == 1U);
    take_all();
  }
  BOOST_TEST(at.status().counters.slabs_moved > 0U);
  BOOST_TEST(at.status().counters.moved == 0U);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(another_worker_takes_the_blocks_over) {
  for (std::uint64_t key = 0; key < 200; ++key) writer.put(key_of(key));
  BOOST_TEST(at.restart() == 200U);
  BOOST_TEST(readable(writer, 0, 200) == 200U);
}

BOOST_AUTO_TEST_CASE(what_comes_up_is_served_when_the_transfer_says_so) {
  const auto loading = at.tier->load(one, 0, key_of(7), at.now);
  BOOST_TEST((loading.state == prefetch::load_state::loading));
  const auto asked = at.tier->take_loads();
  BOOST_REQUIRE(asked.size() == 1U);
  BOOST_TEST((writer.read(key_of(7)) == look::miss));
  at.tier->transferred(std::vector<transfer_outcome>{{asked[0].token, transfer_result::done}}, at.now);
  BOOST_TEST(at.tier->is_present(one, 0, key_of(7)));
}

BOOST_AUTO_TEST_CASE(nothing_is_altered_for_tests_of_engines) {
  writer.put(key_of(1));
  std::vector<removal> below;
  BOOST_TEST(at.tier->corrupt_all(below) == 0U);
  BOOST_TEST(below.empty());
}

BOOST_AUTO_TEST_CASE(keys_that_the_tier_below_removed_go_without_a_word_to_it) {
  for (std::uint64_t key = 0; key < 4; ++key) writer.put(key_of(key));
  take_all();
  const std::vector<block_key> gone{reduce_key(key_of(1).view(), 0), reduce_key(key_of(1).view(), 0),
                                    reduce_key(key_of(9).view(), 0)};
  BOOST_TEST(at.tier->forget_keys(one, gone, at.now) == 1U);
  BOOST_TEST((writer.read(key_of(1)) == look::miss));
  BOOST_TEST(readable(writer, 0, 4) == 3U);
  BOOST_TEST(at.tier->forget_keys(99, gone, at.now) == 0U);
}

BOOST_AUTO_TEST_CASE(what_is_on_its_way_up_does_not_come_when_its_key_was_removed_below) {
  static_cast<void>(at.tier->load(one, 0, key_of(7), at.now));
  const auto asked = at.tier->take_loads();
  BOOST_REQUIRE(asked.size() == 1U);
  at.tier->forget_keys(one, std::vector<block_key>{asked[0].key}, at.now);
  at.tier->transferred(std::vector<transfer_outcome>{{asked[0].token, transfer_result::done}}, at.now);
  BOOST_TEST(!at.tier->is_present(one, 0, key_of(7)));
}

BOOST_AUTO_TEST_CASE(an_instance_is_cleared_by_its_number) {
  for (std::uint64_t key = 0; key < 4; ++key) writer.put(key_of(key));
  auto work = at.tier->begin_clear(one);
  BOOST_REQUIRE(work.has_value());
  while (!at.tier->clear_some(*work, at.now, no_budget)) continue;
  BOOST_TEST(work->cleared == 4U);
  BOOST_TEST(at.present(one) == 0U);
  BOOST_TEST(!at.tier->begin_clear(instance_number{99}).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::device_slabs_test
