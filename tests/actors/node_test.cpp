#include "actors/node.hpp"

#include "tests/actors/actor_fixture.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

struct node_fixture : actor_fixture {
  node_fixture() {
    provide_memory();
    supervisor = system().spawn<node>(dram(), prefetch(), [this](const std::string& why) { reason = why; });
    run();
  }
  ~node_fixture() {
    caf::anon_send_exit(supervisor, caf::exit_reason::user_shutdown);
    supervisor = nullptr;
    run();
  }
  node_actor supervisor;
  std::string reason;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(node_actor_tests)

BOOST_FIXTURE_TEST_CASE(the_death_of_the_tier_is_fatal_and_says_so, node_fixture) {
  caf::anon_send_exit(dram(), caf::exit_reason::kill);
  run();
  BOOST_TEST(reason.find("DRAM tier") != std::string::npos);
}

BOOST_FIXTURE_TEST_CASE(the_death_of_the_planner_of_prefetches_is_fatal_and_says_so, node_fixture) {
  caf::anon_send_exit(prefetch(), caf::exit_reason::kill);
  run();
  BOOST_TEST(reason.find("prefetches died") != std::string::npos, reason);
}

BOOST_FIXTURE_TEST_CASE(the_death_of_a_session_actor_is_fatal_and_names_it, node_fixture) {
  const auto client = make_client(5);
  const auto opened = ask<session_actor>(supervisor, open_atom_v, session_ptr(client));
  BOOST_REQUIRE(opened);
  caf::anon_send_exit(*opened, caf::exit_reason::kill);
  run();
  BOOST_TEST(reason.find("session 5") != std::string::npos);
}

BOOST_FIXTURE_TEST_CASE(a_session_that_is_released_ends_quietly, node_fixture) {
  const auto client = make_client(5);
  BOOST_REQUIRE((ask<session_actor>(supervisor, open_atom_v, session_ptr(client))).has_value());
  const auto released = ask<outcome>(supervisor, release_atom_v, std::uint64_t{5});
  BOOST_REQUIRE(released);
  run();
  BOOST_TEST(reason.empty());
  const auto report = ask<report_ptr>(supervisor, report_atom_v);
  BOOST_REQUIRE(report);
  BOOST_TEST((*report)->sessions.empty());
  BOOST_TEST((*report)->dram.sessions.empty());
}

BOOST_FIXTURE_TEST_CASE(a_report_has_the_tier_and_every_session, node_fixture) {
  const auto first = make_client(1);
  const auto second = make_client(2);
  BOOST_REQUIRE((ask<session_actor>(supervisor, open_atom_v, session_ptr(first))).has_value());
  BOOST_REQUIRE((ask<session_actor>(supervisor, open_atom_v, session_ptr(second))).has_value());
  const auto report = ask<report_ptr>(supervisor, report_atom_v);
  BOOST_REQUIRE(report);
  BOOST_TEST((*report)->sessions.size() == 2U);
  BOOST_TEST((*report)->dram.capacity == std::uint64_t{8} << 20);
}

BOOST_FIXTURE_TEST_CASE(a_drained_node_has_no_session_that_reads, node_fixture) {
  const auto client = make_client(1);
  BOOST_REQUIRE((ask<session_actor>(supervisor, open_atom_v, session_ptr(client))).has_value());
  BOOST_TEST((ask<outcome>(supervisor, drain_atom_v)).has_value());
}

BOOST_AUTO_TEST_SUITE_END()
