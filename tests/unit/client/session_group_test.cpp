// A session as a rank of groups, against a node that answers as the test wants.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "memory/group_terms.hpp"
#include "tests/unit/client/session_fixture.hpp"
#include "transport/local/socket.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct group_fixture : session_fixture {
  using session_fixture::session_fixture;
  std::unique_ptr<client::group_ticket> join(milliseconds timeout = seconds(60)) {
    return must(session->join("replica", 3, 8, timeout, seconds(60)));
  }
  /// Entries of one kind that the node has read.
  std::size_t heard(memory::operation what) {
    must(session->barrier());
    std::size_t count = 0;
    for (const memory::submission& each : node.group_entries()) count += each.op == what ? 1 : 0;
    return count;
  }
  /// A node that does not read its ring, which has so many places left.
  void fill_ring(std::size_t room = 0) {
    node.stand_still(true);
    std::size_t left = memory::session_memory::submissions - room;
    for (const auto& each : fillers) {
      const std::size_t some = std::min(left, memory::most_open_questions);
      must(session->start(*each, std::vector<client::group_length>(some)));
      left -= some;
    }
  }
  void await_full_ring() {
    const auto& header = owner.session().header();
    while (header.submit_tail.load() - header.submit_head.load() < memory::session_memory::submissions)
      std::this_thread::yield();
  }
  /// Until the node has heard of a question.
  void await_question() {
    const auto is_question = [](const memory::submission& each) { return each.op == memory::operation::agree; };
    while (std::ranges::none_of(node.group_entries(), is_question)) std::this_thread::yield();
  }
  void replace_worker() { owner.session().header().worker_epoch.store(2, std::memory_order_release); }

  std::vector<std::unique_ptr<client::group_ticket>> fillers;
};

struct full_ring_fixture : group_fixture {
  explicit full_ring_fixture(milliseconds deadline = seconds(60)) : group_fixture(128, 64, 1, deadline) {
    while (fillers.size() * memory::most_open_questions < memory::session_memory::submissions)
      fillers.push_back(join(seconds(60)));
  }
};

/// What a session meets that looks for the next worker: somebody who accepts, and says nothing.
class deaf_node {
 public:
  deaf_node() : folder_((std::filesystem::temp_directory_path() / "cenote-test-XXXXXX").native()) {
    BOOST_REQUIRE(::mkdtemp(folder_.data()) != nullptr);
    listener_ = must(local::listen_at(path()));
  }
  deaf_node(const deaf_node&) = delete;
  deaf_node& operator=(const deaf_node&) = delete;
  ~deaf_node() { go(); }

  [[nodiscard]] std::string path() const { return folder_ + "/cenote.sock"; }
  void accept() {
    while (!caller_) {
      if (auto came = must(local::accept_one(listener_.get()))) caller_ = std::move(*came);
      std::this_thread::yield();
    }
  }
  void go() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    listener_.reset();
    caller_.reset();
  }

 private:
  std::string folder_;
  unique_fd listener_, caller_;
};

struct deaf_node_fixture : deaf_node, group_fixture {
  deaf_node_fixture() : group_fixture(128, 64, 1, seconds(60), path()) {}
};

/// Calls give up soon.
struct hasty_fixture : full_ring_fixture {
  hasty_fixture() : full_ring_fixture(milliseconds(500)) {}
};

/// What still refers to questions that are open.
std::vector<std::weak_ptr<client::request>> open_questions(client::group_ticket& group) {
  const std::lock_guard lock(group.mutex);
  return {group.open.begin(), group.open.end()};
}
bool all_are_gone(const std::vector<std::weak_ptr<client::request>>& all) {
  return std::ranges::all_of(all, [](const auto& each) { return each.expired(); });
}

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
  BOOST_TEST((terms.patience > seconds(0) && terms.patience <= seconds(60)));
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
    const std::size_t n = must(session->poll(*group, out, seconds(60)));
    BOOST_REQUIRE(n > 0U);
    for (std::size_t i = 0; i < n; ++i) BOOST_TEST(got.emplace(out[i].question, out[i].length).second);
  }
  for (const auto& [question, length] : got) BOOST_TEST(length == question * 3);
  BOOST_TEST(must(session->poll(*group, out, seconds(60))) == 0U, "nothing is open, so nothing is waited for");
}

