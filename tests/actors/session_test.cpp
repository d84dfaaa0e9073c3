#include "actors/session.hpp"

#include <sys/ioctl.h>

#include <random>

#include "tests/actors/actor_fixture.hpp"
#include "transport/local/doorbell.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

struct session_fixture : actor_fixture {
  session_fixture() { provide_memory(); }

  ~session_fixture() {
    for (const session_actor& each : served) caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    served.clear();
    run();
  }
  session_fixture(const session_fixture&) = delete;
  session_fixture& operator=(const session_fixture&) = delete;

  session_actor serve(const std::shared_ptr<session_resources>& client) {
    auto actor = system().spawn<session>(client, dram());
    ring(actor);
    served.push_back(actor);
    return actor;
  }
  void ring(const session_actor& actor) {
    caf::anon_send(actor, doorbell_atom_v);
    run();
  }
  /// Rings with full rings again and again, and fetches nothing.
  void fill(memory::client_rings& rings, const session_actor& actor) {
    std::uint32_t request = 0;
    for (int round = 0; round < 16; ++round) {
      while (rings.room() > 0) rings.push(entry_of(memory::operation::barrier, ++request));
      (void)rings.publish();
      ring(actor);
    }
  }
  static std::vector<memory::completion> fetch(memory::client_rings& rings) {
    std::vector<memory::completion> all;
    while (const auto one = rings.pop()) all.push_back(*one);
    return all;
  }

