// The DRAM tier over two tiers, which the test plays: what it asks of each, and what it makes of their answers.
#include <chrono>
#include <map>
#include <string>

#include "memory/lower_hints.hpp"
#include "memory/prefetch_terms.hpp"
#include "tests/actors/actor_fixture.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

struct two_tiers : actor_fixture {
  two_tiers() : actor_fixture(below::two_tiers) { provide_memory(); }

  std::optional<outcome> clear(const std::string& id) { return ask<outcome>(dram(), clear_atom_v, id); }
  /// A batch of session 1 that removes a key; the answer's code, or nothing when it was not answered.
  std::optional<error_code> remove(std::uint64_t key, bool is_guest = false) {
    auto work = std::make_shared<blocks::batch>();
    work->session = 1;
    work->is_guest = is_guest;
    memory::submission entry = entry_of(memory::operation::remove, 8);
    const full_key full = key_of(key);
    entry.key_size = full.size;
    std::memcpy(entry.key, full.bytes.data(), sizeof entry.key);
    work->entries = {entry};
    const auto done = ask<batch_ptr>(dram(), run_atom_v, work);
    if (!done || (*done)->completions.size() != 1) return std::nullopt;
    return static_cast<error_code>((*done)->completions.front().code);
  }
};

const outcome unknown{error_code::invalid_argument, "no instance `gone`", 0};
const outcome pending{error_code::removal_pending, "one path (why)", 0};

}  // namespace

BOOST_AUTO_TEST_SUITE(lower_tiers)

// ---- removal

BOOST_FIXTURE_TEST_CASE(a_removal_goes_to_all_tiers_and_is_answered_when_all_have_carried_it_out, two_tiers) {
  const auto client = make_client(1);
  BOOST_TEST((remove(1) == error_code::ok));
  for (const blocks::edge_number edge : {0U, 1U}) {
    BOOST_REQUIRE_EQUAL(told(edge).removals.size(), 1U);
    BOOST_TEST((told(edge).removals[0]->front().keys == std::vector{reduce_key(key_of(1).view(), 0)}));
  }
  for (const blocks::edge_number edge : {0U, 1U}) {
    told(edge).forget_answer = pending;
    BOOST_TEST((remove(1) == error_code::removal_pending));
    told(edge).forget_answer = {};
  }
}

BOOST_FIXTURE_TEST_CASE(what_another_node_removes_is_taken_from_what_is_on_its_way_outside_and_told_no_further,
                        two_tiers) {
  const auto client = make_client(1);
  BOOST_TEST((remove(1, true) == error_code::ok));
  BOOST_REQUIRE_EQUAL(told(0).removals.size(), 1U);
  BOOST_REQUIRE_EQUAL(told(1).removals.size(), 1U);
  BOOST_TEST(!told(0).removals[0]->front().on_its_way);  // it has hints: it is on this machine
  BOOST_TEST(told(1).removals[0]->front().on_its_way);
  BOOST_TEST((told(1).removals[0]->front().keys == std::vector{reduce_key(key_of(1).view(), 0)}));
}

BOOST_FIXTURE_TEST_CASE(what_another_node_cleared_outside_goes_from_this_machine_alone, two_tiers) {
  const auto client = make_client(1);
  const auto cleared = ask<outcome>(dram(), cleared_atom_v, index_list{1});
  BOOST_REQUIRE(cleared);
  BOOST_TEST((cleared->code == error_code::ok), cleared->message);
  for (const blocks::edge_number edge : {0U, 1U}) {
    BOOST_REQUIRE_EQUAL(told(edge).removals.size(), 1U);
    const blocks::removal& what = told(edge).removals[0]->front();
    BOOST_TEST(what.instance == 1U);
    BOOST_TEST(what.all);
    BOOST_TEST(what.on_its_way == (edge == 1));  // the one without hints is outside
  }
}

