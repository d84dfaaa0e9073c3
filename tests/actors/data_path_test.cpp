#include "actors/data_path.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <filesystem>
#include <latch>
#include <semaphore>
#include <thread>

#include "tests/support/step_cost.hpp"

using namespace cenote;

namespace {

constexpr auto patience = std::chrono::seconds(60);
constexpr int ended_by_terminate = 42;

class scheduler_config : public caf::actor_system_config {
 public:
  scheduler_config() {
    add_message_types<caf::id_block::cenote>();
    set("scheduler.policy", caf::atom("sharing"));
    set("scheduler.max-threads", 2);
    set("logger.verbosity", caf::atom("quiet"));
  }
};

/// A session with a doorbell, and an actor in its actor's place that counts bells.
struct rung_session {
  std::shared_ptr<session_resources> resources = std::make_shared<session_resources>();
  session_actor actor;
  std::shared_ptr<std::atomic<int>> bells = std::make_shared<std::atomic<int>>(0);

  void ring() const {
    const std::uint64_t one = 1;
    BOOST_REQUIRE_EQUAL(::write(resources->submit_doorbell.get(), &one, sizeof one), ssize_t{sizeof one});
  }
};

struct data_path_fixture {
  data_path_fixture() {
    auto started = data_path::start(system, [](auto, const std::string&) {});
    BOOST_REQUIRE(started);
    path = std::move(*started);
  }
  ~data_path_fixture() {
    path->stop();
    for (const auto& each : actors) caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    actors.clear();
    system.await_all_actors_done();
  }
  data_path_fixture(const data_path_fixture&) = delete;
  data_path_fixture& operator=(const data_path_fixture&) = delete;

  template <class Work>
  caf::actor keep(Work&& work) {
    const caf::actor made = system.spawn(std::forward<Work>(work));
    actors.push_back(made);
    return made;
  }

  rung_session open_session(std::function<void()> at_bell = [] {}) {
    rung_session made;
    made.resources->pin_slots = 16;
    BOOST_REQUIRE(make_session(*made.resources));
    made.actor = system.spawn([resources = made.resources, bells = made.bells,
                               at_bell](session_actor::pointer) -> session_actor::behavior_type {
      return {[=](doorbell_atom) {
                resources->bell_heard();
                at_bell();
                ++*bells;
              },
              [](wake_atom, std::uint64_t) {}, [](answer_atom, const completions_ptr&) {},
              [](report_atom) { return session_report{}; }, [](drain_atom) { return outcome{}; }};
    });
    actors.push_back(caf::actor_cast<caf::actor>(made.actor));
    BOOST_REQUIRE(path->watch(made.resources, made.actor));
    return made;
  }

  scheduler_config config;
  std::unique_ptr<data_path> path;  // outlives the actors of the system
  caf::actor_system system{config};
  std::vector<caf::actor> actors;
};

/// An actor, as the data path sees it, of which a turn ends with an exception.
class throwing_job final : public caf::resumable, public caf::ref_counted {
 public:
  subtype_t subtype() const override { return unspecified; }
  resume_result resume(caf::execution_unit*, std::size_t) override { throw std::runtime_error("of the test"); }
  void intrusive_ptr_add_ref_impl() override { ref(); }
  void intrusive_ptr_release_impl() override { deref(); }
};

template <class Condition>
bool comes_true(Condition&& condition) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data_path_tests)

BOOST_FIXTURE_TEST_CASE(a_question_and_its_answer_run_on_the_thread_that_heard_the_event, data_path_fixture) {
  std::binary_semaphore done(0);
  std::thread::id tier_on;
  std::thread::id session_on;
  const auto tier = keep([&](caf::event_based_actor*) -> caf::behavior {
    return {[&](int n) {
      tier_on = std::this_thread::get_id();
      return n + 1;
    }};
  });
  const auto asking = keep([&](caf::event_based_actor* self) -> caf::behavior {
    return {[&, self](int n) {
      self->request(tier, caf::infinite, n).then([&](int) {
        session_on = std::this_thread::get_id();
        done.release();
      });
    }};
  });
  std::thread::id path_on;
  std::latch known(1);
  path->post([&] {
    path_on = std::this_thread::get_id();
    known.count_down();
  });
  known.wait();
  // A thread of the scheduler may still have them in hand, from their beginning or from the round before.
  bool all_here = false;
  for (int round = 0; round < 1000 && !all_here; ++round) {
    path->deliver(asking, 1);
    BOOST_REQUIRE(done.try_acquire_for(patience));
    all_here = tier_on == path_on && session_on == path_on;
  }
  BOOST_TEST(all_here);
}