  std::vector<session_actor> served;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(session_actor_tests)

BOOST_FIXTURE_TEST_CASE(a_commit_is_visible_in_the_index_before_its_completion_is_there, session_fixture) {
  const auto client = make_client(1);
  const auto actor = serve(client);
  memory::client_rings rings(client->view);
  rings.push(entry_of(memory::operation::grant, 1, 2));
  BOOST_TEST(rings.publish(), "an idle worker wants to be woken");
  ring(actor);
  BOOST_REQUIRE_EQUAL(fetch(rings).size(), 1U);
  rings.push(commit_of(*client, 2, 42));
  (void)rings.publish();
  ring(actor);
  const auto done = fetch(rings);
  BOOST_REQUIRE_EQUAL(done.size(), 1U);
  BOOST_TEST(done[0].request == 2U);
  BOOST_TEST(done[0].value == 1U);
  BOOST_TEST(index().find(reduce_key(key_of(42).view(), 0)) != 0U);
}

/// Wake-ups are the dearest part of a put: one for a client that sleeps, however much it asked for, and none else.
BOOST_FIXTURE_TEST_CASE(a_client_is_woken_once_for_a_sleep_and_never_while_it_is_awake, session_fixture) {
  const auto client = make_client(1);
  auto bell = local::make_doorbell();
  BOOST_REQUIRE(bell.has_value());
  client->complete_doorbell = std::move(bell->bell);
  const auto rings_so_far = [&] {
    int bytes = 0;
    BOOST_REQUIRE_EQUAL(::ioctl(bell->ear.get(), FIONREAD, &bytes), 0);
    return static_cast<std::size_t>(bytes) / sizeof(std::uint64_t);
  };
  const auto actor = serve(client);
  memory::client_rings rings(client->view);
  std::uint32_t request = 0;
  const auto ask = [&](int requests) {
    for (int i = 0; i < requests; ++i) rings.push(entry_of(memory::operation::barrier, ++request));
    static_cast<void>(rings.publish());
    ring(actor);
    return fetch(rings).size();
  };
  BOOST_TEST(ask(10) == 10U);
  BOOST_TEST(rings_so_far() == 0U);
  for (std::size_t sleep = 1; sleep <= 3; ++sleep) {
    BOOST_REQUIRE(rings.arm());
    BOOST_TEST(ask(10) == 10U);
    BOOST_TEST(ask(10) == 10U);
    BOOST_TEST(rings_so_far() == sleep);
  }
}

BOOST_FIXTURE_TEST_CASE(a_ring_tail_out_of_range_stops_that_session_and_no_other, session_fixture) {
  const auto bad = make_client(1);
  const auto good = make_client(2);
  const auto bad_actor = serve(bad);
  const auto good_actor = serve(good);
  bad->view.header().submit_tail.store(1U << 30);
  ring(bad_actor);
  memory::client_rings rings(good->view);
  rings.push(entry_of(memory::operation::barrier, 1));
  (void)rings.publish();
  ring(good_actor);
  BOOST_TEST(fetch(rings).size() == 1U);
}

BOOST_FIXTURE_TEST_CASE(completions_that_nobody_fetches_hold_back_only_their_own_session, session_fixture) {
  const auto lazy = make_client(1);
  const auto other = make_client(2);
  const auto lazy_actor = serve(lazy);
  const auto other_actor = serve(other);
  memory::client_rings rings(lazy->view);
  fill(rings, lazy_actor);
  BOOST_TEST(rings.room() == 0U, "a full completion ring must stop the reading of submissions");
  memory::client_rings others(other->view);
  others.push(entry_of(memory::operation::barrier, 1));
  (void)others.publish();
  ring(other_actor);
  BOOST_TEST(fetch(others).size() == 1U);
  // Once fetched, it goes on by itself.
  const auto before = fetch(rings).size();
  scheduler().trigger_timeouts();
  run();
  BOOST_TEST(before > 0U);
  BOOST_TEST(fetch(rings).size() > 0U);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_rings_again_and_again_and_fetches_nothing_costs_one_timer, session_fixture) {
  const auto client = make_client(1);
  const auto actor = serve(client);
  memory::client_rings rings(client->view);
  fill(rings, actor);
  for (int i = 0; i < 100; ++i) ring(actor);
  for (int i = 0; i < 3; ++i) {
    BOOST_TEST(scheduler().trigger_timeouts() == 1U);
    run();
  }
}

BOOST_FIXTURE_TEST_CASE(a_tier_that_answers_after_a_minute_is_slow_and_not_dead, session_fixture) {
  const auto client = make_client(1);
  const auto actor = serve(client);
  memory::client_rings rings(client->view);
  rings.push(entry_of(memory::operation::barrier, 1));
  (void)rings.publish();
  caf::anon_send(actor, doorbell_atom_v);
  scheduler().run_once();  // the session's turn, not yet the tier's
  scheduler().advance_time(std::chrono::minutes(1));
  run();
  BOOST_TEST(fetch(rings).size() == 1U);
  rings.push(entry_of(memory::operation::barrier, 2));
  (void)rings.publish();
  ring(actor);
  BOOST_TEST(fetch(rings).size() == 1U);
}

BOOST_FIXTURE_TEST_CASE(random_ring_bytes_never_end_the_actor, session_fixture) {
  const auto client = make_client(1);
  const auto actor = serve(client);
  std::mt19937_64 random(7);
  memory::client_rings rings(client->view);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t n = std::min<std::uint64_t>(rings.room(), 1 + random() % 64);
    for (std::uint64_t i = 0; i < n; ++i) {
      memory::submission entry;
      auto* words = reinterpret_cast<std::uint64_t*>(&entry);
      for (std::size_t w = 0; w < sizeof entry / 8; ++w) words[w] = random();
      entry.op = static_cast<memory::operation>(random() % 12);
      if (random() % 2 == 0) entry.key_size = static_cast<std::uint8_t>(random() % 70);
      if (random() % 2 == 0) entry.group = 0;
      rings.push(entry);
    }
    (void)rings.publish();
    ring(actor);
    fetch(rings);
  }
  const auto report = ask<session_report>(actor, report_atom_v);
  BOOST_TEST(report.has_value());
}

namespace {

/// A session beside an actor of groups that keeps what it is given.
struct group_session_fixture : session_fixture {
  group_session_fixture() {
    groups = system().spawn([seen = seen]() -> consensus_actor::behavior_type {
      return {[seen](group_requests_atom, const group_requests_ptr& requests) {
                seen->insert(seen->end(), requests->entries.begin(), requests->entries.end());
              },
              [](disconnect_atom, std::uint64_t) {},
              [](group_members_atom, const group_members_ptr&) {},
              [](group_frame_atom, const group_frame_ptr&) {},
              [](wake_atom, std::uint64_t) {},
              [](report_atom) { return tier_report_ptr(); }};
    });
  }
  ~group_session_fixture() { caf::anon_send_exit(groups, caf::exit_reason::user_shutdown); }
  group_session_fixture(const group_session_fixture&) = delete;
  group_session_fixture& operator=(const group_session_fixture&) = delete;