BOOST_FIXTURE_TEST_CASE(a_clear_of_another_node_is_not_done_while_a_tier_of_this_machine_has_blocks, two_tiers) {
  told(0).forget_answer = pending;
  const auto cleared = ask<outcome>(dram(), cleared_atom_v, index_list{1});
  BOOST_REQUIRE(cleared);
  BOOST_TEST((cleared->code == error_code::removal_pending));
  const auto unknown_here = ask<outcome>(dram(), cleared_atom_v, index_list{2});
  BOOST_REQUIRE(unknown_here);
  BOOST_TEST((unknown_here->code == error_code::invalid_argument));
}

BOOST_FIXTURE_TEST_CASE(a_tier_that_never_answers_is_named_whatever_the_other_one_said, two_tiers) {
  told(1).silent = true;
  caf::scoped_actor self(system());
  auto handle = self->request(dram(), std::chrono::seconds(60), clear_atom_v, std::string("demo"));
  run();
  BOOST_REQUIRE_EQUAL(told(1).unanswered.size(), 1U);
  scheduler().clock().advance_time(std::chrono::seconds(30));
  run();
  handle.receive(
      [](const outcome& cleared) {
        BOOST_TEST((cleared.code == error_code::removal_pending));
        BOOST_TEST(cleared.message.find("the second tier below did not answer") != std::string::npos, cleared.message);
      },
      [](const caf::error&) { BOOST_TEST(false, "the clear was not answered"); });
}

BOOST_FIXTURE_TEST_CASE(what_any_tier_forgot_of_a_name_counts, two_tiers) {
  told(0).forget_answer = {error_code::ok, {}, 2};
  told(1).forget_answer = {error_code::ok, {}, 3};
  auto cleared = clear("gone");
  BOOST_REQUIRE(cleared);
  BOOST_TEST((cleared->code == error_code::ok));
  BOOST_TEST(cleared->value == 5U);
  for (const blocks::edge_number knows : {0U, 1U}) {
    told(knows).forget_answer = {error_code::ok, {}, 3};
    told(1 - knows).forget_answer = unknown;
    cleared = clear("gone");
    BOOST_REQUIRE(cleared);
    BOOST_TEST((cleared->code == error_code::ok), cleared->message);
    BOOST_TEST(cleared->value == 3U);
  }
}

BOOST_FIXTURE_TEST_CASE(a_name_is_unknown_when_no_tier_knows_it, two_tiers) {
  told(0).forget_answer = told(1).forget_answer = unknown;
  const auto cleared = clear("gone");
  BOOST_REQUIRE(cleared);
  BOOST_TEST((cleared->code == error_code::invalid_argument));
  BOOST_TEST(cleared->message == unknown.message);
  const auto here = clear("demo");  // this tier knows it
  BOOST_REQUIRE(here);
  BOOST_TEST((here->code == error_code::ok), here->message);
}

BOOST_FIXTURE_TEST_CASE(a_tier_that_could_not_forget_is_heard_beside_one_that_knows_nothing, two_tiers) {
  for (const blocks::edge_number fails : {0U, 1U}) {
    told(fails).forget_answer = pending;
    told(1 - fails).forget_answer = unknown;
    const auto cleared = clear("gone");
    BOOST_REQUIRE(cleared);
    BOOST_TEST((cleared->code == error_code::removal_pending));
    BOOST_TEST(cleared->message == pending.message);
  }
}

// ---- restart

namespace {

/// A store that took over from a worker which died while each of two tiers filled a block.
struct after_a_death {
  after_a_death() {
    namespace fixture = blocks::testing;
    const blocks::instance_number in = at.add(fixture::spec_of("one"));
    auto hints = memory::hint_writer::open(std::move(at.tier->take_bindings().at(0).index), 100);
    BOOST_REQUIRE(hints);
    hints->add(reduce_key(fixture::key_of(1).view(), 0));
    for (const std::uint64_t n : {1U, 2U}) {
      while (at.tier->load(in, 0, fixture::key_of(n), at.now).state == prefetch::load_state::wait) at.pump();
    }
    BOOST_TEST(at.tier->take_loads(0).size() == 1U);
    BOOST_TEST(at.tier->take_loads(1).size() == 1U);
    at.restart();
    dram = system.spawn<dram_tier>(std::shared_ptr<blocks::store>(std::move(at.tier)), std::vector<session_ptr>{},
                                   [](const auto&) {});
    run();
  }
  ~after_a_death() {
    caf::anon_send_exit(dram, caf::exit_reason::user_shutdown);
    dram = nullptr;
    run();
  }
  after_a_death(const after_a_death&) = delete;
  after_a_death& operator=(const after_a_death&) = delete;

