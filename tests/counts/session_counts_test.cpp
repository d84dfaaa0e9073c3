// Allocations and system calls of a session, for each call of an engine.
#include <boost/test/unit_test.hpp>
#include <optional>
#include <vector>

#include "memory/session_memory.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/system_calls.hpp"
#include "tests/unit/client/session_fixture.hpp"

namespace cenote::session_counts_test {

using namespace testing;
using test::allocations_during;
using test::system_calls_during;

namespace {

constexpr std::size_t blocks = 256;
constexpr std::size_t batch_blocks = 64;
constexpr std::size_t put_blocks = 60;

/// A session whose node has `blocks` blocks, the first half of them present, and reads no ring any more.
struct quiet_session : session_fixture {
  quiet_session() : session_fixture(blocks, blocks) {
    auto bytes = content(0, blocks / 2);
    const auto keys = keys_of(0, blocks / 2);
    must(session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, blocks / 2)).status);
    must(session->barrier());
    node.be_silent(true);
    node.stand_still(true);
    for (std::uint32_t slot = 0; slot < memory::session_memory::grants; ++slot) owner.session().grant(slot).word = 0;
  }

  ~quiet_session() {
    node.be_silent(false);
    node.stand_still(false);
  }
  quiet_session(const quiet_session&) = delete;
  quiet_session& operator=(const quiet_session&) = delete;

  [[nodiscard]] memory::session_header& header() const { return owner.session().header(); }
  /// Blank blocks in the session's hands, as the node would grant them.
  void grant(std::uint32_t count) {
    for (std::uint32_t slot = 0; slot < count; ++slot) {
      auto& place = owner.session().grant(slot);
      place.block.store(local_owner::ref(blocks / 2 + slot).bits);
      place.word.store(memory::grant_slot::make(1000 + slot, 0, memory::grant_slot::granted));
    }
  }
  void put_async(std::uint64_t first, std::size_t count) {
    const auto keys = keys_of(first, count);
    auto bytes = content(first, count);
    const auto source = run_of(bytes, count);
    const auto batch = batch_of(keys);
    std::optional<client::put_report> report;
    allocations = allocations_during(
        [&] { calls = system_calls_during([&] { report = session->put_async(batch, 0, std::nullopt, source); }); });
    BOOST_REQUIRE_EQUAL(report->stored, count);
  }

  test::allocation_counts allocations;
  test::system_call_counts calls;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(session_counts)

BOOST_AUTO_TEST_CASE(lookups_make_no_system_call_and_no_allocation) {
  quiet_session test;
  const auto keys = keys_of(0, blocks / 2);
  std::vector<std::uint8_t> present(blocks / 2);
  std::uint64_t resident = 0;
  for (int round = 0; round < 3; ++round) {
    test::system_call_counts calls;
    const auto allocations = allocations_during([&] {
      calls = system_calls_during([&] {
        resident = test.session->match_prefix(batch_of(keys), 0)->resident;
        must(test.session->exists(batch_of(keys), 0, present));
      });
    });
    BOOST_TEST(resident == blocks / 2);
    if (round == 0) continue;  // it maps what the put made the index grow by
    BOOST_TEST(calls.all() == 0U);
    BOOST_TEST(allocations.calls == 0U);
  }
}

BOOST_AUTO_TEST_CASE(pinned_reads_make_no_system_call_and_no_allocation) {
  quiet_session test;
  const auto keys = keys_of(0, batch_blocks);
  std::vector<client::held_block> held(batch_blocks);
  for (int round = 0; round < 3; ++round) {
    test::system_call_counts calls;
    const auto allocations = allocations_during([&] {
      calls = system_calls_during([&] {
        must(test.session->acquire(batch_of(keys), 0, held));
        must(test.session->release(held));
      });
    });
    if (round == 0) continue;
    BOOST_TEST(calls.all() == 0U);
    BOOST_TEST(allocations.calls == 0U);
  }
}

BOOST_AUTO_TEST_CASE(copies_out_make_no_system_call_and_no_allocation) {
  quiet_session test;
  const auto keys = keys_of(0, batch_blocks);
  std::vector<std::byte> target(batch_blocks * part_bytes);
  const auto targets = run_of(target, batch_blocks);
  for (int round = 0; round < 3; ++round) {
    test::system_call_counts calls;
    const auto allocations = allocations_during([&] {
      calls = system_calls_during([&] { must(test.session->get_into(batch_of(keys), 0, std::nullopt, targets)); });
    });
    if (round == 0) continue;
    BOOST_TEST(calls.all() == 0U);
    BOOST_TEST(allocations.calls == 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_put_rings_once_for_a_node_that_sleeps_and_never_for_one_that_does_not) {
  quiet_session test;
  test.grant(4);
  test.put_async(1'000, 1);
  BOOST_TEST(test.calls.all() == 0U);
  test.header().worker_sleeps.store(1);
  test.put_async(1'001, 1);
  BOOST_TEST(test.calls.sent == 1U);
  BOOST_TEST(test.calls.all() == 1U);
  BOOST_TEST(test.header().worker_sleeps.load() == 0U);
  test.put_async(1'002, 2);
  BOOST_TEST(test.calls.all() == 0U);
}

BOOST_AUTO_TEST_CASE(a_put_allocates_a_few_times_a_call_and_not_for_each_block) {
  quiet_session test;
  test.grant(2 * put_blocks + 2);
  test.put_async(1'000, put_blocks);
  test.put_async(2'000, 1);
  test.put_async(3'000, put_blocks);
  const auto many = test.allocations.calls;
  test.put_async(4'000, 1);
  BOOST_TEST(many == 14U);
  BOOST_TEST(test.allocations.calls == 8U);
}

BOOST_AUTO_TEST_CASE(a_put_that_waits_rings_once_for_a_grant_and_once_for_a_commit) {
  session_fixture test(blocks, blocks);
  constexpr std::uint64_t puts = 100;
  constexpr std::uint64_t frames = 2;  // the first put asks for the slab
  test::system_call_counts calls;
  for (std::uint64_t key = 0; key < puts; ++key) {
    const auto keys = keys_of(key, 1);
    auto bytes = content(key, 1);
    const auto each =
        system_calls_during([&] { must(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 1)).status); });
    calls.sent += each.sent;
    calls.received += each.received;
    if (key > 0) calls.mapped += each.mapped;
  }
  BOOST_TEST(calls.sent <= 2 * puts + frames);
  BOOST_TEST(calls.received <= 2 * puts + frames);
  BOOST_TEST(calls.mapped == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::session_counts_test