  session_actor serve_with_groups(const std::shared_ptr<session_resources>& client) {
    auto actor = system().spawn<session>(client, dram(), groups);
    ring(actor);
    served.push_back(actor);
    return actor;
  }
  void answer(const session_actor& to, std::size_t first, std::size_t count) {
    auto completions = std::make_shared<std::vector<memory::completion>>();
    for (std::size_t i = first; i < first + count; ++i)
      completions->push_back({.request = (*seen)[i].request, .kind = memory::completion_kind::done});
    caf::anon_send(to, answer_atom_v, completions_ptr(std::move(completions)));
    run();
  }

  std::shared_ptr<std::vector<memory::submission>> seen = std::make_shared<std::vector<memory::submission>>();
  consensus_actor groups;
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(what_concerns_groups_of_ranks_goes_to_their_actor_and_the_rest_to_the_tier,
                        group_session_fixture) {
  const auto client = make_client(1);
  const auto actor = serve_with_groups(client);
  memory::client_rings rings(client->view);
  rings.push(entry_of(memory::operation::barrier, 1));
  rings.push(entry_of(memory::operation::join, 2));
  rings.push(entry_of(memory::operation::agree, 3));
  rings.push(entry_of(memory::operation::barrier, 4));
  rings.push(entry_of(memory::operation::leave, 5));
  (void)rings.publish();
  ring(actor);
  BOOST_REQUIRE_EQUAL(seen->size(), 3U);
  BOOST_TEST(((*seen)[0].request == 2 && (*seen)[1].request == 3 && (*seen)[2].request == 5));
  const auto barriers = fetch(rings);
  BOOST_REQUIRE_EQUAL(barriers.size(), 2U);
  BOOST_TEST((barriers[0].request == 1 && barriers[1].request == 4));
  BOOST_TEST(rings.room() == memory::session_memory::submissions, "no place waits for an answer");
  answer(actor, 0, 3);
  BOOST_TEST(fetch(rings).size() == 3U);
}

BOOST_FIXTURE_TEST_CASE(without_an_actor_of_groups_their_requests_are_malformed, session_fixture) {
  const auto client = make_client(1);
  const auto actor = serve(client);
  memory::client_rings rings(client->view);
  rings.push(entry_of(memory::operation::join, 1));
  (void)rings.publish();
  ring(actor);
  const auto refused = fetch(rings);
  BOOST_REQUIRE_EQUAL(refused.size(), 1U);
  BOOST_TEST(refused[0].code == static_cast<std::uint16_t>(error_code::malformed));
}

BOOST_FIXTURE_TEST_CASE(a_flood_of_questions_is_read_as_far_as_it_is_answered, group_session_fixture) {
  const auto client = make_client(1);
  const auto actor = serve_with_groups(client);
  memory::client_rings rings(client->view);
  std::uint32_t pushed = 0;
  const auto fill = [&] {
    while (rings.room() > 0) rings.push(entry_of(memory::operation::agree, ++pushed));
    (void)rings.publish();
    ring(actor);
  };
  for (int i = 0; i < 10; ++i) fill();
  const std::size_t read = seen->size();
  BOOST_TEST(read < pushed, "the rest waits in the ring");
  BOOST_TEST(read <= 2U * memory::session_memory::submissions);
  answer(actor, 0, read);
  BOOST_TEST(seen->size() > read, "it goes on when they are answered");
  BOOST_TEST(fetch(rings).size() == read);
}

BOOST_FIXTURE_TEST_CASE(a_draining_session_answers_and_reads_nothing_more, session_fixture) {
  const auto client = make_client(1);
  const auto actor = serve(client);
  BOOST_TEST((ask<outcome>(actor, drain_atom_v)).has_value());
  memory::client_rings rings(client->view);
  rings.push(entry_of(memory::operation::barrier, 1));
  (void)rings.publish();
  ring(actor);
  BOOST_TEST(fetch(rings).empty());
}

BOOST_AUTO_TEST_SUITE_END()
