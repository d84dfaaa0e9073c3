// A store of blocks over two tiers, which the tests play by hand: the first has hints and takes what leaves, the second
// has none and takes all.
#include "tiers/blocks/lower_edges.hpp"

#include <array>
#include <boost/test/unit_test.hpp>

#include "memory/lower_hints.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::lower_edges_test {

using namespace testing;
using memory::block_record;
using prefetch::load_state;

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t block = 64 << 10;
constexpr edge_number near = 0;
constexpr edge_number far = 1;

store_options with_two_below(std::uint64_t near_window) {
  store_options options = options_of(4 * mib, mib);
  options.high_water = 1.0;
  options.low_water = 1.0;
  options.edges.push_back({.ingest = ingest::evicted, .write_window = near_window, .read_window = 16 * mib});
  options.edges.push_back({.ingest = ingest::all, .write_window = 16 * mib, .read_window = 16 * mib, .hinted = false});
  return options;
}

struct world {
  explicit world(std::uint64_t near_window = 16 * mib) : at(with_two_below(near_window)) {
    auto bindings = at.tier->take_bindings();
    BOOST_REQUIRE(bindings.size() == 1U);
    hints = std::move(*memory::hint_writer::open(std::move(bindings[0].index), 10'000));
  }
  ~world() { BOOST_TEST(at.broken_identity() == ""); }

  std::vector<std::uint64_t> answer(std::span<const transfer> transfers, transfer_result what) {
    std::vector<transfer_outcome> outcomes;
    for (const transfer& each : transfers) outcomes.push_back({each.token, what});
    return at.tier->transferred(outcomes, at.now);
  }
  /// Stores a block, and has the second tier take it.
  void put(std::uint64_t n) {
    BOOST_TEST(a.put(key_of(n)).value == 1U);
    const auto down = at.tier->take_demotions(far);
    BOOST_REQUIRE(down.size() == 1U);
    answer(down, transfer_result::done);
  }
  /// Everything shall go. Returns what is written to the first tier for that.
  std::vector<transfer> leave() {
    ++at.now;
    at.tier->set_water_marks(0.0, 0.0);
    while (at.tier->evict_ahead(at.now)) continue;
    at.tier->set_water_marks(1.0, 1.0);
    BOOST_TEST(at.tier->take_demotions(far).empty());
    return at.tier->take_demotions(near);
  }
  /// As leave(), but what is clean may stay.
  std::vector<transfer> clean() {
    ++at.now;
    at.tier->set_water_marks(0.99, 0.0);
    while (at.tier->evict_ahead(at.now)) continue;
    at.tier->set_water_marks(1.0, 1.0);
    return at.tier->take_demotions(near);
  }
  void lose(edge_number copy, std::uint64_t n) {
    const lost_block gone{in, reduce_key(key_of(n).view(), 0)};
    at.tier->forget_copies(std::span(&gone, 1), copy);
  }
  /// Asks for a block that both tiers seem to have; what the first one is asked for.
  transfer ask_first(std::uint64_t n) {
    hints.add(reduce_key(key_of(n).view(), 0));
    BOOST_TEST((at.tier->load(in, 0, key_of(n), at.now).state == load_state::loading));
    const auto asked = at.tier->take_loads(near);
    BOOST_REQUIRE(asked.size() == 1U);
    BOOST_TEST(at.tier->take_loads(far).empty());
    return asked.front();
  }
  /// As the planner asks for a block that it heard is in that tier.
  prefetch::load_answer load_from(edge_number from, std::uint64_t n) {
    const auto keys = std::make_shared<const std::vector<full_key>>(1, key_of(n));
    const prefetch::command asked{.job = 1, .instance = in, .keys = keys, .edge = from, .which = {0}};
    return at.tier->execute(asked, at.now).loads.at(0);
  }
  bool present(std::uint64_t n) { return at.tier->is_present(in, 0, key_of(n)); }
  store_counters counters() { return at.status().counters; }

  node at;
  instance_number in = at.add(spec_of("one", block));
  client a{at, in};
  memory::hint_writer hints;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(lower_edges_suite, world)

// ---- down

BOOST_AUTO_TEST_CASE(a_block_that_only_a_further_tier_has_is_written_to_the_nearer_one_and_then_leaves_without_io) {
  put(1);
  const auto down = leave();
  BOOST_REQUIRE(down.size() == 1U);
  answer(down, transfer_result::done);
  BOOST_TEST(present(1));
  BOOST_TEST(leave().empty());
  BOOST_TEST(!present(1));
  BOOST_TEST(counters().demotions_dropped == 0U);
  BOOST_TEST(counters().demoted == 2U);
}

BOOST_AUTO_TEST_CASE(a_block_that_a_further_tier_has_does_not_wait_for_a_nearer_one_whose_window_is_full) {
  world narrow(block);
  narrow.put(1);
  narrow.put(2);
  const auto down = narrow.clean();
  BOOST_TEST(down.size() == 1U);
  BOOST_TEST(narrow.leave().empty());
  BOOST_TEST(!narrow.present(2));
  narrow.answer(down, transfer_result::done);
  BOOST_TEST(narrow.counters().demotions_dropped == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_that_a_further_tier_has_leaves_without_io_while_the_nearer_one_is_away) {
  put(1);
  at.tier->set_standing(near, false);
  BOOST_TEST(leave().empty());
  BOOST_TEST(!present(1));
  BOOST_TEST(counters().demotions_dropped == 0U);
}

BOOST_AUTO_TEST_CASE(a_copy_of_a_block_that_another_node_has_leaves_without_io) {
  world test;
  BOOST_TEST(test.a.put(key_of(1)).value == 1U);
  const auto down = test.at.tier->take_demotions(far);
  BOOST_REQUIRE(down.size() == 1U);
  test.at.tier->transferred(std::array{transfer_outcome{down[0].token, transfer_result::done, true}}, test.at.now);
  BOOST_TEST(test.at.status().copy_bytes == block);
  BOOST_TEST(test.leave().empty());
  BOOST_TEST(test.at.status().present == 0U);
  BOOST_TEST(test.at.status().copy_bytes == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_that_no_tier_has_is_written_to_the_one_that_takes_what_leaves) {
  BOOST_TEST(a.put(key_of(1)).value == 1U);
  answer(at.tier->take_demotions(far), transfer_result::dropped);
  at.tier->set_water_marks(1.0, 1.0);
  const auto down = leave();
  BOOST_REQUIRE(down.size() == 1U);
  at.tier->set_water_marks(0.0, 0.0);
  answer(down, transfer_result::done);
  BOOST_TEST(!present(1));
  BOOST_TEST(counters().demotions_dropped == 0U);
}

BOOST_AUTO_TEST_CASE(a_clean_block_has_to_be_written_when_its_last_copy_is_lost) {
  put(1);
  answer(clean(), transfer_result::done);
  BOOST_TEST(clean().empty(), "both tiers have it");
  lose(near, 1);
  BOOST_TEST(clean().empty(), "the second one has it still");
  lose(far, 1);
  const auto down = clean();
  BOOST_REQUIRE(down.size() == 1U);
  answer(down, transfer_result::done);
  BOOST_TEST(present(1));
  lose(far, 1);
  BOOST_TEST(clean().empty(), "the first tier has it now");
}

// ---- up

BOOST_AUTO_TEST_CASE(what_one_tier_has_not_got_is_asked_of_the_next_one_under_the_same_token) {
  for (const transfer_result what : {transfer_result::missing, transfer_result::failed}) {
    const std::uint64_t n = what == transfer_result::missing ? 1 : 2;
    const transfer first = ask_first(n);
    BOOST_TEST(answer(std::span(&first, 1), what) == std::vector{first.token}, boost::test_tools::per_element());
    BOOST_TEST(at.tier->take_loads(near).empty());
    const auto second = at.tier->take_loads(far);
    BOOST_REQUIRE(second.size() == 1U);
    BOOST_TEST(second[0].token == first.token);
    BOOST_TEST((second[0].full == key_of(n)));
    BOOST_TEST(second[0].memory.data() == first.memory.data());
    BOOST_TEST((at.tier->load(in, 0, key_of(n), at.now).state == load_state::loading));
    fill(second[0].memory.data(), block, key_of(n));
    BOOST_TEST(answer(second, transfer_result::done).empty());
    BOOST_TEST((a.read(key_of(n)) == look::right));
  }
  BOOST_TEST(counters().promoted == 2U);
  BOOST_TEST(counters().promotions_failed == 0U);
  BOOST_TEST(at.status().loading_bytes == 0U);
}

BOOST_AUTO_TEST_CASE(a_load_is_given_up_when_no_tier_is_left) {
  const transfer first = ask_first(1);
  answer(std::span(&first, 1), transfer_result::missing);
  const auto second = at.tier->take_loads(far);
  BOOST_REQUIRE(second.size() == 1U);
  BOOST_TEST(answer(second, transfer_result::missing).empty());
  BOOST_TEST(at.tier->take_loads(near).empty());
  BOOST_TEST(at.tier->take_loads(far).empty());
  BOOST_TEST(!present(1));
  BOOST_TEST(counters().promotions_failed == 1U);
  BOOST_TEST(at.status().used == 0U);
}

BOOST_AUTO_TEST_CASE(what_was_removed_meanwhile_is_asked_of_nobody_else) {
  const transfer removed = ask_first(1);
  const transfer cleared = ask_first(2);
  BOOST_TEST(a.remove(key_of(1)).code == 0U);
  BOOST_TEST(answer(std::span(&removed, 1), transfer_result::missing).empty());
  std::vector<removal> below;
  auto work = at.tier->begin_clear("one", below);
  BOOST_REQUIRE(work.has_value());
  BOOST_TEST(answer(std::span(&cleared, 1), transfer_result::missing).empty());
  BOOST_TEST(at.tier->take_loads(far).empty());
}

BOOST_AUTO_TEST_CASE(a_tier_that_is_away_is_neither_written_to_nor_asked) {
  at.tier->set_standing(far, false);
  BOOST_TEST(a.put(key_of(1)).value == 1U);
  BOOST_TEST(at.tier->take_demotions(far).empty());
  BOOST_TEST((at.tier->load(in, 0, key_of(2), at.now).state == load_state::absent));
  BOOST_TEST((load_from(far, 4).state == load_state::busy));  // for whoever heard that it has the block, and can wait
  at.tier->set_standing(far, true);
  BOOST_TEST((load_from(far, 4).state == load_state::loading));
  BOOST_TEST(at.tier->take_loads(far).size() == 1U);
  BOOST_TEST(a.put(key_of(3)).value == 1U);
  BOOST_TEST(at.tier->take_demotions(far).size() == 1U);
  BOOST_TEST((at.tier->load(in, 0, key_of(2), at.now).state == load_state::loading));
  BOOST_TEST(at.tier->take_loads(far).size() == 1U);
}

BOOST_AUTO_TEST_CASE(what_leaves_goes_to_the_other_tier_while_the_first_is_away) {
  at.tier->set_standing(far, false);
  at.tier->set_standing(near, false);
  BOOST_TEST(a.put(key_of(1)).value == 1U);
  BOOST_TEST(clean().empty());  // nowhere to go: it is evicted when room is needed
  at.tier->set_standing(far, true);
  ++at.now;
  at.tier->set_water_marks(0.99, 0.0);
  while (at.tier->evict_ahead(at.now)) continue;
  at.tier->set_water_marks(1.0, 1.0);
  BOOST_TEST(at.tier->take_demotions(near).empty());
  BOOST_TEST(at.tier->take_demotions(far).size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_restart_knows_which_tier_was_asked_last) {
  const transfer first = ask_first(1);
  answer(std::span(&first, 1), transfer_result::missing);
  BOOST_TEST(at.tier->take_loads(far).size() == 1U);
  at.restart();
  BOOST_TEST(at.status().loading == 1U);
  at.tier->release_loading(near);
  BOOST_TEST(at.status().loading == 1U);
  at.tier->release_loading(far);
  BOOST_TEST(at.status().loading == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::lower_edges_test
