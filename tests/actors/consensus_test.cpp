#include "actors/consensus.hpp"

#include <caf/scheduler/test_coordinator.hpp>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>

#include "actors/session.hpp"
#include "tests/actors/actor_fixture.hpp"
#include "tests/support/numbered_identity.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

using memory::submission;
using std::chrono::milliseconds;

class consensus_config : public deterministic_config {
 public:
  consensus_config() { add_message_types<caf::id_block::cenote_cluster>(); }
};

constexpr std::uint64_t this_worker = 7;

/// A session's actor of which only the answers are looked at.
struct fake_session {
  std::shared_ptr<session_resources> resources = std::make_shared<session_resources>();
  std::shared_ptr<std::vector<memory::completion>> answers = std::make_shared<std::vector<memory::completion>>();
  std::shared_ptr<std::size_t> messages = std::make_shared<std::size_t>(0);
  session_actor actor;
};

/// What became of one request.
struct outcome_of {
  std::size_t answers = 0;  ///< that end it
  error_code code = error_code::ok;
  std::uint64_t value = 0;
  std::string text;
};

/// A node: its consensus actor, and what that one has sent to others.
struct fake_node {
  std::string name;
  peer::incarnation born;
  std::shared_ptr<std::vector<group_sayings_ptr>> said = std::make_shared<std::vector<group_sayings_ptr>>();
  cluster_actor cluster{};
  consensus_actor actor{};
};

