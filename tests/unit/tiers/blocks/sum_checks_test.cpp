// Copies that are compared with their sums, since another node got wrong bytes, and the sessions that stored them.
#include "tiers/blocks/sum_checks.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "core/checksum.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::sum_checks_test {

using namespace testing;
using memory::completion_kind;
using memory::operation;
using memory::submission;

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t block = 64 << 10;
constexpr edge_number peers = 0;
constexpr edge_number disk = 1;

/// Other nodes take all, and before the disk does.
store_options with_peers() {
  store_options options = options_of(16 * mib, 4 * mib);
  options.high_water = 1.0;
  options.low_water = 1.0;
  options.edges.push_back({.ingest = ingest::all, .write_window = 16 * mib, .read_window = 16 * mib, .hinted = false});
  options.edges.push_back({.ingest = ingest::all, .write_window = 16 * mib, .read_window = 16 * mib});
  return options;
}

struct world {
  explicit world(std::uint64_t bytes = block) : block_bytes(bytes) {}
  ~world() { BOOST_TEST(host.broken_identity() == ""); }

  /// Stores a block whose sum is off by `error`.
  void put(client& writer, std::uint64_t n, std::uint64_t error = 0) {
    const auto got = writer.obtain();
    BOOST_REQUIRE(got.has_value());
    std::byte* const bytes = host.bytes(model, got->ref);
    fill(bytes, block_bytes, key_of(n));
    submission entry = writer.commit_of(*got, key_of(n));
    entry.flags |= submission::flag_checksum;
    entry.detail = checksum_of(bytes, block_bytes) + error;
    last = got->ref;
    BOOST_TEST(writer.ask({entry}).value == 1U);
  }
  /// The other node answers all that is on its way there.
  void answer(transfer_result result) {
    std::vector<transfer_outcome> outcomes;
    for (const transfer& each : host.tier->take_demotions(peers)) outcomes.push_back({each.token, result});
    BOOST_REQUIRE(!outcomes.empty());
    (void)host.tier->transferred(outcomes, host.now);
  }
  void put_wrong(client& writer, std::uint64_t n) {
    put(writer, n, 1);
    answer(transfer_result::altered);
  }
  /// All checks that wait. Returns the blocks that were wrong.
  std::vector<block_key> check() {
    std::vector<block_key> wrong;
    for (steps = 0; host.tier->has_checks(); ++steps) {
      if (const auto gone = host.tier->check_some(host.now)) wrong.push_back(gone->keys.at(0));
    }
    return wrong;
  }
  bool present(std::uint64_t n) { return host.tier->is_present(model, 0, key_of(n)); }
  store_counters counters() { return host.status().counters; }
  std::uint64_t wrong_of(const client& writer) {
    for (const session_status& each : host.status().sessions) {
      if (each.number == writer.number) return each.wrong;
    }
    return 0;
  }
  /// Those of the instance's account.
  std::uint64_t wrong_of_account() { return host.status().accounts.at(0).wrong; }

  std::uint64_t block_bytes;
  node host{with_peers()};
  instance_number model = host.add(spec_of("one", block_bytes));
  client a{host, model}, b{host, model};
  memory::block_ref last;
  std::uint64_t steps = 0;
};

