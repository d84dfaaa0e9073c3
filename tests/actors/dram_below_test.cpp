// The way from a device's tier to DRAM among actors: a real DRAM tier below it, above it a tier that the test plays.
#include "actors/dram_below.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/actor_fixture.hpp"
#include "tests/support/wrapped_device.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

constexpr std::uint64_t block = 4096;
constexpr auto limit = std::chrono::seconds(60);

/// The simulated device; ends of its work are heard when the test looks, on the test's thread.
class looked_at_device final : public wrapped_device {
 public:
  void when(const event_ref& point, std::function<void(result<void>)> call) override {
    waiting.emplace_back(point, std::move(call));
  }
  /// Waits for all that is under way.
  void hear() {
    for (const auto& [point, call] : std::exchange(waiting, {})) {
      const auto how = await(sim, point, limit);
      is_away |= fails_copies;
      call(fails_copies ? result<void>(fail(error_code::system, "failed")) : how);
    }
  }

  std::vector<std::pair<event_ref, std::function<void(result<void>)>>> waiting;
};

/// What the tier above heard.
struct told_above {
  std::vector<std::string> order;
  std::vector<transfer_outcome> ended;
  std::vector<removals_ptr> removals;
  std::function<void()> on_removal;
  outcome answer;
};

/// DRAM has two tiers below, the second without hints.
struct below_a_device : actor_fixture {
  below_a_device() : actor_fixture(below::two_tiers) {
    provide_memory();
    dram_below_options options;
    options.dram = dram();
    options.on = on;
    options.device = "sim:0";
    options.number = 3;
    options.epoch = 5;
    options.on_lost = [this](const std::string& why) { lost.push_back(why); };
    way = system().spawn<dram_below>(std::move(options));
    above = system().spawn([told = told_up](caf::event_based_actor*) -> caf::behavior {
      return {
          [told](transfers_done_atom, const transfer_outcomes_ptr& all) {
            told->order.emplace_back("done");
            told->ended.insert(told->ended.end(), all->begin(), all->end());
          },
          [told](drained_atom, blocks::edge_number edge, bool is_known) {
            told->order.push_back("drained " + std::to_string(edge) + (is_known ? " true" : " false"));
          },
          [told](standing_atom, blocks::edge_number edge, bool stands) {
            told->order.push_back("standing " + std::to_string(edge) + (stands ? " true" : " false"));
          },
          [told](removed_atom, const removals_ptr& removals) {
            told->order.emplace_back("removed");
            told->removals.push_back(removals);
            if (told->on_removal) told->on_removal();
            return told->answer;
          },
      };
    });
    from_above(above_atom_v, blocks::edge_number{0});
    caf::anon_send(dram(), hear_removals_atom_v, removal_listener(way), true);
    run();
  }
  ~below_a_device() {
    told_up->on_removal = nullptr;
    caf::anon_send_exit(way, caf::exit_reason::user_shutdown);
    way = nullptr;
    caf::anon_send_exit(above, caf::exit_reason::user_shutdown);
    above = nullptr;
    run();
  }

  template <class... Parts>
  void from_above(Parts... parts) {
    const auto to = caf::actor_cast<caf::strong_actor_ptr>(way);
    to->enqueue(caf::actor_cast<caf::strong_actor_ptr>(above), caf::make_message_id(),
                caf::make_message(std::move(parts)...), nullptr);
  }
  void bind() {
    auto binding = std::make_shared<blocks::instance_binding>();
    binding->number = 9;
    binding->share = std::make_shared<const instance_share>(instance_share{small_spec(), 0});
    binding->spec = instance_on_device(*binding->share, "sim:0").value();
    from_above(bind_atom_v, instance_binding_ptr(std::move(binding)));
    settle();
  }
  transfers_ptr transfer_of(std::uint64_t token, std::uint64_t key) {
    transfer one;
    one.instance = 9;
    one.token = token;
    one.full = key_of(key);
    one.key = reduce_key(one.full.view(), 0);
    one.memory = memory.span().first(block);
    return std::make_shared<const std::vector<transfer>>(1, one);
  }
  void settle() {
    run();
    while (!requests().empty() || !on->waiting.empty()) {
      provide_memory();
      on->hear();
      run();
    }
  }
  /// By a client of DRAM.
  std::optional<error_code> remove(std::uint64_t key) {
    auto work = std::make_shared<blocks::batch>();
    work->session = 1;
    memory::submission entry = entry_of(memory::operation::remove, 8);
    const full_key full = key_of(key);
    entry.key_size = full.size;
    std::memcpy(entry.key, full.bytes.data(), sizeof entry.key);
    work->entries = {entry};
    const auto done = ask<batch_ptr>(dram(), run_atom_v, work);
    if (!done || (*done)->completions.size() != 1) return std::nullopt;
    return static_cast<error_code>((*done)->completions.front().code);
  }
  [[nodiscard]] bool dram_has(std::uint64_t key) const {
    return memory::index_value::holds_block(index().find(reduce_key(key_of(key).view(), 0)));
  }
  removals_ptr removal_of(std::uint64_t key) {
    blocks::removal one;
    one.instance = 9;
    one.keys = {reduce_key(key_of(key).view(), 0)};
    return std::make_shared<const std::vector<blocks::removal>>(1, one);
  }

