// A thread for each storage: outcomes by batch, a storage that hangs, and the end.
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "services/manager/storages/storage_worker.hpp"

namespace cenote::manager {

using namespace std::chrono_literals;

namespace {

/// State that a test and the storage's thread share. All waits end with what they wait for, or not at all.
class shared_gate {
 public:
  void close() {
    const std::lock_guard lock(mutex_);
    is_open_ = false;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  /// The storage's call; it waits while the gate is closed.
  void pass() {
    std::unique_lock lock(mutex_);
    ++calls_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
    --calls_;
    ++passed_;
    changed_.notify_all();
  }
  void note_end() {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    changed_.notify_all();
  }
  void deliver(removal_outcome outcome) {
    const std::lock_guard lock(mutex_);
    outcomes_.push_back(std::move(outcome));
    changed_.notify_all();
  }
  template <class Condition>
  void wait(Condition&& condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, condition);
  }
  void await_call() {
    wait([this] { return calls_ > 0; });
  }
  void await_passed(int count) {
    wait([this, count] { return passed_ >= count; });
  }
  void await_end() {
    wait([this] { return has_ended_; });
  }
  void note_cancel() {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    changed_.notify_all();
  }
  void await_cancel() {
    wait([this] { return is_cancelled_; });
  }
  std::vector<removal_outcome> await_outcomes(std::size_t count) {
    wait([this, count] { return outcomes_.size() >= count; });
    const std::lock_guard lock(mutex_);
    return outcomes_;
  }
  [[nodiscard]] std::size_t outcome_count() {
    const std::lock_guard lock(mutex_);
    return outcomes_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true;
  bool has_ended_ = false;
  bool is_cancelled_ = false;
  int calls_ = 0;
  int passed_ = 0;
  std::vector<removal_outcome> outcomes_;
};

class gated_storage final : public storage_backend {
 public:
  gated_storage(std::shared_ptr<shared_gate> gate, result<storage_room> room, std::size_t most_items)
      : gate_(std::move(gate)), room_(std::move(room)), most_items_(most_items) {}
  ~gated_storage() override { gate_->note_end(); }

  [[nodiscard]] result<> remove(const removal_item& item) override {
    gate_->pass();
    return item.place.starts_with("bad") ? fail(error_code::system, "no " + item.place) : result<>();
  }
  [[nodiscard]] std::size_t most_items() const noexcept override { return most_items_; }
  [[nodiscard]] std::vector<result<>> remove_together(std::span<const removal_item> items) override {
    if (most_items_ == 1) return storage_backend::remove_together(items);
    gate_->pass();
    BOOST_TEST(items.size() <= most_items_);
    std::vector<result<>> outcomes;
    for (const removal_item& item : items) {
      outcomes.push_back(item.place.starts_with("bad") ? fail(error_code::system, "no") : result<>());
    }
    return outcomes;
  }
  [[nodiscard]] result<storage_room> probe() override {
    gate_->pass();
    return room_;
  }
  [[nodiscard]] result<bool> remove_some(const std::string& folder) override {
    gate_->pass();
    if (folder.starts_with("bad")) return fail(error_code::system, "no " + folder);
    return --pieces_ != 0;
  }
  void cancel() noexcept override { gate_->note_cancel(); }

 private:
  std::shared_ptr<shared_gate> gate_;
  result<storage_room> room_;
  std::size_t most_items_;
  int pieces_ = 3;  ///< of a folder
};

struct worker_world {
  std::shared_ptr<shared_gate> gate = std::make_shared<shared_gate>();
  std::unique_ptr<storage_worker> worker;

