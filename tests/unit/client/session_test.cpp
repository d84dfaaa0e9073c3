// A whole session against a node of two hundred lines on a thread of the test.
#include <boost/test/unit_test.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/copy_routines.hpp"
#include "core/machine_choice.hpp"
#include "tests/unit/client/session_fixture.hpp"

using namespace cenote;
using client::buffers;
using testing::batch_of;
using testing::code_of;
using testing::content;
using testing::key_of;
using testing::keys_of;
using testing::must;
using testing::part_bytes;
using testing::run_of;

using fixture = testing::session_fixture;

BOOST_AUTO_TEST_SUITE(sessions)

BOOST_AUTO_TEST_CASE(what_is_put_is_found_and_read_back) {
  fixture test;
  const auto keys = keys_of(0, 100);
  auto bytes = content(0, 100);
  const auto report = test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 100));
  BOOST_REQUIRE((code_of(report.status) == error_code::ok));
  BOOST_TEST(report.stored == 100U);
  BOOST_TEST(test.session->match_prefix(batch_of(keys), 0)->resident == 100U);
  std::vector<std::byte> back(bytes.size());
  BOOST_TEST(test.session->get_into(batch_of(keys), 0, std::nullopt, run_of(back, 100)).value() == 100U);
  BOOST_TEST((back == bytes));
  BOOST_TEST(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 100)).stored == 0U);
}

BOOST_AUTO_TEST_CASE(lookups_are_counted_where_the_node_sees_them) {
  fixture test;
  const auto here = keys_of(0, 20);
  auto bytes = content(0, 20);
  BOOST_REQUIRE(test.session->put(batch_of(here), 0, std::nullopt, run_of(bytes, 20)).stored == 20U);
  const auto counts = [&] { return test.owner.session().header().lookups.load(); };
  BOOST_TEST((counts() == memory::lookup_counts{}));  // what is stored is not looked up
  const auto keys = keys_of(0, 30);
  (void)must(test.session->match_prefix(batch_of(keys), 0));
  BOOST_TEST(counts().match_keys == 30U);
  BOOST_TEST(counts().match_resident == 20U);
  std::vector<std::uint8_t> present(30);
  must(test.session->exists(batch_of(keys), 0, present));
  (void)must(test.session->match_window(batch_of(keys), 0, 2));
  BOOST_TEST(counts().match_keys == 90U);
  BOOST_TEST(counts().match_resident == 60U);
  BOOST_TEST(counts().read_keys == 0U);
  std::vector<client::held_block> held(30);
  BOOST_TEST(must(test.session->acquire(batch_of(keys), 0, held)) == 20U);
  std::vector<std::byte> back(30 * part_bytes);
  BOOST_TEST(must(test.session->get_into(batch_of(keys), 0, std::nullopt, run_of(back, 30))) == 20U);
  BOOST_TEST((counts() ==
              memory::lookup_counts{
                  .match_keys = 90, .match_resident = 60, .match_lower = 0, .read_keys = 60, .read_resident = 40}));
  BOOST_TEST(test.session->stats()->keys_looked_up == 150U);
  BOOST_TEST(test.session->stats()->keys_found == 100U);
}

BOOST_AUTO_TEST_CASE(what_hints_show_in_lower_tiers_is_counted_beside_what_is_here) {
  fixture test;
  auto bytes = content(0, 20);
  BOOST_REQUIRE(test.session->put(batch_of(keys_of(0, 20)), 0, std::nullopt, run_of(bytes, 20)).stored == 20U);
  auto hints = must(memory::hint_writer::open(testing::opened_again(test.owner.index_file()), 1000));
  for (const std::uint64_t number : {20U, 21U, 22U, 25U}) hints.add(reduce_key(key_of(number), 0));
  const auto keys = keys_of(0, 30);
  const auto match = must(test.session->match_prefix(batch_of(keys), 0));
  BOOST_TEST(match.resident == 20U);
  BOOST_TEST(match.reachable == 23U);
  const auto counts = [&] { return test.owner.session().header().lookups.load(); };
  BOOST_TEST(counts().match_resident == 20U);
  BOOST_TEST(counts().match_lower == 3U);
  (void)must(test.session->match_window(batch_of(keys), 0, 2));
  BOOST_TEST(counts().match_resident == 40U);
  BOOST_TEST(counts().match_lower == 7U);
}