struct consensus_fixture {
  consensus_fixture() : system(config) { alone = start("local", 1); }
  ~consensus_fixture() {
    for (const fake_session& each : sessions) caf::anon_send_exit(each.actor, caf::exit_reason::user_shutdown);
    for (const fake_node& each : nodes) {
      caf::anon_send_exit(each.actor, caf::exit_reason::user_shutdown);
      caf::anon_send_exit(each.cluster, caf::exit_reason::user_shutdown);
    }
    sessions.clear();
    nodes.clear();
    alone = {};
    run();
  }
  consensus_fixture(const consensus_fixture&) = delete;
  consensus_fixture& operator=(const consensus_fixture&) = delete;

  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  }
  void run() { scheduler().run(); }
  void pass(milliseconds time) {
    for (milliseconds done{0}; done < time; done += milliseconds(10)) {
      *now += milliseconds(10);
      scheduler().advance_time(milliseconds(10));
      run();
    }
  }

  fake_node start(const std::string& name, std::uint64_t life) {
    fake_node made{.name = name, .born = peer::incarnation::of(life, this_worker)};
    const auto said = made.said;
    made.cluster = system.spawn([said]() -> cluster_actor::behavior_type {
      return {[](link_atom, const link_event_ptr&) {},
              [](begin_atom, const cluster_start_ptr&) {},
              [](look_atom, std::uint64_t) {},
              [](frame_atom, std::uint64_t, const node_frame_ptr&) {},
              [said](group_sayings_atom, const group_sayings_ptr& what) { said->push_back(what); },
              [](ping_atom, const std::string&, const payload_ptr& payload) { return payload; },
              [](partition_atom, const partition_order_ptr&) { return outcome{}; },
              [](weigh_atom, bool) { return outcome{}; },
              [](leave_atom) { return outcome{}; },
              [](report_atom) { return tier_report_ptr(); }};
    });
    made.actor = system.spawn<consensus>(name, made.born, this_worker, cluster::agreement_options{},
                                         [now = now] { return *now; });
    nodes.push_back(made);
    run();
    return made;
  }

  /// Both know of each other from now on.
  void connect(const fake_node& one, const fake_node& other) {
    tell_members(one, {{other.name, other.born}});
    tell_members(other, {{one.name, one.born}});
  }
  void tell_members(const fake_node& whom, std::vector<cluster::live_node> live) {
    caf::anon_send(
        whom.actor, group_members_atom_v,
        std::make_shared<const group_members>(caf::actor_cast<caf::strong_actor_ptr>(whom.cluster), std::move(live)));
    run();
  }
  /// Frames go to and fro until nobody has anything to say.
  void exchange(const fake_node& one, const fake_node& other) {
    while (!one.said->empty() || !other.said->empty()) {
      for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
        for (const group_sayings_ptr& all : std::exchange(*from.said, {})) {
          for (const cluster::agreement_frame& each : all->frames) hear(to, from, each.type, each.body);
        }
      }
    }
  }
  void hear(const fake_node& whom, const fake_node& from, peer::frame_type type, std::vector<std::byte> body) {
    caf::anon_send(whom.actor, group_frame_atom_v,
                   std::make_shared<const group_frame>(from.name, 11, from.born, type, std::move(body)));
    run();
  }

  fake_session& attach(const numbered_identity& identity = 1, const share_holder& owner = {}) {
    fake_session& made = sessions.emplace_back();
    made.resources->number = sessions.size();
    made.resources->shared_identity = identity;
    made.resources->uid = owner.uid;
    made.resources->instance_group = owner.group;
    made.actor = system.spawn([answers = made.answers, messages = made.messages]() -> session_actor::behavior_type {
      return {[](doorbell_atom) {}, [](wake_atom, std::uint64_t) {},
              [answers, messages](answer_atom, const completions_ptr& some) {
                ++*messages;
                answers->insert(answers->end(), some->begin(), some->end());
              },
              [](report_atom) { return session_report{}; }, [](drain_atom) { return outcome{}; }};
    });
    return made;
  }

  void ask(fake_session& who, std::vector<submission> entries, const consensus_actor& whom) {
    auto requests = std::make_shared<group_requests>();
    requests->session = who.resources;
    requests->answers_to = caf::actor_cast<caf::strong_actor_ptr>(who.actor);
    requests->entries = std::move(entries);
    caf::anon_send(whom, group_requests_atom_v, group_requests_ptr(std::move(requests)));
    run();
  }
  void ask(fake_session& who, const submission& entry) { ask(who, {entry}, alone.actor); }

  /// Ranks 0 to count - 1 of a group, a session each; all have joined under handle 1.
  std::vector<fake_session*> form(std::uint32_t count, const std::string& name = "g") {
    std::vector<fake_session*> ranks;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      ranks.push_back(&attach());
      ask(*ranks.back(), join_entry(name, rank, count, 1));
    }
    for (const fake_session* each : ranks)
      BOOST_REQUIRE((of(*each, 1).answers == 1 && of(*each, 1).code == error_code::ok));
    return ranks;
  }

  static submission request(std::uint32_t number, submission entry) {
    entry.request = number;
    entry.flags = submission::flag_last;
    return entry;
  }
  static submission join_entry(const std::string& name, std::uint32_t rank, std::uint32_t size, std::uint32_t handle,
                               milliseconds patience = std::chrono::seconds(10)) {
    submission entry;
    memory::join_terms{
        .name = name, .rank = rank, .size = size, .patience = patience, .handle = handle, .epoch = this_worker}
        .pack(entry);
    return request(handle, entry);  // in these tests a join's request has the number of its handle
  }
  static submission agree_entry(std::uint32_t number, std::uint64_t question, std::uint64_t length,
                                std::uint32_t handle = 1, milliseconds timeout = milliseconds(500)) {
    submission entry;
    memory::agree_terms{
        .question = question, .length = length, .timeout = timeout, .handle = handle, .epoch = this_worker}
        .pack(entry);
    return request(number, entry);
  }
  static submission leave_entry(std::uint32_t number, std::uint32_t handle = 1) {
    submission entry;
    entry.op = memory::operation::leave;
    entry.grant_version = handle;
    entry.parent = this_worker;
    return request(number, entry);
  }

  static outcome_of of(const fake_session& who, std::uint32_t request) {
    outcome_of found;
    for (const memory::completion& each : *who.answers) {
      if (each.request != request) continue;
      if (each.kind == memory::completion_kind::text) memory::refusal_text::append(found.text, each);
      if (each.kind != memory::completion_kind::done) continue;
      ++found.answers;
      found.code = static_cast<error_code>(each.code);
      found.value = each.value;
    }
    return found;
  }
  static bool refused(const fake_session& who, std::uint32_t request, error_code code, std::string_view words) {
    const outcome_of found = of(who, request);
    BOOST_TEST_MESSAGE(found.text);
    return found.answers == 1 && found.code == code && found.text.find(words) != std::string::npos;
  }
  static bool decided(const fake_session& who, std::uint32_t request, std::uint64_t length) {
    const outcome_of found = of(who, request);
    return found.answers == 1 && found.code == error_code::ok && found.value == length;
  }

  consensus_config config;
  caf::actor_system system;
  std::shared_ptr<cluster::steady_time> now =
      std::make_shared<cluster::steady_time>(cluster::steady_time(std::chrono::hours(1)));
  std::deque<fake_session> sessions;
  std::vector<fake_node> nodes;
  fake_node alone;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(consensus_actor_tests)