BOOST_FIXTURE_TEST_CASE(a_look_that_finds_nothing_does_not_wait, group_fixture) {
  const auto group = join();
  node.hold_questions(2);
  must(session->start(*group, std::vector<client::group_length>{{1, 10}}));
  std::vector<client::group_length> out(4);
  BOOST_TEST(must(session->poll(*group, out, {})) == 0U);
  must(session->start(*group, std::vector<client::group_length>{{2, 20}, {3, 30}}));
  std::size_t got = 0;
  while (got < 3) got += must(session->poll(*group, out, seconds(60)));
  BOOST_TEST(got == 3U);
}

BOOST_FIXTURE_TEST_CASE(a_question_may_be_asked_while_others_are_open, group_fixture) {
  const auto group = join();
  node.hold_questions(1);
  must(session->start(*group, std::vector<client::group_length>{{1, 10}}));
  BOOST_TEST(must(session->agree(*group, 2, 20)) == 20U);
  std::vector<client::group_length> out(4);
  BOOST_TEST(must(session->poll(*group, out, seconds(60))) == 1U);
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

BOOST_FIXTURE_TEST_CASE(a_rank_at_a_full_ring_does_not_wait_behind_one_that_has_more_time, full_ring_fixture) {
  const auto patient = join(seconds(30));
  std::vector<std::unique_ptr<client::group_ticket>> hasty(8);
  for (auto& each : hasty) each = join(milliseconds(5));
  fill_ring(client::channel::max_batch);
  std::atomic<bool> is_over{false};
  result<void> started;
  std::thread other([&] {
    started = session->start(*patient, std::vector<client::group_length>(client::channel::max_batch + 1));
    is_over = true;
  });
  await_full_ring();  // its last question waits for a place
  for (const auto& each : hasty) BOOST_TEST((code_of(session->agree(*each, 1, 7)) == error_code::group_lost));
  BOOST_TEST(!is_over);
  node.stand_still(false);
  other.join();
  BOOST_TEST(started.has_value());
  BOOST_TEST(heard(memory::operation::leave) == hasty.size(), "what did not fit into the ring is said later");
}

BOOST_FIXTURE_TEST_CASE(many_that_wait_at_a_full_ring_are_all_heard_when_it_has_room, full_ring_fixture) {
  const auto group = join(seconds(60));
  const auto hasty = join(milliseconds(20));
  fill_ring();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 50; ++i) {
        const auto length = session->agree(*group, t * 1000 + i, i);
        wrong += length && *length == i ? 0 : 1;
      }
    });
  }
  threads.emplace_back([&] {  // as many places at once as a batch may have
    const auto started = session->start(*group, std::vector<client::group_length>(client::channel::max_batch));
    wrong += started ? 0 : 1;
  });
  BOOST_TEST((code_of(session->agree(*hasty, 1, 1)) == error_code::group_lost));
  node.stand_still(false);
  for (std::thread& each : threads) each.join();
  BOOST_TEST(wrong == 0);
}

BOOST_FIXTURE_TEST_CASE(a_join_does_not_wait_behind_a_call_that_looks_for_the_next_worker, deaf_node_fixture) {
  node.stand_still(true);
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    static_cast<void>(session->barrier());
    is_over = true;
  });
  node.stop();
  accept();
  BOOST_TEST((code_of(session->join("g", 0, 1, seconds(1), milliseconds(5))) == error_code::node_restarting));
  BOOST_TEST(!is_over);
  go();
  other.join();
}

BOOST_FIXTURE_TEST_CASE(a_session_is_closed_also_while_a_join_looks_for_the_next_worker, deaf_node_fixture) {
  node.stop();
  result<void> joined;
  std::thread other([&] {
    const auto group = session->join("g", 0, 1, seconds(1), seconds(60));
    joined = group ? result<void>{} : std::unexpected(group.error());
  });
  accept();
  std::thread closer([&] { static_cast<void>(session->close()); });
  other.join();
  go();  // it does not say goodbye for long, either
  closer.join();
  BOOST_TEST((code_of(joined) == error_code::closed));
}