BOOST_AUTO_TEST_CASE(equal_keys_of_one_batch_are_stored_once) {
  fixture test;
  auto keys = keys_of(0, 3);
  const auto again = keys_of(1, 2);
  keys.insert(keys.end(), again.begin(), again.end());
  auto bytes = content(0, 5);
  BOOST_TEST(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 5)).stored == 3U);
}

BOOST_AUTO_TEST_CASE(a_put_without_space_says_how_many_of_the_first_keys_are_stored) {
  fixture test(100);
  const auto keys = keys_of(0, 120);
  auto bytes = content(0, 120);
  const auto report = test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 120));
  BOOST_TEST((code_of(report.status) == error_code::no_space));
  BOOST_TEST(report.stored == 100U);
  std::vector<std::uint8_t> present(120);
  BOOST_REQUIRE(test.session->exists(batch_of(keys), 0, present).has_value());
  for (std::size_t i = 0; i < 120; ++i) BOOST_TEST(int{present[i]} == (i < 100 ? 1 : 0));
}

BOOST_AUTO_TEST_CASE(a_put_whose_commits_are_rolled_back_tries_again) {
  fixture test;
  test.node.refuse_commits(3);
  const auto keys = keys_of(0, 10);
  auto bytes = content(0, 10);
  const auto report = test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 10));
  BOOST_TEST((code_of(report.status) == error_code::ok));
  BOOST_TEST(report.stored == 10U);
  std::vector<std::byte> back(bytes.size());
  BOOST_TEST(test.session->get_into(batch_of(keys), 0, std::nullopt, run_of(back, 10)).value() == 10U);
  BOOST_TEST((back == bytes));
}

BOOST_AUTO_TEST_CASE(flush_waits_for_what_was_handed_in) {
  fixture test;
  const auto keys = keys_of(0, 100);
  auto bytes = content(0, 100);
  BOOST_TEST(test.session->put_async(batch_of(keys), 0, std::nullopt, run_of(bytes, 100)).stored == 100U);
  std::ranges::fill(bytes, std::byte{0});  // the buffers may be reused
  BOOST_TEST(test.session->flush().value() == 100U);
  BOOST_TEST(test.session->match_prefix(batch_of(keys), 0)->resident == 100U);
  std::vector<std::byte> back(part_bytes);
  const auto last = keys_of(99, 1);
  BOOST_TEST(test.session->get_into(batch_of(last), 0, std::nullopt, run_of(back, 1)).value() == 1U);
  BOOST_TEST((back == content(99, 1)));
  BOOST_TEST(test.session->flush().value() == 0U);
}

BOOST_AUTO_TEST_CASE(a_session_is_closed_also_while_another_thread_waits_for_what_was_handed_in) {
  fixture test(128, 64, 1, std::chrono::seconds(20));
  const auto first = key_of(0);
  const auto second = key_of(1);
  auto bytes = content(0, 1);
  BOOST_TEST(test.session->put(batch_of(first), 0, std::nullopt, run_of(bytes, 1)).stored == 1U);
  memory::grant_slot& slot = test.owner.session().grant(0);  // one that needs no answer
  slot.block.store(local_owner::ref(100).bits);
  slot.word.store(memory::grant_slot::make(1000, 0, memory::grant_slot::granted));
  test.node.be_silent(true);
  BOOST_REQUIRE_EQUAL(test.session->put_async(batch_of(second), 0, std::nullopt, run_of(bytes, 1)).stored, 1U);
  result<std::uint64_t> flushed = 0;
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    flushed = test.session->flush();
    is_over = true;
  });
  while (test.owner.session().header().client_sleeps.load() == 0 && !is_over) std::this_thread::yield();
  BOOST_TEST(test.session->close().has_value());
  other.join();
  BOOST_TEST((code_of(flushed) == error_code::closed));
}

