// A tier below takes over what is here, in the order in which it was used last.
#include "tiers/blocks/handing_on.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <utility>
#include <vector>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::handing_on_test {

using namespace testing;

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t block = 64 << 10;

store_options with_one_below(std::uint64_t window, ingest policy) {
  store_options options = options_of(4 * mib, mib);
  options.edges.push_back({.ingest = policy,
                           .write_window = window,
                           .read_window = mib,
                           .hinted = false,
                           .late_offers = late_offers::lacking});
  return options;
}

struct world {
  explicit world(std::uint64_t window = 2 * block, ingest policy = ingest::none)
      : world(with_one_below(window, policy)) {}
  explicit world(store_options options) : at(std::move(options)) {}
  ~world() { BOOST_TEST(at.broken_identity() == ""); }

  void put(std::uint64_t n) {
    ++at.now;
    BOOST_TEST(a.put(key_of(n)).value == 1U);
  }
  /// Steps until nothing more is to be done at once; the keys that are written by then.
  std::vector<transfer> pump() {
    while (at.tier->hand_on(at.now)) continue;
    return at.tier->take_demotions(0);
  }
  void answer(const std::vector<transfer>& all, transfer_result how) {
    for (const transfer& each : all) at.tier->transferred(std::array{transfer_outcome{each.token, how, true}}, at.now);
  }
  /// Has all of it written; the keys in their order.
  std::vector<full_key> hand_all_on(transfer_result how = transfer_result::done) {
    std::vector<full_key> keys;
    for (auto sent = pump(); !sent.empty(); sent = pump()) {
      for (const transfer& each : sent) keys.push_back(each.full);
      answer(sent, how);
    }
    return keys;
  }

  node at;
  instance_number in = at.add(spec_of("one", block));
  client a{at, in};
};

/// Five blocks were stored while the tier was away.
struct returned_tier : world {
  returned_tier() : world(8 * block, ingest::all) {
    at.tier->set_standing(0, false);
    for (std::uint64_t n = 0; n < 5; ++n) put(n);
    BOOST_TEST(pump().empty());
    at.tier->set_standing(0, true);
  }
};

/// A node over a disk and a server that is to lose its memory.
struct stopping_node : world {
  static store_options with_disk(ingest of_disk, ingest of_server) {
    store_options options = with_one_below(8 * block, of_server);
    options.edges.front().late_offers = late_offers::none;
    options.edges.insert(options.edges.begin(), {.ingest = of_disk, .write_window = 2 * block, .read_window = mib});
    return options;
  }
  explicit stopping_node(ingest of_disk = ingest::evicted, ingest of_server = ingest::none)
      : world(with_disk(of_disk, of_server)) {}

