// Who asks what the GPUs' driver says never waits for it, and is never told of a look that began before.
#include "worker/gpu_watch.hpp"

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <condition_variable>
#include <mutex>
#include <set>

namespace gpu_watch_test {

using namespace cenote;
using namespace std::chrono_literals;

namespace {

constexpr auto patience = 60s;

/// A driver, and what a test sees of it.
struct driver_state {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<pid_t> listed;
  bool is_there = true;
  bool answers = true;  ///< else a look waits
  bool fails = false;
  int looks = 0, open = 0, opened = 0;

  template <class Change>
  void set(Change&& change) {
    const std::lock_guard lock(mutex);
    change(*this);
    changed.notify_all();
  }
  template <class Condition>
  bool comes(Condition&& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, patience, [&] { return condition(*this); });
  }
};

class fake_driver final : public gpu_processes {
 public:
  explicit fake_driver(std::shared_ptr<driver_state> all) : all_(std::move(all)) {
    all_->set([](auto& it) { ++it.open, ++it.opened; });
  }
  fake_driver(const fake_driver&) = delete;
  fake_driver& operator=(const fake_driver&) = delete;
  ~fake_driver() override {
    all_->set([](auto& it) { --it.open; });
  }
  result<std::vector<pid_t>> list() override {
    std::unique_lock lock(all_->mutex);
    const std::vector<pid_t> found = all_->listed;  // as it was when the look began
    ++all_->looks;
    all_->changed.notify_all();
    all_->changed.wait(lock, [&] { return all_->answers; });
    if (all_->fails) return fail(error_code::system, "Unknown Error (999)");
    return found;
  }

 private:
  std::shared_ptr<driver_state> all_;
};

struct fixture {
  std::shared_ptr<driver_state> driver = std::make_shared<driver_state>();

  [[nodiscard]] gpu_watch::opener opens() const {
    return [all = driver]() -> result<std::unique_ptr<gpu_processes>> {
      bool is_there = false;
      all->set([&](auto& it) { is_there = it.is_there; });
      if (!is_there) return fail(error_code::unsupported, "no NVML");
      return std::make_unique<fake_driver>(all);
    };
  }
  static bool comes_to(gpu_watch& watch, pid_t process, gpu_answer wanted) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < until) {
      if (watch.ask(process) == wanted) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(watching_gpus)

BOOST_FIXTURE_TEST_CASE(a_process_is_listed_until_it_is_gone, fixture) {
  driver->listed = {7, 8};
  gpu_watch watch(opens(), 1ms);
  BOOST_TEST((watch.ask(7) == gpu_answer::unknown));
  BOOST_TEST(comes_to(watch, 7, gpu_answer::listed));
  driver->set([](auto& it) { it.listed = {8}; });
  BOOST_TEST(comes_to(watch, 7, gpu_answer::gone));
  BOOST_TEST(comes_to(watch, 9, gpu_answer::gone));
}

BOOST_FIXTURE_TEST_CASE(without_a_driver_nobody_knows_and_one_that_comes_later_is_found, fixture) {
  driver->is_there = false;
  gpu_watch watch(opens(), 1ms);
  watch.prepare();
  BOOST_TEST(comes_to(watch, 7, gpu_answer::nobody_knows));
  driver->set([](auto& it) { it.is_there = true, it.listed = {7}; });
  watch.prepare();
  BOOST_TEST(comes_to(watch, 7, gpu_answer::listed));
}

BOOST_FIXTURE_TEST_CASE(nobody_knows_of_a_process_without_a_number, fixture) {
  driver->listed = {0, 7};
  gpu_watch watch(opens(), 1ms);
  BOOST_TEST((watch.ask(0) == gpu_answer::nobody_knows));
  BOOST_TEST(comes_to(watch, 7, gpu_answer::listed));
  BOOST_TEST((watch.ask(0) == gpu_answer::nobody_knows));
}

BOOST_FIXTURE_TEST_CASE(a_look_that_began_before_the_question_does_not_answer_it, fixture) {
  driver->answers = false;
  gpu_watch watch(opens(), 1ms);
  BOOST_TEST((watch.ask(1) == gpu_answer::unknown));
  BOOST_REQUIRE(driver->comes([](auto& it) { return it.looks == 1; }));
  BOOST_TEST((watch.ask(7) == gpu_answer::unknown));  // the look under way did not see it
  driver->set([](auto& it) { it.listed = {7}, it.answers = true; });
  BOOST_REQUIRE(driver->comes([](auto& it) { return it.looks >= 2; }));
  gpu_answer answer = gpu_answer::unknown;
  const auto until = std::chrono::steady_clock::now() + patience;
  while (answer == gpu_answer::unknown && std::chrono::steady_clock::now() < until) {
    answer = watch.ask(7);
    std::this_thread::sleep_for(1ms);
  }
  BOOST_TEST((answer == gpu_answer::listed));
}

BOOST_FIXTURE_TEST_CASE(a_look_that_fails_is_no_answer, fixture) {
  driver->fails = true;
  gpu_watch watch(opens(), 1ms);
  BOOST_TEST((watch.ask(7) == gpu_answer::unknown));
  BOOST_REQUIRE(driver->comes([](auto& it) { return it.looks >= 3; }));
  BOOST_TEST((watch.ask(7) == gpu_answer::unknown));
  driver->set([](auto& it) { it.fails = false; });
  BOOST_TEST(comes_to(watch, 7, gpu_answer::gone));
}

BOOST_FIXTURE_TEST_CASE(the_driver_is_given_up_when_nobody_is_asked_for, fixture) {
  driver->listed = {7, 8};
  gpu_watch watch(opens(), 1ms);
  BOOST_TEST(comes_to(watch, 7, gpu_answer::listed));
  BOOST_TEST(comes_to(watch, 8, gpu_answer::listed));
  watch.forget(7);
  driver->set([](auto& it) { it.listed = {7}; });
  BOOST_TEST(comes_to(watch, 8, gpu_answer::gone));
  BOOST_TEST(driver->comes([](auto& it) { return it.open == 0; }));
  BOOST_TEST(comes_to(watch, 7, gpu_answer::listed));  // it is opened again
}

BOOST_FIXTURE_TEST_CASE(neither_a_question_nor_the_end_waits_for_a_driver_that_hangs, fixture) {
  driver->answers = false;
  {
    gpu_watch watch(opens(), 1ms);
    watch.prepare();
    BOOST_TEST((watch.ask(7) == gpu_answer::unknown));
    BOOST_REQUIRE(driver->comes([](auto& it) { return it.looks == 1; }));
    BOOST_TEST((watch.ask(7) == gpu_answer::unknown));
    watch.prepare();
  }
  driver->set([](auto& it) { it.answers = true; });
  BOOST_TEST(driver->comes([](auto& it) { return it.open == 0; }));  // what stayed behind ends in order
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace gpu_watch_test
