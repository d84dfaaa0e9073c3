// A session as a rank of groups, against a node that answers as the test wants.
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <map>
#include <thread>

#include "memory/group_terms.hpp"
#include "tests/unit/client/session_fixture.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct group_fixture : session_fixture {
  std::unique_ptr<client::group_ticket> join(milliseconds timeout = seconds(5)) {
    return must(session->join("replica", 3, 8, timeout, seconds(5)));
  }
  /// Entries of one kind that the node has read.
  std::size_t heard(memory::operation what) {
    must(session->barrier());
    std::size_t count = 0;
    for (const memory::submission& each : node.group_entries()) count += each.op == what ? 1 : 0;
    return count;
  }
  void replace_worker() { owner.session().header().worker_epoch.store(2, std::memory_order_release); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(session_groups)

BOOST_FIXTURE_TEST_CASE(a_join_names_group_rank_size_and_the_worker_that_is_meant, group_fixture) {
  const auto group = join();
  const auto entries = node.group_entries();
  BOOST_REQUIRE_EQUAL(entries.size(), 1U);
  const auto terms = memory::join_terms::of(entries[0]);
  BOOST_TEST(terms.name == "replica");
  BOOST_TEST(terms.rank == 3U);
  BOOST_TEST(terms.size == 8U);
  BOOST_TEST(terms.handle != 0U);
  BOOST_TEST(terms.epoch == 1U);
  BOOST_TEST((terms.patience > seconds(4) && terms.patience <= seconds(5)));
  BOOST_TEST(join()->handle != group->handle, "no two joins have one handle");
}

BOOST_FIXTURE_TEST_CASE(what_can_never_be_is_refused_before_the_node_hears_it, group_fixture) {
  const auto refused = [&](std::string name, std::uint32_t rank, std::uint32_t size, std::chrono::nanoseconds timeout) {
    return code_of(session->join(std::move(name), rank, size, timeout, seconds(1))) == error_code::invalid_argument;
  };
  BOOST_TEST(refused("", 0, 1, seconds(1)));
  BOOST_TEST(refused(std::string(65, 'x'), 0, 1, seconds(1)));
  BOOST_TEST(refused("g", 0, 0, seconds(1)));
  BOOST_TEST(refused("g", 0, memory::max_ranks + 1, seconds(1)));
  BOOST_TEST(refused("g", 8, 8, seconds(1)));
  BOOST_TEST(refused("g", 0, 1, std::chrono::nanoseconds(0)));
  BOOST_TEST(refused("g", 0, 1, std::chrono::hours(2)));
  BOOST_TEST(heard(memory::operation::join) == 0U);
  BOOST_TEST(must(session->join(std::string(64, 'x'), 0, memory::max_ranks, seconds(1), seconds(1)))->name.size() ==
             64U);
}

BOOST_FIXTURE_TEST_CASE(a_node_that_knows_no_groups_is_unsupported, group_fixture) {
  node.answer_groups(error_code::malformed, "");
  BOOST_TEST((code_of(session->join("g", 0, 1, seconds(1), seconds(1))) == error_code::unsupported));
}

BOOST_FIXTURE_TEST_CASE(a_refused_join_says_why_in_the_nodes_words, group_fixture) {
  const std::string why = "rank 3 says 8 ranks, rank 1 of node b says 4 ranks: all ranks must say the same";
  node.answer_groups(error_code::spec_mismatch, why);
  const auto refused = session->join("g", 3, 8, seconds(1), seconds(1));
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code() == error_code::spec_mismatch));
  BOOST_TEST(refused.error().message().find(why) != std::string::npos, refused.error().message());
}

BOOST_FIXTURE_TEST_CASE(a_join_that_is_not_answered_ends_and_takes_itself_back, group_fixture) {
  node.be_silent(true);
  BOOST_TEST((code_of(session->join("g", 0, 2, seconds(1), milliseconds(5))) == error_code::deadline_exceeded));
  node.be_silent(false);
  BOOST_TEST(heard(memory::operation::leave) == 1U);
}