  std::shared_ptr<looked_at_device> on = std::make_shared<looked_at_device>();
  device_memory memory = std::move(*on->make(block));
  std::shared_ptr<told_above> told_up = std::make_shared<told_above>();
  std::vector<std::string> lost;
  dram_below_actor way;
  caf::actor above;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(dram_below)

BOOST_FIXTURE_TEST_CASE(a_tier_that_takes_its_place_above_hears_that_nothing_of_earlier_workers_comes, below_a_device) {
  BOOST_TEST(told_up->order == std::vector<std::string>{"drained 0 true"}, boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(a_block_from_above_is_in_dram_and_comes_back_and_each_transfer_ends_above, below_a_device) {
  bind();
  std::memset(memory.mapping.get(), 7, block);
  from_above(write_atom_v, transfer_of(1, 100));
  settle();
  BOOST_REQUIRE(told_up->ended.size() == 1U);
  BOOST_TEST((told_up->ended[0].what == transfer_result::done));
  BOOST_TEST(dram_has(100));
  std::memset(memory.mapping.get(), 0, block);
  from_above(fetch_atom_v, transfer_of(2, 100));
  settle();
  BOOST_REQUIRE(told_up->ended.size() == 2U);
  BOOST_TEST(told_up->ended[1].token == 2U);
  BOOST_TEST((told_up->ended[1].what == transfer_result::done));
  BOOST_TEST((memory.mapping.get()[block - 1] == std::byte{7}));
  const auto report = ask<tier_report_ptr>(way, report_atom_v);
  BOOST_REQUIRE(report);
  BOOST_TEST((*report)->name == "gpu");
}

BOOST_FIXTURE_TEST_CASE(its_sessions_have_numbers_of_their_own, below_a_device) {
  bind();
  const auto report = ask<dram_report_ptr>(dram(), report_atom_v);
  BOOST_REQUIRE(report);
  BOOST_REQUIRE((*report)->store.sessions.size() == 1U);
  const auto numbers = guest_numbers_of(3);
  const std::uint64_t number = (*report)->store.sessions[0].number;
  BOOST_TEST(number >> 32U == 5U);
  BOOST_TEST((number & 0xffff'ffff) >= numbers.first);
  BOOST_TEST((number & 0xffff'ffff) < numbers.first + numbers.count);
}

BOOST_FIXTURE_TEST_CASE(what_dram_removes_is_removed_above_before_it_is_answered_and_not_written_meanwhile,
                        below_a_device) {
  bind();
  const auto client = make_client(1);
  // On its way down when the tier above hears of the removal: it comes before its answer.
  told_up->on_removal = [this] { from_above(write_atom_v, transfer_of(1, 100)); };
  BOOST_TEST((remove(100) == error_code::ok));
  settle();
  BOOST_REQUIRE(told_up->removals.size() == 1U);
  const blocks::removal& heard = told_up->removals[0]->front();
  BOOST_TEST(heard.instance == 9U);
  BOOST_TEST((heard.keys == std::vector{reduce_key(key_of(100).view(), 0)}));
  BOOST_REQUIRE(told_up->ended.size() == 1U);
  BOOST_TEST((told_up->ended[0].what == transfer_result::dropped));
  BOOST_TEST(!dram_has(100));
}

BOOST_FIXTURE_TEST_CASE(what_the_tier_above_could_not_remove_is_an_error_of_the_removal, below_a_device) {
  bind();
  const auto client = make_client(1);
  told_up->answer = {error_code::removal_pending, "a device", 0};
  BOOST_TEST((remove(100) == error_code::removal_pending));
}

BOOST_FIXTURE_TEST_CASE(what_is_removed_above_is_removed_in_dram_and_in_all_tiers_below_it, below_a_device) {
  bind();
  from_above(write_atom_v, transfer_of(1, 100));
  settle();
  BOOST_REQUIRE(dram_has(100));
  const auto forgot = ask<outcome>(way, forget_atom_v, removal_of(100));
  BOOST_REQUIRE(forgot);
  BOOST_TEST((forgot->code == error_code::ok));
  BOOST_TEST(forgot->value == 1U);
  BOOST_TEST(!dram_has(100));
  for (const blocks::edge_number edge : {0U, 1U}) {
    BOOST_REQUIRE(!told(edge).removals.empty());
    BOOST_TEST(!told(edge).removals.back()->front().on_its_way);  // it is no other node's
  }
}

BOOST_FIXTURE_TEST_CASE(a_device_that_failed_stands_no_more_and_whoever_has_it_is_told, below_a_device) {
  bind();
  on->fails_copies = true;
  from_above(write_atom_v, transfer_of(1, 100));
  settle();
  BOOST_REQUIRE(told_up->ended.size() == 1U);
  BOOST_TEST((told_up->ended[0].what == transfer_result::failed));
  BOOST_TEST(told_up->order.back() != "drained 0 true");
  BOOST_TEST(std::ranges::count(told_up->order, "standing 0 false") == 1);
  BOOST_TEST(lost.size() == 1U);
  BOOST_TEST(!dram_has(100));
}

BOOST_FIXTURE_TEST_CASE(a_question_from_above_is_answered_by_what_dram_has, below_a_device) {
  bind();
  from_above(write_atom_v, transfer_of(1, 100));
  settle();
  key_query asked;
  asked.instance = 9;
  asked.keys = {key_of(100), key_of(101)};
  const auto held = ask<key_answer_ptr>(way, locate_atom_v, std::make_shared<const key_query>(asked));
  BOOST_REQUIRE(held);
  BOOST_TEST(((*held)->held == std::vector<bool>{true, false}));
}

BOOST_AUTO_TEST_SUITE_END()