BOOST_FIXTURE_TEST_CASE(an_actor_that_another_thread_runs_takes_its_message_there_and_keeps_nobody_waiting,
                        data_path_fixture) {
  std::latch inside(1);
  std::latch go_on(1);
  std::atomic<int> handled{0};
  const auto busy = keep([&](caf::event_based_actor*) -> caf::behavior {
    return {[&](int) {
      if (handled.load() == 0) {
        inside.count_down();
        go_on.wait();
      }
      ++handled;
    }};
  });
  caf::anon_send(busy, 0);  // on a thread of the scheduler
  inside.wait();
  path->deliver(busy, 1);
  const rung_session other = open_session();
  other.ring();
  BOOST_TEST(comes_true([&] { return other.bells->load() == 1; }), "the thread of the data path waits for the actor");
  BOOST_TEST(handled.load() == 0);
  go_on.count_down();
  BOOST_TEST(comes_true([&] { return handled.load() == 2; }));
}

BOOST_FIXTURE_TEST_CASE(who_has_always_more_to_do_does_not_keep_others_from_being_heard, data_path_fixture) {
  const auto turns = std::make_shared<std::atomic<std::uint64_t>>(0);  // it goes on until the fixture ends it
  const auto greedy = keep([turns](caf::event_based_actor* self) -> caf::behavior {
    return {[turns, self](int n) {
      ++*turns;
      self->send(self, n);
    }};
  });
  path->deliver(greedy, 0);
  BOOST_REQUIRE(comes_true([&] { return turns->load() > 1000; }));
  const rung_session other = open_session();
  for (int i = 1; i <= 20; ++i) {
    other.ring();
    BOOST_REQUIRE(comes_true([&] { return other.bells->load() == i; }));
  }
}

BOOST_FIXTURE_TEST_CASE(every_one_of_many_sessions_is_heard, data_path_fixture) {
  std::vector<rung_session> all;
  for (int i = 0; i < 200; ++i) all.push_back(open_session());
  for (int round = 1; round <= 5; ++round) {
    for (const auto& each : all) each.ring();
    for (const auto& each : all) BOOST_REQUIRE(comes_true([&] { return each.bells->load() == round; }));
  }
}

BOOST_FIXTURE_TEST_CASE(what_is_to_be_repeated_comes_until_the_actor_is_gone, data_path_fixture) {
  std::counting_semaphore<> heard(0);
  path->repeat(std::chrono::milliseconds(1),
               keep([&](caf::event_based_actor*) -> caf::behavior { return {[&](tick_atom) { heard.release(); }}; }),
               tick_atom_v);
  for (int i = 0; i < 3; ++i) heard.acquire();
  actors.clear();
  system.await_all_actors_done();  // a repetition that held it would never let it end
}

BOOST_FIXTURE_TEST_CASE(what_is_left_at_the_end_goes_on_in_the_scheduler, data_path_fixture) {
  constexpr int all = 20'000 / cenote::testing::step_cost;
  std::atomic<int> handled{0};
  const auto worker = keep([&](caf::event_based_actor* self) -> caf::behavior {
    return {[&, self](int left) {
      ++handled;
      if (left > 1) self->send(self, left - 1);
    }};
  });
  path->deliver(worker, all);
  BOOST_REQUIRE(comes_true([&] { return handled.load() > 100; }));
  path->stop();
  BOOST_TEST(comes_true([&] { return handled.load() == all; }), "handled " << handled.load());
}

BOOST_FIXTURE_TEST_CASE(an_exception_of_a_task_ends_neither_the_thread_nor_what_waits, data_path_fixture) {
  std::atomic<int> handled{0};
  const auto other = keep([&](caf::event_based_actor*) -> caf::behavior { return {[&](int) { ++handled; }}; });
  path->post([] { throw std::runtime_error("of the test"); });
  path->deliver(other, 1);
  BOOST_TEST(comes_true([&] { return handled.load() == 1; }));
}

// Run by the next test in a process of its own: a fork of this one may hold threads of others.
BOOST_AUTO_TEST_CASE(an_actors_turn_lets_an_exception_out, *boost::unit_test::disabled()) {
  std::set_terminate([] { ::_exit(ended_by_terminate); });
  scheduler_config config;
  std::unique_ptr<data_path> path;
  caf::actor_system system{config};
  path = std::move(*data_path::start(system, [](auto, const std::string&) { ::_exit(1); }));
  path->post([&] { path->runner().exec_later(new throwing_job); });
  std::this_thread::sleep_for(patience);
  ::_exit(2);
}

BOOST_AUTO_TEST_CASE(an_exception_that_an_actors_turn_lets_out_ends_the_process_and_leaves_no_actor_without_turns) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string which = "--run_test=data_path_tests/an_actors_turn_lets_an_exception_out";
  const std::array<char*, 3> arguments{const_cast<char*>(self.c_str()), const_cast<char*>(which.c_str()), nullptr};
  pid_t child = 0;
  BOOST_REQUIRE(::posix_spawn(&child, self.c_str(), nullptr, nullptr, arguments.data(), environ) == 0);
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_TEST(WIFEXITED(status));
  BOOST_TEST(WEXITSTATUS(status) == ended_by_terminate);
}

BOOST_AUTO_TEST_SUITE_END()