  void run() { dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler()).run(); }
  void drained(blocks::edge_number edge, bool sure) {
    caf::anon_send(dram, drained_atom_v, edge, sure);
    run();
  }
  /// Blocks that nobody may use yet.
  std::uint64_t loading() {
    std::uint64_t found = 0;
    caf::scoped_actor self(system);
    auto handle = self->request(dram, std::chrono::seconds(10), report_atom_v);
    run();
    handle.receive([&](const dram_report_ptr& report) { found = report->store.loading; }, [](const caf::error&) {});
    return found;
  }

  static blocks::store_options with_two_below() {
    blocks::store_options options = blocks::testing::options_of(4 << 20, 1 << 20);
    options.edges.resize(2);
    options.edges[1].hinted = false;
    return options;
  }
  blocks::testing::node at{with_two_below()};
  deterministic_config config;
  caf::actor_system system{config};
  dram_tier_actor dram;
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(memory_is_free_again_when_the_tier_that_filled_it_says_that_nothing_can_land, after_a_death) {
  BOOST_TEST(loading() == 2U);
  drained(1, true);
  BOOST_TEST(loading() == 1U);
  drained(1, true);
  BOOST_TEST(loading() == 1U);
  drained(0, true);
  BOOST_TEST(loading() == 0U);
}

BOOST_FIXTURE_TEST_CASE(a_tier_that_will_never_know_holds_up_its_own_blocks_alone, after_a_death) {
  drained(0, false);
  BOOST_TEST(loading() == 2U);
  drained(1, true);
  BOOST_TEST(loading() == 1U);
}

// ---- up

namespace {

struct with_a_chain : two_tiers {
  with_a_chain() {
    hints = std::move(*memory::hint_writer::open(std::move(told(0).bindings.at(0)->index), 10'000));
    BOOST_REQUIRE(told(1).bindings.size() == 1U);
    rings = memory::client_rings(client->view);
    actor = system().spawn<session>(client, dram());
    caf::anon_send(actor, doorbell_atom_v);
    run();
  }
  ~with_a_chain() {
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    actor = nullptr;
    run();
  }
  with_a_chain(const with_a_chain&) = delete;
  with_a_chain& operator=(const with_a_chain&) = delete;

  /// Asks for keys 1 to `count`.
  void prefetch(std::uint64_t count) { ask_for(memory::operation::prefetch, count); }
  void ask_for(memory::operation what, std::uint64_t count, std::uint64_t argument = 0) {
    for (std::uint64_t n = 1; n <= count; ++n) {
      memory::submission entry = entry_of(what, 7, argument);
      const full_key full = key_of(n);
      entry.key_size = full.size;
      std::memcpy(entry.key, full.bytes.data(), sizeof entry.key);
      entry.flags = 0;
      if (n == count) {
        entry.flags = memory::submission::flag_last;
        memory::prefetch_terms terms;
        terms.chain = 7;
        if (what == memory::operation::prefetch) terms.pack(entry);
      }
      rings.push(entry);
    }
    (void)rings.publish();
    caf::anon_send(actor, doorbell_atom_v);
    run();
  }
  void answer(blocks::edge_number edge, transfer_result what) {
    auto outcomes = std::make_shared<std::vector<transfer_outcome>>();
    for (const transfer& each : std::exchange(told(edge).reads, {})) outcomes->push_back({each.token, what});
    caf::anon_send(dram(), transfers_done_atom_v, transfer_outcomes_ptr(std::move(outcomes)));
    run();
  }
  /// How much of the chain is here, once that is answered.
  std::optional<std::uint64_t> length() {
    const auto one = rings.pop();
    return one ? std::optional(one->value) : std::nullopt;
  }

  memory::hint_writer hints;
  std::shared_ptr<session_resources> client = make_client(1);
  memory::client_rings rings;
  session_actor actor;
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_prefetch_goes_on_with_the_next_tier_where_the_first_one_has_nothing, with_a_chain) {
  hints.add(reduce_key(key_of(1).view(), 0));
  hints.add(reduce_key(key_of(2).view(), 0));
  prefetch(2);
  BOOST_REQUIRE_EQUAL(told(0).reads.size(), 2U);
  BOOST_TEST(told(1).reads.empty());
  answer(0, transfer_result::missing);
  BOOST_TEST(told(0).reads.empty());
  BOOST_REQUIRE_EQUAL(told(1).reads.size(), 2U);
  BOOST_TEST(!length().has_value(), "it is not over");
  answer(1, transfer_result::done);
  BOOST_TEST((length() == 2U));
}

BOOST_FIXTURE_TEST_CASE(a_prefetch_ends_where_no_tier_has_a_block, with_a_chain) {
  hints.add(reduce_key(key_of(1).view(), 0));
  prefetch(1);
  answer(0, transfer_result::failed);
  BOOST_REQUIRE_EQUAL(told(1).reads.size(), 1U);
  answer(1, transfer_result::missing);
  BOOST_TEST((length() == 0U));
}

BOOST_FIXTURE_TEST_CASE(a_tier_without_hints_is_asked_how_a_chain_goes_on_and_loaded_from, with_a_chain) {
  hints.add(reduce_key(key_of(1).view(), 0));
  for (const std::uint64_t n : {2U, 3U}) told(1).has.insert(reduce_key(key_of(n).view(), 0));
  told(1).answers_late = true;
  prefetch(4);
  BOOST_REQUIRE_EQUAL(told(1).questions.size(), 1U);
  BOOST_TEST((told(1).questions[0]->keys == std::vector{key_of(2), key_of(3), key_of(4)}));
  BOOST_TEST(told(1).questions[0]->instance == 1U);
  BOOST_TEST(told(0).questions.empty());
  BOOST_TEST(told(0).reads.size() == 1U, "meanwhile");
  answer(0, transfer_result::done);
  BOOST_TEST(!length().has_value(), "it is not over");
  answer_late(1);
  BOOST_REQUIRE_EQUAL(told(1).reads.size(), 2U);
  answer(1, transfer_result::done);
  BOOST_TEST((length() == 3U));
}

BOOST_FIXTURE_TEST_CASE(a_client_that_locates_a_chain_hears_how_far_all_tiers_reach, with_a_chain) {
  hints.add(reduce_key(key_of(1).view(), 0));
  for (const std::uint64_t n : {2U, 3U}) told(1).has.insert(reduce_key(key_of(n).view(), 0));
  ask_for(memory::operation::locate, 4, 1'000'000'000);
  BOOST_TEST((length() == 3U));
  BOOST_TEST(told(1).questions.size() == 1U);
  BOOST_TEST(told(0).reads.empty());
  BOOST_TEST(told(1).reads.empty());
  ask_for(memory::operation::locate, 4, 0);
  BOOST_TEST((length() == 1U));
  BOOST_TEST(told(1).questions.size() == 1U);
}

BOOST_FIXTURE_TEST_CASE(a_prefetch_ends_without_a_tier_that_does_not_answer_in_time, with_a_chain) {
  told(1).answers_late = true;
  prefetch(4);
  BOOST_TEST(!length().has_value());
  now() += std::chrono::milliseconds(50);
  scheduler().clock().advance_time(std::chrono::milliseconds(50));
  run();
  BOOST_TEST((length() == 0U));
  for (const std::uint64_t n : {1U, 2U, 3U, 4U}) told(1).has.insert(reduce_key(key_of(n).view(), 0));
  answer_late(1);
  BOOST_TEST(told(1).reads.empty());
}

BOOST_AUTO_TEST_SUITE_END()