BOOST_AUTO_TEST_CASE(a_block_is_there_when_its_last_part_is) {
  fixture test(16, 16, 2);
  const auto keys = keys_of(0, 4);
  auto first = content(10, 4);
  auto second = content(20, 4);
  BOOST_TEST(test.session->put(batch_of(keys), 0, 0U, run_of(first, 4)).stored == 4U);
  BOOST_TEST(test.session->match_prefix(batch_of(keys), 0)->resident == 0U);
  BOOST_TEST(test.session->put(batch_of(keys), 0, 0U, run_of(first, 4)).stored == 0U);  // another writer has it
  BOOST_TEST(test.session->put(batch_of(keys), 0, 1U, run_of(second, 4)).stored == 4U);
  BOOST_TEST(test.session->match_prefix(batch_of(keys), 0)->resident == 4U);
  std::vector<std::byte> back(4 * part_bytes);
  BOOST_TEST(test.session->get_into(batch_of(keys), 0, 1U, run_of(back, 4)).value() == 4U);
  BOOST_TEST((back == second));
  BOOST_TEST(test.session->stats()->reservations == 0U);
}

BOOST_AUTO_TEST_CASE(reserved_blocks_are_filled_in_place) {
  fixture test;
  const auto keys = keys_of(0, 3);
  std::vector<client::reserved_block> slots(3);
  BOOST_REQUIRE(test.session->reserve(batch_of(keys), 0, std::nullopt, slots).has_value());
  std::vector<client::reserved_block> again(3);
  BOOST_REQUIRE(test.session->reserve(batch_of(keys), 0, std::nullopt, again).has_value());
  BOOST_TEST((again[0].state == client::reserve_state::pending));
  for (auto& slot : slots) {
    BOOST_REQUIRE((slot.state == client::reserve_state::writable));
    std::memset(slot.data, 7, slot.bytes);
  }
  BOOST_TEST(test.session->commit(slots).value() == 3U);
  BOOST_TEST((code_of(test.session->commit(slots)) == error_code::not_reserved));  // a double commit
  BOOST_REQUIRE(test.session->reserve(batch_of(keys), 0, std::nullopt, again).has_value());
  BOOST_TEST((again[0].state == client::reserve_state::present));
}

BOOST_AUTO_TEST_CASE(a_repeated_answer_gives_back_its_own_parts_and_no_others) {
  fixture test(16, 16, 2);
  const auto keys = keys_of(0, 1);
  std::vector<client::reserved_block> slots(1);
  BOOST_TEST((code_of(test.session->reserve(batch_of(keys), 0, 0U, slots)) == error_code::ok));
  test.node.repeat_answers(true);
  std::vector<client::reserved_block> others(1);
  BOOST_TEST((code_of(test.session->reserve(batch_of(keys), 0, 1U, others)) == error_code::ok));
  test.node.repeat_answers(false);
  BOOST_TEST((code_of(test.session->barrier()) == error_code::ok));
  BOOST_TEST((code_of(test.session->barrier()) == error_code::ok));  // what is given back goes before the next batch
  BOOST_TEST(test.node.released() == 1U);
  BOOST_TEST(test.node.released_parts() == 2U);
}

BOOST_AUTO_TEST_CASE(reserving_is_all_or_nothing) {
  fixture test(8);
  const auto keys = keys_of(0, 12);
  std::vector<client::reserved_block> slots(12);
  BOOST_TEST((code_of(test.session->reserve(batch_of(keys), 0, std::nullopt, slots)) == error_code::no_space));
  BOOST_TEST(test.session->stats()->reservations == 0U);
  BOOST_TEST(test.node.released() == 8U);
}

BOOST_AUTO_TEST_CASE(held_blocks_show_their_bytes_until_they_are_released) {
  fixture test;
  const auto keys = keys_of(0, 10);
  auto bytes = content(0, 10);
  BOOST_REQUIRE(
      (code_of(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 10)).status) == error_code::ok));
  std::vector<client::held_block> held(10);
  BOOST_REQUIRE(test.session->acquire(batch_of(keys), 0, held).value() == 10U);
  for (std::size_t i = 0; i < 10; ++i) {
    BOOST_TEST(std::memcmp(held[i].data, bytes.data() + i * part_bytes, part_bytes) == 0);
  }
  BOOST_TEST(test.session->remove(batch_of(keys), 0).value() == 0U);  // all pinned
  std::vector<std::uint32_t> slots;
  for (const auto& each : held) slots.push_back(each.slot);
  BOOST_REQUIRE(test.session->release(slots).has_value());
  BOOST_TEST((code_of(test.session->release(slots)) == error_code::invalid_argument));
  BOOST_TEST(test.session->remove(batch_of(keys), 0).value() == 10U);
  BOOST_TEST(test.session->match_prefix(batch_of(keys), 0)->resident == 0U);
  BOOST_TEST(test.node.touched() > 0U);  // rode with the removals
}

