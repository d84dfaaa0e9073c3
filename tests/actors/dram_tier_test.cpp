#include <map>
#include <string>

#include "actors/ask.hpp"
#include "tests/actors/actor_fixture.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

batch_ptr batch_of(std::uint64_t session, std::vector<memory::submission> entries) {
  auto work = std::make_shared<blocks::batch>();
  work->session = session;
  work->entries = std::move(entries);
  return work;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(dram_tier_actor_tests)

BOOST_FIXTURE_TEST_CASE(a_batch_that_needs_memory_waits_for_the_slab_and_is_answered_then, actor_fixture) {
  const auto client = make_client(1);
  const auto work = batch_of(1, {entry_of(memory::operation::grant, 7, 4)});
  caf::scoped_actor self(system());
  auto handle = self->request(dram(), std::chrono::seconds(10), run_atom_v, work);
  run();
  BOOST_TEST(work->completions.empty());
  BOOST_TEST(!requests().empty());
  provide_memory();
  bool answered = false;
  handle.receive([&](const batch_ptr& done) { answered = done == work; }, [](const caf::error&) {});
  BOOST_TEST(answered);
  BOOST_REQUIRE_EQUAL(work->completions.size(), 1U);
  BOOST_TEST(work->completions[0].value == 4U);
}

BOOST_FIXTURE_TEST_CASE(a_slab_that_cannot_be_made_ends_the_wait_with_no_space, actor_fixture) {
  const auto client = make_client(1);
  const auto work = batch_of(1, {entry_of(memory::operation::grant, 7, 1)});
  caf::scoped_actor self(system());
  auto handle = self->request(dram(), std::chrono::seconds(10), run_atom_v, work);
  run();
  while (!requests().empty()) {
    auto failed = std::make_shared<blocks::slab_outcome>();
    failed->slab = requests().front().slab;
    failed->status = fail(error_code::system, "out of memory");
    requests().erase(requests().begin());
    caf::anon_send(dram(), slab_atom_v, failed);
    run();
  }
  handle.receive([](const batch_ptr&) {}, [](const caf::error&) { BOOST_TEST(false, "the batch was not answered"); });
  BOOST_REQUIRE_EQUAL(work->completions.size(), 1U);
  BOOST_TEST(work->completions[0].code == static_cast<std::uint16_t>(error_code::no_space));
}

BOOST_FIXTURE_TEST_CASE(the_end_of_a_session_answers_its_waiting_batch_with_an_error, actor_fixture) {
  const auto client = make_client(1);
  const auto work = batch_of(1, {entry_of(memory::operation::grant, 7, 1)});
  caf::scoped_actor self(system());
  auto handle = self->request(dram(), std::chrono::seconds(10), run_atom_v, work);
  run();
  const auto released = ask<outcome>(dram(), release_atom_v, std::uint64_t{1});
  BOOST_TEST(released.has_value());
  bool failed = false;
  handle.receive([](const batch_ptr&) {}, [&](const caf::error&) { failed = true; });
  BOOST_TEST(failed);
}

namespace {

/// Touch records that name one block each, so many that they take several turns, and a barrier.
batch_ptr long_batch_of(std::uint64_t session, const blocks::slab_description& slab) {
  std::vector<memory::submission> entries;
  for (std::uint32_t n = 0; n < 40'000; ++n) {
    memory::submission entry = entry_of(memory::operation::touch, n);
    const std::uint64_t run = memory::touch_runs::make(memory::block_ref(slab.index, n % slab.count), 1);
    std::memcpy(entry.key, &run, sizeof run);
    entry.key_size = sizeof run;
    entries.push_back(entry);
  }
  entries.push_back(entry_of(memory::operation::barrier, 99'999));
  return batch_of(session, std::move(entries));
}

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_batch_that_takes_long_does_not_hold_up_another_sessions, actor_fixture) {
  const auto first = make_client(1);
  const auto second = make_client(2);
  const blocks::slab_description slab = requests().at(0).slab;
  provide_memory();
  const batch_ptr slow = long_batch_of(1, slab);
  const batch_ptr quick = batch_of(2, {entry_of(memory::operation::barrier, 1)});
  std::vector<std::uint64_t> answered;  // sessions, in order
  const auto asker = system().spawn([&](caf::event_based_actor* self) {
    for (const batch_ptr& each : {slow, quick}) {
      self->request(dram(), std::chrono::seconds(10), run_atom_v, each).then([&](const batch_ptr& done) {
        answered.push_back(done->session);
      });
    }
  });
  run();
  BOOST_REQUIRE_EQUAL(answered.size(), 2U);
  BOOST_TEST(answered[0] == 2U);
  BOOST_TEST(slow->completions.size() == 1U);
}

BOOST_FIXTURE_TEST_CASE(the_end_of_a_session_ends_its_batch_between_two_turns, actor_fixture) {
  const auto client = make_client(1);
  const blocks::slab_description slab = requests().at(0).slab;
  provide_memory();
  caf::scoped_actor self(system());
  auto handle = self->request(dram(), std::chrono::seconds(10), run_atom_v, long_batch_of(1, slab));
  scheduler().run_once();  // its first turn
  const auto released = ask<outcome>(dram(), release_atom_v, std::uint64_t{1});
  BOOST_TEST(released.has_value());
  bool failed = false;
  handle.receive([](const batch_ptr&) {}, [&](const caf::error&) { failed = true; });
  BOOST_TEST(failed);
}

BOOST_FIXTURE_TEST_CASE(a_wipe_is_answered_with_what_it_forgot, actor_fixture) {
  const auto client = make_client(1);
  provide_memory();
  BOOST_REQUIRE(ask<batch_ptr>(dram(), run_atom_v, batch_of(1, {entry_of(memory::operation::grant, 1, 1)})));
  BOOST_REQUIRE(ask<batch_ptr>(dram(), run_atom_v, batch_of(1, {commit_of(*client, 2, 42)})));
  const auto wiped = ask<outcome>(dram(), clear_atom_v, std::string("demo"));
  BOOST_REQUIRE(wiped);
  BOOST_TEST(wiped->value == 1U);
  BOOST_TEST(index().find(reduce_key(key_of(42).view(), 0)) == 0U);
  const auto unknown = ask<outcome>(dram(), clear_atom_v, std::string("nobody"));
  BOOST_REQUIRE(unknown);
  BOOST_TEST((unknown->code == error_code::invalid_argument));
}

instance_request_ptr request_of(const instance_spec& spec) {
  auto made = std::make_shared<instance_request>();
  made->spec = spec;
  return made;
}

/// Asks the tier for instances and keeps the answers.
struct instance_fixture : actor_fixture {
  using actor_fixture::actor_fixture;
  using promised = std::shared_ptr<opened_instance_ptr>;

  promised open(const instance_request_ptr& request) {
    auto got = std::make_shared<opened_instance_ptr>();
    ask_then<opened_instance_ptr>(
        system(), [] { return true; },
        [got](const result<opened_instance_ptr>& came) {
          if (came) *got = *came;
        },
        dram(), open_instance_atom_v, request);
    run();
    return got;
  }
};

BOOST_FIXTURE_TEST_CASE(an_instance_with_another_spec_is_refused_and_the_field_is_named, instance_fixture) {
  instance_spec other = small_spec();
  other.dtype = "fp8";
  const auto answer = *open(request_of(other));
  BOOST_REQUIRE(answer);
  BOOST_TEST((answer->status.code == error_code::spec_mismatch));
  BOOST_TEST(answer->status.message.find("dtype") != std::string::npos);
}

BOOST_FIXTURE_TEST_CASE(an_instance_that_exists_is_opened_while_another_one_is_made, instance_fixture) {
  const auto fresh = open(request_of(small_spec("fresh")));
  BOOST_TEST(!*fresh);
  const auto there = open(request_of(small_spec()));
  BOOST_REQUIRE(*there);
  BOOST_TEST(((*there)->number == 1U));
  BOOST_TEST(((*there)->index && (*there)->versions));
  make_wanted(2);
  BOOST_REQUIRE(*fresh);
  BOOST_TEST(((*fresh)->number == 2U));
  BOOST_TEST(((*fresh)->index && (*fresh)->versions));
}

BOOST_FIXTURE_TEST_CASE(two_who_want_the_same_new_instance_share_one, instance_fixture) {
  const auto first = open(request_of(small_spec("fresh")));
  const auto second = open(request_of(small_spec("fresh")));
  instance_spec other = small_spec("fresh");
  other.dtype = "fp8";
  const auto third = open(request_of(other));
  make_wanted(2);
  BOOST_TEST(wanted().wanted.empty());
  BOOST_REQUIRE((*first && *second && *third));
  BOOST_TEST(((*first)->number == 2U));
  BOOST_TEST(((*second)->number == 2U));
  BOOST_TEST(((*third)->status.code == error_code::spec_mismatch));
}

BOOST_FIXTURE_TEST_CASE(an_instance_that_cannot_be_made_is_refused_and_the_next_one_is_made, instance_fixture) {
  const auto first = open(request_of(small_spec("one")));
  const auto second = open(request_of(small_spec("two")));
  make_wanted(2, {error_code::system, "no descriptors", 0});
  BOOST_REQUIRE(*first);
  BOOST_TEST(((*first)->status.code == error_code::system));
  BOOST_TEST(!*second);
  make_wanted(3);
  BOOST_REQUIRE(*second);
  BOOST_TEST(((*second)->number == 3U));
}

BOOST_FIXTURE_TEST_CASE(an_instance_that_nobody_waits_for_any_more_is_not_made, instance_fixture) {
  const auto first = open(request_of(small_spec("one")));
  const auto left = request_of(small_spec("two"));
  const auto second = open(left);
  left->is_given_up = true;
  make_wanted(2);
  BOOST_TEST(*first);
  BOOST_TEST(wanted().wanted.empty());
}

BOOST_FIXTURE_TEST_CASE(an_instance_that_comes_too_late_is_there_for_the_next, instance_fixture) {
  const auto late = request_of(small_spec("one"));
  (void)open(late);
  late->is_given_up = true;
  make_wanted(2);
  const auto next = open(request_of(small_spec("one")));
  BOOST_REQUIRE(*next);
  BOOST_TEST(((*next)->number == 2U));
}

BOOST_FIXTURE_TEST_CASE(a_number_that_is_taken_is_given_back, instance_fixture) {
  const auto fresh = open(request_of(small_spec("fresh")));
  make_wanted(1);
  BOOST_REQUIRE(*fresh);
  BOOST_TEST(((*fresh)->status.code == error_code::internal));
  BOOST_TEST((wanted().discarded == std::vector<blocks::instance_number>{1}));
}

BOOST_AUTO_TEST_CASE(an_instance_is_opened_when_the_hints_of_the_tier_below_are_in_its_index) {
  instance_fixture at(below::a_tier);
  at.told().binds_late = true;
  const auto first = at.open(request_of(small_spec("fresh")));
  at.make_wanted(2);
  const auto second = at.open(request_of(small_spec("fresh")));
  const auto there = at.open(request_of(small_spec()));
  BOOST_TEST((!*first && !*second));
  BOOST_TEST(*there, "that of another one does not wait");
  at.answer_late(0);
  BOOST_REQUIRE((*first && *second));
  BOOST_TEST(((*first)->number == 2U && (*first)->index));
  BOOST_TEST(((*second)->number == 2U && (*second)->index));
}

BOOST_AUTO_TEST_CASE(an_instance_is_opened_though_the_tier_below_does_not_say_that_its_hints_are_there) {
  instance_fixture at(below::a_tier);
  at.told().binds_late = true;
  const auto fresh = at.open(request_of(small_spec("fresh")));
  at.make_wanted(2);
  BOOST_TEST(!*fresh);
  at.scheduler().clock().advance_time(std::chrono::seconds(1));
  at.run();
  BOOST_TEST(*fresh);
}

BOOST_AUTO_TEST_CASE(an_instance_is_opened_without_the_word_of_a_tier_that_keeps_no_hints) {
  instance_fixture at(below::two_tiers);
  at.told(1).binds_late = true;
  const auto fresh = at.open(request_of(small_spec("fresh")));
  at.make_wanted(2);
  BOOST_TEST(*fresh);
}

memory::submission remove_of(std::uint32_t request, std::uint64_t key) {
  memory::submission entry = entry_of(memory::operation::remove, request);
  const full_key full = key_of(key);
  entry.key_size = full.size;
  std::memcpy(entry.key, full.bytes.data(), sizeof entry.key);
  return entry;
}

struct fixture_with_a_tier_below : actor_fixture {
  fixture_with_a_tier_below() : actor_fixture(below::a_tier) {}

  /// Codes of a batch's answers by their requests; empty when it was not answered.
  std::map<std::uint32_t, error_code> codes_of(std::vector<memory::submission> entries) {
    std::map<std::uint32_t, error_code> codes;
    const auto done = ask<batch_ptr>(dram(), run_atom_v, batch_of(1, std::move(entries)));
    if (!done) return codes;
    for (const memory::completion& each : (*done)->completions) {
      codes.emplace(each.request, static_cast<error_code>(each.code));
    }
    return codes;
  }
};

BOOST_FIXTURE_TEST_CASE(a_removal_that_is_not_written_down_is_not_answered_as_done, fixture_with_a_tier_below) {
  const auto client = make_client(1);
  told().forget_answer = {error_code::removal_pending, "no space", 0};
  auto codes =
      codes_of({entry_of(memory::operation::barrier, 7), remove_of(8, 1), entry_of(memory::operation::clear, 9)});
  BOOST_TEST((codes.at(7) == error_code::ok), "the rest of the batch has its own answer");
  BOOST_TEST((codes.at(8) == error_code::removal_pending));
  BOOST_TEST((codes.at(9) == error_code::removal_pending));
  told().forget_answer = {};
  codes = codes_of({remove_of(8, 1), entry_of(memory::operation::clear, 9)});
  BOOST_TEST((codes.at(8) == error_code::ok));
  BOOST_TEST((codes.at(9) == error_code::ok));
}

BOOST_FIXTURE_TEST_CASE(answers_to_removals_are_counted_by_their_outcome, fixture_with_a_tier_below) {
  const auto client = make_client(1);
  const auto clear = [&] { return ask<outcome>(dram(), clear_atom_v, std::string()); };
  codes_of({entry_of(memory::operation::barrier, 7), remove_of(8, 1), remove_of(9, 3)});
  BOOST_REQUIRE(clear().has_value());
  told().forget_answer = {error_code::removal_pending, "no space", 0};
  codes_of({remove_of(8, 1)});
  told().forget_answer = {error_code::internal, "a fault", 0};
  codes_of({remove_of(8, 1), entry_of(memory::operation::clear, 9)});
  const auto report = ask<dram_report_ptr>(dram(), report_atom_v);
  BOOST_REQUIRE(report.has_value());
  const blocks::store_counters& counters = (*report)->store.counters;
  BOOST_TEST(counters.removals_done == 3U);
  BOOST_TEST(counters.removals_pending == 1U);
  BOOST_TEST(counters.removals_failed == 2U);
}

BOOST_FIXTURE_TEST_CASE(a_removal_that_the_tier_below_never_answers_is_not_done, fixture_with_a_tier_below) {
  const auto client = make_client(1);
  told().silent = true;
  const auto work = batch_of(1, {remove_of(8, 1)});
  caf::scoped_actor self(system());
  auto handle = self->request(dram(), std::chrono::seconds(60), run_atom_v, work);
  auto wipe = self->request(dram(), std::chrono::seconds(60), clear_atom_v, std::string());
  run();
  BOOST_REQUIRE_EQUAL(told().unanswered.size(), 2U);
  for (int second = 0; second < 30; ++second) {
    scheduler().clock().advance_time(std::chrono::seconds(1));
    caf::anon_send(dram(), tick_atom_v);
    run();
  }
  handle.receive([](const batch_ptr&) {}, [](const caf::error&) { BOOST_TEST(false, "the batch was not answered"); });
  BOOST_REQUIRE_EQUAL(work->completions.size(), 1U);
  BOOST_TEST((work->completions[0].code == static_cast<std::uint16_t>(error_code::removal_pending)));
  wipe.receive([](const outcome& cleared) { BOOST_TEST((cleared.code == error_code::removal_pending)); },
               [](const caf::error&) { BOOST_TEST(false, "the wipe was not answered"); });
}

BOOST_FIXTURE_TEST_CASE(clear_all_reaches_instances_that_only_the_tier_below_knows, fixture_with_a_tier_below) {
  told().forget_answer = {error_code::removal_pending, "one path (why)", 0};
  const auto cleared = ask<outcome>(dram(), clear_atom_v, std::string());
  BOOST_REQUIRE(cleared.has_value());
  BOOST_TEST((cleared->code == error_code::removal_pending));
  BOOST_TEST(cleared->message == "one path (why)");
  BOOST_REQUIRE_EQUAL(told().removals.size(), 1U);
  BOOST_TEST(told().removals[0]->front().instance == 0U);
  BOOST_TEST(told().removals[0]->front().all);
}

BOOST_AUTO_TEST_CASE(a_block_on_its_way_down_goes_below_before_its_removal) {
  memory::submission commit;
  {
    actor_fixture learns_what_is_granted_first(below::a_tier_that_gets_all);
    const auto client = learns_what_is_granted_first.make_client(1);
    learns_what_is_granted_first.provide_memory();
    learns_what_is_granted_first.ask<batch_ptr>(learns_what_is_granted_first.dram(), run_atom_v,
                                                batch_of(1, {entry_of(memory::operation::grant, 7, 1)}));
    commit = commit_of(*client, 8, 1);
  }
  actor_fixture at(below::a_tier_that_gets_all);
  const auto client = at.make_client(1);
  // It waits for memory, and is carried out as a whole when that comes.
  const auto work = batch_of(1, {entry_of(memory::operation::grant, 7, 1), commit, remove_of(9, 1)});
  caf::scoped_actor self(at.system());
  auto handle = self->request(at.dram(), std::chrono::seconds(10), run_atom_v, work);
  at.run();
  BOOST_REQUIRE(work->completions.empty());
  at.provide_memory();
  handle.receive([](const batch_ptr&) {}, [](const caf::error&) { BOOST_TEST(false, "the batch was not answered"); });
  BOOST_REQUIRE_EQUAL(work->completions.size(), 3U);
  for (const memory::completion& each : work->completions) BOOST_TEST(each.code == 0U);
  BOOST_TEST((at.told().order == std::vector<std::string>{"write", "forget"}));
}

/// Has one block, which no tier below has.
struct tier_with_a_block : actor_fixture {
  tier_with_a_block() : actor_fixture(below::two_tiers) {
    provide_memory();
    BOOST_REQUIRE(ask<batch_ptr>(dram(), run_atom_v, batch_of(1, {entry_of(memory::operation::grant, 1, 1)})));
    BOOST_REQUIRE(ask<batch_ptr>(dram(), run_atom_v, batch_of(1, {commit_of(*client, 2, 42)})));
  }
  const std::shared_ptr<session_resources> client = make_client(1);
};

BOOST_FIXTURE_TEST_CASE(a_tier_that_stops_answers_when_the_tier_below_has_what_it_alone_had, tier_with_a_block) {
  caf::scoped_actor self(system());
  auto handle =
      self->request(dram(), std::chrono::seconds(10), last_writes_atom_v, caf::timespan(std::chrono::hours(1)));
  run();
  BOOST_REQUIRE_EQUAL(told().writes.size(), 1U);
  BOOST_TEST(told(1).writes.empty());
  BOOST_TEST((told().writes.front().full == key_of(42)));
  BOOST_TEST(!self->has_next_message());
  const transfer_outcome done{told().writes.front().token, transfer_result::done};
  caf::anon_send(dram(), transfers_done_atom_v, std::make_shared<const std::vector<transfer_outcome>>(1, done));
  run();
  handle.receive(
      [](const outcome& answer) {
        BOOST_TEST((answer.code == error_code::ok), answer.message);
        BOOST_TEST(answer.value == 1U);
      },
      [](const caf::error&) { BOOST_TEST(false, "it was not answered"); });
}

BOOST_FIXTURE_TEST_CASE(a_tier_that_stops_without_time_answers_at_once_and_counts_what_is_lost, tier_with_a_block) {
  const auto ended = ask<outcome>(dram(), last_writes_atom_v, caf::timespan(0));
  BOOST_REQUIRE(ended);
  BOOST_TEST((ended->code == error_code::deadline_exceeded));
  BOOST_TEST(ended->message == "0 blocks were handed on, 1 were not in time");
  BOOST_TEST(told().writes.empty());
}

BOOST_AUTO_TEST_CASE(a_tier_that_stops_with_none_below_has_nothing_to_do) {
  actor_fixture at;
  const auto ended = at.ask<outcome>(at.dram(), last_writes_atom_v, caf::timespan(std::chrono::hours(1)));
  BOOST_REQUIRE(ended);
  BOOST_TEST((ended->code == error_code::invalid_argument));
}

BOOST_AUTO_TEST_SUITE_END()