std::vector<block_key> one(std::uint64_t n) {
  return {reduce_key(key_of(n).view(), 0)};
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(sum_checks_suite, world)

BOOST_AUTO_TEST_CASE(a_block_whose_sum_is_not_its_own_is_dropped_once_another_node_got_wrong_bytes_of_it) {
  put_wrong(a, 1);
  BOOST_TEST(present(1));
  BOOST_TEST(host.tier->take_demotions(disk).empty());  // nothing else gets it before
  BOOST_TEST((check() == one(1)));
  BOOST_TEST(!present(1));
  BOOST_TEST(counters().copies_checked == 1U);
  BOOST_TEST(counters().checksum_errors == 1U);
  BOOST_TEST(wrong_of(a) == 1U);
  BOOST_TEST(wrong_of(b) == 0U);
  BOOST_TEST(wrong_of_account() == 1U);
}

BOOST_AUTO_TEST_CASE(a_block_that_its_client_wrote_to_after_it_was_stored_is_dropped) {
  put(a, 1);
  host.bytes(model, last)[100] ^= std::byte{1};
  answer(transfer_result::altered);
  BOOST_TEST((check() == one(1)));
  BOOST_TEST(wrong_of(a) == 1U);
}

BOOST_AUTO_TEST_CASE(a_copy_that_is_right_stays_and_its_instance_is_not_checked_for_a_while) {
  put(a, 1);
  answer(transfer_result::altered);
  BOOST_TEST(check().empty());
  BOOST_TEST((a.read(key_of(1)) == look::right));
  BOOST_TEST(counters().copies_checked == 1U);
  BOOST_TEST(wrong_of(a) == 0U);
  put_wrong(a, 2);
  BOOST_TEST(!host.tier->has_checks());
  BOOST_TEST(present(2));
  host.now += sum_checks::pause;
  put_wrong(a, 3);
  BOOST_TEST((check() == one(3)));
}

BOOST_AUTO_TEST_CASE(nothing_is_read_of_blocks_that_no_node_got_wrong_bytes_of) {
  for (std::uint64_t n = 1; n <= 10; ++n) {
    put(a, n, 1);
    answer(n % 2 == 0 ? transfer_result::done : transfer_result::dropped);
  }
  BOOST_TEST(!host.tier->has_checks());
  BOOST_TEST(counters().copies_checked == 0U);
}

BOOST_AUTO_TEST_CASE(a_session_ends_with_its_fourth_wrong_block_and_others_of_its_instance_go_on) {
  for (std::uint64_t n = 1; n < sum_checks::most_wrong; ++n) {
    put_wrong(a, n);
    (void)check();
  }
  BOOST_TEST(host.tier->take_wrong_sessions().empty());
  put_wrong(a, sum_checks::most_wrong);
  (void)check();
  const auto found = host.tier->take_wrong_sessions();
  BOOST_REQUIRE(found.size() == 1U);
  BOOST_TEST(found[0].number == a.number);
  BOOST_TEST(found[0].blocks == sum_checks::most_wrong);
  host.tier->end_session(a.number, host.now);
  host.tier->end_session(a.number, host.now);
  BOOST_TEST(counters().sessions_ended == 1U);
  const auto refused = static_cast<std::uint16_t>(error_code::session_killed);
  BOOST_TEST(a.ask({a.entry_of(operation::remove, key_of(100))}).code == refused);
  const auto answers = a.run({a.entry_of(operation::reserve, key_of(100), 1)});
  BOOST_REQUIRE(answers.size() == 2U);
  BOOST_TEST((answers[0].kind == completion_kind::refused));
  BOOST_TEST(answers[0].code == refused);
  BOOST_TEST(answers[1].code == refused);
  BOOST_TEST((host.tier->reattach_session(a.number, std::nullopt).error().code() == error_code::session_killed));
  put(b, 200);
  BOOST_TEST((b.read(key_of(200)) == look::right));
}

BOOST_AUTO_TEST_CASE(wrong_blocks_that_are_far_apart_end_no_session) {
  for (std::uint64_t n = 1; n <= 3 * sum_checks::most_wrong; ++n) {
    put_wrong(a, n);
    BOOST_TEST((check() == one(n)));
    host.now += sum_checks::window / 2;
  }
  BOOST_TEST(host.tier->take_wrong_sessions().empty());
  BOOST_TEST(wrong_of(a) == 3U * sum_checks::most_wrong);
}

BOOST_AUTO_TEST_CASE(a_session_that_the_node_ended_is_refused_by_the_next_worker_too) {
  auto& header = host.session(a.number).header();
  header.phase.store(static_cast<std::uint32_t>(memory::session_phase::wrong_sums));
  (void)host.restart();
  BOOST_TEST(a.ask({a.entry_of(operation::remove, key_of(1))}).code ==
             static_cast<std::uint16_t>(error_code::session_killed));
}

BOOST_AUTO_TEST_CASE(a_wrong_block_of_a_session_that_is_gone_counts_against_its_account) {
  put_wrong(a, 1);
  host.tier->release_session(a.number, host.now);
  BOOST_TEST((check() == one(1)));
  BOOST_TEST(wrong_of_account() == 1U);
  BOOST_TEST(wrong_of(b) == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_that_came_from_below_counts_against_no_session) {
  host.tier->end_session(0, host.now);  // there is none
  put(a, 1);
  answer(transfer_result::done);
  BOOST_TEST(a.remove(key_of(1)).value == 1U);
  BOOST_TEST((host.tier->load(model, 0, key_of(1), host.now).state == prefetch::load_state::loading));
  const auto asked = host.tier->take_loads(peers);
  BOOST_REQUIRE(asked.size() == 1U);
  (void)host.tier->transferred(std::array{transfer_outcome{asked[0].token, transfer_result::done}}, host.now);
  const auto value = host.index(model).find(reduce_key(key_of(1).view(), 0));
  BOOST_TEST(host.record(model, memory::index_value::ref(value)).owner.load() == 0U);
}

BOOST_AUTO_TEST_CASE(who_pins_a_wrong_block_keeps_its_bytes) {
  put(a, 1, 1);
  const auto slot = b.pin(key_of(1));
  BOOST_REQUIRE(slot.has_value());
  answer(transfer_result::altered);
  BOOST_TEST((check() == one(1)));
  BOOST_TEST(!present(1));
  BOOST_TEST(host.status().zombie == 1U);
  BOOST_TEST(holds(b.pinned_bytes(*slot), block, key_of(1)));
  b.unpin(*slot);
  host.tier->tick(host.now);
  BOOST_TEST(host.status().zombie == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_that_went_meanwhile_is_not_read) {
  put_wrong(a, 1);
  BOOST_TEST(a.remove(key_of(1)).value == 1U);
  put(a, 1);
  BOOST_TEST(check().empty());
  BOOST_TEST(present(1));
  BOOST_TEST(counters().copies_checked == 0U);
}

BOOST_AUTO_TEST_CASE(a_node_that_got_wrong_bytes_has_the_copy_checked_and_a_client_cannot) {
  put(a, 1, 1);
  answer(transfer_result::done);
  BOOST_TEST(b.ask({b.entry_of(operation::check, key_of(1))}).code ==
             static_cast<std::uint16_t>(error_code::malformed));
  BOOST_TEST(!host.tier->has_checks());
  batch of_guest;
  of_guest.session = b.number;
  of_guest.is_guest = true;
  of_guest.entries = {b.entry_of(operation::check, key_of(1)), b.entry_of(operation::check, key_of(7))};
  of_guest.entries.back().flags |= submission::flag_last;
  BOOST_TEST(host.run(of_guest).at(0).value == 1U);
  BOOST_TEST((check() == one(1)));
  BOOST_TEST(wrong_of(a) == 1U);
}

BOOST_AUTO_TEST_CASE(an_instance_that_has_many_wrong_blocks_leaves_room_for_the_checks_of_others) {
  const instance_number other = host.add(spec_of("other", block));
  client c(host, other);
  for (std::uint64_t n = 1; n <= sum_checks::most_of_instance + 10; ++n) put_wrong(a, n);
  model = other;
  put_wrong(c, 1);
  BOOST_TEST(check().size() == sum_checks::most_of_instance + 1);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(large_blocks)

BOOST_AUTO_TEST_CASE(a_large_block_is_read_in_pieces) {
  world of(3 * mib);
  of.put_wrong(of.a, 1);
  BOOST_TEST((of.check() == one(1)));
  BOOST_TEST(of.steps == 3U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::sum_checks_test