  void start(storage_worker_options options,
             result<storage_room> room = storage_room{.free_bytes = 50, .total_bytes = 100},
             std::size_t most_items = 1) {
    worker =
        std::make_unique<storage_worker>(std::make_unique<gated_storage>(gate, std::move(room), most_items), options,
                                         [gate = gate](removal_outcome outcome) { gate->deliver(std::move(outcome)); });
  }
};

constexpr storage_worker_options one_probe{.probe_interval = 1h, .probe_timeout = 1h};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(workers_of_storages, worker_world)

BOOST_AUTO_TEST_CASE(each_batch_has_an_outcome_for_each_item_in_order) {
  start(one_probe);
  worker->remove({.number = 7, .items = {{.place = "a"}, {.place = "bad b"}, {.place = "c"}}});
  worker->remove({.number = 8, .items = {{.place = "bad d"}}});
  const auto outcomes = gate->await_outcomes(2);
  BOOST_REQUIRE(outcomes.size() == 2U);
  BOOST_TEST((outcomes[0].number == 7U && outcomes[1].number == 8U));
  BOOST_REQUIRE(outcomes[0].failures.size() == 3U);
  BOOST_TEST(outcomes[0].failures[0].empty());
  BOOST_TEST(outcomes[0].failures[1].find("no bad b") != std::string::npos);
  BOOST_TEST(outcomes[0].failures[2].empty());
  BOOST_TEST(!outcomes[1].failures.at(0).empty());
}

BOOST_AUTO_TEST_CASE(items_come_together_where_a_storage_takes_several) {
  start(one_probe, storage_room{}, 3);
  gate->await_passed(1);
  worker->remove(
      {.number = 1, .items = {{.place = "a"}, {.place = "bad b"}, {.place = "c"}, {.place = "d"}, {.place = "bad e"}}});
  const auto outcomes = gate->await_outcomes(1);
  BOOST_REQUIRE(outcomes[0].failures.size() == 5U);
  for (const std::size_t item : {0U, 2U, 3U}) BOOST_TEST(outcomes[0].failures[item].empty());
  for (const std::size_t item : {1U, 4U}) BOOST_TEST(!outcomes[0].failures[item].empty());
  gate->await_passed(3);  // the probe, three items, and the other two
}

BOOST_AUTO_TEST_CASE(a_folder_is_deleted_until_nothing_is_in_it) {
  start(one_probe, storage_room{}, 3);
  gate->await_passed(1);
  worker->remove({.number = 1, .items = {{.place = "a", .scope = removal_scope::folder}}});
  worker->remove({.number = 2, .items = {{.place = "bad b", .scope = removal_scope::folder}}});
  const auto outcomes = gate->await_outcomes(2);
  BOOST_REQUIRE((outcomes[0].failures.size() == 1U && outcomes[1].failures.size() == 1U));
  BOOST_TEST((outcomes[0].failures[0].empty() && outcomes[1].failures[0].find("no bad b") != std::string::npos));
  gate->await_passed(5);  // the probe, three pieces, and a failure
}

BOOST_AUTO_TEST_CASE(a_storage_that_waits_is_cancelled_at_the_end) {
  start(one_probe);
  gate->await_passed(1);
  worker->stop();
  gate->await_cancel();
  BOOST_TEST(gate->outcome_count() == 0U);
}

BOOST_AUTO_TEST_CASE(a_storage_that_hangs_is_unhealthy_from_its_timeout_on) {
  gate->close();
  start({.probe_interval = 1h, .probe_timeout = 0ms});
  gate->await_call();
  BOOST_TEST((worker->condition() == storage_condition::unhealthy));
  gate->open();
}

BOOST_AUTO_TEST_CASE(a_storage_that_is_slow_is_unprobed_up_to_its_first_answer) {
  gate->close();
  start(one_probe);
  gate->await_call();
  worker->await_probe({});  // a deadline that is over
  BOOST_TEST((worker->condition() == storage_condition::unprobed && !worker->is_probed()));
  gate->open();
  worker->await_probe(storage_health::time_point::max());
  BOOST_TEST((worker->condition() == storage_condition::healthy && worker->is_probed()));
}

BOOST_AUTO_TEST_CASE(a_storage_that_is_slow_later_is_healthy_up_to_its_timeout) {
  start(one_probe);
  worker->await_probe(storage_health::time_point::max());
  gate->close();
  worker->remove({.number = 1, .items = {{.place = "a"}}});
  gate->await_call();
  BOOST_TEST((worker->condition() == storage_condition::healthy));
  gate->open();
  BOOST_TEST(gate->await_outcomes(1).size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_first_probe_that_fails_or_hangs_is_waited_for_no_longer) {
  start(one_probe, fail(error_code::system, "gone away"));
  worker->await_probe(storage_health::time_point::max());
  BOOST_TEST((worker->condition() == storage_condition::unprobed && worker->is_probed()));
  gate->close();
  start({.probe_interval = 1h, .probe_timeout = 0ms});
  gate->await_call();
  BOOST_TEST(worker->is_probed());
  gate->open();
}

BOOST_AUTO_TEST_CASE(a_deletion_that_hangs_counts_as_well) {
  start({.probe_interval = 1h, .probe_timeout = 0ms});
  gate->await_passed(1);  // the first probe
  gate->close();
  worker->remove({.number = 1, .items = {{.place = "a"}}});
  gate->await_call();
  BOOST_TEST((worker->condition() == storage_condition::unhealthy));
  gate->open();
  BOOST_TEST(gate->await_outcomes(1).size() == 1U);
}

BOOST_AUTO_TEST_CASE(probes_give_room_and_failures_a_text) {
  start({.probe_interval = 0ms, .probe_timeout = 1h}, storage_room{.free_bytes = 4, .total_bytes = 100});
  gate->await_passed(2);
  BOOST_TEST((worker->condition() == storage_condition::full));
  BOOST_TEST(worker->free_bytes() == 4U);
  BOOST_TEST(worker->last_failure().empty());
}

BOOST_AUTO_TEST_CASE(probes_that_fail_make_a_storage_unhealthy) {
  start({.probe_interval = 0ms, .probe_timeout = 1h}, fail(error_code::system, "gone away"));
  gate->await_passed(4);
  BOOST_TEST((worker->condition() == storage_condition::unhealthy));
  BOOST_TEST(worker->last_failure().find("gone away") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_worker_that_is_stopped_delivers_nothing_more) {
  start(one_probe);
  gate->await_passed(1);
  gate->close();
  worker->remove({.number = 1, .items = {{.place = "a"}, {.place = "b"}}});
  gate->await_call();
  worker->stop();
  BOOST_TEST(!worker->has_ended());
  gate->open();
  worker.reset();
  gate->await_end();
  BOOST_TEST(gate->outcome_count() == 0U);
}

BOOST_AUTO_TEST_CASE(the_end_does_not_wait_for_a_storage_that_hangs) {
  gate->close();
  start(one_probe);
  gate->await_call();
  worker.reset();  // comes back, though the storage does not
  gate->open();
  gate->await_end();
  BOOST_TEST(gate->outcome_count() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