BOOST_FIXTURE_TEST_CASE(a_group_of_one_agrees_with_itself, consensus_fixture) {
  const auto ranks = form(1);
  ask(*ranks[0], agree_entry(2, 5, 33));
  BOOST_TEST(decided(*ranks[0], 2, 33));
}

BOOST_FIXTURE_TEST_CASE(a_join_is_answered_when_all_ranks_are_there, consensus_fixture) {
  fake_session& first = attach();
  fake_session& second = attach();
  ask(first, join_entry("g", 0, 2, 1));
  BOOST_TEST(first.answers->empty());
  ask(second, join_entry("g", 1, 2, 1));
  BOOST_TEST((of(first, 1).answers == 1 && of(first, 1).code == error_code::ok));
  BOOST_TEST((of(second, 1).answers == 1 && of(second, 1).code == error_code::ok));
}

BOOST_FIXTURE_TEST_CASE(a_join_that_nobody_completes_ends_in_time_and_names_who_is_missing, consensus_fixture) {
  fake_session& first = attach();
  ask(first, join_entry("g", 0, 3, 1, milliseconds(1000)));
  pass(milliseconds(1000));
  BOOST_TEST(refused(first, 1, error_code::deadline_exceeded, "1"));
  ask(first, join_entry("g", 0, 1, 2));
  BOOST_TEST((of(first, 2).code == error_code::ok && of(first, 2).answers == 1), "its place is free");
}

BOOST_FIXTURE_TEST_CASE(the_least_length_is_every_ranks, consensus_fixture) {
  const auto ranks = form(4);
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    BOOST_TEST(of(*ranks[0], 9).answers == 0U);
    ask(*ranks[rank], agree_entry(9, 1, 100 - rank));
  }
  for (const fake_session* each : ranks) BOOST_TEST(decided(*each, 9, 97));
}

BOOST_FIXTURE_TEST_CASE(a_rank_that_does_not_ask_in_time_makes_it_0_for_all_and_itself, consensus_fixture) {
  const auto ranks = form(2);
  ask(*ranks[0], agree_entry(2, 1, 50));
  pass(milliseconds(200));
  BOOST_TEST(decided(*ranks[0], 2, 0));
  ask(*ranks[1], agree_entry(2, 1, 50));
  BOOST_TEST(decided(*ranks[1], 2, 0));
  for (fake_session* each : ranks) ask(*each, agree_entry(3, 2, 50));
  BOOST_TEST(decided(*ranks[0], 3, 50), "the next question is as before");
}

BOOST_FIXTURE_TEST_CASE(many_questions_in_one_batch_are_answered_in_one_message, consensus_fixture) {
  const auto ranks = form(2);
  std::vector<submission> batch;
  for (std::uint32_t i = 0; i < 500; ++i) batch.push_back(agree_entry(100 + i, i, i));
  const std::size_t before = *ranks[0]->messages;
  ask(*ranks[0], batch, alone.actor);
  std::ranges::reverse(batch);
  ask(*ranks[1], batch, alone.actor);
  BOOST_TEST(*ranks[0]->messages == before + 1);
  for (std::uint32_t i = 0; i < 500; ++i)
    BOOST_TEST((decided(*ranks[0], 100 + i, i) && decided(*ranks[1], 100 + i, i)));
}

BOOST_FIXTURE_TEST_CASE(the_end_of_a_session_breaks_its_group_for_the_others, consensus_fixture) {
  const auto ranks = form(3);
  ask(*ranks[0], agree_entry(2, 1, 10));
  caf::anon_send(alone.actor, disconnect_atom_v, ranks[2]->resources->number);
  run();
  BOOST_TEST(refused(*ranks[0], 2, error_code::group_lost, "rank 2"));
  ask(*ranks[1], agree_entry(2, 1, 10));
  BOOST_TEST((of(*ranks[1], 2).code == error_code::group_lost), "also for who had not asked");
  BOOST_TEST(of(*ranks[2], 2).answers == 0U);
}