  /// The disk gave up its copy.
  void lose(std::uint64_t n) { at.tier->forget_copies(std::array{lost_block{in, reduce_key(key_of(n).view(), 0)}}, 0); }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(handing_on_suite, world)

BOOST_FIXTURE_TEST_CASE(a_node_that_stops_writes_what_no_tier_has_used_last_first_as_the_window_allows, stopping_node) {
  for (std::uint64_t n = 0; n < 4; ++n) put(n);
  BOOST_TEST(at.tier->begin_last_writes().has_value());
  const auto first = pump();
  BOOST_REQUIRE(first.size() == 2U);
  BOOST_TEST((first[0].full == key_of(3) && first[1].full == key_of(2)));
  answer(first, transfer_result::done);
  BOOST_TEST((hand_all_on() == std::vector<full_key>{key_of(1), key_of(0)}));
  BOOST_TEST(at.tier->end_handing_on(false)->taken == 4U);
  put(4);
  BOOST_TEST(at.tier->begin_last_writes().has_value());
  BOOST_TEST((hand_all_on() == std::vector<full_key>{key_of(4)}));
}

BOOST_FIXTURE_TEST_CASE(of_blocks_that_were_used_at_once_the_first_go_first, stopping_node) {
  for (std::uint64_t n = 0; n < 4; ++n) BOOST_TEST(a.put(key_of(n)).value == 1U);
  std::vector<std::pair<memory::block_ref, full_key>> order;
  BOOST_TEST(at.tier->begin_last_writes().has_value());
  for (const full_key& key : hand_all_on())
    order.emplace_back(memory::index_value::ref(at.index(in).find(reduce_key(key.view(), 0))), key);
  BOOST_REQUIRE(order.size() == 4U);
  BOOST_TEST(std::ranges::is_sorted(order, {}, [](const auto& each) { return each.first.block(); }));
}

BOOST_AUTO_TEST_CASE(a_node_that_stops_writes_nothing_that_a_server_has) {
  stopping_node with(ingest::evicted, ingest::all);
  with.put(1);
  with.answer(with.at.tier->take_demotions(1), transfer_result::done);
  with.put(2);
  with.answer(with.at.tier->take_demotions(1), transfer_result::dropped);
  BOOST_TEST(with.at.tier->begin_last_writes().has_value());
  BOOST_TEST((with.hand_all_on() == std::vector<full_key>{key_of(2)}));
}

BOOST_FIXTURE_TEST_CASE(a_node_without_time_says_what_it_leaves_and_writes_nothing, stopping_node) {
  for (std::uint64_t n = 0; n < 3; ++n) put(n);
  BOOST_TEST(at.tier->begin_last_writes().has_value());
  BOOST_TEST(!at.tier->end_handing_on(true).has_value());  // not known yet
  BOOST_TEST(at.tier->hand_on(at.now));
  const auto ended = at.tier->end_handing_on(true);
  BOOST_REQUIRE(ended.has_value());
  BOOST_TEST(ended->left == 3U);
  BOOST_TEST(ended->left_bytes == 3 * block);
  BOOST_TEST(pump().empty());
}

BOOST_FIXTURE_TEST_CASE(a_block_that_is_removed_while_it_is_written_is_neither_written_nor_left, stopping_node) {
  for (std::uint64_t n = 0; n < 3; ++n) put(n);
  BOOST_TEST(at.tier->begin_last_writes().has_value());
  const auto first = pump();
  BOOST_TEST(a.remove(key_of(2)).value == 1U);
  BOOST_TEST(a.remove(key_of(0)).value == 1U);
  answer(first, transfer_result::done);
  BOOST_TEST(hand_all_on().empty());
  const auto ended = at.tier->end_handing_on(false);
  BOOST_REQUIRE(ended.has_value());
  BOOST_TEST(ended->taken == 1U);
  BOOST_TEST(ended->left == 0U);
}

BOOST_FIXTURE_TEST_CASE(a_tier_that_is_away_is_not_waited_for, stopping_node) {
  put(1);
  at.tier->set_standing(0, false);
  BOOST_TEST(at.tier->begin_last_writes().has_value());
  BOOST_TEST(pump().empty());
  BOOST_TEST(at.tier->end_handing_on(false)->left == 1U);
}

BOOST_FIXTURE_TEST_CASE(a_disk_with_no_room_for_all_keeps_what_was_used_last, stopping_node) {
  for (std::uint64_t n = 0; n < 5; ++n) put(n);
  BOOST_TEST(at.tier->begin_last_writes().has_value());
  answer(pump(), transfer_result::done);
  lose(4);  // for what would be written next
  BOOST_TEST(hand_all_on().empty());
  const auto ended = at.tier->end_handing_on(false);
  BOOST_REQUIRE(ended.has_value());
  BOOST_TEST(ended->taken == 1U);
  BOOST_TEST(ended->left == 4U);  // with the one that the disk gave up
}

BOOST_AUTO_TEST_CASE(a_node_that_stops_offers_nothing_to_other_nodes_nor_where_no_tier_takes_anything) {
  store_options others = with_one_below(8 * block, ingest::all);
  BOOST_TEST((node(others).tier->begin_last_writes().error().code() == error_code::invalid_argument));
  stopping_node none(ingest::none, ingest::none);
  BOOST_TEST((none.at.tier->begin_last_writes().error().code() == error_code::invalid_argument));
}

BOOST_FIXTURE_TEST_CASE(what_was_stored_while_the_tier_was_away_is_offered_when_it_is_back, returned_tier) {
  BOOST_TEST(at.tier->begin_catching_up(0));
  const auto first = pump();
  BOOST_REQUIRE(first.size() == 2U);  // a quarter of the window
  BOOST_TEST((first[0].full == key_of(4) && first[1].full == key_of(3)));
  answer(first, transfer_result::done);
  BOOST_TEST(hand_all_on().size() == 3U);
  BOOST_TEST(at.tier->end_handing_on(false)->taken == 5U);
  BOOST_TEST(at.tier->begin_catching_up(0));
  BOOST_TEST(hand_all_on().empty());
}

BOOST_FIXTURE_TEST_CASE(what_its_home_refuses_is_offered_once, returned_tier) {
  BOOST_TEST(at.tier->begin_catching_up(0));
  BOOST_TEST(hand_all_on(transfer_result::dropped).size() == 5U);
  at.now += tenths(100);
  BOOST_TEST(hand_all_on().empty());
  BOOST_TEST(at.tier->end_handing_on(false)->left == 5U);
}

BOOST_FIXTURE_TEST_CASE(a_node_that_leaves_offers_everything_and_not_once_more_beside_it, returned_tier) {
  BOOST_TEST(at.tier->begin_catching_up(0));
  BOOST_TEST(at.tier->begin_handing_on().has_value());
  BOOST_TEST(!at.tier->begin_catching_up(0));
  BOOST_TEST(hand_all_on().size() == 5U);
}

BOOST_AUTO_TEST_CASE(a_tier_whose_removals_do_not_reach_this_node_is_offered_nothing_later) {
  store_options options = with_one_below(8 * block, ingest::all);
  options.edges.front().late_offers = late_offers::none;
  BOOST_TEST(!node(options).tier->begin_catching_up(0));
}

/// The tier takes later what it missed, and nothing else.
struct forgetful_tier : world {
  static store_options options() {
    store_options made = with_one_below(8 * block, ingest::all);
    made.edges.front().late_offers = late_offers::missed;
    return made;
  }
  forgetful_tier() : world(options()) {
    put(0);
    answer(at.tier->take_demotions(0), transfer_result::dropped);
    leave();
    for (std::uint64_t n = 1; n < 4; ++n) put(n);
    const auto missed = at.tier->take_demotions(0);
    BOOST_TEST(missed.size() == 3U);
    for (const transfer& each : missed) BOOST_TEST(each.memory.empty());
  }
  void leave() { at.tier->set_standing(0, false); }
  void back() { at.tier->set_standing(0, true); }
};

BOOST_FIXTURE_TEST_CASE(a_tier_is_offered_what_it_missed_with_the_time_and_nothing_that_it_had_refused,
                        forgetful_tier) {
  const boot_time arrival = at.now;
  at.now += tenths(50);
  back();
  put(4);
  answer(at.tier->take_demotions(0), transfer_result::dropped);
  BOOST_TEST(at.tier->begin_catching_up(0));
  const auto sent = pump();
  BOOST_REQUIRE(sent.size() == 2U);  // a quarter of the window
  BOOST_TEST((sent[0].full == key_of(3) && sent[1].full == key_of(2)));
  BOOST_TEST((sent[0].occasion == write_occasion::catch_up && sent[0].arrival <= arrival));
  answer(sent, transfer_result::done);
  BOOST_TEST((hand_all_on() == std::vector<full_key>{key_of(1)}));
  BOOST_TEST(at.tier->end_handing_on(false)->taken == 3U);
  BOOST_TEST(!at.tier->begin_catching_up(0));
}

BOOST_FIXTURE_TEST_CASE(what_has_had_no_turn_when_the_tier_goes_away_again_is_offered_later, forgetful_tier) {
  back();
  BOOST_TEST(at.tier->begin_catching_up(0));
  const auto sent = pump();
  BOOST_REQUIRE(sent.size() == 2U);
  leave();
  answer(sent, transfer_result::done);
  back();
  BOOST_TEST(at.tier->begin_catching_up(0));
  const auto rest = pump();
  BOOST_REQUIRE(rest.size() == 1U);
  BOOST_TEST((rest[0].full == key_of(1)));
  BOOST_TEST((rest[0].occasion == write_occasion::catch_up && rest[0].arrival < sent[0].arrival));
}

BOOST_FIXTURE_TEST_CASE(what_is_written_before_a_stop_names_the_time_at_which_it_came, forgetful_tier) {
  const boot_time arrival = at.now;
  at.now += tenths(50);
  back();
  BOOST_REQUIRE(at.tier->begin_last_writes());
  std::size_t offered = 0;
  for (int i = 0; i < 100 && !at.tier->end_handing_on(false); ++i) {
    const auto sent = pump();
    for (const transfer& each : sent) BOOST_TEST((each.occasion == write_occasion::later && each.arrival <= arrival));
    answer(sent, transfer_result::dropped);
    offered += sent.size();
    at.now += tenths(3);
  }
  BOOST_TEST(offered >= 4U);
  BOOST_TEST(offered <= 20U);  // what is refused for good holds no stop up
}

BOOST_FIXTURE_TEST_CASE(what_it_refuses_for_a_moment_is_offered_again_and_not_for_ever, forgetful_tier) {
  back();
  BOOST_TEST(at.tier->begin_catching_up(0));
  std::size_t offered = 0;
  for (int i = 0; i < 100 && !at.tier->end_handing_on(false); ++i) {
    offered += hand_all_on(transfer_result::dropped).size();
    at.now += tenths(3);
  }
  BOOST_TEST(offered > 3U);
  BOOST_TEST(offered < 30U);
}

BOOST_FIXTURE_TEST_CASE(what_is_removed_while_the_tier_is_away_is_not_offered, forgetful_tier) {
  BOOST_TEST(a.remove(key_of(2)).value == 1U);
  back();
  BOOST_TEST(at.tier->begin_catching_up(0));
  auto keys = hand_all_on();
  BOOST_TEST((keys == std::vector<full_key>{key_of(3), key_of(1)}));
}

BOOST_AUTO_TEST_CASE(a_tier_that_takes_only_what_leaves_is_offered_nothing_when_it_is_back) {
  put(1);
  BOOST_TEST(!at.tier->begin_catching_up(0));
}

BOOST_AUTO_TEST_CASE(what_was_used_last_goes_first_as_the_window_allows) {
  for (std::uint64_t n = 0; n < 5; ++n) put(n);
  BOOST_TEST(at.tier->begin_handing_on().has_value());
  const auto first = pump();
  BOOST_REQUIRE(first.size() == 2U);
  BOOST_TEST((first[0].full == key_of(4) && first[1].full == key_of(3)));
  BOOST_TEST(!at.tier->end_handing_on(false).has_value());
  answer(first, transfer_result::done);
  BOOST_TEST((hand_all_on() == std::vector<full_key>{key_of(2), key_of(1), key_of(0)}));
  const auto ended = at.tier->end_handing_on(false);
  BOOST_REQUIRE(ended.has_value());
  BOOST_TEST(ended->taken == 5U);
  BOOST_TEST(ended->left == 0U);
  BOOST_TEST(at.present(in) == 5U);
}

BOOST_AUTO_TEST_CASE(what_the_tier_has_already_is_passed_over) {
  put(1);
  BOOST_TEST(at.tier->begin_handing_on().has_value());
  BOOST_TEST(hand_all_on().size() == 1U);
  put(2);
  BOOST_TEST(at.tier->begin_handing_on().has_value());
  BOOST_TEST((hand_all_on() == std::vector<full_key>{key_of(2)}));
}

BOOST_AUTO_TEST_CASE(what_is_removed_meanwhile_is_forgotten_and_what_is_refused_offered_again) {
  for (std::uint64_t n = 0; n < 4; ++n) put(n);
  BOOST_TEST(at.tier->begin_handing_on().has_value());
  const auto first = pump();
  BOOST_TEST(first.size() == 2U);
  BOOST_TEST(a.remove(key_of(0)).value == 1U);
  answer(first, transfer_result::dropped);
  BOOST_TEST(hand_all_on().size() == 1U);
  BOOST_TEST(!at.tier->end_handing_on(false).has_value());
  (void)pump();
  at.now += tenths(3);
  BOOST_TEST((hand_all_on() == std::vector<full_key>{key_of(3), key_of(2)}));
  const auto ended = at.tier->end_handing_on(false);
  BOOST_REQUIRE(ended.has_value());
  BOOST_TEST(ended->taken == 3U);
  BOOST_TEST(ended->left == 0U);
}

BOOST_AUTO_TEST_CASE(what_is_refused_again_and_again_is_said) {
  put(1);
  BOOST_TEST(at.tier->begin_handing_on().has_value());
  std::size_t tries = 0;
  std::optional<handed_on> ended;
  for (int i = 0; !ended && i < 100; ++i) {
    tries += hand_all_on(transfer_result::dropped).size();
    at.now += tenths(3);
    ended = at.tier->end_handing_on(false);
  }
  BOOST_TEST(tries == 10U);
  BOOST_REQUIRE(ended.has_value());
  BOOST_TEST(ended->taken == 0U);
  BOOST_TEST(ended->left == 1U);
}

BOOST_AUTO_TEST_CASE(when_the_time_is_over_nothing_more_is_written) {
  for (std::uint64_t n = 0; n < 5; ++n) put(n);
  BOOST_TEST(at.tier->begin_handing_on().has_value());
  const auto first = pump();
  const auto ended = at.tier->end_handing_on(true);
  BOOST_REQUIRE(ended.has_value());
  BOOST_TEST(ended->taken == 0U);
  BOOST_TEST(ended->left == 5U);
  answer(first, transfer_result::done);
  BOOST_TEST(pump().empty());
}

BOOST_AUTO_TEST_CASE(a_tier_that_goes_away_ends_it_only_by_the_time) {
  put(1);
  at.tier->set_standing(0, false);
  BOOST_TEST(!at.tier->begin_handing_on().has_value());
  at.tier->set_standing(0, true);
  BOOST_TEST(at.tier->begin_handing_on().has_value());
  at.tier->set_standing(0, false);
  BOOST_TEST(pump().empty());
  BOOST_TEST(!at.tier->end_handing_on(false).has_value());
  BOOST_TEST(at.tier->end_handing_on(true)->left == 1U);
}

BOOST_AUTO_TEST_CASE(without_such_a_tier_it_is_refused) {
  node alone(options_of(4 * mib, mib));
  BOOST_TEST((alone.tier->begin_handing_on().error().code() == error_code::invalid_argument));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::handing_on_test