BOOST_FIXTURE_TEST_CASE(a_question_travels_with_its_length_and_time, group_fixture) {
  const auto group = join(seconds(2));
  BOOST_TEST(must(session->agree(*group, 77, 12)) == 12U);
  const auto terms = memory::agree_terms::of(node.group_entries().back());
  BOOST_TEST(terms.question == 77U);
  BOOST_TEST(terms.length == 12U);
  BOOST_TEST((terms.timeout == seconds(2)));
  BOOST_TEST(terms.handle == group->handle);
  BOOST_TEST(terms.epoch == 1U);
}

BOOST_FIXTURE_TEST_CASE(questions_that_were_started_come_in_any_order_each_once, group_fixture) {
  const auto group = join();
  constexpr std::size_t many = 600;  // more than a batch
  node.hold_questions(many - 1);
  std::vector<client::group_length> asked;
  for (std::uint64_t i = 0; i < many; ++i) asked.push_back({i, i * 3});
  must(session->start(*group, asked));
  std::map<std::uint64_t, std::uint64_t> got;
  std::vector<client::group_length> out(100);
  while (got.size() < many) {
    const std::size_t n = must(session->poll(*group, out, seconds(5)));
    BOOST_REQUIRE(n > 0U);
    for (std::size_t i = 0; i < n; ++i) BOOST_TEST(got.emplace(out[i].question, out[i].length).second);
  }
  for (const auto& [question, length] : got) BOOST_TEST(length == question * 3);
  BOOST_TEST(must(session->poll(*group, out, seconds(5))) == 0U, "nothing is open, so nothing is waited for");
}

BOOST_FIXTURE_TEST_CASE(a_look_that_finds_nothing_does_not_wait, group_fixture) {
  const auto group = join();
  node.hold_questions(2);
  must(session->start(*group, std::vector<client::group_length>{{1, 10}}));
  std::vector<client::group_length> out(4);
  BOOST_TEST(must(session->poll(*group, out, {})) == 0U);
  must(session->start(*group, std::vector<client::group_length>{{2, 20}, {3, 30}}));
  std::size_t got = 0;
  while (got < 3) got += must(session->poll(*group, out, seconds(5)));
  BOOST_TEST(got == 3U);
}

BOOST_FIXTURE_TEST_CASE(a_question_may_be_asked_while_others_are_open, group_fixture) {
  const auto group = join();
  node.hold_questions(1);
  must(session->start(*group, std::vector<client::group_length>{{1, 10}}));
  BOOST_TEST(must(session->agree(*group, 2, 20)) == 20U);
  std::vector<client::group_length> out(4);
  BOOST_TEST(must(session->poll(*group, out, seconds(5))) == 1U);
  BOOST_TEST(out[0].question == 1U);
}

BOOST_FIXTURE_TEST_CASE(no_more_questions_are_open_than_may_be, group_fixture) {
  const auto group = join();
  node.hold_questions(memory::most_open_questions);
  must(session->start(*group, std::vector<client::group_length>(memory::most_open_questions)));
  BOOST_TEST((code_of(session->start(*group, std::vector<client::group_length>(1))) == error_code::limit_exceeded));
  BOOST_TEST(must(session->agree(*group, 5, 6)) == 6U, "the group is as before");
}

BOOST_FIXTURE_TEST_CASE(a_lost_group_says_why_from_then_on_and_asks_nothing_more, group_fixture) {
  const auto group = join();
  node.answer_groups(error_code::group_lost, "rank 5 of node b left");
  const auto first = session->agree(*group, 1, 10);
  BOOST_REQUIRE((code_of(first) == error_code::group_lost));
  BOOST_TEST(first.error().message().find("rank 5 of node b left") != std::string::npos, first.error().message());
  node.answer_groups(error_code::ok, "");
  const std::size_t before = heard(memory::operation::agree);
  BOOST_TEST((code_of(session->agree(*group, 2, 10)) == error_code::group_lost));
  BOOST_TEST((code_of(session->start(*group, std::vector<client::group_length>(1))) == error_code::group_lost));
  std::vector<client::group_length> out(4);
  BOOST_TEST((code_of(session->poll(*group, out, seconds(1))) == error_code::group_lost));
  BOOST_TEST(heard(memory::operation::agree) == before);
  BOOST_TEST(must(session->agree(*join(), 3, 4)) == 4U, "a new join is another group");
}