BOOST_FIXTURE_TEST_CASE(the_end_of_a_sessions_actor_is_its_end, consensus_fixture) {
  const auto ranks = form(2);
  ask(*ranks[0], agree_entry(2, 1, 10));
  caf::anon_send_exit(ranks[1]->actor, caf::exit_reason::user_shutdown);
  run();
  BOOST_TEST((of(*ranks[0], 2).code == error_code::group_lost));
}

BOOST_FIXTURE_TEST_CASE(a_session_may_be_in_several_groups_and_leaves_one, consensus_fixture) {
  const auto ranks = form(2);
  for (std::uint32_t rank = 0; rank < 2; ++rank) ask(*ranks[rank], join_entry("other", rank, 2, 2));
  BOOST_TEST((of(*ranks[1], 2).answers == 1 && of(*ranks[1], 2).code == error_code::ok));
  ask(*ranks[0], leave_entry(10, 1));
  BOOST_TEST((of(*ranks[0], 10).answers == 1 && of(*ranks[0], 10).code == error_code::ok));
  ask(*ranks[1], agree_entry(11, 1, 5, 1));
  BOOST_TEST((of(*ranks[1], 11).code == error_code::group_lost));
  for (fake_session* each : ranks) ask(*each, agree_entry(12, 1, 5, 2));
  BOOST_TEST((decided(*ranks[0], 12, 5) && decided(*ranks[1], 12, 5)));
}

BOOST_FIXTURE_TEST_CASE(a_rank_that_leaves_has_its_open_requests_ended, consensus_fixture) {
  const auto ranks = form(2);
  ask(*ranks[0], agree_entry(2, 1, 10));
  ask(*ranks[0], leave_entry(3));
  BOOST_TEST((of(*ranks[0], 2).answers == 1 && of(*ranks[0], 2).code == error_code::group_lost));
  fake_session& waits = attach();
  ask(waits, join_entry("later", 0, 2, 5));
  ask(waits, leave_entry(6, 5));
  BOOST_TEST((of(waits, 5).answers == 1 && of(waits, 5).code == error_code::group_lost));
  BOOST_TEST((of(waits, 6).answers == 1 && of(waits, 6).code == error_code::ok));
}

BOOST_FIXTURE_TEST_CASE(a_question_that_a_rank_asks_twice_keeps_its_first_length_and_is_answered_twice,
                        consensus_fixture) {
  const auto ranks = form(2);
  ask(*ranks[0], agree_entry(2, 1, 10));
  ask(*ranks[0], agree_entry(3, 1, 5));
  ask(*ranks[1], agree_entry(2, 1, 20));
  BOOST_TEST((decided(*ranks[0], 2, 10) && decided(*ranks[0], 3, 10) && decided(*ranks[1], 2, 10)));
}

BOOST_FIXTURE_TEST_CASE(ranks_join_again_after_a_loss, consensus_fixture) {
  const auto ranks = form(2);
  ask(*ranks[0], leave_entry(2));
  ask(*ranks[0], join_entry("g", 0, 2, 7));
  ask(*ranks[1], leave_entry(3));
  ask(*ranks[1], join_entry("g", 1, 2, 7));
  for (fake_session* each : ranks) ask(*each, agree_entry(20, 1, 4, 7));
  BOOST_TEST((decided(*ranks[0], 20, 4) && decided(*ranks[1], 20, 4)));
}

BOOST_FIXTURE_TEST_CASE(a_session_that_joins_again_as_the_rank_it_is_has_left, consensus_fixture) {
  const auto ranks = form(2);
  ask(*ranks[0], agree_entry(2, 1, 10));
  ask(*ranks[0], agree_entry(3, 2, 10));
  ask(*ranks[0], join_entry("g", 0, 2, 7));  // that it left did not arrive
  BOOST_TEST((refused(*ranks[0], 2, error_code::group_lost, "") && refused(*ranks[0], 3, error_code::group_lost, "")));
  BOOST_TEST(of(*ranks[0], 2).text + of(*ranks[0], 3).text == "this rank joined again", "one of them says why");
  BOOST_TEST(of(*ranks[0], 7).answers == 0U);
  ask(*ranks[0], agree_entry(4, 1, 10));  // on the handle of before
  BOOST_TEST(refused(*ranks[0], 4, error_code::invalid_argument, "or left"));
  ask(*ranks[1], agree_entry(2, 1, 10));
  BOOST_TEST(refused(*ranks[1], 2, error_code::group_lost, "rank 0 left"));
  ask(*ranks[1], join_entry("g", 1, 2, 7));
  BOOST_TEST((of(*ranks[0], 7).answers == 1 && of(*ranks[0], 7).code == error_code::ok));
  for (fake_session* each : ranks) ask(*each, agree_entry(20, 1, 4, 7));
  BOOST_TEST((decided(*ranks[0], 20, 4) && decided(*ranks[1], 20, 4)));
  ask(*ranks[0], leave_entry(21, 1));  // the word of before arrives after all
  for (fake_session* each : ranks) ask(*each, agree_entry(22, 2, 5, 7));
  BOOST_TEST((decided(*ranks[0], 22, 5) && decided(*ranks[1], 22, 5)));
}