BOOST_FIXTURE_TEST_CASE(a_join_does_not_overtake_the_word_that_its_rank_has_left, full_ring_fixture) {
  const auto group = join(seconds(60));
  const unique_fd bell = node.submit_bell();
  fill_ring();
  must(session->leave(*group));  // there is no room to say so
  std::uint64_t rung = 0;
  while (::read(bell.get(), &rung, sizeof rung) == sizeof rung) continue;
  result<std::unique_ptr<client::group_ticket>> joined = fail(error_code::internal, "not yet");
  std::thread other([&] { joined = session->join("replica", 4, 9, seconds(1), seconds(60)); });
  pollfd entry{bell.get(), POLLIN, 0};
  BOOST_REQUIRE_EQUAL(::poll(&entry, 1, 60000), 1);  // who waits for room rings first
  node.stand_still(false);
  other.join();
  BOOST_REQUIRE(joined.has_value());
  const auto entries = node.group_entries();
  const auto place_of = [&](memory::operation what, std::uint64_t handle) {
    return std::ranges::find_if(entries, [&](const memory::submission& each) {
      return each.op == what &&
             (what == memory::operation::join ? memory::join_terms::of(each).handle : each.grant_version) == handle;
    });
  };
  const auto left = place_of(memory::operation::leave, group->handle);
  BOOST_REQUIRE((left != entries.end()));
  BOOST_TEST((left < place_of(memory::operation::join, (*joined)->handle)));
}

BOOST_FIXTURE_TEST_CASE(what_a_group_has_open_is_forgotten_with_it, group_fixture) {
  const std::vector<client::group_length> questions{{1, 10}, {2, 20}};
  const auto left = join();
  const auto replaced = join();
  const auto late = join(milliseconds(5));
  node.be_silent(true);  // nothing of it is ever answered
  std::vector<std::weak_ptr<client::request>> open;
  for (client::group_ticket* each : {left.get(), replaced.get(), late.get()}) {
    must(session->start(*each, questions));
    const auto some = open_questions(*each);
    open.insert(open.end(), some.begin(), some.end());
  }
  BOOST_TEST(open.size() == 6U);
  std::vector<client::group_length> out(4);
  must(session->leave(*left));
  BOOST_TEST((code_of(session->poll(*late, out, seconds(60))) == error_code::group_lost));
  replace_worker();
  BOOST_TEST((code_of(session->poll(*replaced, out, {})) == error_code::group_lost));
  BOOST_TEST(all_are_gone(open));
}

BOOST_FIXTURE_TEST_CASE(questions_that_were_sent_when_the_group_was_lost_are_not_open, full_ring_fixture) {
  const auto group = join(seconds(60));
  fill_ring(client::channel::max_batch);
  result<void> started;
  std::thread other(
      [&] { started = session->start(*group, std::vector<client::group_length>(client::channel::max_batch + 1)); });
  await_full_ring();  // and the rest waits for room
  must(session->leave(*group));
  node.stand_still(false);
  other.join();
  BOOST_TEST((code_of(started) == error_code::group_lost));
  BOOST_TEST(open_questions(*group).empty());
}

BOOST_FIXTURE_TEST_CASE(a_rank_whose_group_another_thread_leaves_hears_no_number_of_it, group_fixture) {
  const auto group = join();
  node.hold_questions(1);
  result<std::uint64_t> length = 0;
  std::thread other([&] { length = session->agree(*group, 1, 10); });
  await_question();
  must(session->leave(*group));  // the node answers the question when it hears so
  other.join();
  BOOST_TEST((code_of(length) == error_code::group_lost));
}

BOOST_FIXTURE_TEST_CASE(a_followed_request_is_asked_for_again_after_a_wait_that_failed, hasty_fixture) {
  const auto request = key_of(1);
  auto ticket = must(session->follow(request, "other", 0, seconds(60)));
  must(session->barrier());  // it is answered: that there are no keys yet
  fill_ring();
  const auto soon = std::chrono::steady_clock::now() + seconds(60);
  BOOST_TEST((code_of(session->wait(ticket, soon)) == error_code::deadline_exceeded));
  node.end_follows();
  node.stand_still(false);
  BOOST_TEST(must(session->wait(ticket, soon)));
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