BOOST_FIXTURE_TEST_CASE(an_answer_that_does_not_come_breaks_the_group_and_the_node_hears_so, group_fixture) {
  const auto group = join(milliseconds(5));
  node.be_silent(true);
  BOOST_TEST((code_of(session->agree(*group, 1, 10)) == error_code::group_lost));
  BOOST_TEST((code_of(session->agree(*group, 2, 10)) == error_code::group_lost));
  node.be_silent(false);
  BOOST_TEST(heard(memory::operation::leave) == 1U);
}

BOOST_FIXTURE_TEST_CASE(a_started_question_that_is_not_answered_breaks_the_group_at_a_look, group_fixture) {
  const auto group = join(milliseconds(5));
  node.be_silent(true);
  must(session->start(*group, std::vector<client::group_length>{{1, 10}}));
  std::vector<client::group_length> out(4);
  BOOST_TEST((code_of(session->poll(*group, out, seconds(60))) == error_code::group_lost));
  node.be_silent(false);
}

BOOST_FIXTURE_TEST_CASE(another_worker_knows_nothing_of_a_group, group_fixture) {
  const auto group = join();
  replace_worker();
  BOOST_TEST((code_of(session->agree(*group, 1, 10)) == error_code::group_lost));
  std::vector<client::group_length> out(4);
  BOOST_TEST((code_of(session->poll(*group, out, {})) == error_code::group_lost));
  owner.session().header().worker_epoch.store(1, std::memory_order_release);  // so that the session can go on
  BOOST_TEST((code_of(session->agree(*group, 1, 10)) == error_code::group_lost), "for good");
  BOOST_TEST(heard(memory::operation::agree) == 0U);
}

BOOST_FIXTURE_TEST_CASE(a_rank_that_leaves_says_so_once, group_fixture) {
  const auto group = join();
  must(session->leave(*group));
  must(session->leave(*group));
  BOOST_TEST((code_of(session->agree(*group, 1, 10)) == error_code::group_lost));
  BOOST_TEST(heard(memory::operation::leave) == 1U);
}

BOOST_FIXTURE_TEST_CASE(threads_may_share_a_rank, group_fixture) {
  const auto group = join();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 200; ++i) {
        const auto length = session->agree(*group, t * 1000 + i, i);
        wrong += length && *length == i ? 0 : 1;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  BOOST_TEST(wrong == 0);
}

#ifndef CENOTE_TSAN  // a fork of a process with threads is more than the thread sanitizer bears
BOOST_FIXTURE_TEST_CASE(a_forked_child_is_no_rank, group_fixture) {
  const auto group = join();
  const pid_t child = ::fork();
  if (child == 0) {
    std::vector<client::group_length> out(1);
    const bool told = code_of(session->agree(*group, 1, 1)) == error_code::forked &&
                      code_of(session->start(*group, out)) == error_code::forked &&
                      code_of(session->poll(*group, out, seconds(1))) == error_code::forked &&
                      code_of(session->leave(*group)) == error_code::forked &&
                      code_of(session->join("g", 0, 1, seconds(1), seconds(1))) == error_code::forked;
    ::_exit(told ? 0 : 1);
  }
  int status = 1;
  BOOST_REQUIRE_EQUAL(::waitpid(child, &status, 0), child);
  BOOST_TEST(status == 0);
  BOOST_TEST(must(session->agree(*group, 1, 7)) == 7U);
}
#endif

BOOST_AUTO_TEST_SUITE_END()