BOOST_FIXTURE_TEST_CASE(a_join_that_waits_ends_when_its_session_joins_again_and_others_stay, consensus_fixture) {
  fake_session& who = attach();
  ask(who, join_entry("g", 0, 3, 1));
  ask(who, join_entry("g", 1, 3, 2));
  ask(who, join_entry("h", 0, 3, 3));
  ask(who, join_entry("g", 0, 3, 4));
  BOOST_TEST(refused(who, 1, error_code::group_lost, "joined again"));
  BOOST_TEST((of(who, 2).answers == 0 && of(who, 3).answers == 0 && of(who, 4).answers == 0));
  ask(who, join_entry("g", 2, 3, 5));
  BOOST_TEST((of(who, 2).code == error_code::ok && of(who, 4).code == error_code::ok && of(who, 5).answers == 1));
}

BOOST_FIXTURE_TEST_CASE(names_and_handles_that_make_no_sense_are_refused_in_words, consensus_fixture) {
  fake_session& who = attach();
  ask(who, join_entry("", 0, 1, 1));
  BOOST_TEST(refused(who, 1, error_code::invalid_argument, "1 to 64 bytes"));
  submission longer = join_entry("x", 0, 1, 2);
  longer.key_size = 200;
  ask(who, longer);
  BOOST_TEST(refused(who, 2, error_code::invalid_argument, "1 to 64 bytes"));
  submission nameless = join_entry("x", 0, 1, 3);
  nameless.grant_version = 0;
  ask(who, nameless);
  BOOST_TEST(refused(who, 3, error_code::invalid_argument, "handle"));
  ask(who, join_entry("x", 0, 1, 4));
  submission again = join_entry("y", 0, 1, 4);
  again.request = 5;
  ask(who, again);
  BOOST_TEST(refused(who, 5, error_code::invalid_argument, "handle"));
  ask(who, agree_entry(6, 1, 1, 99));
  BOOST_TEST(refused(who, 6, error_code::invalid_argument, "handle"));
  ask(who, agree_entry(7, 1, 1, 4));
  BOOST_TEST(decided(who, 7, 1), "what was right before still is");
}

BOOST_FIXTURE_TEST_CASE(ranks_and_sizes_that_make_no_sense_are_refused_in_words, consensus_fixture) {
  fake_session& who = attach();
  ask(who, join_entry("g", 0, 0, 1));
  BOOST_TEST(refused(who, 1, error_code::invalid_argument, "ranks"));
  ask(who, join_entry("g", 0, 257, 2));
  BOOST_TEST(refused(who, 2, error_code::invalid_argument, "257"));
  ask(who, join_entry("g", 4, 4, 3));
  BOOST_TEST(refused(who, 3, error_code::invalid_argument, "no rank 4"));
}

BOOST_FIXTURE_TEST_CASE(ranks_that_do_not_fit_together_are_refused, consensus_fixture) {
  fake_session& first = attach();
  ask(first, join_entry("g", 0, 2, 1));
  fake_session& smaller = attach();
  ask(smaller, join_entry("g", 1, 3, 1));
  BOOST_TEST(refused(smaller, 1, error_code::spec_mismatch, "2 ranks"));
  fake_session& stranger = attach(2);
  ask(stranger, join_entry("g", 1, 2, 1));
  BOOST_TEST(refused(stranger, 1, error_code::spec_mismatch, "model"));
  fake_session& twin = attach();
  ask(twin, join_entry("g", 0, 2, 1));
  BOOST_TEST(refused(twin, 1, error_code::invalid_argument, "rank 0"));
  BOOST_TEST(of(first, 1).answers == 0U, "it waits as before");
}

