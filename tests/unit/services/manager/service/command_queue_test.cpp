// Commands on their way to the writer: turns of instances, and the command_inbox.
#include "services/manager/service/command_queue.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "services/manager/store/memory_journal.hpp"

namespace cenote::manager {

using namespace std::chrono_literals;

namespace {

/// A command of a number of keys, which notes what it took of each round.
class counted_command final : public write_command {
 public:
  counted_command(std::string instance, std::size_t keys, std::vector<std::string>& log, std::string name)
      : instance_(std::move(instance)), rest_(keys), log_(log), name_(std::move(name)) {}

  [[nodiscard]] bool advance(write_parts& /*parts*/, write_round& round) override {
    const std::size_t piece = std::min(rest_, round.keys);
    rest_ -= piece;
    round.keys -= piece;
    log_.push_back(name_ + " " + std::to_string(piece));
    return rest_ == 0;
  }
  void answer(const result<>& committed) override { log_.push_back(name_ + (committed ? " done" : " failed")); }
  [[nodiscard]] std::string_view instance() const noexcept override { return instance_; }

 private:
  std::string instance_;
  std::size_t rest_;
  std::vector<std::string>& log_;
  std::string name_;
};

struct queue_world {
  std::vector<std::string> log;
  command_queue queue;
  memory_journal rows;
  manager_state state;
  write_sessions sessions;
  write_settings settings;
  removal_queue removals{state, settings};
  ledger changes{state, rows, [](const due_removal&) {}};
  worker_factory make_worker;
  bool has_new_registry = false;
  write_parts parts{.state = state,
                    .changes = changes,
                    .removals = removals,
                    .sessions = sessions,
                    .settings = settings,
                    .make_worker = make_worker,
                    .has_new_registry = has_new_registry};

  std::unique_ptr<write_command> command(const std::string& instance, std::size_t keys, const std::string& name) {
    return std::make_unique<counted_command>(instance, keys, log, name);
  }
  void add(const std::string& instance, std::size_t keys, const std::string& name) {
    queue.add(command(instance, keys, name));
  }
  /// The notes of one round.
  std::vector<std::string> round() {
    log.clear();
    write_round round;
    for (const auto& complete : queue.advance(parts, round)) complete->answer({});
    return log;
  }
};

using texts = std::vector<std::string>;

}  // namespace

BOOST_FIXTURE_TEST_SUITE(commands_of_a_writer, queue_world)

BOOST_AUTO_TEST_CASE(a_large_command_is_cut_into_pieces) {
  add("i", 10'000, "large");
  BOOST_TEST(round() == (texts{"large 4096"}), boost::test_tools::per_element());
  BOOST_TEST(round() == (texts{"large 4096"}), boost::test_tools::per_element());
  BOOST_TEST(round() == (texts{"large 1808", "large done"}), boost::test_tools::per_element());
  BOOST_TEST(queue.empty());
}

BOOST_AUTO_TEST_CASE(a_small_command_of_another_instance_waits_for_one_piece_at_most) {
  add("i", 1'000'000, "large");
  add("j", 1, "small");
  BOOST_TEST(round() == (texts{"large 4096"}), boost::test_tools::per_element());
  const texts second = round();
  BOOST_TEST(second.front() == "small 1");
  BOOST_TEST(std::ranges::count(second, "small done") == 1);
}

BOOST_AUTO_TEST_CASE(two_large_commands_take_turns) {
  add("i", 8'192, "one");
  add("j", 8'192, "other");
  texts pieces;
  for (int i = 0; i < 4; ++i) pieces.push_back(round().front());
  BOOST_TEST(pieces == (texts{"one 4096", "other 4096", "one 4096", "other 4096"}), boost::test_tools::per_element());
  BOOST_TEST(queue.empty());
}

BOOST_AUTO_TEST_CASE(small_commands_share_a_round) {
  for (const char* name : {"a", "b", "c"}) add(name, 100, name);
  BOOST_TEST(round() == (texts{"a 100", "b 100", "c 100", "a done", "b done", "c done"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(commands_of_one_instance_keep_their_order) {
  add("i", 5'000, "first");
  add("i", 1, "second");
  BOOST_TEST(round() == (texts{"first 4096"}), boost::test_tools::per_element());
  BOOST_TEST(round() == (texts{"first 904", "second 1", "first done", "second done"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(commands_without_keys_do_not_fill_a_round_for_ever) {
  for (std::size_t i = 0; i < write_round::piece + 10; ++i) add("i", 0, "empty");
  BOOST_TEST(round().size() == 2 * write_round::piece);
  BOOST_TEST(round().size() == 20U);
  BOOST_TEST(queue.empty());
}

BOOST_AUTO_TEST_CASE(all_that_wait_can_be_taken_back) {
  add("i", 5'000, "large");
  add("i", 1, "small");
  add("j", 1, "other");
  (void)round();
  const auto all = queue.take_all();
  BOOST_TEST(all.size() == 3U);
  BOOST_TEST(queue.empty());
  BOOST_TEST(round().empty());
}

BOOST_AUTO_TEST_CASE(a_mailbox_gives_what_came_in_its_order_and_ends_closed) {
  command_inbox box;
  BOOST_TEST(box.add(command("i", 1, "a")) == nullptr);
  BOOST_TEST(box.add(command("j", 1, "b")) == nullptr);
  box.add(storage_news{.incarnation = 3, .outcome = {.number = 7}});
  auto arrival = box.take({});
  BOOST_REQUIRE(arrival.commands.size() == 2U);
  BOOST_TEST((arrival.commands[0]->instance() == "i" && arrival.commands[1]->instance() == "j"));
  BOOST_REQUIRE(arrival.news.size() == 1U);
  BOOST_TEST((arrival.news[0].incarnation == 3U && arrival.news[0].outcome.number == 7U && !arrival.is_stopping));
  arrival = box.take({});  // nothing, and the time is over
  BOOST_TEST((arrival.commands.empty() && arrival.news.empty()));
  BOOST_TEST(box.add(command("i", 1, "c")) == nullptr);
  box.close();
  const auto refused = box.add(command("k", 1, "d"));
  BOOST_TEST_REQUIRE(refused != nullptr);
  BOOST_TEST(refused->instance() == "k");
  arrival = box.take(round_time::max());
  BOOST_TEST((arrival.is_stopping && arrival.commands.size() == 1U));
  arrival = box.take(round_time::max());  // a closed box never waits
  BOOST_TEST((arrival.is_stopping && arrival.commands.empty()));
}

BOOST_AUTO_TEST_CASE(a_mailbox_loses_nothing_of_many_threads) {
  command_inbox box;
  constexpr int thread_count = 4, commands_each = 500;
  std::vector<std::thread> threads;
  for (int i = 0; i < thread_count; ++i) {
    threads.emplace_back([&, i] {
      for (int count = 0; count < commands_each; ++count) {
        (void)box.add(std::make_unique<counted_command>(std::to_string(i), static_cast<std::size_t>(count), log, ""));
      }
    });
  }
  std::vector<std::string> instances;
  while (instances.size() < thread_count * commands_each) {
    for (const auto& each : box.take(round_time::max()).commands) instances.emplace_back(each->instance());
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < thread_count; ++i) {
    BOOST_TEST(std::ranges::count(instances, std::to_string(i)) == commands_each);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
