#include "actors/session.hpp"

#include <random>

#include "tests/actors/actor_fixture.hpp"

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
  std::uint32_t request = 0;
  for (int round = 0; round < 16; ++round) {
    while (rings.room() > 0) rings.push(entry_of(memory::operation::barrier, ++request));
    (void)rings.publish();
    ring(lazy_actor);
  }
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