BOOST_FIXTURE_TEST_CASE(a_question_before_the_group_has_formed_is_refused, consensus_fixture) {
  fake_session& first = attach();
  ask(first, join_entry("g", 0, 2, 1));
  ask(first, agree_entry(2, 1, 1));
  BOOST_TEST(refused(first, 2, error_code::invalid_argument, "join"));
}

BOOST_FIXTURE_TEST_CASE(what_was_meant_for_another_worker_is_lost, consensus_fixture) {
  const auto ranks = form(1);
  submission old_join = join_entry("h", 0, 1, 5);
  old_join.parent = this_worker - 1;
  ask(*ranks[0], old_join);
  BOOST_TEST(refused(*ranks[0], 5, error_code::group_lost, "worker"));
  submission old_question = agree_entry(6, 1, 1);
  old_question.parent = this_worker - 1;
  ask(*ranks[0], old_question);
  BOOST_TEST(refused(*ranks[0], 6, error_code::group_lost, "worker"));
  ask(*ranks[0], agree_entry(7, 1, 1));
  BOOST_TEST(decided(*ranks[0], 7, 1));
}

BOOST_FIXTURE_TEST_CASE(a_request_of_several_entries_is_answered_once_and_not_carried_out, consensus_fixture) {
  const auto ranks = form(1);
  submission first = agree_entry(2, 1, 1);
  first.flags = 0;
  submission second = agree_entry(2, 2, 1);
  second.index = 1;
  ask(*ranks[0], {first, second}, alone.actor);
  BOOST_TEST(refused(*ranks[0], 2, error_code::malformed, "one entry"));
}

BOOST_FIXTURE_TEST_CASE(a_flood_of_questions_is_refused_and_harms_no_other_group, consensus_fixture) {
  const auto ranks = form(2);
  const auto others = form(2, "other");
  std::vector<submission> flood;
  for (std::uint32_t i = 0; i < memory::most_open_questions + 10; ++i) flood.push_back(agree_entry(100 + i, i, 1));
  ask(*ranks[0], flood, alone.actor);
  BOOST_TEST(refused(*ranks[0], 100 + memory::most_open_questions, error_code::limit_exceeded, "1024"));
  for (fake_session* each : others) ask(*each, agree_entry(2, 1, 8));
  BOOST_TEST((decided(*others[0], 2, 8) && decided(*others[1], 2, 8)));
  ask(*ranks[1], agree_entry(2, 0, 1));
  BOOST_TEST(decided(*ranks[0], 100, 1), "those before are as they were");
}

BOOST_FIXTURE_TEST_CASE(a_session_is_in_so_many_groups_and_no_more, consensus_fixture) {
  fake_session& who = attach();
  for (std::uint32_t i = 1; i <= memory::most_rank_groups + 1; ++i)
    ask(who, join_entry("g" + std::to_string(i), 0, 1, i));
  BOOST_TEST((of(who, memory::most_rank_groups).code == error_code::ok));
  BOOST_TEST(refused(who, memory::most_rank_groups + 1, error_code::limit_exceeded, "64 groups"));
  ask(who, leave_entry(500, 1));
  ask(who, join_entry("another", 0, 1, 300));
  BOOST_TEST((of(who, 300).answers == 1 && of(who, 300).code == error_code::ok));
}

BOOST_FIXTURE_TEST_CASE(ranks_on_two_nodes_form_and_agree_by_frames, consensus_fixture) {
  const fake_node a = start("a", 1);
  const fake_node b = start("b", 2);
  connect(a, b);
  fake_session& here = attach();
  fake_session& there = attach();
  ask(here, {join_entry("g", 0, 2, 1)}, a.actor);
  ask(there, {join_entry("g", 1, 2, 1)}, b.actor);
  for (int i = 0; i < 10 && of(there, 1).answers == 0; ++i) {
    exchange(a, b);
    pass(milliseconds(50));
  }
  exchange(a, b);
  BOOST_REQUIRE((of(here, 1).answers == 1 && of(there, 1).answers == 1));
  ask(here, {agree_entry(2, 1, 10)}, a.actor);
  ask(there, {agree_entry(2, 1, 6)}, b.actor);
  BOOST_TEST(of(there, 2).answers == 0U, "only the coordinator knows");
  exchange(a, b);
  BOOST_TEST((decided(here, 2, 6) && decided(there, 2, 6)));
  // A node that is away for long takes the group with it.
  tell_members(a, {});
  pass(milliseconds(3000));
  ask(here, {agree_entry(3, 2, 10)}, a.actor);
  BOOST_TEST((of(here, 3).code == error_code::group_lost));
}

