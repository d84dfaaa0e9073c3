// Removals that wait, in virtual time: when they are answered, repeated and saved.
#include "tiers/remote/removals.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/numbered_identity.hpp"
#include "tests/support/redis_server.hpp"

namespace cenote::remote {

namespace {

using namespace std::chrono_literals;

const block_key one_key{1, 2};

/// Removals of one identity at a place "b".
class waiting_removals {
 public:
  explicit waiting_removals(const std::filesystem::path& file) : book_(*removal_book::open(file, 1)) {}

  std::uint64_t begin(removals::round round = {}) {
    round.order.identity = 7_identity;
    round.order.keys = {one_key};
    if (round.repeats == 0) round.answer = [this](const auto& outcome) { answer = outcome; };
    return all.begin(std::move(round), now);
  }
  void end(std::uint64_t number, std::set<std::string> silent) {
    all.find(number)->order.nodes = std::move(silent);
    all.end(number, now);
    BOOST_TEST(!answer.has_value());  // the owner publishes its figures first
    all.give_answers();
  }
  void save() {
    all.save(now);
    all.give_answers();
  }
  [[nodiscard]] std::vector<removals::round> due() {
    return all.take_due(now, [](const auto&) { return true; });
  }
  [[nodiscard]] bool is_unserved() const { return keys_.has(7_identity, one_key, now); }

 private:
  removal_book book_;
  cluster::recent_removals keys_;

 public:
  steady_time now{1h};
  std::vector<std::string> events{};
  std::optional<result<std::uint64_t>> answer{};
  removals all{
      book_, keys_, {.notice = [this](const auto& event, const auto&, const auto&) { events.push_back(event); }}, now};
};

}  // namespace

BOOST_AUTO_TEST_SUITE(removals_that_wait)

BOOST_AUTO_TEST_CASE(a_removal_that_all_confirm_is_answered_at_once_and_frees_its_keys) {
  const test::scratch_folder folder;
  waiting_removals node(folder / "book");
  const auto number = node.begin();
  BOOST_TEST(node.is_unserved());
  node.end(number, {});
  BOOST_REQUIRE(node.answer.has_value());
  BOOST_TEST(node.answer->has_value());
  BOOST_TEST(!node.is_unserved());
  BOOST_TEST(node.due().empty());
}

BOOST_AUTO_TEST_CASE(a_pending_removal_is_answered_when_it_is_in_the_file_and_says_how_many_wait) {
  const test::scratch_folder folder;
  waiting_removals node(folder / "book");
  node.end(node.begin(), {"b"});
  BOOST_TEST(!node.answer.has_value());
  node.save();
  BOOST_REQUIRE(node.answer.has_value());
  BOOST_TEST(node.answer->error().message() == "not confirmed by b; 1 removals wait");
  BOOST_TEST(removal_book::open(folder / "book", 1)->orders().size() == 1U);
  BOOST_TEST(node.is_unserved());
}

BOOST_AUTO_TEST_CASE(it_is_asked_for_again_after_a_pause_or_at_once_when_a_place_is_back) {
  const test::scratch_folder folder;
  waiting_removals node(folder / "book");
  node.end(node.begin(), {"b"});
  node.save();
  BOOST_TEST(node.due().empty());
  node.now += removals::repeat_pause;
  auto due = node.due();
  BOOST_REQUIRE(due.size() == 1U);
  node.answer.reset();
  const auto number = node.begin(due.front());
  node.all.hasten(node.now);
  BOOST_TEST(node.due().empty());  // it is under way
  node.end(number, {"b"});
  node.all.hasten(node.now);
  due = node.due();
  BOOST_REQUIRE(due.size() == 1U);
  node.end(node.begin(due.front()), {});
  BOOST_TEST(!node.is_unserved());
  BOOST_TEST(node.all.figures().unconfirmed == 0U);
  BOOST_TEST(node.all.figures().repeated == 2U);
}

BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_written_is_logged_once_and_tried_again) {
  const test::scratch_folder folder;
  std::filesystem::create_directory(folder / "state");
  waiting_removals node(folder / "state/book");
  std::filesystem::remove_all(folder / "state");
  node.end(node.begin(), {"b"});
  for (int i = 0; i < 3; ++i) {
    node.save();
    node.now += removals::repeat_pause;
  }
  BOOST_REQUIRE(node.answer.has_value());
  BOOST_TEST(!node.answer->has_value());
  BOOST_TEST(node.all.figures().failed_saves == 3U);
  BOOST_TEST(node.events.size() == 1U);
  std::filesystem::create_directory(folder / "state");
  node.save();
  BOOST_TEST(node.events.size() == 2U);
  BOOST_TEST(removal_book::open(folder / "state/book", 1)->orders().size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_book_that_is_full_is_said_once_in_a_while) {
  const test::scratch_folder folder;
  waiting_removals node(folder / "book");
  const auto remove = [&](std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t i = first; i < end; ++i) {
      removals::round round;
      round.order.identity = numbered_identity(i);
      round.order.keys = {one_key};
      const auto number = node.all.begin(std::move(round), node.now);
      node.all.find(number)->order.nodes = {"b"};
      node.all.end(number, node.now);
    }
  };
  remove(0, removal_book::most_orders);
  BOOST_TEST(node.events.empty());
  remove(removal_book::most_orders, removal_book::most_orders + 9);
  BOOST_TEST((node.events ==
              std::vector<std::string>{"too many removals wait: one is not asked for again, and copies may remain"}));
  node.now += removals::bound_pause;
  remove(removal_book::most_orders + 9, removal_book::most_orders + 19);
  BOOST_TEST(node.events.size() == 2U);
  BOOST_TEST(node.all.figures().dropped == 19U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::remote