BOOST_AUTO_TEST_CASE(the_last_full_window_is_found) {
  fixture test;
  for (const std::uint32_t i : {0U, 1U, 2U, 4U, 5U, 8U}) test.owner.publish(i, key_of(i));
  const auto keys = keys_of(0, 10);
  BOOST_TEST(test.session->match_window(batch_of(keys), 0, 1)->resident == 9U);
  BOOST_TEST(test.session->match_window(batch_of(keys), 0, 2)->resident == 6U);
  BOOST_TEST(test.session->match_window(batch_of(keys), 0, 3)->resident == 3U);
  BOOST_TEST(test.session->match_window(batch_of(keys), 0, 4)->resident == 0U);
  BOOST_TEST((code_of(test.session->match_window(batch_of(keys), 0, 0)) == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(a_long_prefetch_is_several_requests_of_one_chain_and_the_last_one_has_the_answer) {
  fixture test;
  const auto keys = keys_of(0, 1100);
  client::prefetch_options options;
  options.policy = memory::prefetch_policy::best_effort;
  options.base = std::chrono::milliseconds(0);
  options.prefill_rate = 12'000;
  options.threshold_tokens = 0;
  auto ticket = must(test.session->prefetch(batch_of(keys), 0, options));
  BOOST_TEST(must(test.session->wait(ticket, std::chrono::steady_clock::now() + std::chrono::seconds(60))));
  const auto entries = test.node.prefetch_entries();
  BOOST_REQUIRE_EQUAL(entries.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto terms = memory::prefetch_terms::of(entries[i]);
    BOOST_TEST(terms.chain == ticket.chain);
    BOOST_TEST(terms.more == (i < 2));
    BOOST_TEST(terms.hold);
    BOOST_TEST((terms.policy == memory::prefetch_policy::best_effort));
    BOOST_TEST((terms.base == std::chrono::milliseconds(0)));
    BOOST_TEST(!terms.per_ki_token);
    BOOST_TEST(terms.prefill_rate.value_or(0) == 12'000U);
    BOOST_TEST(terms.threshold_tokens.value_or(1) == 0U);
  }
}

BOOST_AUTO_TEST_CASE(what_is_located_counts_behind_what_is_here) {
  fixture test;
  const auto keys = keys_of(0, 6000);
  auto bytes = content(0, 10);
  BOOST_TEST(test.session->put(batch_of(keys_of(0, 10)), 0, std::nullopt, run_of(bytes, 10)).stored == 10U);
  test.node.reach(5500);
  auto found = must(test.session->locate(batch_of(keys), 0, std::chrono::seconds(10)));
  BOOST_TEST(found.resident == 10U);
  BOOST_TEST(found.reachable == 5510U);
  BOOST_TEST(test.owner.session().header().lookups.load().match_lower == 5500U);
  must(test.session->barrier());
  BOOST_TEST(test.node.located() == 5990U);
  test.node.reach(0);
  found = must(test.session->locate(batch_of(keys), 0, std::chrono::seconds(10)));
  BOOST_TEST(found.reachable == 10U);
  must(test.session->barrier());
  BOOST_TEST(test.node.located() == 5990U + 4096U, "no more than a window of keys");
}

BOOST_AUTO_TEST_CASE(nothing_is_asked_for_that_is_here_or_for_which_there_is_no_time) {
  fixture test;
  const auto keys = keys_of(0, 10);
  auto bytes = content(0, 10);
  test.node.reach(1000);
  BOOST_TEST(must(test.session->locate(batch_of(keys), 0, {})).reachable == 0U);
  BOOST_TEST(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 10)).stored == 10U);
  BOOST_TEST(must(test.session->locate(batch_of(keys), 0, std::chrono::seconds(10))).reachable == 10U);
  test.owner.session().header().asks_tiers.store(0);
  BOOST_TEST(must(test.session->locate(batch_of(keys_of(100, 10)), 0, std::chrono::seconds(10))).reachable == 0U);
  BOOST_TEST(test.node.located() == 0U);
  BOOST_TEST(
      (code_of(test.session->locate(batch_of(keys), 9, std::chrono::seconds(1))) == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(copies_are_made_by_what_the_node_hands_over_also_later) {
  fixture test;
  const auto keys = keys_of(0, 2);
  auto bytes = content(0, 2);
  const auto hand_over = [&](std::uint8_t routine) {
    const copy_choice copy{routine, 4096};
    test.owner.session().hand_over(words_of({.copies = {copy, copy}, .hashed_copy = routine, .checksum = 1}));
    return test.owner.session().choice();
  };
  const choice_words first = hand_over(2);
  BOOST_TEST(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 2)).stored == 2U);
  BOOST_TEST((words_in_use() == first));
  const choice_words second = hand_over(memcpy_number);
  std::vector<std::byte> read(bytes.size());
  BOOST_TEST(must(test.session->get_into(batch_of(keys), 0, std::nullopt, run_of(read, 2))) == 2U);
  BOOST_TEST((words_in_use() == second));
  BOOST_TEST((read == bytes));
  test.owner.session().hand_over({});
  BOOST_TEST(must(test.session->get_into(batch_of(keys), 0, std::nullopt, run_of(read, 2))) == 2U);
  BOOST_TEST((words_in_use() == second));
}

BOOST_AUTO_TEST_CASE(a_node_that_does_not_answer_in_time_adds_nothing_and_is_no_error) {
  fixture test;
  test.node.be_silent(true);
  test.node.reach(1000);
  const auto keys = keys_of(0, 600);
  const auto found = must(test.session->locate(batch_of(keys), 0, std::chrono::milliseconds(5)));
  BOOST_TEST(found.reachable == 0U);
  test.node.be_silent(false);
  must(test.session->barrier());
}

BOOST_AUTO_TEST_CASE(stops_and_cancels_name_the_chain_and_come_once) {
  fixture test;
  test.node.be_silent(true);
  const auto keys = keys_of(0, 4);
  auto first = must(test.session->prefetch(batch_of(keys), 0));
  auto second = must(test.session->prefetch(batch_of(keys), 0));
  BOOST_TEST(first.chain != second.chain);
  must(test.session->stop(first));
  must(test.session->cancel(second));
  BOOST_TEST(second.done);
  BOOST_TEST(second.length == 0U);
  must(test.session->cancel(second));
  must(test.session->stop(second));
  test.session->drop(second);
  test.session->drop(first);
  test.node.be_silent(false);
  must(test.session->barrier());
  const auto entries = test.node.prefetch_entries();
  BOOST_REQUIRE_EQUAL(entries.size(), 5U);
  BOOST_TEST((entries[2].op == memory::operation::stop_prefetch));
  BOOST_TEST(entries[2].grant_version == first.chain);
  BOOST_TEST((entries[3].op == memory::operation::end_prefetch));
  BOOST_TEST(entries[3].grant_version == second.chain);
  BOOST_TEST((entries[4].op == memory::operation::end_prefetch));
  BOOST_TEST(entries[4].grant_version == first.chain);
}

BOOST_AUTO_TEST_CASE(the_progress_of_a_prefetch_is_seen_without_the_node) {
  fixture test;
  test.node.be_silent(true);
  const auto keys = keys_of(0, 3);
  auto ticket = must(test.session->prefetch(batch_of(keys), 0));
  test.node.stop();  // from here on the test alone owns the blocks
  BOOST_TEST(must(test.session->progress(ticket)) == 0U);
  for (std::uint32_t n = 0; n < 2; ++n) {
    test.owner.publish(n, key_of(n));
    BOOST_TEST(must(test.session->progress(ticket)) == n + 1);
  }
}

BOOST_AUTO_TEST_CASE(terms_that_do_not_fit_are_refused) {
  fixture test;
  const auto keys = keys_of(0, 1);
  client::prefetch_options options;
  options.base = std::chrono::milliseconds(-1);
  BOOST_TEST((test.session->prefetch(batch_of(keys), 0, options).error().code() == error_code::invalid_argument));
  options.base = memory::prefetch_terms::longest + std::chrono::milliseconds(1);
  BOOST_TEST((test.session->prefetch(batch_of(keys), 0, options).error().code() == error_code::invalid_argument));
  options.base = memory::prefetch_terms::longest;
  BOOST_TEST(test.session->prefetch(batch_of(keys), 0, options).has_value());
}

BOOST_AUTO_TEST_CASE(wrong_sizes_are_named) {
  fixture test;
  const auto keys = keys_of(0, 2);
  std::vector<std::byte> bytes(3 * part_bytes);
  const buffers::item items[2] = {{bytes.data(), part_bytes}, {bytes.data(), part_bytes - 1}};
  const auto report = test.session->put(batch_of(keys), 0, std::nullopt, buffers(items));
  BOOST_REQUIRE((code_of(report.status) == error_code::invalid_argument));
  BOOST_TEST(report.status.error().message().find("buffer 1 has 4095 bytes") != std::string::npos);
  BOOST_TEST((code_of(test.session->match_prefix({keys.data(), 2, 7}, 0)) == error_code::invalid_argument));
  BOOST_TEST((code_of(test.session->match_prefix({keys.data(), 1, 65}, 0)) == error_code::invalid_argument));
  BOOST_TEST((code_of(test.session->match_prefix(batch_of(keys), 1)) == error_code::invalid_argument));
  BOOST_TEST(
      (code_of(test.session->get_into(batch_of(keys), 0, 5U, run_of(bytes, 2))) == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(a_silent_node_is_waited_for_until_the_deadline) {
  fixture test(16, 16, 1, std::chrono::milliseconds(150));
  const auto keys = keys_of(0, 1);
  std::vector<client::reserved_block> slots(1);
  test.node.be_silent(true);
  BOOST_TEST((code_of(test.session->barrier()) == error_code::deadline_exceeded));
  test.node.be_silent(false);
  BOOST_TEST((code_of(test.session->barrier()) == error_code::ok));
}

BOOST_AUTO_TEST_CASE(reading_goes_on_while_the_worker_is_away) {
  fixture test(64, 64, 1, std::chrono::milliseconds(300));
  const auto keys = keys_of(0, 4);
  auto bytes = content(0, 4);
  BOOST_REQUIRE(
      (code_of(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 4)).status) == error_code::ok));
  test.node.stop();
  std::vector<std::byte> back(bytes.size());
  BOOST_TEST(test.session->get_into(batch_of(keys), 0, std::nullopt, run_of(back, 4)).value() == 4U);
  BOOST_TEST((back == bytes));
  // No node listens at the socket of this session.
  BOOST_TEST((code_of(test.session->barrier()) == error_code::not_running));
}

BOOST_AUTO_TEST_CASE(the_operators_word_ends_a_session) {
  fixture test;
  const auto keys = keys_of(0, 1);
  auto& phase = test.owner.session().header().phase;
  phase.store(static_cast<std::uint32_t>(memory::session_phase::draining));
  BOOST_TEST((code_of(test.session->match_prefix(batch_of(keys), 0)) == error_code::not_running));
  phase.store(static_cast<std::uint32_t>(memory::session_phase::killed));
  BOOST_TEST((code_of(test.session->match_prefix(batch_of(keys), 0)) == error_code::session_killed));
  BOOST_TEST((code_of(test.session->clear()) == error_code::session_killed));
}

BOOST_AUTO_TEST_CASE(a_session_that_the_node_ended_says_of_how_many_wrong_blocks) {
  fixture test;
  auto& header = test.owner.session().header();
  header.wrong_blocks.store(4);
  header.phase.store(static_cast<std::uint32_t>(memory::session_phase::wrong_sums));
  const auto refused = test.session->barrier();
  BOOST_TEST((code_of(refused) == error_code::session_killed));
  BOOST_TEST(refused.error().message().find("4 blocks") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_closed_session_refuses_and_holds_nothing) {
  fixture test;
  const auto keys = keys_of(0, 3);
  auto bytes = content(0, 3);
  BOOST_REQUIRE(
      (code_of(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 3)).status) == error_code::ok));
  std::vector<client::held_block> held(3);
  BOOST_REQUIRE(test.session->acquire(batch_of(keys), 0, held).value() == 3U);
  BOOST_TEST((code_of(test.session->close()) == error_code::ok));
  BOOST_TEST((code_of(test.session->close()) == error_code::ok));
  BOOST_TEST((code_of(test.session->match_prefix(batch_of(keys), 0)) == error_code::closed));
  for (std::uint32_t i = 0; i < 3; ++i) BOOST_TEST(test.owner.session().pin(i).load() == 0U);
  const std::uint32_t slot = held[0].slot;
  BOOST_TEST((code_of(test.session->release(std::span(&slot, 1))) == error_code::ok));
}

#ifndef CENOTE_TSAN  // a fork of a process with threads is more than the thread sanitizer bears
BOOST_AUTO_TEST_CASE(a_forked_child_is_told_so) {
  fixture test;
  const auto keys = keys_of(0, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool told = code_of(test.session->match_prefix(batch_of(keys), 0)) == error_code::forked &&
                      code_of(test.session->barrier()) == error_code::forked &&
                      code_of(test.session->close()) == error_code::forked;
    client::session_closer{}(test.session.release());
    ::_exit(told ? 0 : 1);
  }
  int status = -1;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_TEST(status == 0);
  BOOST_TEST((code_of(test.session->barrier()) == error_code::ok));
}
#endif

BOOST_AUTO_TEST_CASE(a_publication_of_several_batches_says_where_each_but_the_first_belongs) {
  fixture test;
  const auto keys = keys_of(1, 1200);
  const auto request = key_of(7);
  BOOST_TEST(must(test.session->publish(request, batch_of(keys), 0, std::nullopt, true)) == 1200U);
  const auto sent = test.node.publications();
  BOOST_REQUIRE(sent.size() == 3U);
  BOOST_TEST(sent[0].argument == memory::submission::no_place);
  BOOST_TEST(sent[1].argument == client::channel::max_batch - 1);
  BOOST_TEST(sent[2].argument == 2 * (client::channel::max_batch - 1));
  BOOST_TEST((sent[0].want == 0 && sent[1].want == 0 && sent[2].want == 1));
}

BOOST_AUTO_TEST_CASE(the_rest_of_a_publication_is_not_the_beginning_at_a_node_that_does_not_know_it) {
  fixture test;
  test.node.forget_publications(true);
  const auto keys = keys_of(1, 600);
  const auto published = test.session->publish(key_of(7), batch_of(keys), 0, std::nullopt, true);
  BOOST_TEST((code_of(published) == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(threads_share_a_session) {
  fixture test(512, 512);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t round = 0; round < 30; ++round) {
        const std::uint64_t first = t * 1000 + round * 4;
        const auto keys = keys_of(first, 4);
        auto bytes = content(first, 4);
        std::vector<std::byte> back(bytes.size());
        const auto report = test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 4));
        const auto copied = test.session->get_into(batch_of(keys), 0, std::nullopt, run_of(back, 4));
        if (!report.status || report.stored != 4 || !copied || *copied != 4 || back != bytes) failures.fetch_add(1);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  BOOST_TEST(failures.load() == 0);
  BOOST_TEST(test.session->stats()->blocks_stored == 480U);
}

BOOST_AUTO_TEST_CASE(an_answer_that_another_thread_took_off_the_ring_wakes_who_waits_for_it) {
  constexpr int calls = 60000;
  // With an hour between its own looks, a call that is not woken sleeps until its deadline, and finds its answer then.
  constexpr auto deadline = std::chrono::seconds(30);
  fixture test(16, 16, 1, deadline, "/nonexistent/cenote.sock", nullptr, nullptr, std::chrono::hours(1));
  test.node.be_silent(true);
  const auto wanted = keys_of(1, 1);
  auto ticket = must(test.session->prefetch(batch_of(wanted), 0));
  while (test.node.prefetch_entries().empty()) std::this_thread::yield();
  test.node.be_silent(false);  // that one stays without an answer
  std::atomic<bool> enough{false};
  std::thread looks_for_its_own([&] {
    while (!enough) static_cast<void>(test.session->wait(ticket, std::chrono::steady_clock::now()));
  });
  int woken = 0;
  for (bool slept = false; woken < calls && !slept;) {
    const auto begun = std::chrono::steady_clock::now();
    BOOST_CHECK(test.session->remove(batch_of(wanted), 0).has_value());
    slept = std::chrono::steady_clock::now() - begun >= deadline;
    woken += slept ? 0 : 1;
  }
  enough = true;
  looks_for_its_own.join();
  BOOST_TEST(woken == calls);
}

BOOST_AUTO_TEST_SUITE_END()