BOOST_FIXTURE_TEST_CASE(a_frame_of_nonsense_has_its_link_closed, consensus_fixture) {
  const fake_node a = start("a", 1);
  const fake_node b = start("b", 2);
  connect(a, b);
  a.said->clear();
  hear(a, b, peer::frame_type::join_group, std::vector<std::byte>(3));
  BOOST_REQUIRE(a.said->size() == 1U);
  BOOST_TEST(a.said->front()->bad_link == 11U);
  BOOST_TEST(!a.said->front()->why.empty());
}

BOOST_FIXTURE_TEST_CASE(status_has_a_row_a_group_and_says_how_many_are_decided_a_second, consensus_fixture) {
  const auto ranks = form(2);
  const auto report_now = [&] {
    caf::scoped_actor self(system);
    auto handle = self->request(alone.actor, std::chrono::seconds(10), report_atom_v);
    run();
    tier_report_ptr report;
    handle.receive([&](const tier_report_ptr& said) { report = said; }, [](const caf::error&) {});
    return report;
  };
  (void)report_now();
  for (std::uint32_t i = 0; i < 100; ++i) {
    for (fake_session* each : ranks) ask(*each, agree_entry(100 + i, i, 1));
  }
  pass(milliseconds(1000));
  const auto report = std::dynamic_pointer_cast<const consensus_report>(report_now());
  BOOST_REQUIRE(report);
  BOOST_REQUIRE(report->groups.size() == 1U);
  const rank_group_report& row = report->groups[0];
  BOOST_TEST(row.group.name.text == "g");
  BOOST_TEST((row.group.state == cluster::group_state::formed));
  BOOST_TEST(row.figures.here == 2U);
  BOOST_TEST(row.figures.decided == 100U);
  BOOST_TEST(row.figures.decided_per_s == 100.0, boost::test_tools::tolerance(0.05));
  BOOST_TEST(report->now.ranks == 2U);
  BOOST_TEST(report->parts.size() == 1U);
}

BOOST_FIXTURE_TEST_CASE(metrics_name_the_first_instance_groups_of_a_worker_and_no_more, consensus_fixture) {
  const auto label_of_last = [&](const std::string& instance_group) {
    fake_session& rank = attach(1, {1000, instance_group});
    ask(rank, join_entry("g", 0, 1, 1));
    caf::scoped_actor self(system);
    auto handle = self->request(alone.actor, std::chrono::seconds(10), report_atom_v);
    run();
    tier_report_ptr report;
    handle.receive([&](const tier_report_ptr& answer) { report = answer; }, [](const caf::error&) {});
    ask(rank, leave_entry(2, 1));
    const auto groups = std::dynamic_pointer_cast<const consensus_report>(report)->groups;
    BOOST_REQUIRE_EQUAL(groups.size(), 1U);
    return groups.front().label;
  };
  for (int i = 0; i < 32; ++i) BOOST_TEST(label_of_last("team " + std::to_string(i)) == "team " + std::to_string(i));
  BOOST_TEST(label_of_last("team 32") == "other");
  BOOST_TEST(label_of_last("team 7") == "team 7");
}

BOOST_FIXTURE_TEST_CASE(a_session_of_another_user_or_instance_group_takes_no_rank_of_a_group, consensus_fixture) {
  fake_session& first = attach(1, {1000, "team"});
  ask(first, join_entry("g", 0, 2, 1));
  for (const share_holder& owner : {share_holder{1001, "team"}, share_holder{1000, {}}}) {
    fake_session& stranger = attach(2, owner);
    ask(stranger, join_entry("g", 1, 2, 1));
    BOOST_TEST(of(stranger, 1).answers == 0U);
  }
  BOOST_TEST(of(first, 1).answers == 0U);
  fake_session& second = attach(1, {1000, "team"});
  ask(second, join_entry("g", 1, 2, 1));
  BOOST_TEST((of(first, 1).code == error_code::ok && of(second, 1).code == error_code::ok));
  ask(first, agree_entry(2, 1, 31));
  ask(second, agree_entry(2, 1, 40));
  BOOST_TEST(of(first, 2).value == 31U);
}

BOOST_AUTO_TEST_SUITE_END()
